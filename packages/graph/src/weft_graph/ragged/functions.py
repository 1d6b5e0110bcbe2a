"""Functions of ragged tensors: ranges, stacks, masks and partitions."""

from __future__ import annotations

__all__ = [
    "boolean_mask",
    "map_flat_values",
    "range",
    "row_splits_to_segment_ids",
    "segment_ids_to_row_splits",
    "stack",
    "stack_dynamic_partitions",
]

import builtins
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from weft_graph.ir import nest
from weft_graph.ir.builder import constant_of, convert_to_tensor, create, out
from weft_graph.ir.composite import makers
from weft_graph.ir.default_graph import get_default_graph
from weft_graph.ir.node import Output
from weft_graph.ops import casting, join, masks, reduction, shapes
from weft_graph.ops.search import argsort
from weft_graph.ragged import encodings
from weft_graph.ragged.constants import constant
from weft_graph.ragged.conversion import uniform_levels
from weft_graph.ragged.indexing import expand_first_axis, gather_rows
from weft_graph.ragged.rearranging import stack_ragged
from weft_graph.ragged.reductions import segments_by
from weft_graph.ragged.rows import Rows, segment_ids as ids_of
from weft_graph.ragged.tensor import RaggedTensor, is_ragged, ragged_or_tensor, static_rank
from weft_tensor import dtypes, errors
from weft_tensor.shape import compatible_dims, format_dims


def range(
    starts: Any,
    limits: Any = None,
    deltas: Any = 1,
    dtype: Any = None,
    name: str | None = None,
    row_splits_dtype: Any = dtypes.int64,
) -> RaggedTensor:
    """Return, for each row, the numbers from a start up to but excluding a limit.

    Args:
      starts: real, shape (nrows,) or (); with `limits` None these are the limits, and starts are 0.
      limits: real, shape (nrows,) or ().
      deltas: real, shape (nrows,) or (); not 0.
      dtype: element type; by default the common type of the arguments.
      name: name scope of the nodes.
      row_splits_dtype: int32 or int64.
    Returns: a RaggedTensor, shape (nrows, (n)).
    Raises: InvalidArgumentError: the sizes differ; or, at run time, a delta is 0.

    Examples:
      >>> wf.Session().run(wf.ragged.range([2, 0, 3])).to_list()
      [[0, 1], [], [0, 1, 2]]
    """
    if limits is None:
        starts, limits = 0, starts
    splits_type = dtypes.as_dtype(row_splits_dtype)
    with get_default_graph().name_scope(name or "RaggedRange"):
        element_type = None if dtype is None else dtypes.as_dtype(dtype)
        parts = [
            convert_to_tensor(bound, None if _has_type(bound) else element_type)
            for bound in (starts, limits, deltas)
        ]
        if element_type is None:
            element_type = max([part.dtype.base_dtype for part in parts], key=_order)
        parts = [casting.cast(part, element_type) for part in parts]
        splits, values = create("RaggedRange", parts, {"Tsplits": splits_type}).outputs
        return RaggedTensor(values, Rows(splits))


def _has_type(value: Any) -> bool:
    return hasattr(value, "dtype")


_ORDER = (dtypes.int32, dtypes.int64, dtypes.bfloat16, dtypes.float32, dtypes.float64)


def _order(dtype: dtypes.DType) -> int:
    if dtype not in _ORDER:
        names = ", ".join(dtype.name for dtype in _ORDER)
        raise errors.InvalidTypeError(f"ragged.range requires one of {names}, got {dtype.name}")
    return _ORDER.index(dtype)


