"""Arithmetic: sums, differences, products, signs, and elementwise extremes.

Binary functions broadcast like NumPy's. A Python value gets the element type of the other operand;
tensors are never promoted.
"""

from __future__ import annotations

__all__ = [
    "abs",
    "accumulate_n",
    "add",
    "add_n",
    "maximum",
    "minimum",
    "multiply",
    "negative",
    "scalar_mul",
    "sign",
    "squared_difference",
    "subtract",
]

import builtins
import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from weft_graph.ir import scalar
from weft_graph.ir.builder import convert_to_tensor, out
from weft_graph.ir.indexed_slices import IndexedSlices, SparseTensor
from weft_graph.ir.node import Output
from weft_graph.ir.op_def import NodeSpec, register_op
from weft_graph.ir.scalar import Scalar
from weft_graph.ir.traits import elementwise
from weft_graph.ir.value_rules import array_value_rule, binary_value_rule
from weft_graph.ops import cost_rules, shape_rules
from weft_graph.ops.elementwise import (
    INEXACT,
    NUMBERS,
    REALS,
    pair,
    register_binary,
    register_unary,
    unary,
)
from weft_tensor import dtypes, errors
from weft_tensor.shape import Dims, as_dims, format_dims, merge_dims


def _clip_shape(node: NodeSpec) -> Sequence[Dims]:
    t, low, high = (value.dims for value in node.inputs)
    for bound in (low, high):
        if t is None or bound is None:
            continue
        lead = len(t) - len(bound)
        if lead < 0 or builtins.any(
            size not in (1, None) and size != t_size and t_size is not None
            for size, t_size in zip(bound, t[lead:], strict=True)
        ):
            raise errors.InvalidArgumentError(
                f"a bound of shape {format_dims(bound)} does not broadcast to the clipped value's "
                f"shape {format_dims(t)}"
            )
    return (t,)


def _accumulate_shape(node: NodeSpec) -> Sequence[Dims]:
    (dims,) = shape_rules.merged_shape(node)
    return (merge_dims(dims, node.attrs["shape"]),)


# ------------------------------------------------------------------ scalar definitions


def _mul_no_nan(x: Scalar, y: Scalar) -> Scalar:
    return scalar.where(scalar.equal(y, 0), 0, x * y)


def _squared_difference(x: Scalar, y: Scalar) -> Scalar:
    difference = x - y
    return difference * scalar.conj(difference)


def _sum(*values: Scalar) -> Scalar:
    total = values[0]
    for value in values[1:]:
        total = total + value
    return total


def _clip(t: Scalar, low: Scalar, high: Scalar) -> Scalar:
    return scalar.maximum(scalar.minimum(t, high), low)


# ------------------------------------------------------------------------ declarations

register_binary(
    "Add",
    "{inexact, integral, string}",
    scalar.add,
    "x + y; strings are concatenated.",
    value=binary_value_rule(np.add, operator.add),
    cheap=True,
    adds=(1,),
)
register_binary(
    "AddV2",
    NUMBERS,
    scalar.add,
    "x + y.",
    value=binary_value_rule(np.add, operator.add),
    cheap=True,
    adds=(1,),
)
register_binary(
    "Sub",
    NUMBERS,
    scalar.sub,
    "x - y.",
    value=binary_value_rule(np.subtract, operator.sub),
    cheap=True,
    adds=(1, -1),
)
register_binary(
    "Mul",
    NUMBERS,
    scalar.mul,
    "x * y.",
    value=binary_value_rule(np.multiply, operator.mul),
    cheap=True,
)
register_binary("MulNoNan", INEXACT, _mul_no_nan, "x * y, and 0 where y is 0, for any x.")
register_binary("SquaredDifference", NUMBERS, _squared_difference, "|x - y| ** 2.", cheap=True)
register_binary(
    "Maximum",
    REALS,
    scalar.maximum,
    "The larger of x and y; NaN if either is NaN.",
    value=binary_value_rule(np.maximum, max),
    cheap=True,
)
register_binary(
    "Minimum",
    REALS,
    scalar.minimum,
    "The smaller of x and y; NaN if either is NaN.",
    value=binary_value_rule(np.minimum, min),
    cheap=True,
)

register_unary(
    "Neg",
    "{inexact, int8, int16, int32, int64}",
    scalar.neg,
    "-x.",
    value=array_value_rule(np.negative),
    cheap=True,
    involution=True,
)
register_unary(
    "Abs",
    REALS,
    scalar.absolute,
    "The absolute value of a real number.",
    value=array_value_rule(np.abs),
    cheap=True,
)
register_unary("Sign", NUMBERS, scalar.sign, "-1, 0 or 1; x / |x| for complex numbers.")

