"""Shards: safetensors files, written in one pass with their checksums, and read by place.

A shard is eight bytes with the header's length, the header (JSON: name to type, shape and place)
and the tensors' bytes without gaps; any safetensors reader opens it. weft itself goes by the index,
whose checksums cover every byte.

The checksum is zlib's CRC-32: it is in the standard library, runs at several GB/s, releases the
interpreter's lock, so that it is computed while the same bytes are being written, and finds every
error that is confined to 32 bits.
"""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from weft_io.checkpoint import encoding, files
from weft_io.checkpoint.encoding import Array, Empty
from weft_io.checkpoint.index import Part, Shard, index_path
from weft_io.checkpoint.regions import Region
from weft_tensor import errors
from weft_tensor.dtypes import DType

if TYPE_CHECKING:
    from concurrent.futures import Future

_ALIGNMENT: Final = 64
_SMALL: Final = 1 << 16  # tensors below this are gathered before they are written
_GATHERED: Final = 1 << 22
_RESERVED: Final = "__metadata__"


class Piece(NamedTuple):
    """What is written of one tensor: a box of it, and its value."""

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
    Returns: the shard, and the place of each piece.
    Raises: OSError.
    """
    blobs = [encoding.encode(piece.value, piece.dtype) for piece in pieces]
    # Wide elements first: no gaps are allowed, and so everything stays aligned.
    order = sorted(range(len(pieces)), key=lambda i: -pieces[i].dtype.numpy.itemsize)
    places = [(0, 0)] * len(pieces)
    position = 0
    for i in order:
        places[i] = (position, position + len(blobs[i]))
        position = places[i][1]
    header = _header(pieces, places, order)
    descriptor = files.create(prefix + suffix)
    try:
        crcs = _write(descriptor, header, [blobs[i] for i in order])
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    crc_of = dict(zip(order, crcs, strict=True))
    base = len(header)
    parts = [
        Part(piece.region, number, base + places[i][0], base + places[i][1], crc_of[i])
        for i, piece in enumerate(pieces)
    ]
    return Shard(suffix, base + position, base, zlib.crc32(header)), parts


def _header(
    pieces: Sequence[Piece], places: Sequence[tuple[int, int]], order: Sequence[int]
) -> bytes:
    table: dict[str, Any] = {_RESERVED: {"format": "weft-checkpoint"}}
    for i in order:
        name, dtype, region, _ = pieces[i]
        while name in table:  # further parts of one tensor
            name = f"{name}@{','.join(map(str, region.start))}"
        begin, end = places[i]
        kind, shape = encoding.stored_as(dtype, region.shape, end - begin)
        table[name] = {"dtype": kind, "shape": shape, "data_offsets": (begin, end)}
    text = json.dumps(table, separators=(",", ":")).encode()
    text += b" " * (-(len(text) + 8) % _ALIGNMENT)
    return len(text).to_bytes(8, "little") + text


def _write(descriptor: int, header: bytes, blobs: Sequence[memoryview]) -> list[int]:
    """Write everything; the checksums of the large ones are computed at the same time."""
    from concurrent.futures import ThreadPoolExecutor

    gathered = bytearray(header)
    crcs: list[int | Future[int]] = []
    with ThreadPoolExecutor(1) as pool:
        for blob in blobs:
            if len(blob) < _SMALL:
                crcs.append(zlib.crc32(blob))
                gathered += blob
                if len(gathered) < _GATHERED:
                    continue
            else:
                crcs.append(pool.submit(zlib.crc32, blob))
            files.write_all(descriptor, gathered)
            gathered = bytearray()
            if len(blob) >= _SMALL:
                files.write_all(descriptor, blob)
        files.write_all(descriptor, gathered)
        return [crc if isinstance(crc, int) else crc.result() for crc in crcs]


# --------------------------------------------------------------------------- reading


class ShardReader:
    """A shard that is open and was found whole, as far as its size and header tell.

    Raises: DataLossError: size or header differ from what the index says.
    """

    def __init__(self, path: str, shard: Shard, file: Any) -> None:
        self._path = path
        self._file = file
        size = os.fstat(file.fileno()).st_size
        if size != shard.size:
            raise errors.DataLossError(
                f"{path} is damaged: it must have {shard.size} bytes, and has {size}"
            )
        header = bytearray(shard.header)
        if self._fill(0, memoryview(header)) < len(header) or zlib.crc32(header) != shard.crc:
            raise errors.DataLossError(f"{path} is damaged: the checksum of its header differs")

    def read(self, name: str, dtype: DType, part: Part, empty: Empty) -> Array:
        """The tensor at a place.

        Args:
          name: for messages.
          empty: `empty(shape, numpy dtype)`, where the memory comes from.
        Raises: DataLossError: its bytes are not those that were written.
        """
        size = part.end - part.begin
        array, memory = encoding.allocate(dtype, part.region.shape, size, empty)
        got = self._fill(part.begin, memory)
        where = f"tensor {name!r} in {self._path}, bytes {part.begin} to {part.end},"
        if got < size:
            raise errors.DataLossError(f"{where} is damaged: the file ends after {got} of them")
        if zlib.crc32(memory) != part.crc:
            raise errors.DataLossError(f"{where} is damaged: its checksum differs")
        try:
            return encoding.decode(array, dtype, part.region.shape)
        except ValueError as cause:
            raise errors.DataLossError(f"{where} is malformed: {cause}") from cause

    def _fill(self, position: int, memory: memoryview) -> int:
        """Read until `memory` is full or the file ends; the number of bytes read."""
        self._file.seek(position)
        done = 0
        while done < len(memory):
            got = self._file.readinto(memory[done:])
            if not got:
                break
            done += got
        return done


@contextmanager
def opened(prefix: str, shard: Shard, tensors: Sequence[str]) -> Iterator[ShardReader]:
    """Open a shard.

    Args:
      tensors: what is wanted from it, for messages.
    Raises:
      NotFoundError: the file is gone.
      DataLossError: it is not the one that was written.
    """
    path = prefix + shard.suffix
    try:
        file = open(path, "rb", buffering=0)  # noqa: SIM115 - what follows may not be in this try
    except FileNotFoundError as cause:
        names = ", ".join(tensors[:5]) + (", ..." if len(tensors) > 5 else "")
        raise errors.NotFoundError(
            f"{path} is missing, which {index_path(prefix)} says holds {names}"
        ) from cause
    with file:
        yield ShardReader(path, shard, file)
