"""Ops for colors: conversion between HSV and RGB, and changes of contrast, hue and saturation."""

from __future__ import annotations

__all__ = ["hsv_to_rgb", "rgb_to_hsv"]

from collections.abc import Sequence
from typing import Any

from weft_autodiff.gradients.backprop import gradients
from weft_autodiff.registry import RegisterGradient
from weft_graph.ir.builder import convert_to_tensor, out
from weft_graph.ir.node import Node, Output
from weft_graph.ir.op_def import NodeSpec, register_op
from weft_graph.ops.arithmetic import clip_by_value
from weft_graph.ops.comparison import equal
from weft_graph.ops.join import stack, unstack
from weft_graph.ops.masks import where_v2
from weft_graph.ops.reduction import reduce_max, reduce_mean, reduce_min, reduce_sum
from weft_graph.ops.shape_rules import with_rank, with_rank_at_least
from weft_tensor import errors
from weft_tensor.shape import Dims, format_dims


def _three_channels(node: NodeSpec) -> Sequence[Dims]:
    dims = with_rank_at_least(node.inputs[0].dims, 1, "images")
    if dims is not None and dims[-1] not in (3, None):
        raise errors.InvalidArgumentError(
            f"images must have 3 channels on their last axis, got shape {format_dims(dims)}"
        )
    return (None if dims is None else (*dims[:-1], 3),)


def _adjust(node: NodeSpec) -> Sequence[Dims]:
    with_rank(node.inputs[1].dims, 0, "the change")
    with_rank_at_least(node.inputs[0].dims, 3, "images")
    return (node.inputs[0].dims,)


def _adjust_color_shape(node: NodeSpec) -> Sequence[Dims]:
    _adjust(node)
    return _three_channels(node)


_FLOATS = "{float16, bfloat16, float32, float64} = float32"

register_op(
    "RGBToHSV",
    ("images: T",),
    ("output: T",),
    {"T": _FLOATS},
    _three_channels,
    doc="Hue, saturation and value of red, green and blue.",
)
register_op(
    "HSVToRGB",
    ("images: T",),
    ("output: T",),
    {"T": _FLOATS},
    _three_channels,
    doc="Red, green and blue of hue, saturation and value.",
)
register_op(
    "AdjustContrastv2",
    ("images: T", "contrast_factor: float32"),
    ("output: T",),
    {"T": "{float16, float32} = float32"},
    _adjust,
    doc="Images with distances to the mean of each channel multiplied.",
)
register_op(
    "AdjustHue",
    ("images: T", "delta: float32"),
    ("output: T",),
    {"T": "{float16, float32} = float32"},
    _adjust_color_shape,
    doc="Images with the hue turned by parts of a circle.",
)
register_op(
    "AdjustSaturation",
    ("images: T", "scale: float32"),
    ("output: T",),
    {"T": "{float16, float32} = float32"},
    _adjust_color_shape,
    doc="Images with the saturation multiplied, 1 at the most.",
)

# -------------------------------------------------------------------------------- gradients


def _hsv(rgb: Output) -> Output:
    """Compute RGBToHSV with differentiable ops."""
    red, green, blue = unstack(rgb, 3, axis=-1)
    value = reduce_max(rgb, -1)
    chroma = value - reduce_min(rgb, -1)
    even, dark = equal(chroma, 0), value <= 0
    safe = where_v2(even, out("OnesLike", [chroma]), chroma)
    saturation = where_v2(
        dark, out("ZerosLike", [value]), chroma / where_v2(dark, out("OnesLike", [value]), value)
    )
    of_green, of_blue = (blue - red) / safe + 2, (red - green) / safe + 4
    sector = where_v2(equal(green, value), of_green, of_blue)
    sector = where_v2(equal(red, value), (green - blue) / safe, sector)
    hue = where_v2(even, out("ZerosLike", [sector]), sector / 6)
    return stack([where_v2(hue < 0, hue + 1, hue), saturation, value], -1)


