"""Rows that are combined by the numbers of their segments, or of the places they go to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from weft_compiler.ir.expressions import INDEX, Expr, Variable, apply, cast, index, number
from weft_compiler.ir.indices import clamped
from weft_compiler.ir.program import Body, Buffer, If, Let, Statement, Store
from weft_compiler.lower.loops import Unique, filled, load, nest
from weft_compiler.lower.registry import Operation, lowers, require
from weft_compiler.lower.rules.reduction import NARROW
from weft_compiler.lower.values import Requirement, Value, Written
from weft_graph.ir.node import Node

_COMBINERS: Final = {
    "UnsortedSegmentSum": "add",
    "UnsortedSegmentProd": "mul",
    "UnsortedSegmentMax": "maximum",
    "UnsortedSegmentMin": "minimum",
}


def _by_kernel(node: Node) -> str:
    """Sums of narrow numbers want wide rows, which are rounded at the end."""
    dtype = node.outputs[0].dtype
    return f"it combines rows of {dtype.name}" if dtype in NARROW else ""


@lowers(*_COMBINERS, known=(2,), by_kernel=_by_kernel)
def _unsorted_segment(op: Operation) -> Value:
    """Rows of negative segments are left out."""
    x, ids = op.inputs[:2]
    require(x.dtype not in NARROW, f"rows of {x.dtype.name}")
    require(x.shape[: ids.rank] == ids.shape, "data and segment_ids of different shapes")
    count = op.shape()[0]
    combine = _COMBINERS[op.node.type]
    none = {"add": 0, "mul": 1, "maximum": x.dtype.min, "minimum": x.dtype.max}[combine]

    def write(unique: Unique, result: Buffer, rows: Buffer, numbers: Buffer) -> Sequence[Statement]:
        def row(*at: Expr) -> Body:
            segment = Variable(INDEX, unique("segment"))
            inside = apply("greater_equal", segment, index(0))

            def element(*rest: Expr) -> Body:
                given = load(rows, x.shape, [*at, *rest])
                return (Store(result.name, (clamped(segment, count), *rest), given, combine),)

            combined = nest(unique, x.shape[ids.rank :], element)
            named = Let(segment.name, cast(load(numbers, ids.shape, at), INDEX))
            return (named, If(inside, combined))

        start = filled(unique, result, number(none, x.dtype))
        return (*start, *(nest(unique, ids.shape, row) if x.size and count else ()))

    found = Value(op.name, x.dtype, op.shape(), Written((x, ids), write))
    found.requires = (_below(ids, count),)
    return found


def _below(ids: Value, count: int) -> Requirement:
    def condition(*at: Expr) -> Expr:
        return apply("less", cast(ids.at(*at), INDEX), index(count))

    return Requirement(ids.shape, condition, f"segments below {count} were required")
