"""Gathers; indices are known only at run time, when they are checked."""

from __future__ import annotations

from collections.abc import Sequence

from weft_compiler.ir.expressions import INDEX, Expr, apply, cast, where
from weft_compiler.ir.indices import clamp_index, is_inside, minus
from weft_compiler.lower.registry import Operation, lowers, require
from weft_compiler.lower.values import Requirement, Value, move_elements


@lowers("GatherV2", known_operands=(2,))
def _gather(op: Operation) -> Value:
    axis, batch = int(op.known_value(2)) % op.inputs[0].rank, int(op.attr("batch_dims"))
    return gather(op, axis, batch if batch >= 0 else batch + op.inputs[1].rank)


@lowers("Gather")
def _gather_rows(op: Operation) -> Value:
    return gather(op, 0, 0)


def gather(op: Operation, axis: int, batch: int) -> Value:
    """Gather elements of the first operand along an axis by the indices in the second.

    Args:
      batch: the number of leading axes that both share.
    """
    x, indices = op.inputs[:2]
    size, count = x.shape[axis], indices.rank - batch
    require(bool(size), "the tensor to gather from is empty")

    def source(*index: Expr) -> list[Expr]:
        selected = cast(indices.at(*index[:batch], *index[axis : axis + count]), INDEX)
        return [*index[:axis], clamp_index(selected, size), *index[axis + count :]]

    result = move_elements(op.name, x, op.shape(), source)
    result.requires = (require_in_range(indices, size),)
    return result


@lowers("GatherNd")
def _gather_points(op: Operation) -> Value:
    x, points = op.inputs
    lead, depth = points.rank - 1, points.shape[-1]
    require(bool(x.size), "the tensor to gather from is empty")

    def column(axis: int, *index: Expr) -> Expr:
        return cast(points.at(*index, axis), INDEX)

    def source(*index: Expr) -> list[Expr]:
        result = [clamp_index(column(axis, *index[:lead]), x.shape[axis]) for axis in range(depth)]
        return [*result, *index[lead:]]

    result = move_elements(op.name, x, op.shape(), source)
    result.requires = points_in_range(points, x.shape[:depth])
    return result


@lowers("ReverseSequence")
def _reverse_sequence(op: Operation) -> Value:
    x, lengths = op.inputs
    batch, sequence_axis = (int(op.attr(name)) % x.rank for name in ("batch_dim", "seq_dim"))
    size = x.shape[sequence_axis]
    require(
        x.size > 0 and lengths.shape == (x.shape[batch],),
        "the input is empty, or its lengths are not a vector",
    )

    def source(*index: Expr) -> list[Expr]:
        length, i = cast(lengths.at(index[batch]), INDEX), index[sequence_axis]
        reversed_index = where(apply("less", i, length), minus(minus(length, 1), i), i)
        return [
            clamp_index(reversed_index, size) if axis == sequence_axis else j
            for axis, j in enumerate(index)
        ]

    result = move_elements(op.name, x, x.shape, source)
    result.requires = (require_in_range(lengths, size + 1),)
    return result


def points_in_range(points: Value, sizes: Sequence[int]) -> tuple[Requirement, ...]:
    """Require that the coordinates along the last axis of `points` are within `sizes`."""

    def inside_of(axis: int, size: int) -> Requirement:
        return Requirement(
            points.shape[:-1],
            lambda *index: is_inside(cast(points.at(*index, axis), INDEX), size),
            f"an index in [0, {size}) was required",
        )

    return tuple([inside_of(axis, size) for axis, size in enumerate(sizes)])


def require_in_range(indices: Value, size: int) -> Requirement:
    """Require that all indices are in [0, size)."""

    def condition(*index: Expr) -> Expr:
        return is_inside(cast(indices.at(*index), INDEX), size)

    return Requirement(indices.shape, condition, f"an index in [0, {size}) was required")
