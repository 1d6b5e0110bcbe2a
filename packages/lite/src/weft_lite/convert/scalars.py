"""Lowering of scalar definitions: each primitive becomes an elementwise op.

    ReluGrad(g, x) = where(x > 0, g, 0)   →   Greater(x, 0), Select(·, g, 0)

Any elementwise op converts if lite supports the primitives in its definition. This includes the
update rules of optimizers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, Final

import numpy as np

from weft_graph.ir.node import Node
from weft_graph.ir.op_def import lookup_op, registered_ops, traits_of
from weft_graph.ir.scalar import Scalar, applications
from weft_lite.convert.errors import NotInLiteError
from weft_lite.convert.lowered import TYPES, Value, constant
from weft_lite.convert.registry import Builder, OpKind, Rule, rules
from weft_lite.schema.tables import ElementwiseOptions
from weft_tensor import dtypes, errors

KINDS: Final = {
    "add": OpKind.Add, "sub": OpKind.Sub, "mul": OpKind.Mul, "div": OpKind.Div,
    "floor_div": OpKind.FloorDiv, "floor_mod": OpKind.FloorMod, "trunc_mod": OpKind.TruncateMod,
    "pow": OpKind.Pow, "neg": OpKind.Neg, "abs": OpKind.Abs, "sign": OpKind.Sign,
    "square": OpKind.Square, "reciprocal": OpKind.Reciprocal, "minimum": OpKind.Minimum,
    "maximum": OpKind.Maximum, "floor": OpKind.Floor, "ceil": OpKind.Ceil, "rint": OpKind.Rint,
    "sqrt": OpKind.Sqrt, "exp": OpKind.Exp, "expm1": OpKind.Expm1, "log": OpKind.Log,
    "log1p": OpKind.Log1p, "sin": OpKind.Sin, "cos": OpKind.Cos, "tan": OpKind.Tan,
    "asin": OpKind.Asin, "acos": OpKind.Acos, "atan": OpKind.Atan, "sinh": OpKind.Sinh,
    "cosh": OpKind.Cosh, "tanh": OpKind.Tanh, "asinh": OpKind.Asinh, "acosh": OpKind.Acosh,
    "atanh": OpKind.Atanh, "atan2": OpKind.Atan2, "erf": OpKind.Erf, "erfc": OpKind.Erfc,
    "less": OpKind.Less, "less_equal": OpKind.LessEqual, "greater": OpKind.Greater,
    "greater_equal": OpKind.GreaterEqual, "equal": OpKind.Equal, "not_equal": OpKind.NotEqual,
    "is_nan": OpKind.IsNan, "is_inf": OpKind.IsInf, "is_finite": OpKind.IsFinite,
    "where": OpKind.Select,
}  # fmt: skip
"""Kinds of ops by the primitives that they compute for all element types of lite."""

BOOLEAN_KINDS: Final = {
    "bit_and": OpKind.LogicalAnd, "bit_or": OpKind.LogicalOr, "invert": OpKind.LogicalNot,
    "bit_xor": OpKind.NotEqual,
}  # fmt: skip
"""Kinds of ops by the primitives that they compute for bools."""

_PLAIN: Final = frozenset((OpKind.Select, OpKind.Cast))
"""Kinds of ops without options."""


def find_rule(op: str) -> Rule | None:
    """Return the rule of an op type: a registered one, or `lower_elementwise`; otherwise None."""
    rule = rules.get(op)
    if rule is None and op in registered_ops() and _is_supported(op):
        return lower_elementwise
    return rule


@cache
def _is_supported(op: str) -> bool:
    """Return True if an op has a scalar definition, whose primitives lite has for float32."""
    definition = traits_of(op).scalar
    if definition is None or definition.by_kernel:
        return False
    float32 = [dtypes.float32] * len(lookup_op(op).inputs)
    try:
        parts = applications(definition.expression(float32, dtypes.float32))
        return all(
            part.dtype.name in TYPES and (part.name == "clamp" or _kind(part)) for part in parts
        )
    except (errors.InvalidTypeError, NotInLiteError):
        return False


def lower_elementwise(node: Node, b: Builder) -> None:
    """Lower an elementwise op by its scalar definition.

    Raises: NotInLiteError: lite does not have a primitive of the definition.
    """
    definition = node.op_def.traits.scalar
    assert definition is not None
    output = node.outputs[0]
    scalar = definition.expression([x.dtype.base_dtype for x in node.inputs], output.dtype)
    inputs = [b.value(operand) for operand in node.inputs]
    lower_scalar(scalar, inputs, node.attrs.__getitem__, b, node.name, b.result(output))


def lower_scalar(
    scalar: Scalar,
    inputs: Sequence[Value],
    attribute: Callable[[str], Any],
    builder: Builder,
    name: str,
    result: Value | None = None,
) -> Value:
    """Add the ops of a scalar expression, whose inputs broadcast.

    Args:
      inputs: the values of the expression's inputs.
      attribute: maps the name of an attribute to its number.
      name: prefix of the names of intermediate results.
      result: the value to write to; by default a new one.
    Returns: the value of the expression.
    Raises: NotInLiteError: lite does not have a primitive of the expression.
    """
    values: dict[int, Value] = {}
    parts = applications(scalar)

    def operand(part: Scalar) -> Value:
        if part.name == "input":
            position: int = part.value
            return inputs[position]
        if part.name in ("constant", "attribute"):
            number = part.value if part.name == "constant" else attribute(part.value)
            array = np.asarray(number, part.dtype.as_numpy_dtype)
            return constant(f"{name}/{number}", array)
        return values[id(part)]

    for part in parts:
        target = result if part is scalar else None
        values[id(part)] = _apply(part, [operand(arg) for arg in part.args], builder, name, target)
    value = operand(scalar)
    if result is None or parts:
        return value
    builder.add(OpKind.Copy, [value], [result], None, name)  # the expression is an input
    return result


def _apply(
    part: Scalar, operands: list[Value], builder: Builder, name: str, result: Value | None
) -> Value:
    """Add the op of one primitive."""
    if part.name == "clamp":
        x, low, high = operands
        above = _add(OpKind.Maximum, [x, low], part, builder, name, None)
        return _add(OpKind.Minimum, [above, high], part, builder, name, result)
    return _add(_kind(part), operands, part, builder, name, result)


def _kind(part: Scalar) -> OpKind:
    """Return the kind of op that computes a primitive.

    Raises: NotInLiteError: there is none.
    """
    dtype = part.args[-1].dtype
    if part.name == "cast":
        return OpKind.Cast
    if part.name == "div" and dtype.is_integer:
        return OpKind.TruncateDiv
    kind = KINDS.get(part.name) or (BOOLEAN_KINDS.get(part.name) if dtype.is_bool else None)
    if kind is None:
        raise NotInLiteError(f"lite does not support the function {part.name} of {dtype.name}")
    return kind


def _add(
    kind: OpKind,
    operands: list[Value],
    part: Scalar,
    builder: Builder,
    name: str,
    result: Value | None,
) -> Value:
    if result is None:
        shape = np.broadcast_shapes(*(operand.shape for operand in operands))
        result = builder.new(f"{name}/{part.name}", part.dtype.name, shape)
    builder.add(kind, [*operands], [result], None if kind in _PLAIN else ElementwiseOptions(), name)
    return result
