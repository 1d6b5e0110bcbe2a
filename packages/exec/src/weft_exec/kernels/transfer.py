"""Kernels around Send and Receive, whose values the executor transfers (`executor/transfers.py`).

They convert float32 values to 16 bits and back, for lossy transfers (paper, section 5.5).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from weft_exec.kernels.registry import ANY_DEVICE, KernelFunction, kernel
from weft_tensor import dtypes, errors

if TYPE_CHECKING:
    from weft_exec.devices.device import Device
    from weft_graph.ir.node import Node


_BFLOAT16 = dtypes.bfloat16.numpy
_FLOAT32 = np.dtype(np.float32)


@kernel("_Send", "_Recv", device=ANY_DEVICE)
def _transfer(node: Node, device: Device) -> KernelFunction:
    def run(*_: Any) -> None:
        raise errors.InternalError(f"{node.type} {node.name!r} cannot be run as a kernel")

    return run


@kernel("_TruncateMantissa")
def _truncate(node: Node, device: Device) -> KernelFunction:
    def run(x: Any) -> Any:
        x = np.asarray(x)
        halves = (x.view(np.uint32) >> 16).astype(np.uint16)
        lost = np.isnan(x)
        if lost.any():
            halves = np.where(lost, halves | np.uint16(0x40), halves)
        return halves.view(_BFLOAT16)[()]

    return run


@kernel("_ExtendMantissa")
def _extend(node: Node, device: Device) -> KernelFunction:
    def run(x: Any) -> Any:
        x = np.asarray(x)
        result = device.empty(x.shape, _FLOAT32)
        np.left_shift(x.view(np.uint16), 16, out=result.view(np.uint32), dtype=np.uint32)
        return result[()]

    return run
