"""The scanner of features: finds the bytes of requested features in an example.

Examples are almost always in the form of protobuf's own serializers: packed lists, each field once,
minimal lengths. The scanner supports only this form. It looks up the bytes before a feature's
content, its *header*, as a whole: a known header identifies the feature and the length of its
content, since it includes all lengths. Other features are parsed by protobuf, reserialized, and
scanned again, so protobuf decides which bytes are valid and how they are interpreted.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from google.protobuf.message import DecodeError

from weft_graph import proto
from weft_io.records.protobuf_wire import Schema, find_fault, read_varint
from weft_tensor import errors

BYTES, FLOATS, INTEGERS = 1, 2, 3
"""The kinds of features: the field numbers of the lists in a Feature."""

KIND_NAMES: Final = {BYTES: "string", FLOATS: "float", INTEGERS: "int64"}

Payload = bytes | memoryview | tuple[bytes, ...]
"""The content of one feature: packed numbers, one string, or several strings."""

Rows = list[Any]
"""The contents of one feature in several examples: a Payload each; None if it is missing."""

_SLICE, _VIEW, _STRINGS = range(3)
_LARGE: Final = 1 << 15
"""Size in bytes above which numbers are not copied before conversion."""

_MAX_CACHED_HEADERS: Final = 4096
_LONGEST_HEADER: Final = 256

_Header = tuple[int, int, int, int]
"""Size of the header, size of the content, column or -1, and the way to read the content."""

_LIST: Final[Schema] = {
    BYTES: {},
    FLOATS: {1: "floats"},
    INTEGERS: {1: "integers"},
}
_FEATURES: Final[Schema] = {1: {1: "text", 2: _LIST}}
EXAMPLE: Final[Schema] = {1: _FEATURES}
SEQUENCE_EXAMPLE: Final[Schema] = {1: _FEATURES, 2: {1: {1: "text", 2: {1: _LIST}}}}


class FeatureScanner:
    """Finds requested features in serialized examples.

    Args:
      keys: names of the features, in UTF-8.
      kinds: BYTES, FLOATS or INTEGERS for each name.
    """

    def __init__(self, keys: Sequence[bytes], kinds: Sequence[int]) -> None:
        self.keys = tuple(keys)
        if len(keys) != len(kinds):
            raise errors.InvalidArgumentError(
                f"there must be one type per key, got {len(kinds)} for {len(keys)} keys"
            )
        pairs = zip(keys, kinds, strict=True)
        self._feature_index = {key: (i, kind) for i, (key, kind) in enumerate(pairs)}
        self._headers: dict[bytes, _Header] = {}
        self._sizes: list[int] = []

    def scan(self, data: bytes, index: int, end: int, columns: Sequence[Rows], row: int) -> bool:
        """Record the contents of features in a feature map.

        Args:
          data: an example.
          at, end: the range of its `Features`.
          columns: per key, the list that receives the contents.
          row: the index of the example.
        Returns: False if the form is unusual, or a feature has another kind.
        """
        headers, sizes = self._headers, self._sizes
        k = 0
        while index < end:
            header = headers.get(data[index : index + sizes[k]]) if k < len(sizes) else None
            if header is None:
                header = self._cache_header(data, index, end, k)
                if header is None:
                    return False
            size, content, column, encoding = header
            start = index + size
            index = start + content
            if index > end:
                return False
            if column >= 0:
                rows = columns[column]
                if rows[row] is not None:  # twice in one example
                    return False
                if encoding == _SLICE:
                    rows[row] = data[start:index]
                elif encoding == _VIEW:
                    rows[row] = memoryview(data)[start:index]
                else:
                    strings = split_strings(data, start, index)
                    if strings is None:
                        return False
                    rows[row] = strings
            k += 1
        return True

    def _cache_header(self, data: bytes, index: int, end: int, k: int) -> _Header | None:
        """Cache and return the header at `index` for the k-th feature; None if it is unusual."""
        start = index
        key, index, stop = read_key(data, index, end)
        if key is None:
            return None
        column, kind = self._feature_index.get(key, (-1, 0))
        if column < 0:
            header = (index - start, stop - index, -1, _SLICE)
        else:
            index = read_nested(data, index, stop, 0x12)
            offset, encoding = read_list(data, index, stop, kind)
            if offset < 0:
                return None
            header = (offset - start, stop - offset, column, encoding)
        self._remember(data[start : start + header[0]], header, k)
        return header

    def _remember(self, content: bytes, header: _Header, k: int) -> None:
        if len(content) > _LONGEST_HEADER:
            return
        if len(self._headers) >= _MAX_CACHED_HEADERS:
            self._headers.clear()
        self._headers[content] = header
        if k < len(self._sizes):
            self._sizes[k] = len(content)
        elif k == len(self._sizes):
            self._sizes.append(len(content))


def read_nested(data: bytes, index: int, end: int, tag: int) -> int:
    """Return the start of the content of a field that ends at `end`; -1 if the field differs."""
    if index < 0 or index >= end or data[index] != tag:
        return -1
    size, index = read_varint(data, index + 1, end)
    return index if size == end - index else -1


def read_key(data: bytes, index: int, end: int) -> tuple[bytes | None, int, int]:
    """Return the key of a map entry, the index after it, and the entry's end; None if unusual."""
    if data[index] != 0x0A:
        return None, index, end
    size, index = read_varint(data, index + 1, end)
    stop = index + size
    if size < 1 or stop > end or data[index] != 0x0A:
        return None, index, end
    size, index = read_varint(data, index + 1, stop)
    if size < 0 or index + size > stop:
        return None, index, end
    key = data[index : index + size]
    try:
        key.decode()
    except UnicodeDecodeError:
        return None, index, end
    return key, index + size, stop


