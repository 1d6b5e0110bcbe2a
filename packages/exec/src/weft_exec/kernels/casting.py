"""The kernel of Bitcast; `elementwise` derives kernels of conversions and complex numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from weft_exec.kernels.registry import ARRAY_DEVICE, KernelFunction, kernel
from weft_tensor import errors

if TYPE_CHECKING:
    from weft_exec.devices.device import Device
    from weft_graph.ir.node import Node


@kernel("Bitcast", device=ARRAY_DEVICE)
def _bitcast(node: Node, device: Device) -> KernelFunction:
    source, target = node.inputs[0].dtype.base_dtype, node.attrs["type"]
    dtype, xp = target.numpy, device.xp

    def run(x: Any) -> Any:
        array = xp.ascontiguousarray(x).reshape(x.shape)
        if source.size == target.size:
            return array.view(dtype)
        if source.size > target.size:
            ratio = source.size // target.size
            return array.reshape(-1).view(dtype).reshape(*array.shape, ratio)
        ratio = target.size // source.size
        if array.ndim == 0 or array.shape[-1] != ratio:
            raise errors.InvalidArgumentError(
                f"a bitcast from {source.name} to {target.name} requires a last axis of size "
                f"{ratio}, got shape {list(array.shape)}"
            )
        return array.reshape(-1).view(dtype).reshape(array.shape[:-1])

    return run
