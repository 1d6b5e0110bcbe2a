"""Writing bundles, and making one of several.

The names of a bundle's files are fixed, so one cannot replace another at once. `write_bundle`
removes a bundle that is in its way first; it is meant for new places, such as an exported model,
and the temporary ones of savers. `merge_bundles` renames their files into place, which takes a
moment: a crash during it leaves no bundle, and never one whose index speaks of other data.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from typing import Any, Final

import numpy as np

from weft_io.bundle.checksum import crc32c, masked
from weft_io.bundle.index import BundleIndex, Entry, Piece, disjoint, merged, shard_path
from weft_io.bundle.strings import encode_strings
from weft_io.checkpoint import encoding, files, regions
from weft_io.checkpoint.index import index_path
from weft_io.checkpoint.regions import Region, Shape
from weft_io.checkpoint.storage import Writing
from weft_io.checkpoint.writer import Item
from weft_io.files import systems
from weft_tensor import dtypes, errors
from weft_tensor.dtypes import DType

_CHUNK: Final = 1 << 20


def write_bundle(prefix: str, items: Iterable[Item]) -> BundleIndex:
    """Write tensors as a bundle that TensorFlow reads, in place of one that is there.

    Args:
      prefix: path without suffix; its directory is made if it is missing.
      items: in the order of their bytes within a shard.
    Raises:
      InvalidArgumentError: a name occurs twice, or slices overlap.
      InvalidTypeError: a tensor cannot be written, such as a handle.
      ResourceExhaustedError, PermissionDeniedError, ...: by what the operating system says.
    """
    prefix = files.as_path(prefix)
    directory, base = files.split_prefix(prefix)
    if not base:
        raise errors.InvalidArgumentError(f"the bundle's path {prefix!r} ends in no name")
    plan = _Plan(items)
    storage = files.storage_of(directory)
    path = index_path(prefix)
    with files.reported(f"writing {prefix}"):
        storage.make_directory(directory)
        storage.remove(path)
        for number, pieces in enumerate(plan.shards):
            target = shard_path(prefix, number, len(plan.shards))
            storage.remove(target)
            writing = storage.create(target)
            try:
                plan.write(writing, number, pieces)
                writing.finish()
            except BaseException:  # because half a file may not stay behind, whatever it is
                writing.discard()
                storage.remove(target)
                raise
        storage.sync_directory(directory)
        index = plan.index(path)
        storage.write_atomically(path, index.to_bytes())
    return index


class _Plan:
    """Which piece goes to which shard, checked."""

    def __init__(self, items: Iterable[Item]) -> None:
        self._wholes: dict[str, tuple[DType, Shape]] = {}
        self._parts: dict[str, list[Piece]] = {}
        boxes: dict[str, list[Region]] = {}
        shards: dict[int, list[tuple[Item, Region]]] = {}
        for item in items:
            region = self._check(item)
            boxes.setdefault(item.name, []).append(region)
            shards.setdefault(item.shard, []).append((item, region))
        for name, parts in boxes.items():
            # A tensor without elements is in one piece too.
            if not disjoint(parts) or len(set(parts)) < len(parts):
                raise errors.InvalidArgumentError(f"elements of {name!r} are to be written twice")
        self.shards = [shards[number] for number in sorted(shards)] or [[]]

    def _check(self, item: Item) -> Region:
        name, dtype, value, spec, _ = item
        encoding.check_saveable(dtype, name)
        if not name or "\0" in name or not _is_text(name):
            raise errors.InvalidArgumentError(
                f"a tensor's name must be UTF-8 without NUL, got {name!r}"
            )
        shape = tuple(value.shape)
        parsed = regions.parse_spec(spec)
        full, region = (shape, Region.whole(shape)) if parsed is None else parsed
        if region.shape != shape:
            raise errors.InvalidArgumentError(
                f"{name!r}: the slice {spec!r} has shape {list(region.shape)}, "
                f"got a value of shape {list(shape)}"
            )
        if self._wholes.setdefault(name, (dtype, full)) != (dtype, full):
            raise errors.InvalidArgumentError(
                f"{name!r} is written in slices of different tensors: {self._wholes[name][0].name}"
                f"{list(self._wholes[name][1])} and {dtype.name}{list(full)}"
            )
        return region

    def write(self, writing: Writing, number: int, pieces: Sequence[tuple[Item, Region]]) -> None:
        """Write the data of one shard."""
        position = 0
        for item, region in pieces:
            size, crc = _write_tensor(writing, item)
            part = Piece(region, number, position, position + size, masked(crc))
            self._parts.setdefault(item.name, []).append(part)
            position += size

    def index(self, path: str) -> BundleIndex:
        """The index, once everything is written."""
        tensors = {
            name: Entry(*whole, tuple(self._parts[name])) for name, whole in self._wholes.items()
        }
        return BundleIndex(path, "", len(self.shards), sys.byteorder == "big", tensors)


def _is_text(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def _write_tensor(writing: Writing, item: Item) -> tuple[int, int]:
    """Write one tensor; the number of its bytes, and their checksum."""
    array = np.asarray(item.value)
    if item.dtype is dtypes.string:
        stored, crc = encode_strings(array)
        writing.write(stored)
        return len(stored), crc
    memory: Any = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    crc = 0
    for start in range(0, memory.size, _CHUNK):
        chunk = memory[start : start + _CHUNK]
        crc = crc32c(chunk, crc)
        writing.write(memoryview(chunk))
    return memory.size, crc


# --------------------------------------------------------------------------- merging


def read_bundle_index(prefix: str) -> BundleIndex:
    """The index of a bundle.

    Raises: NotFoundError, DataLossError: there is none, or it is damaged.
    """
    path = index_path(files.as_path(prefix))
    with files.reported(f"reading {path}"):
        return BundleIndex.from_bytes(files.read_bytes(path), path)


def merge_bundles(
    prefixes: Sequence[str],
    destination: str,
    delete_old_dirs: bool = True,
    allow_missing_files: bool = False,
) -> None:
    """Make one bundle of several, which are gone afterwards: their files are renamed.

    Args:
      prefixes: of the bundles, in one file system with `destination`.
      destination: prefix of the new one.
      delete_old_dirs: remove the directories of the old ones, if they are empty then.
      allow_missing_files: pass over bundles that do not exist.
    Raises:
      NotFoundError: there is no bundle of a prefix.
      InvalidArgumentError: two of them have the same tensor, or the same slice of one.
      DataLossError: an index is damaged.
    """
    found: list[tuple[str, BundleIndex]] = []
    for prefix in prefixes:
        try:
            found.append((prefix, read_bundle_index(prefix)))
        except errors.NotFoundError:
            if not allow_missing_files:
                raise
    index, sources = merged(index_path(destination), [index for _, index in found])
    directory, _ = files.split_prefix(destination)
    storage = files.storage_of(directory)
    with files.reported(f"merging bundles into {destination}"):
        storage.make_directory(directory)
        with storage.locked(directory):
            storage.remove(index.path)
            for number, (which, own) in enumerate(sources):
                prefix, old = found[which]
                target = shard_path(destination, number, index.shards)
                _rename(shard_path(prefix, own, old.shards), target)
            storage.sync_directory(directory)
            storage.write_atomically(index.path, index.to_bytes())
        for _, old in found:
            if files.absolute(old.path) != files.absolute(index.path):
                storage.remove(old.path)
        if delete_old_dirs:
            _remove_empty({files.split_prefix(prefix)[0] for prefix in prefixes} - {directory})


def _rename(source: str, target: str) -> None:
    system, inner = systems.locate(target)
    if source != target:
        system.rename(systems.locate(source)[1], inner)


def _remove_empty(directories: Iterable[str]) -> None:
    for directory in directories:
        system, inner = systems.locate(directory)
        try:
            names = system.list(inner)
        except FileNotFoundError:  # stores of objects have no directories
            continue
        if not names:
            system.remove_tree(inner)
