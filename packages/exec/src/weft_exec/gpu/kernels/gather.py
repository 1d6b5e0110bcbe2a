"""GPU kernels that sort elements, set them apart by index, and sum them by segment."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from weft_exec.gpu.element_types import INEXACT, INTEGERS
from weft_exec.kernels.registry import KernelFunction, kernel
from weft_exec.kernels.rows import add_rows
from weft_tensor import errors

if TYPE_CHECKING:
    from weft_exec.devices.device import Device
    from weft_graph.ir.node import Node

_SUMMED = {"T": (*INEXACT, *INTEGERS)}


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
