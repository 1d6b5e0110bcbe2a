"""GPU kernels of sums, bounds and choice.

Those of all other elementwise ops are derived; see `derived.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from weft_exec.gpu.element_types import INEXACT, INTEGERS, REAL
from weft_exec.kernels.registry import KernelFactory, KernelFunction, kernel
from weft_tensor import errors

if TYPE_CHECKING:
    from weft_exec.devices.device import Device
    from weft_graph.ir.node import Node

Compute = Callable[..., Any]
"""`compute(xp, *inputs)`: an array of the module `xp`."""


def computing(compute: Compute) -> KernelFactory:
    """A factory for a function of the array module and the inputs."""

    def make(node: Node, device: Device) -> KernelFunction:
        xp = device.xp
        return lambda *inputs: compute(xp, *inputs)

    return make


_NUMBERS: Final = (*INEXACT, *INTEGERS)
_NUMERIC: Final = {"T": _NUMBERS}


@kernel("AddN", "AccumulateNV2", device="GPU", dtypes=_NUMERIC)
def _add_n(node: Node, device: Device) -> KernelFunction:
    narrow = node.outputs[0].dtype.numpy == np.float16

    def run(first: Any, *others: Any) -> Any:
        for value in others:
            if value.shape != first.shape:
                raise errors.InvalidArgumentError(
                    f"the tensors must have the same shape, got {list(first.shape)} and "
                    f"{list(value.shape)}"
                )
        total = first.astype(np.float32) if narrow else first
        for value in others:
            total = total + value
        return total if others else first.copy()

    return run


def _clip(xp: Any, t: Any, low: Any, high: Any) -> Any:
    if low.ndim > t.ndim or high.ndim > t.ndim:
        raise errors.InvalidArgumentError(
            f"the bounds must broadcast to shape {list(t.shape)}, got {list(low.shape)} and "
            f"{list(high.shape)}"
        )
    return xp.maximum(xp.minimum(t, high), low)


kernel("ClipByValue", device="GPU", dtypes={"T": (*REAL, *INTEGERS)})(computing(_clip))


@kernel("Select", device="GPU", alias=True)
def _select(node: Node, device: Device) -> KernelFunction:
    xp = device.xp

    def run(condition: Any, t: Any, e: Any) -> Any:
        if t.shape != e.shape:
            raise errors.InvalidArgumentError(
                f"the values must have the same shape, got {list(t.shape)} and {list(e.shape)}"
            )
        if condition.shape not in ((), t.shape):
            if condition.ndim != 1 or t.ndim == 0 or condition.shape[0] != t.shape[0]:
                raise errors.InvalidArgumentError(
                    "the condition must be a scalar, have the shape of the values, or one element "
                    f"per row of them, got {list(condition.shape)} for {list(t.shape)}"
                )
            condition = condition.reshape(-1, *(1,) * (t.ndim - 1))
        return xp.where(condition, t, e)

    return run


kernel("SelectV2", device="GPU", alias=True)(lambda node, device: device.xp.where)
