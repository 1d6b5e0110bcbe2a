"""Element types on disk: safetensors names, and the encoding of strings.

Numbers are stored in little-endian byte order. safetensors has no complex numbers and
no strings: these are stored as bytes, and the index holds the true type and shape. A string tensor
is stored as the end offset of each element (uint64, relative to the first element), followed by the
bytes of all elements.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, Final

import numpy as np

from weft_io.checkpoint.regions import Shape, count
from weft_tensor import dtypes, errors
from weft_tensor.dtypes import DType

Array = np.ndarray[Any, Any]
Empty = Callable[[Shape, "np.dtype[Any]"], Any]

_NAMES: Final = {
    dtypes.bool_: "BOOL",
    dtypes.uint8: "U8",
    dtypes.int8: "I8",
    dtypes.uint16: "U16",
    dtypes.int16: "I16",
    dtypes.uint32: "U32",
    dtypes.int32: "I32",
    dtypes.uint64: "U64",
    dtypes.int64: "I64",
    dtypes.float16: "F16",
    dtypes.bfloat16: "BF16",
    dtypes.float8_e4m3fn: "F8_E4M3",
    dtypes.float8_e5m2: "F8_E5M2",
    dtypes.float32: "F32",
    dtypes.float64: "F64",
    dtypes.quint8: "U8",
    dtypes.qint8: "I8",
    dtypes.quint16: "U16",
    dtypes.qint16: "I16",
    dtypes.qint32: "I32",
}
_SWAP: Final = sys.byteorder == "big"
_ENDS: Final = np.dtype("<u8")


def check_saveable(dtype: DType, name: str) -> None:
    """Raise InvalidTypeError for types that cannot be stored, such as handles."""
    if not dtype.is_numpy_compatible:
        raise errors.InvalidTypeError(
            f"{name} cannot be saved: a {dtype.name} is valid only inside its process"
        )


def stored_size(dtype: DType, shape: Shape) -> int | None:
    """Return the size of a tensor on disk in bytes; None if it depends on the elements."""
    return None if dtype is dtypes.string else count(shape) * dtype.numpy.itemsize


def storage_type(dtype: DType, shape: Shape, size: int) -> tuple[str, Shape]:
    """Return the safetensors type name and shape to write to the shard's header."""
    name = _NAMES.get(dtype)
    return ("U8", (size,)) if name is None else (name, shape)


def encode(value: Any, dtype: DType) -> memoryview:
    """Return the bytes of a tensor, as a view of `value` if possible.

    Args:
      value: array or scalar of the type's NumPy dtype.
    Raises: InvalidTypeError: an element of a string tensor is not bytes.
    """
    array = np.asarray(value)
    if dtype is dtypes.string:
        return _encode_strings(array)
    flat = np.ascontiguousarray(array).reshape(-1)
    if _SWAP:
        flat = flat.byteswap()
    return _memory(flat)


def _encode_strings(array: Array) -> memoryview:
    items = array.reshape(-1).tolist()
    try:
        ends = np.cumsum([len(item) for item in items], dtype=_ENDS)
        return memoryview(b"".join([ends.tobytes(), *items]))
    except TypeError as cause:
        raise errors.InvalidTypeError(f"a string tensor must hold bytes: {cause}") from cause


def _memory(flat: Any) -> memoryview:
    return memoryview(flat.view(np.uint8))


def allocate(dtype: DType, shape: Shape, size: int, empty: Empty) -> tuple[Array, memoryview]:
    """Allocate memory for `size` stored bytes; return it as an array and as a view of bytes."""
    if dtype is dtypes.string:
        array: Array = np.empty(size, np.uint8)
        return array, _memory(array)
    array = empty(shape, dtype.numpy)
    return array, _memory(array.reshape(-1))


def decode(array: Array, dtype: DType, shape: Shape) -> Array:
    """Decode the bytes that were read into an array of `allocate` to a tensor.

    Raises: ValueError: the bytes do not encode a tensor.
    """
    if dtype is dtypes.string:
        return _decode_strings(array, shape)
    if _SWAP:
        array.byteswap(inplace=True)
    if dtype is dtypes.bool_ and array.size and array.view(np.uint8).max() > 1:
        raise ValueError("a bool is neither 0 nor 1")
    return array


def _decode_strings(array: Array, shape: Shape) -> Array:
    number = count(shape)
    if number * _ENDS.itemsize > array.size:
        raise ValueError(f"{number} strings do not fit into {array.size} bytes")
    ends = array[: number * _ENDS.itemsize].view(_ENDS)
    data = array[number * _ENDS.itemsize :].tobytes()
    if (ends[1:] < ends[:-1]).any() or (int(ends[-1]) if number else 0) != len(data):
        raise ValueError("the end offsets of the strings do not match their bytes")
    result: Array = np.empty(number, np.object_)
    start = 0
    for i, end in enumerate(ends.tolist()):
        result[i] = data[start:end]
        start = end
    return result.reshape(shape)
