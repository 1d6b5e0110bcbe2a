"""Asynchronous kernels of collective ops; they wait for other devices, tasks and sessions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from weft_distrib.collective.exchange import Operation
from weft_distrib.collective.runtime import CollectiveRuntime, local_runtime
from weft_exec.kernels.registry import KernelFunction, kernel
from weft_exec.resources.resources import CompletionCallback

if TYPE_CHECKING:
    from weft_exec.devices.device import Device
    from weft_exec.kernels.context import StepContext
    from weft_graph.ir.node import Node

_KINDS = {
    "CollectiveReduce": "reduce",
    "CollectiveGather": "gather",
    "CollectiveBcastSend": "broadcast",
    "CollectiveBcastRecv": "broadcast",
}


@kernel(*_KINDS, device="GPU")
@kernel(*_KINDS)
def _collective(node: Node, device: Device) -> KernelFunction:
    attrs = node.attrs
    operation = Operation(
        attrs["instance_key"],
        _KINDS[node.type],
        node.outputs[0].dtype.numpy,
        attrs.get("merge_op", "Add"),
        attrs.get("final_op", "Id"),
        attrs["communication_hint"],
        node.type == "CollectiveBcastSend",
        node.name,
        attrs["timeout_seconds"],
    )
    group = attrs["group_key"], attrs["group_size"]

    def run(ctx: StepContext, inputs: Sequence[Any], done: CompletionCallback) -> None:
        value = inputs[0] if inputs else None
        runtime: CollectiveRuntime = ctx.rendezvous.collectives or local_runtime(
            device.resources.shared
        )
        runtime.start(ctx, device, group, operation, value, done)

    return run
