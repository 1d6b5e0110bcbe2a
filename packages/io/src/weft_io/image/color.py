"""Colors, contrast, brightness and element types of images."""

from __future__ import annotations

__all__ = [
    "adjust_brightness",
    "adjust_contrast",
    "adjust_gamma",
    "adjust_hue",
    "adjust_saturation",
    "convert_image_dtype",
    "grayscale_to_rgb",
    "per_image_standardization",
    "random_brightness",
    "random_contrast",
    "random_hue",
    "random_saturation",
    "rgb_to_grayscale",
    "rgb_to_yiq",
    "rgb_to_yuv",
    "yiq_to_rgb",
    "yuv_to_rgb",
]

from typing import Any, Final

import numpy as np

from weft_graph.ir.builder import convert_to_tensor, out
from weft_graph.ir.default_graph import name_scope
from weft_graph.ir.node import Output
from weft_graph.ir.traits import Role
from weft_graph.ops.arithmetic import maximum
from weft_graph.ops.casting import cast, saturate_cast
from weft_graph.ops.checks import assert_non_negative
from weft_graph.ops.contraction import tensordot
from weft_graph.ops.control import with_dependencies
from weft_graph.ops.identity import identity
from weft_graph.ops.join import concat, tile
from weft_graph.ops.powers import rsqrt, sqrt
from weft_graph.ops.random import random_uniform
from weft_graph.ops.reduction import reduce_mean, reduce_prod
from weft_graph.ops.shapes import expand_dims, rank, shape
from weft_io.image.shapes import convert_at_least_3d
from weft_tensor import dtypes, errors
from weft_tensor.dtypes import DType
from weft_tensor.shape import format_dims

_YIQ: Final = (
    (0.299, 0.59590059, 0.2115),
    (0.587, -0.27455667, -0.52273617),
    (0.114, -0.32134392, 0.31119955),
)
_FROM_YIQ: Final = (
    (1.0, 1.0, 1.0),
    (0.95598634, -0.27201283, -1.10674021),
    (0.6208248, -0.64720424, 1.70423049),
)
_YUV: Final = (
    (0.299, -0.14714119, 0.61497538),
    (0.587, -0.28886916, -0.51496512),
    (0.114, 0.43601035, -0.10001026),
)
_FROM_YUV: Final = ((1.0, 1.0, 1.0), (0.0, -0.394642334, 2.03206185), (1.13988303, -0.58062185, 0))
_GREY: Final = (0.2989, 0.587, 0.114)
"""Weights of the input channels red, green and blue (rows) in each output channel."""

# --------------------------------------------------------------------------------- element types


def convert_image_dtype(
    image: Any, dtype: Any, saturate: bool = False, name: str | None = None
) -> Output:
    """Convert images to another type, scaled to its range: floats are from 0 to 1.

    Args:
      image: real numbers, any shape.
      dtype: a real type.
      saturate: clip values to the range of `dtype`; otherwise they wrap around.
    Returns: shape of `image`.
    Raises: InvalidTypeError: a type is not a real number.

    Examples:
      >>> image = wf.constant([0.0, 0.5, 1.0])
      >>> wf.Session().run(wf.image.convert_image_dtype(image, wf.uint8))
      array([  0, 127, 255], dtype=uint8)
    """
    value = convert_to_tensor(image, name="image")
    expected, source_dtype = dtypes.as_dtype(dtype), value.dtype.base_dtype
    for item in (expected, source_dtype):
        if not (item.is_floating or item.is_integer):
            raise errors.InvalidTypeError(f"images must be of real numbers, got {item.name}")
    if expected == source_dtype:
        return identity(value, name=name)
    with name_scope(name, "convert_image", [value]) as scope:
        result = _convert(value, source_dtype, expected, saturate)
        return identity(result, name=scope)


