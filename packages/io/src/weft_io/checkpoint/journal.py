"""Journals of files being written and removed, for cleanup after a killed save.

Before a save changes any file, it records the files that it will create and replace. The record is
locked while its writer lives (`local.Saving`). The next save in the directory looks for records of
dead writers and removes the recorded files that no index refers to. These are the new shards if the
crash came before the new index was in place, and the old shards otherwise. Nothing else is ever
removed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any, Final

from weft_io.checkpoint.formats import recognize_format
from weft_io.checkpoint.index import SHARD_SUFFIX, index_path
from weft_io.files import paths
from weft_io.files.storage import Note
from weft_tensor import errors

_FIRST_LINE: Final = b"weft checkpoint journal 1\n"
_NOTE: Final = re.compile(rb"weft \w+ journal \d+\n")
"""The first line of a journal of any kind; this module ignores the others."""
_PART: Final = re.compile(rf"{SHARD_SUFFIX.pattern}|\.data-\d{{5}}-of-\d{{5}}")
"""Names of shards, and of the files of a bundle."""


class Journal:
    """The journal of one save or removal.

    Args:
      directory, base: the checkpoint's prefix.
      names: files that will be created or removed.
    Raises: OSError.
    """

    def __init__(self, directory: str, base: str, names: Iterable[str]) -> None:
        self._prefix = paths.join(directory, base)
        self._names: list[str] = []
        self._note: Note = paths.storage_of(directory).note(directory, base)
        try:
            self._note.write(_FIRST_LINE)
            self.add(names)
        except BaseException:  # because no file may be left behind after any failure
            self._note.discard()
            raise

    def add(self, names: Iterable[str]) -> None:
        """Record more files. Raises: OSError."""
        names = list(names)
        if not names:
            return
        self._names += names
        self._note.write(json.dumps(names).encode() + b"\n", flush=True)

    def settle(self, needed: set[str] | None = None) -> None:
        """Remove the recorded files that no index refers to, then the record.

        Args:
          needed: the files that the index refers to; by default the index is read.
        """
        if settle(self._prefix, self._names, needed):
            self._note.discard()
        else:
            self._note.abandon()

    def give_up(self) -> None:
        """Clean up after a failure, as `settle` does, or leave it to the next save."""
        try:
            self.settle()
        except OSError:
            self.abandon()

    def abandon(self) -> None:
        """Leave the journal for the next save."""
        self._note.abandon()


def recover(directory: str) -> None:
    """Clean up in `directory` after processes that died during saves. Raises: OSError."""
    for result in paths.storage_of(directory).find_abandoned(directory):
        if result.data.startswith(_FIRST_LINE):
            if settle(paths.join(directory, result.base), _names(result.data)):
                result.remove()
        elif not _NOTE.match(result.data):  # a partly written or empty file
            result.remove()


def _names(data: bytes) -> list[str]:
    names: list[str] = []
    for line in data[len(_FIRST_LINE) :].splitlines():
        try:
            item: Any = json.loads(line)
        except ValueError:  # killed while writing this line, before acting on it
            break
        names += [name for name in item if isinstance(name, str)]
    return names


def settle(prefix: str, names: Iterable[str], needed: set[str] | None = None) -> bool:
    """Remove the files that are not part of the checkpoint at `prefix`.

    Args:
      needed: the files that are part of it; by default its index is read.

    Returns: False if its index cannot be read, so that its files are unknown. Raises: OSError.
    """
    try:
        needed = names_of(prefix) if needed is None else needed
    except errors.OpError:
        return False
    directory, base = paths.split_prefix(prefix)
    storage = paths.storage_of(directory)
    for name in names:
        if is_part_name(base, name) and name not in needed:
            storage.remove(paths.join(directory, name))
    return True


def is_part_name(base: str, name: str) -> bool:
    """Return True if a file belongs to a checkpoint at `base` and is not the index."""
    if not name.startswith(base):
        return False
    remaining = name[len(base) :]
    return remaining == ".meta" or _PART.fullmatch(remaining) is not None


def names_of(prefix: str) -> set[str]:
    """Return the names of a checkpoint's files except the index; none if the index is missing.

    Raises: DataLossError: the index cannot be read.
    """
    path = index_path(prefix)
    base = paths.base_name(prefix)
    try:
        data = paths.read_bytes(path)
    except FileNotFoundError:
        return set()
    suffixes = recognize_format(data, path).file_suffixes(data, path)
    return {base + suffix for suffix in (*suffixes, ".meta")}


def list_replaced_names(directory: str, base: str) -> set[str]:
    """Return the names of the files that a new checkpoint replaces, except the index.

    An unreadable index is replaced as well.
    """
    try:
        return names_of(paths.join(directory, base))
    except errors.DataLossError:
        return _shards_by_name(directory, base)


def _shards_by_name(directory: str, base: str) -> set[str]:
    """Return the files in `directory` that are named like shards of `base`, from any save."""
    pattern = re.compile(re.escape(base) + SHARD_SUFFIX.pattern)
    names = paths.storage_of(directory).names(directory)
    return {name for name in names if pattern.fullmatch(name)}
