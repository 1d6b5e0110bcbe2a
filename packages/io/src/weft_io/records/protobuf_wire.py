"""The parts of protobuf's wire format that the parsing of examples needs.

https://protobuf.dev/programming-guides/encoding/
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

Array = np.ndarray[Any, Any]

VARINT, FIXED64, LENGTH, GROUP, GROUP_END, FIXED32 = range(6)

_LONGEST: Final = 10  # bytes of a varint of 64 bits
_BLOCK: Final = 1 << 16  # bytes at a time, so that temporaries stay in the cache


def read_varint(data: bytes, index: int, end: int) -> tuple[int, int]:
    """Return a length of up to five bytes and the index after it; (-1, index) if invalid."""
    value = shift = 0
    for i in range(index, min(end, index + 5)):
        byte = data[i]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, i + 1
        shift += 7
    return -1, index


def write_varint(value: int) -> bytes:
    """Encode a nonnegative number as a varint."""
    parts = []
    while value >= 0x80:
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*parts, value])


# --------------------------------------------------------------------- varints in bulk


class MalformedVarintsError(Exception):
    """Error for rows that are not sequences of 64-bit varints; `rows` lists them."""

    def __init__(self, rows: list[int]) -> None:
        super().__init__(rows)
        self.rows = rows


def decode_varints(
    data: bytes, ends: Array, expected: int = -1, empty: Any = np.empty
) -> tuple[Array, Array]:
    """Decode the integers of many packed fields.

    Args:
      data: `LEADING_PADDING`, the concatenated fields, and `TRAILING_PADDING`.
      ends: int64, shape (n,): the end of each field, relative to the start of the first one.
      expected: the expected number of integers, if known.
      empty: allocator of the values.
    Returns: int64, shape (count,): the values, undefined if `count` is not `expected`; int64, shape
    (n,): the number of values up to each end.
    Raises: MalformedVarintsError: a field ends within a number, or one has more than 64 bits.
    """
    size = int(ends[-1]) if len(ends) else 0
    octets = np.frombuffer(data, np.uint8)
    _check_ends(octets, ends)
    count = _count(octets[1 : size + 1]) if expected < 0 else expected
    values = empty((count,), np.dtype(np.int64))
    stops = np.empty_like(ends)
    index = num_done = row = 0
    while index < size:
        # A varint begins after each byte without the highest bit; the last one may be incomplete.
        begins = (octets[index : min(index + _BLOCK, size) + 1] < 0x80).nonzero()[0]
        if len(begins) == 1:
            raise MalformedVarintsError(_rows_of(ends, np.array([index])))
        following = index + int(begins[-1])
        end_row = int(np.searchsorted(ends, following, side="right"))
        stops[row:end_row] = np.searchsorted(begins, ends[row:end_row] - index) + num_done
        target = values[num_done : num_done + len(begins) - 1]
        if len(target) == len(begins) - 1:
            target[...] = _decode(octets[index + 1 :], begins, index, ends)
        num_done += len(begins) - 1
        index, row = following, end_row
    stops[row:] = num_done
    return values, stops


LEADING_PADDING: Final = bytes(1)
TRAILING_PADDING: Final = bytes(_LONGEST)
"""Padding around the data of `decode_varints`: the end of a number, and room to read ahead."""


def _check_ends(octets: Array, ends: Array) -> None:
    starts = np.empty_like(ends)
    starts[:1] = 0
    starts[1:] = ends[:-1]
    unfinished = (octets.take(ends) >= 0x80) & (ends > starts)
    if unfinished.any():
        raise MalformedVarintsError(np.flatnonzero(unfinished).tolist())


def _count(octets: Array) -> int:
    """Return the number of varints that end in these bytes."""
    blocks = range(0, len(octets), _BLOCK)
    return sum([int(np.count_nonzero(octets[index : index + _BLOCK] < 0x80)) for index in blocks])


def _decode(octets: Array, begins: Array, index: int, ends: Array) -> Array:
    """Decode the varints of one block, to any integer type.

    Args:
      octets: the bytes from the first varint on.
      begins: the start of each varint, and the end of the last one.
      index, ends: the start of the block and the ends of fields, for errors.
    """
    size = int(begins[-1])
    if size == len(begins) - 1:
        return octets[:size]
    starts = begins[:-1]
    try:
        return _gather(octets, starts, 0)
    except _TooLongError as error:
        raise MalformedVarintsError(_rows_of(ends, error.args[0] + index)) from None


class _TooLongError(Exception):
    """Error for varints with more than 64 bits."""


def _gather(octets: Array, array: Array, first: int) -> Array:
    """Return the values of varints from byte `first` on, processing equal bytes of all together."""
    lane = octets[first:].take(array)
    continues = lane >> 7
    lane &= 0x7F
    total: Array = lane.astype(np.uint64 if first else np.uint32)
    for index in range(first + 1, _LONGEST):
        count = int(np.count_nonzero(continues))
        if not count:
            return total
        if index >= 4 and total.dtype == np.uint32:
            total = total.astype(np.uint64)
        if 4 * count < len(continues):
            pending = continues.nonzero()[0]
            total = total.astype(np.uint64)
            total[pending] |= _gather(octets, array[pending], index) << 7 * (index - first)
            return total
        lane = octets[index:].take(array)
        lane &= np.negative(continues)
        continues = lane >> 7
        lane &= 0x7F
        part = lane.astype(total.dtype)
        part <<= 7 * (index - first)
        total |= part
    too_long = (lane > 1) | (continues != 0)
    if too_long.any():
        raise _TooLongError(array[too_long])
    return total


def _rows_of(ends: Array, array: Array) -> list[int]:
    return sorted(set(np.searchsorted(ends, array, side="right").tolist()))


# ------------------------------------------------------------------- what is wrong where

Schema = dict[int, Any]
"""Field number to the form of its bytes: another schema, "text", "floats" or "integers"."""


def find_fault(data: bytes, schema: Schema) -> tuple[int, str]:
    """Return the first position where bytes violate a schema, and the reason.

    It is used only for messages, because protobuf's parser does not report positions.
    """
    return _walk(data, 0, len(data), schema, 0) or (len(data), "protobuf rejects it")


def _walk(data: bytes, index: int, end: int, schema: Schema, depth: int) -> tuple[int, str] | None:
    while index < end:
        start = index
        tag, index = _long_varint(data, index, end)
        field, kind = tag >> 3, tag & 7
        if tag < 0 or tag >= 1 << 32 or not field:
            return start, "invalid start of a field"
        if kind == LENGTH:
            size, index = _long_varint(data, index, end)
            if not 0 <= size <= end - index:
                return start, f"field {field} says it has {size} bytes, {end - index} are left"
            fault = _find_damage(data, index, index + size, schema.get(field), depth)
            if fault:
                return fault
            index += size
        elif kind == VARINT:
            value, index = _long_varint(data, index, end)
            if value < 0:
                return start, f"field {field} is an unterminated varint"
        elif kind in (FIXED32, FIXED64):
            index += 4 if kind == FIXED32 else 8
            if index > end:
                return start, f"field {field} has fixed size, {end - start} bytes are left"
        else:
            return start, f"field {field} has wire type {kind}"
    return None


def _find_damage(
    data: bytes, index: int, end: int, label: Any, depth: int
) -> tuple[int, str] | None:
    if isinstance(label, dict):
        return (
            _walk(data, index, end, label, depth + 1)
            if depth < 100
            else (index, "nested too deeply")
        )
    if label == "text":
        try:
            data[index:end].decode()
        except UnicodeDecodeError as error:
            return index + error.start, f"a name must be UTF-8: {error.reason}"
    if label == "floats" and (end - index) % 4:
        return index, f"packed floats must be multiples of 4 bytes, got {end - index}"
    while label == "integers" and index < end:
        start = index
        value, index = _long_varint(data, index, end)
        if value < 0:
            return start, "an integer does not end"
    return None


def _long_varint(data: bytes, index: int, end: int) -> tuple[int, int]:
    value = 0
    for i, position in enumerate(range(index, min(end, index + 10))):
        value |= (data[position] & 0x7F) << 7 * i
        if data[position] < 0x80:
            return value, position + 1
    return -1, index
