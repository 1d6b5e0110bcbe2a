"""Resampling along one axis: which input positions make each output position, and how much of each.

Every way to resize an image is two of these, one for the rows and one for the columns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from weft_exec.kernels.common import new_array, widened

if TYPE_CHECKING:
    from weft_exec.devices.device import Device

Array = np.ndarray[Any, Any]

_F32: Final = np.float32
_TABLE: Final = 1 << 10
"""Into how many steps TensorFlow divides the distance of two pixels for cubic weights."""
BLOCK_BYTES: Final = 1 << 20
_FEW: Final = 16
"""Up to so many terms a sum over parts of an axis is faster term by term."""
PRODUCT_SIZE: Final = 32
"""A product of matrices beats gathers where the input has fewer positions per tap than this."""


@dataclass(frozen=True, slots=True, eq=False)
class Taps:
    """The positions that make each output position.

    Attributes:
      index: int64, shape (out, K): positions in the input.
      weight: float32, shape (out, K).
      size: of the input along the axis.
      between: there are two each, whose weights add up to 1.
    """

    index: Array
    weight: Array
    size: int
    between: bool = False

    def is_identity(self) -> bool:
        """Whether each position is made of the same one alone."""
        count = len(self.index)
        first = self.index[:, 0]
        return (
            count == self.size
            and bool((first == np.arange(count)).all())
            and bool((self.weight[:, 0] == 1).all())
            and not self.weight[:, 1:].any()
        )

    def matrix(self) -> Array:
        """The same as a matrix, float32, shape (out, size)."""
        result = np.zeros((len(self.index), self.size), np.float32)
        rows = np.broadcast_to(np.arange(len(self.index))[:, None], self.index.shape)
        np.add.at(result, (rows, self.index), self.weight)
        return result

    def transposed(self) -> Taps:
        """The map back: what each input position gets of the gradients of the output positions."""
        count, depth = self.index.shape
        used = self.weight.ravel() != 0
        source = np.repeat(np.arange(count), depth)[used]
        target = self.index.ravel()[used]
        order = np.argsort(target, kind="stable")
        source, weight, target = source[order], self.weight.ravel()[used][order], target[order]
        counts = np.bincount(target, minlength=self.size)
        place = np.arange(len(target)) - np.repeat(np.cumsum(counts) - counts, counts)
        index = np.zeros((self.size, max(1, int(counts.max(initial=0)))), np.int64)
        weights = np.zeros(index.shape, np.float32)
        index[target, place] = source
        weights[target, place] = weight
        return Taps(index, weights, count)


def scale_of(size: int, count: int, align_corners: bool) -> np.float32:
    """How many input positions lie between two output positions."""
    if align_corners and count > 1:
        return _F32(_F32(size - 1) / _F32(count - 1))
    return _F32(_F32(size) / _F32(count))


def _centers(size: int, count: int, align_corners: bool, half_pixel: bool) -> Array:
    """Where in the input each output position lies, float32, as TensorFlow rounds it."""
    places = np.arange(count, dtype=np.float32)
    scale = scale_of(size, count, align_corners)
    return (places + _F32(0.5)) * scale - _F32(0.5) if half_pixel else places * scale


@lru_cache(maxsize=128)
def linear_taps(size: int, count: int, align_corners: bool, half_pixel: bool) -> Taps:
    """The two neighbours of each position, weighted by their distances."""
    centers = _centers(size, count, align_corners, half_pixel)
    floor = np.floor(centers)
    low = np.clip(floor.astype(np.int64), 0, size - 1)
    high = np.clip(np.ceil(centers).astype(np.int64), 0, size - 1)
    part = centers - floor
    return Taps(np.stack([low, high], 1), np.stack([1 - part, part], 1), size, between=True)


@lru_cache(maxsize=128)
def nearest_index(size: int, count: int, align_corners: bool, half_pixel: bool) -> Array:
    """The one position that each output position shows; never decreasing."""
    places = np.arange(count, dtype=np.float32)
    scale = scale_of(size, count, align_corners)
    centers = (places + _F32(0.5)) * scale if half_pixel else places * scale
    if align_corners:
        centers = np.floor(centers.astype(np.float64) + 0.5)
    index: Array = np.clip(np.floor(centers).astype(np.int64), 0, size - 1)
    return index


@lru_cache(maxsize=4)
def _cubic_table(a: float) -> Array:
    """The weights of the near and the far neighbour, by steps of the distance; shape (2, steps)."""
    x = np.arange(_TABLE + 1) / _TABLE
    y = x + 1
    near = ((a + 2) * x - (a + 3)) * x * x + 1
    far = ((a * y - 5 * a) * y + 8 * a) * y - 4 * a
    return np.stack([near, far]).astype(np.float32)


@lru_cache(maxsize=128)
def cubic_taps(size: int, count: int, align_corners: bool, half_pixel: bool) -> Taps:
    """Four neighbours of each position by Keys' cubic function.

    With half pixels a is -1/2 and what lies outside is left out; else a is -3/4 and the outermost
    pixel stands for what lies outside.
    """
    centers = _centers(size, count, align_corners, half_pixel)
    base = np.floor(centers)
    step = np.rint((centers - base) * _F32(_TABLE)).astype(np.int64)
    near, far = _cubic_table(-0.5 if half_pixel else -0.75)
    weight = np.stack([far[step], near[step], near[_TABLE - step], far[_TABLE - step]], 1)
    places = base.astype(np.int64)[:, None] + np.arange(-1, 3)
    index = np.clip(places, 0, size - 1)
    if half_pixel:
        weight = np.where(places == index, weight, _F32(0))
        total = weight.sum(1, keepdims=True, dtype=np.float32)
        large = np.abs(total) >= 1000 * np.finfo(np.float32).tiny
        weight = np.where(large, weight / np.where(large, total, _F32(1)), weight)
    return Taps(index, weight, size)


@lru_cache(maxsize=128)
def area_taps(size: int, count: int, align_corners: bool) -> Taps:
    """All that an output pixel covers, by how much of it."""
    scale = scale_of(size, count, align_corners)
    if not scale:  # one pixel, both of whose corners are that pixel
        return Taps(np.zeros((count, 1), np.int64), np.ones((count, 1), np.float32), size)
    places = np.arange(count + 1, dtype=np.float32) * scale
    low, high = places[:-1], places[1:]
    first, last = np.floor(low).astype(np.int64), np.ceil(high).astype(np.int64)
    index = first[:, None] + np.arange(max(1, int((last - first).max(initial=0))))
    covered = np.minimum(index + 1, high[:, None]) - np.maximum(index, low[:, None])
    weight = (np.maximum(covered, 0) / float(scale)).astype(np.float32)
    return Taps(np.clip(index, 0, size - 1), weight, size)


# ------------------------------------------------------------------- scale and translate

Filter = Callable[[Array], Array]


def _lanczos(radius: float) -> Filter:
    def weight(x: Array) -> Array:
        safe = np.where(x <= 1e-3, 1.0, x)
        value = radius * np.sin(np.pi * safe) * np.sin(np.pi * safe / radius) / (np.pi * safe) ** 2
        return np.where(x >= radius, 0.0, np.where(x <= 1e-3, 1.0, value))

    return weight


def _gaussian(x: Array) -> Array:
    return np.where(x >= 1.5, 0.0, np.exp(-2 * x * x))


def _box(x: Array) -> Array:
    return np.where(x < 0.5, 1.0, np.where(x == 0.5, 0.5, 0.0))


def _triangle(x: Array) -> Array:
    weight: Array = np.maximum(1 - x, 0.0)
    return weight


def _keys(x: Array) -> Array:
    inner = (1.5 * x - 2.5) * x * x + 1
    outer = ((-0.5 * x + 2.5) * x - 4) * x + 2
    return np.where(x >= 2, 0.0, np.where(x >= 1, outer, inner))


def _mitchell(x: Array) -> Array:
    inner = (7 / 6 * x - 2) * x * x + 8 / 9
    outer = ((-7 / 18 * x + 2) * x - 10 / 3) * x + 16 / 9
    return np.where(x >= 2, 0.0, np.where(x >= 1, outer, inner))


FILTERS: Final[dict[str, tuple[float, Filter]]] = {
    "lanczos1": (1.0, _lanczos(1.0)),
    "lanczos3": (3.0, _lanczos(3.0)),
    "lanczos5": (5.0, _lanczos(5.0)),
    "gaussian": (1.5, _gaussian),
    "box": (0.5, _box),
    "triangle": (1.0, _triangle),
    "keyscubic": (2.0, _keys),
    "mitchellcubic": (2.0, _mitchell),
}
"""Radius and weight by distance of each kind."""


@lru_cache(maxsize=128)
def filter_taps(
    size: int, count: int, scale: float, translation: float, kind: str, antialias: bool
) -> Taps:
    """What a filter of some kind covers, moved and scaled; nothing where the centre is outside."""
    radius, weigh = FILTERS[kind]
    inverse = _F32(1) / _F32(scale)
    spread = max(inverse, _F32(1)) if antialias else _F32(1)
    centers = (np.arange(count, dtype=np.float32) + _F32(0.5)) * inverse
    centers = centers - inverse * _F32(translation)
    reach = _F32(radius) * spread
    low = np.clip(np.ceil(centers - reach - _F32(0.5)), 0, size - 1).astype(np.int64)
    high = np.clip(np.floor(centers + reach - _F32(0.5)), 0, size - 1).astype(np.int64)
    index = low[:, None] + np.arange(max(1, int((high - low).max(initial=0)) + 1))
    distance = np.abs(index + _F32(0.5) - centers[:, None]) / spread
    weight = weigh(distance.astype(np.float64)).astype(np.float32)
    outside = (centers < 0) | (centers > size)
    weight = np.where((index <= high[:, None]) & ~outside[:, None], weight, _F32(0))
    total = weight.sum(1, keepdims=True, dtype=np.float32)
    large = np.abs(total) >= 1000 * np.finfo(np.float32).tiny
    weight = np.where(large, weight / np.where(large, total, _F32(1)), weight)
    return Taps(np.clip(index, 0, size - 1), weight, size)


# ------------------------------------------------------------------------------- applying


def resample(images: Any, rows: Taps, columns: Taps, device: Device) -> Any:
    """Images (B, H, W, C) resampled along both axes.

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
        for some in _blocks(images, shape, device.xp):
            value = images[some]
            for axis, taps in steps[:-1]:
                value = _along(value, axis, taps, device.xp, None)
            _along(value, *steps[-1], device.xp, result[some])
    return result