register_op(
    "AddN",
    ("inputs: N * T",),
    ("sum: T",),
    {"N": "int >= 1", "T": "{inexact, integral, variant}"},
    shape_rules.merged_shape,
    traits=elementwise(
        _sum,
        one_shape=True,
        in_float32=True,
        cheap=True,
        cost=cost_rules.sum_of_many,
        adds=(1,),
    ),
    doc="The sum of N tensors of the same shape.",
)
register_op(
    "AccumulateNV2",
    ("inputs: N * T",),
    ("sum: T",),
    {"N": "int >= 1", "T": NUMBERS, "shape": "shape"},
    _accumulate_shape,
    traits=elementwise(
        _sum, one_shape=True, in_float32=True, cost=cost_rules.sum_of_many, adds=(1,)
    ),
    doc="The sum of N tensors of the same shape.",
)
register_op(
    "ClipByValue",
    ("t: T", "clip_value_min: T", "clip_value_max: T"),
    ("output: T",),
    {"T": REALS},
    _clip_shape,
    traits=elementwise(_clip),
    doc="t clipped to the range from clip_value_min to clip_value_max.",
)

# --------------------------------------------------------------------------- functions


def add(x: Any, y: Any, name: str | None = None) -> Output:
    """Return x + y; numeric or string, broadcast shape.

    Args:
      x, y: numeric or string, of the same dtype; their shapes broadcast.
    Returns: the broadcast shape and the common dtype.

    Examples:
      >>> wf.Session().run(wf.add([1.0, 2.0], [[10.0], [20.0]]))
      array([[11., 12.],
             [21., 22.]], dtype=float32)
    """
    return out("Add", [x, y], name=name)


def subtract(x: Any, y: Any, name: str | None = None) -> Output:
    """Return x - y; numeric, broadcast shape.

    Args:
      x, y: numeric, of the same dtype; their shapes broadcast.
    Returns: the broadcast shape and the common dtype.

    Examples:
      >>> wf.Session().run(wf.subtract([5, 7], 2))
      array([3, 5], dtype=int32)
    """
    return out("Sub", [x, y], name=name)


def multiply(x: Any, y: Any, name: str | None = None) -> Output:
    """Return x * y elementwise; numeric, broadcast shape.

    Args:
      x, y: numeric, of the same dtype; their shapes broadcast.
    Returns: the broadcast shape and the common dtype.

    Examples:
      >>> wf.Session().run(wf.multiply([1.0, 2.0], 3.0))
      array([3., 6.], dtype=float32)
    """
    return out("Mul", [x, y], name=name)


def multiply_no_nan(x: Any, y: Any, name: str | None = None) -> Output:
    """Return x * y, and 0 where y is 0 even if x is not finite; floating or complex.

    Args:
      x, y: floating or complex, of the same dtype; their shapes broadcast.
    Returns: the broadcast shape and the common dtype.

    Examples:
      >>> wf.Session().run(wf.math.multiply_no_nan([np.nan, 2.0], [0.0, 4.0]))
      array([0., 8.], dtype=float32)
    """
    return out("MulNoNan", list(pair(x, y)), name=name or "multiply_no_nan")


def maximum(x: Any, y: Any, name: str | None = None) -> Output:
    """Return the elementwise maximum of x and y; NaN where one of them is NaN.

    Args:
      x, y: real, of the same dtype; their shapes broadcast.
    Returns: the broadcast shape and the common dtype.

    Examples:
      >>> wf.Session().run(wf.maximum([1.0, 5.0], 3.0))
      array([3., 5.], dtype=float32)
    """
    return out("Maximum", [x, y], name=name)


def minimum(x: Any, y: Any, name: str | None = None) -> Output:
    """Return the elementwise minimum of x and y; NaN where one of them is NaN.

    Args:
      x, y: real, of the same dtype; their shapes broadcast.
    Returns: the broadcast shape and the common dtype.

    Examples:
      >>> wf.Session().run(wf.minimum([1.0, 5.0], 3.0))
      array([1., 3.], dtype=float32)
    """
    return out("Minimum", [x, y], name=name)


def squared_difference(x: Any, y: Any, name: str | None = None) -> Output:
    """Return (x - y) times its complex conjugate; numeric, broadcast shape.

    Args:
      x, y: numeric, of the same dtype; their shapes broadcast.
    Returns: the broadcast shape and the common dtype.

    Examples:
      >>> wf.Session().run(wf.squared_difference([1.0, 5.0], 3.0))
      array([4., 4.], dtype=float32)
    """
    return out("SquaredDifference", [x, y], name=name)


def negative(x: Any, name: str | None = None) -> Any:
    """Return -x; floating, complex or signed, any shape; a sparse tensor stays sparse.

    Args:
      x: floating, any shape.
    Returns: shape and dtype of `x`.

    Examples:
      >>> wf.Session().run(wf.negative([1.0, -2.0]))
      array([-1.,  2.], dtype=float32)
    """
    return unary("Neg", x, name)


