"""Extraction of the bytes of large weights, which stay in place while the rest is parsed.

protobuf would copy the bytes into its message, and again at each access. Here each weight is
replaced by a short random key before parsing; it is random so that a file cannot contain it.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

import numpy as np

_GRAPH: Final = 7  # of ModelProto
_INITIALIZER: Final = 5  # of GraphProto
_RAW_DATA: Final = 9  # of TensorProto

_VARINT: Final = 0
_EIGHT_BYTES: Final = 1
_BYTES: Final = 2
_FOUR_BYTES: Final = 5
_SIZES: Final = {_EIGHT_BYTES: 8, _FOUR_BYTES: 4}

_LARGE: Final = 4096
"""Minimum size in bytes of weights that stay in the file's memory."""

_ALIGNMENT: Final = 16
"""Alignment in memory of a weight's first element in bytes, as for any array."""

_LONGEST: Final = 10
"""Maximum number of bytes of an encoded integer."""


class _Field(NamedTuple):
    """A field of a message: its number, wire type and start, and the range of its value."""

    number: int
    wire: int
    tag_start: int
    begin: int
    end: int


class _UnclearError(Exception):
    """Error for bytes of unexpected form; protobuf then parses them and reports any error."""


Bytes = np.ndarray[Any, np.dtype[np.uint8]]


def extract_large_weights(data: bytes | memoryview) -> tuple[bytes, Mapping[bytes, Bytes]]:
    """Replace the bytes of large weights of the main graph by keys.

    Args:
      data: a ModelProto as stored in a file, possibly invalid. If it is a memoryview, weights are
        moved within it to aligned addresses, so do not use it afterwards.
    Returns: the model with keys as `raw_data`, and the bytes by key, uint8, shape (count), as views
      of `data`; unchanged `data` and no keys if there are no large weights or the fields are not
      recognized.
    """
    try:
        remainder, ranges = _replace(data)
    except _UnclearError:
        return bytes(data), {}
    flat = np.frombuffer(data, np.uint8)
    start, free, weights = flat.ctypes.data, 0, {}
    for word, (begin, end) in ranges.items():
        weights[word] = _align(data, flat, (begin, end), (start + begin) % _ALIGNMENT, free)
        free = end
    return remainder, weights


def _align(
    data: bytes | memoryview, flat: Bytes, position: tuple[int, int], shift: int, free: int
) -> Bytes:
    """Return the bytes at an aligned address: moved down as far as `free`, or copied."""
    begin, end = position
    if not shift:
        return flat[begin:end]
    if isinstance(data, bytes) or begin - shift < free:
        return flat[begin:end].copy()
    view = memoryview(data)
    view[begin - shift : end - shift] = view[begin:end]
    return flat[begin - shift : end - shift]


def _replace(data: bytes | memoryview) -> tuple[bytes, dict[bytes, tuple[int, int]]]:
    """Return the model with keys, and the byte range that each key replaces, in order."""
    graphs = [item for item in _fields(data, 0, len(data)) if item.number == _GRAPH]
    if len(graphs) != 1 or graphs[0].wire != _BYTES:
        raise _UnclearError
    view, key, graph = memoryview(data), secrets.token_bytes(16), graphs[0]
    ranges: dict[bytes, tuple[int, int]] = {}
    parts: list[bytes | memoryview] = []
    position = graph.begin
    for item in _fields(data, graph.begin, graph.end):
        if item.number != _INITIALIZER or item.wire != _BYTES or item.end - item.begin < _LARGE:
            continue
        raw = [
            result for result in _fields(data, item.begin, item.end) if result.number == _RAW_DATA
        ]
        if len(raw) != 1 or raw[0].wire != _BYTES or raw[0].end - raw[0].begin < _LARGE:
            continue
        word = key + len(ranges).to_bytes(4, "big")
        ranges[word] = raw[0].begin, raw[0].end
        leading, trailing = view[item.begin : raw[0].tag_start], view[raw[0].end : item.end]
        value: list[bytes | memoryview] = [
            leading,
            _encode_tag(_RAW_DATA, len(word)),
            word,
            trailing,
        ]
        parts += [
            view[position : item.tag_start],
            _encode_tag(_INITIALIZER, sum(map(len, value))),
            *value,
        ]
        position = item.end
    parts.append(view[position : graph.end])
    size = sum(map(len, parts))
    remainder = b"".join(
        [view[: graph.tag_start], _encode_tag(_GRAPH, size), *parts, view[graph.end :]]
    )
    return remainder, ranges


def _fields(data: bytes | memoryview, offset: int, end: int) -> Iterator[_Field]:
    """Yield the fields of the message between two offsets.

    Raises: _UnclearError: the bytes are not a message, or contain groups, which ONNX does not use.
    """
    while offset < end:
        start = offset
        tag, offset = _integer(data, offset, end)
        number, wire = tag >> 3, tag & 7
        begin = offset
        if wire == _BYTES:
            size, begin = _integer(data, offset, end)
            offset = begin + size
        elif wire == _VARINT:
            _, offset = _integer(data, offset, end)
        elif wire in _SIZES:
            offset += _SIZES[wire]
        else:
            raise _UnclearError
        if offset > end or not number:
            raise _UnclearError
        yield _Field(number, wire, start, begin, offset)


def _integer(data: bytes | memoryview, offset: int, end: int) -> tuple[int, int]:
    """Return the varint at an offset, and the offset after it."""
    value = shift = 0
    for position in range(offset, min(offset + _LONGEST, end)):
        byte = data[position]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position + 1
        shift += 7
    raise _UnclearError


def _encode_tag(number: int, size: int) -> bytes:
    """Return the tag and length of a length-delimited field."""
    result = bytearray([number << 3 | _BYTES])
    while size >= 0x80:
        result.append(size & 0x7F | 0x80)
        size >>= 7
    result.append(size)
    return bytes(result)