def _rgb(hsv: Output) -> Output:
    """Compute HSVToRGB with differentiable ops."""
    hue, saturation, value = unstack(hsv, 3, axis=-1)
    result = [(1 - saturation + saturation * share) * value for share in _shares(hue)]
    return stack(result, -1)


def _shares(hue: Output) -> tuple[Output, Output, Output]:
    """Return the ratios of red, green and blue to the largest of them, from 0 to 1."""
    sector = hue * 6
    return (
        clip_by_value(abs(sector - 3) - 1, 0.0, 1.0),
        clip_by_value(2 - abs(sector - 2), 0.0, 1.0),
        clip_by_value(2 - abs(sector - 4), 0.0, 1.0),
    )


@RegisterGradient("RGBToHSV")
def _rgb_to_hsv_grad(op: Node, grad: Output) -> Any:
    return gradients(_hsv(op.inputs[0]), op.inputs[0], grad)[0]


@RegisterGradient("HSVToRGB")
def _hsv_to_rgb_grad(op: Node, grad: Output) -> Any:
    return gradients(_rgb(op.inputs[0]), op.inputs[0], grad)[0]


@RegisterGradient("AdjustContrastv2")
def _contrast_grad(op: Node, grad: Output) -> list[Any]:
    images, factor = op.inputs
    scale = out("Cast", [factor], {"DstT": images.dtype.base_dtype})
    mean = reduce_mean(images, [-3, -2], keepdims=True)
    by_images = grad * scale + reduce_mean(grad, [-3, -2], keepdims=True) * (1 - scale)
    by_factor = reduce_sum(out("Cast", [grad * (images - mean)], {"DstT": "float32"}))
    return [by_images, by_factor]


@RegisterGradient("AdjustHue")
def _hue_grad(op: Node, grad: Output) -> list[Any]:
    images, delta = op.inputs
    hue = _hsv(images)[..., 0]
    turned = hue + out("Cast", [delta], {"DstT": images.dtype.base_dtype})
    low = reduce_min(images, -1)
    chroma = reduce_max(images, -1) - low
    shares = _shares(turned - out("Floor", [turned]))
    changed = stack([low + share * chroma for share in shares], -1)
    return list(gradients(changed, [images, delta], grad))


@RegisterGradient("AdjustSaturation")
def _saturation_grad(op: Node, grad: Output) -> list[Any]:
    images, scale = op.inputs
    hue, saturation, value = unstack(_hsv(images), 3, axis=-1)
    scaled = saturation * out("Cast", [scale], {"DstT": images.dtype.base_dtype})
    changed = _rgb(stack([hue, clip_by_value(scaled, 0.0, 1.0), value], -1))
    return list(gradients(changed, [images, scale], grad))


# -------------------------------------------------------------------------------- functions


def rgb_to_hsv(images: Any, name: str | None = None) -> Output:
    """Convert RGB images to hue, saturation and value.

    Args:
      images: floating, from 0 to 1, shape (..., 3).
    Returns: dtype and shape of `images`; hue and saturation from 0 to 1.
    Raises: InvalidArgumentError: the last axis has another size.

    Examples:
      >>> wf.Session().run(wf.image.rgb_to_hsv([0.0, 0.5, 0.0])).round(3)
      array([0.333, 1.   , 0.5  ], dtype=float32)
    """
    return out("RGBToHSV", [convert_to_tensor(images)], None, name)


def hsv_to_rgb(images: Any, name: str | None = None) -> Output:
    """Convert hue, saturation and value to RGB, the inverse of `rgb_to_hsv`.

    Args:
      images: floating, from 0 to 1, shape (..., 3).
    Returns: dtype and shape of `images`.
    Raises: InvalidArgumentError: the last axis has another size.

    Examples:
      >>> wf.Session().run(wf.image.hsv_to_rgb([0.0, 0.5, 1.0]))
      array([1. , 0.5, 0.5], dtype=float32)
    """
    return out("HSVToRGB", [convert_to_tensor(images)], None, name)
