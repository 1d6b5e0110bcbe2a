"""GPU kernels of shapes, slices, joins, and whatever else moves elements."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from weft_exec.gpu.element_types import INEXACT, INTEGERS
from weft_exec.gpu.kernels.elementwise import computing
from weft_exec.kernels.array import sizes_of
from weft_exec.kernels.layout import _check_mirror, _margins, _same_margin
from weft_exec.kernels.registry import KernelFunction, kernel
from weft_graph.ops.layout import check_permutation
from weft_graph.ops.shape_rules import normal_axis
from weft_tensor import errors
from weft_tensor.shape import format_dims

if TYPE_CHECKING:
    from weft_exec.devices.device import Device
    from weft_graph.ir.node import Node


# ----------------------------------------------------------------------- of one value


@kernel("Fill", device="GPU", host=("dims",))
def _fill(node: Node, device: Device) -> KernelFunction:
    xp, dtype = device.xp, node.outputs[0].dtype.numpy

    def run(dims: Any, value: Any) -> Any:
        shape = sizes_of(dims)
        if any(size < 0 for size in shape):
            raise errors.InvalidArgumentError(f"sizes must be at least 0, got {list(shape)}")
        result = xp.empty(shape, dtype)
        result[...] = value
        return result

    return run


def _zeros_like(xp: Any, x: Any) -> Any:
    return xp.zeros(x.shape, x.dtype)


def _ones_like(xp: Any, x: Any) -> Any:
    return xp.ones(x.shape, x.dtype)


kernel("ZerosLike", device="GPU")(computing(_zeros_like))
kernel("OnesLike", device="GPU")(computing(_ones_like))


@kernel("BroadcastTo", device="GPU", host=("shape",))
def _broadcast_to(node: Node, device: Device) -> KernelFunction:
    xp = device.xp

    def run(x: Any, shape: Any) -> Any:
        try:
            return xp.broadcast_to(x, sizes_of(shape)).copy()
        except ValueError:
            raise errors.InvalidArgumentError(
                f"shape {format_dims(x.shape)} does not broadcast to {shape.tolist()}"
            ) from None

    return run


# ------------------------------------------------------------------------ slices and joins


def _concatenated(xp: Any, parts: tuple[Any, ...], axis: int) -> Any:
    if parts[0].ndim == 0:
        raise errors.InvalidArgumentError("tensors of rank 0 cannot be concatenated")
    at = normal_axis(axis, parts[0].ndim)
    if len(parts) == 1:
        return parts[0]
    try:
        return xp.concatenate(list(parts), axis=at)
    except (ValueError, IndexError):
        shapes = ", ".join(format_dims(part.shape) for part in parts)
        raise errors.InvalidArgumentError(
            f"concatenated tensors must have equal sizes except at axis {at}, got shapes {shapes}"
        ) from None


@kernel("ConcatV2", device="GPU", host=("axis",), alias=True)
def _concat_v2(node: Node, device: Device) -> KernelFunction:
    return lambda *inputs: _concatenated(device.xp, inputs[:-1], int(inputs[-1]))


@kernel("Concat", device="GPU", host=("concat_dim",), alias=True)
def _concat(node: Node, device: Device) -> KernelFunction:
    return lambda axis, *parts: _concatenated(device.xp, parts, int(axis))


@kernel("Pack", device="GPU")
def _pack(node: Node, device: Device) -> KernelFunction:
    xp, axis = device.xp, node.attrs["axis"]

    def run(*values: Any) -> Any:
        shape = values[0].shape
        for value in values:
            if value.shape != shape:
                raise errors.InvalidArgumentError(
                    f"stacked tensors must have one shape, got {format_dims(shape)} and "
                    f"{format_dims(value.shape)}"
                )
        return xp.stack(list(values), axis=normal_axis(axis, len(shape) + 1))

    return run


@kernel("Tile", device="GPU", host=("multiples",))
def _tile(node: Node, device: Device) -> KernelFunction:
    xp = device.xp

    def run(x: Any, multiples: Any) -> Any:
        counts = tuple(multiples.tolist())
        if len(counts) != x.ndim or any(count < 0 for count in counts):
            raise errors.InvalidArgumentError(
                f"multiples must have {x.ndim} entries of at least 0, got {list(counts)}"
            )
        if not counts:
            return x
        result = xp.empty([n * c for n, c in zip(x.shape, counts, strict=True)], x.dtype)
        pairs = [size for pair in zip(counts, x.shape, strict=True) for size in pair]
        spread = [size for n in x.shape for size in (1, n)]
        result.reshape(pairs)[...] = x.reshape(spread)
        return result

    return run


# ------------------------------------------------------------------------------- paddings


@kernel("Pad", "PadV2", device="GPU", host=("paddings",))
def _pad(node: Node, device: Device) -> KernelFunction:
    xp = device.xp

    def run(x: Any, paddings: Any, value: Any = 0) -> Any:
        margins = _margins(paddings, x.ndim)
        shape = [n + b + a for n, (b, a) in zip(x.shape, margins, strict=True)]
        result = xp.empty(shape, x.dtype)
        result[...] = value
        inner = tuple([slice(b, b + n) for n, (b, _) in zip(x.shape, margins, strict=True)])
        result[inner or ...] = x
        return result

    return run


@kernel("MirrorPad", device="GPU", host=("paddings",))
def _mirror_pad(node: Node, device: Device) -> KernelFunction:
    xp, edge = device.xp, 1 if node.attrs["mode"] == "REFLECT" else 0

    def run(x: Any, paddings: Any) -> Any:
        margins = _margins(paddings, x.ndim)
        _check_mirror(x.shape, margins, edge)
        for axis, (n, (b, a)) in enumerate(zip(x.shape, margins, strict=True)):
            moved = xp.moveaxis(x, axis, 0)
            low, high = moved[edge : b + edge][::-1], moved[n - edge - a : n - edge][::-1]
            x = xp.moveaxis(xp.concatenate([low, moved, high], axis=0), 0, axis)
        return xp.ascontiguousarray(x) if x.ndim else x.copy()

    return run


@kernel("MirrorPadGrad", device="GPU", host=("paddings",))
def _mirror_pad_grad(node: Node, device: Device) -> KernelFunction:
    xp, edge = device.xp, 1 if node.attrs["mode"] == "REFLECT" else 0

    def run(grad: Any, paddings: Any) -> Any:
        margins = _margins(paddings, grad.ndim)
        sizes = tuple([n - b - a for n, (b, a) in zip(grad.shape, margins, strict=True)])
        if any(size < 0 for size in sizes):
            raise errors.InvalidArgumentError(
                f"paddings {margins} exceed shape {format_dims(grad.shape)}"
            )
        _check_mirror(sizes, margins, edge)
        total = grad.copy()
        for axis, (n, (b, a)) in enumerate(zip(sizes, margins, strict=True)):
            moved = xp.moveaxis(total, axis, 0)
            inner = moved[b : b + n]
            if b:
                inner[edge : b + edge] += moved[:b][::-1]
            if a:
                inner[n - edge - a : n - edge] += moved[b + n :][::-1]
            total = xp.moveaxis(inner, 0, axis)
        return total.copy()

    return run


# -------------------------------------------------------------------------- orders of axes


@kernel("Transpose", "ConjugateTranspose", device="GPU", host=("perm",), alias=True)
def _transpose(node: Node, device: Device) -> KernelFunction:
    conjugate = node.type == "ConjugateTranspose" and node.inputs[0].dtype.is_complex
    xp = device.xp

    def run(x: Any, perm: Any) -> Any:
        order = sizes_of(perm)
        check_permutation(order, x.ndim)
        moved = x.transpose(order)
        return xp.conjugate(moved) if conjugate else moved

    return run


@kernel("InvertPermutation", device="GPU")
def _invert_permutation(node: Node, device: Device) -> KernelFunction:
    argsort: KernelFunction = device.xp.argsort
    return argsort


@kernel("ReverseSequence", device="GPU")
def _reverse_sequence(node: Node, device: Device) -> KernelFunction:
    xp = device.xp

    def run(x: Any, lengths: Any) -> Any:
        batch = normal_axis(node.attrs["batch_dim"], x.ndim, "batch_dim")
        along = normal_axis(node.attrs["seq_dim"], x.ndim, "seq_dim")
        if lengths.shape != (x.shape[batch],):
            raise errors.InvalidArgumentError(
                f"seq_lengths must have shape [{x.shape[batch]}], got {format_dims(lengths.shape)}"
            )
        rows = xp.moveaxis(x, (batch, along), (0, 1))
        at = xp.arange(x.shape[along])[None, :]
        ends = lengths.astype(np.int64)[:, None]
        source = xp.where(at < ends, ends - 1 - at, at)
        picked = rows[xp.arange(x.shape[batch])[:, None], source]
        return xp.ascontiguousarray(xp.moveaxis(picked, (0, 1), (batch, along)))

    return run


@kernel(
    "Roll",
    device="GPU",
    host=(
        "shift",
        "axis",
    ),
)
def _roll(node: Node, device: Device) -> KernelFunction:
    xp = device.xp

    def run(x: Any, shift: Any, axis: Any) -> Any:
        shifts, axes = shift.reshape(-1).tolist(), axis.reshape(-1).tolist()
        if len(shifts) != len(axes):
            raise errors.InvalidArgumentError(
                f"shift and axis must have one length, got {shifts} and {axes}"
            )
        for count, at in zip(shifts, axes, strict=True):
            x = xp.roll(x, count, normal_axis(at, x.ndim))
        return x

    return run


# --------------------------------------------------------------------------------- blocks


@kernel(
    "SpaceToBatchND",
    device="GPU",
    host=(
        "block_shape",
        "paddings",
    ),
)
def _space_to_batch(node: Node, device: Device) -> KernelFunction:
    xp = device.xp

    def run(x: Any, block_shape: Any, paddings: Any) -> Any:
        blocks = block_shape.tolist()
        count = len(blocks)
        margins = [(0, 0), *_margins(paddings, count), *[(0, 0)] * (x.ndim - count - 1)]
        padded = xp.pad(x, margins) if any(map(any, margins)) else x
        inner, rest = padded.shape[1 : count + 1], padded.shape[count + 1 :]
        for axis, (size, block) in enumerate(zip(inner, blocks, strict=True)):
            if block < 1 or size % block:
                raise errors.InvalidArgumentError(
                    f"the padded size at axis {axis + 1} must be a multiple of {block}, got {size}"
                )
        split = [n for s, b in zip(inner, blocks, strict=True) for n in (s // b, b)]
        apart = padded.reshape(padded.shape[0], *split, *rest)
        order = [*range(2, 2 * count + 1, 2), 0, *range(1, 2 * count, 2)]
        moved = apart.transpose([*order, *range(2 * count + 1, apart.ndim)])
        sizes = [s // b for s, b in zip(inner, blocks, strict=True)]
        return moved.reshape(padded.shape[0] * int(np.prod(blocks)), *sizes, *rest)

    return run


@kernel("SpaceToDepth", "DepthToSpace", device="GPU")
def _depth(node: Node, device: Device) -> KernelFunction:
    b: int = node.attrs["block_size"]
    first = node.attrs["data_format"] == "NCHW"
    to_depth, xp = node.type == "SpaceToDepth", device.xp

    def run(x: Any) -> Any:
        n, h, w, c = (x.transpose(0, 2, 3, 1) if first else x).shape
        images = x.transpose(0, 2, 3, 1) if first else x
        if h % b or w % b if to_depth else c % (b * b):
            raise errors.InvalidArgumentError(
                f"{node.type} requires {'height and width' if to_depth else 'the depth'} to be "
                f"multiples of {b if to_depth else b * b}, got shape {format_dims(x.shape)}"
            )
        if to_depth:
            apart = images.reshape(n, h // b, b, w // b, b, c).transpose(0, 1, 3, 2, 4, 5)
            result = apart.reshape(n, h // b, w // b, c * b * b)
        else:
            apart = images.reshape(n, h, w, b, b, c // (b * b)).transpose(0, 1, 3, 2, 4, 5)
            result = apart.reshape(n, h * b, w * b, c // (b * b))
        return xp.ascontiguousarray(result.transpose(0, 3, 1, 2) if first else result)

    return run


@kernel("ExtractImagePatches", device="GPU", dtypes={"T": (*INEXACT, *INTEGERS)})
def _extract_image_patches(node: Node, device: Device) -> KernelFunction:
    from weft_exec.gpu.kernels.conv import windows

    (_, kh, kw, _), (_, sh, sw, _) = node.attrs["ksizes"], node.attrs["strides"]
    _, rh, rw, _ = node.attrs["rates"]
    high, wide = (kh - 1) * rh + 1, (kw - 1) * rw + 1
    xp, same = device.xp, node.attrs["padding"] == "SAME"

    def run(images: Any) -> Any:
        n, h, w, c = images.shape
        if same:
            margins = [_same_margin(h, high, sh), _same_margin(w, wide, sw)]
            images = xp.pad(images, [(0, 0), *margins, (0, 0)])
        if images.shape[1] < high or images.shape[2] < wide:
            raise errors.InvalidArgumentError(
                f"a window of {[high, wide]} does not fit images of {[h, w]}"
            )
        counts = (images.shape[1] - high) // sh + 1, (images.shape[2] - wide) // sw + 1
        view = windows(xp, images, (kh, kw), (sh, sw), (rh, rw), counts)
        return view.reshape(n, *counts, kh * kw * c)

    return run
