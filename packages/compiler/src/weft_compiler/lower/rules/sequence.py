"""Counts in bins."""

from __future__ import annotations

from collections.abc import Sequence

from weft_compiler.ir.expressions import INDEX, Expr, Variable, apply, cast, number, where
from weft_compiler.ir.indices import clamped, inside
from weft_compiler.ir.loops import Unique, filled, load, nest
from weft_compiler.ir.program import Body, Buffer, If, Let, Statement, Store
from weft_compiler.lower.registry import Operation, lowers, require
from weft_compiler.lower.values import Requirement, Value, Written, computed
from weft_tensor import dtypes


@lowers("Bincount", known=(1,))
def _bincount(op: Operation) -> Value:
    """Values of at least the size are left out; weights are added in float64."""
    (x, _, weights), shape = op.inputs, op.shape()
    weighted = bool(weights.size)
    require(not weighted or weights.shape == x.shape, "weights of another shape than the values")
    wide = dtypes.float64 if op.dtype().is_floating else op.dtype()
    count = shape[0]

    def write(unique: Unique, result: Buffer, given: Buffer, *rest: Buffer) -> Sequence[Statement]:
        def add(*at: Expr) -> Body:
            place = Variable(INDEX, unique("place"))
            one = load(rest[0], weights.shape, at) if weighted else number(1, wide)
            store = Store(result.name, (clamped(place, count),), cast(one, wide), "add")
            named = Let(place.name, cast(load(given, x.shape, at), INDEX))
            return (named, If(inside(place, count), (store,)))

        start = filled(unique, result, number(0, wide))
        return (*start, *(nest(unique, x.shape, add) if count else ()))

    operands = (x, weights) if weighted else (x,)
    total = Value(f"{op.name}_total", wide, shape, Written(operands, write))
    total.requires = (
        Requirement(
            x.shape,
            lambda *at: apply("greater_equal", x.at(*at), number(0, x.dtype)),
            "values of at least 0 were required",
        ),
    )
    return computed(op.name, op.dtype(), shape, total.at)


@lowers("HistogramFixedWidth", known=(2,))
def _histogram(op: Operation) -> Value:
    """What is below or above the range is counted in the first or the last bin."""
    (x, ends, _), shape = op.inputs, op.shape()
    require(ends.shape == (2,) and shape[0] > 0, "it has no bins")
    bins, wide = shape[0], dtypes.float64

    def end(at: int) -> Expr:
        return cast(ends.at(at), wide)

    factor = computed(
        f"{op.name}_factor",
        wide,
        (),
        lambda: apply("div", number(bins, wide), apply("sub", end(1), end(0))),
    )

    def place(*at: Expr) -> Expr:
        value = apply("sub", cast(x.at(*at), wide), end(0))
        scaled = apply("floor", apply("mul", value, factor.at()))
        near = apply("clamp", scaled, number(0, wide), number(bins - 1, wide))
        return where(apply("is_nan", near), number(0, wide), near)

    places = computed(f"{op.name}_places", dtypes.int64, x.shape, place)

    def write(unique: Unique, result: Buffer, given: Buffer) -> Sequence[Statement]:
        def add(*at: Expr) -> Body:
            here = clamped(load(given, x.shape, at), bins)
            return (Store(result.name, (here,), number(1, result.dtype), "add"),)

        start = filled(unique, result, number(0, result.dtype))
        return (*start, *nest(unique, x.shape, add))

    found = Value(op.name, op.dtype(), shape, Written((places,), write))
    found.requires = (
        Requirement(
            (), lambda: apply("less", ends.at(0), ends.at(1)), "a rising range was required"
        ),
    )
    return found
