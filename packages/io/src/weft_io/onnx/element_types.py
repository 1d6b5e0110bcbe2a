"""Conversion between the element types of ONNX and weft."""

from __future__ import annotations

from typing import Final

from onnx import TensorProto

from weft_tensor import dtypes, errors
from weft_tensor.dtypes import DType

_NUMBERS: Final[dict[int, DType]] = {
    TensorProto.FLOAT: dtypes.float32,
    TensorProto.UINT8: dtypes.uint8,
    TensorProto.INT8: dtypes.int8,
    TensorProto.UINT16: dtypes.uint16,
    TensorProto.INT16: dtypes.int16,
    TensorProto.INT32: dtypes.int32,
    TensorProto.INT64: dtypes.int64,
    TensorProto.STRING: dtypes.string,
    TensorProto.BOOL: dtypes.bool_,
    TensorProto.FLOAT16: dtypes.float16,
    TensorProto.DOUBLE: dtypes.float64,
    TensorProto.UINT32: dtypes.uint32,
    TensorProto.UINT64: dtypes.uint64,
    TensorProto.COMPLEX64: dtypes.complex64,
    TensorProto.COMPLEX128: dtypes.complex128,
    TensorProto.BFLOAT16: dtypes.bfloat16,
    TensorProto.FLOAT8E4M3FN: dtypes.float8_e4m3fn,
    TensorProto.FLOAT8E4M3FNUZ: dtypes.float8_e4m3fnuz,
    TensorProto.FLOAT8E5M2: dtypes.float8_e5m2,
    TensorProto.FLOAT8E5M2FNUZ: dtypes.float8_e5m2fnuz,
    TensorProto.UINT4: dtypes.uint4,
    TensorProto.INT4: dtypes.int4,
    TensorProto.FLOAT4E2M1: dtypes.float4_e2m1fn,
    TensorProto.UINT2: dtypes.uint2,
    TensorProto.INT2: dtypes.int2,
}
_NUMBER_OF_DTYPE: Final = {dtype: number for number, dtype in _NUMBERS.items()}


def weft_type(number: int) -> DType:
    """Return the element type for ONNX's number.

    Raises: UnimplementedError: weft does not support the type. InvalidArgumentError: ONNX has no
      such type.
    """
    result = _NUMBERS.get(number)
    if result is not None:
        return result
    names: dict[int, str] = {value: name for name, value in TensorProto.DataType.items()}
    if number in names and number != TensorProto.UNDEFINED:
        raise errors.UnimplementedError(f"ONNX's element type {names[number]} is not supported")
    raise errors.InvalidArgumentError(f"ONNX has no element type with the number {number}")


def onnx_type(dtype: DType) -> int:
    """Return ONNX's number of an element type.

    Raises: UnimplementedError: ONNX has no such type.
    """
    result = _NUMBER_OF_DTYPE.get(dtype.base_dtype)
    if result is None:
        raise errors.UnimplementedError(f"ONNX has no element type {dtype.name}")
    return result
