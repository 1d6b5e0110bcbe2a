"""Kernels of values that a session keeps between its steps, by handle."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from weft_exec.kernels.registry import KernelFunction, kernel
from weft_exec.resources.session_tensors import SessionTensors

if TYPE_CHECKING:
    from weft_exec.devices.device import Device
    from weft_graph.ir.node import Node


@kernel("GetSessionHandle")
def _keep(node: Node, device: Device) -> KernelFunction:
    def run(value: Any) -> bytes:
        return SessionTensors.of(device.resources).keep(value, device.name).encode()

    return run


@kernel("GetSessionTensor", alias=True)
def _get(node: Node, device: Device) -> KernelFunction:
    dtype = node.attrs["dtype"]

    def run(handle: Any) -> Any:
        return SessionTensors.of(device.resources).get(_text(handle), dtype)

    return run


@kernel("DeleteSessionTensor")
def _delete(node: Node, device: Device) -> KernelFunction:
    def run(handle: Any) -> None:
        SessionTensors.of(device.resources).delete(_text(handle))

    return run


def _text(handle: Any) -> str:
    if isinstance(handle, np.ndarray):
        handle = handle[()]
    return str(handle, "utf-8", "replace")
