"""Kernels of constants, placeholders, shapes, and tensors of one value."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from weft_exec.kernels.common import constant_input, new_array
from weft_exec.kernels.registry import ALL, ANY_DEVICE, ARRAY_DEVICE, KernelFunction, kernel
from weft_graph.ops.array import reshaped
from weft_tensor import errors
from weft_tensor.shape import format_dims

if TYPE_CHECKING:
    from weft_exec.devices.device import Device
    from weft_graph.ir.node import Node

Array = np.ndarray[Any, Any]


def sizes_of(vector: Any) -> tuple[int, ...]:
    """A vector of integers as a tuple."""
    return tuple(vector.tolist())


# ------------------------------------------------------------- constants and placeholders


@kernel("Const", device=ANY_DEVICE)
def _const(node: Node, device: Device) -> KernelFunction:
    value: Any = node.attrs["value"]
    if value.ndim == 0 and value.dtype.kind != "O":
        value = value[()]

    def run() -> Any:
        return value

    return run


@kernel("Placeholder", "PlaceholderV2", device=ARRAY_DEVICE)
def _placeholder(node: Node, device: Device) -> KernelFunction:
    output = node.outputs[0]
    message = (
        f"a value must be fed for placeholder {node.name!r} of dtype {output.dtype.name} and "
        f"shape {format_dims(output.dims)}"
    )

    def run() -> Any:
        raise errors.InvalidArgumentError(message)

    return run


@kernel("PlaceholderWithDefault", device=ARRAY_DEVICE)
def _with_default(node: Node, device: Device) -> KernelFunction:
    def run(default: Any) -> Any:
        return default

    return run


# -------------------------------------------------------------------------------- shapes


@kernel("Shape", device=ARRAY_DEVICE)
def _shape(node: Node, device: Device) -> KernelFunction:
    dtype = node.outputs[0].dtype.numpy

    def run(x: Any) -> Any:
        return np.array(x.shape, dtype)

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
    known = constant_input(node, 1)
    if known is not None:
        target = sizes_of(known)

        def run_static(x: Any, shape: Any) -> Any:
            try:
                return x.reshape(target)
            except ValueError:
                raise _misfit(x, target) from None

        return run_static

    def run(x: Any, shape: Any) -> Any:
        try:
            return x.reshape(shape.tolist())
        except (ValueError, TypeError):
            raise _misfit(x, shape.tolist()) from None

    return run


def _misfit(x: Any, wanted: Any) -> errors.InvalidArgumentError:
    if not isinstance(wanted, tuple | list):
        return errors.InvalidArgumentError(f"the shape must be a vector, got {wanted}")
    try:
        reshaped(x.shape, list(wanted))
    except errors.InvalidArgumentError as error:
        return error
    return errors.InvalidArgumentError(
        f"the size -1 cannot be inferred when reshaping {format_dims(x.shape)} to {list(wanted)}"
    )


@kernel("ExpandDims", device=ARRAY_DEVICE, host=("dim",))
def _expand_dims(node: Node, device: Device) -> KernelFunction:
    known = constant_input(node, 1)
    if known is not None and node.inputs[0].dims is not None:
        key = _new_axis(int(known.reshape(-1)[0]))

        def run_static(x: Any, axis: Any) -> Any:
            return x[key]

        return run_static

    def run(x: Any, axis: Any) -> Any:
        at = int(axis.reshape(-1)[0])
        if not -x.ndim - 1 <= at <= x.ndim:
            raise errors.InvalidArgumentError(
                f"axis must be in [{-x.ndim - 1}, {x.ndim}] for rank {x.ndim}, got {at}"
            )
        return x[_new_axis(at)]

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
                f"axes {list(axes or ())} must have size 1 to be squeezed, got shape "
                f"{format_dims(x.shape)}"
            ) from None

    return run


# ------------------------------------------------------------------- tensors of one value


def filled(device: Device, shape: tuple[int, ...], value: Any, dtype: np.dtype[Any]) -> Any:
    """A tensor of one value; a NumPy scalar for rank 0 where there are such."""
    if not shape and dtype.kind != "O" and device.xp is np:
        return dtype.type(value)
    result = new_array(device, shape, dtype)
    result[...] = value
    return result


@kernel("Fill", device=ARRAY_DEVICE, host=("dims",))
def _fill(node: Node, device: Device) -> KernelFunction:
    dtype = node.outputs[0].dtype.numpy

    def run(dims: Any, value: Any) -> Any:
        shape = sizes_of(dims)
        if any(size < 0 for size in shape):
            raise errors.InvalidArgumentError(f"sizes must be at least 0, got {list(shape)}")
        return filled(device, shape, value, dtype)

    return run


@kernel("ZerosLike", "OnesLike", device=ARRAY_DEVICE)
def _like(node: Node, device: Device) -> KernelFunction:
    dtype = node.outputs[0].dtype.numpy
    number: Any = 1 if node.type == "OnesLike" else 0
    value = b"" if dtype.kind == "O" else dtype.type(number)

    def run(x: Any) -> Any:
        return filled(device, x.shape, value, dtype)

    return run


# --------------------------------------------------------------------------- broadcasting


@kernel("BroadcastTo", device=ARRAY_DEVICE, host=("shape",))
def _broadcast_to(node: Node, device: Device) -> KernelFunction:
    xp = device.xp

    def run(x: Any, shape: Any) -> Any:
        target = sizes_of(shape)
        if x.shape == target:
            return x
        try:
            found = xp.broadcast_to(x, target)
        except ValueError:
            raise errors.InvalidArgumentError(
                f"shape {format_dims(x.shape)} cannot be broadcast to {format_dims(target)}"
            ) from None
        return found if xp is np else found.copy()

    return run


@kernel("BroadcastArgs", device=ARRAY_DEVICE, host=ALL)
def _broadcast_args(node: Node, device: Device) -> KernelFunction:
    dtype = node.outputs[0].dtype.numpy

    def run(a: Any, b: Any) -> Any:
        return np.array(_broadcast(sizes_of(a), sizes_of(b)), dtype)

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

    def run(a: Any, b: Any) -> tuple[Any, Any]:
        x, y = sizes_of(a), sizes_of(b)
        whole = _broadcast(x, y)
        axes = []
        for shape in (x, y):
            lead = len(whole) - len(shape)
            axes.append(
                [i for i, n in enumerate(whole) if i < lead or (shape[i - lead] == 1 and n != 1)]
            )
        return np.array(axes[0], dtype), np.array(axes[1], dtype)

    return run
