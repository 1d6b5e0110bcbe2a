"""Kernels that return or change shapes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from weft_exec.kernels.array import to_sizes
from weft_exec.kernels.common import constant_input
from weft_exec.kernels.registry import ANY_DEVICE, ARRAY_DEVICE, KernelFunction, kernel
from weft_graph.ops.shapes import reshape_dims
from weft_tensor import errors
from weft_tensor.shape import format_dims

if TYPE_CHECKING:
    from weft_exec.devices.device import Device
    from weft_graph.ir.node import Node


@kernel("Shape", device=ARRAY_DEVICE)
def _shape(node: Node, device: Device) -> KernelFunction:
    dtype = node.outputs[0].dtype.numpy
    last: tuple[Any, Any] = (None, None)

    def run(x: Any) -> Any:
        nonlocal last
        last_shape, result = last
        shape = x.shape
        if shape != last_shape:  # the shape rarely changes, and fetches are copies
            result = np.array(shape, dtype)
            result.flags.writeable = False
            last = (shape, result)
        return result

    return run


@kernel("ShapeN", device=ARRAY_DEVICE)
def _shape_n(node: Node, device: Device) -> KernelFunction:
    dtype = node.outputs[0].dtype.numpy
    if len(node.outputs) == 1:
        return _shape(node, device)

    def run(*inputs: Any) -> tuple[Any, ...]:
        return tuple([np.array(x.shape, dtype) for x in inputs])

    return run


@kernel("Size", device=ARRAY_DEVICE)
def _size(node: Node, device: Device) -> KernelFunction:
    make = node.outputs[0].dtype.as_numpy_dtype

    def run(x: Any) -> Any:
        return make(x.size)

    return run


@kernel("Rank", device=ANY_DEVICE)
def _rank(node: Node, device: Device) -> KernelFunction:
    def run(x: Any) -> Any:
        return np.int32(x.ndim)

    return run


@kernel("Reshape", device=ARRAY_DEVICE, host=("shape",))
def _reshape(node: Node, device: Device) -> KernelFunction:
    constant = constant_input(node, 1)
    if constant is not None and constant.ndim == 1:
        target = to_sizes(constant)

        def run_static(x: Any, shape: Any) -> Any:
            try:
                return x.reshape(target)
            except ValueError:
                return _reshape_empty(x, target)

        return run_static

    def run(x: Any, shape: Any) -> Any:
        try:
            return x.reshape(tuple(shape.tolist()))
        except (ValueError, TypeError):
            return _reshape_empty(x, shape.tolist())

    return run


def _reshape_empty(x: Any, expected: Any) -> Any:
    """Return a reshape that NumPy rejects because of sizes -1 and 0, or raise its error."""
    if not isinstance(expected, tuple | list):
        raise errors.InvalidArgumentError(f"the shape must be a vector, got {expected}")
    return x.reshape(reshape_dims(x.shape, list(expected)))


@kernel("ExpandDims", device=ARRAY_DEVICE, host=("dim",))
def _expand_dims(node: Node, device: Device) -> KernelFunction:
    constant = constant_input(node, 1)
    if constant is not None and node.inputs[0].dims is not None:
        key = _new_axis(int(constant.reshape(-1)[0]))

        def run_static(x: Any, axis: Any) -> Any:
            return x[key]

        return run_static

    def run(x: Any, axis: Any) -> Any:
        index = int(axis.reshape(-1)[0])
        if not -x.ndim - 1 <= index <= x.ndim:
            raise errors.InvalidArgumentError(
                f"axis must be in [{-x.ndim - 1}, {x.ndim}] for rank {x.ndim}, got {index}"
            )
        return x[_new_axis(index)]

    return run


def _new_axis(axis: int) -> tuple[Any, ...]:
    if axis >= 0:
        return (slice(None),) * axis + (None,)
    return (Ellipsis, None) + (slice(None),) * (-1 - axis)


@kernel("Squeeze", device=ARRAY_DEVICE)
def _squeeze(node: Node, device: Device) -> KernelFunction:
    axes = tuple(node.attrs["squeeze_dims"]) or None

    def run(x: Any) -> Any:
        try:
            return x.squeeze(axes)
        except ValueError:
            raise errors.InvalidArgumentError(
                f"axes {list(axes or ())} must have size 1 to be removed by squeeze, got shape "
                f"{format_dims(x.shape)}"
            ) from None

    return run
