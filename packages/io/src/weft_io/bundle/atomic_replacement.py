"""Atomic replacement of a bundle: a crash at any time leaves either the old or the new one.

The names of shards contain the number of shards. If a bundle replaces one with the same number of
shards, it gets an additional empty shard, so that its files have different names. No old file
changes before the new index has replaced the old one. Notes (`checkpoint.journal`) tell the next
save which files a killed save left.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from weft_io.bundle.index import BundleIndex, Entry, shard_path
from weft_io.checkpoint import journal
from weft_io.checkpoint.index import index_path
from weft_io.files import paths, systems
from weft_io.files.storage import NewFile
from weft_tensor import errors
from weft_tensor.os_errors import convert_os_errors

_META: Final = ".meta"


class NewBundle:
    """The files of a bundle that replaces the existing one at its prefix.

    Use it in a `with` block. Unless the block calls `finish`, all new files are removed.

    Args:
      prefix: path without suffix; its directory is created if it is missing.
      shards: the required number of shards.
    Attributes:
      shards: the actual number of shards.
    Raises: OSError, as its methods do.
    """

    def __init__(self, prefix: str, shards: int) -> None:
        self._prefix = prefix
        self._directory, self._base = paths.split_prefix(prefix)
        self._storage = paths.storage_of(self._directory)
        self._storage.make_directory(self._directory)
        with self._storage.locked(self._directory):
            journal.recover(self._directory)
        self.shards = _choose_shard_count(prefix, shards)
        self._missing = set(range(self.shards))
        names = [shard_path(self._base, i, self.shards) for i in range(self.shards)]
        self._needed = {*names, self._base + _META}
        self._note = journal.Journal(self._directory, self._base, names)

    def __enter__(self) -> NewBundle:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            self._note.give_up()

    @contextmanager
    def create(self, number: int) -> Iterator[NewFile]:
        """Write a shard."""
        writing = self._storage.create(self._find_free_path(number))
        try:
            yield writing
            writing.finish()
        except BaseException:  # because half a file may not stay behind, whatever it is
            writing.discard()
            raise

    def take(self, number: int, source: str) -> None:
        """Add a file of another bundle as a shard."""
        system, target = systems.locate(self._find_free_path(number))
        system.link(systems.locate(source)[1], target)

    def finish(self, tensors: Mapping[str, Entry], big_endian: bool) -> BundleIndex:
        """Move the new files into place and remove those of the previous bundle."""
        for number in sorted(self._missing):
            with self.create(number):
                pass
        index = BundleIndex(index_path(self._prefix), "", self.shards, big_endian, tensors)
        storage = self._storage
        storage.sync_directory(self._directory)
        with storage.locked(self._directory):
            replaced_files = journal.list_replaced_names(self._directory, self._base)
            self._note.add(sorted(replaced_files - self._needed))
            storage.write_atomically(index.path, index.to_bytes())
            self._note.settle(self._needed)
        return index

    def _find_free_path(self, number: int) -> str:
        self._missing.discard(number)
        path = shard_path(self._prefix, number, self.shards)
        self._storage.remove(path)
        return path


def _choose_shard_count(prefix: str, expected: int) -> int:
    """Return a number of shards that differs from the bundle's at `prefix`."""
    try:
        num_shards = read_bundle_index(prefix).shards
    except (errors.NotFoundError, errors.DataLossError, errors.UnimplementedError):
        return expected
    return expected + (expected == num_shards)


def read_bundle_index(prefix: str) -> BundleIndex:
    """Return the index of a bundle.

    Raises: NotFoundError, DataLossError: the bundle does not exist, or its index is damaged.
    """
    path = index_path(paths.as_path(prefix))
    with convert_os_errors("reading", path):
        return BundleIndex.from_bytes(paths.read_bytes(path), path)
