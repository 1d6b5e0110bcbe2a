"""Kernels of matrix products and convolutions of 8-bit integers.

BLAS multiplies only floats. Sums of products are computed in float32 if it represents all integers
up to the largest sum, else in float64.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from weft_exec.kernels import conv
from weft_exec.kernels.registry import ARRAY_DEVICE, KernelFunction, kernel
from weft_graph.ir.constant_value import constant_value
from weft_tensor import dtypes, errors
from weft_tensor.dtypes import DType

if TYPE_CHECKING:
    from weft_exec.devices.device import Device
    from weft_graph.ir.node import Node

Array = Any

_LARGEST: Final = 255
"""Maximum magnitude of an 8-bit number minus its zero point."""
_EXACT: Final = 2**24
"""Integers up to this magnitude are exact in float32."""


def _type_for(count: int, weights: Array | None, axes: Sequence[int]) -> DType:
    """Return the floating-point type that represents sums of products exactly.

    Args:
      count: the number of terms of a sum.
      weights: constant weights, with their zero points subtracted; they are summed over `axes`.
    """
    limit = count * _LARGEST
    if weights is not None:
        limit = int(np.abs(weights).sum(tuple(axes), dtype=np.int64).max(initial=0))
    return dtypes.float32 if limit * _LARGEST < _EXACT else dtypes.float64


def _subtract_zero_point(x: Array, zero: Array, dtype: DType) -> Array:
    """Subtract the zero point from numbers, and return them as floats."""
    result = x.astype(dtype.numpy)
    if zero.ndim or zero:
        result -= zero.astype(dtype.numpy)
    return result


@kernel("MatMulInteger", device=ARRAY_DEVICE, heavy=True)
def _matmul(node: Node, device: Device) -> KernelFunction:
    matmul: Any = device.xp.matmul
    b, b_zero = constant_value(node.inputs[1]), constant_value(node.inputs[3])
    array: Array = None
    if b is not None and b_zero is not None:
        shifted = b.astype(np.int32) - b_zero
        dtype = _type_for(0, shifted, [-2])
        array = device.xp.asarray(shifted.astype(dtype.numpy))

    def run(a: Array, b: Array, a_zero: Array, b_zero: Array) -> Array:
        if a.ndim < 2 or b.ndim < 2 or a.shape[-1] != b.shape[-2]:
            raise errors.InvalidArgumentError(
                f"MatMulInteger requires matrices with equal inner sizes, got shapes "
                f"{list(a.shape)} and {list(b.shape)}"
            )
        if array is not None:
            return (matmul(_subtract_zero_point(a, a_zero, dtype), array)).astype(np.int32)
        wide = _type_for(a.shape[-1], None, ())
        result = matmul(
            _subtract_zero_point(a, a_zero, wide), _subtract_zero_point(b, b_zero, wide)
        )
        return result.astype(np.int32)

    return run


def _convolution(
    node: Node, device: Device, make: Callable[[DType], KernelFunction], axes: Sequence[int]
) -> KernelFunction:
    """Return the kernel of an integer convolution, by a convolution of floats.

    Args:
      make: returns the convolution for a type.
      axes: the axes of the filters that are summed over.
    """
    filters = constant_value(node.inputs[1])
    array: Array = None
    if filters is not None:
        dtype = _type_for(0, filters.astype(np.int32), axes)
        array = device.xp.asarray(filters.astype(dtype.numpy))
    kernel_functions: dict[DType, KernelFunction] = {}

    def run(x: Array, filters: Array, zero: Array) -> Array:
        count = prod(filters.shape[axis] for axis in axes)
        wide = dtype if array is not None else _type_for(count, None, ())
        if wide not in kernel_functions:
            kernel_functions[wide] = make(wide)
        weights = filters.astype(wide.numpy) if array is None else array
        return kernel_functions[wide](_subtract_zero_point(x, zero, wide), weights).astype(np.int32)

    return run


@kernel("Conv2DInteger", device=ARRAY_DEVICE, heavy=True)
def _conv(node: Node, device: Device) -> KernelFunction:
    def make(dtype: DType) -> KernelFunction:
        return conv.forward(conv.Convolution(node, device, dtype))

    return _convolution(node, device, make, (0, 1, 2))


@kernel("DepthwiseConv2dInteger", device=ARRAY_DEVICE, heavy=True)
def _depthwise(node: Node, device: Device) -> KernelFunction:
    def make(dtype: DType) -> KernelFunction:
        return conv.depthwise_forward(conv.Depthwise(node, device, dtype))

    return _convolution(node, device, make, (0, 1))
