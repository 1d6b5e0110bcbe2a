"""GPU kernels that sort elements, set them apart by index, and sum them by segment."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from weft_exec.gpu.element_types import INEXACT, INTEGERS, REAL
from weft_exec.kernels.registry import KernelFunction, kernel
from weft_exec.kernels.rows import add_rows
from weft_graph.ops.shape_rules import normal_axis
from weft_tensor import errors
from weft_tensor.shape import format_dims

if TYPE_CHECKING:
    from weft_exec.devices.device import Device
    from weft_graph.ir.node import Node

_SUMMED = {"T": (*INEXACT, *INTEGERS)}


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
