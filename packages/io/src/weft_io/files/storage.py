"""The storage interface of checkpoints, for two kinds of storage.

Local file systems:
  - The index is written under another name, flushed and renamed. A completed save survives a loss
    of power.
  - Locks order several savers, and let the next save detect and remove files of killed ones.

Object stores, and file systems behind fsspec:
  - An object store replaces an object atomically; if there is a move, the index is written under
    another name and moved. Durability is up to the store.
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
"""Names of files being written, such as `.model-5.0123456789abcdef.saving`."""


def new_save_id() -> str:
    """Return a name for one save that no other save has."""
    return secrets.token_hex(8)


def saving_name(base: str) -> str:
    """Return a new name for something about `base` that is being written."""
    return f".{base}.{new_save_id()}.saving"


class Writing(Protocol):
    """A new file. Methods raise OSError."""

    def write(self, data: Bytes) -> None:
        """Append bytes."""
        ...

    def finish(self) -> None:
        """Close it; the data survive a loss of power if the storage can guarantee it."""
        ...

    def discard(self) -> None:
        """Close it after a failure; whether it stays in part depends on the place."""
        ...


class Reading(Protocol):
    """An open file. Methods raise OSError.

    Attributes:
      size: in bytes.
      chunk: how much to ask for at once.
    """

    size: int
    chunk: int

    def read_into(self, position: int, memory: memoryview) -> int:
        """Read until `memory` is full or the file ends; the number of bytes read."""
        ...

    def close(self) -> None:
        """Close it."""
        ...


class Note(Protocol):
    """A persistent note of work in progress. Methods raise OSError."""

    def write(self, data: Bytes, flush: bool = False) -> None:
        """Append bytes; with `flush` they survive a loss of power."""
        ...

    def discard(self) -> None:
        """Remove it."""
        ...

    def abandon(self) -> None:
        """Leave it for the next save to deal with."""
        ...


class Abandoned(Protocol):
    """A file left by a dead writer.

    Attributes:
      base: the name of its subject.
      data: its contents.
    """

    base: str
    data: bytes

    def remove(self) -> None:
        """Remove it."""
        ...


class Storage(Protocol):
    """A place that keeps checkpoints. Methods raise OSError."""

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

    def written_at(self, path: str) -> float:
        """When a file was written, in seconds since the epoch."""
        ...

    def read(self, path: str) -> bytes:
        """Return all of a file."""
        ...

    def open(self, path: str) -> Reading:
        """Open a file to read it."""
        ...

    def create(self, path: str) -> Writing:
        """Start a file with a unique name."""
        ...

    def write_atomically(self, path: str, data: Bytes) -> None:
        """Replace a file, so that a crash leaves the old one or the new one, whole."""
        ...

    def remove(self, path: str) -> None:
        """Remove a file; one that is not there is fine."""
        ...

    def sync_directory(self, directory: str) -> None:
        """Make creations, renames and removals in a directory survive a loss of power."""
        ...

    def locked(self, directory: str) -> AbstractContextManager[None]:
        """Exclude others from the short steps that replace files."""
        ...

    def note(self, directory: str, base: str) -> Note:
        """Start a note about `base`."""
        ...

    def abandoned(self, directory: str) -> Iterator[Abandoned]:
        """Yield the notes and partial files in a directory whose writers no longer run."""
        ...
