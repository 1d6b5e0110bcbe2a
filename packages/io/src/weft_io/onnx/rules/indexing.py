"""Access by position: gather, scatter, one-hot, unique values."""

from __future__ import annotations

from typing import Any, Final

from weft_graph.ir.builder import constant
from weft_graph.ir.node import Output
from weft_graph.ops import gather as gathering
from weft_graph.ops.array import ones_like
from weft_graph.ops.broadcasting import broadcast_to
from weft_graph.ops.comparison import less
from weft_graph.ops.gather import gather, gather_nd, one_hot
from weft_graph.ops.join import concat, stack
from weft_graph.ops.masks import where_v2
from weft_graph.ops.permutation import transpose
from weft_graph.ops.reduction import cumprod, reduce_prod, reduce_sum
from weft_graph.ops.search import argsort, unique, unique_with_counts
from weft_graph.ops.segments import unsorted_segment_min, unsorted_segment_prod
from weft_graph.ops.sequence import range as sequence
from weft_graph.ops.shapes import reshape, shape, size
from weft_io.onnx.export_graph import Value
from weft_io.onnx.node_export import NodeExport
from weft_io.onnx.operation import Operation, cast, like
from weft_io.onnx.registry import exporter, importer
from weft_io.onnx.rules.array import shape64
from weft_tensor import dtypes, errors

_SCATTER: Final = {
    "none": gathering.tensor_scatter_nd_update,
    "add": gathering.tensor_scatter_nd_add,
    "max": gathering.tensor_scatter_nd_max,
    "min": gathering.tensor_scatter_nd_min,
}


def count_from_front(indices: Output, count: Output) -> Output:
    """Convert indices to nonnegative ones; negative indices count from the end.

    Args:
      indices: int32 or int64.
      count: size of the axis, int64.
    """
    return where_v2(less(indices, like(0, indices)), indices + cast(count, indices.dtype), indices)


@importer("Gather")
def _gather(operation: Operation) -> Output:
    x = operation[0]
    axis = operation.attribute("axis", 0) if x.dims is None else operation.axis()
    known_indices = operation.value(1)
    indices = operation[1]
    if known_indices is None or (known_indices < 0).any():
        indices = count_from_front(indices, shape64(x)[axis])
    return gather(x, indices, axis=axis)


@importer("GatherND")
def _gather_nd(operation: Operation) -> Output:
    x, batch = operation[0], operation.attribute("batch_dims", 0)
    indices = operation[1]
    sizes = shape64(x)[batch : batch + _depth(indices)]
    return gather_nd(x, count_from_front(indices, sizes), batch_dims=batch)


def _depth(indices: Output) -> Any:
    """Return the number of axes that an index vector addresses, as an int if it is known."""
    known_depth = indices.dims[-1] if indices.dims else None
    return shape64(indices)[-1] if known_depth is None else known_depth


def _positions(x: Output, indices: Output, axis: int) -> Output:
    """Return full index vectors, shape (..., rank), for `indices` along an axis."""
    indices = count_from_front(cast(indices, dtypes.int64), shape64(x)[axis])
    sizes, count = shape64(indices), len(x.dims or ())
    parts = []
    for item in range(count):
        if item == axis:
            parts.append(indices)
            continue
        line = reshape(sequence(sizes[item]), [-1 if i == item else 1 for i in range(count)])
        parts.append(broadcast_to(line, sizes))
    return stack(parts, axis=-1)


@importer("GatherElements")
def _gather_elements(operation: Operation) -> Output:
    operation.rank()
    return gather_nd(operation[0], _positions(operation[0], operation[1], operation.axis()))


@importer("ScatterElements", "Scatter")
def _scatter_elements(operation: Operation) -> Output:
    positions = _positions(operation[0], operation[1], operation.axis())
    return scatter_updates(
        operation[0], positions, operation[2], operation.attribute("reduction", "none")
    )


@importer("ScatterND")
def _scatter_nd(operation: Operation) -> Output:
    x, indices = operation[0], operation[1]
    positions = count_from_front(indices, shape64(x)[: _depth(indices)])
    return scatter_updates(x, positions, operation[2], operation.attribute("reduction", "none"))


