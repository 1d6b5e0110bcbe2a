"""Files written aside and renamed into place, locks, and errors that say which file.

Whatever is being written has a name such as `.model-5.0123456789abcdef.saving`, and its writer
holds a lock on it until it is renamed or removed. The lock goes with the process, so a file of this
name that can be locked was left behind by a writer that died.
"""

from __future__ import annotations

import errno
import os
import re
import secrets
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Final

from weft_tensor import errors

SAVING: Final = re.compile(r"^\.(?P<base>.+)\.(?P<save>[0-9a-f]{16})\.saving$", re.DOTALL)
"""The names of files that are being written."""

Bytes = bytes | bytearray | memoryview

_BINARY: Final = getattr(os, "O_BINARY", 0)
_CHUNK: Final = 1 << 23

_CLASSES: Final[dict[int, type[errors.OpError]]] = {
    errno.ENOSPC: errors.ResourceExhaustedError,
    errno.EDQUOT: errors.ResourceExhaustedError,
    errno.EFBIG: errors.ResourceExhaustedError,
    errno.EMFILE: errors.ResourceExhaustedError,
    errno.ENFILE: errors.ResourceExhaustedError,
    errno.ENOMEM: errors.ResourceExhaustedError,
    errno.ENOENT: errors.NotFoundError,
    errno.ENOTDIR: errors.FailedPreconditionError,
    errno.EISDIR: errors.FailedPreconditionError,
    errno.EACCES: errors.PermissionDeniedError,
    errno.EPERM: errors.PermissionDeniedError,
    errno.EROFS: errors.PermissionDeniedError,
    errno.EEXIST: errors.AlreadyExistsError,
    errno.ENAMETOOLONG: errors.InvalidArgumentError,
    errno.EIO: errors.DataLossError,
}


@contextmanager
def reported(doing: str) -> Iterator[None]:
    """Turn what the operating system refuses into an OpError.

    Args:
      doing: "saving /tmp/model-5", the start of the message.
    Raises: ResourceExhaustedError for a full disk, NotFoundError, PermissionDeniedError, ...
    """
    try:
        yield
    except OSError as cause:
        where = f" ({os.fsdecode(cause.filename)})" if cause.filename else ""
        kind = _CLASSES.get(cause.errno or 0, errors.UnknownError)
        raise kind(f"{doing} failed: {cause.strerror or cause}{where}") from cause


def new_save_id() -> str:
    """A name for one save that no other save has."""
    return secrets.token_hex(8)


def split_prefix(path: str) -> tuple[str, str]:
    """Directory ("." where the path names none) and last part of a path."""
    directory, base = os.path.split(path)
    return directory or ".", base


def exists(path: str) -> bool:
    """Whether there is a file of that name."""
    return os.path.exists(path)


# --------------------------------------------------------------------------- single operations


def write_all(descriptor: int, data: Bytes) -> None:
    """Write all of `data` where the file stands."""
    view = memoryview(data)
    while view:
        written = os.write(descriptor, view[:_CHUNK])
        view = view[written:]
        if written == _CHUNK and hasattr(os, "posix_fadvise"):
            # Linux then sends the pages to the disk while the next ones are being written, and not
            # only when the file is flushed.
            place = os.lseek(descriptor, 0, os.SEEK_CUR) - written
            os.posix_fadvise(descriptor, place, written, os.POSIX_FADV_DONTNEED)


def remove(path: str) -> None:
    """Remove a file; one that is not there is fine."""
    with suppress(FileNotFoundError):
        os.unlink(path)


def create(path: str) -> int:
    """A descriptor of a new file.

    Raises: FileExistsError: there is a file of this name.
    """
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _BINARY, 0o666)


def sync_directory(directory: str) -> None:
    """Make what was created, renamed and removed in a directory survive a loss of power."""
    if os.name == "nt":
        return
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # not all file systems can
            raise
    finally:
        os.close(descriptor)


# --------------------------------------------------------------------------- locks

_UNSUPPORTED: Final = (errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOLCK, errno.ENOSYS, errno.EINVAL)
_without_locks: Final = threading.RLock()


