"""Protobuf's wire format, as far as the walk over examples needs it.

https://protobuf.dev/programming-guides/encoding/
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

Array = np.ndarray[Any, Any]

VARINT, FIXED64, LENGTH, GROUP, GROUP_END, FIXED32 = range(6)

_LONGEST: Final = 10  # bytes of a varint of 64 bits
_BLOCK: Final = 1 << 16  # bytes at a time, so that temporaries stay in the cache


def read_varint(data: bytes, at: int, end: int) -> tuple[int, int]:
    """Return a length of up to five bytes and the position after it; (-1, at) if it is invalid."""
    value = shift = 0
    for place in range(at, min(end, at + 5)):
        byte = data[place]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, place + 1
        shift += 7
    return -1, at


def write_varint(value: int) -> bytes:
    """Return a number that is not negative as a varint."""
    parts = []
    while value >= 0x80:
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*parts, value])


# --------------------------------------------------------------------- varints in bulk


class MalformedVarintsError(Exception):
    """Some rows are not sequences of 64-bit varints; `rows` lists them."""

    def __init__(self, rows: list[int]) -> None:
        super().__init__(rows)
        self.rows = rows


def decode_varints(
    data: bytes, ends: Array, expected: int = -1, empty: Any = np.empty
) -> tuple[Array, Array]:
    """Decode the integers of many packed fields.

    Args:
      data: `BEFORE`, the concatenated fields, and `BEHIND`.
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
    at = done = row = 0
    while at < size:
        # A varint begins after each byte without the highest bit; the last one may be incomplete.
        begins = (octets[at : min(at + _BLOCK, size) + 1] < 0x80).nonzero()[0]
        if len(begins) == 1:
            raise MalformedVarintsError(_rows_of(ends, np.array([at])))
        following = at + int(begins[-1])
        until = int(np.searchsorted(ends, following, side="right"))
        stops[row:until] = np.searchsorted(begins, ends[row:until] - at) + done
        target = values[done : done + len(begins) - 1]
        if len(target) == len(begins) - 1:
            target[...] = _decode(octets[at + 1 :], begins, at, ends)
        done += len(begins) - 1
        at, row = following, until
    stops[row:] = done
    return values, stops


BEFORE: Final = bytes(1)
BEHIND: Final = bytes(_LONGEST)
"""Margins of the data of `decode_varints`: the end of a number, and room to read ahead."""


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
    return sum([int(np.count_nonzero(octets[at : at + _BLOCK] < 0x80)) for at in blocks])


def _decode(octets: Array, begins: Array, at: int, ends: Array) -> Array:
    """Decode the varints of one block, to any integer type.

    Args:
      octets: the bytes from the first varint on.
      begins: the start of each varint, and the end of the last one.
      at, ends: the start of the block and the ends of fields, for errors.
    """
    size = int(begins[-1])
    if size == len(begins) - 1:
        return octets[:size]
    places = begins[:-1]
    try:
        return _gather(octets, places, 0)
    except _TooLongError as error:
        raise MalformedVarintsError(_rows_of(ends, error.args[0] + at)) from None


class _TooLongError(Exception):
    """Varints at these places have more than 64 bits."""


def _gather(octets: Array, places: Array, first: int) -> Array:
    """Return the values of varints from byte `first` on: all first bytes, all second ones, ..."""
    lane = octets[first:].take(places)
    more = lane >> 7
    lane &= 0x7F
    total: Array = lane.astype(np.uint64 if first else np.uint32)
    for index in range(first + 1, _LONGEST):
        count = int(np.count_nonzero(more))
        if not count:
            return total
        if index >= 4 and total.dtype == np.uint32:
            total = total.astype(np.uint64)
        if 4 * count < len(more):
            which = more.nonzero()[0]
            total = total.astype(np.uint64)
            total[which] |= _gather(octets, places[which], index) << 7 * (index - first)
            return total
        lane = octets[index:].take(places)
        lane &= np.negative(more)
        more = lane >> 7
        lane &= 0x7F
        part = lane.astype(total.dtype)
        part <<= 7 * (index - first)
        total |= part
    too_long = (lane > 1) | (more != 0)
    if too_long.any():
        raise _TooLongError(places[too_long])
    return total


def _rows_of(ends: Array, places: Array) -> list[int]:
    return sorted(set(np.searchsorted(ends, places, side="right").tolist()))


# ------------------------------------------------------------------- what is wrong where

Schema = dict[int, Any]
"""Field number to the form of its bytes: another schema, "text", "floats" or "integers"."""


def find_fault(data: bytes, schema: Schema) -> tuple[int, str]:
    """Return the first position where bytes violate a schema, and the reason.

    Only for messages: protobuf's parser decides, but does not report the position.
    """
    return _walk(data, 0, len(data), schema, 0) or (len(data), "protobuf refuses it")


def _walk(data: bytes, at: int, end: int, schema: Schema, depth: int) -> tuple[int, str] | None:
    while at < end:
        start = at
        tag, at = _long_varint(data, at, end)
        field, kind = tag >> 3, tag & 7
        if tag < 0 or tag >= 1 << 32 or not field:
            return start, "no field begins here"
        if kind == LENGTH:
            size, at = _long_varint(data, at, end)
            if not 0 <= size <= end - at:
                return start, f"field {field} says it has {size} bytes, {end - at} are left"
            fault = _inside(data, at, at + size, schema.get(field), depth)
            if fault:
                return fault
            at += size
        elif kind == VARINT:
            value, at = _long_varint(data, at, end)
            if value < 0:
                return start, f"field {field} is a varint that does not end"
        elif kind in (FIXED32, FIXED64):
            at += 4 if kind == FIXED32 else 8
            if at > end:
                return start, f"field {field} has fixed size, {end - start} bytes are left"
        else:
            return start, f"field {field} has wire type {kind}"
    return None


def _inside(data: bytes, at: int, end: int, what: Any, depth: int) -> tuple[int, str] | None:
    if isinstance(what, dict):
        return _walk(data, at, end, what, depth + 1) if depth < 100 else (at, "nested too deeply")
    if what == "text":
        try:
            data[at:end].decode()
        except UnicodeDecodeError as error:
            return at + error.start, f"a name must be UTF-8: {error.reason}"
    if what == "floats" and (end - at) % 4:
        return at, f"packed floats must be multiples of 4 bytes, got {end - at}"
    while what == "integers" and at < end:
        start = at
        value, at = _long_varint(data, at, end)
        if value < 0:
            return start, "an integer does not end"
    return None


def _long_varint(data: bytes, at: int, end: int) -> tuple[int, int]:
    value = 0
    for i, place in enumerate(range(at, min(end, at + 10))):
        value |= (data[place] & 0x7F) << 7 * i
        if data[place] < 0x80:
            return value, place + 1
    return -1, at
