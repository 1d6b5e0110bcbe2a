"""Elementwise mathematics, comparisons, logic and bits, of one or two operands."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any, Final

import numpy as np

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
from weft_graph.ops.shapes import reshape, shape, size
from weft_io.onnx.operation import Operation, cast, like
from weft_io.onnx.registry import importer
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


@importer(*_UNARY)
def _unary(operation: Operation) -> Output:
    return _UNARY[operation.op](operation[0])


@importer(*_BINARY)
def _binary(operation: Operation) -> Output:
    return _BINARY[operation.op](*operands(operation))


def operands(operation: Operation) -> tuple[Output, Output]:
    """Both operands; before version 7 the second one is aligned to an axis of the first.

    Raises: UnimplementedError: where their ranks are not known then.
    """
    x, y = operation[0], operation[1]
    axis = operation.attribute("axis")
    if operation.version >= 7 or axis is None or not operation.attribute("broadcast", 0):
        return x, y
    after = operation.rank(0) - axis % max(operation.rank(0), 1) - operation.rank(1)
    if after <= 0:
        return x, y
    sizes = [-1 if d is None else d for d in y.dims or ()]
    return x, reshape(y, [*sizes, *[1] * after])


@importer("Div")
def _div(operation: Operation) -> Output:
    x, y = operands(operation)
    if x.dtype.is_integer:
        return division.truncatediv(x, y)
    return division.realdiv(x, y)


@importer("Mod")
def _mod(operation: Operation) -> Output:
    rule = division.truncatemod if operation.attribute("fmod", 0) else division.floormod
    return rule(operation[0], operation[1])


@importer("Pow")
def _pow(operation: Operation) -> Output:
    x, y = operands(operation)
    if x.dtype is y.dtype:
        return powers.pow(x, y)
    if x.dtype.is_floating:
        return powers.pow(x, cast(y, x.dtype))
    wide = dtypes.float64 if y.dtype.is_floating else dtypes.int64
    return cast(powers.pow(cast(x, wide), cast(y, wide)), x.dtype)


@importer("Sum", "Mean", "Max", "Min")
def _of_many(operation: Operation) -> Output:
    values = [operation[index] for index in range(len(operation.inputs))]
    if not values:
        raise errors.InvalidArgumentError(f"{operation.op} requires an input")
    if operation.op in ("Max", "Min"):
        return reduce(arithmetic.maximum if operation.op == "Max" else arithmetic.minimum, values)
    total = reduce(arithmetic.add, values)
    return total if operation.op == "Sum" else total / like(len(values), total)


@importer("Clip")
def _clip(operation: Operation) -> Output:
    x, found = operation[0], operation[0]
    for index, name, rule in ((1, "min", arithmetic.maximum), (2, "max", arithmetic.minimum)):
        bound: Any = operation.get(index)
        if bound is None:
            bound = operation.attribute(name)
        if bound is not None:
            found = rule(found, bound if isinstance(bound, Output) else like(bound, x))
    return found


@importer("BitShift")
def _bit_shift(operation: Operation) -> Output:
    """By an unsigned number of bits: what is moved out is lost, and signs are kept."""
    x, by = operation[0], operation[1]
    most, zero = like(8 * x.dtype.size - 1, x), like(0, x)
    kept = comparison.logical_and(by >= zero, by <= most)
    if operation.required("direction") == "LEFT":
        return masks.where_v2(kept, comparison.left_shift(x, masks.where_v2(kept, by, zero)), zero)
    moved = comparison.right_shift(x, masks.where_v2(kept, by, most))
    return moved if not x.dtype.is_unsigned else masks.where_v2(kept, moved, zero)


@importer("IsInf")
def _is_inf(operation: Operation) -> Output:
    x = operation[0]
    found = elementary.is_inf(x)
    if not operation.attribute("detect_negative", 1):
        found = comparison.logical_and(found, comparison.greater(x, like(0, x)))
    if not operation.attribute("detect_positive", 1):
        found = comparison.logical_and(found, comparison.less(x, like(0, x)))
    return found


@importer("Where")
def _where(operation: Operation) -> Output:
    return masks.where_v2(operation[0], operation[1], operation[2])


@importer("Size")
def _size(operation: Operation) -> Output:
    return size(operation[0], out_type=dtypes.int64)


@importer("Shape")
def _shape(operation: Operation) -> Output:
    found = shape(operation[0], out_type=dtypes.int64)
    start, end = operation.attribute("start", 0), operation.attribute("end")
    if start or end is not None:
        count = np.arange(operation.rank())
        found = found[
            int(len(count) - len(count[start:])) : len(count) - len(count[end:])
            if end is not None
            else None
        ]
    return found
