"""Volume convolutions and their gradients, computed as image convolutions.

The slices that the taps of the depth axis read are stacked as channels, one image for each window
along that axis. The rules of Conv2D convolve the images, and gradients are folded back.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from weft_compiler.ir.expressions import Expr, Variable, number
from weft_compiler.ir.indices import clamp_index, is_inside, minus, modulo, over, plus, times
from weft_compiler.ir.loops import Unique, fill, load, nest
from weft_compiler.ir.program import Body, Buffer, If, Let, Statement, Store
from weft_compiler.lower.precision import round_to, widen
from weft_compiler.lower.registry import Operation, lowers, require, rule_of
from weft_compiler.lower.rules.conv import FEW, Axis, as_layout, axes_of, channels_last
from weft_compiler.lower.rules.depthwise import MOST_TAPS
from weft_compiler.lower.values import StatementDefinition, Value, move_elements
from weft_graph.ir.graph import Graph
from weft_graph.ir.op_def import lookup_op
from weft_graph.ops.windows import spatial_axes
from weft_tensor import dtypes

Shape = tuple[int, ...]


def _widen(op: Operation, operand: int) -> Value:
    """Return a channels-last tensor, in float32 if it is narrower."""
    return channels_last(widen(op.name, op.inputs[operand]), op.attr("data_format"))


def _result(op: Operation, value: Value, layout: bool = True) -> Value:
    result = as_layout(value, op.attr("data_format"), op.name) if layout else value
    return round_to(op.name, result, op.dtype())


@lowers("Conv3D")
def _conv(op: Operation) -> Value:
    x, filters = _widen(op, 0), widen(op.name, op.inputs[1])
    slices = _Slices.of(op, x.shape, filters.shape)
    require(x.shape[-1] == filters.shape[3], "the depths of the filter and the input differ")
    shape = (x.shape[0], *[axis.count for axis in slices.axes], filters.shape[4])
    flat = (shape[0] * shape[1], *shape[2:])
    result = slices.by_images("Conv2D", flat, (slices.seen(x), _as_images(filters)))
    return _result(op, _split(op.name, result, shape))


@lowers("Conv3DBackpropInputV2", known_operands=(0,))
def _by_input(op: Operation) -> Value:
    filters, gradient = widen(op.name, op.inputs[1]), _widen(op, 2)
    shape = _channels_last_shape(op, op.shape())
    slices = _Slices.of(op, shape, filters.shape)
    _require_gradient(slices, shape, gradient, filters.shape)
    rows = (slices.images, *shape[2:4], slices.axes[0].taps * shape[4])
    operands = (_sizes(op), _as_images(filters), _join_slices(gradient))
    return _result(
        op, slices.fold_gradients(slices.by_images("Conv2DBackpropInput", rows, operands))
    )


@lowers("Conv3DBackpropFilterV2", known_operands=(1,))
def _by_filter(op: Operation) -> Value:
    x, gradient, shape = _widen(op, 0), _widen(op, 2), op.shape()
    slices = _Slices.of(op, x.shape, shape)
    require(x.shape[-1] == shape[3], "the depths of the filter and the input differ")
    _require_gradient(slices, x.shape, gradient, shape)
    taps, high, wide, channels, depth = shape
    flat = (high, wide, taps * channels, depth)
    operands = (slices.seen(x, separate=True), _sizes(op), _join_slices(gradient, separate=True))
    result = slices.by_images("Conv2DBackpropFilter", flat, operands)

    def source(k: Expr, i: Expr, j: Expr, c: Expr, o: Expr) -> tuple[Expr, ...]:
        return i, j, plus(times(k, channels), c), o

    return _result(op, move_elements(op.name, result, shape, source), layout=False)


def _channels_last_shape(op: Operation, shape: Shape) -> Shape:
    """Convert a shape in the op's layout to channels-last."""
    layout = op.attr("data_format")
    axes = spatial_axes(layout)
    return (shape[0], *[shape[axis] for axis in axes], shape[layout.index("C")])