def _blocks(images: Any, shape: tuple[int, ...], xp: Any) -> Iterator[slice]:
    """As many images at a time as leave what is between the axes in the cache; on GPUs all."""
    batch = shape[0]
    each = 4 * max(prod(images.shape[1:]), prod(shape[1:]))
    step = max(1, BLOCK_BYTES // each) if xp is np else batch
    return (slice(at, at + step) for at in range(0, batch, step))


def _along(x: Any, axis: int, taps: Taps, xp: Any, result: Any) -> Any:
    """One axis of images resampled, in float32, into `result` where that is given."""
    if result is None:
        shape = (*x.shape[:axis], len(taps.index), *x.shape[axis + 1 :])
        result = xp.empty(shape, np.float32)
    if taps.between:
        _interpolate(x, axis, taps, xp, result)
    elif taps.size <= PRODUCT_SIZE * taps.index.shape[1]:
        _multiply(x, axis, taps, xp, result)
    else:
        _gather(x, axis, taps, xp, result)
    return result


def _per_position(values: Array, axis: int, depth: int, xp: Any) -> Any:
    """One value per position of an axis, for all that lies behind it.

    Of columns there is one for each channel: NumPy's inner loop is then a row and not a pixel.
    """
    if axis == 2:
        return xp.asarray(np.repeat(values, depth).reshape(len(values), depth))
    return xp.asarray(values.reshape(-1, 1, 1))


def _taken(x: Any, index: Array, axis: int, xp: Any) -> Any:
    return xp.take(x, xp.asarray(index), axis=axis)


def _interpolate(x: Any, axis: int, taps: Taps, xp: Any, result: Any) -> None:
    """Two neighbours; the result is exact where they are equal."""
    low = _taken(x, taps.index[:, 0], axis, xp)
    high = _taken(x, taps.index[:, 1], axis, xp)
    xp.subtract(_wide(high), _wide(low), out=result)
    xp.multiply(result, _per_position(taps.weight[:, 1], axis, x.shape[3], xp), out=result)
    xp.add(result, _wide(low), out=result)


def _wide(x: Any) -> Any:
    return x if x.dtype == np.float32 else x.astype(np.float32)


def _multiply(x: Any, axis: int, taps: Taps, xp: Any, result: Any) -> None:
    matrix, wide = xp.asarray(taps.matrix()), _wide(x)
    batch, height, width, depth = wide.shape
    if axis == 1:
        flat = wide.reshape(batch, height, width * depth)
        result[...] = xp.matmul(matrix, flat).reshape(result.shape)
        return
    apart = wide.transpose(0, 1, 3, 2).reshape(batch * height * depth, width)
    made = xp.matmul(apart, matrix.T).reshape(batch, height, depth, len(taps.index))
    result[...] = made.transpose(0, 1, 3, 2)


def _gather(x: Any, axis: int, taps: Taps, xp: Any, result: Any) -> None:
    result[...] = 0
    for index, weight in zip(taps.index.T, taps.weight.T, strict=True):
        part = _wide(_taken(x, index, axis, xp))
        part *= _per_position(weight, axis, x.shape[3], xp)
        result += part


def summed_back(grads: Any, index: Array, size: int, axis: int, xp: Any) -> Any:
    """The gradient of a gather by an index that never decreases: sums over each position."""
    wide = widened(grads)
    counts = np.bincount(index, minlength=size)
    starts = np.cumsum(counts) - counts
    result = xp.zeros((*wide.shape[:axis], size, *wide.shape[axis + 1 :]), wide.dtype)
    if counts.max(initial=0) > _FEW:
        used = counts > 0
        sums = xp.add.reduceat(wide, xp.asarray(starts[used]), axis=axis, dtype=wide.dtype)
        result[(slice(None),) * axis + (xp.asarray(np.flatnonzero(used)),)] = sums
        return result
    for i in range(int(counts.max(initial=0))):
        part = _taken(wide, np.minimum(starts + i, len(index) - 1), axis, xp)
        part *= _per_position((counts > i).astype(wide.dtype), axis, wide.shape[3], xp)
        result += part
    return result
