"""Resizing of images, with any interpolation method, optionally with fixed proportions."""

from __future__ import annotations

__all__ = ["ResizeMethod", "resize", "resize_image_with_pad", "resize_images"]

from collections.abc import Callable
from typing import Any

import numpy as np

from weft_graph.ir.builder import convert_to_tensor, out
from weft_graph.ir.constant_value import constant_value
from weft_graph.ir.default_graph import name_scope
from weft_graph.ir.node import Output
from weft_graph.ops.arithmetic import maximum, minimum
from weft_graph.ops.casting import cast
from weft_graph.ops.identity import identity
from weft_graph.ops.join import stack
from weft_graph.ops.rounding import floor, round as rounded
from weft_graph.ops.shapes import expand_dims, shape, squeeze
from weft_io.image.cropping import pad_to_bounding_box
from weft_io.image.shapes import convert_images, static_rank
from weft_io.ops.image_resizing import (
    resize_area,
    resize_bicubic,
    resize_bilinear,
    resize_nearest_neighbor,
)
from weft_tensor import dtypes, errors


class ResizeMethod:
    """Interpolation methods of `resize_images`.

    Attributes:
      BILINEAR: from the nearest four pixels.
      NEAREST_NEIGHBOR: from the nearest pixel.
      BICUBIC: from the nearest sixteen pixels.
      AREA: from all covered pixels.

    Examples:
      >>> wf.image.ResizeMethod.BICUBIC
      2
    """

    BILINEAR = 0
    NEAREST_NEIGHBOR = 1
    BICUBIC = 2
    AREA = 3


_METHODS: dict[Any, Callable[..., Output]] = {
    ResizeMethod.BILINEAR: resize_bilinear,
    ResizeMethod.NEAREST_NEIGHBOR: resize_nearest_neighbor,
    ResizeMethod.BICUBIC: resize_bicubic,
    ResizeMethod.AREA: resize_area,
}
_METHODS |= dict(zip(("bilinear", "nearest", "bicubic", "area"), _METHODS.values(), strict=True))


def resize_images(
    images: Any,
    size: Any,
    method: Any = ResizeMethod.BILINEAR,
    align_corners: bool = False,
    preserve_aspect_ratio: bool = False,
    name: str | None = None,
) -> Output:
    """Resize images.

    Args:
      images: real numbers, shape (height, width, channels) or (batch, height, width, channels).
      size: int32, shape (2,): the new height and width.
      method: one of `ResizeMethod`, or "bilinear", "nearest", "bicubic" or "area".
      align_corners: align the centers of the corner pixels.
      preserve_aspect_ratio: return the largest image inside `size` with the original proportions.
    Returns: float32; or the dtype of `images` for the nearest neighbor, or if the size is known to
      be unchanged.
    Raises: InvalidArgumentError: the method is unknown, or a rank or a size is invalid.

    Examples:
      >>> image = wf.constant([[[0.0], [2.0]]])
      >>> wf.Session().run(wf.image.resize_images(image, [1, 4]))[0, :, 0]
      array([0., 1., 2., 2.], dtype=float32)
    """
    if method not in _METHODS:
        raise errors.InvalidArgumentError(f"method must be one of {list(_METHODS)}, got {method!r}")
    with name_scope(name, "resize", [images, size]) as scope:
        value = convert_images(images)
        single = static_rank(value) == 3
        batch = expand_dims(value, 0) if single else value
        expected = _size(size)
        if preserve_aspect_ratio:
            expected = _fit_size(batch, expected)
        constant = constant_value(expected)
        assert batch.dims is not None
        if constant is not None and batch.dims[1:3] == tuple(constant.tolist()):
            return identity(value, name=scope)
        methods = _METHODS[method](batch, expected, align_corners=align_corners)
        return squeeze(methods, [0], name=scope) if single else identity(methods, name=scope)


resize = resize_images


