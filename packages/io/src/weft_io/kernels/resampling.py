"""Resampling of images along both axes with the positions and weights of `resampling`."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from weft_exec.kernels.common import new_array, widen_value
from weft_tensor.resampling import Array, Taps

if TYPE_CHECKING:
    from weft_exec.devices.device import Device

BLOCK_BYTES: Final = 1 << 20
_MAX_UNROLLED_TERMS: Final = 16
"""Up to this number of terms, a sum along an axis is faster term by term."""
PRODUCT_SIZE: Final = 32
"""Maximum number of input positions per tap for which a matrix product is faster than gathers."""


def resample(images: Any, rows: Taps, columns: Taps, device: Device) -> Any:
    """Resample images (B, H, W, C) along both axes.

    Returns: float32, shape (B, out rows, out columns, C).
    """
    steps = [(axis, taps) for axis, taps in ((1, rows), (2, columns)) if not taps.is_identity()]
    if len(rows.index) * columns.size > rows.size * len(columns.index):
        steps.reverse()  # the axis that leaves less for the other one
    batch, _, _, depth = images.shape
    shape = (batch, len(rows.index), len(columns.index), depth)
    result = new_array(device, shape, np.dtype(np.float32))
    if not steps:
        device.xp.copyto(result, images, casting="unsafe")
    elif result.size:
        for block in _blocks(images, shape, device.xp):
            value = images[block]
            for axis, taps in steps[:-1]:
                value = _resample_axis(value, axis, taps, device.xp, None)
            _resample_axis(value, *steps[-1], device.xp, result[block])
    return result


def _blocks(images: Any, shape: tuple[int, ...], xp: Any) -> Iterator[slice]:
    """Yield blocks of images whose intermediate results fit the cache; on GPUs a single block."""
    batch = shape[0]
    item = 4 * max(prod(images.shape[1:]), prod(shape[1:]))
    step = max(1, BLOCK_BYTES // item) if xp is np else batch
    return (slice(index, index + step) for index in range(0, batch, step))


def _resample_axis(x: Any, axis: int, taps: Taps, xp: Any, result: Any) -> Any:
    """Resample one axis of images in float32, into `result` if it is not None."""
    if result is None:
        shape = (*x.shape[:axis], len(taps.index), *x.shape[axis + 1 :])
        result = xp.empty(shape, np.float32)
    if taps.between:
        _interpolate(x, axis, taps, xp, result)
    elif taps.size > PRODUCT_SIZE * taps.index.shape[1]:
        _gather(x, axis, taps, xp, result)
    else:
        _multiply(x, axis, taps, xp, result)
        if x.dtype.kind not in "iu" and not xp.isfinite(result.sum()):
            _gather(x, axis, taps, xp, result)  # 0 times a non-finite value is NaN
    return result


def _per_position(values: Array, axis: int, depth: int, xp: Any) -> Any:
    """Reshape values, one per position of an axis, so that they broadcast over an image.

    Values of columns are repeated per channel: NumPy's inner loop is then a row, not a pixel.
    """
    if axis == 2:
        return xp.asarray(np.repeat(values, depth).reshape(len(values), depth))
    return xp.asarray(values.reshape(-1, 1, 1))


def _take(x: Any, index: Array, axis: int, xp: Any) -> Any:
    return xp.take(x, xp.asarray(index), axis=axis)


def _interpolate(x: Any, axis: int, taps: Taps, xp: Any, result: Any) -> None:
    """Interpolate linearly between two neighbors; the result is exact if they are equal."""
    low = _take(x, taps.index[:, 0], axis, xp)
    high = _take(x, taps.index[:, 1], axis, xp)
    xp.subtract(_to_float32(high), _to_float32(low), out=result)
    xp.multiply(result, _per_position(taps.weight[:, 1], axis, x.shape[3], xp), out=result)
    xp.add(result, _to_float32(low), out=result)


def _to_float32(x: Any) -> Any:
    return x if x.dtype == np.float32 else x.astype(np.float32)


def _multiply(x: Any, axis: int, taps: Taps, xp: Any, result: Any) -> None:
    matrix, wide = xp.asarray(taps.matrix()), _to_float32(x)
    batch, height, width, depth = wide.shape
    if axis == 1:
        flat = wide.reshape(batch, height, width * depth)
        result[...] = xp.matmul(matrix, flat).reshape(result.shape)
        return
    columns = wide.transpose(0, 1, 3, 2).reshape(batch * height * depth, width)
    new_value = xp.matmul(columns, matrix.T).reshape(batch, height, depth, len(taps.index))
    result[...] = new_value.transpose(0, 1, 3, 2)


def _gather(x: Any, axis: int, taps: Taps, xp: Any, result: Any) -> None:
    result[...] = 0
    for index, weight in zip(taps.index.T, taps.weight.T, strict=True):
        part = _to_float32(_take(x, index, axis, xp))
        part *= _per_position(weight, axis, x.shape[3], xp)
        if not weight.all():
            part[(slice(None),) * axis + (xp.asarray(np.flatnonzero(weight == 0)),)] = 0
        result += part


def scatter_add_sorted(grads: Any, index: Array, size: int, axis: int, xp: Any) -> Any:
    """Return the gradient of a gather by ascending indices: the sums per position."""
    wide = widen_value(grads)
    counts = np.bincount(index, minlength=size)
    starts = np.cumsum(counts) - counts
    result = xp.zeros((*wide.shape[:axis], size, *wide.shape[axis + 1 :]), wide.dtype)
    if counts.max(initial=0) > _MAX_UNROLLED_TERMS:
        used = counts > 0
        sums = xp.add.reduceat(wide, xp.asarray(starts[used]), axis=axis, dtype=wide.dtype)
        result[(slice(None),) * axis + (xp.asarray(np.flatnonzero(used)),)] = sums
        return result
    for i in range(int(counts.max(initial=0))):
        part = _take(wide, np.minimum(starts + i, len(index) - 1), axis, xp)
        part *= _per_position((counts > i).astype(wide.dtype), axis, wide.shape[3], xp)
        result += part
    return result
