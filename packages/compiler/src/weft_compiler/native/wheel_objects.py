"""Builder of the objects in a wheel: see `weft_compiler.native.shared_objects`.

The build hook runs `python -m weft_compiler.native.wheel_objects [--host]`.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from weft_compiler.codegen import runtime
from weft_compiler.codegen.targets import host, object_code
from weft_compiler.native.shared_objects import (
    FOLDER,
    LEVELS,
    InstructionSetLevel,
    can_run,
    file_of,
    name_of,
)
from weft_compiler.routines.registry import libraries


def texts(level: InstructionSetLevel) -> Iterator[tuple[str, str]]:
    """Yield the names and texts of the objects for a level."""
    target = level.target
    for library in libraries():
        for dtype in library.in_wheel:
            yield name_of(library.name, dtype), library.text(dtype, target)
    yield "runtime", runtime.text(target)


def build(folder: Path, levels: Sequence[InstructionSetLevel]) -> int:
    """Compile the objects for some levels that a folder lacks, and remove all other files from it.

    If several levels have the same text, they share the object of the lowest one.

    Args:
      folder: the directory of the objects; it is created if necessary.
      levels: the levels, those with more instructions first.

    Returns: the total size of the objects, in bytes.
    """
    folder.mkdir(exist_ok=True)
    paths: dict[str, Path] = {}
    for level in reversed(levels):
        for name, text in texts(level):
            if text not in paths:
                paths[text] = folder / file_of(name, text, level)
                if not paths[text].exists():
                    partial = paths[text].with_suffix(".partial")
                    partial.write_bytes(object_code(text, level.target))
                    partial.replace(paths[text])  # whole, for processes that load it meanwhile
    for path in set(folder.glob("*.o")).difference(paths.values()):
        path.unlink()
    return sum(path.stat().st_size for path in paths.values())


def main(arguments: Sequence[str]) -> None:
    """Write the objects of all levels, or those for this machine, to the package."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--host", action="store_true", help="only the best level of this machine")
    levels: Sequence[InstructionSetLevel] = LEVELS
    if parser.parse_args(arguments).host:
        levels = [level for level in LEVELS if can_run(level, host())][:1]
    total = build(FOLDER, levels)
    sys.stdout.write(f"{len(list(FOLDER.glob('*.o')))} objects, {total:,} bytes in {FOLDER}\n")


if __name__ == "__main__":
    main(sys.argv[1:])