def scatter_updates(x: Output, positions: Output, updates: Output, reduction: str) -> Output:
    """Scatter `updates` into x at index vectors of shape (..., depth)."""
    if reduction == "mul":
        return x * _products(x, positions, updates)
    if reduction not in _SCATTER:
        raise errors.InvalidArgumentError(
            f"reduction must be one of none, add, mul, max, min, got {reduction!r}"
        )
    return _SCATTER[reduction](x, positions, updates)


def _products(x: Output, positions: Output, updates: Output) -> Output:
    """Return for each element of x the product of its updates, or 1."""
    sizes, depth = shape64(x), _depth(positions)
    outer, inner = sizes[:depth], sizes[depth:]
    flat = reduce_sum(positions * cumprod(outer, exclusive=True, reverse=True), -1)
    # As a row for each update: the number of rows is given, since there may be no elements.
    count = size(flat, out_type=dtypes.int64)
    rows = reshape(updates, concat([[count], inner], 0))
    products = unsorted_segment_prod(rows, reshape(flat, [-1]), reduce_prod(outer))
    return reshape(products, sizes)


@importer("OneHot")
def _one_hot(operation: Operation) -> Output:
    indices, values = cast(operation[0], dtypes.int64), operation[2]
    depth = reshape(cast(operation[1], dtypes.int64), [])
    return one_hot(
        count_from_front(indices, depth),
        cast(depth, dtypes.int32),
        on_value=values[1],
        off_value=values[0],
        axis=operation.attribute("axis", -1),
    )


@importer("Unique")
def _unique(operation: Operation) -> list[Output]:
    x = operation[0]
    axis = None if operation.attribute("axis") is None else operation.axis()
    rows = reshape(x, [-1]) if axis is None else _rows(x, axis)
    if axis is not None:
        for other_axis in range(operation.rank()):
            if other_axis != axis:
                operation.size(other_axis)
    codes = rows if axis is None else _row_codes(rows)
    _, inverse, counts = unique_with_counts(codes, dtypes.int64)
    number = shape64(counts)[0]
    first = _first_positions(inverse, number)
    if operation.attribute("sorted", 1):
        order = cast(_lexicographic_order(gather(rows, first), axis is None), dtypes.int64)
        rank = cast(argsort(order), dtypes.int64)
        first, counts, inverse = gather(first, order), gather(counts, order), gather(rank, inverse)
    values = gather(x if axis is not None else rows, first, axis=axis or 0)
    return [values, first, inverse, counts]


def _rows(x: Output, axis: int) -> Output:
    """Reshape to a matrix with one row per index of an axis."""
    order = [axis, *(i for i in range(len(x.dims or ())) if i != axis)]
    moved = transpose(x, order)
    return reshape(moved, [shape(moved)[0], -1])


def _row_codes(rows: Output) -> Output:
    """Return a number for each row, equal for equal rows, computed column by column."""
    width = rows.dims[1] if rows.dims else None
    assert width is not None, "the sizes beside the axis are known"
    code = ones_like(cast(rows[:, 0], dtypes.int64)) * 0
    for column in range(width):
        values, position = unique(rows[:, column], dtypes.int64)
        code = unique(code * shape64(values)[0] + position, dtypes.int64)[1]
    return code


def _first_positions(inverse: Output, number: Output) -> Output:
    """Return the position of the first occurrence of each of `number` values."""
    return unsorted_segment_min(sequence(shape64(inverse)[0]), inverse, number)


def _lexicographic_order(rows: Output, flat: bool) -> Output:
    """Return the lexicographic order of rows."""
    if flat:
        return argsort(rows, stable=True)
    width = rows.dims[1] if rows.dims else None
    order: Output = sequence(shape64(rows)[0])
    for column in reversed(range(width or 0)):
        order = gather(order, argsort(gather(rows[:, column], order), stable=True))
    return order


@importer("TensorScatter")
def _tensor_scatter(operation: Operation) -> Output:
    """Import an update of a cache along an axis, at a position for each batch member."""
    cache, update = operation[0], operation[1]
    axis = operation.axis(-2)
    sizes, count = shape64(update), operation.rank()
    starts = operation.get(2)
    begin = constant(0, dtypes.int64) if starts is None else starts
    line = sequence(sizes[axis])
    steps = reshape(begin, [-1, 1]) + line
    if operation.attribute("mode", "linear") == "circular":
        steps = steps % shape64(cache)[axis]
    form = [1] * count
    form[axis] = -1
    form[0] = -1
    indices = reshape(steps, _per_batch_shape(form, axis, sizes, starts is None))
    return scatter_updates(
        cache, _positions(cache, broadcast_to(indices, sizes), axis), update, "none"
    )


