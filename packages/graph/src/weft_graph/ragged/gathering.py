"""Rules of ops that gather rows and values of ragged tensors, or select by masks."""

from __future__ import annotations

from typing import Any

import numpy as np

from weft_graph.ir.builder import constant_of, create, out
from weft_graph.ir.node import Output
from weft_graph.ops import shapes
from weft_graph.ops.broadcasting import broadcast_to
from weft_graph.ragged import encodings
from weft_graph.ragged.conversion import uniform_levels
from weft_graph.ragged.dispatch import Call, ragged_op
from weft_graph.ragged.indexing import gather_rows
from weft_graph.ragged.rearranging import concat_ragged
from weft_graph.ragged.reductions import static_axes
from weft_graph.ragged.rows import Rows
from weft_graph.ragged.tensor import RaggedTensor, ragged_or_tensor, static_rank
from weft_tensor import dtypes, errors


@ragged_op("GatherV2")
def _gather(call: Call) -> Any:
    params, indices, axis = call.inputs
    params, indices = ragged_or_tensor(params), ragged_or_tensor(indices)
    (dim,) = static_axes(axis, static_rank(params))
    batch = int(call.attrs.get("batch_dims", 0))
    rank = static_rank(indices)
    if batch < 0:
        if rank is None:
            raise errors.InvalidArgumentError("a negative batch_dims requires a known rank")
        batch += rank
    if batch < 0 or batch > dim or (rank is not None and batch > rank):
        raise errors.InvalidArgumentError(
            f"batch_dims must be in [0, axis {dim}] and not above the rank of indices, got {batch}"
        )
    return gather_ragged(params, indices, dim, batch)


def gather_ragged(params: Any, indices: Any, axis: int, batch: int) -> Any:
    """Gather with ragged `params`, ragged `indices`, or both."""
    if batch:
        return _gather_in_batches(params, indices, axis, batch)
    if axis:
        return _gather_along(params, indices, axis)
    if isinstance(indices, RaggedTensor):
        return indices.with_values(gather_ragged(params, indices.values, 0, 0))
    if not isinstance(params, RaggedTensor):
        return out("GatherV2", [params, indices, 0])
    rank = static_rank(indices)
    if rank is None:
        raise errors.InvalidArgumentError(
            f"a ragged tensor is gathered by indices of a known rank, got {indices!r}"
        )
    if rank == 1:
        return gather_rows(params, indices)
    if rank == 0:
        return params[indices]
    gathered_flat = gather_rows(params, shapes.reshape(indices, [-1]))
    return _outer_like(gathered_flat, indices)


def _outer_like(value: Any, indices: Output) -> Any:
    """Return rows that are partitioned like the leading axes of a tensor."""
    dtype = value.row_splits.dtype.base_dtype
    rank = len(indices.dims or ())
    numbers = uniform_levels(indices, rank - 1, dtype)
    return numbers.with_flat_values(value)


def _gather_in_batches(params: Any, indices: Any, axis: int, batch: int) -> Any:
    """Gather in batches: each row of indices selects from the corresponding row of params."""
    dtype = _splits_type(params, indices)
    params = _divided(params, dtype)
    if batch == 1 and axis > 1:
        return _gather_with_inner_axes(params, indices, axis)
    if batch == 1 and static_rank(indices) == 1:
        column = _gather_in_batches(params, shapes.expand_dims(indices, 1), 1, 1)
        if isinstance(column, RaggedTensor):
            return column.values
        return out("Squeeze", [column], {"squeeze_dims": [1]})
    rows = _divided(indices, dtype)
    if batch > 1:
        params = _check_same_rows(params, rows)
        inner = gather_ragged(params.values, rows.values, axis - 1, batch - 1)
    else:
        inner = gather_ragged(params.values, _to_global_indices(rows, params), 0, 0)
    if isinstance(indices, RaggedTensor) or isinstance(inner, RaggedTensor):
        return rows.with_values(inner)
    return _undo_division(inner, indices)


def _undo_division(values: Output, indices: Output) -> Output:
    """Return values in the layout of the indices, undoing the merge of axes in `_divided`."""
    sizes = out("ConcatV2", [[shapes.shape(indices)[:2], shapes.shape(values)[1:]], 0])
    reshaped = shapes.reshape(values, sizes)
    if indices.dims is not None and values.dims is not None:
        reshaped.set_shape([*indices.dims[:2], *values.dims[1:]])
    return reshaped


