"""Use of Winograd's algorithm for convolutions, and their transformed filters."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final, NamedTuple

from weft_compiler.ir.expressions import Expr, index
from weft_compiler.ir.loops import Unique, load, nest
from weft_compiler.ir.program import Allocate, Body, Buffer, Statement
from weft_compiler.layouts import LINE, POINTS, TAPS, Windows, tile_of
from weft_compiler.lower.panels import aligned
from weft_compiler.lower.registry import Operation
from weft_compiler.lower.values import Value, Written
from weft_compiler.routines.winograd import (
    WinogradFilters,
    WinogradGradient,
    filter_points,
    gradient_memory,
)

_LEAST: Final = 32
"""Number of channels and of filters from which tile transforms cost little of their savings."""
_TILES: Final = {3: 14, 5: 56}
"""By taps, the number of tiles from which computing and reading transformed filters, which are
larger, pays for saving two thirds or three quarters of the multiplications."""
_SAVED: Final = 1.5
"""Smallest ratio of direct multiplications to those of Winograd's algorithm."""
_IMAGE: Final = 28
"""Tiles per image from which a call processes one image, so that its result stays in a cache."""


class Slides(NamedTuple):
    """Window geometry along both axes.

    Attributes:
      counts, taps, strides, dilations: as in `Axis`.
    """

    counts: tuple[int, ...]
    taps: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]


def fits(x: Value, slides: Slides, depth: int) -> bool:
    """Return True if Winograd's algorithm is faster for a convolution.

    Args:
      x: (N, H, W, C).
      depth: the number of filters.
    """
    taps = slides.taps[0]
    if taps not in TAPS or slides[1:] != ((taps, taps), (1, 1), (1, 1)):
        return False
    whole = LINE // x.dtype.size
    channels = (x.shape[3], depth)
    if min(channels) < _LEAST or any(size % whole for size in channels):
        return False
    tiles = x.shape[0] * tiles_of(slides.counts, taps)
    windows = x.shape[0] * math.prod(slides.counts)
    return tiles >= _TILES[taps] and _SAVED * POINTS**2 * tiles <= taps**2 * windows


def tiles_of(counts: Sequence[int], taps: int) -> int:
    """Return the number of tiles of an image."""
    return math.prod(-(-count // tile_of(taps)) for count in counts)


def images_of(images: int, counts: Sequence[int], taps: int) -> int:
    """Return the number of images that a call processes."""
    return 1 if tiles_of(counts, taps) >= _IMAGE else images


def points_of(w: Value) -> Value:
    """Transform packed filters, (panels, taps, taps, C, columns), to Winograd's points.

    Returns: (panels, 6, 6, C, columns).
    """
    panels, taps, _, channels, columns = w.shape
    shape, name = (panels, POINTS, POINTS, channels, columns), f"{w.name}_points"
    if w.constant is not None:
        points = aligned(shape, w.constant.dtype)
        points[...] = filter_points(w.constant)
        points.flags.writeable = False
        return Value(name, w.dtype, shape, constant=points)

    def write(unique: Unique, u: Buffer, given: Buffer) -> Sequence[Statement]:
        def call(p: Expr) -> Body:
            first = [p, *[index(0)] * 4]
            views = load(given, w.shape, first), load(u, shape, first)
            return (WinogradFilters(*views, panels=1, channels=channels, taps=taps),)

        return nest(unique, (panels,), call)

    return Value(name, w.dtype, shape, Written((w,), write))


def gradient_by_points(op: Operation, x: Value, gradient: Value, of: Windows) -> Value:
    """Return the gradient with respect to the filters, (taps, taps, C, depth).

    Args:
      x: (N, H, W, C).
      gradient: with respect to the result, (N, H', W', depth).
      of: the windows of all images.
    """

    def write(unique: Unique, y: Buffer, *buffers: Buffer) -> Sequence[Statement]:
        sums = Buffer(unique("sums"), y.dtype, (gradient_memory(of, y.dtype.size),))
        views = (
            load(buffers[0], x.shape, [index(0)] * 4),
            load(buffers[1], gradient.shape, [index(0)] * 4),
            load(sums, sums.shape, [index(0)]),
            load(y, op.shape(), [index(0)] * 4),
        )
        return (Allocate(sums), WinogradGradient(*views, **of.geometry))

    return Value(op.name, x.dtype, op.shape(), Written((x, gradient), write))
