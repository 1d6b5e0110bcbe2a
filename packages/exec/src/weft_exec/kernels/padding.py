"""Kernels of padding."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from weft_exec.kernels.common import copy_to_pool, new_array
from weft_exec.kernels.registry import ARRAY_DEVICE, KernelFunction, kernel
from weft_tensor import errors
from weft_tensor.shape import format_dims

if TYPE_CHECKING:
    from weft_exec.devices.device import Device
    from weft_graph.ir.node import Node


def margins_of(paddings: Any, rank: int) -> list[tuple[int, int]]:
    """Return the number of elements before and after, for each axis.

    Raises: InvalidArgumentError: `paddings` does not have a pair for each axis, or an entry is
      negative.
    """
    if paddings.shape != (rank, 2) or (paddings.size and paddings.min() < 0):
        raise errors.InvalidArgumentError(
            f"paddings must be at least 0 and have shape [{rank},2], got {paddings.tolist()}"
        )
    return [(int(before), int(after)) for before, after in paddings.tolist()]


@kernel("Pad", "PadV2", device=ARRAY_DEVICE, host=("paddings",))
def _pad(node: Node, device: Device) -> KernelFunction:
    dtype = node.outputs[0].dtype.numpy
    zero: Any = b"" if dtype.kind == "O" else dtype.type(0)

    def run(x: Any, paddings: Any, value: Any = zero) -> Any:
        margins = margins_of(paddings, x.ndim)
        shape = tuple([n + b + a for n, (b, a) in zip(x.shape, margins, strict=True)])
        result = new_array(device, shape, dtype)
        inner = tuple([slice(b, b + n) for n, (b, _) in zip(x.shape, margins, strict=True)])
        if device.xp is not np:
            result[...] = value  # one launch, where slabs would be two for each axis
            margins = []
        for axis, (before, after) in enumerate(margins):
            # Slabs of the axes before are filled already, so each element is written once.
            lead = inner[:axis]
            if before:
                result[(*lead, slice(0, before))] = value
            if after:
                result[(*lead, slice(shape[axis] - after, None))] = value
        result[inner or ...] = x
        return result

    return run


def _check_mirror(shape: tuple[int, ...], margins: list[tuple[int, int]], edge: int) -> None:
    for axis, (size, pair) in enumerate(zip(shape, margins, strict=True)):
        if max(pair) > size - edge:
            raise errors.InvalidArgumentError(
                f"paddings at axis {axis} must be at most {size - edge}, got {list(pair)}"
            )


@kernel("MirrorPad", device=ARRAY_DEVICE, host=("paddings",))
def _mirror_pad(node: Node, device: Device) -> KernelFunction:
    xp = device.xp
    edge = 1 if node.attrs["mode"] == "REFLECT" else 0
    dtype = node.outputs[0].dtype.numpy

    def run(x: Any, paddings: Any) -> Any:
        margins = margins_of(paddings, x.ndim)
        _check_mirror(x.shape, margins, edge)
        shape = tuple([n + b + a for n, (b, a) in zip(x.shape, margins, strict=True)])
        result = new_array(device, shape, dtype)
        inner = tuple([slice(b, b + n) for n, (b, _) in zip(x.shape, margins, strict=True)])
        result[inner or ...] = x
        for axis, (n, (b, a)) in enumerate(zip(x.shape, margins, strict=True)):
            # Axes before this one are complete, those behind still lack their margins.
            part = result[(slice(None),) * (axis + 1) + inner[axis + 1 :]]
            transposed = xp.moveaxis(part, axis, 0)
            if b:
                transposed[:b] = transposed[b + edge : 2 * b + edge][::-1]
            if a:
                stop = b + n - edge
                transposed[b + n :] = transposed[stop - a : stop][::-1]
        return result

    return run


@kernel("MirrorPadGrad", device=ARRAY_DEVICE, host=("paddings",))
def _mirror_pad_grad(node: Node, device: Device) -> KernelFunction:
    xp = device.xp
    edge = 1 if node.attrs["mode"] == "REFLECT" else 0

    def run(grad: Any, paddings: Any) -> Any:
        margins = margins_of(paddings, grad.ndim)
        total = xp.array(grad)
        sizes = tuple([n - b - a for n, (b, a) in zip(grad.shape, margins, strict=True)])
        if any(size < 0 for size in sizes):
            raise errors.InvalidArgumentError(
                f"paddings {margins} exceed shape {format_dims(grad.shape)}"
            )
        _check_mirror(sizes, margins, edge)
        for axis, (n, (b, a)) in enumerate(zip(sizes, margins, strict=True)):
            transposed = xp.moveaxis(total, axis, 0)
            inner = transposed[b : b + n]
            if b:
                inner[edge : b + edge] += transposed[:b][::-1]
            if a:
                inner[n - edge - a : n - edge] += transposed[b + n :][::-1]
            total = xp.moveaxis(inner, 0, axis)
        return copy_to_pool(total, device)

    return run
