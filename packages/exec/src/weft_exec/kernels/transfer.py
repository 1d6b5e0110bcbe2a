"""Send and Receive: the executor hands their values over itself (`executor/rendezvous.py`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from weft_exec.kernels.registry import ANY_DEVICE, KernelFunction, kernel
from weft_tensor import errors

if TYPE_CHECKING:
    from weft_exec.device import Device
    from weft_graph.node import Node


@kernel("_Send", "_Recv", device=ANY_DEVICE, asynchronous=True)
def _transfer(node: Node, device: Device) -> KernelFunction:
    def run(*_: Any) -> None:
        raise errors.InternalError(f"{node.type} {node.name!r} was run as a kernel")

    return run
