"""Conversion between `TensorProto` and NumPy arrays."""

from __future__ import annotations

__all__ = ["make_ndarray", "make_tensor_proto"]

import math
import sys
from typing import Any, Final

import numpy as np

from weft_graph import proto
from weft_graph.ir.constants import to_array
from weft_graph.messages.variant_proto import variant_from_proto, variant_to_proto
from weft_tensor import dtypes, errors
from weft_tensor.dtypes import DType
from weft_tensor.shape import as_dims, format_dims

MAX_BYTES: Final = 2**31 - 1
"""Limit of the size of a protobuf message and of its expanded values: below 2 GiB."""

_FREE_STRING_BYTES: Final = 2**24
_STRING_BYTES_EACH: Final = 64
"""Limits of the expansion of repeated strings: a constant, and bytes per byte of the file."""

_MAX_RANK = 64  # NumPy's

_LITTLE_ENDIAN = sys.byteorder == "little"

_VALUE_FIELD: Final[dict[DType, str]] = {
    dtypes.float32: "float_val",
    dtypes.float64: "double_val",
    dtypes.int32: "int_val",
    dtypes.int16: "int_val",
    dtypes.int8: "int_val",
    dtypes.uint16: "int_val",
    dtypes.uint8: "int_val",
    dtypes.qint32: "int_val",
    dtypes.qint16: "int_val",
    dtypes.qint8: "int_val",
    dtypes.quint16: "int_val",
    dtypes.quint8: "int_val",
    dtypes.int64: "int64_val",
    dtypes.uint32: "uint32_val",
    dtypes.uint64: "uint64_val",
    dtypes.bool_: "bool_val",
    dtypes.string: "string_val",
    dtypes.complex64: "scomplex_val",
    dtypes.complex128: "dcomplex_val",
    dtypes.float16: "half_val",
    dtypes.bfloat16: "half_val",
    **dict.fromkeys((dtypes.int4, dtypes.uint4, dtypes.int2, dtypes.uint2), "int_val"),
    **dict.fromkeys(
        (
            dtypes.float8_e5m2,
            dtypes.float8_e4m3fn,
            dtypes.float8_e4m3fnuz,
            dtypes.float8_e4m3b11fnuz,
            dtypes.float8_e5m2fnuz,
            dtypes.float4_e2m1fn,
        ),
        "float8_val",
    ),
}


class Budget:
    """Budget of bytes for repeated values, which take no space in a file.

    Large tensors with one repeated number are common. Tensors with one repeated string are rare, so
    they are limited by the size of the file; string tensors usually store each element.

    Args:
      left: remaining bytes for all values.
      size: size of the file in bytes.
    """

    __slots__ = ("left", "strings_left")

    def __init__(self, left: int = MAX_BYTES, size: int = 0) -> None:
        self.left = left
        self.strings_left = min(left, _FREE_STRING_BYTES + _STRING_BYTES_EACH * size)

    def take(self, count: int, location: str) -> None:
        """Deduct `count` bytes.

        Raises: InvalidArgumentError: the budget is exceeded.
        """
        if count > self.left:
            raise errors.InvalidArgumentError(
                f"{location} would expand to {count} bytes, but only {self.left} bytes remain for "
                "repeated values"
            )
        self.left -= count

    def take_strings(self, count: int, text: bytes, location: str) -> None:
        """Deduct the bytes of `count` further references to a string, and of the written strings.

        Raises: InvalidArgumentError: the budget is exceeded.
        """
        num_bytes = count * (np.dtype(object).itemsize + len(text))
        if num_bytes > self.strings_left:
            raise errors.InvalidArgumentError(
                f"{location} would repeat a string of {len(text)} bytes {count} times; "
                f"only {self.strings_left} bytes remain for repeated strings"
            )
        self.strings_left -= num_bytes


