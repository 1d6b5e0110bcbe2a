"""Shards: safetensors files, written in one pass together with their checksums.

A shard consists of eight bytes with the header's length, the header (JSON: name to type, shape and
offsets) and the tensors' bytes without gaps; any safetensors reader can open it. Weft itself uses
the index, whose checksums cover every byte.

The checksum of a tensor is computed chunk by chunk, just before a chunk is written and just after
it is read. The chunk is then in the processor's cache, so the checksum costs almost nothing.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, NamedTuple

from weft_io.checkpoint import encoding
from weft_io.checkpoint.checksums import checksum, digest, new_digest_like
from weft_io.checkpoint.encoding import Array, Empty
from weft_io.checkpoint.index import Part, Shard, index_path
from weft_io.checkpoint.regions import Region
from weft_io.files import paths
from weft_io.files.storage import NewFile, OpenedFile
from weft_tensor import errors
from weft_tensor.dtypes import DType

_ALIGNMENT: Final = 64
_SMALL: Final = 1 << 16  # tensors below this are gathered before they are written
_WRITE_BUFFER_BYTES: Final = 1 << 22
_CHUNK: Final = 1 << 20  # stays in the cache between its checksum and the file
_RESERVED: Final = "__metadata__"


class Piece(NamedTuple):
    """A box of a tensor to write, with its value."""

    name: str
    dtype: DType
    region: Region
    value: Any


# --------------------------------------------------------------------------- writing


def write_shard(
    prefix: str, suffix: str, number: int, pieces: Sequence[Piece]
) -> tuple[Shard, list[Part]]:
    """Write the pieces to a new file and flush it.

    Args:
      prefix, suffix: the file's name.
      number: the shard's number in the index.
    Returns: the shard, and the location of each piece.
    Raises: OSError.
    """
    blobs = [encoding.encode(piece.value, piece.dtype) for piece in pieces]
    # Wide elements first: no gaps are allowed, and so everything stays aligned.
    order = sorted(range(len(pieces)), key=lambda i: -pieces[i].dtype.numpy.itemsize)
    ranges = [(0, 0)] * len(pieces)
    position = 0
    for i in order:
        ranges[i] = (position, position + len(blobs[i]))
        position = ranges[i][1]
    header = _header(pieces, ranges, order)
    file = paths.storage_of(prefix).create(prefix + suffix)
    try:
        sums = _write(file, header, [blobs[i] for i in order])
        file.finish()
    except BaseException:  # because the file must be closed after any failure
        file.discard()
        raise
    sum_of = dict(zip(order, sums, strict=True))
    base = len(header)
    parts = [
        Part(piece.region, number, base + ranges[i][0], base + ranges[i][1], sum_of[i])
        for i, piece in enumerate(pieces)
    ]
    return Shard(suffix, base + position, base, checksum(header)), parts


def _header(
    pieces: Sequence[Piece], ranges: Sequence[tuple[int, int]], order: Sequence[int]
) -> bytes:
    table: dict[str, Any] = {_RESERVED: {"format": "weft-checkpoint"}}
    for i in order:
        name, dtype, region, _ = pieces[i]
        while name in table:  # further parts of one tensor
            name = f"{name}@{','.join(map(str, region.start))}"
        begin, end = ranges[i]
        kind, shape = encoding.storage_type(dtype, region.shape, end - begin)
        table[name] = {"dtype": kind, "shape": shape, "data_offsets": (begin, end)}
    text = json.dumps(table, separators=(",", ":")).encode()
    text += b" " * (-(len(text) + 8) % _ALIGNMENT)
    return len(text).to_bytes(8, "little") + text


def _write(file: NewFile, header: bytes, blobs: Sequence[memoryview]) -> list[str]:
    """Write header and blobs; return the checksums of the blobs."""
    gathered = bytearray(header)
    sums: list[str] = []
    for blob in blobs:
        if len(blob) < _SMALL:
            sums.append(checksum(blob))
            gathered += blob
            if len(gathered) < _WRITE_BUFFER_BYTES:
                continue
        file.write(gathered)
        gathered = bytearray()
        if len(blob) >= _SMALL:
            sums.append(_write_large(file, blob))
    file.write(gathered)
    return sums


def _write_large(file: NewFile, blob: memoryview) -> str:
    result = digest()
    for start in range(0, len(blob), _CHUNK):
        chunk = blob[start : start + _CHUNK]
        result.update(chunk)
        file.write(chunk)
    return result.text()


# --------------------------------------------------------------------------- reading


class ShardReader:
    """An open shard whose size and header match the index.

    Raises: DataLossError: the size or the header does not match the index.
    """

    def __init__(self, path: str, shard: Shard, file: OpenedFile) -> None:
        self._path = path
        self._file = file
        if file.size != shard.size:
            raise errors.DataLossError(
                f"{path} is damaged: it must have {shard.size} bytes, and has {file.size}"
            )
        header = memoryview(bytearray(shard.header))
        _, result = self._fill(0, header, shard.checksum)
        if result != shard.checksum:
            raise errors.DataLossError(
                f"{path} is damaged: the checksum of its header must be {shard.checksum}, "
                f"got {result}"
            )

    def read(self, name: str, dtype: DType, part: Part, empty: Empty) -> Array:
        """Read and verify a tensor.

        Args:
          name: for messages.
          empty: `empty(shape, numpy dtype)`, the allocator.
        Raises: DataLossError: the checksum of its bytes is wrong.
        """
        size = part.end - part.begin
        array, memory = encoding.allocate(dtype, part.region.shape, size, empty)
        actual, result = self._fill(part.begin, memory, part.checksum)
        location = f"tensor {name!r} in {self._path}, bytes {part.begin} to {part.end},"
        if actual < size:
            raise errors.DataLossError(
                f"{location} is damaged: the file ends after {actual} of them"
            )
        if result != part.checksum:
            raise errors.DataLossError(
                f"{location} is damaged: its checksum must be {part.checksum}, got {result}"
            )
        try:
            return encoding.decode(array, dtype, part.region.shape)
        except ValueError as cause:
            raise errors.DataLossError(f"{location} is malformed: {cause}") from cause

    def _fill(self, position: int, memory: memoryview, example_digest: str) -> tuple[int, str]:
        """Read until `memory` is full or the file ends.

        Args:
          example_digest: a checksum of the kind to compute.
        Returns: the number of bytes read, and their checksum.
        """
        result = new_digest_like(example_digest)
        num_done = 0
        while num_done < len(memory):
            chunk = memory[num_done : num_done + self._file.chunk]
            actual = self._file.read_into(position + num_done, chunk)
            result.update(chunk[:actual])
            num_done += actual
            if actual < len(chunk):
                break
        return num_done, result.text()


@contextmanager
def open_shard_file(prefix: str, shard: Shard, tensors: Sequence[str]) -> Iterator[ShardReader]:
    """Open a shard.

    Args:
      tensors: the tensors to read from it, for messages.
    Raises:
      NotFoundError: the file does not exist.
      DataLossError: it does not match the index.
    """
    path = prefix + shard.suffix
    try:
        file = paths.storage_of(path).open(path)
    except FileNotFoundError as cause:
        names = ", ".join(tensors[:5]) + (", ..." if len(tensors) > 5 else "")
        raise errors.NotFoundError(
            f"{path} is missing; according to {index_path(prefix)}, it contains {names}"
        ) from cause
    try:
        yield ShardReader(path, shard, file)
    finally:
        file.close()
