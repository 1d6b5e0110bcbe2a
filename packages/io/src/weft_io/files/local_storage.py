"""Local files: atomic replacement by rename, and locks that reveal dead writers.

A file being written has a name such as `.model-5.0123456789abcdef.saving`, and its writer holds a
lock on it until it is renamed or removed. The lock ends with the process, so if such a file can be
locked, its writer is dead.
"""

from __future__ import annotations

import errno
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

from weft_exec.resources.file_access import open_checked
from weft_io.files.storage import SAVING, Bytes, temporary_name

_BINARY: Final = getattr(os, "O_BINARY", 0)
_CHUNK: Final = 1 << 23
_NOTE_LIMIT: Final = 1 << 24


# --------------------------------------------------------------------------- locks

_UNSUPPORTED: Final = (errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOLCK, errno.ENOSYS, errno.EINVAL)
_without_locks: Final = threading.RLock()


if sys.platform == "win32":

    def _lock(descriptor: int) -> bool:
        return False

    def _lock_of_dead_writer(descriptor: int) -> bool:
        return False

else:
    import fcntl

    def _lock(descriptor: int) -> bool:
        """Lock an open file; return False if the file system does not support locks."""
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        except OSError as error:
            if error.errno in _UNSUPPORTED:
                return False
            raise
        return True

    def _lock_of_dead_writer(descriptor: int) -> bool:
        """Lock an open file if that says that its writer is gone."""
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return False
        return True


# --------------------------------------------------------------------------- open files


class LocalNewFile:
    """A new file being written.

    Raises: FileExistsError: a file of this name exists.
    """

    def __init__(self, path: str) -> None:
        self._descriptor = open_checked(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _BINARY)
        self._written = self._sent = 0

    def write(self, data: Bytes) -> None:
        """Append bytes."""
        write_all(self._descriptor, data)
        self._written += len(data)
        if self._written - self._sent >= _CHUNK and hasattr(os, "posix_fadvise"):
            # Linux then sends the pages to the disk while the next ones are being written, and not
            # only when the file is flushed.
            size = self._written - self._sent
            os.posix_fadvise(self._descriptor, self._sent, size, os.POSIX_FADV_DONTNEED)
            self._sent = self._written

    def finish(self) -> None:
        """Flush and close the file."""
        os.fsync(self._descriptor)
        self.discard()

    def discard(self) -> None:
        """Close the file."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)


def write_all(descriptor: int, data: Bytes) -> None:
    """Write all of `data` at the file's current position."""
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view[:_CHUNK]) :]


class LocalOpenedFile:
    """A file opened for reading."""

    chunk = 1 << 20  # stays in the cache until its checksum is taken

    def __init__(self, path: str) -> None:
        self._file = open(path, "rb", buffering=0, opener=open_checked)  # noqa: SIM115 - closed by `close`
        self.size = os.fstat(self._file.fileno()).st_size

    def read_into(self, position: int, memory: memoryview) -> int:
        """Read until `memory` is full or the file ends."""
        self._file.seek(position)
        num_read = 0
        while num_read < len(memory):
            readinto = self._file.readinto(memory[num_read:])
            if not readinto:
                break
            num_read += readinto
        return num_read

    def close(self) -> None:
        """Close it."""
        self._file.close()