def _convert(value: Output, dtype: DType, expected: DType, saturate: bool) -> Output:
    fit = saturate_cast if saturate else cast
    if expected.is_floating:
        output: Output = cast(value, expected)
        return output if dtype.is_floating else output * (1.0 / dtype.max)
    if dtype.is_floating:
        if dtype.size < 4 and expected.size > 1:
            value = cast(value, dtypes.float32)  # 16 bits hold no such numbers
        output = fit(value * (expected.max + 0.5), expected)
        return output
    if dtype.max > expected.max:
        factor = (int(dtype.max) + 1) // (int(expected.max) + 1)
        output = fit(out("FloorDiv", [value, factor]), expected)
        return output
    factor = (int(expected.max) + 1) // (int(dtype.max) + 1)
    output = fit(value, expected) * factor
    return output


def _to_floats(value: Output, keep: tuple[DType, ...]) -> Output:
    return value if value.dtype.base_dtype in keep else convert_image_dtype(value, dtypes.float32)


# ------------------------------------------------------------------------------------- primaries


def rgb_to_grayscale(images: Any, name: str | None = None) -> Output:
    """Convert RGB images to grayscale.

    Args:
      images: real numbers, shape (..., 3).
    Returns: dtype of `images`, shape (..., 1).
    Raises: InvalidArgumentError: the last axis has another size.

    Examples:
      >>> wf.Session().run(wf.image.rgb_to_grayscale([1.0, 0.0, 0.0]))
      array([0.2989], dtype=float32)
    """
    with name_scope(name, "rgb_to_grayscale", [images]) as scope:
        value = _colors(images)
        grey = _mix(convert_image_dtype(value, dtypes.float32), [[part] for part in _GREY])
        return convert_image_dtype(grey, value.dtype.base_dtype, name=scope)


def grayscale_to_rgb(images: Any, name: str | None = None) -> Output:
    """Convert grayscale images to RGB.

    Args:
      images: any type, shape (..., 1).
    Returns: dtype of `images`, shape (..., 3).
    Raises: InvalidArgumentError: the last axis has another size.

    Examples:
      >>> wf.Session().run(wf.image.grayscale_to_rgb([[1], [2]]))
      array([[1, 1, 1],
             [2, 2, 2]], dtype=int32)
    """
    with name_scope(name, "grayscale_to_rgb", [images]) as scope:
        value = convert_to_tensor(images, name="images")
        if value.dims is not None and (not value.dims or value.dims[-1] not in (1, None)):
            raise errors.InvalidArgumentError(
                f"grayscale images must have 1 channel, got shape {format_dims(value.dims)}"
            )
        if value.dims is not None:
            return tile(value, [*[1] * (len(value.dims) - 1), 3], name=scope)
        unit_multiples = out("Fill", [expand_dims(rank(value) - 1, 0), 1])
        return tile(value, concat([unit_multiples, [3]], 0), name=scope)


def rgb_to_yiq(images: Any) -> Output:
    """Convert RGB images to YIQ, the luminance and chrominance of NTSC television.

    Args:
      images: floating, shape (..., 3); red, green and blue from 0 to 1.
    Returns: dtype and shape of `images`.
    Raises: InvalidArgumentError: the last axis has another size.

    Examples:
      >>> wf.Session().run(wf.image.rgb_to_yiq([1.0, 0.0, 0.0]))
      array([0.299    , 0.5959006, 0.2115   ], dtype=float32)
    """
    return _mix(_colors(images), _YIQ)


def yiq_to_rgb(images: Any) -> Output:
    """Convert YIQ images to RGB, the inverse of `rgb_to_yiq`.

    Args:
      images: floating, shape (..., 3).
    Returns: dtype and shape of `images`.
    Raises: InvalidArgumentError: the last axis has another size.

    Examples:
      >>> wf.Session().run(wf.image.yiq_to_rgb([0.5, 0.0, 0.0]))
      array([0.5, 0.5, 0.5], dtype=float32)
    """
    return _mix(_colors(images), _FROM_YIQ)


