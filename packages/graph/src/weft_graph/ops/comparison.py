"""Comparisons, logical and bitwise ops, and elementwise selection."""

from __future__ import annotations

__all__ = [
    "equal",
    "greater",
    "greater_equal",
    "less",
    "less_equal",
    "logical_and",
    "logical_not",
    "logical_or",
    "logical_xor",
    "not_equal",
]

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from weft_graph.ir import scalar, value_rules
from weft_graph.ir.builder import convert_to_tensor, out
from weft_graph.ir.node import Output
from weft_graph.ir.op_def import Array, NodeSpec, ValueRule, register_op
from weft_graph.ir.scalar import Scalar
from weft_graph.ir.traits import elementwise
from weft_graph.ops import shape_rules
from weft_graph.ops.elementwise import pair
from weft_tensor import dtypes, errors
from weft_tensor.shape import Dims, broadcast_dims, format_dims, merge_dims

_EQUATABLE = "{inexact, integral, bool, string, qint8, quint8, qint32}"


def _select_shape(node: NodeSpec) -> Sequence[Dims]:
    condition, t, e = (value.dims for value in node.inputs)
    dims = merge_dims(t, e)
    if condition is None or dims is None or len(condition) == 0:
        return (dims,)
    if len(condition) == 1 and len(dims) != 1:
        if not dims:
            raise _unfit(condition, dims)
        size = shape_rules.merge_size(condition[0], dims[0], "the condition's size and the rows")
        return ((size, *dims[1:]),)
    if len(condition) != len(dims):
        raise _unfit(condition, dims)
    return (merge_dims(condition, dims),)


def _unfit(condition: Dims, dims: Dims) -> errors.InvalidArgumentError:
    return errors.InvalidArgumentError(
        "the condition must be a scalar, have the shape of the values, or be a vector with one "
        f"element per row of them, got {format_dims(condition)} for values {format_dims(dims)}"
    )


def _select_rows(condition: Array, t: Array, e: Array) -> Array:
    """Check that a condition has the values' shape, their first size, or rank 0."""
    axes = (1,) * (t.ndim - condition.ndim)
    return np.where(condition.reshape(condition.shape + axes), t, e)


def _select_v2_shape(node: NodeSpec) -> Sequence[Dims]:
    condition, t, e = (value.dims for value in node.inputs)
    return (broadcast_dims(condition, broadcast_dims(t, e)),)


def _approximate_equal(x: Scalar, y: Scalar) -> Scalar:
    if x.dtype.is_integer:
        # The difference of unsigned numbers must not wrap around.
        distance = scalar.where(x > y, x - y, y - x)
        wide = dtypes.float64
        return scalar.cast(distance, wide) < scalar.attribute("tolerance", wide)
    distance = abs(x - y)
    return distance < abs(scalar.attribute("tolerance", distance.dtype))


def _shift_amount(x: Scalar, y: Scalar) -> Scalar:
    return scalar.clamp(y, 0, x.dtype.size * 8 - 1)


def _left_shift(x: Scalar, y: Scalar) -> Scalar:
    return scalar.shift_left(x, _shift_amount(x, y))


def _right_shift(x: Scalar, y: Scalar) -> Scalar:
    return scalar.shift_right(x, _shift_amount(x, y))


_VALUES: Final = {
    "Equal": np.equal,
    "NotEqual": np.not_equal,
    "Less": np.less,
    "LessEqual": np.less_equal,
    "Greater": np.greater,
    "GreaterEqual": np.greater_equal,
    "LogicalAnd": np.logical_and,
    "LogicalOr": np.logical_or,
    "LogicalNot": np.logical_not,
}


def _value(op: str) -> ValueRule | None:
    return value_rules.array_value_rule(_VALUES[op]) if op in _VALUES else None


