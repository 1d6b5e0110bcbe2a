"""Similarity of images, and total variation."""

from __future__ import annotations

__all__ = [
    "image_gradients",
    "psnr",
    "sobel_edges",
    "ssim",
    "ssim_multiscale",
    "total_variation",
]

import math
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from weft_graph.ir.builder import convert_to_tensor, out
from weft_graph.ir.default_graph import name_scope
from weft_graph.ir.node import Output
from weft_graph.nn.convolution import depthwise_conv2d
from weft_graph.ops.arithmetic import squared_difference
from weft_graph.ops.elementary import log
from weft_graph.ops.identity import identity
from weft_graph.ops.join import concat, stack
from weft_graph.ops.nn import relu
from weft_graph.ops.padding import pad
from weft_graph.ops.pool import avg_pool
from weft_graph.ops.reduction import reduce_mean, reduce_prod, reduce_sum
from weft_graph.ops.shapes import reshape, shape
from weft_io.image.color import convert_image_dtype
from weft_io.image.shapes import convert_at_least_3d, convert_images
from weft_tensor import dtypes, errors
from weft_tensor.shape import compatible_dims, format_dims

POWERS: Final = (0.0448, 0.2856, 0.3001, 0.2363, 0.1333)
"""Weight of each scale, from fine to coarse, determined by perception experiments."""

Reduce = Callable[[Output], Output]


def _pair(a: Any, b: Any, max_val: Any) -> tuple[Output, Output, Output]:
    """Convert two images and the range of their values; integers become float32 in [0, 1]."""
    first, second = (
        convert_at_least_3d(a, "the first image"),
        convert_at_least_3d(b, "the second image"),
    )
    if first.dtype.base_dtype != second.dtype.base_dtype:
        raise errors.InvalidTypeError(
            f"images must be of the same type, got {first.dtype.name} and {second.dtype.name}"
        )
    first_dims, second_dims = first.dims, second.dims
    if (
        first_dims is not None
        and second_dims is not None
        and not compatible_dims(first_dims[-3:], second_dims[-3:])
    ):
        raise errors.InvalidArgumentError(
            "images must have equal heights, widths and channels, got shapes "
            f"{format_dims(first_dims)} and {format_dims(second_dims)}"
        )
    largest = convert_to_tensor(max_val, first.dtype.base_dtype, name="max_val")
    low, high, limit = [
        convert_image_dtype(value, dtypes.float32) for value in (first, second, largest)
    ]
    return low, high, limit


def psnr(a: Any, b: Any, max_val: Any, name: str | None = None) -> Output:
    """Compute the peak signal-to-noise ratio of two images, in decibels.

    Args:
      a, b: real numbers, shape (..., height, width, channels).
      max_val: the difference of the largest and smallest possible values.
    Returns: float32, shape (...); infinite if the images are equal.
    Raises: InvalidArgumentError: the shapes are incompatible.

    Examples:
      >>> wf.Session().run(wf.image.psnr(wf.zeros([2, 2, 1]), wf.ones([2, 2, 1]), 10.0))
      np.float32(20.0)
    """
    with name_scope(name, "PSNR", [a, b]) as scope:
        first, second, limit = _pair(a, b, max_val)
        noise = reduce_mean(squared_difference(first, second), [-3, -2, -1])
        ten = 10 / math.log(10)
        return out("Sub", [2 * ten * log(limit), ten * log(noise)], name=scope)


# --------------------------------------------------------------------------- structural similarity


def ssim(
    img1: Any,
    img2: Any,
    max_val: Any,
    filter_size: int = 11,
    filter_sigma: float = 1.5,
    k1: float = 0.01,
    k2: float = 0.03,
) -> Output:
    """Compute the structural similarity of two images (Wang et al., 2004), averaged over channels.

    Args:
      img1, img2: real numbers, shape (..., height, width, channels), at least `filter_size` high
        and wide.
      max_val: the difference of the largest and smallest possible values.
      filter_size, filter_sigma: size and standard deviation of the Gaussian windows.
      k1, k2: small numbers that keep the divisors from being 0.
    Returns: float32, shape (...); 1 if the images are equal.
    Raises: InvalidArgumentError: the shapes are incompatible.

    Examples:
      >>> image = wf.random_uniform([16, 16, 3], seed=1)
      >>> wf.Session().run(wf.image.ssim(image, image, 1.0))
      np.float32(1.0)
    """
    with name_scope(None, "SSIM", [img1, img2]) as scope:
        first, second, limit = _pair(img1, img2, max_val)
        window = _windows(first, filter_size, filter_sigma)
        similarity, _ = _per_channel(first, second, limit, window, k1, k2)
        return reduce_mean(similarity, [-1], name=scope)


