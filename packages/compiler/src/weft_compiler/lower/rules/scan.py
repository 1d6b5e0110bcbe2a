"""Scans along an axis: cumulative sums and products, argmin and argmax."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from weft_compiler.ir.expressions import (
    INDEX,
    Expr,
    Variable,
    apply,
    cast,
    index,
    number,
    where,
)
from weft_compiler.ir.indices import minus, plus
from weft_compiler.ir.loops import Unique, load, nest
from weft_compiler.ir.program import Assign, Body, Buffer, For, Statement, Store, Var
from weft_compiler.lower.precision import wide_type
from weft_compiler.lower.registry import Operation, lowers, require
from weft_compiler.lower.rules.reduction import reduce
from weft_compiler.lower.values import StatementDefinition, Value, compute_value, reduce_value
from weft_tensor import dtypes

_COMBINERS: Final = {"Cumsum": "add", "Cumprod": "mul"}


@lowers("ArgMax", "ArgMin", known_operands=(1,))
def _position(op: Operation) -> Value:
    """Return the position of the first largest element, or of the first NaN, along an axis."""
    x, axis = op.inputs[0], op.axes()[0]
    size, combine = x.shape[axis], "maximum" if op.node.type == "ArgMax" else "minimum"
    require(0 < size < 2**31, "the axis has no elements")
    wide = dtypes.uint8 if x.dtype.is_bool else x.dtype
    widened = compute_value(f"{op.name}_x", wide, x.shape, x.at)
    limit = reduce(f"{op.name}_most", widened, [axis], combine)

    def place(*position: Expr) -> Expr:
        value = widened.at(*position)
        result = apply("equal", value, limit.at(*position[:axis], *position[axis + 1 :]))
        if wide.is_floating:
            result = apply("bit_or", result, apply("is_nan", value))
        return where(result, cast(position[axis], dtypes.int32), number(size, dtypes.int32))

    first = reduce_value(
        f"{op.name}_first", widened, [axis], "minimum", number(size, dtypes.int32), place
    )
    return compute_value(op.name, op.dtype(), op.shape(), first.at)


def _log_add_exp(x: Expr, y: Expr) -> Expr:
    """Return log(exp(x) + exp(y))."""
    limit, minimum = apply("maximum", x, y), apply("minimum", x, y)
    remaining = apply("log1p", apply("exp", apply("sub", minimum, limit)))
    # The difference of equal infinities is NaN.
    return where(apply("is_finite", limit), apply("add", limit, remaining), apply("maximum", x, y))


@lowers("Cumsum", "Cumprod", "CumulativeLogsumexp", known_operands=(1,))
def _scan(op: Operation) -> Value:
    x, axis = op.inputs[0], op.axes()[0]
    size, logarithms = x.shape[axis], op.node.type == "CumulativeLogsumexp"
    combine = _COMBINERS.get(op.node.type, "")
    wide = wide_type(x.dtype)
    none = number(-math.inf if logarithms else combine == "mul", wide)

    def combined(total: Expr, term: Expr) -> Expr:
        if logarithms:
            return _log_add_exp(total, term)
        return apply(combine, total, term)

    exclusive, reverse = bool(op.attr("exclusive")), bool(op.attr("reverse"))
    neighbours = math.prod(x.shape[axis + 1 :]) > 1 and wide is x.dtype

    def place(i: Expr) -> Expr:
        return minus(size - 1, i) if reverse else i

    def write(unique: Unique, result: Buffer, source: Buffer) -> Sequence[Statement]:
        def at_place(lead: Sequence[Expr], i: Expr, remaining: Sequence[Expr]) -> tuple[Expr, ...]:
            return (*lead, place(i), *remaining)

        def scan_elements(*other_indices: Expr) -> Body:
            """Scan element by element, with the running result in a variable."""
            lead, remaining = other_indices[:axis], other_indices[axis:]
            total, i = Variable(wide, unique("total")), Variable(INDEX, unique("i"))
            position = at_place(lead, i, remaining)
            step = Assign(total.name, combined(total, cast(load(source, x.shape, position), wide)))
            store = Store(result.name, position, cast(total, result.dtype))
            body = (store, step) if exclusive else (step, store)
            return (Var(total.name, none), For(i.name, index(size), body))

        def rows(*lead: Expr) -> Body:
            """Scan row by row.

            Each row of contiguous elements is computed from the previous one.
            """

            def first(*remaining: Expr) -> Body:
                position = at_place(lead, index(0), remaining)
                return (
                    Store(
                        result.name,
                        position,
                        none if exclusive else load(source, x.shape, position),
                    ),
                )

            def body(i: Expr, *remaining: Expr) -> Body:
                previous_place, place = (
                    at_place(lead, i, remaining),
                    at_place(lead, plus(i, 1), remaining),
                )
                term = load(source, x.shape, previous_place if exclusive else place)
                value = combined(load(result, x.shape, previous_place), term)
                return (Store(result.name, place, value),)

            remaining = x.shape[axis + 1 :]
            return (*nest(unique, remaining, first), *nest(unique, (size - 1, *remaining), body))

        if not x.size:
            return ()
        if neighbours:
            return nest(unique, x.shape[:axis], rows)
        return nest(unique, (*x.shape[:axis], *x.shape[axis + 1 :]), scan_elements)

    return Value(op.name, op.dtype(), x.shape, StatementDefinition((x,), write))
