"""Precision of 16-bit floats: sums and products of many terms are computed in float32."""

from __future__ import annotations

from typing import Final

import numpy as np

from weft_compiler.lower.values import Value, compute_value
from weft_tensor import dtypes
from weft_tensor.dtypes import DType

NARROW: Final = (dtypes.float16, dtypes.bfloat16)


def wide_type(dtype: DType) -> DType:
    """Return the type to compute in: float32 for 16-bit floats, otherwise the type itself."""
    return dtypes.float32 if dtype in NARROW else dtype


def widen(name: str, x: Value) -> Value:
    """Convert a tensor of 16-bit floats to float32; other tensors are returned unchanged."""
    if x.dtype not in NARROW:
        return x
    if x.constant is not None:
        wide = x.constant.astype(np.float32)
        return Value(f"{name}_{x.name}", dtypes.float32, x.shape, constant=wide)
    return compute_value(f"{name}_{x.name}", dtypes.float32, x.shape, x.at)


def round_to(name: str, x: Value, dtype: DType) -> Value:
    """Convert a tensor to a type; a tensor of that type is returned unchanged."""
    return x if x.dtype is dtype else compute_value(name, dtype, x.shape, x.at)
