"""Varints, and keys that sort like the values they encode.

Varints are encoded as in LevelDB and protobuf. The keys identify slices of partitioned variables:
they encode 0, the name, the number of axes, and the start and length on each axis.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

_LONGEST: Final = 10
_LARGEST: Final = 1 << 64
_SPECIAL: Final = re.compile(rb"[\x00\xff]")
_ESCAPED: Final = {b"\x00": b"\x00\xff", b"\xff": b"\xff\x00"}

Extents = Sequence[tuple[int, int]]
"""Start and length of a slice on each axis; (0, -1) means the whole axis."""


class MalformedError(Exception):
    """Error for bytes that are not a valid encoding.

    Attributes:
      position: position of the first invalid byte.
      label: a description of the error.
    """

    def __init__(self, position: int, label: str) -> None:
        super().__init__(position, label)
        self.position = position
        self.what = label


def put_varint(value: int) -> bytes:
    """Encode a number below 2**64 as a varint: seven bits per byte, the lowest first."""
    result = bytearray()
    while value >= 0x80:
        result.append(value & 0x7F | 0x80)
        value >>= 7
    result.append(value)
    return bytes(result)


def get_varint(data: bytes, position: int, end: int) -> tuple[int, int]:
    """Return the varint at a position, and the position after it.

    Raises: MalformedError: the varint does not end before `end`, is too large, or is not in its
      shortest form.
    """
    value = shift = 0
    for i in range(position, min(end, position + _LONGEST)):
        byte = data[i]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value >= _LARGEST or (not byte and shift):
                break
            return value, i + 1
        shift += 7
    raise MalformedError(position, "a varint is truncated, too large, or longer than necessary")


def get_varints(data: np.ndarray[Any, Any], number: int) -> tuple[np.ndarray[Any, Any], int]:
    """Return the first `number` varints of an array of bytes, and their total length in bytes.

    Raises: MalformedError: there are fewer varints, or one is 2**63 or more.
    """
    ends = np.flatnonzero(data[: number * _LONGEST] < 0x80)[:number] + 1
    if len(ends) < number:
        raise MalformedError(0, f"{number} lengths are required, got {len(ends)}")
    total = int(ends[-1]) if number else 0
    starts = np.concatenate([np.zeros(min(number, 1), ends.dtype), ends[:-1]])
    widths = ends - starts
    if number and int(widths.max()) > _LONGEST - 1:
        raise MalformedError(int(starts[widths.argmax()]), "a length is too large")
    values = np.zeros(number, np.uint64)
    for i in range(int(widths.max()) if number else 0):
        longer = np.flatnonzero(widths > i)
        values[longer] |= (data[starts[longer] + i] & 0x7F).astype(np.uint64) << np.uint64(7 * i)
    return values, total


# --------------------------------------------------------------------------- ordered keys


def slice_key(name: bytes, extents: Extents) -> bytes:
    """Return the key of a slice of a tensor."""
    parts = [
        _encode_ordered_number(0),
        _encode_ordered_bytes(name),
        _encode_ordered_number(len(extents)),
    ]
    for start, length in extents:
        parts += [_encode_ordered_signed(start), _encode_ordered_signed(length)]
    return b"".join(parts)


def _encode_ordered_number(value: int) -> bytes:
    digits = value.to_bytes((value.bit_length() + 7) // 8, "big")
    return bytes([len(digits)]) + digits


def _encode_ordered_bytes(value: bytes) -> bytes:
    return _SPECIAL.sub(lambda result: _ESCAPED[result[0]], value) + b"\x00\x01"


def _encode_ordered_signed(value: int) -> bytes:
    """Encode an integer in two's complement, preceded by the number of bytes in unary."""
    length = (value if value >= 0 else ~value).bit_length() // 7 + 1
    bits = value & ((1 << 8 * length) - 1)
    return (bits ^ ((1 << length) - 1) << 7 * length).to_bytes(length, "big")