def make_tensor_proto(
    values: Any,
    dtype: Any = None,
    shape: Any = None,
    verify_shape: bool = False,
    allow_broadcast: bool = False,
) -> proto.TensorProto:
    """Convert values to a `TensorProto`.

    Args:
      values: number, string, nested list, array, or TensorProto (returned unchanged).
      dtype: element type; defaults to that of the values.
      shape: shape of the tensor; the last value is repeated to fill it.
      verify_shape: require `values` to have `shape` already.
      allow_broadcast: accepted for compatibility and ignored.
    Raises:
      InvalidTypeError: the values cannot be converted to `dtype`.
      InvalidArgumentError: the values do not fit `shape`, or have 2 GiB or more.

    Examples:
      >>> wf.make_ndarray(wf.make_tensor_proto([1, 2]))
      array([1, 2], dtype=int32)
    """
    if isinstance(values, proto.TensorProto):
        return values
    given_type = None if dtype is None else dtypes.as_dtype(dtype)
    array = to_array(values, given_type)
    element = given_type or dtypes.from_numpy(array.dtype)
    dims = array.shape if shape is None else _full_shape(shape)
    if dims != array.shape:
        full = to_array(np.empty(array.shape, np.uint8), None, dims, verify_shape)
        if full.size > array.size:
            message = proto.TensorProto(dtype=element.as_datatype_enum)
            _fill_shape(message.tensor_shape, dims)
            _fill_values(message, array, element)
            return message
    return array_to_proto(array.reshape(dims), element)


def array_to_proto(array: np.ndarray, dtype: DType) -> proto.TensorProto:
    """Convert an array to a `TensorProto` with the element type `dtype`.

    Raises:
      InvalidArgumentError: the message would have 2 GiB or more, or the elements cannot be
        represented.
      InvalidTypeError: a variant is neither a ragged tensor nor a tensor.
    """
    message = proto.TensorProto()
    fill_tensor(message, array, dtype)
    return message


def fill_tensor(message: proto.TensorProto, array: np.ndarray, dtype: DType) -> None:
    """Write an array to an empty `TensorProto`; see `array_to_proto`."""
    message.dtype = dtype.as_datatype_enum
    _fill_shape(message.tensor_shape, array.shape)
    if dtype is dtypes.variant:
        items = array.reshape(-1).tolist()
        message.variant_val.extend([variant_to_proto(item, _part_to_proto) for item in items])
        return
    if array.nbytes > MAX_BYTES:
        raise errors.InvalidArgumentError(
            f"a tensor of {array.nbytes} bytes does not fit into a TensorProto (2 GiB at most)"
        )
    if array.size > 1 and dtype is not dtypes.string and dtype in _VALUE_FIELD:
        message.tensor_content = little_endian(array).tobytes()
    else:
        _fill_values(message, array, dtype)


def _part_to_proto(array: np.ndarray) -> proto.TensorProto:
    return array_to_proto(array, dtypes.from_numpy(array.dtype))


def make_ndarray(tensor: proto.TensorProto) -> np.ndarray:
    """Convert a `TensorProto` to a new, writable array.

    Args:
      tensor: a `TensorProto`, such as the attribute "value" of a constant.
    Raises:
      InvalidTypeError: its element type is resource or unknown, or it has variants that are neither
        ragged tensors nor tensors.
      InvalidArgumentError: the values do not fit the shape.

    Examples:
      >>> wf.make_ndarray(wf.make_tensor_proto([1, 2]))
      array([1, 2], dtype=int32)
    """
    array = array_from_proto(tensor, "the tensor", Budget(size=tensor.ByteSize()))
    return array if array.flags.writeable else array.copy()


def dtype_from_proto(number: int, location: str) -> DType:
    """Return the element type for a number of the enum `DataType`.

    Raises: InvalidTypeError: weft has no such type.
    """
    try:
        return DType(number)
    except errors.InvalidTypeError:
        descriptor = proto.DataType.DESCRIPTOR.values_by_number.get(number)
        name = descriptor.name if descriptor is not None else str(number)
        raise errors.InvalidTypeError(f"{location}: the element type {name} is unknown") from None


