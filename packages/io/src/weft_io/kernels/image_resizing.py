"""Kernels that resize images, and their gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from weft_exec.kernels.common import as_exact
from weft_exec.kernels.registry import ARRAY_DEVICE, KernelFunction, kernel
from weft_io.kernels.resampling import resample, scatter_add_sorted
from weft_tensor import errors
from weft_tensor.resampling import (
    Taps,
    area_taps,
    cubic_taps,
    filter_taps,
    linear_taps,
    nearest_index,
)
from weft_tensor.shape import format_dims

if TYPE_CHECKING:
    from weft_exec.devices.device import Device
    from weft_graph.ir.node import Node

TapsOf = Callable[[int, int], Taps]


def _sizes(images: Any, size: Any) -> tuple[int, int]:
    """Return the requested height and width."""
    if images.ndim != 4 or size.shape != (2,):
        raise errors.InvalidArgumentError(
            "images of shape [batch, height, width, channels] and a size [height, width] are "
            f"required, got shapes {format_dims(images.shape)} and {format_dims(size.shape)}"
        )
    height, width = size.tolist()
    if min(height, width) < 1:
        raise errors.InvalidArgumentError(f"the size must be at least [1, 1], got {size.tolist()}")
    _check_pixels(images.shape)
    return height, width


def _check_pixels(shape: tuple[int, ...]) -> None:
    if 0 in shape[1:3]:
        raise errors.InvalidArgumentError(
            f"images without pixels cannot be resized, got shape {format_dims(shape)}"
        )


def _taps_of(node: Node) -> TapsOf:
    """Return a function from sizes to interpolation weights along an axis, or None."""
    align: bool = node.attrs["align_corners"]
    if node.type == "ResizeArea":
        return lambda in_size, out_size: area_taps(in_size, out_size, align)
    half: bool = node.attrs["half_pixel_centers"]
    taps = linear_taps if "Bilinear" in node.type else cubic_taps
    return lambda in_size, out_size: taps(in_size, out_size, align, half)


@kernel(
    "ResizeBilinear",
    "ResizeBicubic",
    "ResizeArea",
    device=ARRAY_DEVICE,
    host=("size",),
    heavy=True,
)
def _resize(node: Node, device: Device) -> KernelFunction:
    taps = _taps_of(node)

    def run(images: Any, size: Any) -> Any:
        height, width = _sizes(images, size)
        rows, columns = taps(images.shape[1], height), taps(images.shape[2], width)
        return resample(images, rows, columns, device)

    return run


@kernel("ResizeBilinearGrad", "ResizeBicubicGrad", device=ARRAY_DEVICE, heavy=True)
def _resize_grad(node: Node, device: Device) -> KernelFunction:
    taps, dtype = _taps_of(node), node.outputs[0].dtype.numpy

    def run(grads: Any, original: Any) -> Any:
        _check_gradient(grads, original)
        rows, columns = [
            taps(original.shape[axis], grads.shape[axis]).transposed() for axis in (1, 2)
        ]
        return as_exact(resample(grads, rows, columns, device), dtype, device)

    return run


def _check_gradient(grads: Any, original: Any) -> None:
    fit = (grads.ndim == original.ndim == 4) and all(
        grads.shape[axis] == original.shape[axis] for axis in (0, 3)
    )
    if not fit:
        raise errors.InvalidArgumentError(
            "gradients and images must have shapes [batch, height, width, channels] that agree in "
            f"batch and channels, got {format_dims(grads.shape)} and {format_dims(original.shape)}"
        )
    _check_pixels(grads.shape)
    _check_pixels(original.shape)


@kernel("ResizeNearestNeighbor", device=ARRAY_DEVICE, host=("size",), heavy=True)
def _nearest(node: Node, device: Device) -> KernelFunction:
    align, half = node.attrs["align_corners"], node.attrs["half_pixel_centers"]
    xp = device.xp

    def run(images: Any, size: Any) -> Any:
        height, width = _sizes(images, size)
        rows = nearest_index(images.shape[1], height, align, half)
        columns = nearest_index(images.shape[2], width, align, half)
        tall = xp.take(images, xp.asarray(rows), axis=1)
        return xp.take(tall, xp.asarray(columns), axis=2)

    return run


@kernel("ResizeNearestNeighborGrad", device=ARRAY_DEVICE, host=("size",), heavy=True)
def _nearest_grad(node: Node, device: Device) -> KernelFunction:
    align, half = node.attrs["align_corners"], node.attrs["half_pixel_centers"]
    dtype = node.outputs[0].dtype.numpy

    def run(grads: Any, size: Any) -> Any:
        height, width = _sizes(grads, size)
        rows = nearest_index(height, grads.shape[1], align, half)
        columns = nearest_index(width, grads.shape[2], align, half)
        part = scatter_add_sorted(grads, rows, height, 1, device.xp)
        return as_exact(scatter_add_sorted(part, columns, width, 2, device.xp), dtype, device)

    return run


def _filters(node: Node, scale: Any, translation: Any) -> Callable[[int, int, int], Taps]:
    """Return a function from old and new sizes to interpolation weights along axis 0 or 1."""
    kind, antialias = node.attrs["kernel_type"], node.attrs["antialias"]
    if scale.shape != (2,) or translation.shape != (2,):
        raise errors.InvalidArgumentError(
            "scale and translation must have 2 values each, got shapes "
            f"{format_dims(scale.shape)} and {format_dims(translation.shape)}"
        )
    if not (scale > 0).all():
        raise errors.InvalidArgumentError(f"scale must be above 0, got {scale.tolist()}")
    factors, shifts = scale.tolist(), translation.tolist()
    return lambda axis, in_size, out_size: filter_taps(
        in_size, out_size, factors[axis], shifts[axis], kind, antialias
    )


@kernel(
    "ScaleAndTranslate",
    device=ARRAY_DEVICE,
    host=("size", "scale", "translation"),
    heavy=True,
)
def _scale_and_translate(node: Node, device: Device) -> KernelFunction:
    def run(images: Any, size: Any, scale: Any, translation: Any) -> Any:
        height, width = _sizes(images, size)
        taps = _filters(node, scale, translation)
        rows, columns = taps(0, images.shape[1], height), taps(1, images.shape[2], width)
        return resample(images, rows, columns, device)

    return run


@kernel(
    "ScaleAndTranslateGrad",
    device=ARRAY_DEVICE,
    host=("scale", "translation"),
    heavy=True,
)
def _scale_and_translate_grad(node: Node, device: Device) -> KernelFunction:
    def run(grads: Any, original: Any, scale: Any, translation: Any) -> Any:
        _check_gradient(grads, original)
        taps = _filters(node, scale, translation)
        rows, columns = [
            taps(axis - 1, original.shape[axis], grads.shape[axis]).transposed() for axis in (1, 2)
        ]
        return resample(grads, rows, columns, device)

    return run