if sys.platform == "win32":

    def _lock(descriptor: int) -> bool:
        return False

    def _lock_of_the_dead(descriptor: int) -> bool:
        return False

else:
    import fcntl

    def _lock(descriptor: int) -> bool:
        """Lock an open file; False where the file system has no locks."""
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        except OSError as error:
            if error.errno in _UNSUPPORTED:
                return False
            raise
        return True

    def _lock_of_the_dead(descriptor: int) -> bool:
        """Lock an open file if that says that its writer is gone."""
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return False
        return True


@contextmanager
def locked_directory(directory: str) -> Iterator[None]:
    """Keep other threads and processes out of the short steps that change what is in place."""
    if os.name == "nt":
        with _without_locks:
            yield
        return
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        if _lock(descriptor):
            yield
        else:
            with _without_locks:
                yield
    finally:
        os.close(descriptor)


# --------------------------------------------------------------------------- written aside


class Saving:
    """A file that is being written, locked by its writer.

    Args:
      directory: where it will be renamed to.
      base: what it is about, for its name.
    """

    def __init__(self, directory: str, base: str) -> None:
        while True:
            self.path = os.path.join(directory, f".{base}.{new_save_id()}.saving")
            self._descriptor = create(self.path)
            try:
                _lock(self._descriptor)
                # Someone who met it before it was locked took it for abandoned and removed it.
                if os.fstat(self._descriptor).st_nlink or os.name == "nt":
                    return
            except BaseException:  # because nothing may stay behind, whatever it is
                self.discard()
                raise
            os.close(self._descriptor)

    def write(self, data: Bytes, flush: bool = False) -> None:
        """Append `data`, and with `flush` make it survive a loss of power."""
        write_all(self._descriptor, data)
        if flush:
            os.fsync(self._descriptor)

    def publish(self, target: str) -> None:
        """Flush the file and rename it to `target`, replacing what is there."""
        os.fsync(self._descriptor)
        if os.name == "nt":
            self._close()
        os.replace(self.path, target)
        self._close()
        sync_directory(os.path.dirname(target) or ".")

    def discard(self) -> None:
        """Remove the file."""
        if os.name == "nt":
            self._close()
        try:
            remove(self.path)
        finally:
            self._close()

    def abandon(self) -> None:
        """Close the file and leave it for the next save to deal with."""
        self._close()

    def _close(self) -> None:
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)


def write_atomically(path: str, data: Bytes) -> None:
    """Replace the file at `path` by `data`, so that a crash leaves one or the other, whole."""
    directory, base = split_prefix(path)
    saving = Saving(directory, base)
    try:
        saving.write(data)
        saving.publish(path)
    except BaseException:  # because nothing may stay behind, whatever it is
        saving.discard()
        raise


class Abandoned:
    """A file that a dead writer left, locked until it is dealt with.

    Attributes:
      path: where it is.
      base: what it was about.
      data: what it holds.
    """

    __slots__ = ("base", "data", "path")

    def __init__(self, path: str, base: str, data: bytes) -> None:
        self.path = path
        self.base = base
        self.data = data

    def remove(self) -> None:
        """Remove it."""
        remove(self.path)


def abandoned(directory: str, limit: int = 1 << 24) -> Iterator[Abandoned]:
    """The files in `directory` whose writers died while they wrote them.

    Args:
      limit: bytes to read of each.
    """
    for name, base in _saving_names(directory):
        path = os.path.join(directory, name)
        try:
            descriptor = os.open(path, os.O_RDWR | _BINARY)
        except OSError:  # renamed or removed meanwhile, or another user's
            continue
        try:
            if _lock_of_the_dead(descriptor):
                yield Abandoned(path, base, os.read(descriptor, limit))
        finally:
            os.close(descriptor)


def _saving_names(directory: str) -> Sequence[tuple[str, str]]:
    matches = ((name, SAVING.match(name)) for name in sorted(os.listdir(directory)))
    return [(name, match["base"]) for name, match in matches if match]


# --------------------------------------------------------------------------- reading


def read_bytes(path: str) -> bytes:
    """All of a file."""
    descriptor = os.open(path, os.O_RDONLY | _BINARY)
    with open(descriptor, "rb", buffering=0) as file:
        return file.read()
