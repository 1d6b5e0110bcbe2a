"""Kernels that move blocks of pixels to the batch or the channels, and back; patches."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from weft_exec.kernels.common import copy_to_pool, new_array
from weft_exec.kernels.padding import margins_of
from weft_exec.kernels.registry import ARRAY_DEVICE, KernelFunction, kernel
from weft_exec.kernels.window_functions import pad_spatial, windows
from weft_tensor import errors
from weft_tensor.shape import format_dims

if TYPE_CHECKING:
    from weft_exec.devices.device import Device
    from weft_graph.ir.node import Node


@kernel("SpaceToBatchND", device=ARRAY_DEVICE, host=("block_shape", "paddings"))
def _space_to_batch(node: Node, device: Device) -> KernelFunction:
    xp = device.xp
    zero: Any = b"" if node.outputs[0].dtype.numpy.kind == "O" else 0

    def run(x: Any, block_shape: Any, paddings: Any) -> Any:
        blocks = _block_sizes(block_shape, x)
        count = len(blocks)
        margins = [(0, 0), *margins_of(paddings, count), *[(0, 0)] * (x.ndim - count - 1)]
        padded = xp.pad(x, margins, constant_values=zero) if any(map(any, margins)) else x
        inner = padded.shape[1 : count + 1]
        for axis, (size, block) in enumerate(zip(inner, blocks, strict=True)):
            if size % block:
                raise errors.InvalidArgumentError(
                    f"the padded size at axis {axis + 1} must be a multiple of {block}, got {size}"
                )
        split = [n for s, b in zip(inner, blocks, strict=True) for n in (s // b, b)]
        remaining = padded.shape[count + 1 :]
        split_blocks = padded.reshape(padded.shape[0], *split, *remaining)
        order = [*range(2, 2 * count + 1, 2), 0, *range(1, 2 * count, 2)]
        transposed = split_blocks.transpose([*order, *range(2 * count + 1, split_blocks.ndim)])
        sizes = [s // b for s, b in zip(inner, blocks, strict=True)]
        batch = padded.shape[0] * int(np.prod(blocks, dtype=np.int64))
        return copy_to_pool(transposed.reshape(batch, *sizes, *remaining), device)

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
        margins = margins_of(crops, count)
        volume = int(np.prod(blocks, dtype=np.int64))
        batch, remaining = divmod(x.shape[0], volume)
        if remaining:
            raise errors.InvalidArgumentError(
                f"the batch size must be a multiple of {volume}, got {x.shape[0]}"
            )
        split_blocks = x.reshape(*blocks, batch, *x.shape[1:])
        order = [count]
        for i in range(count):
            order += [count + 1 + i, i]
        transposed = split_blocks.transpose([*order, *range(2 * count + 1, split_blocks.ndim)])
        inner = [s * b for s, b in zip(x.shape[1 : count + 1], blocks, strict=True)]
        padded = transposed.reshape(batch, *inner, *x.shape[count + 1 :])
        key = [slice(None)]
        for axis, (size, (before, after)) in enumerate(zip(inner, margins, strict=True)):
            if before + after > size:
                raise errors.InvalidArgumentError(
                    f"crops at axis {axis + 1} must be at most {size} in total, got "
                    f"{[before, after]}"
                )
            key.append(slice(before, size - after))
        return padded[tuple(key)]

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
        blocks = images.reshape(n, h // b, b, w // b, b, c).transpose(0, 1, 3, 2, 4, 5)
        result = blocks.reshape(n, h // b, w // b, c * b * b)
        return copy_to_pool(xp.moveaxis(result, 3, 1) if first else result, device)

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
        blocks = images.reshape(n, h, w, b, b, c // (b * b)).transpose(0, 1, 3, 2, 4, 5)
        result = blocks.reshape(n, h * b, w * b, c // (b * b))
        return copy_to_pool(xp.moveaxis(result, 3, 1) if first else result, device)

    return run


@kernel("ExtractImagePatches", "ExtractVolumePatches", device=ARRAY_DEVICE)
def _extract_patches(node: Node, device: Device) -> KernelFunction:
    attrs, interior = node.attrs, slice(1, -1)
    kernel, strides = tuple(attrs["ksizes"][interior]), tuple(attrs["strides"][interior])
    rates = tuple(attrs["rates"][interior]) if "rates" in attrs else (1,) * len(kernel)
    extents = tuple((k - 1) * rate + 1 for k, rate in zip(kernel, rates, strict=True))
    xp, is_same = device.xp, attrs["padding"] == "SAME"

    def run(images: Any) -> Any:
        inner = images.shape[interior]
        if is_same:
            sizes = zip(inner, extents, strides, strict=True)
            margins = [_same_margin(*size) for size in sizes]
            before, after = zip(*margins, strict=True)
            images = pad_spatial(images, before, after, images.dtype, device)
        elif any(n < extent for n, extent in zip(inner, extents, strict=True)):
            raise errors.InvalidArgumentError(
                f"a window of {list(extents)} exceeds images of size {list(inner)}"
            )
        spans = zip(images.shape[interior], extents, strides, strict=True)
        counts = tuple((n - extent) // step + 1 for n, extent, step in spans)
        depth = images.shape[-1] * math.prod(kernel)
        result = new_array(device, (images.shape[0], *counts, depth), images.dtype)
        patches = windows(xp, images, kernel, strides, rates, counts)
        result.reshape(patches.shape)[...] = patches
        return result

    return run


def _same_margin(size: int, extent: int, stride: int) -> tuple[int, int]:
    """Return the padding before and after an axis for "SAME" windows of an extent."""
    total = max((-(-size // stride) - 1) * stride + extent - size, 0)
    return total // 2, total - total // 2