def ssim_multiscale(
    img1: Any,
    img2: Any,
    max_val: Any,
    power_factors: Sequence[float] = POWERS,
    filter_size: int = 11,
    filter_sigma: float = 1.5,
    k1: float = 0.01,
    k2: float = 0.03,
) -> Output:
    """Compute the structural similarity of two images at several scales (Wang et al., 2003).

    Args:
      img1, img2: real numbers, shape (..., height, width, channels), large enough that the coarsest
        scale is `filter_size` high and wide.
      max_val: the difference of the largest and smallest possible values.
      power_factors: the exponent of each scale; each scale has half the resolution of the previous
        one.
      filter_size, filter_sigma, k1, k2: as for `ssim`.
    Returns: float32, shape (...), from 0 to 1.
    Raises: InvalidArgumentError: the shapes are incompatible.

    Examples:
      >>> image = wf.random_uniform([32, 32, 1], seed=1)
      >>> wf.Session().run(wf.image.ssim_multiscale(image, image, 1.0, [0.5, 0.5]))
      np.float32(1.0)
    """
    with name_scope(None, "MS-SSIM", [img1, img2]) as scope:
        first, second, limit = _pair(img1, img2, max_val)
        parts: list[Output] = []
        for scale in range(len(power_factors)):
            if scale:
                first, second = _halve(first), _halve(second)
            window = _windows(first, filter_size, filter_sigma)
            similarity, contrast = _per_channel(first, second, limit, window, k1, k2)
            parts.append(relu(contrast))
        parts[-1] = relu(similarity)
        powers = convert_to_tensor(np.array(power_factors, np.float32))
        product = reduce_prod(stack(parts, -1) ** powers, [-1])
        return reduce_mean(product, [-1], name=scope)


def _windows(images: Output, size: int, sigma: float) -> Reduce:
    """Return a function that computes the weighted mean of each window of images, per channel."""
    dims = images.dims
    if dims is not None:
        small = [n for n in dims[-3:-1] if n is not None and n < size]
        if small:
            raise errors.InvalidArgumentError(
                f"images must be at least {size} high and wide, got shape {format_dims(dims)}"
            )
    positions = np.arange(size, dtype=np.float64) - (size - 1) / 2
    bell = np.exp(-0.5 * (positions / sigma) ** 2)
    bell = (bell / bell.sum()).astype(np.float32)
    channels = shape(images)[-1] if dims is None or dims[-1] is None else dims[-1]

    def reduce(x: Output) -> Output:
        sizes = shape(x)
        flat = reshape(x, concat([[-1], sizes[-3:]], 0))
        for kernel in (bell.reshape(-1, 1, 1, 1), bell.reshape(1, -1, 1, 1)):
            tiled = out("Tile", [kernel, stack([1, 1, channels, 1])])
            flat = depthwise_conv2d(flat, tiled, [1, 1, 1, 1], "VALID")
        return reshape(flat, concat([sizes[:-3], shape(flat)[1:]], 0))

    return reduce


def _per_channel(
    x: Output, y: Output, limit: Output, window: Reduce, k1: float, k2: float
) -> tuple[Output, Output]:
    """Return SSIM and its contrast-structure term for each channel, of shape (..., channels)."""
    low, high = (k1 * limit) ** 2, (k2 * limit) ** 2
    mean_x, mean_y = window(x), window(y)
    product, squares = mean_x * mean_y * 2, mean_x * mean_x + mean_y * mean_y
    luminance = (product + low) / (squares + low)
    products, squared_sum = window(x * y) * 2, window(x * x + y * y)
    contrast = (products - product + high) / (squared_sum - squares + high)
    return reduce_mean(luminance * contrast, [-3, -2]), reduce_mean(contrast, [-3, -2])