def _declare() -> None:
    for op, types, function, doc in (
        ("Equal", _EQUATABLE, scalar.equal, "x == y."),
        ("NotEqual", _EQUATABLE, scalar.not_equal, "x != y."),
        ("Less", "{realnumbertype}", scalar.less, "x < y."),
        ("LessEqual", "{realnumbertype}", scalar.less_equal, "x <= y."),
        ("Greater", "{realnumbertype}", scalar.greater, "x > y."),
        ("GreaterEqual", "{realnumbertype}", scalar.greater_equal, "x >= y."),
    ):
        register_op(
            op,
            ("x: T", "y: T"),
            ("z: bool",),
            {"T": types},
            shape_rules.broadcast,
            value=_value(op),
            traits=elementwise(function, differentiable=False),
            doc=doc,
        )
    register_op(
        "ApproximateEqual",
        ("x: T", "y: T"),
        ("z: bool",),
        {"T": "{inexact, integral}", "tolerance": "float = 0.00001"},
        shape_rules.merged_shape,
        traits=elementwise(_approximate_equal, differentiable=False),
        doc="|x - y| < tolerance.",
    )
    _declare_bits()
    register_op(
        "Select",
        ("condition: bool", "t: T", "e: T"),
        ("output: T",),
        {"T": "type"},
        _select_shape,
        value=value_rules.array_value_rule(_select_rows),
        traits=elementwise(scalar.where, by_kernel=True),
        doc="t where the condition is true, else e; a vector condition selects rows.",
    )
    register_op(
        "SelectV2",
        ("condition: bool", "t: T", "e: T"),
        ("output: T",),
        {"T": "type"},
        _select_v2_shape,
        value=value_rules.array_value_rule(np.where),
        traits=elementwise(scalar.where),
        doc="t where the condition is true, else e; all three inputs broadcast.",
    )


def _declare_bits() -> None:
    for op, function, doc in (
        ("LogicalAnd", scalar.bit_and, "x and y."),
        ("LogicalOr", scalar.bit_or, "x or y."),
    ):
        register_op(
            op,
            ("x: bool", "y: bool"),
            ("z: bool",),
            {},
            shape_rules.broadcast,
            value=_value(op),
            traits=elementwise(function, differentiable=False),
            doc=doc,
        )
    for op, function, doc in (
        ("BitwiseAnd", scalar.bit_and, "The bits set in x and y."),
        ("BitwiseOr", scalar.bit_or, "The bits set in x or y."),
        ("BitwiseXor", scalar.bit_xor, "The bits set in exactly one of x and y."),
        ("LeftShift", _left_shift, "x shifted left by y bits."),
        ("RightShift", _right_shift, "x shifted right by y bits, keeping the sign."),
    ):
        register_op(
            op,
            ("x: T", "y: T"),
            ("z: T",),
            {"T": "{integral}"},
            shape_rules.broadcast,
            traits=elementwise(function, differentiable=False),
            doc=doc,
        )
    for op, argument, result, involution, function, doc in (
        ("LogicalNot", "bool", "bool", True, scalar.invert, "not x."),
        ("Invert", "T", "T", True, scalar.invert, "Every bit of x flipped."),
        ("PopulationCount", "T", "uint8", False, scalar.popcount, "The number of set bits of x."),
    ):
        register_op(
            op,
            (f"x: {argument}",),
            (f"y: {result}",),
            {"T": "{integral}"} if argument == "T" else {},
            shape_rules.same_shape,
            value=_value(op),
            traits=elementwise(function, involution=involution, differentiable=False),
            doc=doc,
        )


_declare()


def equal(x: Any, y: Any, name: str | None = None) -> Output:
    """Return x == y elementwise as bool; any dtype except handles, broadcast shape.

    Args:
      x, y: any type except handles, of the same dtype; their shapes broadcast.
    Returns: bool, the broadcast shape.

    Examples:
      >>> wf.Session().run(wf.equal([1, 2], 2))
      array([False,  True])
    """
    return out("Equal", [x, y], name=name)