def read_list(data: bytes, index: int, end: int, kind: int) -> tuple[int, int]:
    """Return the start of a Feature's content that ends at `end`, and its form; -1 if unusual."""
    index = read_nested(data, index, end, kind << 3 | 2)
    if index < 0 or index == end:
        return index, _STRINGS if kind == BYTES else _SLICE
    inner = read_nested(data, index, end, 0x0A)
    if kind == BYTES:
        return (index, _STRINGS) if inner < 0 else (inner, _SLICE)
    if kind == FLOATS and (end - inner) % 4:
        return -1, _SLICE
    return inner, _VIEW if end - inner > _LARGE else _SLICE


def split_strings(data: bytes, index: int, end: int) -> tuple[bytes, ...] | None:
    """Return the values of a BytesList; None if the form is unusual."""
    values: list[bytes] = []
    while index < end:
        if data[index] != 0x0A:
            return None
        size, index = read_varint(data, index + 1, end)
        if size < 0 or index + size > end:
            return None
        values.append(data[index : index + size])
        index += size
    return tuple(values)


# ---------------------------------------------------------------------- the unusual forms


def rewrite_example(data: bytes, location: str) -> bytes:
    """Reserialize an example with protobuf, which results in the usual form.

    Raises: InvalidArgumentError: the bytes are not an example; the message starts with `location`.
    """
    parsed = _parse(proto.Example, data, location, EXAMPLE)
    usual = proto.Example()
    _copy_features(parsed.features.feature, usual.features)
    serialized: bytes = usual.SerializeToString()
    return serialized


def rewrite_sequence_example(data: bytes, location: str) -> bytes:
    """Reserialize a SequenceExample with protobuf, which results in the usual form.

    Raises: InvalidArgumentError: the bytes are not a SequenceExample; the message starts with
      `location`.
    """
    parsed = _parse(proto.SequenceExample, data, location, SEQUENCE_EXAMPLE)
    usual = proto.SequenceExample()
    _copy_features(parsed.context.feature, usual.context)
    for key, steps in parsed.feature_lists.feature_list.items():
        target = usual.feature_lists.feature_list[key]
        for feature in steps.feature:
            _copy_feature(feature, target.feature.add())
    serialized: bytes = usual.SerializeToString()
    return serialized


def _parse(message: Any, data: bytes, location: str, schema: Schema) -> Any:
    try:
        return message.FromString(data)
    except DecodeError as cause:
        offset, reason = find_fault(data, schema)
        raise errors.InvalidArgumentError(
            f"{location}: Could not parse example input: at offset {offset} of {len(data)} bytes: "
            f"{reason}",
            details={"offset": offset},
        ) from cause


def _copy_features(source: Any, target: Any) -> None:
    for key, feature in source.items():
        if feature.WhichOneof("kind") is not None:  # without a kind it counts as missing
            _copy_feature(feature, target.feature[key])


def _copy_feature(source: Any, target: Any) -> None:
    kind = source.WhichOneof("kind")
    if kind is not None:
        getattr(target, kind).SetInParent()
        getattr(target, kind).value.extend(getattr(source, kind).value)
