"""Cropping and padding of images."""

from __future__ import annotations

__all__ = [
    "central_crop",
    "crop_to_bounding_box",
    "extract_patches",
    "pad_to_bounding_box",
    "resize_image_with_crop_or_pad",
    "resize_with_crop_or_pad",
]

from typing import Any

import numpy as np

from weft_graph.ir.builder import convert_to_tensor, out
from weft_graph.ir.default_graph import name_scope
from weft_graph.ir.node import Output
from weft_graph.ops.arithmetic import maximum, minimum
from weft_graph.ops.casting import cast
from weft_graph.ops.checks import assert_greater_equal
from weft_graph.ops.control import with_dependencies
from weft_graph.ops.identity import identity
from weft_graph.ops.join import stack
from weft_graph.ops.space_to_batch import extract_image_patches
from weft_io.image.shapes import Size, convert_images, cut_rank, size_of, static_rank
from weft_tensor import dtypes, errors


def crop_to_bounding_box(
    image: Any, offset_height: Any, offset_width: Any, target_height: Any, target_width: Any
) -> Output:
    """Crop images to a bounding box.

    Args:
      image: any type, shape (height, width, channels) or (batch, height, width, channels).
      offset_height, offset_width: number of pixels removed at the top and on the left.
      target_height, target_width: size of the result.
    Returns: dtype of `image`.
    Raises: InvalidArgumentError: the box is not inside the image, or is empty.

    Examples:
      >>> wf.image.crop_to_bounding_box(wf.zeros([8, 9, 3]), 1, 2, 4, 5).shape.as_list()
      [4, 5, 3]
    """
    with name_scope(None, "crop_to_bounding_box", [image]) as scope:
        value = convert_images(image, "image")
        count = cut_rank(value)
        offsets, targets = [offset_height, offset_width], [target_height, target_width]
        for axis in (0, 1):
            have = size_of(value, axis - 3)
            offsets[axis] = _check_minimum(offsets[axis], 0, "an offset of a crop")
            targets[axis] = _check_minimum(targets[axis], 1, "a size of a crop")
            room = _difference(have, offsets[axis])
            targets[axis] = _check_maximum(targets[axis], room, "a size of a crop")
        lead = [0] * (count - 3)
        begin = _vector([*lead, *offsets, 0])
        size = _vector([*[-1] * len(lead), *targets, -1])
        part = out("Slice", [value, begin, size], name=scope)
        _set_size(part, target_height, target_width)
        return part


def pad_to_bounding_box(
    image: Any, offset_height: Any, offset_width: Any, target_height: Any, target_width: Any
) -> Output:
    """Pad images with zeros.

    Args:
      image: numbers, shape (height, width, channels) or (batch, height, width, channels).
      offset_height, offset_width: number of zeros added at the top and on the left.
      target_height, target_width: sizes of the result.
    Returns: dtype of `image`.
    Raises: InvalidArgumentError: the images exceed the result's size.

    Examples:
      >>> wf.image.pad_to_bounding_box(wf.zeros([4, 5, 3]), 1, 2, 8, 9).shape.as_list()
      [8, 9, 3]
    """
    with name_scope(None, "pad_to_bounding_box", [image]) as scope:
        value = convert_images(image, "image")
        count = cut_rank(value)
        rows: list[Any] = [[0, 0] for _ in range(count)]
        offsets, targets = [offset_height, offset_width], [target_height, target_width]
        for axis in (0, 1):
            leading = _check_minimum(offsets[axis], 0, "an offset of an image")
            used_size = _sum(leading, size_of(value, axis - 3))
            trailing = _check_minimum(
                _difference(targets[axis], used_size), 0, "the padding after an image"
            )
            rows[count - 3 + axis] = [leading, trailing]
        paddings = stack([_vector(row) for row in rows])
        if all(_is_number(n) for row in rows for n in row):
            paddings = convert_to_tensor(np.array(rows, np.int32))
        padded = out("Pad", [value, paddings], name=scope)
        _set_size(padded, *targets)
        return padded


def resize_image_with_crop_or_pad(image: Any, target_height: Any, target_width: Any) -> Output:
    """Crop images around their center, or pad them with zeros, to a size.

    Args:
      image: numbers, shape (height, width, channels) or (batch, height, width, channels).
      target_height, target_width: sizes of the result, at least 1.
    Returns: dtype of `image`.
    Raises: InvalidArgumentError: a size is below 1, or the rank is not 3 or 4.

    Examples:
      >>> wf.image.resize_image_with_crop_or_pad(wf.zeros([8, 5, 3]), 4, 7).shape.as_list()
      [4, 7, 3]
    """
    with name_scope(None, "resize_image_with_crop_or_pad", [image]) as scope:
        value = convert_images(image, "image")
        targets = [_check_minimum(n, 1, "a target size") for n in (target_height, target_width)]
        kept_sizes, cut, margin = [], [], []
        for axis, target in enumerate(targets):
            size = size_of(value, axis - 3)
            excess = _difference(size, target)
            kept_sizes.append(_smaller(size, target))
            cut.append(_larger(_half(excess), 0))
            margin.append(_larger(_half(_difference(target, size)), 0))
        inner = crop_to_bounding_box(value, *cut, *kept_sizes)
        padded = pad_to_bounding_box(inner, *margin, *targets)
        return identity(padded, name=scope)


