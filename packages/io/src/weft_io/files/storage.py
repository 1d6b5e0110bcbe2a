"""The storage interface of checkpoints, with two implementations.

Local file systems:
  - The index is written under another name, flushed and renamed. A completed save is durable. -
  Locks serialize savers, and let the next save detect and remove the files of killed savers.

Object stores, and file systems behind fsspec:
  - An object store replaces an object atomically; otherwise the index is written under another name
  and moved. Durability depends on the store.
  - There are no locks: processes must not save to one directory concurrently. Files of a killed
    save are removed by the next save of the same process, or of others after a day.

In all cases the shards have unique names and the index is written last, so that a crash leaves the
old checkpoint or the new one.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Final, Protocol

Bytes = bytes | bytearray | memoryview

SAVING: Final = re.compile(r"^\.(?P<base>.*)\.(?P<save>[0-9a-f]{16})\.saving$", re.DOTALL)
"""Name pattern of files being written, such as `.model-5.0123456789abcdef.saving`."""


def new_save_id() -> str:
    """Return a unique name for one save."""
    return secrets.token_hex(8)


def temporary_name(base: str) -> str:
    """Return a new name for a file being written that belongs to `base`."""
    return f".{base}.{new_save_id()}.saving"


class NewFile(Protocol):
    """A new file. Methods raise OSError."""

    def write(self, data: Bytes) -> None:
        """Append bytes."""
        ...

    def finish(self) -> None:
        """Close the file; its data is then durable if the storage can guarantee it."""
        ...

    def discard(self) -> None:
        """Close the file after a failure; some storages keep the part already written."""
        ...


class OpenedFile(Protocol):
    """A file opened for reading. Methods raise OSError.

    Attributes:
      size: size in bytes.
      chunk: the best number of bytes per read.
    """

    size: int
    chunk: int

    def read_into(self, position: int, memory: memoryview) -> int:
        """Read until `memory` is full or the file ends; return the number of bytes read."""
        ...

    def close(self) -> None:
        """Close the file."""
        ...


class Note(Protocol):
    """A persistent note of work in progress. Methods raise OSError."""

    def write(self, data: Bytes, flush: bool = False) -> None:
        """Append bytes; with `flush`, make them durable."""
        ...

    def discard(self) -> None:
        """Remove the note."""
        ...

    def abandon(self) -> None:
        """Leave the note to the next save."""
        ...


class AbandonedFile(Protocol):
    """A file left by a dead writer.

    Attributes:
      base: base name of the checkpoint it belongs to.
      data: its contents.
    """

    base: str
    data: bytes

    def remove(self) -> None:
        """Remove the file."""
        ...


class Storage(Protocol):
    """A storage for checkpoints. Methods raise OSError."""

    def exists(self, path: str) -> bool:
        """Return True if a file of that name exists."""
        ...

    def is_directory(self, path: str) -> bool:
        """Return True if a directory of that name exists."""
        ...

    def make_directory(self, path: str) -> None:
        """Create a directory and its parents, unless they exist."""
        ...

    def names(self, directory: str) -> list[str]:
        """Return the names in a directory."""
        ...

    def modification_time(self, path: str) -> float:
        """Return the modification time of a file in seconds since the epoch."""
        ...

    def read(self, path: str) -> bytes:
        """Return the contents of a file."""
        ...

    def open(self, path: str) -> OpenedFile:
        """Open a file for reading."""
        ...

    def create(self, path: str) -> NewFile:
        """Create a file with a unique name for writing."""
        ...

    def write_atomically(self, path: str, *parts: Bytes) -> None:
        """Replace a file atomically: after a crash it is completely old or completely new.

        Args:
          parts: the contents, one after the other.
        """
        ...

    def remove(self, path: str) -> None:
        """Remove a file, if it exists."""
        ...

    def sync_directory(self, directory: str) -> None:
        """Make creations, renames and removals in a directory durable."""
        ...

    def locked(self, directory: str) -> AbstractContextManager[None]:
        """Exclude other savers while files are replaced."""
        ...

    def note(self, directory: str, base: str) -> Note:
        """Create a note about `base`."""
        ...

    def find_abandoned(self, directory: str) -> Iterator[AbandonedFile]:
        """Yield the notes and partial files in a directory whose writers no longer run."""
        ...
