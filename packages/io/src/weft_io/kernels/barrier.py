"""Kernels of barriers; taking elements waits without blocking a thread."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from weft_exec.kernels.registry import KernelFunction, kernel
from weft_exec.resources.resources import CompletionCallback
from weft_io.resources.barrier import Barrier
from weft_io.resources.handles import allocator, deadline_in, holder, resource_of
from weft_io.resources.values import items_of, keeper, number_of
from weft_tensor import errors

if TYPE_CHECKING:
    from weft_exec.devices.device import Device
    from weft_exec.kernels.context import StepContext
    from weft_graph.ir.node import Node


@kernel("Barrier")
def _barrier(node: Node, device: Device) -> KernelFunction:
    types, shapes = tuple(node.attrs["component_types"]), tuple(node.attrs["shapes"])
    if node.attrs["capacity"] >= 0:
        raise errors.InvalidArgumentError(
            f"Barrier only accepts capacity=-1, got {node.attrs['capacity']}"
        )
    if shapes and len(shapes) != len(types):
        raise errors.InvalidArgumentError(
            f"a barrier with {len(types)} components must have one shape per component or "
            f"none, got {len(shapes)}"
        )

    def check(barrier: Barrier) -> None:
        if (barrier.types, barrier.shapes) != (types, shapes):
            raise errors.InvalidArgumentError(
                f"Shared barrier {barrier.name!r} does not have the requested component types "
                "and shapes"
            )

    return holder(node, device, Barrier, lambda name: Barrier(name, types, shapes), check)


@kernel("BarrierInsertMany")
def _insert_many(node: Node, device: Device) -> KernelFunction:
    component: int = node.attrs["component_index"]
    dtype = node.attrs["T"]
    keep = keeper(node, 2)

    def run(handle: Any, keys: Any, values: Any) -> None:
        resource = resource_of(handle, Barrier)
        if 0 <= component < len(resource.types) and resource.types[component] != dtype:
            raise errors.InvalidArgumentError(
                f"component {component} of barrier {resource.name!r} is "
                f"{resource.types[component].name}, got {dtype.name}"
            )
        resource.insert_many(component, items_of(keys, "keys"), *keep((handle, keys, values)))

    return run


@kernel("BarrierTakeMany")
def _take_many(node: Node, device: Device) -> KernelFunction:
    types = tuple(node.attrs["component_types"])
    small: bool = node.attrs["allow_small_batch"]
    timeout: int = node.attrs["timeout_ms"]
    empty = allocator(device)

    def run(ctx: StepContext, inputs: Sequence[Any], completion: CompletionCallback) -> None:
        resource = resource_of(inputs[0], Barrier)
        if resource.types != types:
            raise errors.InvalidArgumentError(
                f"barrier {resource.name!r} holds components of types "
                f"{[t.name for t in resource.types]}, got {[t.name for t in types]}"
            )
        deadline = deadline_in(timeout)
        count = number_of(inputs[1], "num_elements")
        resource.take_many(count, small, empty, completion, ctx.cancellation, deadline)

    return run


@kernel("BarrierClose")
def _close(node: Node, device: Device) -> KernelFunction:
    cancel: bool = node.attrs["cancel_pending_enqueues"]
    return lambda handle: resource_of(handle, Barrier).close_barrier(cancel)


@kernel("BarrierReadySize")
def _ready_size(node: Node, device: Device) -> KernelFunction:
    return lambda handle: np.int32(resource_of(handle, Barrier).ready_size())


@kernel("BarrierIncompleteSize")
def _incomplete_size(node: Node, device: Device) -> KernelFunction:
    return lambda handle: np.int32(resource_of(handle, Barrier).incomplete_size())
