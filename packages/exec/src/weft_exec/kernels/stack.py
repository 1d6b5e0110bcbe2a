"""Kernels of stacks, which run once for each value that an iteration of a loop saves."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from weft_exec.kernels.registry import ARRAY_DEVICE, KernelFunction, kernel
from weft_exec.resources.resources import ResourceHandle
from weft_exec.resources.tensor_arrays import BoundedStack, Stack
from weft_graph.ir.traits import Role
from weft_graph.ops.stack import producer
from weft_tensor import errors
from weft_tensor.dtypes import DType

if TYPE_CHECKING:
    from weft_exec.devices.device import Device
    from weft_graph.ir.node import Node

WORTH_SWAPPING = 2048
"""Minimum size in bytes for which values are kept on the host if `swap_memory` is set."""


@kernel("StackV2", device=ARRAY_DEVICE, host=("max_size",))
def _stack(node: Node, device: Device) -> KernelFunction:
    name = node.attrs["stack_name"] or node.name
    dtype = node.attrs["elem_type"]

    def run(max_size: Any) -> ResourceHandle:
        limit = int(max_size)
        state = Stack(name, dtype) if limit < 0 else BoundedStack(name, dtype, limit)
        return ResourceHandle(device.name, "", name, state)

    return run


@kernel("StackPushV2", device=ARRAY_DEVICE, alias=True)
def _push(node: Node, device: Device) -> KernelFunction:
    if node.attrs["swap_memory"] and device.xp is not np:
        return _with_stack_check(node, _swapping_push(device.xp))
    return _with_stack_check(node, _plain_push)


def _plain_push(handle: ResourceHandle, value: Any) -> Any:
    handle.resource.append(value)
    return value


def _swapping_push(xp: Any) -> KernelFunction:
    def push(handle: ResourceHandle, value: Any) -> Any:
        on_host = getattr(value, "nbytes", 0) > WORTH_SWAPPING
        handle.resource.append(xp.asnumpy(value) if on_host else value)
        return value

    return push


@kernel("StackPopV2", device=ARRAY_DEVICE, alias=True)
def _pop(node: Node, device: Device) -> KernelFunction:
    xp = device.xp
    return _with_stack_check(node, _plain_pop if xp is np else _swapping_pop(xp))


def _plain_pop(handle: ResourceHandle) -> Any:
    stack = handle.resource
    try:
        return stack.pop()
    except IndexError:
        if stack.unpack_rows():
            return stack.pop()
        raise stack.empty_error() from None


def _swapping_pop(xp: Any) -> KernelFunction:
    def pop(handle: ResourceHandle) -> Any:
        value = _plain_pop(handle)
        return xp.asarray(value) if type(value) is np.ndarray else value

    return pop


@kernel("StackCopy", device=ARRAY_DEVICE)
def _copy(node: Node, device: Device) -> KernelFunction:
    def run(handle: ResourceHandle) -> ResourceHandle:
        stack = handle.resource
        copy = Stack(stack.name, stack.dtype)
        copy.below = list(stack.below)
        copy.extend(stack)
        return ResourceHandle(device.name, "", stack.name, copy)

    return run


@kernel("StackCloseV2", device=ARRAY_DEVICE)
def _close(node: Node, device: Device) -> KernelFunction:
    return lambda handle: handle.resource.clear()


def _with_stack_check(node: Node, function: KernelFunction) -> KernelFunction:
    """Return `function` with a check of the stack before it, unless the graph shows the stack."""
    if producer(node.inputs[0]).role is Role.STACK:
        return function
    dtype: DType = node.attrs["T" if node.type == "StackPushV2" else "elem_type"]

    def run(handle: ResourceHandle, *value: Any) -> Any:
        stack = handle.resource
        if not isinstance(stack, Stack) or stack.dtype is not dtype:
            raise errors.InvalidTypeError(f"requires a stack of {dtype.name}, got {stack!r}")
        return function(handle, *value)

    return run
