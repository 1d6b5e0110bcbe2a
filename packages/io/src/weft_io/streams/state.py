"""Serialization of the state of an iterator.

    8 bytes  "weftiter"
    4 bytes  version, 1
    8 bytes  length of what follows, before the checksum
    n bytes  one value
    4 bytes  CRC-32C of all before

A value is a type byte followed by the content:

    N           None
    T, F        true, false
    i           1 byte n, then an integer of n bytes, signed
    s, b        8 bytes n, then n bytes: UTF-8 text, or bytes
    l           8 bytes n, then n values: a list
    a           a tensor: 1 byte n and n bytes, its element type's name; 1 byte, its rank; 8 bytes
                for each size; the elements. Strings are 8 bytes n, then n bytes, each.
    d a dataset of known elements: the list of them
    r           a variant that is a ragged tensor: the list of its values and its splits
    v           a tensor of variants: the list of its shape and of its elements

Integers are little-endian. A stream is a list of its kind and its state; see `save` of the classes.
"""

from __future__ import annotations

import math
import struct
from typing import Any, Final

import numpy as np

from weft_graph.ir.variants import RaggedVariant
from weft_io.records.sealed_state import Seal
from weft_io.streams.stream import ElementsSource, element_of
from weft_tensor import dtypes, errors

_SEAL: Final = Seal("an iterator's state", b"weftiter", 1, "Q")
_SIZE: Final = struct.Struct("<Q")
_DEEPEST: Final = 200
"""Maximum nesting depth of lists; a pipeline has two levels for each transformation."""
_MAX_AXES: Final = 64


def encode(value: Any) -> bytes:
    """Serialize a value.

    Args:
      value: None, bool, int, str, bytes, a list or tuple of these, an array or a NumPy scalar.
    Raises: UnimplementedError: it contains something else.
    """
    parts: list[bytes] = []
    _append(value, parts)
    return _SEAL.close(b"".join(parts))


