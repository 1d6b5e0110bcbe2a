"""Reading of the tensors of a bundle, verified while their bytes arrive."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Final

import numpy as np

from weft_io.bundle.checksum import crc32c, mask_crc
from weft_io.bundle.index import BundleIndex, Entry, Piece, shard_path
from weft_io.bundle.key_encoding import MalformedError
from weft_io.bundle.strings import decode_strings
from weft_io.checkpoint.assembly import assemble_boxes
from weft_io.checkpoint.encoding import Array, Empty
from weft_io.checkpoint.regions import Region, count
from weft_io.files import paths
from weft_io.files.storage import OpenedFile
from weft_tensor import dtypes, errors
from weft_tensor.dtypes import DType

_CHUNK: Final = 1 << 20  # stays in the cache between being read and being summed
_MUCH: Final = 1 << 24  # bytes that are worth more than one thread
_THREADS: Final = 4


def read_boxes(
    prefix: str, index: BundleIndex, expected: Sequence[tuple[str, Region]], empty: Empty
) -> list[Array]:
    """Read boxes of tensors; see `CheckpointFormat.read` for arguments, results and errors."""
    parts = [_parts(prefix, name, index.tensors[name], box) for name, box in expected]
    sizes = [sum(part.end - part.begin for part in part) for part in parts]
    groups = _groups(sizes, min(_THREADS, os.cpu_count() or 1) if sum(sizes) > _MUCH else 1)

    def open_shard(number: int, names: Sequence[str]) -> AbstractContextManager[_Shard]:
        return _open_shard(prefix, index, number, names)

    def read(group: Sequence[int]) -> list[Array]:
        return assemble_boxes(
            prefix, index.tensors, [expected[i] for i in group], open_shard, empty
        )

    if len(groups) == 1:
        return read(groups[0])
    with ThreadPoolExecutor(len(groups)) as pool:
        return [array for arrays in pool.map(read, groups) for array in arrays]


def _groups(sizes: Sequence[int], number: int) -> list[range]:
    """Divide a sequence of sizes into about `number` groups of neighbors with similar totals."""
    groups: list[range] = []
    start = num_done = 0
    share = sum(sizes) / number
    for i, size in enumerate(sizes):
        num_done += size
        if num_done >= share * (len(groups) + 1) or i + 1 == len(sizes):
            groups.append(range(start, i + 1))
            start = i + 1
    return groups or [range(0)]


def _parts(prefix: str, name: str, entry: Entry, box: Region) -> list[Piece]:
    """Return the stored parts that make up a box of a tensor."""
    if not isinstance(entry.dtype, DType) or not entry.dtype.is_numpy_compatible:
        raise errors.UnimplementedError(
            f"tensor {name!r} of {prefix} has type {entry.dtype.name}, which weft does not support"
        )
    if len(entry.parts) == 1 and entry.parts[0].region == Region.whole_tensor(entry.shape):
        return list(entry.parts)
    shared = [(part, part.region.overlap(box)) for part in entry.parts]
    result = [(part, overlap) for part, overlap in shared if overlap is not None]
    if sum(count(overlap.shape) for _, overlap in result) != count(box.shape):
        raise errors.NotFoundError(
            f"{prefix} lacks slices of tensor {name!r} that are needed for the box that starts at "
            f"{list(box.start)} and has shape {list(box.shape)}"
        )
    return [part for part, _ in result]


class _Shard:
    """An open shard of a bundle."""

    def __init__(self, path: str, file: OpenedFile, swap: bool) -> None:
        self._path = path
        self._file = file
        self._swap = swap

    def read(self, name: str, dtype: DType, part: Piece, empty: Empty) -> Array:
        """Return the stored part, in memory from `empty`.

        Raises: DataLossError: the checksum of its bytes is wrong.
        """
        location = f"tensor {name!r} in {self._path}, bytes {part.begin} to {part.end},"
        if part.end > self._file.size:
            raise errors.DataLossError(
                f"{location} is damaged: the file ends at byte {self._file.size}"
            )
        if dtype is dtypes.string:
            return self._read_strings(location, part)
        array: Array = empty(part.region.shape, dtype.numpy)
        memory = array.reshape(-1).view(np.uint8)
        _compare(location, part.crc, mask_crc(self._fill(location, part.begin, memory)))
        if dtype is dtypes.bool_ and memory.size and int(memory.max()) > 1:
            raise errors.DataLossError(f"{location} is malformed: a bool is neither 0 nor 1")
        return _swap_bytes(array, dtype) if self._swap else array

    def _read_strings(self, location: str, part: Piece) -> Array:
        data = np.empty(part.end - part.begin, np.uint8)
        self._fill(location, part.begin, data)
        try:
            array, crc = decode_strings(data, part.region.shape)
        except MalformedError as cause:
            offset = part.begin + cause.position
            raise errors.DataLossError(
                f"{location} is damaged at byte {offset}: {cause.what}"
            ) from None
        _compare(location, part.crc, mask_crc(crc))
        return array

    def _fill(self, location: str, position: int, memory: Array) -> int:
        """Read until `memory` is full; return the unmasked checksum of the bytes."""
        crc = 0
        for start in range(0, memory.size, _CHUNK):
            chunk = memory[start : start + _CHUNK]
            if self._file.read_into(position + start, _memory(chunk)) < chunk.size:
                raise errors.DataLossError(
                    f"{location} is damaged: the file ended while it was being read"
                )
            crc = crc32c(chunk, crc)
        return crc


def _memory(array: Any) -> memoryview:
    return memoryview(array)


def _swap_bytes(array: Array, dtype: DType) -> Array:
    """Return the array with the bytes of each number reversed."""
    unit = dtype.real_dtype.numpy.itemsize
    if unit > 1:
        array.reshape(-1).view(f"u{unit}").byteswap(inplace=True)
    return array


@contextmanager
def _open_shard(
    prefix: str, index: BundleIndex, number: int, names: Sequence[str]
) -> Iterator[_Shard]:
    path = shard_path(prefix, number, index.shards)
    try:
        file = paths.storage_of(path).open(path)
    except FileNotFoundError as cause:
        unique_names = list(dict.fromkeys(names))
        listing = ", ".join(unique_names[:5]) + (", ..." if len(unique_names) > 5 else "")
        raise errors.NotFoundError(
            f"{path} is missing; according to {index.path}, it contains {listing}"
        ) from cause
    try:
        yield _Shard(path, file, index.big_endian != (sys.byteorder == "big"))
    finally:
        file.close()


def _compare(location: str, stored: int, result: int) -> None:
    if result != stored:
        raise errors.DataLossError(
            f"{location} is damaged: its checksum must be {stored:#010x}, got {result:#010x}"
        )
