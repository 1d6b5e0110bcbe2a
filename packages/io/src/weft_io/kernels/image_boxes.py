"""Kernels for boxes in images: cropping, drawing and random sampling."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from weft_exec.kernels import philox
from weft_exec.kernels.common import as_exact, new_array
from weft_exec.kernels.random import stream_of
from weft_exec.kernels.registry import KernelFunction, kernel
from weft_io.kernels.resampling import BLOCK_BYTES
from weft_tensor import errors
from weft_tensor.shape import format_dims

if TYPE_CHECKING:
    from weft_exec.devices.device import Device
    from weft_graph.ir.node import Node

Array = np.ndarray[Any, Any]

# --------------------------------------------------------------------------------- cropping


@dataclass(frozen=True, slots=True)
class _Axis:
    """The sampling positions of each crop along one axis, shape (boxes, positions).

    Attributes:
      inside: True if the positions are inside the image.
      low, high: the neighboring pixels.
      part: the distance to the lower pixel.
      slope: the derivative of a position with respect to the end of its box, in pixels per image;
        for the start it is 1 minus that.
    """

    inside: Array
    low: Array
    high: Array
    part: Array
    slope: Array

    def of(self, boxes: slice) -> _Axis:
        """Return the axis of the selected boxes."""
        is_inside, low, high = self.inside[boxes], self.low[boxes], self.high[boxes]
        return _Axis(is_inside, low, high, self.part[boxes], self.slope)

    def weights(self, box: int) -> tuple[slice, Array]:
        """Return the pixels of a crop, and their weights, shape (positions, pixels)."""
        is_inside = self.inside[box]
        index, part = np.flatnonzero(is_inside), self.part[box][is_inside]
        low, high = self.low[box][is_inside], self.high[box][is_inside]
        span = slice(int(low.min()), int(high.max()) + 1) if len(index) else slice(0, 0)
        matrix = np.zeros((len(is_inside), span.stop - span.start), np.float32)
        matrix[index, low - span.start] = 1 - part
        matrix[index, high - span.start] += part
        return span, matrix


def _axis(start: Array, end: Array, size: int, count: int, nearest: bool) -> _Axis:
    reach = np.float32(size - 1)
    if count > 1:
        slope = np.arange(count, dtype=np.float32) / np.float32(count - 1)
    else:
        slope = np.full(1, 0.5, np.float32)
    if count > 1:
        step = (end - start) * reach / np.float32(count - 1)
        positions = (start * reach)[:, None] + np.arange(count, dtype=np.float32) * step[:, None]
    else:
        positions = (np.float32(0.5) * (start + end) * reach)[:, None]
    is_inside = (positions >= 0) & (positions <= reach)
    safe = np.where(is_inside, positions, np.float32(0))
    if nearest:
        safe = np.floor(safe + np.float32(0.5))
    low = np.floor(safe)
    high = np.ceil(safe)
    return _Axis(is_inside, low.astype(np.int64), high.astype(np.int64), safe - low, slope * reach)


def _axes(
    boxes: Array, index: Array, shape: tuple[int, ...], counts: tuple[int, int], nearest: bool
) -> tuple[_Axis, _Axis]:
    """Return the row and column axes of all crops of images (batch, height, width, channels)."""
    if boxes.ndim != 2 or boxes.shape[1] != 4 or index.shape != boxes.shape[:1]:
        raise errors.InvalidArgumentError(
            "boxes must have shape [n, 4] and box_ind [n], got shapes "
            f"{format_dims(boxes.shape)} and {format_dims(index.shape)}"
        )
    if index.size and not (index.min() >= 0 and index.max() < shape[0]):
        raise errors.InvalidArgumentError(
            f"box_ind must be from 0 to {shape[0] - 1}, got {index.min()} to {index.max()}"
        )
    if 0 in shape[1:3] or min(counts) < 1:
        raise errors.InvalidArgumentError(
            f"images and crops must have pixels, got sizes {list(shape[1:3])} and {list(counts)}"
        )
    y1, x1, y2, x2 = boxes.T
    rows = _axis(y1, y2, shape[1], counts[0], nearest)
    return rows, _axis(x1, x2, shape[2], counts[1], nearest)


def _flat(index: Array, y: Array, x: Array, shape: tuple[int, ...]) -> Array:
    """Return flat indices of pixels in a batch, shape (boxes, rows, columns)."""
    row = index[:, None].astype(np.int64) * shape[1] + y
    result: Array = row[:, :, None] * shape[2] + x[:, None, :]
    return result


def _pixels(images: Array) -> Array:
    batch, height, width, channels = images.shape
    return images.reshape(batch * height * width, channels)


def _inside_mask(rows: _Axis, columns: _Axis) -> Array:
    result: Array = (rows.inside[:, :, None] & columns.inside[:, None, :])[..., None]
    return result


def _corners(image: Array, index: Array, rows: _Axis, columns: _Axis) -> list[Array]:
    """Return the four neighbors of all positions: upper left and right, lower left and right."""
    pixels = _pixels(image)
    result = []
    for y in (rows.low, rows.high):
        for x in (columns.low, columns.high):
            part = pixels.take(_flat(index, y, x, image.shape), axis=0)
            result.append(part if part.dtype == np.float32 else part.astype(np.float32))
    return result


@kernel("CropAndResize", heavy=True)
def _crop_and_resize(node: Node, device: Device) -> KernelFunction:
    nearest = node.attrs["method"] == "nearest"
    extrapolation_value = np.float32(node.attrs["extrapolation_value"])

    def run(image: Any, boxes: Any, index: Any, crop_size: Any) -> Any:
        height, width = crop_size.tolist()
        if image.ndim != 4:
            raise errors.InvalidArgumentError(
                f"image must have rank 4, got shape {format_dims(image.shape)}"
            )
        rows, columns = _axes(boxes, index, image.shape, (height, width), nearest)
        shape = (len(boxes), height, width, image.shape[3])
        result = new_array(device, shape, np.dtype(np.float32))
        step = max(1, BLOCK_BYTES // max(1, 4 * height * width * image.shape[3]))
        for position in range(0, len(boxes), step):
            block = slice(position, position + step)
            parts = image, index[block], rows.of(block), columns.of(block)
            new_value = _nearest(*parts) if nearest else _blend(*parts)
            np.copyto(result[block], new_value)
        is_inside = _inside_mask(rows, columns)
        if not is_inside.all():
            np.copyto(result, extrapolation_value, where=~is_inside)
        return result

    return run


def _nearest(image: Array, index: Array, rows: _Axis, columns: _Axis) -> Array:
    return _pixels(image).take(_flat(index, rows.low, columns.low, image.shape), axis=0)


def _blend(image: Array, index: Array, rows: _Axis, columns: _Axis) -> Array:
    top_left, top_right, bottom_left, bottom_right = _corners(image, index, rows, columns)
    # One for each channel, so that NumPy's inner loop is a row and not a pixel.
    depth = image.shape[3]
    column_part = np.repeat(columns.part, depth, 1).reshape(
        len(index), 1, columns.part.shape[1], depth
    )
    down = rows.part[:, :, None, None]
    for left, right in ((top_left, top_right), (bottom_left, bottom_right)):
        right -= left
        right *= column_part
        right += left
    bottom_right -= top_right
    bottom_right *= down
    bottom_right += top_right
    return bottom_right


SMALL_CROP: Final = 1 << 10
"""Largest number of elements of a crop whose gradient is accumulated pixel by pixel.

