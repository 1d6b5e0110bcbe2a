"""Kernels of constants, placeholders, and tensors that are filled with one value."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from weft_exec.kernels.common import new_array
from weft_exec.kernels.registry import ANY_DEVICE, ARRAY_DEVICE, KernelFunction, kernel
from weft_tensor import errors
from weft_tensor.shape import format_dims

if TYPE_CHECKING:
    from weft_exec.devices.device import Device
    from weft_graph.ir.node import Node

Array = np.ndarray[Any, Any]


def to_sizes(vector: Any) -> tuple[int, ...]:
    """Return a vector of integers as a tuple."""
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


# ------------------------------------------------------------------- tensors of one value


def fill_tensor(device: Device, shape: tuple[int, ...], value: Any, dtype: np.dtype[Any]) -> Any:
    """Return a tensor that is filled with one value.

    A NumPy scalar for rank 0 if its type has one.
    """
    if not shape and dtype.kind != "O" and device.xp is np:
        return dtype.type(value)
    result = new_array(device, shape, dtype)
    result[...] = value
    return result


@kernel("Fill", device=ARRAY_DEVICE, host=("dims",))
def _fill(node: Node, device: Device) -> KernelFunction:
    dtype = node.outputs[0].dtype.numpy

    def run(dims: Any, value: Any) -> Any:
        shape = to_sizes(dims)
        if any(size < 0 for size in shape):
            raise errors.InvalidArgumentError(f"sizes must be at least 0, got {list(shape)}")
        if getattr(value, "ndim", 0):  # of any device; text may be plain bytes
            raise errors.InvalidArgumentError(
                f"value must be a scalar, got shape {list(value.shape)}"
            )
        return fill_tensor(device, shape, value, dtype)

    return run


@kernel("ZerosLike", "OnesLike", device=ARRAY_DEVICE)
def _like(node: Node, device: Device) -> KernelFunction:
    dtype = node.outputs[0].dtype.numpy
    number: Any = 1 if node.type == "OnesLike" else 0
    value = b"" if dtype.kind == "O" else dtype.type(number)

    def run(x: Any) -> Any:
        return fill_tensor(device, x.shape, value, dtype)

    return run
