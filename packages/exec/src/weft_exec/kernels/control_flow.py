"""Kernels of control-flow ops that compute something; the executor itself routes values."""

from __future__ import annotations

from typing import TYPE_CHECKING

from weft_exec.kernels.registry import ANY_DEVICE, KernelFunction, kernel
from weft_tensor import errors

if TYPE_CHECKING:
    from weft_exec.devices.device import Device
    from weft_graph.ir.node import Node


@kernel("ControlTrigger", device=ANY_DEVICE)
def _control_trigger(node: Node, device: Device) -> KernelFunction:
    def run() -> None:
        return None

    return run


@kernel("LoopCond", device=ANY_DEVICE, alias=True)
def _loop_cond(node: Node, device: Device) -> KernelFunction:
    return lambda pred: pred


@kernel("Abort")
def _abort(node: Node, device: Device) -> KernelFunction:
    message = node.attrs["error_msg"]
    silent = node.attrs["exit_without_error"]

    def run() -> None:
        if silent:
            raise errors.CancelledError(f"the step was ended by Abort: {message}")
        raise errors.AbortedError(message)

    return run
