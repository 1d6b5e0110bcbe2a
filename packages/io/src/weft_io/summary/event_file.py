"""Event files: their names, records and locations."""

from __future__ import annotations

import errno
import itertools
import os
import shutil
import socket
import tempfile
import time
from typing import Protocol

from weft_graph import proto
from weft_io.files.systems import LOCAL, FileSystem, join, locate

VERSION = "brain.Event:2"

_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)


class EventFile(Protocol):
    """A new file that records are appended to."""

    path: str

    def write(self, data: bytes) -> None:
        """Append data."""

    def flush(self) -> None:
        """Flush written records to disk, visible to other processes."""

    def close(self) -> None:
        """Close the file."""


def create_event_file(logdir: str, suffix: str) -> EventFile:
    """Return a new event file in a directory, which is created if missing.

    The name begins with the time in seconds, so that TensorBoard reads the files of a directory in
    order. If a file of this second exists, the next free second is used.

    Args:
      logdir: a path, or a URL that fsspec knows.
      suffix: appended to the name.
    Raises: OSError: the file cannot be created.
    """
    system, directory = locate(logdir)
    system.make_directory(directory, parents=True)
    for seconds in itertools.count(int(time.time())):
        name = f"events.out.tfevents.{seconds:010d}.{socket.gethostname()}{suffix}"
        path = join(directory, name)
        try:
            return _LocalFile(path) if system is LOCAL else _RemoteFile(system, path)
        except FileExistsError:
            continue
    raise AssertionError("no free file name was found")


class _LocalFile:
    """A local file, whose written records are immediately visible to other processes."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._descriptor = os.open(path, _NEW, 0o666)

    def write(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            view = view[os.write(self._descriptor, view) :]

    def flush(self) -> None:
        try:
            os.fsync(self._descriptor)
        except OSError as error:
            if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # not all file systems can
                raise
        if os.name != "nt" and not os.fstat(self._descriptor).st_nlink:
            raise FileNotFoundError(errno.ENOENT, "the event file was removed", self.path)

    def close(self) -> None:
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)


class _RemoteFile:
    """A file at a URL, with a local copy.

    Object stores cannot append, so each flush uploads the whole file.
    """

    def __init__(self, system: FileSystem, path: str) -> None:
        self.path = path
        self._system = system
        if _exists_locally(system, path):
            raise FileExistsError(errno.EEXIST, "the file exists", path)
        self._copy = tempfile.TemporaryFile(prefix="weft-events-")  # noqa: SIM115 - until `close`
        self._sent = False

    def write(self, data: bytes) -> None:
        self._copy.write(data)
        self._sent = False

    def flush(self) -> None:
        if self._sent:
            return
        self._copy.seek(0)
        with self._system.open(self.path, "wb") as target:
            shutil.copyfileobj(self._copy, target, 1 << 20)
        self._sent = True

    def close(self) -> None:
        self._copy.close()


def _exists_locally(system: FileSystem, path: str) -> bool:
    try:
        system.stat(path)
    except FileNotFoundError:
        return False
    return True


def version_event() -> proto.Event:
    """Return the first event of each file."""
    return proto.Event(wall_time=time.time(), file_version=VERSION)