def _require_gradient(slices: _Slices, x: Shape, gradient: Value, filters: Shape) -> None:
    expected = (x[0], *[axis.count for axis in slices.axes], filters[4])
    require(
        gradient.shape == expected and x[4] == filters[3], "the shapes of its operands do not match"
    )


def _sizes(op: Operation) -> Value:
    """Return a placeholder for the sizes operand of a gradient.

    The sizes are taken from the node's shape.
    """
    return Value(f"{op.name}_sizes", dtypes.int32, (4,), constant=np.zeros(4, np.int32))


def _join_slices(x: Value, separate: bool = False) -> Value:
    """View all slices of volumes as images.

    Args:
      separate: True to copy small ones. Routines with several operands need this, because they
        cannot detect that a volume overlaps with its own slice.
    """
    dense = not separate or x.shape[0] <= 1 or math.prod(x.shape[2:4]) >= FEW
    count, shape = x.shape[1], (x.shape[0] * x.shape[1], *x.shape[2:])

    def source(n: Expr, *index: Expr) -> tuple[Expr, ...]:
        return (over(n, count or 1), modulo(n, count or 1), *index)

    return move_elements(f"{x.name}_images", x, shape, source, dense=dense)


def _split(name: str, x: Value, shape: Shape) -> Value:
    """Convert images back to slices of volumes."""

    def source(n: Expr, d: Expr, *index: Expr) -> tuple[Expr, ...]:
        return (plus(times(n, shape[1]), d), *index)

    return move_elements(name, x, shape, source, dense=True)


def _as_images(filters: Value) -> Value:
    """Convert filters of volumes to filters of images: taps of the depth axis become channels."""
    taps, high, wide, channels, depth = filters.shape
    shape, name = (high, wide, taps * channels, depth), f"{filters.name}_images"
    if filters.constant is not None:
        array = np.ascontiguousarray(filters.constant.transpose(1, 2, 0, 3, 4)).reshape(shape)
        return Value(name, filters.dtype, shape, constant=array)

    def source(i: Expr, j: Expr, c: Expr, o: Expr) -> tuple[Expr, ...]:
        return over(c, channels or 1), i, j, modulo(c, channels or 1), o

    return move_elements(name, filters, shape, source)