def rgb_to_yuv(images: Any) -> Output:
    """Convert RGB images to YUV, the luminance and chrominance of PAL television.

    Args:
      images: floating, shape (..., 3); red, green and blue from 0 to 1.
    Returns: dtype and shape of `images`.
    Raises: InvalidArgumentError: the last axis has another size.

    Examples:
      >>> wf.Session().run(wf.image.rgb_to_yuv([1.0, 0.0, 0.0]))
      array([ 0.299     , -0.14714119,  0.6149754 ], dtype=float32)
    """
    return _mix(_colors(images), _YUV)


def yuv_to_rgb(images: Any) -> Output:
    """Convert YUV images to RGB, the inverse of `rgb_to_yuv`.

    Args:
      images: floating, shape (..., 3).
    Returns: dtype and shape of `images`.
    Raises: InvalidArgumentError: the last axis has another size.

    Examples:
      >>> wf.Session().run(wf.image.yuv_to_rgb([0.5, 0.0, 0.0]))
      array([0.5, 0.5, 0.5], dtype=float32)
    """
    return _mix(_colors(images), _FROM_YUV)


def _colors(images: Any) -> Output:
    value = convert_to_tensor(images, name="images")
    if value.dims is not None and (not value.dims or value.dims[-1] not in (3, None)):
        raise errors.InvalidArgumentError(
            f"images must have 3 channels, got shape {format_dims(value.dims)}"
        )
    return value


def _mix(images: Output, parts: Any) -> Output:
    """Compute each output channel as a weighted sum of the input channels."""
    matrix = convert_to_tensor(np.array(parts, np.float64), name="kernel")
    if images.dims is None:
        flat = out("Reshape", [images, [-1, 3]])
        mixed = out("MatMul", [flat, cast(matrix, images.dtype.base_dtype)])
        sizes = concat([shape(images)[:-1], [len(parts[0])]], 0)
        return out("Reshape", [mixed, sizes])
    mixed = tensordot(images, cast(matrix, images.dtype.base_dtype), [[-1], [0]])
    return mixed


# ------------------------------------------------------------------------------------ adjustments


def adjust_brightness(image: Any, delta: Any) -> Output:
    """Add `delta` to all values of images; integers count as values from 0 to 1.

    Args:
      image: real numbers, any shape.
      delta: a number, usually from -1 to 1.
    Returns: dtype and shape of `image`; integers stay in their range.

    Examples:
      >>> wf.Session().run(wf.image.adjust_brightness([0.25, 0.5], 0.25))
      array([0.5 , 0.75], dtype=float32)
    """
    with name_scope(None, "adjust_brightness", [image, delta]) as scope:
        value = convert_to_tensor(image, name="image")
        floats = _to_floats(value, (dtypes.float16, dtypes.float32, dtypes.float64))
        changed = floats + cast(delta, floats.dtype)
        return convert_image_dtype(changed, value.dtype.base_dtype, saturate=True, name=scope)


def adjust_contrast(images: Any, contrast_factor: Any) -> Output:
    """Scale the differences between values and the mean of their channel.

    Args:
      images: real numbers, shape (..., height, width, channels).
      contrast_factor: factor of the differences, shape ().
    Returns: dtype and shape of `images`; integers stay in their range.
    Raises: InvalidArgumentError: the rank is below 3.

    Examples:
      >>> wf.Session().run(wf.image.adjust_contrast([[[1.0], [3.0]]], 2.0))[0, :, 0]
      array([0., 4.], dtype=float32)
    """
    with name_scope(None, "adjust_contrast", [images, contrast_factor]) as scope:
        value = convert_at_least_3d(images, "images")
        floats = _to_floats(value, (dtypes.float16, dtypes.float32))
        changed = out("AdjustContrastv2", [floats, contrast_factor])
        return convert_image_dtype(changed, value.dtype.base_dtype, saturate=True, name=scope)


