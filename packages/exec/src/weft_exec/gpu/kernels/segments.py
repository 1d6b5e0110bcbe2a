"""GPU kernels of sums by segment; the CPU's use NumPy's `reduceat`, which CuPy does not have."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from weft_exec.gpu.element_types import INEXACT, INTEGERS
from weft_exec.kernels.registry import KernelFunction, kernel
from weft_exec.kernels.rows import add_rows
from weft_exec.kernels.segments import check_rows, flat_rows, reshape_per_row, sizes_of_segments

if TYPE_CHECKING:
    from weft_exec.devices.device import Device
    from weft_graph.ir.node import Node


@kernel(
    "UnsortedSegmentSum",
    device="GPU",
    host=("num_segments",),
    dtypes={"T": (*INEXACT, *INTEGERS)},
)
def _unsorted_segment_sum(node: Node, device: Device) -> KernelFunction:
    xp = device.xp

    def run(data: Any, ids: Any, num: Any) -> Any:
        count, rows, flat = flat_rows(data, ids, num)
        result = xp.zeros((count, *rows.shape[1:]), data.dtype)
        add_rows(xp, result, flat, rows)
        return result

    return run


@kernel("SegmentSum", "SegmentMean", device="GPU", dtypes={"T": INEXACT})
def _segment_sum(node: Node, device: Device) -> KernelFunction:
    xp, mean = device.xp, node.type == "SegmentMean"

    def run(data: Any, ids: Any) -> Any:
        check_rows(data, ids)
        count = int(ids[-1]) + 1 if ids.size else 0
        result = xp.zeros((count, *data.shape[1:]), data.dtype)
        add_rows(xp, result, ids, data)
        if mean and count:
            sizes = sizes_of_segments(xp, ids, count).astype(data.dtype)
            result = result / reshape_per_row(sizes, data.ndim)
        return result

    return run
