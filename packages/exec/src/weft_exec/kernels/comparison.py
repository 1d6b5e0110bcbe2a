"""Kernels of selection between two tensors; `elementwise` derives the kernels of comparisons."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from weft_exec.kernels.common import broadcast_shape, select_where
from weft_exec.kernels.registry import ARRAY_DEVICE, KernelFunction, kernel
from weft_tensor import errors

if TYPE_CHECKING:
    from weft_exec.devices.device import Device
    from weft_graph.ir.node import Node


@kernel("Select", device=ARRAY_DEVICE, alias=True)
def _select(node: Node, device: Device) -> KernelFunction:
    xp = device.xp

    def run(condition: Any, t: Any, e: Any) -> Any:
        if t.shape != e.shape:
            raise errors.InvalidArgumentError(
                f"the values must have the same shape, got {list(t.shape)} and {list(e.shape)}"
            )
        if xp is np and condition.ndim == 0:
            return t if condition else e
        if condition.shape not in ((), t.shape):
            if condition.ndim != 1 or t.ndim == 0 or len(condition) != len(t):
                raise errors.InvalidArgumentError(
                    "the condition must be a scalar, have the shape of the values, or one element "
                    f"per row of them, got {list(condition.shape)} for {list(t.shape)}"
                )
            count = np.count_nonzero(condition) if xp is np else None
            if count == 0 or count == len(t):  # as in most steps of a recurrent network
                return t if count else e
            condition = condition.reshape(-1, *(1,) * (t.ndim - 1))
        if xp is not np:  # to look at the condition would be to wait for the device
            return xp.where(condition, t, e)
        return select_where(condition, t, e, t.shape, device)

    return run


@kernel("SelectV2", device=ARRAY_DEVICE, alias=True)
def _select_v2(node: Node, device: Device) -> KernelFunction:
    if device.xp is not np:
        select: KernelFunction = device.xp.where
        return select

    def run(condition: Any, t: Any, e: Any) -> Any:
        if condition.size == 1 and t.shape == e.shape and condition.ndim <= t.ndim:
            return t if condition.item() else e
        shape = t.shape if t.shape == e.shape else broadcast_shape(t, e)
        if condition.shape != shape:
            shape = np.broadcast_shapes(condition.shape, shape)
        return select_where(condition, t, e, shape, device)

    return run
