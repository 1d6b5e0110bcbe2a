"""Convolutions: products of rows of pixels and rows of a filter."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Final

from weft_compiler.ir.expressions import Expr, apply, index, number, where
from weft_compiler.ir.indices import clamped, inside, minus, plus, times
from weft_compiler.ir.program import Buffer, Call, Statement
from weft_compiler.lower.loops import Unique, filled, load, nest
from weft_compiler.lower.registry import Operation, lowers, require
from weft_compiler.lower.values import Value, Written, computed, moved
from weft_graph.ops.windows import pairs, slide
from weft_tensor import dtypes

_TYPES: Final = (dtypes.float32, dtypes.float64)
_MOST_TAPS: Final = 64


class _Windows:
    """Where the windows of a convolution are; channels are last.

    Attributes:
      x: what is convolved, with zeros around it.
      counts: how many windows there are along height and width.
      strides, dilations: along both.
    """

    def __init__(self, op: Operation) -> None:
        self.first = op.attr("data_format") == "NCHW"
        spatial = slice(2, 4) if self.first else slice(1, 3)
        x = op.inputs[0]
        if self.first:
            n, c, h, w = x.shape
            x = moved(f"{op.name}_last", x, (n, h, w, c), lambda n, h, w, c: (n, c, h, w))
        self.strides = list(op.attr("strides"))[spatial]
        self.dilations = list(op.attr("dilations"))[spatial]
        pads = pairs(op.attr("explicit_paddings"), 4)[spatial]
        found = [
            slide(size, kernel, stride, dilation, op.attr("padding"), pad)
            for size, kernel, stride, dilation, pad in zip(
                x.shape[1:3],
                op.inputs[1].shape[:2],
                self.strides,
                self.dilations,
                pads,
                strict=True,
            )
        ]
        self.counts = [count for count, _, _ in found]
        self.x = _padded(op, x, [(before, after) for _, before, after in found])

    def result(self, name: str, found: Value) -> Value:
        """A result with the channels where the op has them."""
        if not self.first:
            return found
        n, h, w, c = found.shape
        return moved(f"{name}_first", found, (n, c, h, w), lambda n, c, h, w: (n, h, w, c))


def _padded(op: Operation, x: Value, around: Sequence[tuple[int, int]]) -> Value:
    """A tensor with zeros around its height and width."""
    if not any(map(any, around)):
        return x
    n, height, width, channels = x.shape
    (top, bottom), (left, right) = around

    def element(at: Expr, row: Expr, column: Expr, channel: Expr) -> Expr:
        places = [minus(row, top), minus(column, left)]
        sizes = [height, width]
        here = apply("bit_and", *map(inside, places, sizes))
        near = list(map(clamped, places, sizes))
        return where(here, x.at(at, *near, channel), number(0, x.dtype))

    shape = (n, height + top + bottom, width + left + right, channels)
    return computed(f"{op.name}_padded", x.dtype, shape, element)


def _by_kernel(_: object) -> str:
    return "kernels of convolutions are faster"


@lowers("Conv2D", by_kernel=_by_kernel)
def _conv(op: Operation) -> Value:
    require(op.dtype() in _TYPES, f"a convolution of {op.dtype().name}")
    windows, filters = _Windows(op), op.inputs[1]
    x, (height, width, depth, channels) = windows.x, filters.shape
    require(x.shape[3] == depth, "a convolution of groups of channels")
    shape = (x.shape[0], *windows.counts, channels)
    # Pixels beside each other are one row of a product, unless there are gaps between them.
    together = windows.dilations[1] == 1
    across = 1 if together else width
    sizes = {
        "m": windows.counts[1],
        "n": channels,
        "k": depth * (width if together else 1),
        "a_row": windows.strides[1] * depth,
        "a_column": 1,
        "b_row": channels,
        "b_column": 1,
        "c_row": channels,
    }

    def write(unique: Unique, c: Buffer, a: Buffer, b: Buffer) -> Sequence[Statement]:
        if not prod(shape):
            return ()
        if not height * width * depth:
            return filled(unique, c, number(0, c.dtype))
        if height == width == 1 and x.shape[1:3] == shape[1:3]:  # pixels are rows
            zero = (index(0),) * 4
            views = load(a, x.shape, zero), load(b, filters.shape, zero), load(c, shape, zero)
            whole = {**sizes, "m": prod(shape[:3]), "accumulate": 0}
            return (Call("matmul", views, tuple(whole.items())),)

        def row(n: Expr, i: Expr) -> tuple[Statement, ...]:
            calls = []
            for y in range(height):
                for z in range(across):
                    above = plus(times(i, windows.strides[0]), y * windows.dilations[0])
                    beside = index(z * windows.dilations[1])
                    views = (
                        load(a, x.shape, (n, above, beside, index(0))),
                        load(b, filters.shape, (index(y), index(z), index(0), index(0))),
                        load(c, shape, (n, i, index(0), index(0))),
                    )
                    parameters = {**sizes, "accumulate": int(y + z > 0)}
                    calls.append(Call("matmul", views, tuple(parameters.items())))
            return tuple(calls)

        return nest(unique, shape[:2], row)

    made = Value(op.name, op.dtype(), shape, Written((x, filters), write))
    return windows.result(op.name, made)


@lowers("DepthwiseConv2dNative", by_kernel=_by_kernel)
def _depthwise(op: Operation) -> Value:
    require(op.dtype() in _TYPES, f"a convolution of {op.dtype().name}")
    windows, filters = _Windows(op), op.inputs[1]
    x, (height, width, depth, times_each) = windows.x, filters.shape
    require(height * width <= _MOST_TAPS, f"windows of more than {_MOST_TAPS} positions")

    def element(n: Expr, i: Expr, j: Expr, channel: Expr) -> Expr:
        total: Expr = number(0, op.dtype())
        source: Expr = channel
        which: Expr = index(0)
        if times_each > 1:
            source = apply("floor_div", channel, index(times_each))
            which = apply("floor_mod", channel, index(times_each))
        for y in range(height):
            for z in range(width):
                above = plus(times(i, windows.strides[0]), y * windows.dilations[0])
                beside = plus(times(j, windows.strides[1]), z * windows.dilations[1])
                factor = filters.at(y, z, source, which)
                product = apply("mul", x.at(n, above, beside, source), factor)
                total = product if not (y or z) else apply("add", total, product)
        return total

    shape = (x.shape[0], *windows.counts, depth * times_each)
    return windows.result(op.name, computed(op.name, op.dtype(), shape, element))
