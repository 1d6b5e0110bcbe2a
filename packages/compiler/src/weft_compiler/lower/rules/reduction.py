"""Reductions over axes known at compile time."""

from __future__ import annotations

import math
from typing import Final

from weft_compiler.ir.expressions import Expr, apply, cast, number
from weft_compiler.ir.indices import reshape_indices
from weft_compiler.lower.precision import round_to, wide_type
from weft_compiler.lower.registry import Operation, lowers, require
from weft_compiler.lower.values import Value, compute_value, move_elements, reduce_value
from weft_tensor import dtypes
from weft_tensor.dtypes import DType

_COMBINERS: Final = {
    "Sum": "add",
    "Mean": "add",
    "Prod": "mul",
    "Max": "maximum",
    "Min": "minimum",
    "All": "bit_and",
    "Any": "bit_or",
}


@lowers(*_COMBINERS, known_operands=(1,))
def _reduce(op: Operation) -> Value:
    kind, axes = op.node.type, op.axes()
    if kind == "Mean":
        result = _mean(op, op.inputs[0], axes)
    else:
        result = reduce(op.name, op.inputs[0], axes, _COMBINERS[kind])
    return move_elements(
        op.name,
        result,
        op.shape(),
        lambda *index: reshape_indices(index, op.shape(), result.shape),
        dense=True,
    )


def reduce(name: str, x: Value, axes: list[int], combine: str) -> Value:
    """Reduce a tensor over axes; sums and products of 16-bit floats are computed in float32."""
    wide = wide_type(x.dtype) if combine in ("add", "mul") else x.dtype
    return round_to(name, _lower_reduction(name, x, axes, combine, wide), x.dtype)


def _mean(op: Operation, x: Value, axes: list[int]) -> Value:
    """Return the mean.

    The mean of integers is rounded towards zero and computed without overflow.
    """
    wide = wide_type(x.dtype)
    if wide.is_integer and wide is not dtypes.uint64:
        wide = dtypes.int64
    total = _lower_reduction(f"{op.name}_sum", x, axes, "add", wide)
    count = math.prod(x.shape[axis] for axis in axes)
    require(bool(count) or wide.is_floating, "the mean of zero integers is undefined")
    divisor = number(count, wide)

    def element(*index: Expr) -> Expr:
        return apply("div", total.at(*index), divisor)

    return compute_value(op.name, x.dtype, total.shape, element)


def _lower_reduction(name: str, x: Value, axes: list[int], combine: str, wide: DType) -> Value:
    def element(*index: Expr) -> Expr:
        return cast(x.at(*index), wide)

    return reduce_value(name, x, axes, combine, initial(combine, wide), element)


def initial(combine: str, dtype: DType) -> Expr:
    """Return the initial value of a reduction, which is also its result for no elements."""
    if combine in ("minimum", "maximum"):
        low = combine == "maximum"
        if dtype.is_floating:
            return number(-math.inf if low else math.inf, dtype)
        return number(dtype.min if low else dtype.max, dtype)
    return number(combine in ("mul", "bit_and"), dtype)
