"""GPU kernels that pick, place and sort elements by index, and reductions by segment.

What is out of range raises no error, as it would cost a wait for the device: picked elements are 0,
and placed ones are dropped, as on the GPUs of TensorFlow.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from weft_exec.gpu.element_types import INEXACT, INTEGERS, REAL
from weft_exec.gpu.kernels.scatter import add_rows, rows_of_points, set_rows
from weft_exec.kernels.array import sizes_of
from weft_exec.kernels.registry import KernelFunction, kernel
from weft_graph.ops.shape_rules import normal_axis
from weft_tensor import errors
from weft_tensor.shape import format_dims

if TYPE_CHECKING:
    from weft_exec.devices.device import Device
    from weft_graph.ir.node import Node

_SUMMED = {"T": (*INEXACT, *INTEGERS)}


def take(xp: Any, params: Any, indices: Any, axis: int) -> Any:
    """Slices of `params` along an axis; zeros for indices out of range."""
    size = params.shape[axis]
    shape = (*params.shape[:axis], *indices.shape, *params.shape[axis + 1 :])
    if not size or not indices.size:
        return xp.zeros(shape, params.dtype)
    inside = (indices >= 0) & (indices < size)
    found = xp.take(params, xp.where(inside, indices, indices.dtype.type(0)), axis=axis)
    around = (1,) * axis + indices.shape + (1,) * (params.ndim - axis - 1)
    return xp.where(inside.reshape(around), found, xp.zeros((), params.dtype))


@kernel("Gather", device="GPU")
def _gather(node: Node, device: Device) -> KernelFunction:
    def run(params: Any, indices: Any) -> Any:
        normal_axis(0, params.ndim)
        return take(device.xp, params, indices, 0)

    return run


@kernel("GatherV2", device="GPU", host=("axis",))
def _gather_v2(node: Node, device: Device) -> KernelFunction:
    batch: int = node.attrs["batch_dims"]
    xp = device.xp

    def run(params: Any, indices: Any, axis: Any) -> Any:
        at = normal_axis(int(axis), params.ndim)
        if not batch:
            return take(xp, params, indices, at)
        b = batch + indices.ndim if batch < 0 else batch
        if not 0 <= b <= min(at, indices.ndim) or params.shape[:b] != indices.shape[:b]:
            raise errors.InvalidArgumentError(
                f"params and indices must share the first {b} sizes, and axis {at} must come "
                f"after them, got shapes {format_dims(params.shape)} and "
                f"{format_dims(indices.shape)}"
            )
        return gather_batched(xp, params, indices, at, b)

    return run


def gather_batched(xp: Any, params: Any, indices: Any, axis: int, batch: int) -> Any:
    """`take` along an axis within each of the batches."""
    moved = xp.moveaxis(params, axis, batch)
    lead = moved.shape[:batch]
    count = int(np.prod(lead, dtype=np.int64))
    size, rest = moved.shape[batch], moved.shape[batch + 1 :]
    base = (xp.arange(count) * size).reshape(*lead, *(1,) * (indices.ndim - batch))
    wide = indices.astype(np.int64)
    at = xp.where((wide >= 0) & (wide < size), wide + base, -1)
    picked = take(xp, moved.reshape(count * size, *rest), at, 0)
    middle, inner = axis - batch, indices.ndim - batch
    order = [*range(batch), *range(batch + inner, batch + inner + middle)]
    order += [*range(batch, batch + inner), *range(batch + inner + middle, picked.ndim)]
    return xp.ascontiguousarray(picked.transpose(order)) if picked.ndim else picked


@kernel("GatherNd", device="GPU")
def _gather_nd(node: Node, device: Device) -> KernelFunction:
    return lambda params, indices: gather_nd(device.xp, params, indices)


def gather_nd(xp: Any, params: Any, indices: Any) -> Any:
    """Slices of `params` at points."""
    rows, count = rows_of_points(xp, indices, params.shape)
    depth = indices.shape[-1]
    return take(xp, params.reshape(count, *params.shape[depth:]), rows, 0)


# -------------------------------------------------------------------------------- scatter


def _checked(indices: Any, updates: Any, shape: tuple[int, ...]) -> None:
    wanted = (*indices.shape[:-1], *shape[indices.shape[-1] :])
    if updates.shape != wanted:
        raise errors.InvalidArgumentError(
            f"updates must have shape {format_dims(wanted)}, got {format_dims(updates.shape)}"
        )


@kernel("ScatterNd", device="GPU", host=("shape",), dtypes=_SUMMED)
def _scatter_nd(node: Node, device: Device) -> KernelFunction:
    xp, dtype = device.xp, node.outputs[0].dtype.numpy

    def run(indices: Any, updates: Any, shape: Any) -> Any:
        sizes = sizes_of(shape)
        if any(size < 0 for size in sizes):
            raise errors.InvalidArgumentError(f"sizes must be at least 0, got {list(sizes)}")
        result = xp.zeros(sizes, dtype)
        _add_points(xp, result, indices, updates)
        return result

    return run


def _add_points(xp: Any, target: Any, indices: Any, updates: Any) -> None:
    rows, count = rows_of_points(xp, indices, target.shape)
    _checked(indices, updates, target.shape)
    inner = target.shape[indices.shape[-1] :]
    flat = rows.reshape(-1)
    add_rows(xp, target.reshape(count, *inner), flat, updates.reshape(flat.size, *inner))


@kernel(
    "TensorScatterAdd", "ScatterNdNonAliasingAdd", "TensorScatterSub", device="GPU", dtypes=_SUMMED
)
def _tensor_scatter(node: Node, device: Device) -> KernelFunction:
    xp, subtracts = device.xp, node.type == "TensorScatterSub"

    def run(tensor: Any, indices: Any, updates: Any) -> Any:
        result = tensor.copy()
        _add_points(xp, result, indices, -updates if subtracts else updates)
        return result

    return run


@kernel("TensorScatterUpdate", device="GPU")
def _tensor_scatter_update(node: Node, device: Device) -> KernelFunction:
    xp = device.xp

    def run(tensor: Any, indices: Any, updates: Any) -> Any:
        result = tensor.copy()
        rows, count = rows_of_points(xp, indices, tensor.shape)
        _checked(indices, updates, tensor.shape)
        inner, flat = tensor.shape[indices.shape[-1] :], rows.reshape(-1)
        set_rows(xp, result.reshape(count, *inner), flat, updates.reshape(flat.size, *inner))
        return result

    return run


# ---------------------------------------------------------------- partition, stitch, one-hot


@kernel("DynamicPartition", device="GPU")
def _dynamic_partition(node: Node, device: Device) -> KernelFunction:
    count: int = node.attrs["num_partitions"]
    xp = device.xp

    def run(data: Any, partitions: Any) -> Any:
        rank = partitions.ndim
        if data.shape[:rank] != partitions.shape:
            raise errors.InvalidArgumentError(
                f"data's shape must start with that of partitions, "
                f"{format_dims(partitions.shape)}, got {format_dims(data.shape)}"
            )
        numbers = partitions.reshape(-1)
        rows = data.reshape(numbers.size, *data.shape[rank:])
        parts = [rows[xp.nonzero(numbers == i)[0]] for i in range(count)]
        return tuple(parts) if count > 1 else parts[0]

    return run


@kernel("DynamicStitch", "ParallelDynamicStitch", device="GPU")
def _dynamic_stitch(node: Node, device: Device) -> KernelFunction:
    count: int = node.attrs["N"]
    xp, dtype = device.xp, node.outputs[0].dtype.numpy

    def run(*inputs: Any) -> Any:
        indices, data = inputs[:count], inputs[count:]
        size = 1 + max([int(xp.max(which)) for which in indices if which.size], default=-1)
        inner = data[0].shape[indices[0].ndim :]
        result = xp.zeros((size, *inner), dtype)
        for which, part in zip(indices, data, strict=True):
            if part.shape != (*which.shape, *inner):
                raise errors.InvalidArgumentError(
                    f"data must have shape {format_dims((*which.shape, *inner))} for indices of "
                    f"shape {format_dims(which.shape)}, got {format_dims(part.shape)}"
                )
            set_rows(xp, result, which.reshape(-1), part.reshape(which.size, *inner))
        return result

    return run


@kernel("OneHot", device="GPU", host=("depth",))
def _one_hot(node: Node, device: Device) -> KernelFunction:
    axis: int = node.attrs["axis"]
    xp = device.xp

    def run(indices: Any, depth: Any, on: Any, off: Any) -> Any:
        size = int(depth)
        if size < 0:
            raise errors.InvalidArgumentError(f"depth must be at least 0, got {size}")
        at = normal_axis(axis, indices.ndim + 1)
        classes = xp.arange(size).reshape(-1, *(1,) * (indices.ndim - at))
        return xp.where(xp.expand_dims(indices, at) == classes, on, off)

    return run


@kernel("Where", device="GPU")
def _where(node: Node, device: Device) -> KernelFunction:
    xp = device.xp

    def run(x: Any) -> Any:
        if not x.ndim:
            return xp.zeros((int(bool(x)), 0), np.int64)
        return xp.stack(list(xp.nonzero(x)), axis=1)

    return run


@kernel("TopK", device="GPU", dtypes={"T": (*REAL, *INTEGERS)})
@kernel("TopKV2", device="GPU", host=("k",), dtypes={"T": (*REAL, *INTEGERS)})
def _top_k(node: Node, device: Device) -> KernelFunction:
    xp: Any = device.xp
    fixed: Any = node.attrs.get("k")

    def run(x: Any, *given: Any) -> Any:
        k = int(given[0]) if given else int(fixed)
        if x.ndim == 0 or not 0 <= k <= x.shape[-1]:
            raise errors.InvalidArgumentError(
                f"k must be in [0, {x.shape[-1] if x.ndim else 0}], the size of the last axis of "
                f"{format_dims(x.shape)}, got {k}"
            )
        # Stable from the end, so that of equal elements the first comes first.
        order = x.shape[-1] - 1 - xp.argsort(x[..., ::-1], axis=-1, kind="stable")[..., ::-1]
        chosen = order[..., :k]
        return xp.take_along_axis(x, chosen, axis=-1), chosen

    return run


# ------------------------------------------------------------------------------- segments


@kernel("UnsortedSegmentSum", device="GPU", host=("num_segments",), dtypes=_SUMMED)
def _unsorted_segment_sum(node: Node, device: Device) -> KernelFunction:
    xp = device.xp

    def run(data: Any, ids: Any, num: Any) -> Any:
        count = int(num)
        if count < 0:
            raise errors.InvalidArgumentError(f"num_segments must be at least 0, got {count}")
        if data.shape[: ids.ndim] != ids.shape:
            raise errors.InvalidArgumentError(
                "the shape of data must start with that of segment_ids, got "
                f"{list(data.shape)} and {list(ids.shape)}"
            )
        inner = data.shape[ids.ndim :]
        result = xp.zeros((count, *inner), data.dtype)
        add_rows(xp, result, ids.reshape(-1), data.reshape(ids.size, *inner))
        return result

    return run


@kernel("SegmentSum", "SegmentMean", device="GPU", dtypes={"T": INEXACT})
def _segment_sum(node: Node, device: Device) -> KernelFunction:
    xp, mean = device.xp, node.type == "SegmentMean"

    def run(data: Any, ids: Any) -> Any:
        if data.ndim == 0 or ids.ndim != 1 or data.shape[0] != ids.shape[0]:
            raise errors.InvalidArgumentError(
                f"data and segment_ids must have as many rows, got shapes {list(data.shape)} and "
                f"{list(ids.shape)}"
            )
        count = int(ids[-1]) + 1 if ids.size else 0
        result = xp.zeros((count, *data.shape[1:]), data.dtype)
        add_rows(xp, result, ids, data)
        if mean and count:
            rows = xp.maximum(xp.bincount(ids, minlength=count), 1)
            result = result / rows.astype(data.dtype).reshape(-1, *(1,) * (data.ndim - 1))
        return result

    return run
