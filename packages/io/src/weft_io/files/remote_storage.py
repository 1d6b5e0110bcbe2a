"""Checkpoints at URLs: object stores and other file systems supported by fsspec.

An object store replaces an object atomically once it is complete. On file systems with a move of
their own (SFTP, HDFS, a local directory through fsspec), files are written under another name and
moved. Without locks, a process cannot tell whether the writer of a note is alive. It knows its own
writers; others count as dead after a day.
"""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final, TypeVar

from weft_io.files.storage import SAVING, Bytes, temporary_name
from weft_io.files.systems import join, locate
from weft_tensor import errors

ABANDONED_AFTER: Final = 24 * 3600.0
"""Seconds after which files being written by another process count as abandoned."""

_RANGE: Final = 1 << 23
_AT_ONCE: Final = 8
_NOTE_LIMIT: Final = 1 << 24

_locks: Final = threading.RLock()
_own: Final[dict[str, bool]] = {}
"""The notes and unfinished files of this process, and whether their writer is active."""

F = TypeVar("F", bound=Callable[..., Any])


class RemoteError(ConnectionError):
    """A store-specific failure, described by the message."""


def _convert_store_errors(function: F) -> F:
    """Convert a store's exceptions to OSError."""

    @functools.wraps(function)
    def call_store(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except (OSError, errors.OpError):
            raise
        except Exception as cause:  # because each store's package has errors of its own
            raise RemoteError(f"{type(cause).__name__}: {cause}") from cause

    return call_store  # type: ignore[return-value]


class RemoteNewFile:
    """A new object, which becomes visible when it is finished."""

    @_convert_store_errors
    def __init__(self, fs: Any, path: str) -> None:
        self._fs = fs
        self._path = path
        self._file = fs.open(path, "wb")

    @_convert_store_errors
    def write(self, data: Bytes) -> None:
        """Append bytes."""
        view = memoryview(data)
        while view:
            written = self._file.write(view)
            view = view[len(view) if written is None else written :]

    @_convert_store_errors
    def finish(self) -> None:
        """Complete the object, which makes it visible."""
        self._file.close()

    def discard(self) -> None:
        """Abandon the upload; the save's note names any objects that exist nevertheless."""
        give_up = getattr(self._file, "discard", self._file.close)
        with suppress(Exception):  # because the save fails with its own error, not with this one
            give_up()


class RemoteOpenedFile:
    """A reader of an object by byte ranges, concurrently if the store supports it."""

    chunk = _RANGE * _AT_ONCE

    @_convert_store_errors
    def __init__(self, fs: Any, path: str) -> None:
        self._fs = fs
        self._path = path
        info = fs.info(path)
        if info.get("type") == "directory":
            raise IsADirectoryError(f"{path} is a directory")
        self.size = int(info["size"])

    @_convert_store_errors
    def read_into(self, position: int, memory: memoryview) -> int:
        """Read until `memory` is full or the object ends."""
        end = min(position + len(memory), self.size)
        starts = list(range(position, end, _RANGE))
        num_read = 0
        for i in range(0, len(starts), _AT_ONCE):
            batch = starts[i : i + _AT_ONCE]
            ends = [min(start + _RANGE, end) for start in batch]
            paths = [self._path] * len(batch)
            for start, stop, data in zip(
                batch, ends, self._fs.cat_ranges(paths, batch, ends, on_error="raise"), strict=True
            ):
                memory[num_read : num_read + len(data)] = data
                num_read += len(data)
                if len(data) < stop - start:
                    return num_read
        return num_read

    def close(self) -> None:
        """Do nothing, because no file is open."""


class RemoteNote:
    """A note as an object, rewritten on every change."""

    def __init__(self, storage: RemoteStorage, directory: str, base: str) -> None:
        self._storage = storage
        self._directory = directory
        self._base = base
        self._data = b""
        self._path = self._new_path()

    def _new_path(self) -> str:
        path = join(self._directory, temporary_name(self._base))
        _own[path] = True
        return path

    def write(self, data: Bytes, flush: bool = False) -> None:
        """Append bytes."""
        self._data += data
        if self._storage.replaces_at_once:
            self._storage.put(self._path, self._data)
            return
        new = self._new_path()
        try:
            self._storage.put(new, self._data)
        except BaseException:  # because half of it may be there: the next save removes it
            _own[new] = False
            raise
        old, self._path = self._path, new
        _own[old] = False
        self._storage.remove(old)
        del _own[old]

    def discard(self) -> None:
        """Remove the note."""
        self.abandon()  # if it cannot be removed now
        self._storage.remove(self._path)
        _own.pop(self._path, None)

    def abandon(self) -> None:
        """Leave the note to the next save."""
        _own[self._path] = False


class RemoteAbandonedFile:
    """An object that a dead writer left."""

    def __init__(self, storage: RemoteStorage, path: str, base: str, data: bytes) -> None:
        self._storage = storage
        self._path = path
        self.base = base
        self.data = data

    def remove(self) -> None:
        """Remove the object."""
        self._storage.remove(self._path)
        _own.pop(self._path, None)


class RemoteStorage:
    """The file system of a URL.

    Args:
      url: any path in the file system.
    Attributes:
      replaces_at_once: True if a single request replaces an object atomically.
    Raises: UnimplementedError: no installed package supports the URL's scheme.
    """

    def __init__(self, url: str) -> None:
        locate(url)  # names the scheme that nothing knows
        from fsspec import AbstractFileSystem
        from fsspec.core import url_to_fs

        self._split: Any = url_to_fs
        self._fs: Any = url_to_fs(url)[0]
        # fsspec's own move is a copy and a removal: no better than replacing the object.
        self.replaces_at_once = type(self._fs).mv is AbstractFileSystem.mv

    def _inner(self, path: str) -> str:
        inner: str = self._split(path)[1]
        return inner

    @_convert_store_errors
    def exists(self, path: str) -> bool:
        """Return True if an object of that name exists."""
        try:
            self._fs.info(self._inner(path))
        except (FileNotFoundError, NotADirectoryError):
            return False
        return True

    @_convert_store_errors
    def is_directory(self, path: str) -> bool:
        """Return True if objects exist under that name."""
        return bool(self._fs.isdir(self._inner(path)))

    @_convert_store_errors
    def make_directory(self, path: str) -> None:
        """Create a directory and its parents; do nothing in object stores."""
        self._fs.makedirs(self._inner(path), exist_ok=True)

    @_convert_store_errors
    def names(self, directory: str) -> list[str]:
        """Return the names in a directory; an empty list if the directory does not exist."""
        inner = self._inner(directory)
        self._fs.invalidate_cache(inner)  # others write there too
        try:
            result = [path.rstrip("/") for path in self._fs.ls(inner, detail=False)]
        except FileNotFoundError:
            return []
        return [path.rpartition("/")[2] for path in result if path != inner.rstrip("/")]

    @_convert_store_errors
    def modification_time(self, path: str) -> float:
        """Return the write time of an object in seconds since the epoch; now if unknown."""
        try:
            return float(self._fs.modified(self._inner(path)).timestamp())
        except NotImplementedError:  # not every store keeps the time
            self._fs.info(self._inner(path))
            return time.time()

    @_convert_store_errors
    def read(self, path: str) -> bytes:
        """Return the contents of an object."""
        return bytes(self._fs.cat_file(self._inner(path)))

    def open(self, path: str) -> RemoteOpenedFile:
        """Open an object for reading."""
        return RemoteOpenedFile(self._fs, self._inner(path))

    def create(self, path: str) -> RemoteNewFile:
        """Create an object for writing."""
        return RemoteNewFile(self._fs, self._inner(path))

    @_convert_store_errors
    def put(self, path: str, data: bytes) -> None:
        """Write an object with one request."""
        self._fs.pipe_file(self._inner(path), data)

    @_convert_store_errors
    def write_atomically(self, path: str, *parts: Bytes) -> None:
        """Replace an object atomically, by one request or by renaming a temporary object."""
        data = b"".join(parts)
        if self.replaces_at_once:
            self.put(path, data)
            return
        directory, _, base = path.rpartition("/")
        temporary_path = join(directory, temporary_name(base))
        _own[temporary_path] = True
        try:
            self.put(temporary_path, data)
            self._fs.mv(self._inner(temporary_path), self._inner(path))
            _own.pop(temporary_path)
        except BaseException:  # because no object may be left behind after any failure
            _own[temporary_path] = False
            with suppress(OSError):  # then the next save removes it
                self.remove(temporary_path)
                _own.pop(temporary_path)
            raise

    @_convert_store_errors
    def remove(self, path: str) -> None:
        """Remove an object; do nothing if it does not exist."""
        with suppress(FileNotFoundError):
            self._fs.rm_file(self._inner(path))

    def sync_directory(self, directory: str) -> None:
        """Do nothing: acknowledged data is durable in object stores."""

    @contextmanager
    def locked(self, directory: str) -> Iterator[None]:
        """Exclude the other threads of this process."""
        with _locks:
            yield

    def note(self, directory: str, base: str) -> RemoteNote:
        """Create a note about `base`."""
        return RemoteNote(self, directory, base)

    def find_abandoned(self, directory: str) -> Iterator[RemoteAbandonedFile]:
        """Yield the notes and partial objects in a directory whose writers no longer run."""
        for name in sorted(self.names(directory)):
            match = SAVING.match(name)
            path = join(directory, name)
            if match is None or not self._is_abandoned(path):
                continue
            try:
                data = self.read(path)[:_NOTE_LIMIT]
            except FileNotFoundError:  # its writer was alive after all
                continue
            yield RemoteAbandonedFile(self, path, match["base"], data)

    def _is_abandoned(self, path: str) -> bool:
        at_work = _own.get(path)
        if at_work is not None:
            return not at_work
        try:
            return time.time() - self.modification_time(path) > ABANDONED_AFTER
        except FileNotFoundError:
            return False
