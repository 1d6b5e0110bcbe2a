"""Kernels of sums of many tensors and of clipping; `elementwise` derives other arithmetic."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from weft_exec.kernels.common import NARROW, as_exact, binary, new_array
from weft_exec.kernels.registry import ARRAY_DEVICE, KernelFunction, kernel
from weft_tensor import dtypes, errors
from weft_tensor.shape import compatible_dims, format_dims

if TYPE_CHECKING:
    from weft_exec.devices.device import Device
    from weft_graph.ir.node import Node


@kernel("AccumulateNV2", device=ARRAY_DEVICE)
def _accumulate_n(node: Node, device: Device) -> KernelFunction:
    add, expected = _add_n(node, device), node.attrs["shape"]
    if expected is None or any([value.dims == expected for value in node.inputs]):
        return add

    def run(*values: Any) -> Any:
        shape = values[0].shape
        if not compatible_dims(shape, expected):
            raise errors.InvalidArgumentError(
                f"the tensors must have a shape compatible with {format_dims(expected)}, got "
                f"{format_dims(shape)}"
            )
        return add(*values)

    return run


@kernel("AddN", device=ARRAY_DEVICE)
def _add_n(node: Node, device: Device) -> KernelFunction:
    xp, dtype = device.xp, node.attrs["T"]
    if dtype is dtypes.variant:
        raise errors.UnimplementedError("AddN of variants is not supported")
    of_scalars = all([value.dims == () for value in node.inputs])
    if xp is np and of_scalars and dtype not in NARROW:
        return _add_scalars
    if xp is np and len(node.inputs) == 2:
        return _checked_pair(node, device)
    wide = np.dtype(np.float32) if dtype in NARROW else dtype.numpy

    def run(first: Any, *other_inputs: Any) -> Any:
        _check_shapes(first, other_inputs)
        if not other_inputs:
            return first.copy()
        result = new_array(device, first.shape, wide)
        xp.add(first, other_inputs[0], out=result, dtype=wide)
        for value in other_inputs[1:]:
            xp.add(result, value, out=result, dtype=wide)
        return result if result.dtype == first.dtype else as_exact(result, first.dtype, device)

    return run


def _add_scalars(first: Any, *other_inputs: Any) -> Any:
    for value in other_inputs:
        first = first + value
    return first


def _checked_pair(node: Node, device: Device) -> KernelFunction:
    plain = binary(np.add)(node, device)

    def run(x: Any, y: Any) -> Any:
        if x.shape != y.shape:
            _check_shapes(x, (y,))
        return plain(x, y)

    return run


def _check_shapes(first: Any, other_inputs: tuple[Any, ...]) -> None:
    for value in other_inputs:
        if value.shape != first.shape:
            raise errors.InvalidArgumentError(
                f"the tensors must have the same shape, got {list(first.shape)} and "
                f"{list(value.shape)}"
            )


_MANY = 10_000


@kernel("ClipByValue", device=ARRAY_DEVICE)
def _clip(node: Node, device: Device) -> KernelFunction:
    xp, dtype = device.xp, node.outputs[0].dtype.numpy

    def run(t: Any, low: Any, high: Any) -> Any:
        if low.ndim > t.ndim or high.ndim > t.ndim:
            raise errors.InvalidArgumentError(
                f"the bounds must broadcast to shape {list(t.shape)}, got {list(low.shape)} and "
                f"{list(high.shape)}"
            )
        if t.ndim == 0:
            return xp.maximum(xp.minimum(t, high), low)
        result = new_array(device, t.shape, dtype)
        bounded = xp is np and t.size > _MANY and dtype.kind in "fiu" and not low.ndim + high.ndim
        if bounded and low <= high:  # one pass, where few elements would wait for its checks
            return t.clip(low, high, out=result)
        xp.minimum(t, high, out=result)
        return xp.maximum(result, low, out=result)

    return run