class LockedFile:
    """A file being written, locked by its writer.

    Args:
      directory: the directory of the final file.
      base: the base name of the checkpoint, which is part of the file's name.
    """

    def __init__(self, directory: str, base: str) -> None:
        while True:
            self.path = os.path.join(directory, temporary_name(base))
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _BINARY
            self._descriptor = open_checked(self.path, flags)
            try:
                _lock(self._descriptor)
                # Another process may have found it before it was locked, and removed it as
                # abandoned.
                if os.fstat(self._descriptor).st_nlink or os.name == "nt":
                    return
            except BaseException:  # because no file may be left behind after any failure
                self.discard()
                raise
            os.close(self._descriptor)

    def write(self, data: Bytes, flush: bool = False) -> None:
        """Append `data`; with `flush`, make it durable."""
        write_all(self._descriptor, data)
        if flush:
            os.fsync(self._descriptor)

    def publish(self, target: str) -> None:
        """Flush the file and rename it to `target`, replacing an existing file."""
        os.fsync(self._descriptor)
        if os.name == "nt":
            self._close()
        os.replace(self.path, target)
        self._close()
        LOCAL.sync_directory(os.path.dirname(target) or ".")

    def discard(self) -> None:
        """Remove the file."""
        if os.name == "nt":
            self._close()
        try:
            LOCAL.remove(self.path)
        finally:
            self._close()

    def abandon(self) -> None:
        """Close the file and leave it to the next save."""
        self._close()

    def _close(self) -> None:
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)


class LocalAbandonedFile:
    """A file that a dead writer left, locked during cleanup."""

    __slots__ = ("_path", "base", "data")

    def __init__(self, path: str, base: str, data: bytes) -> None:
        self._path = path
        self.base = base
        self.data = data

    def remove(self) -> None:
        """Remove the file."""
        LOCAL.remove(self._path)


# --------------------------------------------------------------------------- the storage


class LocalStorage:
    """The file systems of the local machine."""

    def exists(self, path: str) -> bool:
        """Return True if a file of that name exists."""
        return os.path.exists(path)

    def is_directory(self, path: str) -> bool:
        """Return True if a directory of that name exists."""
        return os.path.isdir(path)

    def make_directory(self, path: str) -> None:
        """Create a directory and its parents, unless they exist."""
        os.makedirs(path, exist_ok=True)

    def names(self, directory: str) -> list[str]:
        """Return the names in a directory."""
        return os.listdir(directory)

    def modification_time(self, path: str) -> float:
        """Return the modification time of a file in seconds since the epoch."""
        return os.stat(path).st_mtime

    def read(self, path: str) -> bytes:
        """Return the contents of a file."""
        if os.path.isdir(path):
            raise IsADirectoryError(errno.EISDIR, "it is a directory", path)
        with open(path, "rb", buffering=0, opener=open_checked) as file:
            return file.read()

    def open(self, path: str) -> LocalOpenedFile:
        """Open a file for reading."""
        return LocalOpenedFile(path)

    def create(self, path: str) -> LocalNewFile:
        """Create a file for writing."""
        return LocalNewFile(path)

    def write_atomically(self, path: str, *parts: Bytes) -> None:
        """Replace a file atomically: after a crash it is completely old or completely new."""
        directory, base = os.path.split(path)
        saving = LockedFile(directory or ".", base)
        try:
            for part in parts:
                saving.write(part)
            saving.publish(path)
        except BaseException:  # because no file may be left behind after any failure
            saving.discard()
            raise

    def remove(self, path: str) -> None:
        """Remove a file, if it exists."""
        with suppress(FileNotFoundError):
            os.unlink(path)

    def sync_directory(self, directory: str) -> None:
        """Make creations, renames and removals in a directory durable."""
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

    @contextmanager
    def locked(self, directory: str) -> Iterator[None]:
        """Exclude other threads and processes while files are replaced."""
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

    def note(self, directory: str, base: str) -> LockedFile:
        """Create a note about `base`."""
        return LockedFile(directory, base)

    def find_abandoned(self, directory: str) -> Iterator[LocalAbandonedFile]:
        """Yield the notes and partial files in a directory whose writers no longer run."""
        for name in sorted(os.listdir(directory)):
            match = SAVING.match(name)
            if match is None:
                continue
            path = os.path.join(directory, name)
            try:
                descriptor = os.open(path, os.O_RDWR | _BINARY)
            except OSError:  # renamed or removed meanwhile, or another user's
                continue
            try:
                if _lock_of_dead_writer(descriptor):
                    yield LocalAbandonedFile(path, match["base"], os.read(descriptor, _NOTE_LIMIT))
            finally:
                os.close(descriptor)


LOCAL: Final = LocalStorage()