@dataclass(frozen=True, slots=True)
class _Slices:
    """Window geometry over volumes.

    Attributes:
      op: the convolution.
      shape: shape of the volumes, (N, D, H, W, C).
      axes: the geometry along the three axes.
    """

    op: Operation
    shape: Shape
    axes: Sequence[Axis]

    @classmethod
    def of(cls, op: Operation, shape: Shape, filters: Shape) -> _Slices:
        """Return the geometry of an op."""
        layout = op.attr("data_format")
        first, *_, last = range(len(shape))
        last_layout = list(shape)
        if layout.index("C") != last:
            last_layout = [shape[first], shape[last], *shape[1:last]]
        require(filters[0] <= MOST_TAPS, f"its windows have more than {MOST_TAPS} slices")
        return cls(op, shape, axes_of(op, last_layout, filters[:3]))

    @property
    def images(self) -> int:
        """The number of images: one for each window along the depth axis of each volume."""
        return self.shape[0] * self.axes[0].count

    def by_images(self, kind: str, shape: Shape, operands: Sequence[Value]) -> Value:
        """Apply the image convolution `kind` to stacked slices.

        Args:
          shape: shape of the result.
        """
        graph, op = Graph(), self.op
        sources = []
        for index, operand in enumerate(operands):
            attrs = {"dtype": operand.dtype, "shape": operand.shape}
            placeholder, dims = lookup_op("Placeholder"), [operand.shape]
            name = f"{op.name}_{index}"
            operand_node = graph.add_derived(
                op.node, placeholder, name, (), attrs, [operand.dtype], dims
            )
            sources.append(operand_node.outputs[0])
        dtype = operands[-1].dtype
        attrs = {
            "T": dtype,
            "use_cudnn_on_gpu": True,
            "padding": op.attr("padding"),
            "explicit_paddings": [],
            "data_format": "NHWC",
        }
        attrs["strides"] = [1, *[axis.stride for axis in self.axes[1:]], 1]
        attrs["dilations"] = [1, *[axis.dilation for axis in self.axes[1:]], 1]
        node = graph.add_derived(
            op.node, lookup_op(kind), op.name, tuple(sources), attrs, [dtype], [shape]
        )
        rule = rule_of(kind)
        assert rule is not None
        result = rule(Operation(node, operands, direct=op.direct))
        assert isinstance(result, Value)
        return result

    def _taps(self, unique: Unique, body: Callable[..., Body]) -> Body:
        """Emit loops over all windows and taps of the depth axis.

        Args:
          body: maps a volume, a window, a tap, its slice and the condition that the slice exists to
            statements.
        """
        axis, size = self.axes[0], self.shape[1]

        def window(n: Expr, d: Expr) -> Body:
            statements: list[Statement] = []
            for tap in range(axis.taps):
                position = Variable(d.dtype, unique("place"))
                slice_index = minus(times(d, axis.stride), axis.before - tap * axis.dilation)
                statements.append(Let(position.name, slice_index))
                statements += body(
                    n, d, tap, clamp_index(position, size), is_inside(position, size)
                )
            return tuple(statements)

        return nest(unique, (self.shape[0], axis.count), window)

    def seen(self, x: Value, separate: bool = False) -> Value:
        """Stack the slices that windows read as channels: (images, H, W, taps * C).

        Args:
          separate: as in `_join_slices`.
        """
        axis, (_, size, *inner) = self.axes[0], self.shape
        channels = inner[-1]
        shape = (self.images, *inner[:2], axis.taps * channels)
        if axis.taps == 1 and axis.stride == 1 and axis.count == size and not axis.before:
            return _join_slices(x, separate)
        zero = number(0, x.dtype)

        def write(unique: Unique, y: Buffer, buffer: Buffer) -> Sequence[Statement]:
            if 0 in (*shape, *x.shape):
                return fill(unique, y, zero)

            def copy(n: Expr, d: Expr, tap: int, position: Expr, in_bounds: Expr) -> Body:
                image = plus(times(n, axis.count), d)

                def store(value: Expr, i: Expr, j: Expr, c: Expr) -> Body:
                    return (Store(y.name, (image, i, j, plus(c, tap * channels)), value),)

                def element(*index: Expr) -> Body:
                    return store(load(buffer, x.shape, [n, position, *index]), *index)

                zeros = nest(unique, inner, lambda *index: store(zero, *index))
                return (If(in_bounds, nest(unique, inner, element), zeros),)

            return self._taps(unique, copy)

        return Value(f"{x.name}_seen", x.dtype, shape, StatementDefinition((x,), write))

    def fold_gradients(self, parts: Value) -> Value:
        """Sum the gradients of all windows at each position of the volumes."""
        axis, (_, _, *inner) = self.axes[0], self.shape
        channels = inner[-1]

        def write(unique: Unique, y: Buffer, buffer: Buffer) -> Sequence[Statement]:
            zeros = fill(unique, y, number(0, y.dtype))
            if 0 in (*parts.shape, *self.shape):
                return zeros

            def add_back(n: Expr, d: Expr, tap: int, position: Expr, in_bounds: Expr) -> Body:
                image = plus(times(n, axis.count), d)

                def element(i: Expr, j: Expr, c: Expr) -> Body:
                    value = load(buffer, parts.shape, [image, i, j, plus(c, tap * channels)])
                    return (Store(y.name, (n, position, i, j, c), value, "add"),)

                return (If(in_bounds, nest(unique, inner, element)),)

            return (*zeros, *self._taps(unique, add_back))

        return Value(
            f"{parts.name}_folded", parts.dtype, self.shape, StatementDefinition((parts,), write)
        )
