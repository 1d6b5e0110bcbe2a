"""The cache directory of a user, which is shared by processes, and its file format.

Only the owner may write to the directory and its files, so contents with a correct checksum are
trusted. `WEFT_CACHE` sets the directory; `WEFT_CACHE=off` disables the cache.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import stat
import tempfile
from pathlib import Path
from typing import Final

UNFINISHED: Final = ".new-"
"""Prefix of the names of files that are being written."""

_MAGIC: Final = b"weft-object-1\n"
_LARGEST: Final = 64 << 20


@functools.cache
def directory() -> Path | None:
    """Return the cache directory; None if it is disabled, or not private to this user."""
    setting = os.environ.get("WEFT_CACHE")
    if setting == "off":
        return None
    try:
        home = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
        path = Path(setting) if setting else Path(home) / "weft" / "objects"
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        return path if is_private(path, stat.S_IFDIR) else None
    except (OSError, RuntimeError):  # a home that cannot be written, or none
        return None


def is_private(path: Path, kind: int) -> bool:
    """Return True if a path belongs to this user and no other user may write to it.

    Args:
      kind: the expected file type, such as `stat.S_IFREG`.
    Raises: OSError: the file does not exist.
    """
    return has_private_status(path.lstat(), kind)


def has_private_status(status: os.stat_result, kind: int) -> bool:
    """Return True if a status is that of a private path; see `is_private`."""
    if stat.S_IFMT(status.st_mode) != kind:
        return False
    if not hasattr(os, "getuid"):
        return True  # a profile of Windows is its user's
    return status.st_uid == os.getuid() and not status.st_mode & 0o022


def read_file(path: Path) -> bytes | None:
    """Return the content of a file that `write_file` wrote; None if it is missing or not private.

    A file with a wrong checksum is removed.
    """
    try:
        if not is_private(path, stat.S_IFREG) or path.stat().st_size > _LARGEST:
            return None
        data = path.read_bytes()
    except OSError:  # it is missing, or another process removed it
        return None
    head = len(_MAGIC) + 32
    content = data[head:]
    if data[:head] != _MAGIC + hashlib.sha256(content).digest():
        with contextlib.suppress(OSError):
            path.unlink()
        return None
    with contextlib.suppress(OSError):
        os.utime(path)  # the least recently used files are removed first
    return content


def write_file(path: Path, content: bytes) -> bool:
    """Write a file atomically with a checksum; return False if writing fails."""
    try:
        path.parent.mkdir(mode=0o700, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=UNFINISHED)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(_MAGIC + hashlib.sha256(content).digest() + content)
            os.replace(name, path)
        except OSError:
            with contextlib.suppress(OSError):
                os.unlink(name)
            return False
    except OSError:
        return False
    return True