def adjust_gamma(image: Any, gamma: Any = 1, gain: Any = 1) -> Output:
    """Return `gain * image ** gamma`; integers count as values from 0 to 1.

    Args:
      image: real numbers, any shape.
      gamma: a number, 0 or more.
      gain: a number.
    Returns: dtype and shape of `image`; integers stay in their range.
    Raises: InvalidArgumentError: `gamma` is negative.

    Examples:
      >>> wf.Session().run(wf.image.adjust_gamma([0.5, 1.0], 2.0))
      array([0.25, 1.  ], dtype=float32)
    """
    with name_scope(None, "adjust_gamma", [image, gamma, gain]) as scope:
        value = convert_to_tensor(image, name="image")
        floats = _to_floats(value, (dtypes.float16, dtypes.float32))
        power = convert_to_tensor(gamma, floats.dtype.base_dtype, name="gamma")
        if power.node.role is Role.CONSTANT:
            if (power.node.attrs["value"] < 0).any():
                raise errors.InvalidArgumentError(f"gamma must be at least 0, got {gamma}")
        else:
            power = with_dependencies([assert_non_negative(power)], power)
        changed = convert_to_tensor(gain, floats.dtype.base_dtype) * floats**power
        return convert_image_dtype(changed, value.dtype.base_dtype, saturate=True, name=scope)


def adjust_hue(image: Any, delta: Any, name: str | None = None) -> Output:
    """Rotate the hues of images around the color circle.

    Args:
      image: real numbers, shape (..., height, width, 3), floats from 0 to 1.
      delta: fraction of a full rotation, from -1 to 1, shape ().
    Returns: dtype and shape of `image`.
    Raises: InvalidArgumentError: the number of channels is not 3, or `delta` is outside [-1, 1].

    Examples:
      >>> red = wf.constant([[[1.0, 0.0, 0.0]]])
      >>> abs(wf.Session().run(wf.image.adjust_hue(red, 0.5))[0, 0]).round(3)
      array([0., 1., 1.], dtype=float32)
    """
    if isinstance(delta, int | float) and not -1 <= delta <= 1:
        raise errors.InvalidArgumentError(f"delta must be from -1 to 1, got {delta}")
    return _recolor("AdjustHue", image, delta, name, "adjust_hue")


def adjust_saturation(image: Any, saturation_factor: Any, name: str | None = None) -> Output:
    """Multiply the saturations of images by a factor.

    Args:
      image: real numbers, shape (..., height, width, 3), floats from 0 to 1.
      saturation_factor: a number, shape (); 0 removes all color.
    Returns: dtype and shape of `image`.
    Raises: InvalidArgumentError: the number of channels is not 3.

    Examples:
      >>> red = wf.constant([[[1.0, 0.0, 0.0]]])
      >>> wf.Session().run(wf.image.adjust_saturation(red, 0.5))[0, 0]
      array([1. , 0.5, 0.5], dtype=float32)
    """
    return _recolor("AdjustSaturation", image, saturation_factor, name, "adjust_saturation")


def _recolor(op: str, image: Any, change: Any, name: str | None, default: str) -> Output:
    with name_scope(name, default, [image, change]) as scope:
        value = convert_at_least_3d(image)
        floats = _to_floats(value, (dtypes.float16, dtypes.float32))
        changed = out(op, [floats, change])
        return convert_image_dtype(changed, value.dtype.base_dtype, name=scope)