resize_with_crop_or_pad = resize_image_with_crop_or_pad


def central_crop(image: Any, central_fraction: Any) -> Output:
    """Crop images to a fraction of their size around the center.

    Args:
      image: any type, shape (height, width, channels) or (batch, height, width, channels).
      central_fraction: fraction of each size that is kept: above 0 and at most 1, shape ().
    Returns: dtype of `image`.
    Raises: InvalidArgumentError: the fraction is out of range, or the rank is not 3 or 4.

    Examples:
      >>> wf.image.central_crop(wf.zeros([8, 6, 3]), 0.5).shape.as_list()
      [4, 4, 3]
    """
    with name_scope(None, "central_crop", [image]) as scope:
        value = convert_images(image, "image")
        is_static = isinstance(central_fraction, int | float | np.number)
        if is_static and not 0 < central_fraction <= 1:
            raise errors.InvalidArgumentError(
                f"central_fraction must be above 0 and at most 1, got {central_fraction}"
            )
        if is_static and central_fraction == 1:
            return value
        starts, sizes = [], []
        for axis in (-3, -2):
            have = size_of(value, axis)
            if is_static and _is_number(have):
                start: Any = int((have - have * float(central_fraction)) / 2)
            else:
                wide = cast(have, dtypes.float64)
                part = cast(central_fraction, dtypes.float64)
                start = cast((wide - wide * part) / 2, dtypes.int32)
            starts.append(start)
            sizes.append(have - 2 * start)
        lead = static_rank(value) - 3
        begin, size = _vector([*[0] * lead, *starts, 0]), _vector([*[-1] * lead, *sizes, -1])
        return out("Slice", [value, begin, size], name=scope)


def extract_patches(
    images: Any, sizes: Any, strides: Any, rates: Any, padding: str, name: str | None = None
) -> Output:
    """Extract windows of images, flattened into channels, as `extract_image_patches` does.

    Args:
      images: numbers, shape (batch, height, width, channels).
      sizes, strides, rates: [1, h, w, 1] each: size of a window, step between windows, step within
        a window.
      padding: "VALID", or "SAME" with zeros.
    Returns: dtype of `images`, shape (batch, rows, columns, h * w * channels).
    Raises: InvalidArgumentError: a window is larger than the image.

    Examples:
      >>> one, two = [1, 1, 1, 1], [1, 2, 2, 1]
      >>> wf.image.extract_patches(wf.zeros([1, 4, 6, 3]), two, two, one, "VALID").shape.as_list()
      [1, 2, 3, 12]
    """
    return extract_image_patches(images, sizes, strides, rates, padding, name)


# --------------------------------------------------------------- numbers that may be tensors


def _is_number(value: Size) -> bool:
    return isinstance(value, int | np.integer)


def _to_size(value: Any) -> Size:
    """Return an integer, or an int32 scalar tensor."""
    return int(value) if _is_number(value) else cast(value, dtypes.int32)


def _difference(a: Any, b: Any) -> Size:
    return _to_size(a) - _to_size(b)


def _sum(a: Any, b: Any) -> Size:
    return _to_size(a) + _to_size(b)


def _half(value: Size) -> Size:
    return value // 2


def _smaller(a: Any, b: Any) -> Size:
    a, b = _to_size(a), _to_size(b)
    return min(a, b) if _is_number(a) and _is_number(b) else minimum(a, b)


def _larger(a: Any, b: Any) -> Size:
    a, b = _to_size(a), _to_size(b)
    return max(a, b) if _is_number(a) and _is_number(b) else maximum(a, b)


def _check_minimum(value: Any, minimum: int, label: str) -> Size:
    value = _to_size(value)
    if not _is_number(value):
        check = assert_greater_equal(value, minimum, message=f"{label} must be at least {minimum}")
        return with_dependencies([check], value)
    if value < minimum:
        raise errors.InvalidArgumentError(f"{label} must be at least {minimum}, got {value}")
    return value


def _check_maximum(value: Size, limit: Size, label: str) -> Size:
    if not (_is_number(value) and _is_number(limit)):
        check = assert_greater_equal(limit, value, message=f"{label} must fit into the image")
        return with_dependencies([check], convert_to_tensor(value))
    if value > limit:
        raise errors.InvalidArgumentError(f"{label} must be at most {limit}, got {value}")
    return value


def _vector(values: list[Size]) -> Output:
    if all(_is_number(value) for value in values):
        return convert_to_tensor(np.array(values, np.int32))
    return stack([convert_to_tensor(value, dtypes.int32) for value in values])


def _set_size(images: Output, height: Any, width: Any) -> None:
    """Set the known sizes in the static shape."""
    sizes = [int(size) if _is_number(size) else None for size in (height, width)]
    lead = [None] * (cut_rank(images) - 3)
    images.set_shape([*lead, *sizes, None])