def _halve(images: Output) -> Output:
    """Average two by two pixels; an odd last row or column counts twice."""
    sizes = shape(images)
    flat = reshape(images, concat([[-1], sizes[-3:]], 0))
    parity = out("FloorMod", [sizes[-3:-1], 2])
    odd_padding = concat([[0], parity, [0]], 0)
    even = pad(flat, stack([out("ZerosLike", [odd_padding]), odd_padding], 1), "SYMMETRIC")
    new_value = avg_pool(even, [1, 2, 2, 1], [1, 2, 2, 1], "VALID")
    result = reshape(new_value, concat([sizes[:-3], shape(new_value)[1:]], 0))
    dims = images.dims
    if dims is not None:
        half = [None if n is None else (n + 1) // 2 for n in dims[-3:-1]]
        result.set_shape([*dims[:-3], *half, dims[-1]])
    return result


# ------------------------------------------------------------------------------------- differences


def total_variation(images: Any, name: str | None = None) -> Output:
    """Return the total variation: the sum of the absolute differences between neighboring pixels.

    Args:
      images: real numbers, shape (height, width, channels) or (batch, height, width, channels).
    Returns: dtype of `images`, shape () or (batch,).
    Raises: InvalidArgumentError: the rank is not 3 or 4.

    Examples:
      >>> wf.Session().run(wf.image.total_variation([[[1.0], [3.0]], [[1.0], [2.0]]]))
      np.float32(4.0)
    """
    with name_scope(name, "total_variation", [images]) as scope:
        value = convert_images(images)
        vertical = value[..., 1:, :, :] - value[..., :-1, :, :]
        horizontal = value[..., 1:, :] - value[..., :-1, :]
        axes = [-3, -2, -1]
        parts = [reduce_sum(abs(vertical), axes), reduce_sum(abs(horizontal), axes)]
        return out("AddV2", parts, name=scope)


def image_gradients(image: Any) -> tuple[Output, Output]:
    """Return the differences between each pixel and its neighbors below and to the right.

    Args:
      image: real numbers, shape (batch, height, width, channels).
    Returns: dy and dx, dtype and shape of `image`; 0 in the last row and the last column.
    Raises: InvalidArgumentError: the rank is not 4.

    Examples:
      >>> dy, dx = wf.image.image_gradients(wf.reshape([1.0, 2.0, 4.0, 8.0], [1, 2, 2, 1]))
      >>> wf.Session().run(dx)[0, :, :, 0]
      array([[1., 0.],
             [4., 0.]], dtype=float32)
    """
    value = convert_images(image, "image")
    if value.dims is not None and len(value.dims) != 4:
        raise errors.InvalidArgumentError(
            f"image must have shape [batch, height, width, channels], got {format_dims(value.dims)}"
        )
    dy = pad(value[:, 1:] - value[:, :-1], [[0, 0], [0, 1], [0, 0], [0, 0]])
    dx = pad(value[:, :, 1:] - value[:, :, :-1], [[0, 0], [0, 0], [0, 1], [0, 0]])
    return identity(dy), identity(dx)


def sobel_edges(image: Any) -> Output:
    """Return the Sobel gradients of images in both directions.

    Args:
      image: floating, shape (batch, height, width, channels), at least 2 high and wide.
    Returns: dtype of `image`, shape (batch, height, width, channels, 2): [dy, dx].
    Raises: InvalidArgumentError: the rank is not 4.

    Examples:
      >>> wf.image.sobel_edges(wf.zeros([2, 4, 5, 3])).shape.as_list()
      [2, 4, 5, 3, 2]
    """
    value = convert_images(image, "image")
    down = np.outer([-1, 0, 1], [1, 2, 1])
    kernels = np.stack([down, down.T], -1)[:, :, np.newaxis]
    dims = value.dims
    channels = shape(value)[-1] if dims is None or dims[-1] is None else dims[-1]
    kernel = convert_to_tensor(kernels.astype(value.dtype.base_dtype.numpy))
    tiled = out("Tile", [kernel, stack([1, 1, channels, 1])])
    framed = pad(value, [[0, 0], [1, 1], [1, 1], [0, 0]], "REFLECT")
    edges = depthwise_conv2d(framed, tiled, [1, 1, 1, 1], "VALID")
    result = reshape(edges, concat([shape(value), [2]], 0))
    if dims is not None:
        result.set_shape([*dims, 2])
    return result
