"""Kernels that gather, scatter and sort elements by index."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from weft_exec.kernels import rows, scatter
from weft_exec.kernels.array import fill_tensor, to_sizes
from weft_exec.kernels.common import LARGE, constant_input, new_array
from weft_exec.kernels.registry import ARRAY_DEVICE, KernelFunction, kernel
from weft_graph.ops.gather import check_bounds
from weft_graph.ops.shape_rules import normal_axis
from weft_tensor import errors
from weft_tensor.shape import format_dims

if TYPE_CHECKING:
    from weft_exec.devices.device import Device
    from weft_graph.ir.node import Node

Array = np.ndarray[Any, Any]

_UNSIGNED = {4: np.uint32, 8: np.uint64}

# --------------------------------------------------------------------------------- gather


def check_indices(indices: Any, size: int) -> None:
    """Raise InvalidArgumentError unless all indices are in [0, size).

    Interpreted as unsigned, negative indices are the largest numbers, so one maximum finds both
    kinds.
    """
    if indices.size and indices.view(_UNSIGNED[indices.dtype.itemsize]).max() >= size:
        check_bounds(indices, size)


def take(params: Any, indices: Any, axis: int, device: Device) -> Any:
    """Return slices of `params` along an axis."""
    size = params.shape[axis]
    if indices.ndim == 0:
        index = int(indices)
        if not 0 <= index < size:
            check_bounds(np.asarray(indices), size)
        key = (slice(None),) * axis + (index,)
        return params[(*key, ...)] if params.dtype.kind == "O" else params[key]
    check_indices(indices, size)
    shape = (*params.shape[:axis], *indices.shape, *params.shape[axis + 1 :])
    count = params.dtype.itemsize
    for n in shape:
        count *= n
    if count <= LARGE or params.dtype.kind == "O":
        return params.take(indices, axis)
    return params.take(indices, axis, out=device.empty(shape, params.dtype), mode="clip")


def _make_take(device: Device) -> Callable[[Any, Any, int, Device], Any]:
    return take if device.xp is np else rows.take


@kernel("Gather", device=ARRAY_DEVICE, alias=True)
def _gather(node: Node, device: Device) -> KernelFunction:
    take = _make_take(device)

    def run(params: Any, indices: Any) -> Any:
        normal_axis(0, params.ndim)
        return take(params, indices, 0, device)

    return run


@kernel("GatherV2", device=ARRAY_DEVICE, host=("axis",), alias=True)
def _gather_v2(node: Node, device: Device) -> KernelFunction:
    take = _make_take(device)
    batch: int = node.attrs["batch_dims"]
    axis_value = constant_input(node, 2)
    index = -1 if axis_value is None else int(axis_value.reshape(-1)[0])
    if not batch and index >= 0 and node.inputs[0].dims is not None:
        normal_axis(index, len(node.inputs[0].dims))

        def run_static(params: Any, indices: Any, axis: Any) -> Any:
            return take(params, indices, index, device)

        return run_static

    def run(params: Any, indices: Any, axis: Any) -> Any:
        axis_index = normal_axis(axis.item(), params.ndim)
        if not batch:
            return take(params, indices, axis_index, device)
        return _take_batched(params, indices, axis_index, batch, device)

    return run


def _take_batched(params: Any, indices: Any, axis: int, batch: int, device: Device) -> Any:
    if not -indices.ndim <= batch <= indices.ndim:
        raise errors.InvalidArgumentError(
            f"batch_dims must be in [{-indices.ndim}, {indices.ndim}], got {batch}"
        )
    b = batch + indices.ndim if batch < 0 else batch
    if b > axis or params.shape[:b] != indices.shape[:b]:
        raise errors.InvalidArgumentError(
            f"params and indices must share the first {b} sizes, and axis {axis} must come after "
            f"them, got shapes {format_dims(params.shape)} and {format_dims(indices.shape)}"
        )
    if device.xp is not np:
        return rows.take_batched(params, indices, axis, b, device)
    check_indices(indices, params.shape[axis])
    grid = np.ogrid[tuple([slice(n) for n in indices.shape])]
    transposed = np.moveaxis(params, axis, b)
    selected = transposed[(*grid[:b], indices, ...)]
    inner, middle = indices.ndim - b, axis - b
    order = [*range(b), *range(b + inner, b + inner + middle), *range(b, b + inner)]
    order += range(len(order), selected.ndim)
    result = new_array(device, tuple([selected.shape[i] for i in order]), params.dtype)
    result[...] = selected.transpose(order)
    return result


def columns_of(indices: Any, shape: tuple[int, ...]) -> tuple[Any, ...]:
    """Split the last axis of `indices` into checked index arrays for a tensor of `shape`.

    Raises: InvalidArgumentError: the vectors are too long, or an index is out of range.
    """
    if indices.ndim < 1 or indices.shape[-1] > len(shape):
        raise errors.InvalidArgumentError(
            f"indices must address at most {len(shape)} axes of shape {format_dims(shape)}, got "
            f"shape {format_dims(indices.shape)}"
        )
    columns = [indices[..., i].copy() for i in range(indices.shape[-1])]
    for i, (column, size) in enumerate(zip(columns, shape, strict=False)):
        if column.size and column.view(_UNSIGNED[column.dtype.itemsize]).max() >= size:
            check_bounds(column, size, f"indices[..., {i}]")
    return tuple(columns)


@kernel("GatherNd", device=ARRAY_DEVICE)
def _gather_nd(node: Node, device: Device) -> KernelFunction:
    if device.xp is not np:
        return lambda params, indices: rows.take_points(params, indices, device)

    def run(params: Any, indices: Any) -> Any:
        columns = columns_of(indices, params.shape)
        if columns:
            return params[(*columns, ...)]
        shape = (*indices.shape[:-1], *params.shape)
        result = new_array(device, shape, params.dtype)
        result[...] = params
        return result

    return run


# -------------------------------------------------------------------------------- scatter


def _rows_of(xp: Any, indices: Any, shape: tuple[int, ...]) -> tuple[Any, int]:
    """Return the numbers of the slices at some points, and the total number of slices."""
    if xp is not np:
        result, count = rows.rows_of_points(xp, indices, shape)
        return result.reshape(-1), count
    columns, count = columns_of(indices, shape), 1
    result = np.zeros(indices.shape[:-1], np.int64)
    for column, size in zip(columns, shape, strict=False):
        result = result * size + column
        count *= size
    return result.reshape(-1), count


def _flatten_updates(xp: Any, target: Any, indices: Any, updates: Any) -> tuple[Any, Any, Any]:
    """Return the target and the updates as rows, and the row number of each update."""
    ids, count = _rows_of(xp, indices, target.shape)
    remaining = target.shape[indices.shape[-1] :]
    expected = (*indices.shape[:-1], *remaining)
    if updates.shape != expected:
        raise errors.InvalidArgumentError(
            f"updates must have shape {format_dims(expected)}, got {format_dims(updates.shape)}"
        )
    inner = 1
    for n in remaining:
        inner *= n
    return target.reshape(count, inner), ids, xp.asarray(updates).reshape(ids.size, inner)


def _make_combiner(xp: Any, combine: np.ufunc) -> Callable[[Any, Any, Any], None]:
    """Return a function that combines rows with updates."""
    if xp is np:
        return scatter.make_scatter(combine)
    if combine is np.add or combine is np.logical_or:
        return partial(rows.add_rows, xp)
    if combine is np.subtract:
        return lambda target, ids, updates: rows.add_rows(xp, target, ids, -updates)
    return rows.make_row_writer(xp, "Max" if combine is np.maximum else "Min")


@kernel("ScatterNd", device=ARRAY_DEVICE, host=("shape",))
def _scatter_nd(node: Node, device: Device) -> KernelFunction:
    dtype, xp = node.outputs[0].dtype.numpy, device.xp
    combining = _make_combiner(xp, np.logical_or if dtype.kind == "b" else np.add)
    zero = b"" if dtype.kind == "O" else dtype.type(0)

    def run(indices: Any, updates: Any, shape: Any) -> Any:
        sizes = to_sizes(shape)
        if any(size < 0 for size in sizes):
            raise errors.InvalidArgumentError(f"sizes must be at least 0, got {list(sizes)}")
        result = xp.asarray(fill_tensor(device, sizes, zero, dtype))
        combining(*_flatten_updates(xp, result, indices, updates))
        return result

    return run


_COMBINE: dict[str, np.ufunc] = {
    "TensorScatterAdd": np.add,
    "ScatterNdNonAliasingAdd": np.add,
    "TensorScatterSub": np.subtract,
    "TensorScatterMax": np.maximum,
    "TensorScatterMin": np.minimum,
}


@kernel(*_COMBINE, device=ARRAY_DEVICE)
def _tensor_scatter(node: Node, device: Device) -> KernelFunction:
    xp = device.xp
    combining = _make_combiner(xp, _COMBINE[node.type])

    def run(tensor: Any, indices: Any, updates: Any) -> Any:
        result = new_array(device, tensor.shape, tensor.dtype)
        result[...] = tensor
        combining(*_flatten_updates(xp, result, indices, updates))
        return result

    return run


@kernel("TensorScatterUpdate", device=ARRAY_DEVICE)
def _tensor_scatter_update(node: Node, device: Device) -> KernelFunction:
    xp = device.xp
    set_rows = scatter.set_rows if xp is np else rows.make_row_writer(xp, "Update")

    def run(tensor: Any, indices: Any, updates: Any) -> Any:
        result = new_array(device, tensor.shape, tensor.dtype)
        result[...] = tensor
        set_rows(*_flatten_updates(xp, result, indices, updates))
        return result

    return run


# -------------------------------------------------------------------- partition and stitch


@kernel("DynamicPartition", device=ARRAY_DEVICE)
def _dynamic_partition(node: Node, device: Device) -> KernelFunction:
    xp, count = device.xp, node.attrs["num_partitions"]

    def run(data: Any, partitions: Any) -> Any:
        rank = partitions.ndim
        if data.shape[:rank] != partitions.shape:
            raise errors.InvalidArgumentError(
                f"data's shape must start with that of partitions, "
                f"{format_dims(partitions.shape)}, got {format_dims(data.shape)}"
            )
        numbers = xp.asarray(partitions).reshape(-1)
        if xp is np and numbers.size and (numbers.min() < 0 or numbers.max() >= count):
            check_bounds(np.asarray(partitions), count, "partitions")
        order = xp.argsort(numbers, kind="stable")
        rows = xp.asarray(data).reshape(numbers.size, *data.shape[rank:])
        ordered = xp.take(rows, order, axis=0)
        starts = xp.searchsorted(numbers[order], xp.arange(count + 1, dtype=numbers.dtype))
        parts = [ordered[start:end] for start, end in pairwise(starts.tolist())]
        return tuple(parts) if count > 1 else parts[0]

    return run


@kernel("DynamicStitch", "ParallelDynamicStitch", device=ARRAY_DEVICE)
def _dynamic_stitch(node: Node, device: Device) -> KernelFunction:
    xp = device.xp
    set_rows = scatter.set_rows if xp is np else rows.make_row_writer(xp, "Update")
    count: int = node.attrs["N"]
    dtype = node.outputs[0].dtype.numpy
    zero = b"" if dtype.kind == "O" else dtype.type(0)

    def run(*inputs: Any) -> Any:
        indices, data = inputs[:count], inputs[count:]
        size = 1 + max([int(index.max()) for index in indices if index.size], default=-1)
        if size < 0:
            raise errors.InvalidArgumentError(f"indices must be at least 0, got {size - 1}")
        inner = data[0].shape[indices[0].ndim :]
        result = xp.asarray(fill_tensor(device, (size, *inner), zero, dtype))
        for index, part in zip(indices, data, strict=True):
            if part.shape != (*index.shape, *inner):
                raise errors.InvalidArgumentError(
                    f"data must have shape {format_dims((*index.shape, *inner))} for indices of "
                    f"shape {format_dims(index.shape)}, got {format_dims(part.shape)}"
                )
            if xp is np and index.size and index.min() < 0:
                check_bounds(np.asarray(index), size)
            set_rows(
                result, xp.asarray(index).reshape(-1), xp.asarray(part).reshape(index.size, *inner)
            )
        return result

    return run


# -------------------------------------------------------------------- one-hot and positions


@kernel("OneHot", device=ARRAY_DEVICE, host=("depth",))
def _one_hot(node: Node, device: Device) -> KernelFunction:
    xp, axis = device.xp, node.attrs["axis"]
    dtype = node.outputs[0].dtype.numpy

    def run(indices: Any, depth: Any, on_value: Any, off_value: Any) -> Any:
        size = int(depth)
        if size < 0:
            raise errors.InvalidArgumentError(f"depth must be at least 0, got {size}")
        index = normal_axis(axis, indices.ndim + 1)
        if xp is not np:  # places that are few would have to be waited for
            classes = xp.arange(size).reshape(-1, *(1,) * (indices.ndim - index))
            return xp.where(xp.expand_dims(indices, index) == classes, on_value, off_value)
        shape = indices.shape
        result = np.asarray(
            fill_tensor(device, (*shape[:index], size, *shape[index:]), off_value, dtype)
        )
        num_leading, num_trailing = 1, 1
        for n in shape[:index]:
            num_leading *= n
        for n in shape[index:]:
            num_trailing *= n
        table = np.asarray(indices).reshape(num_leading, num_trailing)
        i, j = np.nonzero((table >= 0) & (table < size))
        result.reshape(num_leading, size, num_trailing)[i, table[i, j], j] = (
            on_value[()] if on_value.ndim == 0 else on_value
        )
        return result

    return run


@kernel("Where", device=ARRAY_DEVICE)
def _where(node: Node, device: Device) -> KernelFunction:
    argwhere = device.xp.argwhere
    return lambda x: argwhere(x).astype(np.int64, copy=False)
