r"""The bytes of a trace file.

A file is a header of 16 bytes and a sequence of chunks; all numbers are little-endian.

    file header   8s magic "WEFTTRC\n", u32 version, u32 zero
    chunk header  4s magic "CHNK", u32 CRC-32 of the rest of the header and the stored payload,
                  u8 type, u8 compression (0 none, 1 zlib), u16 level of a LEVELS chunk or zero,
                  u32 stored bytes, u32 bytes before compression, u32 rows,
                  i64 first time, i64 last time

A file whose writer was killed has no END chunk and may end inside a chunk; all chunks before it are
complete. The payload of a RECORDS chunk is a JSON object, whose keys are the names of tables and
whose values are lists of rows. The payload of an EVENTS or SAMPLES chunk is a table of packed
columns:

    u8 number of columns, then for each column, in the order of the dtype's fields:
    for the columns `start` and `time` only: i64 first value
    u8 width in bytes (0 to 8), i64 base, `width` planes of one byte for each row

Each value of a packed column is the base plus an unsigned number, whose bytes are stored in planes:
first the lowest byte of all rows, then the next one. Bytes of equal significance resemble each
other, so that planes compress better. Rows are sorted by time. Some columns are stored as
differences, which need fewer bytes: `start` and a sample's `time` from the row before (0 in the
first row), `end` from `start`, `ready` backwards from `start`, and a sample's `value` from the last
one of the same lane and series in the chunk (from 0 if there is none). A chunk has at most
`MAX_ROWS` rows. LEVELS chunks are tables of `schema.LEVEL` with the rows of one level, STEPS chunks
of `schema.EVENT`, PEAKS chunks of `schema.SAMPLE`.

Files are untrusted. Columns without width and compressed payloads let few bytes claim much memory,
so a reader stops where a file claims more rows or bytes than `_check_claims` allows for its size.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from weft_trace.errors import TraceError

VERSION: Final = 2
"""Version 1 was never released."""

_FILE: Final = struct.Struct("<8sII")
_CHUNK: Final = struct.Struct("<4sIBBHIIIqq")
_COLUMN: Final = struct.Struct("<Bq")
_FIRST: Final = struct.Struct("<q")
_TIMES: Final = ("start", "time")
_MAGIC: Final = b"WEFTTRC\n"
_MARK: Final = b"CHNK"
_CHECKED: Final = 8  # offset in the header of the first byte that the checksum covers
_MAX_CHUNK: Final = 1 << 26  # bytes; larger sizes are damage
_FREE_ROWS: Final = 1 << 20
_FREE_BYTES: Final = 1 << 26
_MAX_COMPRESSION: Final = 50

MAX_ROWS: Final = 1 << 16
"""Largest number of rows in a chunk of a table."""

FILE_HEADER: Final = _FILE.pack(_MAGIC, VERSION, 0)


class ChunkType(IntEnum):
    """Contents of a chunk. Readers skip types that they do not know."""

    RECORDS = 1
    EVENTS = 2
    SAMPLES = 3
    LEVELS = 4
    STEPS = 5
    """Copies of the events of the kind STEP, so that a reader of parts finds them."""
    PEAKS = 6
    """The largest samples of the bytes in use of each memory in short intervals."""
    END = 7
    """Empty and last: the writer was closed."""


class Chunk(NamedTuple):
    """A chunk of a file.

    Attributes:
      type: a `ChunkType`, or a number from a newer version.
      rows: number of rows in the payload.
      first, last: the interval of time that the rows cover, in nanoseconds since the epoch.
      payload: the bytes after decompression.
      level: level of the rows of a LEVELS chunk.
    """

    type: int
    rows: int
    first: int
    last: int
    payload: bytes
    level: int = 0


def encode_chunk(chunk: Chunk, level: int = 1) -> bytes:
    """Return the header and the stored payload of a chunk.

    Args:
      level: of zlib's compression, from 0 for none to 9. The payload is stored without compression
        if that is smaller.
    """
    stored = zlib.compress(chunk.payload, level) if level else chunk.payload
    is_compressed = len(stored) < len(chunk.payload)
    if not is_compressed:
        stored = chunk.payload
    fields = (
        chunk.type, is_compressed, chunk.level, len(stored), len(chunk.payload), chunk.rows,
        chunk.first, chunk.last,
    )  # fmt: skip
    header = _CHUNK.pack(_MARK, 0, *fields)
    checksum = zlib.crc32(stored, zlib.crc32(header[_CHECKED:]))
    return _CHUNK.pack(_MARK, checksum, *fields) + stored


FILE_END: Final = encode_chunk(Chunk(ChunkType.END, 0, 0, 0, b""))
"""The last bytes of a file that was closed."""


def check_file_header(data: bytes, path: str) -> None:
    """Raise TraceError unless `data` begins a trace file of a known version."""
    if len(data) < _FILE.size or not data.startswith(_MAGIC):
        raise TraceError(f"{path} is not a trace of weft: it does not begin with {_MAGIC!r}")
    _, version, _ = _FILE.unpack_from(data)
    if version > VERSION:
        raise TraceError(
            f"{path} has version {version} of the trace format; this weftml-trace reads version "
            f"{VERSION}: install a newer one"
        )
    if version < VERSION:
        raise TraceError(
            f"{path} has version {version} of the trace format, which was never released; this "
            f"weftml-trace reads version {VERSION}: record the trace again"
        )


class Damage(NamedTuple):
    """The position where a file stops being readable.

    Attributes:
      offset: in bytes from the start of the file.
      reason: what is wrong there.
    """

    offset: int
    reason: str


class ChunkHeader(NamedTuple):
    """The header of a chunk in a file.

    Attributes:
      offset: offset of the header, in bytes from the start of the file.
      type, rows, first, last, level: as in `Chunk`.
      is_compressed: True if the payload is.
      stored_size, size: bytes of the payload in the file, and after decompression.
      checksum: CRC-32 of the header from its type on, and of the stored payload.
    """

    offset: int
    type: int
    rows: int
    first: int
    last: int
    is_compressed: bool
    stored_size: int
    size: int
    checksum: int
    level: int


def stored_bytes(header: ChunkHeader) -> int:
    """Return the size of a chunk in the file, with its header."""
    return _CHUNK.size + header.stored_size


def scan_chunks(data: memoryview) -> tuple[list[ChunkHeader], Damage | None]:
    """Return the headers of all chunks, without looking at their payloads.

    Args:
      data: the complete file, with a verified header.
    Returns: the headers, and the damage if the file does not end with a chunk.
    """
    headers: list[ChunkHeader] = []
    offset = _FILE.size
    rows = size = 0
    while offset < len(data):
        header = _scan_chunk(data, offset)
        if isinstance(header, ChunkHeader):
            rows += header.rows if header.type != ChunkType.RECORDS else 0
            size += header.size
            header = _check_claims(header, rows, size)
        if isinstance(header, Damage):
            return headers, header
        headers.append(header)
        offset += _CHUNK.size + header.stored_size
    return headers, None


def _scan_chunk(data: memoryview, offset: int) -> ChunkHeader | Damage:
    header = bytes(data[offset : offset + _CHUNK.size])
    if len(header) < _CHUNK.size:
        return Damage(offset, "the file ends inside the header of a chunk")
    mark, checksum, kind, compression, level, stored_size, size, rows, first, last = _CHUNK.unpack(
        header
    )
    if mark != _MARK or compression > 1 or max(stored_size, size) > _MAX_CHUNK:
        return Damage(offset, "there is no chunk here")
    if offset + _CHUNK.size + stored_size > len(data):
        return Damage(offset, "the file ends inside a chunk")
    return ChunkHeader(
        offset, kind, rows, first, last, bool(compression), stored_size, size, checksum, level
    )


def _check_claims(header: ChunkHeader, rows: int, size: int) -> ChunkHeader | Damage:
    """Return the header if the file may claim so much memory up to its chunk.

    Args:
      rows, size: the numbers of rows and bytes of all chunks up to this one.
    """
    read = header.offset + header.stored_size
    is_table = header.type != ChunkType.RECORDS
    if (is_table and header.rows > MAX_ROWS) or rows > _FREE_ROWS + read:
        return Damage(header.offset, f"the file claims {rows} rows in its first {read} bytes")
    if size > _FREE_BYTES + _MAX_COMPRESSION * read:
        return Damage(header.offset, f"the first {read} bytes claim to decompress to {size}")
    return header


def read_payload(data: memoryview, header: ChunkHeader) -> bytes | Damage:
    """Return the payload of a chunk, or its damage."""
    begin = header.offset + _CHUNK.size
    stored = data[begin : begin + header.stored_size]
    checked = data[header.offset + _CHECKED : begin]
    if zlib.crc32(stored, zlib.crc32(checked)) != header.checksum:
        return Damage(header.offset, "the checksum of the chunk does not match its bytes")
    payload = _decompress(stored, header.size) if header.is_compressed else bytes(stored)
    if payload is None or len(payload) != header.size:
        return Damage(header.offset, "the chunk cannot be decompressed")
    return payload


def _decompress(stored: memoryview, size: int) -> bytes | None:
    """Return `size` bytes, or None if the data is not compressed to exactly that size."""
    inflater = zlib.decompressobj()
    try:
        payload = inflater.decompress(stored, size + 1)
    except zlib.error:
        return None
    return payload if len(payload) == size else None


def pack_rows(rows: NDArray[Any]) -> bytes:
    """Return rows, sorted by time, as packed columns."""
    columns = _to_differences(rows)
    parts = [bytes([len(columns)])]
    for name, column in columns.items():
        if name in _TIMES:
            parts.append(_FIRST.pack(int(rows[name][0]) if len(rows) else 0))
        base = int(column.min()) if len(column) else 0
        spread = (int(column.max()) if len(column) else 0) - base
        width = (spread.bit_length() + 7) // 8
        parts.append(_COLUMN.pack(width, base))
        if width:
            numbers = (column - base).astype("<u8").view(np.uint8).reshape(-1, 8)
            parts.append(numbers[:, :width].T.tobytes())
    return b"".join(parts)


def interval_of(rows: NDArray[Any]) -> tuple[int, int]:
    """Return the interval of time that rows cover, for the header of their chunk."""
    names = rows.dtype.names
    assert names is not None
    if "time" in names:
        return int(rows["time"].min()), int(rows["time"].max())
    ends = rows["end"] if "end" in names else rows["start"] + rows["span"]
    return int(rows["start"].min()), int(ends.max())


def unpack_rows(payload: bytes, rows: NDArray[Any]) -> None:
    """Fill an array with the rows of packed columns.

    Raises: TraceError: the columns do not fit the dtype or the number of rows.
    """
    names = rows.dtype.names
    assert names is not None
    if not payload or payload[0] < len(names):
        raise TraceError(f"a chunk has {payload[0] if payload else 0} of {len(names)} columns")
    offset, count = 1, len(rows)
    for name in names:
        is_time = name in _TIMES
        if offset + _COLUMN.size + _FIRST.size * is_time > len(payload):
            raise TraceError(f"a chunk ends before column {name!r}")
        first = 0
        if is_time:
            (first,) = _FIRST.unpack_from(payload, offset)
            offset += _FIRST.size
        width, base = _COLUMN.unpack_from(payload, offset)
        offset += _COLUMN.size
        if width > 8 or offset + count * width > len(payload):
            raise TraceError(f"a chunk has a damaged column {name!r}")
        if width:
            numbers = _join_planes(payload, offset, width, count)
            np.add(numbers, np.int64(base), rows[name], dtype=np.int64, casting="unsafe")
            offset += count * width
        else:
            rows[name] = np.int64(base).astype(rows.dtype[name])
        if is_time and count:
            times = rows[name].astype(np.int64)
            times[0] = first
            rows[name] = np.cumsum(times)
    _from_differences(rows)


def _join_planes(payload: bytes, offset: int, width: int, count: int) -> NDArray[Any]:
    """Return the numbers of a column from the planes of their bytes."""
    planes = np.frombuffer(payload, np.uint8, width * count, offset).reshape(width, count)
    size = 1 if width == 1 else 2 if width == 2 else 4 if width <= 4 else 8
    numbers: NDArray[Any] = planes[0].astype(f"<u{size}")
    for k in range(1, width):
        numbers |= planes[k].astype(f"<u{size}") << numbers.dtype.type(8 * k)
    return numbers


def _to_differences(rows: NDArray[Any]) -> dict[str, NDArray[np.int64]]:
    assert rows.dtype.names is not None
    columns = {name: rows[name].astype(np.int64) for name in rows.dtype.names}
    for name in _TIMES:
        if name in columns and len(rows):
            columns[name] = np.diff(columns[name], prepend=columns[name][0])
            if len(rows) > 1:
                columns[name][0] = columns[name][1:].min()
    if "end" in columns:
        columns["end"] -= rows["start"]
        columns["ready"] = rows["start"] - columns["ready"]
    if "value" in columns:
        order, is_first = _order_by_series(rows)
        values = columns["value"].take(order)
        values[1:] -= np.where(is_first[1:], 0, values[:-1])
        columns["value"][order] = values
    return columns


def _from_differences(rows: NDArray[Any]) -> None:
    assert rows.dtype.names is not None
    if "end" in rows.dtype.names:
        rows["end"] += rows["start"]
        rows["ready"] = rows["start"] - rows["ready"]
    if "value" in rows.dtype.names and len(rows):
        order, is_first = _order_by_series(rows)
        values = np.cumsum(rows["value"].take(order))
        first = np.flatnonzero(is_first)
        previous_values = np.where(first > 0, values[first - 1], 0)
        rows["value"][order] = values - np.repeat(previous_values, np.diff(first, append=len(rows)))


def _order_by_series(rows: NDArray[Any]) -> tuple[NDArray[np.intp], NDArray[np.bool_]]:
    """Return the order of samples by lane and series, and which of them are the first of one."""
    keys = rows["lane"].astype(np.uint32) << np.uint32(16) | rows["series"]
    order = np.argsort(keys, kind="stable")
    keys = keys.take(order)
    is_first = np.ones(len(rows), bool)
    is_first[1:] = keys[1:] != keys[:-1]
    return order, is_first


def encode_records(tables: Mapping[str, Sequence[Any]]) -> bytes:
    """Return the payload of a RECORDS chunk."""
    return json.dumps(tables, separators=(",", ":"), ensure_ascii=False).encode(errors="replace")


def decode_records(payload: bytes) -> dict[str, list[list[Any]]]:
    """Return the tables of a RECORDS chunk.

    Raises: TraceError: it is not a JSON object of lists of lists.
    """
    try:
        tables = json.loads(payload)
    except (ValueError, RecursionError) as error:
        raise TraceError(f"the records of a chunk cannot be read: {error}") from error
    if not isinstance(tables, dict) or not all(
        isinstance(rows, list) and all(isinstance(row, list) for row in rows)
        for rows in tables.values()
    ):
        raise TraceError("the records of a chunk must be an object of lists of lists")
    return tables
