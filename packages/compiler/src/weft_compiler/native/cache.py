"""Object code in the cache directory of the user (`weft_graph.ir.user_cache`).

The name of an entry is a hash of everything that its code depends on: the text, the processor, and
the versions of weft and LLVM.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib.util
import os
import re
import stat
import threading
from collections.abc import Callable, Iterator
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

from weft_graph.ir.user_cache import (
    UNFINISHED,
    directory as directory,
    is_private,
    read_file,
    write_file,
)
from weft_tensor import errors

if TYPE_CHECKING:  # what is looked for here is not always found, and LLVM takes 0.1 s to import
    from weft_compiler.codegen.targets import Target

Loaded = TypeVar("Loaded")

LIMIT: Final = 256 << 20
"""How many bytes entries may have, unless `WEFT_CACHE_BYTES` says so; processes that run may each
have added some 4 MB since they looked."""

SHARED: Final = "shared"
"""The folder of code that all programs share. It has a limit of its own: what it has in it takes
seconds to compile, and a few hundred kilobytes."""
_SHARED_LIMIT: Final = 32 << 20

_LOCK: Final = threading.Lock()
_LOOKS_AFTER: Final = 4 << 20
_IS_ENTRY: Final = re.compile(rf"[0-9a-f]{{64}}\.|{re.escape(UNFINISHED)}").match
"""Whether a name is that of an entry, or of one that was never finished."""


def object_of(name: str, made_from: str, target: Target, compile: Callable[[], bytes]) -> bytes:
    """The object code of a text: from the disk, or compiled now and kept.

    Args:
      name: for people who look into the directory.
      made_from: all that decides what the code is, besides the processor and versions.
    """
    return loaded_of(name, made_from, target, compile, bytes)


def loaded_of(
    name: str,
    made_from: str,
    target: Target,
    compile: Callable[[], bytes],
    load: Callable[[bytes], Loaded],
) -> Loaded:
    """What is loaded of the object code of a text; code of the disk that cannot be is made anew.

    Args:
      name, made_from, compile: as of `object_of`.
      load: raises InternalError where something is no code.
    """
    file = file_of(name, made_from, target)
    found = read(file)
    if found is not None:
        try:
            return load(found)
        except errors.InternalError:  # somebody kept something else there
            forget(file)
    image = compile()
    keep(file, image)
    return load(image)


def file_of(name: str, made_from: str, target: Target) -> str:
    """The name of the file that `object_of` keeps an object in."""
    return f"{_key(made_from, target)}.{name[:40]}.o"


def read(file: str) -> bytes | None:
    """What is kept in a file of the directory; None where there is none, or it is not as it was."""
    place = directory()
    return None if place is None else read_file(place / file)


def keep(file: str, content: bytes) -> None:
    """Keep something in a file of the directory, if that can be."""
    place = directory()
    if place is not None:
        _write(place / file, content)


def forget(file: str) -> None:
    """Remove a file of the directory, if it is there."""
    place = directory()
    if place is not None:
        with contextlib.suppress(OSError):
            (place / file).unlink()


def entries(place: Path) -> Iterator[Path]:
    """Yield the entries of this user in a directory and its shared part, unfinished ones too."""
    yield from _entries_in(place)
    shared = place / SHARED
    if shared.is_dir():
        yield from _entries_in(shared)


def _entries_in(folder: Path) -> Iterator[Path]:
    for path in folder.iterdir():
        with contextlib.suppress(OSError):  # another process removed it
            if _IS_ENTRY(path.name) and is_private(path, stat.S_IFREG):
                yield path


def _key(made_from: str, target: Target) -> str:
    from llvmlite import binding

    whole = "\0".join(
        [
            *_versions(),
            repr(binding.llvm_version_info),
            target.triple,
            target.cpu,
            target.features,
            sources("weft_compiler"),
            made_from,
        ]
    )
    return hashlib.sha256(whole.encode()).hexdigest()


@functools.cache
def _versions() -> tuple[str, str]:
    """The versions of the compiler and of llvmlite, which take milliseconds to read."""
    return metadata.version("weftml-compiler"), metadata.version("llvmlite")


@functools.cache
def sources(package: str) -> str:
    """What changes with the files of a package, which developers edit in place."""
    found = hashlib.sha256()
    spec = importlib.util.find_spec(package)
    assert spec is not None and spec.origin is not None
    root = os.path.dirname(spec.origin)
    for folder, folders, files in os.walk(root):
        folders.sort()
        for file in sorted(files):
            if file.endswith(".py"):
                path = os.path.join(folder, file)
                status = os.stat(path)
                here = f"{path[len(root) :]} {status.st_size} {status.st_mtime_ns}\n"
                found.update(here.encode())
    return found.hexdigest()


def _write(path: Path, image: bytes) -> None:
    """Keep an entry; if that fails, the next process compiles again."""
    if write_file(path, image):
        with contextlib.suppress(OSError):
            _trim(path.parent, len(image))


def _limit() -> int:
    """How many bytes entries may have.

    Raises: InvalidArgumentError: `WEFT_CACHE_BYTES` is no number.
    """
    said = os.environ.get("WEFT_CACHE_BYTES", str(LIMIT))
    if not said.isdecimal():
        raise errors.InvalidArgumentError(
            f"the environment variable WEFT_CACHE_BYTES must be a number of bytes, got {said!r}"
        )
    return int(said)


_since_trim: dict[Path, int] = {}
"""Bytes that this process has kept in a folder since it last looked at the whole of it."""


def _trim(place: Path, added: int) -> None:
    """Remove entries that were used longest ago where there are too many.

    A process looks when it first keeps something, and then after each 4 MB.
    """
    limit = _SHARED_LIMIT if place.name == SHARED else _limit()
    with _LOCK:
        kept = _since_trim.get(place)
        if kept is not None and kept + added < min(_LOOKS_AFTER, limit):
            _since_trim[place] = kept + added
            return
        _since_trim[place] = 0
    aged = []
    for path in _entries_in(place):
        with contextlib.suppress(OSError):
            status = path.stat()
            aged.append((status.st_mtime, status.st_size, path))
    total = sum(size for _, size, _ in aged)
    for _, size, path in sorted(aged):
        if total <= limit:
            break
        with contextlib.suppress(OSError):
            path.unlink()
            total -= size
