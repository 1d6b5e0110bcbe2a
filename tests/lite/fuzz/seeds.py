"""Seeds for fuzzing: files that lite's tests run, also with all sizes open."""

from __future__ import annotations

import hashlib
import io
import math
import os
import subprocess
import sys
import tarfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from weft_testing.loading import load
from weft_testing.workspace import ROOT

from weft_lite import Interpreter
from weft_lite.errors import LiteError
from weft_lite.schema import codec
from weft_lite.schema.enums import Storage

HERE = Path(__file__).parent
CORPUS, SHAPES = HERE / "corpus.tar.xz", HERE / "shapes.tar.xz"

TESTS = [
    "tests/conformance/test_backends.py::test_case",
    "tests/lite/convert",
    "tests/lite/runtime/test_quantized.py",
]
MOST_BYTES = 1 << 15


def ran(folder: Path) -> list[bytes]:
    """Return the files that tests run: each kernel and type, loops, cells, state, int8, float16."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "weft_testing.lite_files"]
    command += ["-k", "not backends or -lite]", *TESTS]
    environment = {**os.environ, "LITE_FILES": str(folder)}
    subprocess.run(command, cwd=ROOT, env=environment, check=True, stdout=subprocess.DEVNULL)
    found = [path.read_bytes() for path in sorted(folder.iterdir())]
    return [data for data in found if len(data) <= MOST_BYTES]


OPEN: dict[str, Callable[[int, int, int], bool]] = {
    "all": lambda axis, rank, size: True,
    "all that are not 1": lambda axis, rank, size: size != 1,
    "all but the last": lambda axis, rank, size: axis < rank - 1,
    "all but the first": lambda axis, rank, size: axis > 0,
    "height and width": lambda axis, rank, size: 0 < axis < rank - 1,
    "the first": lambda axis, rank, size: axis == 0,
    "none": lambda axis, rank, size: False,
}
"""Which sizes are opened: by axis, rank and size. Some ops take others only as they are."""


def opened(data: bytes) -> list[bytes]:
    """The file with sizes open, in the first two of these ways in which the runtime takes it."""
    found: list[bytes] = []
    for choose in OPEN.values():
        made = with_open_sizes(data, choose)
        try:
            Interpreter(model_content=made)
        except LiteError:
            continue
        found.append(made)
        if len(found) == 2:
            break
    return found


def with_open_sizes(data: bytes, choose: Callable[[int, int, int], bool]) -> bytes:
    """Return the file with chosen sizes of computed tensors open, up to about twice."""
    model, weights = codec.decode(data)
    model.arena_size, model.scratch_size = 0, 1 << 14
    for tensor in model.tensors:
        if tensor.storage == Storage.CONSTANT:
            continue
        shape = tensor.bound or tensor.shape
        count, rank = max(1, math.prod(shape)), len(shape)
        is_open = [
            tensor.storage == Storage.ARENA and choose(i, rank, n) for i, n in enumerate(shape)
        ]
        tensor.bound = [2 * n + 3 if each else n for n, each in zip(shape, is_open, strict=True)]
        tensor.shape = [-1 if each else n for n, each in zip(shape, is_open, strict=True)]
        if not any(is_open):
            tensor.bound = []
        size = max(1, tensor.size // count)
        tensor.size = math.prod(tensor.bound or tensor.shape) * size
        tensor.offset = model.arena_size
        model.arena_size += codec.aligned(tensor.size)
    return codec.encode(model, bytes(weights))


def few(files: Iterable[bytes]) -> list[bytes]:
    """Return the smallest files that cover each op kind and combination of types."""
    found: dict[Any, bytes] = {}
    for data in sorted(set(files), key=len):
        model, _ = codec.decode(data)
        for op in model.ops:
            used = [model.tensors[i] for i in (*op.inputs[:3], *op.outputs[:1]) if i >= 0]
            forms = [(tensor.dtype, -1 in tensor.shape) for tensor in used]
            key = (op.kind, *forms[:1], *forms[-1:], *[dtype for dtype, _ in forms])
            found.setdefault(key, data)
    return list(dict.fromkeys(found.values()))


def kept(path: Path) -> list[bytes]:
    """Return the files of an archive."""
    with tarfile.open(path) as archive:
        found = [archive.extractfile(member) for member in archive]
        return [file.read() for file in found if file is not None]


def archive(path: Path, files: Iterable[bytes]) -> None:
    """Replace an archive; its bytes depend only on the files."""
    with tarfile.open(path, "w:xz", preset=9) as made:
        for data in sorted(set(files)):
            member = tarfile.TarInfo(hashlib.sha256(data).hexdigest()[:12])
            member.size = len(data)
            made.addfile(member, io.BytesIO(data))


def write_seeds(folder: Path) -> None:
    """Write `corpus`, the initial corpus, and `open`, the files with open sizes."""
    valid = ran(folder / "ran")
    open_sizes = [made for data in valid for made in opened(data)]
    hostile = load(HERE.parent / "runtime" / "test_hostile_files.py").seeds()
    write(folder / "open", open_sizes)
    write(folder / "corpus", [*valid, *open_sizes, *hostile, *kept(CORPUS)])


def write(folder: Path, files: Iterable[bytes]) -> None:
    """Write files named by their content."""
    folder.mkdir(parents=True, exist_ok=True)
    for data in files:
        if len(data) <= MOST_BYTES:
            (folder / hashlib.sha256(data).hexdigest()[:16]).write_bytes(data)