def per_image_standardization(image: Any) -> Output:
    """Normalize each image to a mean of 0 and a variance of 1.

    Args:
      image: real numbers, shape (..., height, width, channels).
    Returns: float32, shape of `image`. A constant image becomes 0, because the divisor is at least
      1 / sqrt(number of values).
    Raises: InvalidArgumentError: the rank is below 3.

    Examples:
      >>> wf.Session().run(wf.image.per_image_standardization([[[1.0], [3.0]]]))[0, :, 0]
      array([-1.,  1.], dtype=float32)
    """
    with name_scope(None, "per_image_standardization", [image]) as scope:
        value = cast(convert_at_least_3d(image), dtypes.float32)
        axes = [-3, -2, -1]
        centered = value - reduce_mean(value, axes, keepdims=True)
        deviation = sqrt(reduce_mean(centered * centered, axes, keepdims=True))
        count = cast(reduce_prod(shape(value)[-3:]), value.dtype)
        return out("RealDiv", [centered, maximum(deviation, rsqrt(count))], name=scope)


# ----------------------------------------------------------------------------------------- random


def random_brightness(image: Any, max_delta: float, seed: int | None = None) -> Output:
    """Adjust the brightness, as `adjust_brightness`, by a random number in [-max_delta, max_delta).

    Args:
      image: as for `adjust_brightness`.
      max_delta: a number, 0 or more.
      seed: seed of the random number.
    Raises: InvalidArgumentError: `max_delta` is negative.

    Examples:
      >>> wf.image.random_brightness(wf.zeros([4, 4, 3]), 0.2, seed=1).shape.as_list()
      [4, 4, 3]
    """
    _check_range("max_delta", max_delta, 0)
    return adjust_brightness(image, random_uniform([], -max_delta, max_delta, seed=seed))


def random_contrast(image: Any, lower: float, upper: float, seed: int | None = None) -> Output:
    """Adjust the contrast, as `adjust_contrast`, by a random factor in [lower, upper).

    Args:
      image: as for `adjust_contrast`.
      lower, upper: numbers, 0 or more.
      seed: seed of the random number.
    Raises: InvalidArgumentError: `lower` is negative or not below `upper`.

    Examples:
      >>> wf.image.random_contrast(wf.zeros([4, 4, 3]), 0.5, 1.5, seed=1).shape.as_list()
      [4, 4, 3]
    """
    _check_order(lower, upper)
    return adjust_contrast(image, random_uniform([], lower, upper, seed=seed))


def random_hue(image: Any, max_delta: float, seed: int | None = None) -> Output:
    """Adjust the hue, as `adjust_hue`, by a random number in [-max_delta, max_delta).

    Args:
      image: as for `adjust_hue`.
      max_delta: a number from 0 to 0.5.
      seed: seed of the random number.
    Raises: InvalidArgumentError: `max_delta` is out of range.

    Examples:
      >>> wf.image.random_hue(wf.zeros([4, 4, 3]), 0.1, seed=1).shape.as_list()
      [4, 4, 3]
    """
    _check_range("max_delta", max_delta, 0, 0.5)
    return adjust_hue(image, random_uniform([], -max_delta, max_delta, seed=seed))


def random_saturation(image: Any, lower: float, upper: float, seed: int | None = None) -> Output:
    """Adjust the saturation, as `adjust_saturation`, by a random factor in [lower, upper).

    Args:
      image: as for `adjust_saturation`.
      lower, upper: numbers, 0 or more.
      seed: seed of the random number.
    Raises: InvalidArgumentError: `lower` is negative or not below `upper`.

    Examples:
      >>> wf.image.random_saturation(wf.zeros([4, 4, 3]), 0.5, 1.5, seed=1).shape.as_list()
      [4, 4, 3]
    """
    _check_order(lower, upper)
    return adjust_saturation(image, random_uniform([], lower, upper, seed=seed))


def _check_range(label: str, value: float, low: float, high: float | None = None) -> None:
    if value < low or (high is not None and value > high):
        limit = "" if high is None else f" and at most {high}"
        raise errors.InvalidArgumentError(f"{label} must be at least {low}{limit}, got {value}")


def _check_order(lower: float, upper: float) -> None:
    if lower < 0 or upper <= lower:
        raise errors.InvalidArgumentError(
            f"lower must be at least 0 and below upper, got {lower} and {upper}"
        )