def _gather_with_inner_axes(params: RaggedTensor, indices: Any, axis: int) -> Any:
    """Gather with one batch axis and further axes between it and the gathered axis."""
    values = params.values
    owner = params.levels[0].ids()
    if isinstance(indices, RaggedTensor):
        selected: Any = gather_rows(indices, owner)
    else:
        selected = out("GatherV2", [indices, owner, 0])
    return params.with_values(gather_ragged(values, selected, axis - 1, 1))


def _splits_type(*values: Any) -> Any:
    types = {v.row_splits.dtype.base_dtype for v in values if isinstance(v, RaggedTensor)}
    return dtypes.int32 if types == {dtypes.int32} else dtypes.int64


def _divided(value: Any, dtype: Any) -> RaggedTensor:
    if isinstance(value, RaggedTensor):
        return value.with_row_splits_dtype(dtype)
    divided: RaggedTensor = uniform_levels(value, 1, dtype)
    return divided


def _check_counts(params: RaggedTensor, indices: RaggedTensor) -> None:
    a, b = params.levels[0].static_nrows, indices.levels[0].static_nrows
    if a is not None and b is not None and a != b:
        raise errors.InvalidArgumentError(
            f"params and indices must have equal numbers of rows, got {a} and {b}"
        )


def _check_same_rows(params: RaggedTensor, indices: RaggedTensor) -> RaggedTensor:
    """Return params, after checking that their batch axes match those of indices."""
    if params.row_splits is indices.row_splits:
        return params
    _check_counts(params, indices)
    checks = encodings.Checks(validate=True)
    a = encodings.Encoding(params.row_splits, "params")
    b = encodings.Encoding(indices.row_splits, "indices")
    checks.require("the batch axes of params and indices must be equal", encodings.equal, a, b)
    return RaggedTensor(params.values, Rows(checks.after(a)))


def _to_global_indices(indices: RaggedTensor, params: RaggedTensor) -> Any:
    """Convert indices into rows to indices into all values.

    Raises (at run time): InvalidArgumentError: an index is not in its row.
    """
    dtype = params.row_splits.dtype.base_dtype
    _check_counts(params, indices)
    checks = encodings.Checks(validate=True)
    a = encodings.Encoding(params.nrows(), "params", 0)
    b = encodings.Encoding(indices.nrows(), "indices", 0)
    checks.require("params and indices must have equal numbers of rows", encodings.equal, a, b)
    starts = encodings.Encoding(params.row_starts(), "starts")
    first = checks.after(starts)
    owner = indices.levels[0].ids()
    return _shift_indices(indices.values, owner, first, params.row_lengths(), dtype)


def _shift_indices(values: Any, owner: Output, starts: Output, lengths: Output, dtype: Any) -> Any:
    if isinstance(values, RaggedTensor):
        inner = out("GatherV2", [owner, values.levels[0].ids(), 0])
        return values.with_values(_shift_indices(values.values, inner, starts, lengths, dtype))
    wide = out("Cast", [values], {"DstT": dtype})
    extra = (static_rank(values) or 1) - 1
    per_row = [out("GatherV2", [bound, owner, 0]) for bound in (starts, lengths)]
    if extra:
        sizes = constant_of(np.array([-1, *[1] * extra], np.int32))
        per_row = [shapes.reshape(bound, sizes) for bound in per_row]
    start, length = per_row
    fits = out("LogicalAnd", [wide >= 0, out("Less", [wide, length])])
    # What is outside becomes an index that no value has, so that the gather says so.
    return out("SelectV2", [fits, wide + start, constant_of(np.array(-1, dtype.numpy))])


def _gather_along(params: Any, indices: Any, axis: int) -> Any:
    """Gather the same indices in each row of an inner axis."""
    dtype = _splits_type(params, indices)
    value = _divided(params, dtype)
    if axis > 1:
        return value.with_values(_gather_along(value.values, indices, axis - 1))
    count = value.nrows()
    if isinstance(indices, RaggedTensor):
        indices = indices.with_row_splits_dtype(dtype)
        single_row = RaggedTensor(
            indices, encodings.uniform_rows(indices.nrows(), constant_of(np.array(1, dtype.numpy)))
        )
        zeros = out("Fill", [shapes.reshape(count, [1]), constant_of(np.array(0, dtype.numpy))])
        repeated: Any = gather_rows(single_row, zeros)
    else:
        tail = shapes.shape(indices, out_type=dtype)
        repeated = broadcast_to(indices, out("ConcatV2", [[shapes.reshape(count, [1]), tail], 0]))
        if indices.dims is not None:
            repeated.set_shape([value.levels[0].static_nrows, *indices.dims])
    return _gather_in_batches(value, repeated, 1, 1)


