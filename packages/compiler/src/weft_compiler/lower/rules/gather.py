"""Gathers: what comes from where is known in the step only, so indices are checked there."""

from __future__ import annotations

from weft_compiler.ir.expressions import INDEX, Expr, cast
from weft_compiler.ir.indices import clamped, inside
from weft_compiler.lower.registry import Operation, lowers, require
from weft_compiler.lower.values import Requirement, Value, moved


@lowers("GatherV2", known=(2,))
def _gather(op: Operation) -> Value:
    axis, batch = int(op.known(2)) % op.inputs[0].rank, int(op.attr("batch_dims"))
    return gather(op, axis, batch if batch >= 0 else batch + op.inputs[1].rank)


@lowers("Gather")
def _gather_rows(op: Operation) -> Value:
    return gather(op, 0, 0)


def gather(op: Operation, axis: int, batch: int) -> Value:
    """Elements of the first operand by the indices of the second, along an axis.

    Args:
      batch: how many dimensions the two share.
    """
    x, indices = op.inputs[:2]
    size, count = x.shape[axis], indices.rank - batch
    require(bool(size), "there is nothing to gather from")

    def source(*at: Expr) -> list[Expr]:
        which = cast(indices.at(*at[:batch], *at[axis : axis + count]), INDEX)
        return [*at[:axis], clamped(which, size), *at[axis + count :]]

    found = moved(op.name, x, op.shape(), source)
    found.requires = (in_range(indices, size),)
    return found


def in_range(indices: Value, size: int) -> Requirement:
    """That all indices are in [0, size)."""

    def condition(*at: Expr) -> Expr:
        return inside(cast(indices.at(*at), INDEX), size)

    return Requirement(indices.shape, condition, f"an index in [0, {size}) was required")
