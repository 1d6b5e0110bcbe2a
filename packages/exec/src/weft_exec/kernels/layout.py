"""Kernels that move elements."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from weft_exec.kernels.array import sizes_of
from weft_exec.kernels.common import constant_input, new_array, pooled
from weft_exec.kernels.registry import ARRAY_DEVICE, KernelFunction, kernel
from weft_graph.ops.layout import check_permutation
from weft_graph.ops.shape_rules import normal_axes, normal_axis
from weft_tensor import errors
from weft_tensor.shape import format_dims

if TYPE_CHECKING:
    from weft_exec.devices.device import Device
    from weft_graph.ir.node import Node

Array = np.ndarray[Any, Any]

# ------------------------------------------------------------------------------- paddings


def _margins(paddings: Any, rank: int) -> list[tuple[int, int]]:
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
        margins = _margins(paddings, x.ndim)
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
        margins = _margins(paddings, x.ndim)
        _check_mirror(x.shape, margins, edge)
        shape = tuple([n + b + a for n, (b, a) in zip(x.shape, margins, strict=True)])
        result = new_array(device, shape, dtype)
        inner = tuple([slice(b, b + n) for n, (b, _) in zip(x.shape, margins, strict=True)])
        result[inner or ...] = x
        for axis, (n, (b, a)) in enumerate(zip(x.shape, margins, strict=True)):
            # Axes before this one are complete, those behind still lack their margins.
            part = result[(slice(None),) * (axis + 1) + inner[axis + 1 :]]
            moved = xp.moveaxis(part, axis, 0)
            if b:
                moved[:b] = moved[b + edge : 2 * b + edge][::-1]
            if a:
                stop = b + n - edge
                moved[b + n :] = moved[stop - a : stop][::-1]
        return result

    return run


@kernel("MirrorPadGrad", device=ARRAY_DEVICE, host=("paddings",))
def _mirror_pad_grad(node: Node, device: Device) -> KernelFunction:
    xp = device.xp
    edge = 1 if node.attrs["mode"] == "REFLECT" else 0

    def run(grad: Any, paddings: Any) -> Any:
        margins = _margins(paddings, grad.ndim)
        total = xp.array(grad)
        sizes = tuple([n - b - a for n, (b, a) in zip(grad.shape, margins, strict=True)])
        if any(size < 0 for size in sizes):
            raise errors.InvalidArgumentError(
                f"paddings {margins} exceed shape {format_dims(grad.shape)}"
            )
        _check_mirror(sizes, margins, edge)
        for axis, (n, (b, a)) in enumerate(zip(sizes, margins, strict=True)):
            moved = xp.moveaxis(total, axis, 0)
            inner = moved[b : b + n]
            if b:
                inner[edge : b + edge] += moved[:b][::-1]
            if a:
                inner[n - edge - a : n - edge] += moved[b + n :][::-1]
            total = xp.moveaxis(inner, 0, axis)
        return pooled(total, device)

    return run


# -------------------------------------------------------------------------- orders of axes


@kernel("Transpose", "ConjugateTranspose", device=ARRAY_DEVICE, host=("perm",))
def _transpose(node: Node, device: Device) -> KernelFunction:
    xp = device.xp
    conjugate = node.type == "ConjugateTranspose" and node.inputs[0].dtype.is_complex
    known = constant_input(node, 1)
    if known is not None and node.inputs[0].dims is not None:
        order = sizes_of(known)

        def run_static(x: Any, perm: Any) -> Any:
            moved = x.transpose(order)
            return xp.conjugate(moved) if conjugate else moved

        return run_static

    def run(x: Any, perm: Any) -> Any:
        order = sizes_of(perm)
        check_permutation(order, x.ndim)
        moved = x.transpose(order)
        return xp.conjugate(moved) if conjugate else moved

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


@kernel("ReverseSequence")
def _reverse_sequence(node: Node, device: Device) -> KernelFunction:
    batch_dim: int = node.attrs["batch_dim"]
    seq_dim: int = node.attrs["seq_dim"]

    def run(x: Any, lengths: Any) -> Any:
        batch = normal_axis(batch_dim, x.ndim, "batch_dim")
        along = normal_axis(seq_dim, x.ndim, "seq_dim")
        size = x.shape[along]
        if lengths.shape != (x.shape[batch],):
            raise errors.InvalidArgumentError(
                f"seq_lengths must have shape [{x.shape[batch]}], got {format_dims(lengths.shape)}"
            )
        if lengths.size and (lengths.min() < 0 or lengths.max() > size):
            raise errors.InvalidArgumentError(
                f"seq_lengths must be in [0, {size}], got {lengths.tolist()}"
            )
        result = new_array(device, x.shape, x.dtype)
        result[...] = x
        rows = np.moveaxis(result, (batch, along), (0, 1))
        sources = np.moveaxis(x, (batch, along), (0, 1))
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
                f"shift and axis must have one length, got {shifts} and {axes}"
            )
        for at in axes:
            normal_axis(at, x.ndim)
        return pooled(xp.roll(x, tuple(shifts), tuple(axes)), device) if axes else x

    return run


# --------------------------------------------------------------------------------- blocks


@kernel("SpaceToBatchND", device=ARRAY_DEVICE, host=("block_shape", "paddings"))
def _space_to_batch(node: Node, device: Device) -> KernelFunction:
    xp = device.xp
    zero: Any = b"" if node.outputs[0].dtype.numpy.kind == "O" else 0

    def run(x: Any, block_shape: Any, paddings: Any) -> Any:
        blocks = _block_sizes(block_shape, x)
        count = len(blocks)
        margins = [(0, 0), *_margins(paddings, count), *[(0, 0)] * (x.ndim - count - 1)]
        padded = xp.pad(x, margins, constant_values=zero) if any(map(any, margins)) else x
        inner = padded.shape[1 : count + 1]
        for axis, (size, block) in enumerate(zip(inner, blocks, strict=True)):
            if size % block:
                raise errors.InvalidArgumentError(
                    f"the padded size at axis {axis + 1} must be a multiple of {block}, got {size}"
                )
        split = [n for s, b in zip(inner, blocks, strict=True) for n in (s // b, b)]
        rest = padded.shape[count + 1 :]
        apart = padded.reshape(padded.shape[0], *split, *rest)
        order = [*range(2, 2 * count + 1, 2), 0, *range(1, 2 * count, 2)]
        moved = apart.transpose([*order, *range(2 * count + 1, apart.ndim)])
        sizes = [s // b for s, b in zip(inner, blocks, strict=True)]
        batch = padded.shape[0] * int(np.prod(blocks, dtype=np.int64))
        return pooled(moved.reshape(batch, *sizes, *rest), device)

    return run


def _block_sizes(block_shape: Any, x: Any) -> list[int]:
    blocks: list[int] = block_shape.tolist()
    if block_shape.ndim != 1 or x.ndim < len(blocks) + 1 or any(b < 1 for b in blocks):
        raise errors.InvalidArgumentError(
            f"block_shape must be a vector of sizes of at least 1, for an input of a higher rank, "
            f"got {blocks} for shape {format_dims(x.shape)}"
        )
    return blocks


@kernel("BatchToSpaceND", device=ARRAY_DEVICE, host=("block_shape", "crops"), alias=True)
def _batch_to_space(node: Node, device: Device) -> KernelFunction:
    def run(x: Any, block_shape: Any, crops: Any) -> Any:
        blocks = _block_sizes(block_shape, x)
        count = len(blocks)
        margins = _margins(crops, count)
        volume = int(np.prod(blocks, dtype=np.int64))
        batch, rest = divmod(x.shape[0], volume)
        if rest:
            raise errors.InvalidArgumentError(
                f"the batch size must be a multiple of {volume}, got {x.shape[0]}"
            )
        apart = x.reshape(*blocks, batch, *x.shape[1:])
        order = [count]
        for i in range(count):
            order += [count + 1 + i, i]
        moved = apart.transpose([*order, *range(2 * count + 1, apart.ndim)])
        inner = [s * b for s, b in zip(x.shape[1 : count + 1], blocks, strict=True)]
        whole = moved.reshape(batch, *inner, *x.shape[count + 1 :])
        key = [slice(None)]
        for axis, (size, (before, after)) in enumerate(zip(inner, margins, strict=True)):
            if before + after > size:
                raise errors.InvalidArgumentError(
                    f"crops at axis {axis + 1} must be at most {size} together, got "
                    f"{[before, after]}"
                )
            key.append(slice(before, size - after))
        return whole[tuple(key)]

    return run


@kernel("SpaceToDepth", device=ARRAY_DEVICE)
def _space_to_depth(node: Node, device: Device) -> KernelFunction:
    xp = device.xp
    b: int = node.attrs["block_size"]
    first = node.attrs["data_format"] == "NCHW"

    def run(x: Any) -> Any:
        images = xp.moveaxis(x, 1, 3) if first else x
        n, h, w, c = images.shape
        if h % b or w % b:
            raise errors.InvalidArgumentError(
                f"height and width must be multiples of {b}, got shape {format_dims(x.shape)}"
            )
        apart = images.reshape(n, h // b, b, w // b, b, c).transpose(0, 1, 3, 2, 4, 5)
        result = apart.reshape(n, h // b, w // b, c * b * b)
        return pooled(xp.moveaxis(result, 3, 1) if first else result, device)

    return run


@kernel("DepthToSpace", device=ARRAY_DEVICE)
def _depth_to_space(node: Node, device: Device) -> KernelFunction:
    xp = device.xp
    b: int = node.attrs["block_size"]
    first = node.attrs["data_format"] == "NCHW"

    def run(x: Any) -> Any:
        images = xp.moveaxis(x, 1, 3) if first else x
        n, h, w, c = images.shape
        if c % (b * b):
            raise errors.InvalidArgumentError(
                f"the depth must be a multiple of {b * b}, got shape {format_dims(x.shape)}"
            )
        apart = images.reshape(n, h, w, b, b, c // (b * b)).transpose(0, 1, 3, 2, 4, 5)
        result = apart.reshape(n, h * b, w * b, c // (b * b))
        return pooled(xp.moveaxis(result, 3, 1) if first else result, device)

    return run


@kernel("ExtractImagePatches")
def _extract_image_patches(node: Node, device: Device) -> KernelFunction:
    _, kh, kw, _ = node.attrs["ksizes"]
    _, sh, sw, _ = node.attrs["strides"]
    _, rh, rw, _ = node.attrs["rates"]
    same = node.attrs["padding"] == "SAME"
    high, wide = (kh - 1) * rh + 1, (kw - 1) * rw + 1

    def run(images: Any) -> Any:
        n, h, w, c = images.shape
        if same:
            margins = [_same_margin(h, high, sh), _same_margin(w, wide, sw)]
            images = np.pad(images, [(0, 0), *margins, (0, 0)])
        if images.shape[1] < high or images.shape[2] < wide:
            raise errors.InvalidArgumentError(
                f"a window of {[high, wide]} does not fit images of {[h, w]}"
            )
        windows = np.lib.stride_tricks.sliding_window_view(images, (high, wide), (1, 2))
        chosen = windows[:, ::sh, ::sw, :, ::rh, ::rw]
        rows, columns = chosen.shape[1:3]
        result = new_array(device, (n, rows, columns, kh * kw * c), images.dtype)
        result.reshape(n, rows, columns, kh, kw, c)[...] = chosen.transpose(0, 1, 2, 4, 5, 3)
        return result

    return run


def _same_margin(size: int, extent: int, stride: int) -> tuple[int, int]:
    total = max((-(-size // stride) - 1) * stride + extent - size, 0)
    return total // 2, total - total // 2