def array_from_proto(tensor: proto.TensorProto, location: str, budget: Budget) -> np.ndarray:
    """Convert like `make_ndarray`; the array may be a read-only view of the message's bytes.

    Args:
      location: description of the message to read, for error messages.
      budget: limit of the bytes of expanded repeated values.
    """
    dtype = dtype_from_proto(tensor.dtype, location)
    if dtype is dtypes.variant:
        return _variants_from_proto(tensor, location, budget)
    field = _VALUE_FIELD.get(dtype)
    if field is None:
        raise errors.InvalidTypeError(f"{location}: arrays of {dtype.name} are not supported")
    shape = _shape(tensor.tensor_shape, location)
    count = math.prod(shape)
    if tensor.tensor_content:
        return _from_content(tensor.tensor_content, dtype, shape, location)
    values = getattr(tensor, field)
    parts = 2 if dtype.is_complex else 1
    if len(values) > count * parts or len(values) % parts:
        raise errors.InvalidArgumentError(
            f"{location}: shape {list(shape)} of {dtype.name} takes {count} elements "
            f"and {field} has {len(values)} values"
        )
    stored = _from_values(values, dtype, location)
    if stored.size == count:
        return stored.reshape(shape)
    empty: Any = b"" if dtype is dtypes.string else 0
    last = stored[-1] if stored.size else empty
    if dtype is dtypes.string:
        budget.take_strings(count - stored.size, last, location)
    budget.take((count - stored.size) * dtype.numpy.itemsize, location)
    result = np.empty(count, dtype.numpy)
    result[: stored.size] = stored
    result[stored.size :] = last
    return result.reshape(shape)


def _variants_from_proto(tensor: proto.TensorProto, location: str, budget: Budget) -> np.ndarray:
    shape = _shape(tensor.tensor_shape, location)
    count = math.prod(shape)
    messages = list(tensor.variant_val)
    if tensor.tensor_content:
        messages = [
            _parse_variant(item, location)
            for item in _strings_from_content(tensor.tensor_content, count, location)
        ]
    if len(messages) != count:
        raise errors.InvalidArgumentError(
            f"{location}: shape {list(shape)} requires {count} variants and variant_val has "
            f"{len(messages)}; empty variants cannot be read"
        )
    result = np.empty(count, object)
    for i, message in enumerate(messages):
        result[i] = variant_from_proto(
            message, location, lambda part: array_from_proto(part, location, budget)
        )
    return result.reshape(shape)


def _parse_variant(data: bytes, location: str) -> proto.VariantTensorDataProto:
    from google.protobuf.message import DecodeError

    try:
        return proto.VariantTensorDataProto.FromString(data)
    except DecodeError as cause:
        raise errors.InvalidArgumentError(
            f"{location}: tensor_content is not a VariantTensorDataProto: {cause}"
        ) from cause


def _full_shape(shape: Any) -> tuple[int, ...]:
    dims = as_dims(shape)
    if dims is None or None in dims:
        raise errors.InvalidArgumentError(f"the shape must be known, got {format_dims(dims)}")
    return tuple([size or 0 for size in dims])


def _fill_shape(message: proto.TensorShapeProto, dims: tuple[int, ...]) -> None:
    message.SetInParent()
    for size in dims:
        message.dim.add(size=size)


def _fill_values(message: proto.TensorProto, array: np.ndarray, dtype: DType) -> None:
    field = _VALUE_FIELD.get(dtype)
    if field is None:
        raise errors.InvalidTypeError(f"TensorProtos of {dtype.name} are not supported")
    flat = array.reshape(-1)
    if dtype is dtypes.string:
        if not all(isinstance(item, bytes) for item in flat):
            raise errors.InvalidTypeError("the elements of a string tensor must be bytes")
    elif dtype.is_complex:
        flat = flat.view(dtype.real_dtype.numpy)
    elif field == "half_val":
        flat = flat.view(np.uint16)
    elif field == "float8_val":
        message.float8_val = flat.tobytes()
        return
    elif flat.dtype.kind == "V":
        flat = flat.astype(np.int32)
    getattr(message, field).extend(flat.tolist())