def _append(value: Any, parts: list[bytes]) -> None:
    if value is None:
        parts.append(b"N")
    elif isinstance(value, bool):
        parts.append(b"T" if value else b"F")
    elif isinstance(value, int):
        data = value.to_bytes(value.bit_length() // 8 + 1, "little", signed=True)
        parts.append(b"i" + bytes((len(data),)) + data)
    elif isinstance(value, str | bytes):
        data = value if isinstance(value, bytes) else value.encode("utf-8", "surrogateescape")
        parts += (b"b" if data is value else b"s", _SIZE.pack(len(data)), data)
    elif isinstance(value, list | tuple):
        parts += (b"l", _SIZE.pack(len(value)))
        for item in value:
            _append(item, parts)
    elif isinstance(value, np.ndarray | np.generic):
        _append_array(np.asarray(value), parts)
    elif isinstance(value, ElementsSource):
        parts.append(b"d")
        _append([list(element) for element in value.elements], parts)
    elif isinstance(value, RaggedVariant):
        parts.append(b"r")
        _append([value.values, *value.splits], parts)
    else:
        raise errors.UnimplementedError(
            f"an iterator whose elements contain {type(value).__name__} cannot be saved"
        )


def _append_array(array: np.ndarray[Any, Any], parts: list[bytes]) -> None:
    if array.dtype.kind == "O" and not all(type(item) is bytes for item in array.flat):
        parts.append(b"v")
        _append([list(array.shape), array.reshape(-1).tolist()], parts)
        return
    name = dtypes.from_numpy(array.dtype).name.encode()
    parts += (b"a", bytes((len(name),)), name, bytes((array.ndim,)))
    parts += [_SIZE.pack(size) for size in array.shape]
    if array.dtype.kind == "O":
        for item in array.reshape(-1).tolist():
            parts += (_SIZE.pack(len(item)), item)
    else:
        parts.append(np.ascontiguousarray(array).tobytes())


def decode(data: bytes) -> Any:
    """Deserialize a value; tensors of rank 0 become NumPy scalars.

    Raises:
      InvalidArgumentError: the bytes are not a state of an iterator, or of a newer version.
      DataLossError: they are damaged.
    """
    _SEAL.check(data)
    reader = _Reader(data, _SEAL.start, len(data) - 4)
    value = reader.value(0)
    reader.expect_end()
    return value


class _Reader:
    def __init__(self, data: bytes, index: int, end: int) -> None:
        self._data = data
        self._index = index
        self._end = end

    def expect_end(self) -> None:
        if self._index != self._end:
            raise _SEAL.damaged_error(
                f"has {self._end - self._index} bytes too many at {self._index}"
            )

    def value(self, depth: int) -> Any:
        kind = self._take(1)
        if kind in _CONSTANTS:
            return _CONSTANTS[kind]
        if kind == b"i":
            return int.from_bytes(self._take(self._take(1)[0]), "little", signed=True)
        if kind == b"b":
            return self._take(self._size())
        if kind == b"s":
            return self._take(self._size()).decode("utf-8", "surrogateescape")
        if kind == b"a":
            return self._array()
        if kind == b"d":
            return self._dataset(depth)
        if kind == b"r":
            return self._ragged(depth)
        if kind == b"v":
            return self._variants(depth)
        if kind != b"l":
            raise _SEAL.damaged_error(f"has no value at {self._index - 1}, but {kind!r}")
        if depth >= _DEEPEST:
            raise _SEAL.damaged_error(
                f"has more than {_DEEPEST} lists within each other at {self._index}"
            )
        return [self.value(depth + 1) for _ in range(self._size())]

    def _dataset(self, depth: int) -> ElementsSource:
        if self._data[self._index : self._index + 1] != b"l":
            raise _SEAL.damaged_error(f"has no elements of a dataset at {self._index}")
        elements = self.value(depth + 1)
        return ElementsSource([element_of(element) for element in elements])

    def _ragged(self, depth: int) -> RaggedVariant:
        parts = self.value(depth + 1) if self._data[self._index : self._index + 1] == b"l" else None
        if not parts or not all(isinstance(part, np.ndarray | np.generic) for part in parts):
            raise _SEAL.damaged_error(
                f"has no values and splits of a ragged tensor at {self._index}"
            )
        values, *splits = [np.asarray(part) for part in parts]
        return RaggedVariant(splits, values)

    def _variants(self, depth: int) -> np.ndarray[Any, Any]:
        parts = self.value(depth + 1) if self._data[self._index : self._index + 1] == b"l" else None
        if not parts or len(parts) != 2 or not all(isinstance(part, list) for part in parts):
            raise _SEAL.damaged_error(
                f"lacks the shape and the elements of a tensor at {self._index}"
            )
        shape, items = parts
        sized = all(type(size) is int and size >= 0 for size in shape)
        is_variant = all(isinstance(item, ElementsSource | RaggedVariant) for item in items)
        if not sized or not is_variant or len(shape) > _MAX_AXES or math.prod(shape) != len(items):
            raise _SEAL.damaged_error(
                f"has no {shape} variants at {self._index}, but {len(items)} values"
            )
        array = np.empty(len(items), object)
        array[:] = items
        return array.reshape(shape)

    def _take(self, count: int) -> bytes:
        index = self._index
        if count > self._end - index:
            raise _SEAL.damaged_error(
                f"needs {count} bytes at {index}, but {self._end - index} are left"
            )
        self._index = index + count
        return self._data[index : index + count]

    def _size(self) -> int:
        """Read the number of items; each needs at least one byte."""
        size: int = _SIZE.unpack(self._take(8))[0]
        if size > self._end - self._index:
            raise _SEAL.damaged_error(
                f"says {size} at {self._index}, where {self._end - self._index} bytes are left"
            )
        return size

    def _array(self) -> Any:
        name = self._take(self._take(1)[0]).decode("ascii", "replace")
        try:
            dtype = dtypes.as_dtype(name).numpy
        except (errors.OpError, TypeError) as cause:
            raise _SEAL.damaged_error(f"has the element type {name!r} at {self._index}") from cause
        rank = self._take(1)[0]
        if rank > _MAX_AXES:
            raise _SEAL.damaged_error(f"has a tensor of rank {rank} at {self._index}")
        shape = [_SIZE.unpack(self._take(8))[0] for _ in range(rank)]
        count = math.prod(shape)
        if count * (8 if dtype.hasobject else dtype.itemsize) > self._end - self._index:
            raise _SEAL.damaged_error(
                f"has a tensor of shape {shape} at {self._index}, which is truncated"
            )
        if any(size > self._end for size in shape):
            raise _SEAL.damaged_error(f"has a tensor of shape {shape} at {self._index}")
        if dtype.hasobject:
            array = np.empty(count, object)
            array[:] = [self._take(self._size()) for _ in range(count)]
        else:
            array = np.frombuffer(self._take(count * dtype.itemsize), dtype).copy()
        return array.reshape(shape)[()]


_CONSTANTS: Final = {b"N": None, b"T": True, b"F": False}
