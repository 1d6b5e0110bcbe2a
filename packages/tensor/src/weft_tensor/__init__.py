"""Element types, shapes, memory and errors: the base of every other package of weft."""

from __future__ import annotations

from weft_tensor import dtypes, errors, promotion, shape
from weft_tensor.allocator import (
    Allocator,
    AllocatorStatistics,
    CpuAllocator,
    Holder,
    cpu_allocator,
)
from weft_tensor.buffer import Buffer
from weft_tensor.dtypes import DType, as_dtype
from weft_tensor.errors import OpError
from weft_tensor.promotion import can_cast, common_dtype, default_dtype
from weft_tensor.shape import Dimension, Dims, TensorShape
from weft_tensor.tensor import Tensor
from weft_tensor.values import to_array

__all__ = [
    "Allocator",
    "AllocatorStatistics",
    "Buffer",
    "CpuAllocator",
    "DType",
    "Dimension",
    "Dims",
    "Holder",
    "OpError",
    "Tensor",
    "TensorShape",
    "as_dtype",
    "can_cast",
    "common_dtype",
    "cpu_allocator",
    "default_dtype",
    "dtypes",
    "errors",
    "promotion",
    "shape",
    "to_array",
]