def _size(size: Any) -> Output:
    """Return the height and width as an int32 vector."""
    expected = convert_to_tensor(size, name="size")
    if expected.dtype.base_dtype != dtypes.int32:
        if not expected.dtype.is_integer:
            raise errors.InvalidTypeError(f"a size must be integers, got {size!r}")
        expected = cast(expected, dtypes.int32)
    if expected.dims is not None and expected.dims != (2,) and expected.dims != (None,):
        raise errors.InvalidArgumentError(
            f"size must be [height, width], got shape {list(expected.dims)}"
        )
    return expected


def _fit_size(images: Output, size: Output) -> Output:
    """Return the largest size with the proportions of the images that fits inside another size."""
    dims, constant = images.dims, constant_value(size)
    if constant is not None and dims is not None and dims[1] and dims[2]:
        dims_array = np.array(dims[1:3], np.float32)
        scale = (constant.astype(np.float32) / dims_array).min()
        return convert_to_tensor(np.maximum(np.rint(dims_array * scale), 1).astype(np.int32))
    dims_array = cast(shape(images)[1:3], dtypes.float32)
    ratios = cast(size, dtypes.float32) / dims_array
    result = cast(rounded(dims_array * minimum(ratios[0], ratios[1])), dtypes.int32)
    return maximum(result, 1)


def resize_image_with_pad(
    image: Any,
    target_height: Any,
    target_width: Any,
    method: Any = ResizeMethod.BILINEAR,
    align_corners: bool = False,
) -> Output:
    """Resize images with fixed proportions, and pad them with zeros.

    Args:
      image: real numbers, shape (height, width, channels) or (batch, height, width, channels).
      target_height, target_width: sizes of the result, at least 1.
      method, align_corners: as for `resize_images`.
    Returns: float32, or the dtype of `image` for the nearest neighbor.
    Raises:
      InvalidArgumentError: a size is below 1, or the rank is not 3 or 4.

    Examples:
      >>> image = wf.ones([1, 2, 1])
      >>> wf.Session().run(wf.image.resize_image_with_pad(image, 3, 2))[:, 0, 0]
      array([0., 1., 0.], dtype=float32)
    """
    for target in (target_height, target_width):
        if isinstance(target, int) and target < 1:
            raise errors.InvalidArgumentError(f"a target size must be at least 1, got {target}")
    with name_scope(None, "resize_image_with_pad", [image]) as scope:
        value = convert_images(image, "image")
        single = static_rank(value) == 3
        batch = expand_dims(value, 0) if single else value
        sizes, margins = _fit(batch, target_height, target_width)
        resized = resize_images(batch, sizes, method, align_corners)
        top, left = margins
        padded = pad_to_bounding_box(resized, top, left, target_height, target_width)
        return squeeze(padded, [0], name=scope) if single else identity(padded, name=scope)


def _fit(images: Output, height: Any, width: Any) -> tuple[Any, list[Any]]:
    """Return the size of images fitted into a target, and the margins at the top and left."""
    dims = images.dims
    is_static = isinstance(height, int) and isinstance(width, int)
    if is_static and dims is not None and dims[1] and dims[2]:
        current, target = np.array(dims[1:3], np.float32), np.array([height, width], np.float32)
        exact = current / (current / target).max()
        margins = np.maximum(np.floor((target - exact) / 2), 0).astype(int).tolist()
        return np.maximum(np.floor(exact), 1).astype(np.int32), margins
    targets = stack([cast(height, dtypes.float32), cast(width, dtypes.float32)])
    sizes = cast(shape(images)[1:3], dtypes.float32)
    ratios = sizes / targets
    inner = out("RealDiv", [sizes, maximum(ratios[0], ratios[1])])
    free = maximum(cast(floor((targets - inner) / 2.0), dtypes.int32), 0)
    return maximum(cast(floor(inner), dtypes.int32), 1), [free[0], free[1]]
