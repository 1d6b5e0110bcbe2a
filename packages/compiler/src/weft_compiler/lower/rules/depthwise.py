"""Depthwise convolutions and their gradients, as sums over taps."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Final

from weft_compiler.ir.expressions import Expr, add, apply, index, number, where
from weft_compiler.ir.indices import clamp_index, is_inside, modulo, over, plus, times
from weft_compiler.lower.precision import round_to, widen
from weft_compiler.lower.registry import Operation, lowers, require
from weft_compiler.lower.rules.conv import Axis, as_layout, axes_of, channels_last
from weft_compiler.lower.values import Reduction, Value, compute_value, move_elements
from weft_graph.ops.windows import spatial_axes

MOST_TAPS: Final = 64
"""Maximum number of taps of a window that become terms of one expression."""


def _require_few(taps: int) -> None:
    require(taps <= MOST_TAPS, f"its windows have more than {MOST_TAPS} positions")


def _pad_input(x: Value, axes: Sequence[Axis]) -> Value:
    """Pad the input with zeros as far as windows reach."""
    sizes = [(axis.count - 1) * axis.stride + (axis.taps - 1) * axis.dilation + 1 for axis in axes]
    if not any(axis.before for axis in axes) and all(
        size <= actual for size, actual in zip(sizes, x.shape[1:3], strict=True)
    ):
        return x
    zero = number(0, x.dtype)

    def element(n: Expr, i: Expr, j: Expr, c: Expr) -> Expr:
        indices = [
            plus(position, -axis.before) for position, axis in zip((i, j), axes, strict=True)
        ]
        clamped = list(map(clamp_index, indices, x.shape[1:3]))
        in_bounds = apply("bit_and", *map(is_inside, indices, x.shape[1:3]))
        return where(in_bounds, x.at(n, *clamped, c), zero)

    return compute_value(f"{x.name}_framed", x.dtype, (x.shape[0], *sizes, x.shape[3]), element)


def _parts(channel: Expr, multiplier: int) -> tuple[Expr, Expr]:
    """Split an output channel into its input channel and its index within the multiplier."""
    return over(channel, multiplier), modulo(channel, multiplier)


@lowers("DepthwiseConv2dNative")
def _depthwise(op: Operation) -> Value:
    filters, layout = widen(op.name, op.inputs[1]), op.attr("data_format")
    high, wide, channels, multiplier = filters.shape
    _require_few(high * wide)
    axes = axes_of(op, op.inputs[0].shape, (high, wide))
    x = channels_last(widen(op.name, op.inputs[0]), layout)
    shape = (x.shape[0], *[axis.count for axis in axes], channels * multiplier)
    require(0 not in (*shape, *x.shape) and x.shape[3] == channels, "it has zero windows")
    framed = _pad_input(x, axes)

    def element(n: Expr, i: Expr, j: Expr, o: Expr) -> Expr:
        c, m = _parts(o, multiplier)
        terms = []
        for tap in product(range(high), range(wide)):
            indices = [
                plus(times(position, axis.stride), k * axis.dilation)
                for position, axis, k in zip((i, j), axes, tap, strict=True)
            ]
            terms.append(apply("mul", framed.at(n, *indices, c), filters.at(*tap, c, m)))
        return add(*terms)

    result = round_to(op.name, compute_value(op.name, filters.dtype, shape, element), op.dtype())
    return as_layout(result, layout, op.name)


@lowers("DepthwiseConv2dNativeBackpropInput", known_operands=(0,))
def _by_input(op: Operation) -> Value:
    """Return the input gradient: each element sums over the windows that contain it."""
    filters, layout = widen(op.name, op.inputs[1]), op.attr("data_format")
    high, wide, channels, multiplier = filters.shape
    _require_few(high * wide * multiplier)
    axes = axes_of(op, op.shape(), (high, wide))
    gradient = channels_last(widen(op.name, op.inputs[2]), layout)
    shape = (op.shape()[0], *[op.shape()[axis] for axis in spatial_axes(layout)], channels)
    expected = (shape[0], *[axis.count for axis in axes], channels * multiplier)
    require(gradient.shape == expected, "the shapes of its operands do not match")
    require(0 not in (*shape, *expected), "it has zero windows")
    zero = number(0, filters.dtype)

    def element(n: Expr, i: Expr, j: Expr, c: Expr) -> Expr:
        terms = []
        for tap in product(range(high), range(wide)):
            window: list[Expr] = []
            in_bounds: Expr | None = None
            for position, axis, k in zip((i, j), axes, tap, strict=True):
                distance = plus(position, axis.before - k * axis.dilation)
                result = over(distance, axis.stride)
                window.append(clamp_index(result, axis.count))
                in_range = is_inside(result, axis.count)
                if axis.stride > 1:
                    fits = apply("equal", modulo(distance, axis.stride), index(0))
                    in_range = apply("bit_and", in_range, fits)
                in_bounds = in_range if in_bounds is None else apply("bit_and", in_bounds, in_range)
            assert in_bounds is not None
            shares = [
                apply(
                    "mul",
                    gradient.at(n, *window, plus(times(c, multiplier), m)),
                    filters.at(*tap, c, m),
                )
                for m in range(multiplier)
            ]
            terms.append(where(in_bounds, add(*shares), zero))
        return add(*terms)

    result = round_to(op.name, compute_value(op.name, filters.dtype, shape, element), op.dtype())
    return as_layout(result, layout, op.name)


@lowers("DepthwiseConv2dNativeBackpropFilter", known_operands=(1,))
def _by_filter(op: Operation) -> Value:
    layout, (high, wide, channels, multiplier) = op.attr("data_format"), op.shape()
    axes = axes_of(op, op.inputs[0].shape, (high, wide))
    x, gradient = (
        channels_last(widen(op.name, op.inputs[position]), layout) for position in (0, 2)
    )
    counts = [axis.count for axis in axes]
    expected = (x.shape[0], *counts, channels * multiplier)
    require(
        gradient.shape == expected and x.shape[3] == channels,
        "the shapes of its operands do not match",
    )
    require(0 not in (*x.shape, *expected, *op.shape()), "it has zero windows")
    framed = _pad_input(x, axes)

    def element(n: Expr, i: Expr, y: Expr, k: Expr, j: Expr, o: Expr) -> Expr:
        indices = [
            plus(times(position, axis.stride), times(tap, axis.dilation))
            for position, axis, tap in zip((i, j), axes, (y, k), strict=True)
        ]
        pixel = framed.at(n, *indices, over(o, multiplier))
        return apply("mul", pixel, gradient.at(n, i, j, o))

    space = (x.shape[0], counts[0], high, wide, counts[1], channels * multiplier)
    definition = Reduction(space, frozenset({0, 1, 4}), "add", number(0, x.dtype), element)
    flat = Value(f"{op.name}_flat", x.dtype, (high, wide, channels * multiplier), definition)

    def source(y: Expr, k: Expr, c: Expr, m: Expr) -> tuple[Expr, Expr, Expr]:
        return (y, k, plus(times(c, multiplier), m))

    result = move_elements(op.name, flat, op.shape(), source, dense=True)
    return round_to(op.name, result, op.dtype())
