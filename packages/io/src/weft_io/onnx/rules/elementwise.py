"""Elementwise math, comparisons, logic and bit operations."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any, Final

from weft_graph.ir.builder import constant, out
from weft_graph.ir.constant_value import constant_value
from weft_graph.ir.node import Output
from weft_graph.ops import (
    arithmetic,
    comparison,
    division,
    elementary,
    masks,
    powers,
    rounding,
    special,
    trigonometry,
)
from weft_graph.ops.gather import gather
from weft_graph.ops.shapes import expand_dims, shape, size
from weft_io.onnx.export_graph import Value
from weft_io.onnx.node_export import NodeExport
from weft_io.onnx.operation import Operation, cast, like
from weft_io.onnx.registry import exporter, importer
from weft_tensor import dtypes, errors

_UNARY: Final[dict[str, Callable[[Output], Output]]] = {
    "Abs": arithmetic.abs,
    "Acos": trigonometry.acos,
    "Acosh": trigonometry.acosh,
    "Asin": trigonometry.asin,
    "Asinh": trigonometry.asinh,
    "Atan": trigonometry.atan,
    "Atanh": trigonometry.atanh,
    "BitwiseNot": comparison.invert,
    "Ceil": rounding.ceil,
    "Cos": trigonometry.cos,
    "Cosh": trigonometry.cosh,
    "Erf": special.erf,
    "Exp": elementary.exp,
    "Floor": rounding.floor,
    "IsNaN": elementary.is_nan,
    "Log": elementary.log,
    "Neg": arithmetic.negative,
    "Not": comparison.logical_not,
    "Reciprocal": division.reciprocal,
    "Round": rounding.rint,
    "Sigmoid": elementary.sigmoid,
    "Sign": arithmetic.sign,
    "Sin": trigonometry.sin,
    "Sinh": trigonometry.sinh,
    "Sqrt": powers.sqrt,
    "Tan": trigonometry.tan,
    "Tanh": trigonometry.tanh,
}
_BINARY: Final[dict[str, Callable[[Output, Output], Output]]] = {
    "Add": arithmetic.add,
    "And": comparison.logical_and,
    "BitwiseAnd": comparison.bitwise_and,
    "BitwiseOr": comparison.bitwise_or,
    "BitwiseXor": comparison.bitwise_xor,
    "Equal": comparison.equal,
    "Greater": comparison.greater,
    "GreaterOrEqual": comparison.greater_equal,
    "Less": comparison.less,
    "LessOrEqual": comparison.less_equal,
    "Mul": arithmetic.multiply,
    "Or": comparison.logical_or,
    "Sub": arithmetic.subtract,
    "Xor": comparison.logical_xor,
}


@importer(*_UNARY, elementwise=True)
def _unary(operation: Operation) -> Output:
    return _UNARY[operation.op](operation[0])


@importer(*_BINARY, elementwise=True)
def _binary(operation: Operation) -> Output:
    return _BINARY[operation.op](*operands(operation))


def operands(operation: Operation) -> tuple[Output, Output]:
    """Return both operands; before version 7, the second is aligned to an axis of the first.

    Raises: UnimplementedError: their ranks are unknown in that case.
    """
    x, y = operation[0], operation[1]
    axis = operation.attribute("axis")
    if operation.version >= 7 or axis is None or not operation.attribute("broadcast", 0):
        return x, y
    num_trailing = operation.rank(0) - axis % max(operation.rank(0), 1) - operation.rank(1)
    if num_trailing <= 0:
        return x, y
    for _ in range(num_trailing):
        y = expand_dims(y, operation.shared(-1))
    return x, y


@importer("Div", elementwise=True)
def _div(operation: Operation) -> Output:
    x, y = operands(operation)
    if x.dtype.is_integer:
        return division.truncatediv(x, y)
    return division.realdiv(x, y)


@importer("Mod", elementwise=True)
def _mod(operation: Operation) -> Output:
    rule = division.truncatemod if operation.attribute("fmod", 0) else division.floormod
    return rule(operation[0], operation[1])


@importer("Pow", elementwise=True)
def _pow(operation: Operation) -> Output:
    x, y = operands(operation)
    if x.dtype is y.dtype:
        return powers.pow(x, y)
    if x.dtype.is_floating:
        return powers.pow(x, cast(y, x.dtype))
    wide = dtypes.float64 if y.dtype.is_floating else dtypes.int64
    return cast(powers.pow(cast(x, wide), cast(y, wide)), x.dtype)


@importer("Sum", "Mean", "Max", "Min", elementwise=True)
def _import_variadic(operation: Operation) -> Output:
    values = [operation[index] for index in range(len(operation.inputs))]
    if not values:
        raise errors.InvalidArgumentError(f"{operation.op} requires an input")
    if operation.op in ("Max", "Min"):
        return reduce(arithmetic.maximum if operation.op == "Max" else arithmetic.minimum, values)
    total = reduce(arithmetic.add, values)
    return total if operation.op == "Sum" else total / like(len(values), total)


@importer("Clip", elementwise=True)
def _clip(operation: Operation) -> Output:
    x = operation[0]
    low, high = (_bound(operation, index, name) for index, name in ((1, "min"), (2, "max")))
    if low is not None and high is not None and _are_ordered(low, high):
        return out("ClipByValue", [x, low, high])
    if low is not None:
        x = arithmetic.maximum(x, low)
    return x if high is None else arithmetic.minimum(x, high)


def _are_ordered(low: Output, high: Output) -> bool:
    """Return True if two bounds are known and in order.

    If the first is larger, ONNX returns the second, and `ClipByValue` the first.
    """
    lower, upper = constant_value(low), constant_value(high)
    if lower is None or upper is None or lower.ndim or upper.ndim:
        return False
    return bool(lower <= upper)


def _bound(operation: Operation, index: int, name: str) -> Output | None:
    """Return a bound of Clip: an input, or an attribute in old opsets."""
    bound: Any = operation.get(index)
    if bound is None:
        bound = operation.attribute(name)
    return bound if bound is None or isinstance(bound, Output) else like(bound, operation[0])


@importer("BitShift")
def _bit_shift(operation: Operation) -> Output:
    """Import a shift by unsigned numbers of bits; large shifts yield 0, or the sign."""
    x, count = operation[0], operation[1]
    upper, zero = like(8 * x.dtype.size - 1, x), like(0, x)
    in_range = comparison.logical_and(count >= zero, count <= upper)
    if operation.required("direction") == "LEFT":
        return masks.where_v2(
            in_range, comparison.left_shift(x, masks.where_v2(in_range, count, zero)), zero
        )
    moved = comparison.right_shift(x, masks.where_v2(in_range, count, upper))
    return moved if not x.dtype.is_unsigned else masks.where_v2(in_range, moved, zero)


@importer("IsInf", elementwise=True)
def _is_inf(operation: Operation) -> Output:
    x = operation[0]
    result = elementary.is_inf(x)
    if not operation.attribute("detect_negative", 1):
        result = comparison.logical_and(result, comparison.greater(x, like(0, x)))
    if not operation.attribute("detect_positive", 1):
        result = comparison.logical_and(result, comparison.less(x, like(0, x)))
    return result


@importer("Where", elementwise=True)
def _where(operation: Operation) -> Output:
    return masks.where_v2(operation[0], operation[1], operation[2])


@importer("Size")
def _size(operation: Operation) -> Output:
    return size(operation[0], out_type=dtypes.int64)


@importer("Shape")
def _shape(operation: Operation) -> Output:
    result = _sizes(operation)
    start, end = operation.attribute("start", 0), operation.attribute("end")
    return result[start:end] if start or end is not None else result


def _sizes(operation: Operation) -> Output:
    """Return the shape, computed from the untransposed input if possible."""
    if operation[0].dims is None:
        return shape(operation[0], out_type=dtypes.int64)
    x, order = operation.plain()
    result = shape(x, out_type=dtypes.int64)
    return result if order == sorted(order) else gather(result, constant(order))


# -------------------------------------------------------------------------------- export

_TO_ONNX: Final = {
    **{name: name for name in _UNARY if name not in ("IsNaN", "Not", "BitwiseNot", "Round")},
    "Invert": "BitwiseNot",
    "Inv": "Reciprocal",
    "IsNan": "IsNaN",
    "LogicalNot": "Not",
    "Add": "Add",
    "AddV2": "Add",
    "BitwiseAnd": "BitwiseAnd",
    "BitwiseOr": "BitwiseOr",
    "BitwiseXor": "BitwiseXor",
    "Equal": "Equal",
    "Greater": "Greater",
    "GreaterEqual": "GreaterOrEqual",
    "Less": "Less",
    "LessEqual": "LessOrEqual",
    "LogicalAnd": "And",
    "LogicalOr": "Or",
    "Maximum": "Max",
    "Minimum": "Min",
    "Mul": "Mul",
    "Pow": "Pow",
    "RealDiv": "Div",
    "Sub": "Sub",
}


@exporter(*_TO_ONNX)
def _export_elementwise(export: NodeExport) -> Value:
    kind = export.node.outputs[0].dtype
    return export.elementwise(_TO_ONNX[export.node.type], *export.inputs(), dtype=kind)


@exporter("GreaterEqual", "LessEqual")
def _write_or_equal(export: NodeExport) -> Value:
    name = _TO_ONNX[export.node.type]
    if export.opset >= 12:
        return _export_elementwise(export)
    strict = export.elementwise(name.removesuffix("OrEqual"), *export.inputs(), dtype=dtypes.bool_)
    equal = export.elementwise("Equal", *export.inputs(), dtype=dtypes.bool_)
    return export.elementwise("Or", strict, equal)


@exporter("NotEqual")
def _write_not_equal(export: NodeExport) -> Value:
    equal = export.elementwise("Equal", *export.inputs(), dtype=dtypes.bool_)
    return export.elementwise("Not", equal)


@exporter("Rint", "Round")
def _write_round(export: NodeExport) -> Value:
    x = export[0]
    return export.elementwise("Round", x) if x.dtype.is_floating else x


@exporter("Div")
def _write_div(export: NodeExport) -> Value:
    return export.elementwise("Div", export[0], export[1])


@exporter("TruncateDiv")
def _write_truncate_div(export: NodeExport) -> Value:
    result = export.elementwise("Div", export[0], export[1])
    if not result.dtype.is_floating:
        return result
    size = export.elementwise("Floor", export.elementwise("Abs", result))
    return export.elementwise("Mul", export.elementwise("Sign", result), size)


@exporter("FloorDiv")
def _write_floor_div(export: NodeExport) -> Value:
    x, y = export[0], export[1]
    if x.dtype.is_floating:
        return export.elementwise("Floor", export.elementwise("Div", x, y))
    # ONNX divides towards zero, and its remainder has the sign of the divisor.
    remainder = export.elementwise("Mod", x, y)
    return export.elementwise("Div", export.elementwise("Sub", x, remainder), y)


@exporter("FloorMod")
def _write_floor_mod(export: NodeExport) -> Value:
    x, y = export[0], export[1]
    if not x.dtype.is_floating:
        return export.elementwise("Mod", x, y)
    remainder = export.elementwise("Mod", x, y, fmod=1)
    zero = export.like(0, y)
    signs = [export.elementwise("Less", item, zero, dtype=dtypes.bool_) for item in (remainder, y)]
    differ = export.elementwise("Xor", *signs)
    exact = export.elementwise("Equal", remainder, zero, dtype=dtypes.bool_)
    wrong = export.elementwise("And", differ, export.elementwise("Not", exact))
    moved = export.elementwise("Add", remainder, y)
    return export.elementwise("Where", wrong, moved, remainder, dtype=x.dtype)


@exporter("Mod", "TruncateMod")
def _write_mod(export: NodeExport) -> Value:
    return export.elementwise("Mod", export[0], export[1], fmod=1)


@exporter("Square")
def _write_square(export: NodeExport) -> Value:
    return export.elementwise("Mul", export[0], export[0])


@exporter("SquaredDifference")
def _write_squared_difference(export: NodeExport) -> Value:
    difference = export.elementwise("Sub", export[0], export[1])
    return export.elementwise("Mul", difference, difference)


@exporter("Rsqrt")
def _write_rsqrt(export: NodeExport) -> Value:
    return export.elementwise("Reciprocal", export.elementwise("Sqrt", export[0]))


@exporter("Expm1")
def _write_expm1(export: NodeExport) -> Value:
    """Export tanh(x / 2) (exp(x) + 1), which is accurate near zero."""
    x = export[0]
    half = export.elementwise("Tanh", export.elementwise("Mul", x, export.like(0.5, x)))
    exp_plus_one = export.elementwise("Add", export.elementwise("Exp", x), export.like(1, x))
    return export.elementwise("Mul", half, exp_plus_one)


@exporter("Log1p")
def _write_log1p(export: NodeExport) -> Value:
    """Export 2 atanh(x / (x + 2)) near zero, where log(x + 1) loses precision."""
    x = export[0]
    ratio = export.elementwise("Div", x, export.elementwise("Add", x, export.like(2, x)))
    small_case = export.elementwise("Mul", export.elementwise("Atanh", ratio), export.like(2, x))
    large_case = export.elementwise("Log", export.elementwise("Add", x, export.like(1, x)))
    size = export.elementwise("Abs", x)
    small = export.elementwise("Less", size, export.like(0.5, x), dtype=dtypes.bool_)
    return export.elementwise("Where", small, small_case, large_case, dtype=x.dtype)


@exporter("IsInf")
def _write_is_inf(export: NodeExport) -> Value:
    return export.elementwise("IsInf", export[0], dtype=dtypes.bool_)


@exporter("IsFinite")
def _write_is_finite(export: NodeExport) -> Value:
    infinite = export.elementwise("IsInf", export[0], dtype=dtypes.bool_)
    none = export.elementwise("IsNaN", export[0], dtype=dtypes.bool_)
    return export.elementwise("Not", export.elementwise("Or", infinite, none))


@exporter("AddN", "AccumulateNV2")
def _write_sum(export: NodeExport) -> Value:
    values = export.inputs()
    if values[0].dtype.is_floating:
        return export.elementwise("Sum", *values)
    return reduce(lambda x, y: export.elementwise("Add", x, y), values)


@exporter("ClipByValue")
def _write_clip(export: NodeExport) -> Value:
    x, low, high = export.inputs()
    return export.elementwise("Max", export.elementwise("Min", x, high), low)


@exporter("DivNoNan", "MulNoNan", "Xdivy", "Xlogy")
def _write_where_not_zero(export: NodeExport) -> Value:
    """Export ops that are zero where one operand is zero, for any value of the other."""
    x, y = export[0], export[1]
    op = export.node.type
    tested = y if op.endswith("NoNan") else x
    zero = export.like(0, x)
    is_zero = export.elementwise("Equal", tested, zero, dtype=dtypes.bool_)
    if op == "Xlogy":
        y = export.elementwise("Log", y)
    result = export.elementwise("Mul" if op in ("MulNoNan", "Xlogy") else "Div", x, y)
    return export.elementwise("Where", is_zero, zero, result, dtype=x.dtype)


@exporter("LeftShift", "RightShift")
def _write_shift(export: NodeExport) -> Value:
    direction = "LEFT" if export.node.type == "LeftShift" else "RIGHT"
    return export.elementwise("BitShift", export[0], export[1], direction=direction)


@exporter("Select")
def _write_select(export: NodeExport) -> Value:
    """Export Select: the condition has the values' shape, or one entry per row."""
    condition, x, y = export.inputs()
    missing = export.rank(1) - export.rank(0)
    if missing and export.rank(0):
        condition = export.reshape(condition, [-1, *[1] * missing])
    return export.elementwise("Where", condition, x, y, dtype=x.dtype)


@exporter("SelectV2")
def _write_where(export: NodeExport) -> Value:
    return export.elementwise("Where", *export.inputs(), dtype=export[1].dtype)
