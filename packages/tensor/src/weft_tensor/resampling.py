"""Resampling along one axis: the input positions of each output position and their weights.

Each method of resizing an image uses two of these, one for the rows and one for the columns.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

import numpy as np

Array = np.ndarray[Any, Any]

_F32: Final = np.float32
_TABLE: Final = 1 << 10
"""Number of steps into which TensorFlow divides the distance of two pixels for cubic weights."""


@dataclass(frozen=True, slots=True, eq=False)
class Taps:
    """The input positions, with weights, that each output position combines.

    Attributes:
      index: int64, shape (out, K): positions in the input.
      weight: float32, shape (out, K).
      size: size of the input along the axis.
      between: True if each output position has two input positions whose weights add up to 1.
    """

    index: Array
    weight: Array
    size: int
    between: bool = False

    def is_identity(self) -> bool:
        """Return True if each output position copies the input position of the same index."""
        count = len(self.index)
        first = self.index[:, 0]
        return (
            count == self.size
            and bool((first == np.arange(count)).all())
            and bool((self.weight[:, 0] == 1).all())
            and not self.weight[:, 1:].any()
        )

    def matrix(self) -> Array:
        """Return the taps as a matrix, float32, shape (out, size)."""
        result = np.zeros((len(self.index), self.size), np.float32)
        rows = np.broadcast_to(np.arange(len(self.index))[:, None], self.index.shape)
        np.add.at(result, (rows, self.index), self.weight)
        return result

    def transposed(self) -> Taps:
        """Return the adjoint map, which sums gradients of outputs for each input."""
        count, depth = self.index.shape
        used = self.weight.ravel() != 0
        source = np.repeat(np.arange(count), depth)[used]
        target = self.index.ravel()[used]
        order = np.argsort(target, kind="stable")
        source, weight, target = source[order], self.weight.ravel()[used][order], target[order]
        counts = np.bincount(target, minlength=self.size)
        slots = np.arange(len(target)) - np.repeat(np.cumsum(counts) - counts, counts)
        index = np.zeros((self.size, max(1, int(counts.max(initial=0)))), np.int64)
        weights = np.zeros(index.shape, np.float32)
        index[target, slots] = source
        weights[target, slots] = weight
        return Taps(index, weights, count)


def scale_of(size: int, count: int, align_corners: bool) -> np.float32:
    """Return the distance of two output positions, in input positions."""
    if align_corners and count > 1:
        return _F32(_F32(size - 1) / _F32(count - 1))
    return _F32(_F32(size) / _F32(count))


def _centers(size: int, count: int, align_corners: bool, half_pixel: bool) -> Array:
    """Return the input coordinate of each output position, float32, rounded as in TensorFlow."""
    positions = np.arange(count, dtype=np.float32)
    scale = scale_of(size, count, align_corners)
    return (positions + _F32(0.5)) * scale - _F32(0.5) if half_pixel else positions * scale


@lru_cache(maxsize=128)
def linear_taps(size: int, count: int, align_corners: bool, half_pixel: bool) -> Taps:
    """Return the two neighbors of each position, weighted by their distances."""
    centers = _centers(size, count, align_corners, half_pixel)
    floor = np.floor(centers)
    low = np.clip(floor.astype(np.int64), 0, size - 1)
    high = np.clip(np.ceil(centers).astype(np.int64), 0, size - 1)
    part = centers - floor
    return Taps(np.stack([low, high], 1), np.stack([1 - part, part], 1), size, between=True)


@lru_cache(maxsize=128)
def nearest_index(size: int, count: int, align_corners: bool, half_pixel: bool) -> Array:
    """Return the input position that each output position copies; never decreasing."""
    positions = np.arange(count, dtype=np.float32)
    scale = scale_of(size, count, align_corners)
    centers = (positions + _F32(0.5)) * scale if half_pixel else positions * scale
    if align_corners:
        centers = np.floor(centers.astype(np.float64) + 0.5)
    index: Array = np.clip(np.floor(centers).astype(np.int64), 0, size - 1)
    return index


@lru_cache(maxsize=4)
def _cubic_table(a: float) -> Array:
    """Return the weights of the near and the far neighbor by distance; shape (2, steps)."""
    x = np.arange(_TABLE + 1) / _TABLE
    y = x + 1
    near = ((a + 2) * x - (a + 3)) * x * x + 1
    far = ((a * y - 5 * a) * y + 8 * a) * y - 4 * a
    return np.stack([near, far]).astype(np.float32)


@lru_cache(maxsize=128)
def cubic_taps(size: int, count: int, align_corners: bool, half_pixel: bool) -> Taps:
    """Return the four neighbors of each position, weighted by Keys' cubic function.

    With half-pixel centers a is -1/2 and positions outside the image are ignored; otherwise a is
    -3/4 and positions outside use the outermost pixel.
    """
    centers = _centers(size, count, align_corners, half_pixel)
    base = np.floor(centers)
    step = np.rint((centers - base) * _F32(_TABLE)).astype(np.int64)
    near, far = _cubic_table(-0.5 if half_pixel else -0.75)
    weight = np.stack([far[step], near[step], near[_TABLE - step], far[_TABLE - step]], 1)
    indices = base.astype(np.int64)[:, None] + np.arange(-1, 3)
    index = np.clip(indices, 0, size - 1)
    if half_pixel:
        weight = np.where(indices == index, weight, _F32(0))
        total = weight.sum(1, keepdims=True, dtype=np.float32)
        large = np.abs(total) >= 1000 * np.finfo(np.float32).tiny
        weight = np.where(large, weight / np.where(large, total, _F32(1)), weight)
    return Taps(index, weight, size)


@lru_cache(maxsize=128)
def area_taps(size: int, count: int, align_corners: bool) -> Taps:
    """Return the input pixels that an output pixel covers, weighted by the covered area."""
    scale = scale_of(size, count, align_corners)
    if not scale:  # one pixel, both of whose corners are that pixel
        return Taps(np.zeros((count, 1), np.int64), np.ones((count, 1), np.float32), size)
    positions = np.arange(count + 1, dtype=np.float32) * scale
    low, high = positions[:-1], positions[1:]
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
"""Radius and weight function (by distance) of each filter."""


@lru_cache(maxsize=128)
def filter_taps(
    size: int, count: int, scale: float, translation: float, kind: str, antialias: bool
) -> Taps:
    """Return a filter's scaled and translated taps; none if its center is outside the image."""
    radius, weigh = FILTERS[kind]
    inverse = _F32(1) / _F32(scale)
    f32 = max(inverse, _F32(1)) if antialias else _F32(1)
    centers = (np.arange(count, dtype=np.float32) + _F32(0.5)) * inverse
    centers = centers - inverse * _F32(translation)
    reach = _F32(radius) * f32
    low = np.clip(np.ceil(centers - reach - _F32(0.5)), 0, size - 1).astype(np.int64)
    high = np.clip(np.floor(centers + reach - _F32(0.5)), 0, size - 1).astype(np.int64)
    index = low[:, None] + np.arange(max(1, int((high - low).max(initial=0)) + 1))
    distance = np.abs(index + _F32(0.5) - centers[:, None]) / f32
    weight = weigh(distance.astype(np.float64)).astype(np.float32)
    outside = (centers < 0) | (centers > size)
    weight = np.where((index <= high[:, None]) & ~outside[:, None], weight, _F32(0))
    total = weight.sum(1, keepdims=True, dtype=np.float32)
    large = np.abs(total) >= 1000 * np.finfo(np.float32).tiny
    weight = np.where(large, weight / np.where(large, total, _F32(1)), weight)
    return Taps(np.clip(index, 0, size - 1), weight, size)