def _per_batch_shape(form: list[int], axis: int, sizes: Output, single: bool) -> Any:
    """Return the shape of a scalar per batch member that broadcasts along an axis."""
    result: list[Any] = [1] * len(form)
    result[axis] = sizes[axis]
    result[0] = constant(1, dtypes.int64) if single else sizes[0]
    return stack(
        [
            cast(item, dtypes.int64) if isinstance(item, Output) else constant(item, dtypes.int64)
            for item in result
        ]
    )


# -------------------------------------------------------------------------------- export


@exporter("Gather", "GatherV2", "ResourceGather")
def _write_gather(export: NodeExport) -> Value:
    batch = int(export.attribute("batch_dims", 0) or 0)
    axis = int(export.known(2, "the axis")) if export.node.type == "GatherV2" else batch
    x, positions = export[0], export[1]
    if not batch:
        return export.add("Gather", x, _indices(export, positions), axis=axis)
    if axis % export.rank() != batch % export.rank(1):
        raise errors.UnimplementedError(
            "with batch_dims, ONNX gathers only from the first axis after the batch axes"
        )
    last = export.add("Unsqueeze", export.int64(positions), export.ints([-1]))
    return export.add("GatherND", x, last, batch_dims=batch % export.rank(1))


def _indices(export: NodeExport, positions: Value) -> Value:
    return positions if positions.dtype in (dtypes.int32, dtypes.int64) else export.int64(positions)


@exporter("GatherNd")
def _write_gather_nd(export: NodeExport) -> Value:
    if export.dims(1)[-1] == 0:
        raise errors.UnimplementedError("ONNX requires index vectors with at least one element")
    return export.add("GatherND", export[0], export.int64(export[1]))


@exporter("ScatterNd")
def _write_scatter_nd(export: NodeExport) -> Value:
    positions, updates, sizes = export.inputs()
    empty = export.add("Expand", export.like(0, updates), export.int64(sizes))
    return export.add("ScatterND", empty, export.int64(positions), updates, reduction="add")


_REDUCTIONS: Final = {
    "TensorScatterUpdate": "none",
    "TensorScatterAdd": "add",
    "TensorScatterMax": "max",
    "TensorScatterMin": "min",
}


@exporter(*_REDUCTIONS)
def _write_scatter(export: NodeExport) -> Value:
    x, positions, updates = export.inputs()
    way = _REDUCTIONS[export.node.type]
    return export.add("ScatterND", x, export.int64(positions), updates, reduction=way)


@exporter("Where")
def _write_nonzero(export: NodeExport) -> Value:
    if not export.rank():
        raise errors.UnimplementedError(
            "ONNX cannot return the positions of nonzero elements of a scalar"
        )
    return export.transposed(export.add("NonZero", export[0], dtype=dtypes.int64), [1, 0])


@exporter("OneHot")
def _write_one_hot(export: NodeExport) -> Value:
    """Export OneHot; out-of-range negative positions select nothing in weft, unlike in ONNX."""
    positions, depth, on_value, off_value = export.inputs()
    positions, depth = export.int64(positions), export.int64(depth)
    negative = export.elementwise("Less", positions, export.ints(0), dtype=dtypes.bool_)
    positions = export.elementwise("Where", negative, depth, positions, dtype=dtypes.int64)
    values = [export.reshape(item, [1]) for item in (off_value, on_value)]
    pair = export.add("Concat", *values, axis=0)
    axis = int(export.attribute("axis"))
    if export.rank():
        return export.add("OneHot", positions, depth, pair, dtype=on_value.dtype, axis=axis)
    row = export.add("OneHot", export.vector(positions), depth, pair, dtype=on_value.dtype, axis=-1)
    return export.add("Squeeze", row, export.ints([0]))


@exporter("TopK", "TopKV2")
def _write_top_k(export: NodeExport) -> list[Value | None]:
    if export.node.type == "TopK":
        count = export.ints([int(export.attribute("k"))])
    else:
        count = export.vector(export[1])
    order = int(export.attribute("sorted", True))
    result = export.add_many(
        "TopK", export[0], count, dtypes=[None, dtypes.int64], axis=-1, sorted=order
    )
    return [result[0], export.narrow(result[1], export.node.outputs[1].dtype)]
