"""Cache of object code in the user's cache directory (`weft_graph.ir.user_cache`).

The name of an entry contains a hash of everything that its code depends on: the source text, the
  processor, and the versions of weft and LLVM.
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
    has_private_status,
    read_file,
    write_file,
)
from weft_tensor import errors

if TYPE_CHECKING:  # imported only on a miss: LLVM takes 0.1 s to import
    from weft_compiler.codegen.targets import Target

Loaded = TypeVar("Loaded")

LIMIT: Final = 256 << 20
"""Default limit of the cache in bytes; `WEFT_CACHE_BYTES` overrides it. Each running process may
exceed the limit by some 4 MB, because it checks only after adding that much.
"""

SHARED: Final = "shared"
"""Folder of the code that all programs share. It has its own limit, because it takes seconds
to compile but only a few hundred kilobytes.
"""
_SHARED_LIMIT: Final = 32 << 20

_LOCK: Final = threading.Lock()
_LOOKS_AFTER: Final = 4 << 20
_IS_ENTRY: Final = re.compile(rf"[0-9a-f]{{64}}\.|{re.escape(UNFINISHED)}").match
"""Matches the names of entries and of unfinished entries."""


def compile_object(
    name: str, made_from: str, target: Target, compile: Callable[[], bytes]
) -> bytes:
    """Return the object code of a text: read it from the disk, or compile and store it.

    Args:
      name: a readable part of the file's name.
      made_from: everything that the code depends on, except the processor and versions.
    """
    return load_object(name, made_from, target, compile, bytes)


def load_object(
    name: str,
    made_from: str,
    target: Target,
    compile: Callable[[], bytes],
    load: Callable[[bytes], Loaded],
) -> Loaded:
    """Load the object code of a text; if code on the disk cannot be loaded, compile it again.

    Args:
      name, made_from, compile: as in `compile_object`.
      load: raises InternalError for invalid code.
    """
    file = object_file_name(name, made_from, target)
    result = read(file)
    if result is not None:
        try:
            return load(result)
        except errors.InternalError:  # the file has other content
            forget(file)
    image = compile()
    keep(file, image)
    return load(image)


def object_file_name(name: str, made_from: str, target: Target) -> str:
    """Return the name of the file in which `compile_object` stores an object."""
    return f"{_key(made_from, target)}.{name[:40]}.o"


def read(file: str) -> bytes | None:
    """Return the content of a file in the cache directory; None if it is missing or damaged."""
    place = directory()
    return None if place is None else read_file(place / file)


def keep(file: str, content: bytes) -> None:
    """Store a file in the cache directory, if that is possible."""
    place = directory()
    if place is not None:
        _write(place / file, content)


def forget(file: str) -> None:
    """Remove a file from the cache directory, if it exists."""
    place = directory()
    if place is not None:
        with contextlib.suppress(OSError):
            (place / file).unlink()


def entries(directory: Path) -> Iterator[Path]:
    """Yield this user's entries in a directory and its shared folder, including unfinished ones."""
    folders = [directory, shared] if (shared := directory / SHARED).is_dir() else [directory]
    for folder in folders:
        for path, _ in _entries_in(folder):
            yield Path(path)


def _entries_in(folder: Path) -> Iterator[tuple[str, os.stat_result]]:
    """Yield the paths of this user's entries in a folder, with their status."""
    with os.scandir(folder) as files:
        for file in files:
            with contextlib.suppress(OSError):  # another process removed it
                if _IS_ENTRY(file.name):
                    status = file.stat(follow_symlinks=False)
                    if has_private_status(status, stat.S_IFREG):
                        yield file.path, status


def _key(made_from: str, target: Target) -> str:
    from llvmlite import binding

    key_text = "\0".join(
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
    return hashlib.sha256(key_text.encode()).hexdigest()


@functools.cache
def _versions() -> tuple[str, str]:
    """Return the versions of the compiler and of llvmlite; reading them takes milliseconds."""
    return metadata.version("weftml-compiler"), metadata.version("llvmlite")


@functools.cache
def sources(package: str) -> str:
    """Return a hash of a package's source files, which changes when a developer edits them."""
    digest = hashlib.sha256()
    spec = importlib.util.find_spec(package)
    assert spec is not None and spec.origin is not None
    root = os.path.dirname(spec.origin)
    for folder, folders, files in os.walk(root):
        folders.sort()
        for file in sorted(files):
            if file.endswith(".py"):
                path = os.path.join(folder, file)
                status = os.stat(path)
                file_entry = f"{path[len(root) :]} {status.st_size} {status.st_mtime_ns}\n"
                digest.update(file_entry.encode())
    return digest.hexdigest()


def _write(path: Path, image: bytes) -> None:
    """Write an entry; failures are ignored, so that the next process compiles again."""
    if write_file(path, image):
        with contextlib.suppress(OSError):
            _trim(path.parent, len(image))


def _limit() -> int:
    """Return the size limit of the cache, in bytes.

    Raises: InvalidArgumentError: `WEFT_CACHE_BYTES` is not a number.
    """
    text = os.environ.get("WEFT_CACHE_BYTES", str(LIMIT))
    if not text.isdecimal():
        raise errors.InvalidArgumentError(
            f"the environment variable WEFT_CACHE_BYTES must be a number of bytes, got {text!r}"
        )
    return int(text)


_since_trim: dict[Path, int] = {}
"""Bytes that this process has written to each folder since it last checked the folder's size."""


def _trim(directory: Path, added: int) -> None:
    """Remove the least recently used entries if the cache exceeds its limit.

    A process checks this when it first writes an entry, and then after each 4 MB.
    """
    limit = _SHARED_LIMIT if directory.name == SHARED else _limit()
    with _LOCK:
        bytes_added = _since_trim.get(directory)
        if bytes_added is not None and bytes_added + added < min(_LOOKS_AFTER, limit):
            _since_trim[directory] = bytes_added + added
            return
        _since_trim[directory] = 0
    aged = [(status.st_mtime, status.st_size, path) for path, status in _entries_in(directory)]
    total = sum(size for _, size, _ in aged)
    for _, size, path in sorted(aged):
        if total <= limit:
            break
        with contextlib.suppress(OSError):
            os.unlink(path)
            total -= size