For larger crops, matrix products are faster.
"""


def _add_corners(total: Array, grads: Array, index: Array, rows: _Axis, columns: _Axis) -> None:
    """Add the gradients of all crops to the four neighbors of their positions."""
    live = np.where(_inside_mask(rows, columns), grads, np.float32(0))
    row_part, column_part = rows.part[:, :, None, None], columns.part[:, None, :, None]
    flat, depth = total.reshape(-1), total.shape[3]
    channels = np.arange(depth)
    for y, tall in ((rows.low, 1 - row_part), (rows.high, row_part)):
        part = live * tall
        for x, wide in ((columns.low, 1 - column_part), (columns.high, column_part)):
            indices = _flat(index, y, x, total.shape)[..., None] * depth + channels
            np.add.at(flat, indices.reshape(-1), (part * wide).reshape(-1))


@kernel("CropAndResizeGradImage", heavy=True)
def _crop_grad_image(node: Node, device: Device) -> KernelFunction:
    nearest = node.attrs["method"] == "nearest"
    dtype = node.outputs[0].dtype.numpy

    def run(grads: Any, boxes: Any, index: Any, image_size: Any) -> Any:
        shape = tuple(image_size.tolist())
        if len(shape) != 4 or min(shape) < 0 or grads.ndim != 4 or grads.shape[3] != shape[3]:
            raise errors.InvalidArgumentError(
                "image_size must be [batch, height, width, channels] with the channels of grads, "
                f"got {list(shape)} for shape {format_dims(grads.shape)}"
            )
        rows, columns = _axes(boxes, index, shape, grads.shape[1:3], nearest)
        total = new_array(device, shape, np.dtype(np.float32))
        total[...] = 0
        _, height, width, depth = grads.shape
        if height * width * depth <= SMALL_CROP:
            _add_corners(total, grads, index, rows, columns)
            return as_exact(total, dtype, device)
        for box, number in enumerate(index.tolist()):
            (row_span, by_row), (column_span, by_column) = rows.weights(box), columns.weights(box)
            tall = by_row.T @ grads[box].reshape(height, width * depth)
            tall = tall.reshape(len(tall), width, depth)
            total[number, row_span, column_span] += np.matmul(by_column.T, tall)
        return as_exact(total, dtype, device)

    return run


@kernel("CropAndResizeGradBoxes", heavy=True)
def _crop_grad_boxes(node: Node, device: Device) -> KernelFunction:
    def run(grads: Any, image: Any, boxes: Any, index: Any) -> Any:
        if grads.ndim != 4 or image.ndim != 4 or grads.shape[3] != image.shape[3]:
            raise errors.InvalidArgumentError(
                "grads and image must have rank 4 and the same channels, got shapes "
                f"{format_dims(grads.shape)} and {format_dims(image.shape)}"
            )
        rows, columns = _axes(boxes, index, image.shape, grads.shape[1:3], False)
        corners = _corners(image, index, rows, columns)
        top_left, top_right, bottom_left, bottom_right = corners
        row_part, column_part = rows.part[:, :, None, None], columns.part[:, None, :, None]
        by_y = (1 - column_part) * (bottom_left - top_left) + column_part * (
            bottom_right - top_right
        )
        by_x = (1 - row_part) * (top_right - top_left) + row_part * (bottom_right - bottom_left)
        live = np.where(_inside_mask(rows, columns), grads, np.float32(0))
        along_y = (by_y * live).sum(axis=(2, 3), dtype=np.float32)
        along_x = (by_x * live).sum(axis=(1, 3), dtype=np.float32)
        result = new_array(device, boxes.shape, np.dtype(np.float32))
        for axis, gradient, size in ((0, along_y, image.shape[1]), (1, along_x, image.shape[2])):
            slope = (rows, columns)[axis].slope
            result[:, axis] = gradient @ (np.float32(size - 1) - slope)
            result[:, axis + 2] = gradient @ slope
        return result

    return run


# --------------------------------------------------------------------------------- glimpses


@kernel("ExtractGlimpse", "ExtractGlimpseV2", heavy=True)
def _glimpse(node: Node, device: Device) -> KernelFunction:
    attrs = node.attrs
    kind = "uniform" if attrs["uniform_noise"] else attrs["noise"]
    kind = "gaussian" if kind == "uniform" and not attrs["uniform_noise"] else kind
    name = f"_noise/{node.name}"

    def make() -> philox.RandomStream:
        return philox.RandomStream(name, philox.random_key())  # the op has no seed

    stream = device.resources.own.lookup_or_create("", name, philox.RandomStream, make)

    def run(images: Any, size: Any, offsets: Any) -> Any:
        height, width = _check_glimpse(images, size, offsets)
        sizes = np.array(images.shape[1:3], np.float32)
        positions = offsets * sizes if attrs["normalized"] else offsets
        positions = positions / 2 + sizes / 2 if attrs["centered"] else positions
        first = np.trunc(positions - np.array([height, width], np.float32) / 2).astype(np.int64)
        y = first[:, :1] + np.arange(height)
        x = first[:, 1:] + np.arange(width)
        is_inside = ((y >= 0) & (y < images.shape[1]))[:, :, None]
        is_inside = (is_inside & ((x >= 0) & (x < images.shape[2]))[:, None, :])[..., None]
        y, x = np.clip(y, 0, images.shape[1] - 1), np.clip(x, 0, images.shape[2] - 1)
        batch = np.arange(len(images))[:, None, None]
        result = images[batch, y[:, :, None], x[:, None, :]]
        if not is_inside.all():
            noise = stream.sample(_noise, images, result.shape, kind)
            np.copyto(result, noise, where=~is_inside)
        return result

    return run


def _check_glimpse(images: Array, size: Array, offsets: Array) -> tuple[int, int]:
    fits = images.ndim == 4 and offsets.shape == (len(images), 2) and size.shape == (2,)
    if not fits or 0 in images.shape[1:3] or (size < 1).any():
        raise errors.InvalidArgumentError(
            "images [batch, height, width, channels] with pixels, a size of at least [1, 1] and "
            f"offsets [batch, 2] are required, got shape {format_dims(images.shape)}, "
            f"{size.tolist()} and {format_dims(offsets.shape)}"
        )
    height, width = size.tolist()
    return height, width


def _noise(generator: np.random.Generator, images: Array, shape: tuple[int, ...], kind: str) -> Any:
    """Return noise with the value distribution of each image."""
    if kind == "zero":
        return 0.0
    axes = (1, 2, 3)
    if kind == "gaussian":
        mean = images.mean(axes, keepdims=True)
        array: Array = generator.standard_normal(shape, np.float32)
        return np.add(array * images.std(axes, keepdims=True), mean)
    low, high = images.min(axes, keepdims=True), images.max(axes, keepdims=True)
    return np.add(generator.random(shape, np.float32) * (high - low), low)


# ---------------------------------------------------------------------------------- drawing

_COLORS: Final = np.array(
    [
        [1, 1, 0, 1],
        [0, 0, 1, 1],
        [1, 0, 0, 1],
        [0, 1, 0, 1],
        [0.5, 0, 0.5, 1],
        [0.5, 0.5, 0, 1],
        [0.5, 0, 0, 1],
        [0, 0, 0.5, 1],
        [0, 1, 1, 1],
        [1, 0, 1, 1],
    ],
    np.float32,
)


@kernel("DrawBoundingBoxes", "DrawBoundingBoxesV2", heavy=True)
def _draw(node: Node, device: Device) -> KernelFunction:
    def run(images: Any, boxes: Any, colors: Any = None) -> Any:
        fits = images.ndim == 4 and boxes.ndim == 3 and boxes.shape[::2] == (len(images), 4)
        if not fits or images.shape[3] not in (1, 3, 4):
            raise errors.InvalidArgumentError(
                "images [batch, height, width, 1, 3 or 4] and boxes [batch, n, 4] are required, "
                f"got shapes {format_dims(images.shape)} and {format_dims(boxes.shape)}"
            )
        table = _colors(colors, images.shape[3])
        result = new_array(device, images.shape, images.dtype)
        np.copyto(result, images)
        reach = np.array([images.shape[1] - 1, images.shape[2] - 1] * 2, np.float32)
        corners = (boxes * reach).astype(np.int64)
        for image, block in zip(result, corners.tolist(), strict=True):
            for number, corner in enumerate(block):
                _draw_box(image, corner, table[number % len(table)])
        return result

    return run


def _colors(colors: Array | None, channels: int) -> Array:
    if colors is None or not colors.size:
        return np.ones((1, 1), np.float32) if channels == 1 else _COLORS[:, :channels]
    if colors.ndim != 2 or colors.shape[1] < channels:
        raise errors.InvalidArgumentError(
            f"colors must have shape [k, {channels}], got {format_dims(colors.shape)}"
        )
    return colors[:, :channels]


def _draw_box(image: Array, corner: list[int], color: Array) -> None:
    top, left, bottom, right = corner
    height, width = image.shape[:2]
    is_outside = top >= height or left >= width or bottom < 0 or right < 0
    if top > bottom or left > right or is_outside:
        return
    rows = slice(max(top, 0), min(bottom, height - 1) + 1)
    columns = slice(max(left, 0), min(right, width - 1) + 1)
    if top >= 0:
        image[top, columns] = color
    if bottom < height:
        image[bottom, columns] = color
    if left >= 0:
        image[rows, left] = color
    if right < width:
        image[rows, right] = color


# --------------------------------------------------------------------------------- sampling


@kernel("SampleDistortedBoundingBox", "SampleDistortedBoundingBoxV2")
def _sample(node: Node, device: Device) -> KernelFunction:
    attrs, dtype = node.attrs, node.outputs[0].dtype.numpy
    stream = stream_of(node, device.resources)
    attr: Any = attrs.get("min_object_covered")

    def run(image_size: Any, bounding_boxes: Any, covered: Any = None) -> Any:
        height, width = _image_size(image_size)
        minimum = float(attr if covered is None else covered)
        if not minimum >= 0:
            raise errors.InvalidArgumentError(
                f"min_object_covered must be at least 0, got {minimum}"
            )
        boxes = _objects(bounding_boxes, attrs["use_image_if_no_bounding_boxes"])
        tries = stream.sample(_random_crops, height, width, attrs)
        valid = tries[_shows_enough(tries, boxes, height, width, minimum)]
        top, left, tall, wide = valid[0].tolist() if len(valid) else (0, 0, height, width)
        box = [top / height, left / width, (top + tall) / height, (left + wide) / width]
        begin, size = np.array([top, left, 0], dtype), np.array([tall, wide, -1], np.int64)
        return begin, size.astype(dtype), np.array(box, np.float32).reshape(1, 1, 4)

    return run


def _image_size(image_size: Array) -> tuple[int, int]:
    if image_size.shape != (3,) or (image_size[:2] < 1).any():
        raise errors.InvalidArgumentError(
            f"image_size must be [height, width, channels] with pixels, got {image_size.tolist()}"
        )
    height, width, _ = image_size.tolist()
    return height, width


def _objects(boxes: Array, whole_if_none: bool) -> Array:
    """Return all boxes, shape (n, 4)."""
    if boxes.ndim != 3 or boxes.shape[2] != 4:
        raise errors.InvalidArgumentError(
            f"bounding_boxes must have shape [batch, n, 4], got {format_dims(boxes.shape)}"
        )
    if not boxes.size:
        if not whole_if_none:
            raise errors.InvalidArgumentError(
                "there are no bounding boxes; set use_image_if_no_bounding_boxes to use the "
                "whole image"
            )
        return np.array([[0, 0, 1, 1]], np.float32)
    flat = boxes.reshape(-1, 4)
    valid = (flat >= 0).all() and (flat <= 1).all()
    if not valid or (flat[:, :2] > flat[:, 2:]).any():
        raise errors.InvalidArgumentError(
            "bounding_boxes must be [y1, x1, y2, x2] from 0 to 1, in order, got values from "
            f"{flat.min()} to {flat.max()}"
        )
    return flat


def _random_crops(
    generator: np.random.Generator, height: int, width: int, attrs: dict[str, Any]
) -> Array:
    """Return random crops inside the image, shape (n, 4): top, left, height, width."""
    count: int = attrs["max_attempts"]
    chance = generator.random((4, count))
    low, high = attrs["aspect_ratio_range"]
    ratio = low + chance[0] * (high - low)
    minimum, limit = [part * height * width for part in attrs["area_range"]]
    shortest = np.rint(np.sqrt(minimum / ratio))
    tallest = np.minimum(np.rint(np.sqrt(limit / ratio)), np.floor((width + 0.5) / ratio))
    tallest = np.minimum(tallest, height)
    shortest = np.minimum(shortest, tallest)
    tall = shortest + np.floor(chance[1] * (tallest - shortest + 1))
    area = tall * np.rint(tall * ratio)
    tall = tall + (area < minimum) - (area > limit)
    wide = np.rint(tall * ratio)
    area = tall * wide
    valid = (area >= minimum) & (area <= limit) & (tall <= height) & (wide <= width)
    valid &= (tall > 0) & (wide > 0)
    top = np.floor(chance[2] * (height - tall + 1))
    left = np.floor(chance[3] * (width - wide + 1))
    array: Array = np.stack([top, left, tall, wide], 1)[valid].astype(np.int64)
    return array


def _shows_enough(crops: Array, boxes: Array, height: int, width: int, minimum: float) -> Array:
    """Return a mask of the crops that contain enough of at least one object."""
    pixels = (boxes * np.array([height, width] * 2, np.float32)).astype(np.int64)
    top, left, tall, wide = [crops[:, i, None] for i in range(4)]
    down = np.minimum(top + tall, pixels[:, 2]) - np.maximum(top, pixels[:, 0])
    overlap_width = np.minimum(left + wide, pixels[:, 3]) - np.maximum(left, pixels[:, 1])
    areas = np.maximum(down, 0) * np.maximum(overlap_width, 0)
    area = (pixels[:, 2] - pixels[:, 0]) * (pixels[:, 3] - pixels[:, 1])
    shows_enough: Array = ((area > 0) & (areas >= minimum * area)).any(1)
    return shows_enough
