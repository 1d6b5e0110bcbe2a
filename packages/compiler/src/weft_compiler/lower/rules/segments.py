"""Segment reductions, and addition of rows at indices."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from weft_compiler.ir.expressions import INDEX, Expr, Variable, apply, cast, index, number, where
from weft_compiler.ir.indices import clamp_index, plus
from weft_compiler.ir.loops import Unique, fill, load, nest
from weft_compiler.ir.program import Body, Buffer, If, Let, Statement, Store
from weft_compiler.lower.precision import wide_type
from weft_compiler.lower.registry import Operation, lowers, require
from weft_compiler.lower.rules.gather import require_in_range
from weft_compiler.lower.rules.reduction import initial
from weft_compiler.lower.values import Requirement, StatementDefinition, Value, compute_value
from weft_tensor import dtypes
from weft_tensor.dtypes import DType

_COMBINERS: Final = {
    "UnsortedSegmentSum": "add",
    "UnsortedSegmentProd": "mul",
    "UnsortedSegmentMax": "maximum",
    "UnsortedSegmentMin": "minimum",
}


@lowers(*_COMBINERS, known_operands=(2,))
def _unsorted_segment(op: Operation) -> Value:
    """Combine rows by segment; rows with a negative segment id are ignored."""
    x, ids = op.inputs[:2]
    wide, count = wide_type(x.dtype), op.shape()[0]
    require(x.shape[: ids.rank] == ids.shape, "the shapes of data and segment_ids do not match")
    combine = _COMBINERS[op.node.type]

    def write(unique: Unique, result: Buffer, rows: Buffer, numbers: Buffer) -> Sequence[Statement]:
        def row(segment: Expr, position: Sequence[Expr]) -> Body:
            def element(*remaining: Expr) -> Body:
                element_value = cast(load(rows, x.shape, [*position, *remaining]), wide)
                return (Store(result.name, (segment, *remaining), element_value, combine),)

            return nest(unique, x.shape[ids.rank :], element)

        start = fill(unique, result, initial(combine, wide))
        return (*start, *(_by_segment(unique, ids, numbers, count, row) if x.size else ()))

    total = Value(op.name, wide, op.shape(), StatementDefinition((x, ids), write))
    total.requires = (_require_below(ids, count),)
    if wide.is_floating and combine in ("maximum", "minimum"):
        return _finite_if_empty(op, total, ids)
    return total if wide is x.dtype else compute_value(op.name, x.dtype, op.shape(), total.at)


def _by_segment(
    unique: Unique,
    ids: Value,
    numbers: Buffer,
    count: int,
    row: Callable[[Expr, Sequence[Expr]], Body],
) -> Body:
    """Emit loops over the rows with non-negative segment ids.

    Args:
      ids: the segment ids.
      numbers: the buffer of the segment ids.
      row: maps the segment of a row and its indices to statements.
    """

    def body(*position: Expr) -> Body:
        segment = Variable(INDEX, unique("segment"))
        named = Let(segment.name, cast(load(numbers, ids.shape, position), INDEX))
        is_valid = apply("greater_equal", segment, index(0))
        return (named, If(is_valid, row(clamp_index(segment, count), position)))

    return nest(unique, ids.shape, body) if count else ()


def _finite_if_empty(op: Operation, extremes: Value, ids: Value) -> Value:
    """Set the extremes of empty segments to the lowest or highest finite number.

    TensorFlow documents that value. The reduction itself starts from an infinity, because a segment
    of infinities has an infinite extreme.
    """
    count, dtype = extremes.shape[0], op.dtype()
    finite = dtype.min if _COMBINERS[op.node.type] == "maximum" else dtype.max
    zero, one = number(0, dtypes.int32), number(1, dtypes.int32)

    def write(unique: Unique, result: Buffer, numbers: Buffer) -> Sequence[Statement]:
        def mark(segment: Expr, position: Sequence[Expr]) -> Body:
            return (Store(result.name, (segment,), one, "bit_or"),)

        marks = _by_segment(unique, ids, numbers, count, mark)
        return (*fill(unique, result, zero), *marks)

    has_rows = Value(
        f"{op.name}_has_rows", dtypes.int32, (count,), StatementDefinition((ids,), write)
    )

    def element(*position: Expr) -> Expr:
        is_empty = apply("equal", has_rows.at(position[0]), zero)
        return where(is_empty, number(finite, dtype), cast(extremes.at(*position), dtype))

    return compute_value(op.name, dtype, extremes.shape, element)


def _require_below(ids: Value, count: int) -> Requirement:
    def condition(*position: Expr) -> Expr:
        return apply("less", cast(ids.at(*position), INDEX), index(count))

    return Requirement(ids.shape, condition, f"segments below {count} were required")


# ----------------------------------------------------------------------------- sparse rows


def _add_rows(
    name: str,
    shape: Sequence[int],
    places: Value,
    element: Callable[..., Expr],
    values: list[Value],
) -> Value:
    """Add rows at given positions of a zero tensor.

    Args:
      shape: shape of the result.
      places: the position of each row, a vector.
      element: returns the term to add; receives a function that loads elements of `values`, the
        number of a row, and the indices in it.
      values: float32 or float64 tensors; the first has the element type of the result.
    """
    wide = values[0].dtype

    def write(
        unique: Unique, result: Buffer, position: Buffer, *buffer: Buffer
    ) -> Sequence[Statement]:
        buffers = dict(zip(values, buffer, strict=True))

        def read(value: Value, *indices: Expr) -> Expr:
            return load(buffers[value], value.shape, indices)

        def row(number_of: Expr) -> Body:
            place = Variable(INDEX, unique("place"))
            clamped = clamp_index(cast(load(position, places.shape, (number_of,)), INDEX), shape[0])

            def add(*remaining: Expr) -> Body:
                value = element(read, number_of, *remaining)
                return (Store(result.name, (place, *remaining), value, "add"),)

            return (Let(place.name, clamped), *nest(unique, shape[1:], add))

        start = fill(unique, result, number(0, wide))
        return (*start, *(nest(unique, places.shape, row) if shape[0] else ()))

    return Value(name, wide, tuple(shape), StatementDefinition((places, *values), write))


def _sizes(name: str, ids: Value, count: int, wide: DType) -> Value:
    """Return the number of rows of each segment, at least 1."""
    one = compute_value(f"{name}_one", wide, (), lambda: number(1, wide))
    counts = _add_rows(f"{name}_counts", (count,), ids, lambda read, _: read(one), [one])
    return compute_value(
        f"{name}_sizes", wide, (count,), lambda i: apply("maximum", counts.at(i), number(1, wide))
    )


def _divisor(op: Operation, ids: Value, count: int, wide: DType) -> Value | None:
    """Return the divisor of the sum of each segment; None if sums are not divided."""
    kind = op.node.type.removeprefix("SparseSegment")
    if kind.startswith("Sum"):
        return None
    sizes = _sizes(op.name, ids, count, wide)
    if kind.startswith("Mean"):
        return sizes
    return compute_value(f"{op.name}_roots", wide, (count,), lambda i: apply("sqrt", sizes.at(i)))


def _require_ascending(ids: Value) -> Requirement:
    def condition(i: Expr) -> Expr:
        return apply("less_equal", ids.at(i), ids.at(plus(i, 1)))

    return Requirement(
        (max(ids.size - 1, 0),), condition, "segment ids in ascending order were required"
    )


@lowers(
    *[f"SparseSegment{kind}WithNumSegments" for kind in ("Sum", "Mean", "SqrtN")],
    known_operands=(3,),
)
def _sparse_segment(op: Operation) -> Value:
    """Gather rows of a tensor by indices and sum them by sorted segments."""
    (x, indices, ids), shape, wide = op.inputs[:3], op.shape(), wide_type(op.inputs[0].dtype)
    require(
        indices.shape == ids.shape and ids.rank == 1, "the shapes of indices and segment_ids differ"
    )
    rows, places = x.shape[0], compute_value(f"{op.name}_rows", INDEX, indices.shape, indices.at)
    require(rows > 0 or not ids.size, "the number of rows is 0")
    data = x if x.dtype is wide else compute_value(f"{op.name}_x", wide, x.shape, x.at)

    def element(read: Callable[..., Expr], row: Expr, *remaining: Expr) -> Expr:
        return read(data, clamp_index(read(places, row), max(rows, 1)), *remaining)

    total = _add_rows(f"{op.name}_sum", shape, ids, element, [data, places])
    total.requires = (
        require_in_range(indices, rows),
        require_in_range(ids, shape[0]),
        _require_ascending(ids),
    )
    divisor = _divisor(op, ids, shape[0], wide)

    def divided(*position: Expr) -> Expr:
        result = total.at(*position)
        return result if divisor is None else apply("div", result, divisor.at(position[0]))

    return compute_value(op.name, op.dtype(), shape, divided)


@lowers("SparseSegmentMeanGrad", "SparseSegmentSqrtNGrad", known_operands=(3,))
def _sparse_segment_grad(op: Operation) -> Value:
    """Return the gradient: each gathered row gets its share of the gradient of its segment."""
    (gradient, indices, ids), shape = op.inputs[:3], op.shape()
    count, wide = gradient.shape[0], wide_type(gradient.dtype)
    require(
        indices.shape == ids.shape and ids.rank == 1, "the shapes of indices and segment_ids differ"
    )
    require(count > 0 or not ids.size, "the number of segments is 0")
    divisor = _divisor(op, ids, count, wide)
    assert divisor is not None

    def share(*position: Expr) -> Expr:
        return apply("div", cast(gradient.at(*position), wide), divisor.at(position[0]))

    shares = compute_value(f"{op.name}_shares", wide, gradient.shape, share)
    segments = compute_value(f"{op.name}_segments", INDEX, ids.shape, ids.at)

    def element(read: Callable[..., Expr], row: Expr, *remaining: Expr) -> Expr:
        return read(shares, clamp_index(read(segments, row), max(count, 1)), *remaining)

    total = _add_rows(f"{op.name}_sum", shape, indices, element, [shares, segments])
    total.requires = (
        require_in_range(indices, shape[0]),
        require_in_range(ids, count),
        _require_ascending(ids),
    )
    return compute_value(op.name, op.dtype(), shape, total.at)