def abs(x: Any, name: str | None = None) -> Any:
    """Return |x|; numeric, any shape; the magnitude of a complex number, float32 or float64.

    A sparse tensor stays sparse.

    Args:
      x: numeric, any shape.
    Returns: shape and dtype of `x`.

    Examples:
      >>> wf.Session().run(wf.abs([-3, 2]))
      array([3, 2], dtype=int32)
    """
    if isinstance(x, SparseTensor):
        return SparseTensor(x.indices, abs(x.values, name), x.dense_shape)
    value = convert_to_tensor(x)
    if value.dtype.is_complex:
        real = value.dtype.real_dtype
        return out("ComplexAbs", [value], {"Tout": real}, name)
    return out("Abs", [value], name=name)


def sign(x: Any, name: str | None = None) -> Any:
    """Return -1, 0 or 1, NaN for NaN, and x / |x| for complex numbers; numeric, any shape.

    A sparse tensor stays sparse.

    Args:
      x: numeric, any shape.
    Returns: shape and dtype of `x`.

    Examples:
      >>> wf.Session().run(wf.sign([-3.0, 0.0, 2.0]))
      array([-1.,  0.,  1.], dtype=float32)
    """
    return unary("Sign", x, name)


def scalar_mul(scalar: Any, x: Any, name: str | None = None) -> Any:
    """Return a scalar times x.

    Args:
      scalar: shape ().
      x: numeric, any shape; or indexed slices, whose values are multiplied.
    Raises: InvalidArgumentError: the rank of `scalar` is not 0.

    Examples:
      >>> wf.Session().run(wf.scalar_mul(2.0, [1.0, 3.0]))
      array([2., 6.], dtype=float32)
    """
    if isinstance(x, IndexedSlices):
        return IndexedSlices(scalar_mul(scalar, x.values, name), x.indices, x.dense_shape)
    value = convert_to_tensor(x)
    factor = convert_to_tensor(scalar, value.dtype.base_dtype, "scalar")
    if factor.dims is not None and factor.dims:
        raise errors.InvalidArgumentError(
            f"scalar_mul requires a scalar, got shape {format_dims(factor.dims)}"
        )
    return out("Mul", [factor, value], name=name)


def add_n(inputs: Any, name: str | None = None) -> Output:
    """Return the sum of tensors of the same shape and dtype.

    Args:
      inputs: at least one numeric tensor; a single one is returned unchanged.
    Raises:
      InvalidArgumentError: there are no tensors, or the shapes differ.
      InvalidTypeError: the dtypes differ.

    Examples:
      >>> wf.Session().run(wf.add_n([[1, 2], [3, 4], [5, 6]]))
      array([ 9, 12], dtype=int32)
    """
    values = list(inputs) if isinstance(inputs, list | tuple) else [inputs]
    if not values:
        raise errors.InvalidArgumentError("add_n requires at least one tensor, got none")
    if len(values) == 1:
        value = convert_to_tensor(values[0])
        return out("Identity", [value], name=name) if name else value
    return out("AddN", [values], name=name)


def accumulate_n(
    inputs: Sequence[Any], shape: Any = None, tensor_dtype: Any = None, name: str | None = None
) -> Output:
    """Return the sum of tensors of the same shape and dtype.

    Args:
      inputs: at least one numeric tensor.
      shape: further information about the static shape.
      tensor_dtype: the required dtype.
    Raises:
      InvalidArgumentError: there are no tensors, or the shapes differ.
      InvalidTypeError: the dtypes differ.

    Examples:
      >>> wf.Session().run(wf.accumulate_n([[1, 2], [3, 4]]))
      array([4, 6], dtype=int32)
    """
    if not isinstance(inputs, list | tuple) or not inputs:
        raise errors.InvalidArgumentError(
            f"accumulate_n requires a list of at least one tensor, got {inputs!r}"
        )
    element_type = None if tensor_dtype is None else dtypes.as_dtype(tensor_dtype)
    values = [convert_to_tensor(value, element_type) for value in inputs]
    dims = as_dims(shape)
    for value in values:
        dims = merge_dims(dims, value.dims)
    if len(values) == 1 and dims != values[0].dims:
        return out("EnsureShape", values, {"shape": dims}, name)
    if len(values) == 1:
        return out("Identity", values, name=name) if name else values[0]
    return out("AccumulateNV2", [values], {"shape": dims}, name)


def clip_by_value(t: Any, clip_value_min: Any, clip_value_max: Any, name: str | None = None) -> Any:
    """Clip t to the range from `clip_value_min` to `clip_value_max`.

    Args:
      t: real, any shape; or indexed slices, whose values are clipped.
      clip_value_min: same dtype, shape that broadcasts to that of t.
      clip_value_max: same dtype, shape that broadcasts to that of t.
    Raises: InvalidArgumentError: a bound does not broadcast to t.

    Examples:
      >>> wf.Session().run(wf.clip_by_value([-5.0, 0.5, 5.0], -1.0, 1.0))
      array([-1. ,  0.5,  1. ], dtype=float32)
    """
    if isinstance(t, IndexedSlices):
        values = clip_by_value(t.values, clip_value_min, clip_value_max, name)
        return IndexedSlices(values, t.indices, t.dense_shape)
    name = name or "clip_by_value"
    return out("ClipByValue", [t, clip_value_min, clip_value_max], name=name)
