"""Bincount, histogram, linspace and permutations."""

from __future__ import annotations

from collections.abc import Sequence

from weft_compiler.ir.expressions import INDEX, Expr, Variable, apply, cast, index, number, where
from weft_compiler.ir.indices import clamp_index, is_inside
from weft_compiler.ir.loops import Unique, fill, load, nest
from weft_compiler.ir.program import Body, Buffer, If, Let, Statement, Store
from weft_compiler.lower.precision import wide_type
from weft_compiler.lower.registry import Operation, lowers, require
from weft_compiler.lower.rules.gather import require_in_range
from weft_compiler.lower.values import Requirement, StatementDefinition, Value, compute_value
from weft_tensor import dtypes


@lowers("Bincount", known_operands=(1,))
def _bincount(op: Operation) -> Value:
    """Count values, ignoring values at or above the size; weights are summed in float64."""
    (x, _, weights), shape = op.inputs, op.shape()
    weighted = bool(weights.size)
    require(not weighted or weights.shape == x.shape, "the shapes of weights and values differ")
    wide = dtypes.float64 if op.dtype().is_floating else op.dtype()
    count = shape[0]

    def write(
        unique: Unique, result: Buffer, buffer: Buffer, *remaining: Buffer
    ) -> Sequence[Statement]:
        def add(*position: Expr) -> Body:
            place = Variable(INDEX, unique("place"))
            weight = load(remaining[0], weights.shape, position) if weighted else number(1, wide)
            store = Store(result.name, (clamp_index(place, count),), cast(weight, wide), "add")
            named = Let(place.name, cast(load(buffer, x.shape, position), INDEX))
            return (named, If(is_inside(place, count), (store,)))

        start = fill(unique, result, number(0, wide))
        return (*start, *(nest(unique, x.shape, add) if count else ()))

    operands = (x, weights) if weighted else (x,)
    total = Value(f"{op.name}_total", wide, shape, StatementDefinition(operands, write))
    total.requires = (
        Requirement(
            x.shape,
            lambda *position: apply("greater_equal", x.at(*position), number(0, x.dtype)),
            "values of at least 0 were required",
        ),
    )
    return compute_value(op.name, op.dtype(), shape, total.at)


@lowers("HistogramFixedWidth", known_operands=(2,))
def _histogram(op: Operation) -> Value:
    """Count values in bins; values outside the range are counted in the first or the last bin."""
    (x, ends, _), shape = op.inputs, op.shape()
    require(ends.shape == (2,) and shape[0] > 0, "the number of bins is 0")
    bins, wide = shape[0], dtypes.float64

    def end(position: int) -> Expr:
        return cast(ends.at(position), wide)

    factor = compute_value(
        f"{op.name}_factor",
        wide,
        (),
        lambda: apply("div", number(bins, wide), apply("sub", end(1), end(0))),
    )

    def place(*position: Expr) -> Expr:
        value = apply("sub", cast(x.at(*position), wide), end(0))
        scaled = apply("floor", apply("mul", value, factor.at()))
        clamped = apply("clamp", scaled, number(0, wide), number(bins - 1, wide))
        return where(apply("is_nan", clamped), number(0, wide), clamped)

    indices = compute_value(f"{op.name}_places", dtypes.int64, x.shape, place)

    def write(unique: Unique, result: Buffer, buffer: Buffer) -> Sequence[Statement]:
        def add(*position: Expr) -> Body:
            bin_index = clamp_index(load(buffer, x.shape, position), bins)
            return (Store(result.name, (bin_index,), number(1, result.dtype), "add"),)

        start = fill(unique, result, number(0, result.dtype))
        return (*start, *nest(unique, x.shape, add))

    value = Value(op.name, op.dtype(), shape, StatementDefinition((indices,), write))
    value.requires = (
        Requirement(
            (),
            lambda: apply("less", ends.at(0), ends.at(1)),
            "a range whose lower bound is below its upper one was required",
        ),
    )
    return value


@lowers("LinSpace", known_operands=(2,))
def _linspace(op: Operation) -> Value:
    """Return an arithmetic sequence whose last element is exactly `stop`."""
    (start, stop), count = op.inputs[:2], op.shape()[0]
    require(start.rank == stop.rank == 0 and count > 0, "the shapes of its operands do not match")
    wide = wide_type(op.dtype())

    def element(i: Expr) -> Expr:
        first, last, position = cast(start.at(), wide), cast(stop.at(), wide), cast(i, wide)
        difference, steps = apply("sub", last, first), number(max(count - 1, 1), wide)
        step = apply("div", difference, steps)
        none = apply("equal", step, number(0, wide))  # it underflows if `difference` is denormal
        share = apply("mul", apply("div", position, steps), difference)
        moved_by = where(none, share, apply("mul", position, step))
        at_end = apply("equal", i, index(count - 1 if count > 1 else count))
        return where(at_end, last, apply("add", moved_by, first))

    return compute_value(op.name, op.dtype(), op.shape(), element)


@lowers("InvertPermutation")
def _inverse(op: Operation) -> Value:
    x = op.inputs[0]
    require(x.rank == 1, "the operand of a permutation must have rank 1")
    count = x.shape[0]

    def write(unique: Unique, result: Buffer, buffer: Buffer) -> Sequence[Statement]:
        def store_inverse(i: Expr) -> Body:
            position = clamp_index(cast(load(buffer, x.shape, (i,)), INDEX), count)
            return (Store(result.name, (position,), cast(i, x.dtype)),)

        return (*fill(unique, result, number(-1, x.dtype)), *nest(unique, x.shape, store_inverse))

    indices = Value(f"{op.name}_places", x.dtype, x.shape, StatementDefinition((x,), write))
    indices.requires = (require_in_range(x, count),)
    result = compute_value(op.name, x.dtype, x.shape, indices.at)

    def is_permutation(i: Expr) -> Expr:
        return apply("greater_equal", indices.at(i), number(0, x.dtype))

    result.requires = (Requirement(x.shape, is_permutation, "a permutation was required"),)
    return result
