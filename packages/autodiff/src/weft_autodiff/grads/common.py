"""Helpers that gradient functions of several families share."""

from __future__ import annotations

from typing import Any

import numpy as np

from weft_graph.ir.builder import constant_of, create, out
from weft_graph.ir.node import Node, Output
from weft_graph.ops import permutation
from weft_graph.ops.shape_rules import constant_array, normal_axes
from weft_tensor import dtypes
from weft_tensor.dtypes import DType
from weft_tensor.shape import Dims

Pair = list[Output | None]
"""The gradients of an op of two inputs."""


def sum_to_shape(grad: Output, value: Output, other_operand: Output | None = None) -> Output:
    """Sum `grad` over the axes along which `value` was broadcast.

    With known shapes this adds no node, or one Sum and one Reshape; otherwise the graph computes
    the axes.

    Args:
      grad: gradient of the broadcast shape.
      value: the operand.
      other_operand: the other operand of the broadcast, if there is exactly one.
    """
    summed = _sum_if_known(grad, value, other_operand)
    if summed is not None:
        return summed
    shape = out("Shape", [value])
    other_shape = out("Shape", [grad if other_operand is None else other_operand])
    return _sum_dynamic(
        grad, create("BroadcastGradientArgs", [shape, other_shape]).outputs[0], shape
    )


def _sum_dynamic(grad: Output, axes: Output, shape: Output) -> Output:
    return out("Reshape", [out("Sum", [grad, axes]), shape])


def _sum_if_known(grad: Output, value: Output, other_operand: Output | None) -> Output | None:
    actual, expected = grad.dims, value.dims
    if (
        actual is None
        or expected is None
        or (other_operand is not None and not _fit(expected, other_operand.dims))
    ):
        return None
    if _covers(expected, actual, None if other_operand is None else other_operand.dims):
        return grad
    if not expected:
        return out("Sum", [grad, ints(range(len(actual)))])
    if None not in expected and None not in actual[len(actual) - len(expected) :]:
        return _sum_static(grad, actual, expected)
    return None


def _fit(a: tuple[int | None, ...], b: Dims) -> bool:
    """Return True if the static shapes show that the tensors broadcast."""
    if b is None:
        return not a
    pairs = zip(reversed(a), reversed(b), strict=False)
    return all([1 in pair or (pair[0] == pair[1] and pair[0] is not None) for pair in pairs])


def _covers(
    expected: tuple[int | None, ...], actual: tuple[int | None, ...], other_dims: Dims
) -> bool:
    """Return True if the static shapes show that no axis was broadcast."""
    if len(expected) != len(actual):
        return False
    lead = len(actual) if other_dims is None else len(actual) - len(other_dims)
    for i, (x, y) in enumerate(zip(expected, actual, strict=True)):
        if x is None:
            if other_dims is None or (i >= lead and other_dims[i - lead] != 1):
                return False
        elif x != y and (x == 1 or y is not None):
            return False
    return True


def _sum_static(
    grad: Output, actual: tuple[int | None, ...], expected: tuple[int | None, ...]
) -> Output:
    lead = len(actual) - len(expected)
    axes = list(range(lead))
    axes += [lead + i for i, n in enumerate(expected) if n == 1 and actual[lead + i] != 1]
    if not axes:
        return grad
    total = out("Sum", [grad, ints(axes)])
    return total if len(axes) == lead else out("Reshape", [total, ints(expected)])


def sum_to_shapes(node: Node, a: Output | None, b: Output | None) -> list[Output | None]:
    """Return the gradients of a broadcasting op's first two inputs, summed to their shapes."""
    x, y = node.inputs[0], node.inputs[1]
    if x is y:
        return [a, b]
    to_x = None if a is None else _sum_if_known(a, x, y)
    to_y = None if b is None else _sum_if_known(b, y, x)
    if (to_x is None) is (a is None) and (to_y is None) is (b is None):
        return [to_x, to_y]
    shapes = [out("Shape", [x]), out("Shape", [y])]
    axes = create("BroadcastGradientArgs", shapes).outputs
    if to_x is None and a is not None:
        to_x = _sum_dynamic(a, axes[0], shapes[0])
    if to_y is None and b is not None:
        to_y = _sum_dynamic(b, axes[1], shapes[1])
    return [to_x, to_y]


def ints(values: Any, dtype: DType = dtypes.int32) -> Output:
    """Return a constant vector of integers."""
    return constant_of(np.array(list(values), dtype.numpy))


def scalar_like(value: complex, like: Output) -> Output:
    """Return a constant of rank 0 with the element type of `like`."""
    return constant_of(np.array(value, like.dtype.base_dtype.numpy))


def shape_of(value: Output) -> Output:
    """Return the shape of `value` as an int32 vector: a constant if it is known."""
    dims = value.dims
    if dims is not None and None not in dims:
        return ints(dims)
    return out("Shape", [value])


def reshape_like(grad: Output, value: Output) -> Output:
    """Reshape `grad` to the shape of `value`; return it unchanged if it has that shape."""
    dims = value.dims
    if dims is not None and None not in dims and grad.dims == dims:
        return grad
    return out("Reshape", [grad, shape_of(value)])


def conj(value: Output) -> Output:
    """Return the complex conjugate; real values are returned unchanged."""
    return out("Conj", [value]) if value.dtype.is_complex else value


def zeros_like(value: Output) -> Output:
    """Return zeros of the shape and type of `value`."""
    return out("ZerosLike", [value])


def static_axes(axes: Output, rank: int | None) -> list[int] | None:
    """Return reduction axes counted from the front, or None if they or the rank are unknown."""
    constant = constant_array(axes)
    if constant is None or rank is None:
        return None
    return normal_axes([int(axis) for axis in constant.reshape(-1)], rank)


def matrix_transpose(value: Output, conjugate: bool = False) -> Output:
    """Exchange the last two axes; with `conjugate`, also take the complex conjugate."""
    swapped: Output = permutation.matrix_transpose(value)
    return conj(swapped) if conjugate else swapped


def mul(x: Output, y: Output) -> Output:
    """Return x * y with broadcasting."""
    return out("Mul", [x, y])


def div(x: Output, y: Output) -> Output:
    """Return x / y with broadcasting."""
    return out("RealDiv", [x, y])


def plus(number: float, x: Output) -> Output:
    """Return number + x."""
    return out("AddV2", [scalar_like(number, x), x])


def minus(number: float, x: Output) -> Output:
    """Return number - x."""
    return out("Sub", [scalar_like(number, x), x])


def neg(x: Output) -> Output:
    """Return -x."""
    return out("Neg", [x])


def square(x: Output) -> Output:
    """Return x * x."""
    return out("Square", [x])
