"""Numbers of 16 bits: what adds or multiplies many of them does so in float32, and rounds once."""

from __future__ import annotations

from typing import Final

import numpy as np

from weft_compiler.lower.values import Value, computed
from weft_tensor import dtypes
from weft_tensor.dtypes import DType

NARROW: Final = (dtypes.float16, dtypes.bfloat16)


def wide_type(dtype: DType) -> DType:
    """The type that numbers of a type are computed in: float32 for those of 16 bits."""
    return dtypes.float32 if dtype in NARROW else dtype


def widened(name: str, x: Value) -> Value:
    """A tensor in float32 where it is narrower."""
    if x.dtype not in NARROW:
        return x
    if x.constant is not None:
        wide = x.constant.astype(np.float32)
        return Value(f"{name}_{x.name}", dtypes.float32, x.shape, constant=wide)
    return computed(f"{name}_{x.name}", dtypes.float32, x.shape, x.at)


def rounded(name: str, x: Value, dtype: DType) -> Value:
    """A tensor in a type; itself where it has that."""
    return x if x.dtype is dtype else computed(name, dtype, x.shape, x.at)
