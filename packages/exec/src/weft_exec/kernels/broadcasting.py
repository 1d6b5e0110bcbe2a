"""Kernels of broadcasting."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from weft_exec.kernels.array import to_sizes
from weft_exec.kernels.common import LARGE
from weft_exec.kernels.registry import ALL, ARRAY_DEVICE, KernelFunction, kernel
from weft_graph.ops.array_values import repeated_axes
from weft_tensor import errors
from weft_tensor.shape import format_dims

if TYPE_CHECKING:
    from weft_exec.devices.device import Device
    from weft_graph.ir.node import Node


@kernel("BroadcastTo", device=ARRAY_DEVICE, host=("shape",))
def _broadcast_to(node: Node, device: Device) -> KernelFunction:
    xp = device.xp

    def run(x: Any, shape: Any) -> Any:
        target = to_sizes(shape)
        if x.shape == target:
            return x
        try:
            if xp is np and x.ndim <= len(target) and prod(target) * x.dtype.itemsize <= LARGE:
                filled = np.empty(target, x.dtype)  # quicker than a view, and to work with
                filled[...] = x
                return filled
            result = xp.broadcast_to(x, target)
        except ValueError:
            raise errors.InvalidArgumentError(
                f"shape {format_dims(x.shape)} cannot be broadcast to {format_dims(target)}"
            ) from None
        return result if xp is np else result.copy()

    return run


@kernel("BroadcastArgs", device=ARRAY_DEVICE, host=ALL)
def _broadcast_args(node: Node, device: Device) -> KernelFunction:
    dtype = node.outputs[0].dtype.numpy

    def run(a: Any, b: Any) -> Any:
        return np.array(_broadcast(to_sizes(a), to_sizes(b)), dtype)

    return run


def _broadcast(a: tuple[int, ...], b: tuple[int, ...]) -> tuple[int, ...]:
    try:
        return np.broadcast_shapes(a, b)
    except ValueError:
        raise errors.InvalidArgumentError(
            f"shapes must be equal or broadcast, got {list(a)} and {list(b)}"
        ) from None


@kernel("BroadcastGradientArgs", device=ARRAY_DEVICE, host=ALL)
def _broadcast_gradient_args(node: Node, device: Device) -> KernelFunction:
    dtype = node.outputs[0].dtype.numpy
    last: tuple[Any, ...] = (None, None, None, None)

    def run(a: Any, b: Any) -> tuple[Any, Any]:
        nonlocal last
        known_a, known_b, known_result, result = last
        # Shape returns one array for each shape; a fed array may have changed meanwhile.
        if a is known_a and b is known_b and not (a.flags.writeable or b.flags.writeable):
            return result  # type: ignore[no-any-return]  # because `last` has no types
        shapes = (a.tobytes(), b.tobytes())  # which rarely change from step to step
        if shapes != known_result:
            sizes = to_sizes(a), to_sizes(b)
            full_shape = _broadcast(*sizes)
            first, second = [np.array(repeated_axes(shape, full_shape), dtype) for shape in sizes]
            result = (first, second)
        last = (a, b, shapes, result)
        return result  # type: ignore[no-any-return]  # because `last` has no types

    return run
