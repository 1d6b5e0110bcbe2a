"""The objects that a wheel brings: see `weft_compiler.native.shared_objects`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from weft_compiler.codegen import generated, threads
from weft_compiler.codegen.targets import object_code
from weft_compiler.native import arena, entry
from weft_compiler.native.shared_objects import LEVELS, Level, file_of, name_of
from weft_tensor import dtypes

_LIBRARIES: Final = (
    ("matmul", dtypes.float32),
    ("matmul", dtypes.float64),
    ("conv", dtypes.float32),
    ("matmul_bytes", dtypes.int8),
    ("matmul_bytes", dtypes.uint8),
    ("matmul_pairs", dtypes.bfloat16),
)


def texts(level: Level) -> Iterator[tuple[str, str]]:
    """Yield the names and texts of the objects for a level.

    The function that enters programs is that of this version of Python.
    """
    target = level.target
    for library, dtype in _LIBRARIES:
        yield name_of(library, dtype), generated.module_text(library, dtype, target)
    yield "arena", arena.text(target)
    yield "threads", threads.text(target)
    yield "entry", entry.text(target)


def build(folder: Path) -> int:
    """Write the objects of a wheel; levels with one text have that of the lowest.

    Returns: their bytes.
    """
    folder.mkdir(exist_ok=True)
    for path in folder.glob("*.o"):
        path.unlink()
    total = 0
    seen: set[str] = set()
    for level in reversed(LEVELS):
        for name, text in texts(level):
            if text not in seen:
                seen.add(text)
                image = object_code(text, level.target)
                (folder / file_of(name, text, level)).write_bytes(image)
                total += len(image)
    return total
