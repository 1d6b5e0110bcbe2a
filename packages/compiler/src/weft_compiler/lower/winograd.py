"""Use of Winograd's algorithm in convolutions, and transformation of their filters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from weft_compiler.ir.expressions import Expr, index
from weft_compiler.ir.loops import Unique, load, nest
from weft_compiler.ir.program import Allocate, Body, Buffer, Statement
from weft_compiler.layouts import POINTS, Windows
from weft_compiler.lower.registry import Operation
from weft_compiler.lower.values import StatementDefinition, Value
from weft_compiler.lower.weight_packing import align_array
from weft_compiler.routines.selection import num_tiles
from weft_compiler.routines.winograd import (
    WinogradFilters,
    WinogradGradient,
    filter_points,
    gradient_memory,
)

_IMAGE: Final = 28
"""Minimum number of tiles per image for one call per image, whose result stays in a cache."""


def images_of(images: int, counts: Sequence[int], taps: int) -> int:
    """Return the number of images that a call processes."""
    rows, width = counts
    return 1 if num_tiles(rows, width, taps) >= _IMAGE else images


def points_of(w: Value) -> Value:
    """Transform packed filters, (panels, taps, taps, C, columns), to Winograd's points.

    Returns: (panels, 6, 6, C, columns).
    """
    panels, taps, _, channels, columns = w.shape
    shape, name = (panels, POINTS, POINTS, channels, columns), f"{w.name}_points"
    if w.constant is not None:
        points = align_array(shape, w.constant.dtype)
        points[...] = filter_points(w.constant)
        points.flags.writeable = False
        return Value(name, w.dtype, shape, constant=points)

    def write(unique: Unique, u: Buffer, source: Buffer) -> Sequence[Statement]:
        def call(p: Expr) -> Body:
            first = [p, *[index(0)] * 4]
            views = load(source, w.shape, first), load(u, shape, first)
            return (WinogradFilters(*views, panels=1, channels=channels, taps=taps),)

        return nest(unique, (panels,), call)

    return Value(name, w.dtype, shape, StatementDefinition((w,), write))


def gradient_by_points(op: Operation, x: Value, gradient: Value, windows: Windows) -> Value:
    """Return the filter gradient by Winograd's algorithm, (taps, taps, C, depth).

    Args:
      x: (N, H, W, C).
      gradient: the gradient of the result, (N, H', W', depth).
      windows: the windows of all images.
    """

    def write(unique: Unique, y: Buffer, *buffers: Buffer) -> Sequence[Statement]:
        sums = Buffer(unique("sums"), y.dtype, (gradient_memory(windows, y.dtype.size),))
        views = (
            load(buffers[0], x.shape, [index(0)] * 4),
            load(buffers[1], gradient.shape, [index(0)] * 4),
            load(sums, sums.shape, [index(0)]),
            load(y, op.shape(), [index(0)] * 4),
        )
        return (Allocate(sums), WinogradGradient(*views, **windows.geometry))

    return Value(op.name, x.dtype, op.shape(), StatementDefinition((x, gradient), write))