def not_equal(x: Any, y: Any, name: str | None = None) -> Output:
    """Return x != y elementwise as bool; any dtype except handles, broadcast shape.

    Args:
      x, y: any type except handles, of the same dtype; their shapes broadcast.
    Returns: bool, the broadcast shape.

    Examples:
      >>> wf.Session().run(wf.not_equal([1, 2], 2))
      array([ True, False])
    """
    return out("NotEqual", [x, y], name=name)


def less(x: Any, y: Any, name: str | None = None) -> Output:
    """Return x < y as bool; real, broadcast shape.

    Args:
      x, y: real, of the same dtype; their shapes broadcast.
    Returns: bool, the broadcast shape.

    Examples:
      >>> wf.Session().run(wf.less([1, 2], 2))
      array([ True, False])
    """
    return out("Less", [x, y], name=name)


def less_equal(x: Any, y: Any, name: str | None = None) -> Output:
    """Return x <= y as bool; real, broadcast shape.

    Args:
      x, y: real, of the same dtype; their shapes broadcast.
    Returns: bool, the broadcast shape.

    Examples:
      >>> wf.Session().run(wf.less_equal([1, 2], 2))
      array([ True,  True])
    """
    return out("LessEqual", [x, y], name=name)


def greater(x: Any, y: Any, name: str | None = None) -> Output:
    """Return x > y as bool; real, broadcast shape.

    Args:
      x, y: real, of the same dtype; their shapes broadcast.
    Returns: bool, the broadcast shape.

    Examples:
      >>> wf.Session().run(wf.greater([1, 3], 2))
      array([False,  True])
    """
    return out("Greater", [x, y], name=name)


def greater_equal(x: Any, y: Any, name: str | None = None) -> Output:
    """Return x >= y as bool; real, broadcast shape.

    Args:
      x, y: real, of the same dtype; their shapes broadcast.
    Returns: bool, the broadcast shape.

    Examples:
      >>> wf.Session().run(wf.greater_equal([1, 2], 2))
      array([False,  True])
    """
    return out("GreaterEqual", [x, y], name=name)


def approximate_equal(x: Any, y: Any, tolerance: float = 1e-5, name: str | None = None) -> Output:
    """Return |x - y| < tolerance as bool; numeric, equal shapes."""
    return out("ApproximateEqual", [x, y], {"tolerance": tolerance}, name)


def logical_and(x: Any, y: Any, name: str | None = None) -> Output:
    """Return x and y; bool, broadcast shape.

    Args:
      x, y: bool; their shapes broadcast.
    Returns: bool, the broadcast shape.

    Examples:
      >>> wf.Session().run(wf.logical_and([True, False], True))
      array([ True, False])
    """
    return out("LogicalAnd", [x, y], name=name)


def logical_or(x: Any, y: Any, name: str | None = None) -> Output:
    """Return x or y; bool, broadcast shape.

    Args:
      x, y: bool; their shapes broadcast.
    Returns: bool, the broadcast shape.

    Examples:
      >>> wf.Session().run(wf.logical_or([True, False], False))
      array([ True, False])
    """
    return out("LogicalOr", [x, y], name=name)


def logical_not(x: Any, name: str | None = None) -> Output:
    """Return not x; bool, any shape.

    Args:
      x: bool, any shape.
    Returns: shape and dtype of `x`.

    Examples:
      >>> wf.Session().run(wf.logical_not([True, False]))
      array([False,  True])
    """
    return out("LogicalNot", [x], name=name)


def logical_xor(x: Any, y: Any, name: str = "LogicalXor") -> Output:
    """Return True where exactly one of x and y is True; bool, broadcast shape.

    Args:
      x, y: bool; their shapes broadcast.
    Returns: bool, the broadcast shape.

    Examples:
      >>> wf.Session().run(wf.logical_xor([True, False], True))
      array([False,  True])
    """
    a, b = convert_to_tensor(x), convert_to_tensor(y)
    any_true = out("LogicalOr", [a, b])
    return out("LogicalAnd", [any_true, out("LogicalNot", [out("LogicalAnd", [a, b])])], name=name)


