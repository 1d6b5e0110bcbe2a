"""Kernels for colors."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from weft_exec.kernels.common import as_exact, new_array, widen_value
from weft_exec.kernels.registry import KernelFunction, kernel
from weft_tensor import errors
from weft_tensor.shape import format_dims

if TYPE_CHECKING:
    from weft_exec.devices.device import Device
    from weft_graph.ir.node import Node

BLOCK: int = 1 << 15
"""Number of pixels processed at a time, so that intermediate values stay in the cache."""


def _pixelwise(change: Callable[..., Any], images: Any, device: Device, *args: Any) -> Any:
    """Apply `change` to the three channels of all pixels, block by block."""
    if not images.shape or images.shape[-1] != 3:
        raise errors.InvalidArgumentError(
            f"images must have 3 channels on their last axis, got {format_dims(images.shape)}"
        )
    result = new_array(device, images.shape, images.dtype)
    pixels, new_value = images.reshape(-1, 3), result.reshape(-1, 3)
    for index in range(0, len(pixels), BLOCK):
        block = slice(index, index + BLOCK)
        wide = widen_value(pixels[block])
        channels = change(*[np.ascontiguousarray(wide[:, i]) for i in range(3)], *args)
        for i, channel in enumerate(channels):
            new_value[block, i] = channel
    return result


def _to_hsv(red: Any, green: Any, blue: Any) -> tuple[Any, Any, Any]:
    value = np.maximum(np.maximum(red, green), blue)
    chroma = value - np.minimum(np.minimum(red, green), blue)
    zero = value.dtype.type(0)
    colored = chroma > 0
    scale = 1 / (6 * np.where(colored, chroma, value.dtype.type(1)))
    saturation = np.where(value > 0, chroma / np.where(value > 0, value, 1), zero)
    third = value.dtype.type(1 / 3)
    of_green = (blue - red) * scale + third
    of_blue = (red - green) * scale + 2 * third
    hue = np.where(green == value, of_green, of_blue)
    hue = np.where(red == value, (green - blue) * scale, hue)
    hue = np.where(colored, hue, zero)
    return np.where(hue < 0, hue + 1, hue), saturation, value


def _shares(hue: Any) -> tuple[Any, Any, Any]:
    """Return the ratios of red, green and blue to the largest of them, from 0 to 1."""
    sector = hue * 6
    return (
        np.clip(np.abs(sector - 3) - 1, 0, 1),
        np.clip(2 - np.abs(sector - 2), 0, 1),
        np.clip(2 - np.abs(sector - 4), 0, 1),
    )


def _to_rgb(hue: Any, saturation: Any, value: Any) -> tuple[Any, Any, Any]:
    remaining = 1 - saturation
    red, green, blue = [(remaining + saturation * share) * value for share in _shares(hue)]
    return red, green, blue


@kernel("RGBToHSV", heavy=True)
def _rgb_to_hsv(node: Node, device: Device) -> KernelFunction:
    return lambda images: _pixelwise(_to_hsv, images, device)


@kernel("HSVToRGB", heavy=True)
def _hsv_to_rgb(node: Node, device: Device) -> KernelFunction:
    return lambda images: _pixelwise(_to_rgb, images, device)


def _rotate_hue(red: Any, green: Any, blue: Any, delta: Any) -> tuple[Any, Any, Any]:
    hue, _, value = _to_hsv(red, green, blue)
    low, hue = np.minimum(np.minimum(red, green), blue), hue + delta
    chroma = value - low
    red, green, blue = [low + share * chroma for share in _shares(hue - np.floor(hue))]
    return red, green, blue


def _saturate(red: Any, green: Any, blue: Any, scale: Any) -> tuple[Any, Any, Any]:
    hue, saturation, value = _to_hsv(red, green, blue)
    return _to_rgb(hue, np.clip(saturation * scale, 0, 1), value)


@kernel("AdjustHue", heavy=True)
def _adjust_hue(node: Node, device: Device) -> KernelFunction:
    return lambda images, delta: _pixelwise(_rotate_hue, images, device, _number(delta))


@kernel("AdjustSaturation", heavy=True)
def _adjust_saturation(node: Node, device: Device) -> KernelFunction:
    return lambda images, scale: _pixelwise(_saturate, images, device, _number(scale))


def _number(value: Any) -> Any:
    if value.shape:
        raise errors.InvalidArgumentError(
            f"the change must have rank 0, got shape {format_dims(value.shape)}"
        )
    return np.float32(value)


@kernel("AdjustContrastv2", heavy=True)
def _adjust_contrast(node: Node, device: Device) -> KernelFunction:
    dtype = node.outputs[0].dtype.numpy

    def run(images: Any, factor: Any) -> Any:
        if images.ndim < 3:
            raise errors.InvalidArgumentError(
                f"images must have rank at least 3, got {format_dims(images.shape)}"
            )
        wide = widen_value(images)
        count = max(1, wide.shape[-3] * wide.shape[-2])
        mean = wide.sum(axis=(-3, -2), keepdims=True, dtype=wide.dtype) / wide.dtype.type(count)
        result = wide - mean
        result *= _number(factor)
        result += mean
        return as_exact(result, dtype, device)

    return run
