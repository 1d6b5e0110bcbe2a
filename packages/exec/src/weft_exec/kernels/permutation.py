"""Kernels that reorder elements."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from weft_exec.kernels.array import to_sizes
from weft_exec.kernels.common import constant_input, copy_to_pool, new_array
from weft_exec.kernels.registry import ARRAY_DEVICE, KernelFunction, kernel
from weft_graph.ops.permutation import check_permutation
from weft_graph.ops.shape_rules import normal_axes, normal_axis
from weft_tensor import errors
from weft_tensor.shape import format_dims

if TYPE_CHECKING:
    from weft_exec.devices.device import Device
    from weft_graph.ir.node import Node

Array = np.ndarray[Any, Any]


@kernel("Transpose", "ConjugateTranspose", device=ARRAY_DEVICE, host=("perm",))
def _transpose(node: Node, device: Device) -> KernelFunction:
    xp = device.xp
    conjugate = node.type == "ConjugateTranspose" and node.inputs[0].dtype.is_complex
    permutation = constant_input(node, 1)
    if permutation is not None and permutation.ndim == 1 and node.inputs[0].dims is not None:
        order = to_sizes(permutation)

        def run_static(x: Any, perm: Any) -> Any:
            transposed = x.transpose(order)
            return xp.conjugate(transposed) if conjugate else transposed

        return run_static

    def run(x: Any, perm: Any) -> Any:
        order = to_sizes(perm)
        check_permutation(order, x.ndim)
        transposed = x.transpose(order)
        return xp.conjugate(transposed) if conjugate else transposed

    return run


@kernel("InvertPermutation", device=ARRAY_DEVICE)
def _invert_permutation(node: Node, device: Device) -> KernelFunction:
    if device.xp is not np:  # to check it would be to wait for the device
        return lambda x: device.xp.argsort(x)

    def run(x: Any) -> Any:
        if x.ndim != 1:
            raise errors.InvalidArgumentError(
                f"a permutation must be a vector, got shape {format_dims(x.shape)}"
            )
        check_permutation(x.tolist(), len(x))
        result = np.empty_like(x)
        result[x] = np.arange(len(x), dtype=x.dtype)
        return result

    return run


@kernel("Reverse", device=ARRAY_DEVICE, host=("dims",), alias=True)
def _reverse(node: Node, device: Device) -> KernelFunction:
    def run(x: Any, flags: Any) -> Any:
        if flags.shape != (x.ndim,):
            raise errors.InvalidArgumentError(
                f"dims must have one flag per axis of {format_dims(x.shape)}, got {flags.tolist()}"
            )
        return x[(*[slice(None, None, -1 if flag else 1) for flag in flags.tolist()], ...)]

    return run


@kernel("ReverseV2", device=ARRAY_DEVICE, host=("axis",), alias=True)
def _reverse_v2(node: Node, device: Device) -> KernelFunction:
    def run(x: Any, axis: Any) -> Any:
        axes = normal_axes(axis.reshape(-1).tolist(), x.ndim)
        return x[(*[slice(None, None, -1 if i in axes else 1) for i in range(x.ndim)], ...)]

    return run


def _reverse_rows(xp: Any, x: Any, lengths: Any, batch: int, axis: int) -> Any:
    """Reverse, in each row, the elements before the row's length, for all rows in one launch."""
    rows = xp.moveaxis(x, (batch, axis), (0, 1))
    index = xp.arange(x.shape[axis])[None, :]
    ends = lengths.astype(np.int64)[:, None]
    source = xp.where(index < ends, ends - 1 - index, index)
    row = rows[xp.arange(x.shape[batch])[:, None], source]
    return xp.ascontiguousarray(xp.moveaxis(row, (0, 1), (batch, axis)))


def _sources(lengths: Any, size: int, by_row: bool) -> Any:
    """Return the position of the source of each element, over all sequences.

    Args:
      by_row: True if the sequences are stored as (batch, time), False for (time, batch).
    """
    ends, time = lengths.astype(np.intp)[:, None], np.arange(size)
    time = np.where(time < ends, ends - 1 - time, time)
    count = np.arange(len(lengths))[:, None]
    return count * size + time if by_row else (time * len(lengths) + count).T


@kernel("ReverseSequence", device=ARRAY_DEVICE)
def _reverse_sequence(node: Node, device: Device) -> KernelFunction:
    batch_dim: int = node.attrs["batch_dim"]
    seq_dim: int = node.attrs["seq_dim"]

    def run(x: Any, lengths: Any) -> Any:
        batch = normal_axis(batch_dim, x.ndim, "batch_dim")
        axis = normal_axis(seq_dim, x.ndim, "seq_dim")
        size = x.shape[axis]
        if lengths.shape != (x.shape[batch],):
            raise errors.InvalidArgumentError(
                f"seq_lengths must have shape [{x.shape[batch]}], got {format_dims(lengths.shape)}"
            )
        if device.xp is not np:
            return _reverse_rows(device.xp, x, lengths, batch, axis)
        if lengths.size and (lengths.min() < 0 or lengths.max() > size):
            raise errors.InvalidArgumentError(
                f"seq_lengths must be in [0, {size}], got {lengths.tolist()}"
            )
        result = new_array(device, x.shape, x.dtype)
        if batch + axis == 1 and x.flags.c_contiguous:
            index = _sources(lengths, size, by_row=axis == 1)
            flat = (index.size, prod(x.shape[2:]))
            np.take(x.reshape(flat), index.reshape(-1), 0, result.reshape(flat), "clip")
            return result
        result[...] = x
        rows = np.moveaxis(result, (batch, axis), (0, 1))
        sources = np.moveaxis(x, (batch, axis), (0, 1))
        for row, source, length in zip(rows, sources, lengths.tolist(), strict=True):
            row[:length] = source[:length][::-1]
        return result

    return run


@kernel("Roll", device=ARRAY_DEVICE, host=("shift", "axis"))
def _roll(node: Node, device: Device) -> KernelFunction:
    xp = device.xp

    def run(x: Any, shift: Any, axis: Any) -> Any:
        shifts, axes = shift.reshape(-1).tolist(), axis.reshape(-1).tolist()
        if len(shifts) != len(axes):
            raise errors.InvalidArgumentError(
                f"shift and axis must have the same length, got {shifts} and {axes}"
            )
        for index in axes:
            normal_axis(index, x.ndim)
        return copy_to_pool(xp.roll(x, tuple(shifts), tuple(axes)), device) if axes else x

    return run