def bitwise_and(x: Any, y: Any, name: str | None = None) -> Output:
    """Return the bits set in both; integer, broadcast shape.

    Args:
      x, y: integer, of the same dtype; their shapes broadcast.
    Returns: the broadcast shape and the common dtype.

    Examples:
      >>> wf.Session().run(wf.bitwise.bitwise_and([6], 3))
      array([2], dtype=int32)
    """
    return out("BitwiseAnd", [x, y], name=name)


def bitwise_or(x: Any, y: Any, name: str | None = None) -> Output:
    """Return the bits set in either; integer, broadcast shape.

    Args:
      x, y: integer, of the same dtype; their shapes broadcast.
    Returns: the broadcast shape and the common dtype.

    Examples:
      >>> wf.Session().run(wf.bitwise.bitwise_or([6], 3))
      array([7], dtype=int32)
    """
    return out("BitwiseOr", [x, y], name=name)


def bitwise_xor(x: Any, y: Any, name: str | None = None) -> Output:
    """Return the bits set in exactly one; integer, broadcast shape.

    Args:
      x, y: integer, of the same dtype; their shapes broadcast.
    Returns: the broadcast shape and the common dtype.

    Examples:
      >>> wf.Session().run(wf.bitwise.bitwise_xor([6], 3))
      array([5], dtype=int32)
    """
    return out("BitwiseXor", [x, y], name=name)


def bitwise_or_logical_xor(x: Any, y: Any, name: str = "xor") -> Output:
    """Implement Python's `^`: `logical_xor` of bool, `bitwise_xor` of integers."""
    a, b = pair(x, y)
    if a.dtype.is_bool:
        return logical_xor(a, b, name)
    return out("BitwiseXor", [a, b], name=name)


def invert(x: Any, name: str | None = None) -> Output:
    """Flip every bit; integer, any shape.

    Args:
      x: integer, any shape.
    Returns: shape and dtype of `x`.

    Examples:
      >>> wf.Session().run(wf.bitwise.invert([0, 5]))
      array([-1, -6], dtype=int32)
    """
    return out("Invert", [x], name=name)


def left_shift(x: Any, y: Any, name: str | None = None) -> Output:
    """Shift the bits of x left by y, clipped to the width; integer, broadcast shape.

    Args:
      x, y: integer, of the same dtype; their shapes broadcast.
    Returns: the broadcast shape and the common dtype.

    Examples:
      >>> wf.Session().run(wf.bitwise.left_shift([1, 2], 3))
      array([ 8, 16], dtype=int32)
    """
    return out("LeftShift", [x, y], name=name)


def right_shift(x: Any, y: Any, name: str | None = None) -> Output:
    """Shift the bits of x right by y, keeping the sign; integer, broadcast shape.

    Args:
      x, y: integer, of the same dtype; their shapes broadcast.
    Returns: the broadcast shape and the common dtype.

    Examples:
      >>> wf.Session().run(wf.bitwise.right_shift([8, 16], 3))
      array([1, 2], dtype=int32)
    """
    return out("RightShift", [x, y], name=name)


def select(condition: Any, x: Any, y: Any, name: str | None = None) -> Output:
    """Return x where `condition` is true, else y: the three-argument form of `where`.

    Args:
      condition: bool; a scalar, the shape of x, or a vector with one element per row of x.
      x: any dtype and shape.
      y: same dtype and shape.
    Raises: InvalidArgumentError: the shapes differ.
    """
    return out("Select", [condition, x, y], name=name)


def select_v2(condition: Any, x: Any, y: Any, name: str | None = None) -> Output:
    """Return x where `condition` is true, else y; all three arguments broadcast."""
    return out("SelectV2", [condition, x, y], name=name)
