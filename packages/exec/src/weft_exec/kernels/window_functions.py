"""Functions that convolutions, pools and normalizations share: windows, padding, sums.

All use the array module.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from weft_exec.kernels.common import new_array
from weft_exec.kernels.sums import sum_axes
from weft_graph.ops.windows import channel_axis

if TYPE_CHECKING:
    from weft_exec.devices.device import Device

Array = np.ndarray[Any, Any]
Sizes = tuple[int, ...]

COLUMN_BYTES = 1 << 21
"""Scratch bytes for one matrix product: enough for BLAS to run at full speed, but so few that the
copied windows stay in the cache.
"""
DEVICE_COLUMN_BYTES = 1 << 28
"""The same for other devices: enough to keep a GPU busy, but little compared with its memory."""


def channels_last(value: Any, data_format: str) -> Any:
    """Return a view with the channels on the last axis."""
    axis = channel_axis(data_format)
    last = value.ndim - 1
    return (
        value if axis == last else value.transpose(*range(axis), *range(axis + 1, last + 1), axis)
    )


def from_channels_last(value: Any, data_format: str, dtype: np.dtype[Any], device: Device) -> Any:
    """Convert a channels-last result to a layout and type; return `value` itself if it has both."""
    axis = channel_axis(data_format)
    last = value.ndim - 1
    view = value if axis == last else value.transpose(*range(axis), last, *range(axis, last))
    if view is value and value.dtype == dtype:
        return value
    result = new_array(device, view.shape, dtype)
    device.xp.copyto(result, view, casting="unsafe")
    return result


def contiguous(value: Any, dtype: np.dtype[Any], device: Device) -> Any:
    """Return `value` in C order with type `dtype`, without a copy if possible."""
    if value.dtype == dtype and value.flags.c_contiguous:
        return value
    result = new_array(device, value.shape, dtype)
    device.xp.copyto(result, value, casting="unsafe")
    return result


class Margins:
    """Zero padding around the spatial axes of images (N, ..., C) of a fixed shape.

    Args:
      shape: shape of the images.
      before, after: the number of zeros on both sides of each spatial axis.

    Attributes:
      shape: shape of the padded images.
    """

    __slots__ = ("_interior", "_zeros", "shape")

    def __init__(self, shape: Sizes, before: Sizes, after: Sizes) -> None:
        sides = list(zip(before, shape[1:-1], after, strict=True))
        self.shape: Sizes = (shape[0], *[b + n + a for b, n, a in sides], shape[-1])
        self._zeros: list[tuple[slice, ...]] = []
        interior: list[slice] = [slice(None)]
        for b, n, a in sides:
            # Rows that an outer axis has zeroed already are skipped.
            if b:
                self._zeros.append((*interior, slice(0, b)))
            if a:
                self._zeros.append((*interior, slice(b + n, None)))
            interior.append(slice(b, b + n))
        self._interior = tuple(interior)

    def pad(self, value: Any, dtype: np.dtype[Any], device: Device) -> Any:
        """Return images with the padding, in C order.

        `value` itself if there is nothing to change.
        """
        if not self._zeros:
            return contiguous(value, dtype, device)
        result = new_array(device, (len(value), *self.shape[1:]), dtype)
        for border in self._zeros:
            result[border] = 0
        result[self._interior] = value
        return result


def pad_spatial(
    value: Any, before: Sizes, after: Sizes, dtype: np.dtype[Any], device: Device
) -> Any:
    """Return `value` (N, ..., C) in C order with zeros around its spatial axes."""
    return Margins(value.shape, before, after).pad(value, dtype, device)


def windows(
    xp: Any, value: Any, kernel: Sizes, strides: Sizes, dilations: Sizes, counts: Sizes
) -> Any:
    """Return a view (N, counts..., kernel..., C) of all windows of `value` (N, ..., C)."""
    inner = value.strides[1:-1]
    steps = tuple(s * stride for s, stride in zip(inner, strides, strict=True))
    taps = tuple(s * dilation for s, dilation in zip(inner, dilations, strict=True))
    shape = (value.shape[0], *counts, *kernel, value.shape[-1])
    return as_strided(xp, value, shape, (value.strides[0], *steps, *taps, value.strides[-1]))


def as_strided(xp: Any, value: Any, shape: Sizes, strides: Sizes) -> Any:
    """Return a strided view of an array."""
    if xp is np and value.flags.c_contiguous and value.dtype.kind in "biufc":
        return np.ndarray(shape, value.dtype, value, 0, strides)  # ten times as fast
    return xp.lib.stride_tricks.as_strided(value, shape, strides)


def blocks(
    xp: Any, batch: int, rows: int, row_bytes: int, limit: int = COLUMN_BYTES
) -> Iterator[tuple[slice, slice]]:
    """Yield slices of images and rows, such that the columns of a block fit the scratch memory."""
    limit = limit if xp is np else DEVICE_COLUMN_BYTES
    image_bytes = max(rows * row_bytes, 1)
    if image_bytes <= limit:
        step = limit // image_bytes
        for n in range(0, batch, step):
            yield slice(n, min(n + step, batch)), slice(0, rows)
        return
    step = max(limit // row_bytes, 1)
    for n in range(batch):
        for y in range(0, rows, step):
            yield slice(n, n + 1), slice(y, min(y + step, rows))


def columns(
    value: Array,
    kernel: Sizes,
    strides: Sizes,
    dilations: Sizes,
    counts: Sizes,
    device: Device,
) -> Iterator[tuple[slice, Array]]:
    """Yield windows as matrices, block by block.

    Args:
      value: padded, in C order, shape (N, ..., C).
    Yields: a slice of rows of the output (N * counts, ...), and the windows of these rows, shape
      (rows, kernel * C). The next matrix overwrites the previous one.
    """
    xp, batch, depth = device.xp, value.shape[0], prod(kernel) * value.shape[-1]
    positions = prod(counts)
    if depth == value.shape[-1] and all(stride == 1 for stride in strides):
        yield slice(0, batch * positions), value.reshape(batch * positions, depth)
        return
    view = windows(xp, value, kernel, strides, dilations, counts)
    per_row = positions // max(counts[0], 1)
    scratch: Array | None = None
    for images, rows in blocks(xp, batch, counts[0], per_row * depth * value.dtype.itemsize):
        source = view[images, rows]
        if scratch is None:
            scratch = new_array(device, (source.size,), value.dtype)
        block = scratch[: source.size]
        xp.copyto(block.reshape(source.shape), source)
        start = (images.start * counts[0] + rows.start) * per_row
        stop = ((images.stop - 1) * counts[0] + rows.stop) * per_row
        yield slice(start, stop), block.reshape(stop - start, depth)


def tap_slices(tap: int, size: int, stride: int, before: int, count: int) -> tuple[slice, slice]:
    """Return the slices along an axis where a window's tap is inside the input.

    Returns: the slice of the outputs whose tap is inside, and the slice of the inputs at this tap.
    """
    low = max(0, -((tap - before) // stride))
    high = min(count, (size - 1 + before - tap) // stride + 1)
    if high <= low:
        return slice(0, 0), slice(0, 0)
    start = low * stride + tap - before
    return slice(low, high), slice(start, start + (high - low - 1) * stride + 1, stride)


def column_sums(matrix: Any) -> Any:
    """Return the sums of the columns of a matrix in C order."""
    if type(matrix) is np.ndarray:
        return sum_axes(matrix, 0, 1)
    return matrix.sum(0, dtype=matrix.dtype)


def spatial(values: Sequence[int], data_format: str) -> Sizes:
    """Return the elements of an attribute that belong to the spatial axes."""
    channel = channel_axis(data_format)
    return tuple(v for axis, v in enumerate(values) if axis not in (0, channel))
