"""Reductions and segment reductions of ragged tensors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from weft_graph.ir.builder import constant_of, convert_to_tensor, create, out
from weft_graph.ir.node import Output
from weft_graph.ops import reduction, shapes
from weft_graph.ops.shape_rules import constant_array, normal_axes
from weft_graph.ragged import encodings
from weft_graph.ragged.dispatch import Call, ragged_op
from weft_graph.ragged.indexing import expand_first_axis
from weft_graph.ragged.rows import Rows
from weft_graph.ragged.tensor import RaggedTensor, static_rank
from weft_tensor import dtypes, errors

Segments = Callable[[Output, Output, Output], Output]
"""Function from data, segment ids and the number of segments to one row per segment."""


def segments_by(op: str, **attrs: Any) -> Segments:
    """Return a function that applies an op for unsorted segments."""
    return lambda data, ids, count: out(op, [data, ids, count], attrs)


def static_axes(axis: Any, rank: int | None) -> list[int]:
    """Return static axes, from the outermost.

    Raises: InvalidArgumentError: they are not static, or one is out of range.
    """
    static_axes_value = constant_array(
        axis if isinstance(axis, Output) else convert_to_tensor(axis)
    )
    if static_axes_value is None or rank is None:
        raise errors.InvalidArgumentError(
            f"a reduction of a ragged tensor requires a static axis and a known rank, got {axis!r}"
        )
    return sorted(normal_axes(static_axes_value.reshape(-1).tolist(), rank))


def reduce_ragged(call: Call, segments: Segments) -> Any:
    """Reduce over axes in sequence, from the innermost."""
    value, axis = call.inputs
    keep = bool(call.attrs.get("keep_dims", False))
    rank = static_rank(value)
    axes = static_axes(axis, rank)
    assert rank is not None
    if len(axes) == rank:
        flat = value.flat_values
        interval = np.arange(len(flat.dims), dtype=np.int32)
        (scalar_result,) = call.plain(flat, constant_of(interval), keep_dims=False)
        unit_shape = constant_of(np.ones(rank, np.int32))
        return shapes.reshape(scalar_result, unit_shape) if keep else scalar_result
    for dim in reversed(axes):
        value = _reduce_over(value, dim, keep, segments, call)
    return value


def _reduce_over(value: Any, axis: int, keep: bool, segments: Segments, call: Call) -> Any:
    if not isinstance(value, RaggedTensor):
        axis_tensor = constant_of(np.array([axis], np.int32))
        return call.plain(value, axis_tensor, keep_dims=keep)[0]
    if axis > 1:
        return value.with_values(_reduce_over(value.values, axis - 1, keep, segments, call))
    rows = value.levels[0]
    if axis == 1:
        row_results = aggregate_segments(segments, value.values, rows.ids(), rows.nrows())
        if (
            rows.static_nrows is not None
            and isinstance(row_results, Output)
            and row_results.dims is not None
        ):
            row_results.set_shape([rows.static_nrows, *row_results.dims[1:]])
        if not keep:
            return row_results
        if not isinstance(row_results, RaggedTensor):
            return shapes.expand_dims(row_results, 1)
        return _wrap_as_rows(row_results, rows)
    zero = constant_of(np.array(0, rows.dtype.numpy))
    longest = out("Maximum", [reduction.reduce_max(rows.row_lengths()), zero])
    row_results = aggregate_segments(segments, value.values, rows.offsets(), longest)
    return expand_first_axis(row_results, rows.dtype) if keep else row_results


def _wrap_as_rows(row_values: Any, rows: Rows) -> RaggedTensor:
    """Return rows with one value each."""
    unit = np.array(1, rows.dtype.numpy)
    if rows.static_nrows is not None:
        count = np.array(rows.static_nrows, rows.dtype.numpy)
        return RaggedTensor(row_values, encodings.from_uniform(unit, row_values, count, False))
    return RaggedTensor(row_values, encodings.uniform_rows(constant_of(unit), rows.nrows()))


def aggregate_segments(segments: Segments, data: Any, ids: Output, count: Output) -> Any:
    """Combine the rows of each segment elementwise; the result is as long as the longest row."""
    if not isinstance(data, RaggedTensor):
        return segments(data, ids, count)
    rows = data.levels[0]
    ids = out("Cast", [ids], {"DstT": rows.dtype}) if ids.dtype is not rows.dtype else ids
    zero = constant_of(np.array(0, rows.dtype.numpy))
    longest = out("UnsortedSegmentMax", [rows.row_lengths(), ids, count])
    lengths = out("Maximum", [longest, zero])
    splits = encodings.splits_of(lengths)
    owner = out("GatherV2", [ids, rows.ids(), 0])
    # A row whose segment is negative belongs to none: neither do its values.
    start = out("GatherV2", [splits, out("Maximum", [owner, zero]), 0])
    positions = start + rows.offsets()
    positions = out("SelectV2", [owner < zero, zero - 1, positions])
    aggregated_values = aggregate_segments(segments, data.values, positions, splits[-1])
    return RaggedTensor(aggregated_values, Rows(splits, lengths=lengths))


for _op in ("Sum", "Prod", "Max", "Min"):

    @ragged_op(_op)
    def _numeric(call: Call, segment_op: str = f"UnsortedSegment{_op}") -> Any:
        return reduce_ragged(call, segments_by(segment_op))


@ragged_op("All", "Any")
def _logical(call: Call) -> Any:
    extreme = segments_by("UnsortedSegmentMin" if call.op == "All" else "UnsortedSegmentMax")

    def segments(data: Output, ids: Output, count: Output) -> Output:
        number = out("Cast", [data], {"DstT": dtypes.int32})
        return out("Greater", [extreme(number, ids, count), 0])

    return reduce_ragged(call, segments)


@ragged_op("Mean")
def _mean(call: Call) -> Any:
    value, axis = call.inputs
    rank = static_rank(value)
    if len(static_axes(axis, rank)) == rank:
        return reduce_ragged(call, segments_by("UnsortedSegmentSum"))
    flags = value.map_elements(lambda flat: out("OnesLike", [flat]))
    total: Any = create("Sum", [value, axis], call.attrs).outputs[0]
    count: Any = create("Sum", [flags, axis], call.attrs).outputs[0]
    if isinstance(total, RaggedTensor):  # the rows are the same, though computed twice
        return total.with_flat_values(_divide_by_counts(total.flat_values, count.flat_values))
    return _divide_by_counts(total, count)


def _divide_by_counts(total: Output, count: Output) -> Output:
    """Divide sums by counts: empty rows give NaN, or 0 for integers, which round toward zero."""
    if total.dtype.base_dtype.is_integer:
        return out("TruncateDiv", [total, out("Maximum", [count, out("OnesLike", [count])])])
    return out("RealDiv", [total, count])


@ragged_op("EuclideanNorm")
def _norm(call: Call) -> Any:
    value, axis = call.inputs
    squares = create("Sum", [create("Square", [value]).outputs[0], axis], call.attrs).outputs[0]
    return create("Sqrt", [squares]).outputs[0]


@ragged_op("ReduceJoin")
def _reduce_join(call: Call) -> Any:
    separator = call.attrs.get("separator", "")
    return reduce_ragged(call, segments_by("UnsortedSegmentJoin", separator=separator))


for _op in ("Sum", "Prod", "Max", "Min"):

    @ragged_op(f"UnsortedSegment{_op}")
    def _unsorted(call: Call) -> Any:
        return apply_segment_op(call, segments_by(call.op))


@ragged_op("UnsortedSegmentJoin")
def _unsorted_join(call: Call) -> Any:
    return apply_segment_op(call, segments_by(call.op, **call.attrs))


def apply_segment_op(call: Call, segments: Segments) -> Any:
    """Apply a segment op to ragged data, with `ids` per row, or ragged `ids` per value."""
    data, ids, count = call.inputs
    while isinstance(ids, RaggedTensor):
        if not isinstance(data, RaggedTensor):
            raise errors.InvalidArgumentError(
                f"ragged segment_ids require ragged data, got {data!r}"
            )
        data, ids = data.values, ids.values
    ids = convert_to_tensor(ids)
    if isinstance(data, RaggedTensor) and static_rank(ids) != 1:
        raise errors.InvalidArgumentError(
            f"segment_ids of ragged data must be a vector or ragged, got {ids!r}"
        )
    if not isinstance(data, RaggedTensor):
        return segments(data, ids, convert_to_tensor(count))
    number = out("Cast", [count], {"DstT": data.row_splits.dtype.base_dtype})
    return aggregate_segments(segments, data, ids, number)
