"""Kernels that join and split tensors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from weft_exec.kernels.common import LARGE, constant_input, new_array
from weft_exec.kernels.registry import ALL, ARRAY_DEVICE, KernelFunction, kernel
from weft_graph.ops.join import split_sizes
from weft_graph.ops.shape_rules import normal_axis
from weft_tensor import errors
from weft_tensor.shape import format_dims

if TYPE_CHECKING:
    from weft_exec.devices.device import Device
    from weft_graph.ir.node import Node

# ------------------------------------------------------------------------------- together


def _concatenate(parts: tuple[Any, ...], axis: int, device: Device) -> Any:
    """Concatenate parts along an axis; the result is in the pool if it is large."""
    first = parts[0]
    rank = first.ndim
    if rank == 0:
        raise errors.InvalidArgumentError("tensors of rank 0 cannot be concatenated")
    index = normal_axis(axis, rank)
    if len(parts) == 1:
        return first
    try:
        if sum([part.nbytes for part in parts]) <= LARGE or device.xp is not np:
            return device.xp.concatenate(parts, index)
        shape = list(first.shape)
        shape[index] = sum([part.shape[index] for part in parts])
        result = new_array(device, tuple(shape), first.dtype)
        return np.concatenate(parts, index, out=result)
    except (ValueError, IndexError):
        shapes = ", ".join(format_dims(part.shape) for part in parts)
        raise errors.InvalidArgumentError(
            f"concatenated tensors must have equal sizes except at axis {index}, got shapes "
            f"{shapes}"
        ) from None


@kernel("ConcatV2", device=ARRAY_DEVICE, host=("axis",), alias=True)
def _concat_v2(node: Node, device: Device) -> KernelFunction:
    axis_value = constant_input(node, len(node.inputs) - 1)
    if axis_value is not None:
        axis = int(axis_value.reshape(-1)[0])

        def run_static(*inputs: Any) -> Any:
            return _concatenate(inputs[:-1], axis, device)

        return run_static

    def run(*inputs: Any) -> Any:
        return _concatenate(inputs[:-1], inputs[-1].item(), device)

    return run


@kernel("Concat", device=ARRAY_DEVICE, host=("concat_dim",), alias=True)
def _concat(node: Node, device: Device) -> KernelFunction:
    def run(axis: Any, *parts: Any) -> Any:
        return _concatenate(parts, axis.item(), device)

    return run


@kernel("ConcatOffset", device=ARRAY_DEVICE, host=ALL)
def _concat_offset(node: Node, device: Device) -> KernelFunction:
    def run(axis: Any, *shapes: Any) -> Any:
        index = normal_axis(int(axis), len(shapes[0]))
        offsets = []
        position = 0
        for shape in shapes:
            remaining = [
                a == b for i, (a, b) in enumerate(zip(shape, shapes[0], strict=False)) if i != index
            ]
            if len(shape) != len(shapes[0]) or not all(remaining):
                raise errors.InvalidArgumentError(
                    f"shapes must agree except at axis {index}, got {shapes[0].tolist()} and "
                    f"{shape.tolist()}"
                )
            offset = np.zeros(len(shape), np.int32)
            offset[index] = position
            position += int(shape[index])
            offsets.append(offset)
        return tuple(offsets) if len(offsets) > 1 else offsets[0]

    return run


@kernel("Pack", device=ARRAY_DEVICE)
def _pack(node: Node, device: Device) -> KernelFunction:
    axis: int = node.attrs["axis"]
    dtype = node.outputs[0].dtype.numpy
    count, xp = len(node.inputs), device.xp
    of_scalars = node.outputs[0].dims is not None and len(node.outputs[0].dims) == 1
    if of_scalars and dtype.kind != "O" and xp is np:

        def run_scalars(*values: Any) -> Any:
            return np.array(values, dtype)

        return run_scalars

    def run(*values: Any) -> Any:
        shape = values[0].shape
        for value in values:
            if value.shape != shape:
                raise errors.InvalidArgumentError(
                    f"stacked tensors must have the same shape, got {format_dims(shape)} and "
                    f"{format_dims(value.shape)}"
                )
        index = normal_axis(axis, len(shape) + 1)
        if xp is not np:
            return xp.stack(values, index)
        result = new_array(device, (*shape[:index], count, *shape[index:]), dtype)
        lead: tuple[Any, ...] = (slice(None),) * index
        for i, value in enumerate(values):
            result[(*lead, i)] = value[()] if value.ndim == 0 else value
        return result

    return run


@kernel("Tile", device=ARRAY_DEVICE, host=("multiples",))
def _tile(node: Node, device: Device) -> KernelFunction:
    def run(x: Any, multiples: Any) -> Any:
        counts = tuple(multiples.tolist())
        if len(counts) != x.ndim or any(count < 0 for count in counts):
            raise errors.InvalidArgumentError(
                f"multiples must have {x.ndim} entries of at least 0, got {list(counts)}"
            )
        if not counts:
            return x
        # Each axis becomes a pair (copies, size); the value is broadcast along the first of them.
        shape = tuple([n * count for n, count in zip(x.shape, counts, strict=True)])
        result = new_array(device, shape, x.dtype)
        pairs = [size for pair in zip(counts, x.shape, strict=True) for size in pair]
        expanded = [size for n in x.shape for size in (1, n)]
        result.reshape(pairs)[...] = x.reshape(expanded)
        return result

    return run


# ---------------------------------------------------------------------------------- apart


@kernel("Split", device=ARRAY_DEVICE, host=("split_dim",))
def _split(node: Node, device: Device) -> KernelFunction:
    count: int = node.attrs["num_split"]

    def run(axis: Any, value: Any) -> Any:
        index = normal_axis(int(axis), value.ndim)
        if count == 1:
            return value
        size, remaining = divmod(value.shape[index], count)
        if remaining:
            raise errors.InvalidArgumentError(
                f"the size at axis {index} must be a multiple of {count} to be split evenly, got "
                f"shape {format_dims(value.shape)}"
            )
        lead = (slice(None),) * index
        return tuple([value[(*lead, slice(i * size, (i + 1) * size))] for i in range(count)])

    return run


@kernel("SplitV", device=ARRAY_DEVICE, host=("size_splits", "split_dim"))
def _split_v(node: Node, device: Device) -> KernelFunction:
    count: int = node.attrs["num_split"]

    def run(value: Any, sizes: Any, axis: Any) -> Any:
        index = normal_axis(int(axis), value.ndim)
        if sizes.shape != (count,):
            raise errors.InvalidArgumentError(
                f"size_splits must have shape [{count}], got {format_dims(sizes.shape)}"
            )
        lead = (slice(None),) * index
        parts = []
        start = 0
        for size in split_sizes(sizes.tolist(), value.shape[index], index):
            assert size is not None
            parts.append(value[(*lead, slice(start, start + size))])
            start += size
        return tuple(parts) if count > 1 else parts[0]

    return run


@kernel("Unpack", device=ARRAY_DEVICE)
def _unpack(node: Node, device: Device) -> KernelFunction:
    count: int = node.attrs["num"]
    axis: int = node.attrs["axis"]
    # The ellipsis keeps an element of rank 0 an array: strings have no NumPy scalar.
    tail: tuple[Any, ...] = (Ellipsis,) if node.inputs[0].dtype.numpy.kind == "O" else ()

    def run(value: Any) -> Any:
        index = normal_axis(axis, value.ndim)
        if value.shape[index] != count:
            raise errors.InvalidArgumentError(
                f"num must be the size at axis {index} of shape {format_dims(value.shape)}, "
                f"got {count}"
            )
        lead: tuple[Any, ...] = (slice(None),) * index
        parts = [value[(*lead, i, *tail)] for i in range(count)]
        return parts[0] if count == 1 else tuple(parts)

    return run