@ragged_op("GatherNd")
def _gather_nd(call: Call) -> Any:
    params, indices = call.inputs
    if isinstance(indices, RaggedTensor):
        if static_rank(indices.values) == 1 and indices.uniform_row_length is None:
            raise errors.InvalidArgumentError(
                "the last axis of indices must not be ragged, got " + repr(indices)
            )
        values = indices.values
        if not isinstance(values, RaggedTensor) and static_rank(values) == 1:
            raise errors.InvalidArgumentError(
                f"the last axis of indices must be a tensor's, got {indices!r}"
            )
        return indices.with_values(call.plain(params, values)[0])
    indices = ragged_or_tensor(indices)
    if not isinstance(params, RaggedTensor):
        return call.plain(params, indices)[0]
    if not indices.dims or indices.dims[-1] is None:
        raise errors.InvalidArgumentError(
            f"indices must have a static rank and a static last dimension, got {indices!r}"
        )
    depth, rank = indices.dims[-1], len(indices.dims)
    if depth == 0:
        raise errors.UnimplementedError("gather_nd of a ragged tensor requires at least one index")
    rows = shapes.reshape(indices, [-1, depth])
    by_path = _gather_by_path(params, rows, depth)
    if rank == 2:
        return by_path
    if isinstance(by_path, RaggedTensor):
        if rank == 1:
            return by_path[0]
        return _outer_like(by_path, indices[..., 0])
    sizes = shapes.shape(by_path)
    lead = shapes.shape(indices)[:-1]
    return shapes.reshape(by_path, out("ConcatV2", [[lead, sizes[1:]], 0]))


def _gather_by_path(params: RaggedTensor, rows: Output, depth: int) -> Any:
    """Gather values by one index vector per row."""
    dtype = params.row_splits.dtype.base_dtype
    rows = out("Cast", [rows], {"DstT": dtype})
    row: Output = rows[:, 0]
    value: Any = params
    for level in range(1, depth):
        if not isinstance(value, RaggedTensor):
            inner_indices = out("ConcatV2", [[shapes.expand_dims(row, 1), rows[:, level:]], 1])
            return out("GatherNd", [value, inner_indices])
        start = out("GatherV2", [value.row_starts(), row, 0])
        length = out("GatherV2", [value.row_lengths(), row, 0])
        inner = rows[:, level]
        fits = out("LogicalAnd", [inner >= 0, out("Less", [inner, length])])
        row = out("SelectV2", [fits, start + inner, constant_of(np.array(-1, dtype.numpy))])
        value = value.values
    return gather_ragged(value, row, 0, 0)


# ------------------------------------------------------------------------------ masks


@ragged_op("Where")
def _where(call: Call) -> Any:
    (condition,) = call.inputs
    splits, flat = list(condition.nested_row_splits), condition.flat_values
    indices = create("RaggedTensorToSparse", [splits, flat]).outputs[0]
    if condition.dims is not None:
        indices.set_shape([None, len(condition.dims)])
    positions = out("Squeeze", [out("Where", [shapes.reshape(flat, [-1])])], {"squeeze_dims": [1]})
    return out("GatherV2", [indices, positions, 0])


@ragged_op("Select")
def _select(call: Call) -> Any:
    condition, x, y = [ragged_or_tensor(value) for value in call.inputs]
    rank = static_rank(condition)
    if rank == 1 and not isinstance(condition, RaggedTensor) and static_rank(x) != 1:
        # One flag for each row: it is taken from x or from y, of which lengths may differ.
        both_branches = concat_ragged([x, y], 0)
        dtype = both_branches.row_splits.dtype.base_dtype
        count = both_branches.nrows() // constant_of(np.array(2, dtype.numpy))
        numbers = out(
            "Range",
            [constant_of(np.array(0, dtype.numpy)), count, constant_of(np.array(1, dtype.numpy))],
        )
        return gather_rows(both_branches, out("SelectV2", [condition, numbers, numbers + count]))
    return create("SelectV2", [condition, x, y]).outputs[0]
