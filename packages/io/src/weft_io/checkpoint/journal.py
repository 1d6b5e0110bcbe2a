"""Notes of what is being written and removed, by which the next save tidies up after a killed one.

A save writes down the files that it is going to create and to replace before it touches any. The
note is locked while its writer lives (`local.Saving`). When the next save in the directory finds
one whose writer died, it removes those of the noted files that no index refers to: after a crash
before the new index was in place the new shards, after one later the old shards. Nothing else is
ever removed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any, Final

from weft_io.checkpoint.formats import recognized
from weft_io.checkpoint.index import SHARD_SUFFIX, index_path
from weft_io.files import paths
from weft_io.files.storage import Note
from weft_tensor import errors

_FIRST_LINE: Final = b"weft checkpoint journal 1\n"
_NOTE: Final = re.compile(rb"weft \w+ journal \d+\n")
"""The first line of a note of any kind; the others are not dealt with here."""
_PART: Final = re.compile(rf"{SHARD_SUFFIX.pattern}|\.data-\d{{5}}-of-\d{{5}}")
"""Shards, and the files of a bundle, TensorFlow's format."""


class Journal:
    """The note of one save or removal.

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
        except BaseException:  # because nothing may stay behind, whatever it is
            self._note.discard()
            raise

    def add(self, names: Iterable[str]) -> None:
        """Note more files. Raises: OSError."""
        names = list(names)
        if not names:
            return
        self._names += names
        self._note.write(json.dumps(names).encode() + b"\n", flush=True)

    def settle(self, needed: set[str] | None = None) -> None:
        """Remove the noted files that no index refers to, then the note.

        Args:
          needed: those that the index refers to; it is read where they are not given.
        """
        if settle(self._prefix, self._names, needed):
            self._note.discard()
        else:
            self._note.abandon()

    def give_up(self) -> None:
        """Tidy up after what failed: as `settle`, now or by the next save."""
        try:
            self.settle()
        except OSError:
            self.abandon()

    def abandon(self) -> None:
        """Leave the note for the next save."""
        self._note.abandon()


def recover(directory: str) -> None:
    """Tidy up after saves and removals in `directory` whose processes died. Raises: OSError."""
    for found in paths.storage_of(directory).abandoned(directory):
        if found.data.startswith(_FIRST_LINE):
            if settle(paths.join(directory, found.base), _names(found.data)):
                found.remove()
        elif not _NOTE.match(found.data):  # a file that was being written, or nothing yet
            found.remove()


def _names(data: bytes) -> list[str]:
    names: list[str] = []
    for line in data[len(_FIRST_LINE) :].splitlines():
        try:
            item: Any = json.loads(line)
        except ValueError:  # killed while it wrote this line, before it did what the line says
            break
        names += [name for name in item if isinstance(name, str)]
    return names


def settle(prefix: str, names: Iterable[str], needed: set[str] | None = None) -> bool:
    """Remove those of the files that the checkpoint at `prefix` does not consist of.

    Args:
      needed: the files that it consists of; its index is read where they are not given.

    Returns: False when its index cannot be read, so that nobody knows. Raises: OSError.
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
    """Whether a file belongs to a checkpoint at `base` and is not its index."""
    if not name.startswith(base):
        return False
    rest = name[len(base) :]
    return rest == ".meta" or _PART.fullmatch(rest) is not None


def names_of(prefix: str) -> set[str]:
    """The files beside the index that a checkpoint consists of; none when there is no index.

    Raises: DataLossError: the index cannot be read.
    """
    path = index_path(prefix)
    base = paths.base_name(prefix)
    try:
        data = paths.read_bytes(path)
    except FileNotFoundError:
        return set()
    suffixes = recognized(data, path).file_suffixes(data, path)
    return {base + suffix for suffix in (*suffixes, ".meta")}


def replaced(directory: str, base: str) -> set[str]:
    """The files that a new checkpoint takes the place of, beside the index.

    An index that nobody can read any more is replaced as well.
    """
    try:
        return names_of(paths.join(directory, base))
    except errors.DataLossError:
        return _shards_by_name(directory, base)


def _shards_by_name(directory: str, base: str) -> set[str]:
    """The files in `directory` whose names are those of shards of `base`, from any save."""
    pattern = re.compile(re.escape(base) + SHARD_SUFFIX.pattern)
    names = paths.storage_of(directory).names(directory)
    return {name for name in names if pattern.fullmatch(name)}
