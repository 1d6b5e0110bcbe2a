"""Rules of ops that concatenate, stack, repeat or reverse rows of ragged tensors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from weft_graph.ir.builder import constant_of, convert_to_tensor, create, out
from weft_graph.ir.node import Output
from weft_graph.ops import sequence, shapes
from weft_graph.ops.join import concat
from weft_graph.ops.shape_rules import constant_array, normal_axis
from weft_graph.ragged import encodings
from weft_graph.ragged.conversion import uniform_levels
from weft_graph.ragged.dispatch import Call, ragged_op
from weft_graph.ragged.indexing import gather_rows
from weft_graph.ragged.reductions import static_axes
from weft_graph.ragged.rows import Rows
from weft_graph.ragged.tensor import RaggedTensor, ragged_or_tensor, static_rank
from weft_tensor import dtypes, errors
from weft_tensor.dtypes import DType
from weft_tensor.shape import merge_dims

Step = Callable[[int, Output], "tuple[Output, Callable[[Output, Output], Output]] | None"]


def rearrange_rows(value: RaggedTensor, rows: Output | None, step: Step) -> RaggedTensor:
    """Return a ragged tensor with other rows and reordered values.

    Args:
      rows: for each row of the result, the row of `value`; None for the same rows.
      step: function of an axis and the lengths of its rows. It returns the new lengths, and a
        function from an index and the old length to the index in the old row; None if nothing
        changes.
    """
    levels: list[Rows] = []
    row_ids = rows
    for axis, level in enumerate(value.levels, 1):
        lengths, starts = level.row_lengths(), level.starts()
        if row_ids is not None:
            lengths, starts = [
                out("GatherV2", [level_bounds, row_ids, 0]) for level_bounds in (lengths, starts)
            ]
        step_result = step(axis, lengths)
        if step_result is None and row_ids is None:
            levels.append(level)
            continue
        made_lengths = lengths if step_result is None else step_result[0]
        new_rows = Rows(
            encodings.splits_of(made_lengths),
            lengths=made_lengths,
            uniform=level.uniform if step_result is None else None,
        )
        levels.append(new_rows)
        ids = new_rows.ids()
        offset = sequence.range(new_rows.nvals()) - out("GatherV2", [new_rows.starts(), ids, 0])
        if step_result is not None:
            offset = step_result[1](offset, out("GatherV2", [lengths, ids, 0]))
        row_ids = out("GatherV2", [starts, ids, 0]) + offset
    flat: Any = value.flat_values
    if row_ids is not None:
        flat = out("GatherV2", [flat, row_ids, 0])
    for level in reversed(levels):
        flat = RaggedTensor(flat, level)
    return flat  # type: ignore[no-any-return]


# ------------------------------------------------------------------------------ joining


def unify_levels(values: Sequence[Any], minimum: int = 0) -> list[Any]:
    """Convert values to the same number of levels, and the same type of splits.

    Raises: InvalidArgumentError: a rank is unknown, or ranks differ.
    """
    converted = [ragged_or_tensor(value) for value in values]
    ranks = {static_rank(value) for value in converted}
    if len(ranks) > 1 or None in ranks:
        raise errors.InvalidArgumentError(
            "ragged tensors that are joined must have one known rank, got "
            + ", ".join(repr(value) for value in converted)
        )
    ragged = [value for value in converted if isinstance(value, RaggedTensor)]
    types = {value.row_splits.dtype.base_dtype for value in ragged}
    dtype = dtypes.int32 if types == {dtypes.int32} else dtypes.int64
    depth = max([minimum, *[value.ragged_rank for value in ragged]])
    converted = [
        value.with_row_splits_dtype(dtype) if isinstance(value, RaggedTensor) else value
        for value in converted
    ]
    return [uniform_levels(value, depth, dtype) for value in converted]


def _convert_typed(values: Sequence[Any]) -> list[Any]:
    """Convert values to tensors; Python values get the type of the ragged ones."""
    dtype = next(value.dtype for value in values if isinstance(value, RaggedTensor))
    return [
        value if isinstance(value, RaggedTensor | Output) else ragged_or_tensor(value, dtype)
        for value in values
    ]


@ragged_op("ConcatV2")
def _concat(call: Call) -> Any:
    values, axis = call.inputs
    typed = _convert_typed(values)
    rank = static_rank(typed[0])
    (dim,) = static_axes(axis, rank) if rank is not None else [None]
    return concat_ragged(typed, _require_axis(dim))


def _require_axis(axis: int | None) -> int:
    if axis is None:
        raise errors.InvalidArgumentError("ragged tensors must have a known rank")
    return axis


def concat_ragged(values: Sequence[Any], axis: int) -> Any:
    """Concatenate values along an axis."""
    if not any(isinstance(value, RaggedTensor) for value in values):
        return concat(list(values), axis)
    converted = unify_levels(values)
    if axis == 0:
        return _end_to_end(converted)
    if axis > 1:
        first = converted[0]
        inner = concat_ragged([value.values for value in _require_equal_rows(converted)], axis - 1)
        return first.with_values(inner)
    count = len(converted)
    rows = _interleave_rows(converted)
    splits = out(
        "StridedSlice",
        [rows.row_splits, *_strided_positions(count)],
        {"begin_mask": 1, "end_mask": 1},
    )
    _know_rows(splits, converted)
    return RaggedTensor(rows.values, Rows(splits))


def _strided_positions(step: int) -> list[Output]:
    return [constant_of(np.array([n], np.int32)) for n in (0, 0, step)]


def _know_rows(splits: Output, values: Sequence[RaggedTensor]) -> None:
    static_counts = [value.levels[0].static_nrows for value in values]
    rows = next((count for count in static_counts if count is not None), None)
    if rows is not None:
        splits.set_shape([rows + 1])


def _end_to_end(values: Sequence[Any]) -> Any:
    """Return the rows of all values in sequence."""
    if not isinstance(values[0], RaggedTensor):
        return concat(list(values), 0)
    inner = _end_to_end([value.values for value in values])
    parts, offset = [values[0].row_splits], values[0].row_splits[-1]
    for value in values[1:]:
        parts.append(value.row_splits[1:] + offset)
        offset = offset + value.row_splits[-1]
    static = {value.levels[0].static_uniform for value in values}
    uniform = None
    if len(static) == 1 and None not in static:
        uniform = values[0].uniform_row_length
    return RaggedTensor(inner, Rows(concat(parts, 0), uniform=uniform))


def _interleave_rows(values: Sequence[RaggedTensor]) -> RaggedTensor:
    """Interleave the rows of values: all first rows, then all second rows, and so on."""
    rows = _require_equal_counts(values)
    concatenated = _end_to_end(values)
    count = constant_of(np.array(len(values), rows.dtype.base_dtype.numpy))
    numbers = shapes.reshape(sequence.range(rows * count), out("Pack", [[count, rows]]))
    order = out("Transpose", [numbers, constant_of(np.array([1, 0], np.int32))])
    return gather_rows(concatenated, shapes.reshape(order, [-1]))


def _require_equal_counts(values: Sequence[RaggedTensor]) -> Output:
    """Return the common number of rows.

    Raises: InvalidArgumentError: the numbers differ; raised at run time if they are not static.
    """
    static_count: Any = None
    for value in values:
        static_count = merge_dims(static_count, (value.levels[0].static_nrows,))
    rows = values[0].nrows()
    if static_count != (None,):
        return rows
    count_part = encodings.Encoding(rows, "nrows", 0)
    checks = encodings.Checks(validate=True)
    for value in values[1:]:
        row_count = encodings.Encoding(value.nrows(), "nrows", 0)
        checks.require(
            "ragged tensors must have equal numbers of rows", encodings.equal, count_part, row_count
        )
    return checks.after(count_part)


def _require_equal_rows(values: Sequence[RaggedTensor]) -> list[RaggedTensor]:
    """Return values after checking that their row lengths equal those of the first.

    Raises (at run time): InvalidArgumentError: lengths differ.
    """
    first = values[0]
    splits = encodings.Encoding(first.row_splits, "row_splits")
    checked = [first]
    for value in values[1:]:
        if value.row_splits is first.row_splits:
            checked.append(value)
            continue
        splits_part = encodings.Encoding(value.row_splits, "row_splits")
        checks = encodings.Checks(validate=True)
        checks.require("ragged rows must have equal lengths", encodings.equal, splits, splits_part)
        checked.append(checks.after_checks(value))
    return checked


@ragged_op("Pack")
def _pack(call: Call) -> Any:
    (values,) = call.inputs
    return stack_ragged(_convert_typed(values), call.attrs.get("axis", 0))


def stack_ragged(values: Sequence[Any], axis: int) -> Any:
    """Stack values of rank R along a new axis to a ragged tensor of rank R + 1."""
    converted = [ragged_or_tensor(value) for value in values]
    rank = static_rank(converted[0])
    if rank is None:
        raise errors.InvalidArgumentError(f"stack requires a known rank, got {converted[0]!r}")
    axis = normal_axis(axis, rank + 1)
    if rank == 0:
        return out("Pack", [converted], {"axis": 0})
    return _stack_new_axis(unify_levels(converted, max(axis - 1, _uneven(converted))), axis)


def _uneven(values: Sequence[Any]) -> int:
    """Return the last axis, after the first, along which sizes of tensors differ; 0 if none do."""
    shaped = [value.dims for value in values if not isinstance(value, RaggedTensor) and value.dims]
    sizes = list(zip(*shaped, strict=False))
    return max(
        (axis for axis, sizes_on_axis in enumerate(sizes) if len(set(sizes_on_axis)) > 1), default=0
    )


def _stack_new_axis(values: Sequence[Any], axis: int) -> Any:
    if axis > 1:
        first = values[0]
        inner = [value.values for value in _require_equal_rows(values)]
        if axis == 2 and _have_same_row_shape(inner):
            return first.with_values(out("Pack", [inner], {"axis": 1}))
        return first.with_values(_stack_new_axis(inner, axis - 1))
    dtype = _splits_type(values)
    count = np.array(len(values), dtype.numpy)
    if axis == 0:
        concatenated = _end_to_end(values)
        lengths = out("Pack", [[_rows_of(value, dtype) for value in values]])
        return RaggedTensor(concatenated, encodings.from_lengths(lengths, concatenated, False))
    if not isinstance(values[0], RaggedTensor) and static_rank(values[0]) == 1:
        return out("Pack", [list(values)], {"axis": 1})
    levels = [uniform_levels(value, 1, dtype) for value in values]
    rows = _interleave_rows(levels)
    uniform = encodings.from_uniform(count, rows, levels[0].nrows(), False)
    _know_rows(uniform.splits, levels)
    return RaggedTensor(rows, uniform)


def _have_same_row_shape(values: Sequence[Any]) -> bool:
    """Return True if all are tensors whose rows have the same static shape."""
    dims = [None if isinstance(value, RaggedTensor) else value.dims for value in values]
    first = dims[0]
    return (
        first is not None
        and None not in first[1:]
        and all(value_dims is not None and value_dims[1:] == first[1:] for value_dims in dims)
    )


def _splits_type(values: Sequence[Any]) -> DType:
    value = values[0]
    return value.row_splits.dtype.base_dtype if isinstance(value, RaggedTensor) else dtypes.int64


def _rows_of(value: Any, dtype: DType) -> Output:
    if isinstance(value, RaggedTensor):
        return value.nrows()
    return shapes.shape(value, out_type=dtype)[0]


# ------------------------------------------------------------------------ repeating, reversing


@ragged_op("Tile")
def _tile(call: Call) -> Any:
    value, multiples = call.inputs
    if isinstance(multiples, RaggedTensor):
        raise errors.InvalidTypeError("multiples must be a tensor, got a ragged one")
    dtype = value.row_splits.dtype.base_dtype
    times = out("Cast", [convert_to_tensor(multiples)], {"DstT": dtype})
    static_multiples = constant_array(convert_to_tensor(multiples))
    rank = static_rank(value)
    if rank is not None and times.dims is not None:
        merge_dims(times.dims, (rank,))

    def step(axis: int, lengths: Output) -> Any:
        if static_multiples is not None and static_multiples[axis] == 1:
            return None
        zero = constant_of(np.array(0, dtype.numpy))

        def wrap_index(output: Output, length: Output) -> Output:
            return output % out("Maximum", [length, zero + 1])

        return lengths * times[axis], wrap_index

    rows = None
    if static_multiples is None or static_multiples[0] != 1:
        rows = out("Tile", [sequence.range(value.nrows()), times[:1]])
    tiled = rearrange_rows(value, rows, step)
    inner = times[value.ragged_rank + 1 :]
    multiples_of_flat = concat([constant_of(np.array([1], dtype.numpy)), inner], 0)
    flat = tiled.flat_values
    if flat.dims is None or len(flat.dims) > 1:
        tiled = tiled.with_flat_values(out("Tile", [flat, multiples_of_flat]))
    return tiled


@ragged_op("ReverseV2")
def _reverse(call: Call) -> Any:
    value, axis = call.inputs
    axes = static_axes(axis, static_rank(value))

    def step(level: int, lengths: Output) -> Any:
        if level not in axes:
            return None
        return lengths, lambda place, length: length - place - 1

    rows = sequence.range(value.nrows())[::-1] if 0 in axes else None
    reversed_rows = rearrange_rows(value, rows, step)
    inner = [axis - value.ragged_rank for axis in axes if axis > value.ragged_rank]
    if inner:
        reversed_rows = reversed_rows.with_flat_values(
            out("ReverseV2", [reversed_rows.flat_values, constant_of(np.array(inner, np.int32))])
        )
    return reversed_rows


# ------------------------------------------------------------------------------ cutting


@ragged_op("Split", "SplitV")
def _split(call: Call) -> Any:
    if call.op == "Split":
        axis, value = call.inputs
    else:
        value, sizes, axis = call.inputs
    if not isinstance(value, RaggedTensor):
        raise errors.InvalidTypeError(
            f"{call.op} supports a ragged tensor only as its value argument"
        )
    (dim,) = static_axes(axis, static_rank(value))
    count = call.attrs["num_split"]
    if count == 1 and call.op == "Split":
        return [value]
    if dim > value.ragged_rank or (dim and not _uniform(value, dim)):
        if dim > value.ragged_rank:
            flat_axis = constant_of(np.array(dim - value.ragged_rank, np.int32))
            parts = (
                call.plain(flat_axis, value.flat_values)
                if call.op == "Split"
                else call.plain(value.flat_values, sizes, flat_axis)
            )
            return [value.with_flat_values(part) for part in parts]
        raise errors.InvalidArgumentError(
            f"a ragged axis cannot be split: axis {dim} of {value!r} has rows of several lengths"
        )
    dtype = value.row_splits.dtype.base_dtype
    total = value.nrows() if dim == 0 else value.levels[dim - 1].uniform
    assert total is not None
    if call.op == "Split":
        parts_of = encodings.Encoding(total, "the size of the axis", 0)
        checks = encodings.Checks(validate=True)
        number = encodings.Encoding(np.array(count, dtype.numpy), "the number of parts", 0)
        message = "the size of the axis must be divisible by the number of parts"
        checks.require(message, lambda n, k: encodings.equal(n % k, 0), parts_of, number)
        part_size = checks.after(parts_of) // count
        bounds = [(part_size * i, part_size * (i + 1)) for i in range(count)]
    else:
        bounds = _bounds(convert_to_tensor(sizes), total, count)
    keys = [(*[slice(None)] * dim, slice(begin, end)) for begin, end in bounds]
    return [value[key] for key in keys]


def _uniform(value: RaggedTensor, axis: int) -> bool:
    return value.levels[axis - 1].uniform is not None


def _bounds(sizes: Output, total: Output, count: int) -> list[tuple[Any, Any]]:
    """Return the bounds of each part from sizes; one size may be -1."""
    dtype = total.dtype.base_dtype
    part_sizes = out("Cast", [sizes], {"DstT": dtype})
    zero = constant_of(np.array(0, dtype.numpy))
    total_known = out(
        "Sum", [out("Maximum", [part_sizes, zero]), constant_of(np.array([0], np.int32))]
    )
    part_sizes = out("SelectV2", [part_sizes < zero, total - total_known, part_sizes])
    sizes_part = encodings.Encoding(part_sizes, "the sizes of parts")
    size = encodings.Encoding(total, "the size of the axis", 0)
    checks = encodings.Checks(validate=True)
    message = "the sizes of parts must add up to that of the axis"
    checks.require(
        message,
        lambda parts, n: encodings.equal(encodings.sum_of_lengths(parts), n),
        sizes_part,
        size,
    )
    ends = encodings.splits_of(checks.after(sizes_part))
    return [(ends[i], ends[i + 1]) for i in range(count)]


@ragged_op("DynamicPartition")
def _partition(call: Call) -> Any:
    data, partitions = call.inputs
    while isinstance(partitions, RaggedTensor):
        if not isinstance(data, RaggedTensor):
            raise errors.InvalidArgumentError(f"ragged partitions require ragged data: {data!r}")
        data, partitions = data.values, partitions.values
    if not isinstance(data, RaggedTensor):
        return call.plain(data, partitions)
    numbers = sequence.range(data.nrows())
    positions = create("DynamicPartition", [numbers, partitions], call.attrs).outputs
    return [gather_rows(data, part_positions) for part_positions in positions]
