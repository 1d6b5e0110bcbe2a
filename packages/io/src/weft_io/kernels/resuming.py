"""Kernels that read and set the positions of random ops in their random streams."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from weft_exec.kernels.philox import RandomStream
from weft_exec.kernels.random import stream_name
from weft_exec.kernels.registry import KernelFunction, kernel
from weft_tensor import errors

if TYPE_CHECKING:
    from weft_exec.devices.device import Device
    from weft_graph.ir.node import Node

_STATE: Final = struct.Struct("<4sQQQ")
_MARK: Final = b"rng1"


@kernel("RandomStreamState")
def _state(node: Node, device: Device) -> KernelFunction:
    name, resources = stream_name(node.attrs["stream"]), device.resources.own

    def run() -> Any:
        try:
            stream = resources.lookup("", name, RandomStream)
        except errors.NotFoundError:  # it was never used
            return np.array(b"", object)
        return np.array(_STATE.pack(_MARK, *stream.key, stream.count), object)

    return run


@kernel("RestoreRandomStream")
def _restore(node: Node, device: Device) -> KernelFunction:
    name, resources = stream_name(node.attrs["stream"]), device.resources.own

    def run(state: Any) -> None:
        data: bytes = state.item() if isinstance(state, np.ndarray) else state
        if not data:
            return
        if len(data) != _STATE.size or not data.startswith(_MARK):
            raise errors.DataLossError(
                f"the state of the random op {node.attrs['stream']} must be {_STATE.size} bytes "
                f"that begin with {_MARK!r}, got {len(data)} that begin with {data[:4]!r}"
            )
        _, low, high, count = _STATE.unpack(data)
        stream = resources.lookup_or_create(
            "", name, RandomStream, lambda: RandomStream(name, (low, high))
        )
        stream.resume((low, high), count)

    return run
