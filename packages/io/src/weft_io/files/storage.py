"""What checkpoints ask of the place where they are kept, and the two kinds of places.

Local file systems:
  - The index is written aside, flushed and renamed. What was reported as saved survives a loss of
    power.
  - Locks order several savers, and tell the next save what killed ones left, which it removes.

Stores of objects, and file systems behind fsspec:
  - A store of objects replaces an object at once; where there is a move, the index is written aside
    and moved. What survives a loss of power is the store's affair.
  - There are no locks: processes must not save to one directory at the same time. What a save left
    that was killed, the next one of the same process removes, and those of others after a day.

Everywhere the shards have names of their own and the index comes last, so that a crash leaves the
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
"""The names of files that are being written, such as `.model-5.0123456789abcdef.saving`."""


def new_save_id() -> str:
    """A name for one save that no other save has."""
    return secrets.token_hex(8)


def saving_name(base: str) -> str:
    """A new name for something about `base` that is being written."""
    return f".{base}.{new_save_id()}.saving"


class Writing(Protocol):
    """A new file. Methods raise OSError."""

    def write(self, data: Bytes) -> None:
        """Append bytes."""
        ...

    def finish(self) -> None:
        """Close it; what was written survives a loss of power, as far as the place can promise."""
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
    """A note of what is being done, which outlives its writer. Methods raise OSError."""

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
    """A file that a dead writer left.

    Attributes:
      base: what it was about.
      data: what it holds.
    """

    base: str
    data: bytes

    def remove(self) -> None:
        """Remove it."""
        ...


class Storage(Protocol):
    """A place that keeps checkpoints. Methods raise OSError."""

    def exists(self, path: str) -> bool:
        """Whether there is a file of that name."""
        ...

    def is_directory(self, path: str) -> bool:
        """Whether there is a directory of that name."""
        ...

    def make_directory(self, path: str) -> None:
        """Make a directory and those above it, unless they are there."""
        ...

    def names(self, directory: str) -> list[str]:
        """The names in a directory."""
        ...

    def written_at(self, path: str) -> float:
        """When a file was written, in seconds since the epoch."""
        ...

    def read(self, path: str) -> bytes:
        """All of a file."""
        ...

    def open(self, path: str) -> Reading:
        """Open a file to read it."""
        ...

    def create(self, path: str) -> Writing:
        """Begin a file, of a name that no other has."""
        ...

    def write_atomically(self, path: str, data: Bytes) -> None:
        """Replace a file, so that a crash leaves the old one or the new one, whole."""
        ...

    def remove(self, path: str) -> None:
        """Remove a file; one that is not there is fine."""
        ...

    def sync_directory(self, directory: str) -> None:
        """Make what was created, renamed and removed in a directory survive a loss of power."""
        ...

    def locked(self, directory: str) -> AbstractContextManager[None]:
        """Keep others out of the short steps that change what is in place."""
        ...

    def note(self, directory: str, base: str) -> Note:
        """Begin a note about `base`."""
        ...

    def abandoned(self, directory: str) -> Iterator[Abandoned]:
        """The notes and half-written files in a directory whose writers died."""
        ...
