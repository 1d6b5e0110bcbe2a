"""Grayscale morphology: the maximum over a window of pixel plus filter, and its gradients."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from weft_compiler.ir.expressions import INDEX, Expr, Variable, apply, cast, index, number, where
from weft_compiler.ir.indices import (
    clamp_index,
    flatten_indices,
    is_inside,
    minus,
    plus,
    times,
    unflatten_index,
)
from weft_compiler.ir.loops import Unique, fill, load, nest
from weft_compiler.ir.program import Body, Buffer, If, Let, Statement, Store
from weft_compiler.lower.precision import wide_type
from weft_compiler.lower.registry import Operation, lowers, require
from weft_compiler.lower.values import StatementDefinition, Value, compute_value
from weft_graph.ops.windows import slide
from weft_tensor import dtypes

_NONE = -1
"""The argmax of a window whose sums are all the lowest number."""


@dataclass
class _Windows:
    """Window geometry of a filter over images.

    Attributes:
      x, taps: images (N, H, W, C) and filter (KH, KW, C), in the type of the sums.
      shape: shape of the windows, (N, rows, columns, C).
      step: for both axes, the stride, the rate and the padding before.
      lowest: a number smaller than all sums.
    """

    x: Value
    taps: Value
    shape: tuple[int, ...]
    step: list[tuple[int, int, int]]
    lowest: Expr

    def place(self, position: tuple[Expr, ...], tap: tuple[Expr, ...]) -> list[Expr]:
        """Return the row and the column of the pixel that a tap reads."""
        return [
            minus(plus(times(i, stride), times(k, rate)), first)
            for i, k, (stride, rate, first) in zip(position[1:3], tap, self.step, strict=True)
        ]

    def sum(
        self, images: Buffer, taps: Buffer, position: tuple[Expr, ...], tap: tuple[Expr, ...]
    ) -> Expr:
        """Return a pixel plus a tap; outside the image, the smallest number."""
        place = self.place(position, tap)
        clamped = list(map(clamp_index, place, self.x.shape[1:3]))
        pixel = load(images, self.x.shape, [position[0], *clamped, position[3]])
        result: Expr = apply("add", pixel, load(taps, self.taps.shape, [*tap, position[3]]))
        for i, size in zip(place, self.x.shape[1:3], strict=True):
            result = where(is_inside(i, size), result, self.lowest)
        return result

    def each(self, unique: Unique, body: Callable[..., Body]) -> Body:
        """Emit loops over all windows row by row, and over all taps for each row."""
        sizes = (*self.shape[:2], *self.taps.shape[:2], *self.shape[2:])
        return nest(unique, sizes, lambda n, i, k, m, j, c: body((n, i, j, c), (k, m)))


def _windows(op: Operation) -> _Windows:
    x, taps = op.inputs[:2]
    fits = x.rank == 4 and taps.rank == 3 and x.shape[3] == taps.shape[2]
    require(fits and x.size > 0 and taps.size > 0, "images and filters do not match, or are empty")
    wide = wide_type(x.dtype)
    x, taps = (
        compute_value(f"{op.name}_{item.name}", wide, item.shape, item.at) for item in (x, taps)
    )
    strides, rates = op.attr("strides")[1:3], op.attr("rates")[1:3]
    slides = [
        slide(n, k, stride, rate, op.attr("padding"))
        for n, k, stride, rate in zip(x.shape[1:3], taps.shape[:2], strides, rates, strict=True)
    ]
    shape = (x.shape[0], slides[0][0], slides[1][0], x.shape[3])
    step = [
        (int(stride), int(rate), first)
        for stride, rate, (_, first, _) in zip(strides, rates, slides, strict=True)
    ]
    minimum = number(-math.inf if wide.is_floating else wide.min, wide)
    return _Windows(x, taps, shape, step, minimum)


def _window_maxima(op: Operation, windows: _Windows) -> Value:
    """Return the largest sum of each window; NaNs are ignored."""

    def write(unique: Unique, result: Buffer, images: Buffer, taps: Buffer) -> Body:
        def compare(position: tuple[Expr, ...], tap: tuple[Expr, ...]) -> Body:
            value, best = (
                windows.sum(images, taps, position, tap),
                load(result, windows.shape, position),
            )
            return (
                Store(result.name, position, where(apply("greater", value, best), value, best)),
            )

        return (*fill(unique, result, windows.lowest), *windows.each(unique, compare))

    return Value(
        f"{op.name}_largest",
        windows.x.dtype,
        windows.shape,
        StatementDefinition((windows.x, windows.taps), write),
    )


def _first_largest_tap(op: Operation, windows: _Windows) -> Value:
    """Return the index of the first tap with the largest sum of each window."""
    best = _window_maxima(op, windows)

    def write(
        unique: Unique, result: Buffer, images: Buffer, taps: Buffer, largest: Buffer
    ) -> Body:
        def compare(position: tuple[Expr, ...], tap: tuple[Expr, ...]) -> Body:
            value, best_so_far = (
                windows.sum(images, taps, position, tap),
                load(result, windows.shape, position),
            )
            matches = apply("equal", value, load(largest, windows.shape, position))
            matches = apply("bit_and", matches, apply("greater", value, windows.lowest))
            matches = apply("bit_and", matches, apply("less", best_so_far, number(0, dtypes.int32)))
            tap_index = cast(flatten_indices(tap, windows.taps.shape[:2]), dtypes.int32)
            return (Store(result.name, position, where(matches, tap_index, best_so_far)),)

        start = fill(unique, result, number(_NONE, dtypes.int32))
        return (*start, *windows.each(unique, compare))

    operands = (windows.x, windows.taps, best)
    return Value(
        f"{op.name}_taken", dtypes.int32, windows.shape, StatementDefinition(operands, write)
    )


@lowers("Dilation2D")
def _dilation(op: Operation) -> Value:
    windows = _windows(op)
    require(
        op.shape() == windows.shape,
        f"the output has shape {op.shape()}, but its windows have shape {windows.shape}",
    )
    return compute_value(op.name, op.dtype(), windows.shape, _window_maxima(op, windows).at)


@lowers("Dilation2DBackpropInput", "Dilation2DBackpropFilter")
def _gradient(op: Operation) -> Value:
    """Add the gradient of a window to the pixel and the tap of its maximum."""
    windows, gradient = _windows(op), op.inputs[2]
    require(gradient.shape == windows.shape, "the shapes of gradients and windows differ")
    is_for_input = op.node.type.endswith("Input")
    gradients = compute_value(f"{op.name}_gradient", windows.x.dtype, windows.shape, gradient.at)

    def write(unique: Unique, result: Buffer, took: Buffer, passed: Buffer) -> list[Statement]:
        def add(*position: Expr) -> Body:
            tap = Variable(INDEX, unique("tap"))
            clamped = clamp_index(tap, math.prod(windows.taps.shape[:2]))
            rows, columns = unflatten_index(clamped, windows.taps.shape[:2])
            place: tuple[Expr, ...] = (rows, columns, position[3])
            if is_for_input:
                pixel = windows.place(position, (rows, columns))
                place = (position[0], *map(clamp_index, pixel, windows.x.shape[1:3]), position[3])
            store = Store(result.name, place, load(passed, windows.shape, position), "add")
            named = Let(tap.name, cast(load(took, windows.shape, position), INDEX))
            return (named, If(apply("greater_equal", tap, index(0)), (store,)))

        start = fill(unique, result, number(0, windows.x.dtype))
        return [*start, *nest(unique, windows.shape, add)]

    total = Value(
        f"{op.name}_sum",
        windows.x.dtype,
        op.shape(),
        StatementDefinition((_first_largest_tap(op, windows), gradients), write),
    )
    return compute_value(op.name, op.dtype(), op.shape(), total.at)
