"""Writer of bundles."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from typing import Any, Final

import numpy as np

from weft_io.bundle.atomic_replacement import NewBundle
from weft_io.bundle.checksum import crc32c, mask_crc
from weft_io.bundle.index import BundleIndex, Entry, Piece, are_disjoint
from weft_io.bundle.strings import encode_strings
from weft_io.checkpoint.regions import Region
from weft_io.checkpoint.save_items import Item, WholeTensors
from weft_io.files import paths
from weft_io.files.storage import NewFile
from weft_tensor import dtypes, errors
from weft_tensor.os_errors import convert_os_errors

_CHUNK: Final = 1 << 20


def write_bundle(prefix: str, items: Iterable[Item]) -> BundleIndex:
    """Write tensors as a bundle that TensorFlow can read, replacing an existing one.

    Args:
      prefix: path without suffix; its directory is created if necessary.
      items: in the order of their bytes within a shard.
    Raises:
      InvalidArgumentError: a name occurs twice, or slices overlap.
      InvalidTypeError: a tensor cannot be written, such as a handle.
      ResourceExhaustedError, PermissionDeniedError, ...: the operating system reports an error.
    """
    prefix = paths.as_path(prefix)
    plan = _Plan(items)
    with (
        convert_os_errors("writing", prefix),
        NewBundle(prefix, len(plan.shards)) as new,
    ):
        for number, pieces in enumerate(plan.shards):
            with new.create(number) as writing:
                plan.write(writing, number, pieces)
        return new.finish(plan.tensors(), sys.byteorder == "big")


class _Plan:
    """The assignment of pieces to shards, after validation."""

    def __init__(self, items: Iterable[Item]) -> None:
        self._wholes = WholeTensors()
        self._parts: dict[str, list[Piece]] = {}
        boxes: dict[str, list[Region]] = {}
        shards: dict[int, list[tuple[Item, Region]]] = {}
        for item in items:
            if not item.name or "\0" in item.name:
                raise errors.InvalidArgumentError(
                    f"a tensor's name must be text without NUL, got {item.name!r}"
                )
            region = self._wholes.add(item)
            boxes.setdefault(item.name, []).append(region)
            shards.setdefault(item.shard, []).append((item, region))
        for name, parts in boxes.items():
            # A tensor without elements is in one piece too.
            if not are_disjoint(parts) or len(set(parts)) < len(parts):
                raise errors.InvalidArgumentError(f"elements of {name!r} would be written twice")
        self.shards = [shards[number] for number in sorted(shards)] or [[]]

    def write(self, writing: NewFile, number: int, pieces: Sequence[tuple[Item, Region]]) -> None:
        """Write the data of one shard."""
        position = 0
        for item, region in pieces:
            size, crc = _write_tensor(writing, item)
            part = Piece(region, number, position, position + size, mask_crc(crc))
            self._parts.setdefault(item.name, []).append(part)
            position += size

    def tensors(self) -> dict[str, Entry]:
        """Return the locations of all tensors; call it after every shard is written."""
        return {
            name: Entry(*entry_fields, tuple(self._parts[name]))
            for name, entry_fields in self._wholes.items()
        }


def _write_tensor(writing: NewFile, item: Item) -> tuple[int, int]:
    """Write one tensor; return the number of its bytes and their checksum."""
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
