"""String tensors in a bundle.

The stored bytes are the length of each element as a varint, a masked CRC-32C of the lengths, then
the bytes of all elements. The checksum of the lengths uses four bytes per length, or eight for long
elements, instead of the stored varints. The tensor's checksum continues from that one, unmasked.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from weft_io.bundle.checksum import crc32c, mask_crc
from weft_io.bundle.key_encoding import MalformedError, get_varints, put_varint
from weft_io.checkpoint.regions import Shape, count
from weft_tensor import errors

Array = np.ndarray[Any, Any]

_SUM: Final = 4
_SHORT: Final = 1 << 32


def encode_strings(array: Array) -> tuple[memoryview, int]:
    """Return the stored bytes of a tensor, and its unmasked checksum.

    Args:
      array: of dtype object; the elements are bytes.
    Raises: InvalidTypeError: an element is not bytes.
    """
    items = array.reshape(-1).tolist()
    invalid = next((item for item in items if not isinstance(item, bytes)), None)
    if invalid is not None:
        raise errors.InvalidTypeError(f"a string tensor must hold bytes, got {invalid!r}")
    lengths = [len(item) for item in items]
    crc = _crc_of_lengths(lengths)
    check = mask_crc(crc).to_bytes(_SUM, "little")
    stored = b"".join([*map(put_varint, lengths), check, *items])
    return memoryview(stored), crc32c(memoryview(stored)[-_SUM - sum(lengths) :], crc)


def decode_strings(data: Array, shape: Shape) -> tuple[Array, int]:
    """Decode stored bytes to a tensor; return it and its unmasked checksum.

    Args:
      data: uint8, shape (N,).
    Raises: MalformedError: the bytes do not encode a tensor of that shape.
    """
    number = count(shape)
    lengths, position = get_varints(data, number)
    check, begin = data[position : position + _SUM].tobytes(), position + _SUM
    crc = _crc_of_lengths(lengths)
    if mask_crc(crc) != int.from_bytes(check, "little"):
        raise MalformedError(position, "the checksum of the lengths of the strings differs")
    ends = np.cumsum(lengths)
    total = int(ends[-1]) if number else 0
    if (ends[1:] < ends[:-1]).any() or total != len(data) - begin:
        raise MalformedError(begin, f"strings of {total} bytes do not match the data that follows")
    result: Array = np.empty(number, np.object_)
    memory, start = _memory(data)[begin:], 0
    for i, end in enumerate(ends.tolist()):
        result[i] = memory[start:end].tobytes()
        start = end
    return result.reshape(shape), crc32c(data[position:], crc)


def _crc_of_lengths(lengths: Sequence[int] | Array) -> int:
    array = np.asarray(lengths, np.uint64)
    if not (array >= _SHORT).any():
        return crc32c(array.astype("<u4"))
    crc = 0
    for length in array.tolist():
        crc = crc32c(length.to_bytes(4 if length < _SHORT else 8, "little"), crc)
    return crc


def _memory(array: Any) -> memoryview:
    return memoryview(array)
