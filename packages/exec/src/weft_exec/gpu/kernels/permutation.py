"""GPU kernels that put elements in another order."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from weft_exec.kernels.registry import KernelFunction, kernel
from weft_graph.ops.shape_rules import normal_axis
from weft_tensor import errors
from weft_tensor.shape import format_dims

if TYPE_CHECKING:
    from weft_exec.devices.device import Device
    from weft_graph.ir.node import Node


@kernel("ReverseSequence", device="GPU")
def _reverse_sequence(node: Node, device: Device) -> KernelFunction:
    xp = device.xp

    def run(x: Any, lengths: Any) -> Any:
        batch = normal_axis(node.attrs["batch_dim"], x.ndim, "batch_dim")
        along = normal_axis(node.attrs["seq_dim"], x.ndim, "seq_dim")
        if lengths.shape != (x.shape[batch],):
            raise errors.InvalidArgumentError(
                f"seq_lengths must have shape [{x.shape[batch]}], got {format_dims(lengths.shape)}"
            )
        rows = xp.moveaxis(x, (batch, along), (0, 1))
        at = xp.arange(x.shape[along])[None, :]
        ends = lengths.astype(np.int64)[:, None]
        source = xp.where(at < ends, ends - 1 - at, at)
        picked = rows[xp.arange(x.shape[batch])[:, None], source]
        return xp.ascontiguousarray(xp.moveaxis(picked, (0, 1), (batch, along)))

    return run