def _shape(message: proto.TensorShapeProto, location: str) -> tuple[int, ...]:
    shape = tuple([dim.size for dim in message.dim])
    if message.unknown_rank or any(size < 0 for size in shape):
        raise errors.InvalidArgumentError(f"{location}: the shape of a value must be known")
    if len(shape) > _MAX_RANK:
        raise errors.InvalidArgumentError(
            f"{location}: rank {len(shape)} is larger than the maximum of {_MAX_RANK}"
        )
    # NumPy refuses sizes whose product overflows even where another size is zero.
    if math.prod(size or 1 for size in shape) > 2**60:
        raise errors.InvalidArgumentError(f"{location}: shape {list(shape)} has too many elements")
    return shape


def _from_content(
    content: bytes, dtype: DType, shape: tuple[int, ...], location: str
) -> np.ndarray:
    if dtype is dtypes.string:
        return _strings_from_content(content, math.prod(shape), location).reshape(shape)
    num_bytes = math.prod(shape) * dtype.numpy.itemsize
    if len(content) != num_bytes:
        raise errors.InvalidArgumentError(
            f"{location}: shape {list(shape)} of {dtype.name} takes {num_bytes} bytes "
            f"and tensor_content has {len(content)}"
        )
    if dtype.is_bool and content.strip(b"\0\1"):
        check_bool_bytes(np.frombuffer(content, np.uint8), location)
    return little_endian(np.frombuffer(content, dtype.numpy).reshape(shape))


def _strings_from_content(content: bytes, count: int, location: str) -> np.ndarray:
    """Decode strings written by SerializeTensor: the lengths as varints, then the bytes.

    Raises: InvalidArgumentError: the number of strings or of bytes does not match.
    """
    lengths: list[int] = []
    position = 0
    while len(lengths) < count:
        length, shift = 0, 0
        while True:
            if position >= len(content) or shift > 28:
                raise errors.InvalidArgumentError(
                    f"{location}: tensor_content has the lengths of {len(lengths)} strings, and "
                    f"{count} are required"
                )
            byte = content[position]
            position, length, shift = position + 1, length | (byte & 127) << shift, shift + 7
            if byte < 128:
                break
        lengths.append(length)
    if position + sum(lengths) != len(content):
        raise errors.InvalidArgumentError(
            f"{location}: strings of {sum(lengths)} bytes are required, and tensor_content has "
            f"{len(content) - position}"
        )
    result = np.empty(count, object)
    for i, length in enumerate(lengths):
        result[i] = content[position : position + length]
        position += length
    return result


def little_endian(array: np.ndarray) -> np.ndarray:
    """Convert between native and little-endian byte order; its own inverse."""
    return array if _LITTLE_ENDIAN else array.byteswap()


def check_bool_bytes(content: np.ndarray, location: str) -> None:
    """Check that bool bytes are 0 or 1, because NumPy's logic is undefined for others.

    Raises: InvalidArgumentError: a byte is neither 0 nor 1.
    """
    bad = np.flatnonzero(content > 1)
    if bad.size:
        raise errors.InvalidArgumentError(
            f"{location}: byte {int(bad[0])} of a bool tensor is {int(content[bad[0]])}"
        )


def _from_values(values: Any, dtype: DType, location: str) -> np.ndarray:
    if dtype is dtypes.string:
        strings = np.empty(len(values), object)
        strings[:] = list(values)
        return strings
    if dtype.is_complex:
        return np.array(values, dtype.real_dtype.numpy).view(dtype.numpy)
    if isinstance(values, bytes):
        return np.frombuffer(values, dtype.numpy)
    numpy = np.dtype(np.uint16) if dtype in (dtypes.float16, dtypes.bfloat16) else dtype.numpy
    if not (numpy.kind in "iu" or dtype.is_integer):
        return np.array(values, numpy)
    wide = np.array(values, numpy if numpy.itemsize == 8 else np.int64)
    limits: Any = dtype if dtype.is_integer else np.iinfo(numpy)
    if wide.size and (wide.min() < limits.min or wide.max() > limits.max):
        raise errors.InvalidArgumentError(
            f"{location}: {wide.min()} to {wide.max()} is out of the range of {numpy.name}"
        )
    narrow = wide.astype(numpy)
    return narrow.view(dtype.numpy) if numpy is not dtype.numpy else narrow