def map_flat_values(op: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Apply a function to the flat values of ragged arguments, keeping their rows.

    Args:
      op: function that returns a tensor with as many rows as the flat values.
      *args, **kwargs: its arguments; ragged ones, also in lists and dictionaries, are replaced by
        their flat values, and all must have the same rows.
    Returns: a RaggedTensor; the result of `op` if no argument is ragged.
    Raises: InvalidArgumentError: the levels of arguments differ, or the result has another number
      of rows than the values; or, at run time, splits differ.

    Examples:
      >>> x = wf.ragged.constant([[1, 2], [], [3]])
      >>> wf.Session().run(wf.ragged.map_flat_values(lambda flat: flat * 10, x)).to_list()
      [[10, 20], [], [30]]
    """
    leaves = nest.flatten([list(args), kwargs])
    ragged = [RaggedTensor.from_value(leaf) for leaf in leaves if is_ragged(leaf)]
    if not ragged:
        return op(*args, **kwargs)
    levels = {value.ragged_rank for value in ragged}
    if len(levels) > 1:
        raise errors.InvalidArgumentError(
            f"ragged arguments must have the same number of ragged axes, got {sorted(levels)}"
        )
    first = ragged[0]
    checked = iter(_values_of_same_rows(ragged))
    flat = [next(checked) if is_ragged(leaf) else leaf for leaf in leaves]
    new_args, new_kwargs = nest.pack_sequence_as([list(args), kwargs], flat)
    flat_result = convert_to_tensor(op(*new_args, **new_kwargs))
    old_values = first.flat_values
    if flat_result.dims == () or (
        flat_result.dims
        and old_values.dims
        and None not in (flat_result.dims[0], old_values.dims[0])
        and flat_result.dims[0] != old_values.dims[0]
    ):
        raise errors.InvalidArgumentError(
            f"the result of op must have the same number of rows as the flat values of shape "
            f"{format_dims(old_values.dims)}, got {format_dims(flat_result.dims)}"
        )
    return first.with_flat_values(flat_result)


def _values_of_same_rows(ragged: Sequence[RaggedTensor]) -> list[Output]:
    """Return the flat values of ragged tensors after checking that all splits are equal."""
    first = ragged[0]
    flat_values = [first.flat_values]
    for value in ragged[1:]:
        checks = encodings.Checks(validate=True)
        for a, b in zip(first.levels, value.levels, strict=True):
            if a.splits is not b.splits:
                first_splits, other_splits = (
                    encodings.Encoding(a.splits, "splits"),
                    encodings.Encoding(b.splits, "splits"),
                )
                encodings.unify_types(first_splits, other_splits)
                message = "ragged arguments must have equal rows"
                checks.require(message, encodings.equal, first_splits, other_splits)
        flat_values.append(checks.after_checks(value.flat_values))
    return flat_values


def boolean_mask(data: Any, mask: Any, name: str | None = None) -> Any:
    """Return the values or rows where a mask is True, keeping the row structure.

    Args:
      data: Tensor or RaggedTensor.
      mask: bool: a Tensor, RaggedTensor or nested lists, with the rows of the outer axes of `data`.
      name: name scope of the nodes.
    Returns: a RaggedTensor of the rank of `data`; a Tensor if the mask has rank 1 and `data` is a
      Tensor.
    Raises: InvalidArgumentError: the mask has rank 0, or a rank above that of `data`; or, at run
      time, rows differ.

    Examples:
      >>> x = [[1, 2, 3], [4, 5, 6], [7, 8, 9]]
      >>> kept = wf.ragged.boolean_mask(x, [[True, False, True], [False] * 3, [True, False, False]])
      >>> wf.Session().run(kept).to_list()
      [[1, 3], [], [7]]
    """
    if isinstance(mask, list | tuple):
        mask = constant(mask, dtypes.bool_)
    with get_default_graph().name_scope(name or "RaggedMask"):
        mask_value, values = ragged_or_tensor(mask, dtypes.bool_), ragged_or_tensor(data)
        rank = static_rank(mask_value)
        if not rank:
            raise errors.InvalidArgumentError(
                f"a mask must have a known rank, 1 at least, got {mask_value!r}"
            )
        actual = static_rank(values)
        if actual is not None and actual < rank:
            raise errors.InvalidArgumentError(
                f"a mask of rank {rank} does not fit data of rank {actual}"
            )
        return mask_ragged(values, mask_value)


def mask_ragged(data: Any, mask: Any) -> Any:
    """Compute `boolean_mask` for converted arguments."""
    rank = static_rank(mask)
    assert rank is not None
    if rank == 1:
        if not isinstance(data, RaggedTensor):
            return masks.boolean_mask(data, mask)
        positions = out("Squeeze", [out("Where", [mask])], {"squeeze_dims": [1]})
        return gather_rows(data, positions)
    dtype = dtypes.int64
    mask = uniform_levels(_widen_splits(mask), 1, dtype)
    data = uniform_levels(_widen_splits(data), 1, dtype)
    checks = encodings.Checks(validate=True)
    if data.row_splits is not mask.row_splits:
        a, b = (
            encodings.Encoding(data.row_splits, "data"),
            encodings.Encoding(mask.row_splits, "mask"),
        )
        checks.require("mask and data must have equal row splits", encodings.equal, a, b)
    inner = checks.after_checks(mask.values)
    if rank > 2:
        return data.with_values(mask_ragged(data.values, inner))
    kept_values = mask_ragged(data.values, inner)
    counts = segments_by("UnsortedSegmentSum")(
        out("Cast", [inner], {"DstT": dtype}), mask.levels[0].ids(), mask.nrows()
    )
    return RaggedTensor(kept_values, encodings.from_lengths(counts, kept_values, False))


def _widen_splits(value: Any) -> Any:
    return value.with_row_splits_dtype(dtypes.int64) if isinstance(value, RaggedTensor) else value


def stack(values: Any, axis: int = 0, name: str | None = None) -> Any:
    """Stack tensors of rank R along a new axis to a RaggedTensor of rank R + 1.

    Args:
      values: Tensors or RaggedTensors of the same type and rank; their sizes may differ.
      axis: index of the new axis, in [-(R + 1), R].
      name: name scope of the nodes.
    Returns: a RaggedTensor; a Tensor if the values have rank 0.
    Raises: InvalidArgumentError: there are no values, ranks differ, or `axis` is out of range.

    Examples:
      >>> wf.Session().run(wf.ragged.stack([[1, 2], [3]])).to_list()
      [[1, 2], [3]]
    """
    if not isinstance(values, list | tuple):
        values = [values]
    if not values:
        raise errors.InvalidArgumentError("stack requires at least one value")
    with get_default_graph().name_scope(name or "RaggedStack"):
        return stack_ragged(list(values), axis)


def stack_dynamic_partitions(
    data: Any, partitions: Any, num_partitions: Any, name: str | None = None
) -> RaggedTensor:
    """Group rows by partition: row i of the result has the rows of `data` in partition i.

    Args:
      data: Tensor or RaggedTensor, whose shape begins with that of `partitions`.
      partitions: int32 or int64, in [0, num_partitions), Tensor or RaggedTensor.
      num_partitions: integer, shape ().
      name: name scope of the nodes.
    Raises: InvalidArgumentError: the shapes do not match; or, at run time, a partition is out of
      range.

    Examples:
      >>> sorted_by = wf.ragged.stack_dynamic_partitions(["a", "b", "c"], [1, 0, 1], 3)
      >>> wf.Session().run(sorted_by).to_list()
      [[b'b'], [b'a', b'c'], []]
    """
    with get_default_graph().name_scope(name or "SegmentStack"):
        values, numbers_of_rows = ragged_or_tensor(data), ragged_or_tensor(partitions)
        while isinstance(numbers_of_rows, RaggedTensor):
            if not isinstance(values, RaggedTensor):
                values = uniform_levels(values, 1, numbers_of_rows.row_splits.dtype.base_dtype)
            checks = encodings.Checks(validate=True)
            a, b = (
                encodings.Encoding(values.row_splits, "data"),
                encodings.Encoding(numbers_of_rows.row_splits, "ids"),
            )
            encodings.unify_types(a, b)
            if a.output is not b.output:
                checks.require("data and partitions must have equal rows", encodings.equal, a, b)
            values, numbers_of_rows = values.values, checks.after_checks(numbers_of_rows.values)
        rank = static_rank(numbers_of_rows)
        if rank is None:
            raise errors.InvalidArgumentError("partitions must have a known rank")
        if rank == 0:
            values, numbers_of_rows, rank = (
                expand_first_axis(values, dtypes.int64),
                shapes.expand_dims(numbers_of_rows, 0),
                1,
            )
        if isinstance(values, Output) and values.dims is not None:
            _check_begins(values.dims, numbers_of_rows)
        if isinstance(values, Output) and values.dims is None:
            inner = shapes.shape(values)[rank:]
            values, rank = shapes.reshape(values, join.concat([[-1], inner], 0)), 1
        for _ in builtins.range(rank - 1):
            values = uniform_levels(values, 1, dtypes.int64).values
        numbers = encodings.Encoding(shapes.reshape(numbers_of_rows, [-1]), "partitions")
        count = encodings.Encoding(num_partitions, "num_partitions", 0)
        encodings.unify_types(numbers, count)
        checks = encodings.Checks(validate=True)
        message = "partitions must be in [0, num_partitions)"
        checks.require(message, lambda p, n: (p >= 0) & (p < n), numbers, count)
        ids = checks.after(numbers)
        order = argsort(ids, stable=True)
        unit_values = out("OnesLike", [ids])
        lengths = segments_by("UnsortedSegmentSum")(unit_values, ids, count.output)
        rows_in_order = (
            gather_rows(values, order)
            if isinstance(values, RaggedTensor)
            else out("GatherV2", [values, order, 0])
        )
        return RaggedTensor(rows_in_order, encodings.from_lengths(lengths, rows_in_order, False))


def _check_begins(dims: tuple[int | None, ...], partitions: Output) -> None:
    if not compatible_dims(dims[: len(partitions.dims or ())], partitions.dims):
        raise errors.InvalidArgumentError(
            "the shape of data must begin with that of partitions, got "
            f"{format_dims(dims)} and {format_dims(partitions.dims)}"
        )


def row_splits_to_segment_ids(splits: Any, name: str | None = None, out_type: Any = None) -> Output:
    """Return the row of each value from row splits.

    Args:
      splits: int32 or int64, shape (nrows + 1,), ascending from 0.
      name: name scope of the nodes.
      out_type: int32 or int64; defaults to that of `splits`.
    Returns: shape (splits[-1],).
    Raises: InvalidTypeError: `splits` have another type.

    Examples:
      >>> wf.Session().run(wf.ragged.row_splits_to_segment_ids([0, 2, 2, 3]))
      array([0, 0, 2])
    """
    with get_default_graph().name_scope(name or "RaggedSplitsToSegmentIds"):
        splits_part = encodings.Encoding(splits, "splits")
        if splits_part.output.dims == (0,):
            raise errors.InvalidArgumentError("splits must have at least one element, got none")
        segment_ids = ids_of(splits_part.output)
        return segment_ids if out_type is None else casting.cast(segment_ids, out_type)


def segment_ids_to_row_splits(
    segment_ids: Any, num_segments: Any = None, out_type: Any = None, name: str | None = None
) -> Output:
    """Return row splits from the row of each value.

    Args:
      segment_ids: int32 or int64, shape (n,), in any order; negative ones are ignored.
      num_segments: number of rows, shape (); the largest id plus one by default.
      out_type: int32 or int64; defaults to that of the ids.
      name: name scope of the nodes.
    Returns: shape (num_segments + 1,).
    Raises: InvalidTypeError: `segment_ids` have another type.

    Examples:
      >>> wf.Session().run(wf.ragged.segment_ids_to_row_splits([0, 0, 2]))
      array([0, 2, 2, 3])
    """
    with get_default_graph().name_scope(name or "SegmentIdsToRaggedSplits"):
        ids = encodings.Encoding(segment_ids, "segment_ids")
        count = (
            None if num_segments is None else encodings.Encoding(num_segments, "num_segments", 0)
        )
        encodings.unify_types(ids, count)
        unit = constant_of(np.array(1, ids.dtype.numpy))
        last = join.concat([shapes.reshape(unit, [1]) - 2, ids.output], 0)
        rows = reduction.reduce_max(last) + 1 if count is None else count.output
        unit_values = out("ZerosLike", [ids.output]) + unit
        splits = encodings.splits_of(out("UnsortedSegmentSum", [unit_values, ids.output, rows]))
        return splits if out_type is None else casting.cast(splits, out_type)


makers.register("boolean_mask", boolean_mask)
