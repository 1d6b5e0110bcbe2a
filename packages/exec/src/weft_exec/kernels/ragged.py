"""Kernels of ragged tensors, which are flat values with the row splits of each level."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from weft_exec.kernels.common import Array, new_array
from weft_exec.kernels.registry import KernelFunction, kernel
from weft_exec.kernels.string_rows import check_splits
from weft_graph.ir.variants import RaggedVariant
from weft_graph.ops.ragged import FIRST_DIM_SIZE, ROW_LENGTHS, VALUE_ROWIDS, check_kinds
from weft_tensor import errors
from weft_tensor.shape import format_dims

if TYPE_CHECKING:
    from weft_exec.devices.device import Device
    from weft_graph.ir.node import Node

_MOST = 2.0**62
"""Maximum of counts, so that sums do not overflow."""

# --------------------------------------------------------------------------- what is shared


def check_levels(splits: Sequence[Array], count: int) -> list[Array]:
    """Return the splits of all levels, checked against each other and against the number of values.

    Raises: InvalidArgumentError: the splits do not match.
    """
    for i, item in enumerate(splits):
        inner = splits[i + 1] if i + 1 < len(splits) else None
        if inner is not None and (inner.ndim != 1 or not inner.size):
            raise errors.InvalidArgumentError(
                f"row splits must have shape [nrows + 1], got {format_dims(inner.shape)}"
            )
        check_splits(item, count if inner is None else len(inner) - 1)
    return list(splits)


def row_ids(lengths: Array) -> Array:
    """Return the row of each value."""
    return np.repeat(np.arange(len(lengths)), lengths)


def consecutive_positions(starts: Array, lengths: Array) -> Any:
    """Return consecutive positions from each start, as many as the length, row by row."""
    ends = np.cumsum(lengths)
    total = int(ends[-1]) if len(ends) else 0
    return np.arange(total) + np.repeat(starts - (ends - lengths), lengths)


# --------------------------------------------------------------------------- ranges


@kernel("RaggedRange")
def _range(node: Node, device: Device) -> KernelFunction:
    splits_type = node.attrs["Tsplits"].numpy

    def run(starts: Any, limits: Any, deltas: Any) -> Any:
        parts = _rows_of_bounds(starts, limits, deltas)
        lengths = _lengths(*parts)
        ends = np.concatenate([[0], np.cumsum(lengths)])
        if ends[-1] > np.iinfo(splits_type).max:
            raise errors.InvalidArgumentError(
                f"{ends[-1]} values exceed the range of splits of type {splits_type}"
            )
        values = new_array(device, (int(ends[-1]),), parts[0].dtype)
        row = row_ids(lengths)
        offset = np.arange(len(values)) - ends[:-1][row]
        values[...] = parts[0][row] + offset.astype(parts[0].dtype) * parts[2][row]
        return ends.astype(splits_type), values

    return run


def _rows_of_bounds(*parts: Any) -> list[Array]:
    arrays = [np.asarray(part) for part in parts]
    sizes = {len(array) for array in arrays if array.ndim}
    if any(array.ndim > 1 for array in arrays) or len(sizes) > 1:
        shapes = ", ".join(format_dims(array.shape) for array in arrays)
        raise errors.InvalidArgumentError(
            f"starts, limits and deltas must have the same size, or rank 0, got shapes {shapes}"
        )
    (count,) = sizes or {1}
    return [np.broadcast_to(array, (count,)) for array in arrays]


def _lengths(starts: Array, limits: Array, deltas: Array) -> Any:
    if (deltas == 0).any():
        raise errors.InvalidArgumentError(
            f"deltas must not be 0, got {deltas.tolist()[:8]} for {len(deltas)} rows"
        )
    with np.errstate(all="ignore"):
        wide = (limits.astype(np.float64) - starts) / deltas.astype(np.float64)
    total = np.maximum(np.ceil(wide), 0).sum()
    if not total < _MOST:
        raise errors.InvalidArgumentError(
            f"the ranges have {total} numbers in total, which is more than the maximum"
        )
    if starts.dtype.kind == "i":
        step = deltas.astype(np.int64)
        span = limits.astype(np.int64) - starts
        return np.maximum(-(-span // step), 0)
    return np.maximum(np.ceil(wide), 0).astype(np.int64)


# --------------------------------------------------------------------------- rows by index


@kernel("RaggedGather")
def _gather(node: Node, device: Device) -> KernelFunction:
    levels = node.attrs["PARAMS_RAGGED_RANK"]
    splits_type = node.attrs["Tsplits"].numpy

    def run(*inputs: Any) -> Any:
        values, indices = inputs[levels], np.asarray(inputs[levels + 1])
        splits = check_levels(inputs[:levels], len(values))
        rows = len(splits[0]) - 1
        flat_indices = indices.reshape(-1)
        if flat_indices.size and (flat_indices.min() < 0 or flat_indices.max() >= rows):
            bad = flat_indices[(flat_indices < 0) | (flat_indices >= rows)]
            raise errors.InvalidArgumentError(
                f"indices must be in [0, {rows}), got {int(bad[0])}",
                details={"index": int(bad[0]), "size": rows},
            )
        result = [_uniform(indices.shape, axis) for axis in range(1, indices.ndim)]
        for item in splits:
            lengths = item[flat_indices + 1] - item[flat_indices]
            result.append(np.concatenate([[0], np.cumsum(lengths)]))
            flat_indices = consecutive_positions(item[flat_indices], lengths)
        array = new_array(device, (len(flat_indices), *values.shape[1:]), values.dtype)
        np.take(values, flat_indices, axis=0, out=array, mode="clip")
        if not indices.ndim:  # a single row: its own level is removed
            result = result[1:]
        return _outputs([item.astype(splits_type) for item in result], array)

    return run


def _outputs(splits: list[Array], values: Array) -> Any:
    """Return splits and values as outputs of a kernel; a single output is not in a tuple."""
    return (*splits, values) if splits else values


def _uniform(shape: tuple[int, ...], axis: int) -> Array:
    """Return the row splits for an axis of a dense tensor."""
    count = int(np.prod(shape[:axis]))
    return np.arange(count + 1) * shape[axis]


# --------------------------------------------------------------------------- other forms


@kernel("RaggedTensorToSparse")
def _to_sparse(node: Node, device: Device) -> KernelFunction:
    levels = node.attrs["RAGGED_RANK"]

    def run(*inputs: Any) -> Any:
        values = inputs[levels]
        splits = check_levels(inputs[:levels], len(values))
        inner = values.shape[1:]
        places = _ragged_indices(splits, len(values))
        width = int(np.prod(inner))
        indices = new_array(
            device, (len(values) * width, levels + 1 + len(inner)), np.dtype(np.int64)
        )
        for axis, column in enumerate(places):
            indices[:, axis] = np.repeat(column, width)
        grid = np.indices(inner).reshape(len(inner), width)
        indices[:, levels + 1 :] = np.tile(grid.T, (len(values), 1))
        longest = [int(np.diff(item).max(initial=0)) for item in splits]
        shape = np.array([len(splits[0]) - 1, *longest, *inner], np.int64)
        return indices, values.flatten(), shape

    return run


def _ragged_indices(splits: Sequence[Array], count: int) -> list[Array]:
    """Return the indices of each flat value along the first axis and all ragged axes."""
    row = np.arange(count)
    indices = []
    for item in reversed(splits):
        owner = row_ids(np.diff(item))[row]
        indices.append(row - item[owner])
        row = owner
    return [row, *reversed(indices)]


@kernel("RaggedTensorToTensor")
def _to_tensor(node: Node, device: Device) -> KernelFunction:
    kinds = [k.decode() if isinstance(k, bytes) else k for k in node.attrs["row_partition_types"]]
    check_kinds(kinds, len(kinds))

    def run(shape: Any, values: Any, default: Any, *partitions: Any) -> Any:
        default = np.asarray(default)
        splits = _splits_of(kinds, partitions, len(values))
        inner = values.shape[1:]
        longest = [int(np.diff(item).max(initial=0)) for item in splits]
        sizes = _sizes(shape, [len(splits[0]) - 1, *longest, *inner], len(splits) + 1)
        if not _can_broadcast(default.shape, inner):
            raise errors.InvalidArgumentError(
                f"default_value must broadcast to {format_dims(inner)}, got shape "
                f"{format_dims(default.shape)}"
            )
        result = new_array(device, tuple(sizes), values.dtype)
        result[...] = default
        indices = _ragged_indices(splits, len(values))
        is_valid = np.ones(len(values), np.bool_)
        for column, size in zip(indices, sizes, strict=False):
            is_valid &= column < size
        if is_valid.all():
            result[tuple(indices)] = values
        else:
            result[tuple([column[is_valid] for column in indices])] = values[is_valid]
        return result

    return run


def _can_broadcast(shape: tuple[int, ...], target: tuple[int, ...]) -> bool:
    """Return True if a shape broadcasts to another."""
    pairs = zip(reversed(shape), reversed(target), strict=False)
    return len(shape) <= len(target) and all(own_size in (1, size) for own_size, size in pairs)


def _sizes(shape: Any, sizes: list[int], outer: int) -> list[int]:
    """Return the sizes of the result; by default those of the rows.

    Raises: InvalidArgumentError: the sizes have another rank, or the inner sizes differ from those
      of the values.
    """
    requested = np.asarray(shape)
    if not requested.ndim:
        if int(requested) != -1:
            raise errors.InvalidArgumentError(f"a shape of rank 0 must be -1, got {int(requested)}")
        return sizes
    if requested.ndim != 1 or len(requested) != len(sizes):
        raise errors.InvalidArgumentError(
            f"shape must have {len(sizes)} sizes, got {requested.tolist()}"
        )
    if (requested < -1).any():
        raise errors.InvalidArgumentError(f"sizes must be at least -1, got {requested.tolist()}")
    expected = [
        n if expected < 0 else int(expected)
        for expected, n in zip(requested.tolist(), sizes, strict=True)
    ]
    if expected[outer:] != sizes[outer:]:
        raise errors.InvalidArgumentError(
            f"shape must end with that of inner values, {sizes[outer:]}, got {requested.tolist()}"
        )
    return expected


def _splits_of(kinds: list[str], partitions: Sequence[Any], count: int) -> list[Array]:
    """Return the splits of all levels from row partitions of any kind.

    Raises: InvalidArgumentError: the partitions are invalid or do not match each other.
    """
    for kind, part in zip(kinds, partitions, strict=True):
        if part.size != 1 if kind == FIRST_DIM_SIZE else part.ndim != 1:
            raise errors.InvalidArgumentError(
                f"a row partition of kind {kind} cannot have the shape {format_dims(part.shape)}"
            )
    if kinds[0] != FIRST_DIM_SIZE:
        result = [
            np.concatenate([[0], np.cumsum(part)]) if kind == ROW_LENGTHS else part
            for kind, part in zip(kinds, partitions, strict=True)
        ]
        return check_levels(result, count)
    rows = int(np.asarray(partitions[0]).reshape(-1)[0])
    result = []
    for kind, part in zip(kinds[1:], partitions[1:], strict=True):
        if kind == VALUE_ROWIDS:
            result.append(_splits_by_ids(part, rows))
            rows = len(part)
        else:
            ends = np.concatenate([[0], np.cumsum(part)]) if kind == ROW_LENGTHS else part
            result.append(ends)
            rows = int(ends[-1]) if len(ends) else 0
    return check_levels(result, count)


def _splits_by_ids(ids: Array, rows: int) -> Array:
    if ids.ndim != 1 or (ids[1:] < ids[:-1]).any() or rows < 0:
        raise errors.InvalidArgumentError(
            f"value row ids must not decrease, got {ids.tolist()[:8]} for {rows} rows"
        )
    if ids.size and (ids[0] < 0 or ids[-1] >= rows):
        raise errors.InvalidArgumentError(
            f"value row ids must be in [0, {rows}), got {ids[0]} to {ids[-1]}"
        )
    return np.searchsorted(ids, np.arange(rows + 1))


# --------------------------------------------------------------------------- counts and gaps


@kernel("RaggedBincount")
def _bincount(node: Node, device: Device) -> KernelFunction:
    binary: bool = node.attrs["binary_output"]

    def run(splits: Any, values: Any, size: Any, weights: Any) -> Any:
        if values.ndim != 1 or np.size(size) != 1:
            raise errors.InvalidArgumentError(
                f"values must have rank 1 and size rank 0, got shapes {format_dims(values.shape)} "
                f"and {format_dims(np.shape(size))}"
            )
        check_splits(splits, len(values))
        width = int(np.reshape(size, ()))
        if width < 0:
            raise errors.InvalidArgumentError(f"size must not be negative, got {width}")
        if values.size and values.min() < 0:
            raise errors.InvalidArgumentError(f"values must not be negative, got {values.min()}")
        if weights.size and weights.shape != values.shape:
            raise errors.InvalidArgumentError(
                f"weights must be empty or have one element per value ({len(values)}), got shape "
                f"{format_dims(weights.shape)}"
            )
        result = new_array(device, (len(splits) - 1, width), weights.dtype)
        result[...] = 0
        row = row_ids(np.diff(splits))
        mask = values < width
        index = (row[mask], values[mask])
        if binary:
            result[index] = 1
        else:
            np.add.at(result, index, weights[mask] if weights.size else weights.dtype.type(1))
        return result

    return run


@kernel("RaggedTensorToVariant")
def _to_variant(node: Node, device: Device) -> KernelFunction:
    levels, batched = node.attrs["RAGGED_RANK"], node.attrs["batched_input"]

    def run(*inputs: Any) -> Any:
        values = np.asarray(inputs[levels])
        splits = check_levels(inputs[:levels], len(values)) if levels else []
        if not batched:
            variant = np.empty((), object)
            variant[()] = RaggedVariant([item.copy() for item in splits], values.copy())
            return variant
        if not values.ndim:
            raise errors.InvalidArgumentError(
                "values must have rank 1 or more to be a batch, got a scalar"
            )
        rows = len(splits[0]) - 1 if splits else len(values)
        result = np.empty(rows, object)
        for row in range(rows):
            result[row] = _one_row(splits, values, row)
        return result

    return run


def _one_row(splits: list[Array], values: Array, row: int) -> RaggedVariant:
    """Return one row of a ragged tensor, which has one level less."""
    if not splits:
        return RaggedVariant([], values[row].copy())
    begin, end = int(splits[0][row]), int(splits[0][row + 1])
    inner = []
    for item in splits[1:]:
        part = item[begin : end + 1]
        inner.append(part - part[0])
        begin, end = int(part[0]), int(part[-1])
    return RaggedVariant(inner, values[begin:end].copy())


@kernel("RaggedTensorFromVariant")
def _from_variant(node: Node, device: Device) -> KernelFunction:
    input_rank, result = node.attrs["input_ragged_rank"], node.attrs["output_ragged_rank"]
    dtype = node.attrs["Tvalues"].numpy
    splits_type = node.attrs["Tsplits"].numpy

    def run(encoded: Any) -> Any:
        variants = np.asarray(encoded, object)
        inner = result - variants.ndim if input_rank < 0 else input_rank
        if inner < 0 or inner + variants.ndim != result:
            raise errors.InvalidArgumentError(
                f"variants of shape {format_dims(variants.shape)} cannot be stacked to {result} "
                "ragged axes"
            )
        rows = variants.reshape(-1).tolist()
        for row in rows:
            if not isinstance(row, RaggedVariant) or len(row.splits) != inner:
                raise errors.InvalidArgumentError(
                    f"each variant must be a ragged tensor with {inner} ragged axes, got {row!r}"
                )
            if row.values.dtype != dtype:
                raise errors.InvalidArgumentError(
                    f"the values must be {dtype}, got {row.values.dtype}"
                )
        if not variants.ndim:
            (outermost,) = rows
            return _outputs(
                [item.astype(splits_type) for item in outermost.splits], outermost.values
            )
        splits = [_uniform(variants.shape, axis) for axis in range(1, variants.ndim)]
        return *[item.astype(splits_type) for item in splits], *_stack_variants(
            rows, inner, dtype, splits_type
        )

    return run


def _stack_variants(
    rows: list[RaggedVariant], inner: int, dtype: Any, splits_type: Any
) -> list[Array]:
    """Concatenate the splits and values of variants."""
    levels = [[row.splits[level] for row in rows] for level in range(inner)]
    counts = [[len(item) - 1 for item in level] for level in levels]
    counts.append([len(row.values) if row.values.ndim else 1 for row in rows])
    ends = [np.concatenate([[0], np.cumsum(count, dtype=np.int64)]) for count in counts]
    splits = [ends[0]]
    for level, inner_ends in zip(levels, ends[1:], strict=True):
        shifted = [item[1:] + start for item, start in zip(level, inner_ends[:-1], strict=True)]
        splits.append(np.concatenate([[0], *shifted]))
    shapes = {row.values.shape[1:] for row in rows}
    if len(shapes) > 1:
        raise errors.InvalidArgumentError(
            f"the inner values of all variants must have the same shape, got {sorted(shapes)}"
        )
    values = [row.values for row in rows] or [np.zeros(0, dtype)]
    return [*[item.astype(splits_type) for item in splits], np.concatenate(values)]


@kernel("RaggedFillEmptyRows")
def _fill(node: Node, device: Device) -> KernelFunction:
    def run(ids: Any, values: Any, nrows: Any, default: Any) -> Any:
        if values.shape != ids.shape or ids.ndim != 1:
            raise errors.InvalidArgumentError(
                "value_rowids and values must be vectors of the same size, got shapes "
                f"{format_dims(ids.shape)} and {format_dims(values.shape)}"
            )
        rows = int(nrows)
        _splits_by_ids(ids, rows)
        flags = new_array(device, (rows,), np.dtype(np.bool_))
        flags[...] = True
        flags[ids] = False
        empty = np.flatnonzero(flags)
        all_ids = np.concatenate([ids, empty])
        order = np.argsort(all_ids, kind="stable")
        filled = np.concatenate([values, np.full(len(empty), default, values.dtype)])
        order_back = np.empty(len(order), np.int64)
        order_back[order] = np.arange(len(order))
        return all_ids[order], filled[order], flags, order_back[: len(ids)]

    return run
