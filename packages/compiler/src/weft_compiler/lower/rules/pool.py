"""Average and max pooling and their gradients, with windows along all axes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from math import prod
from typing import Final

from weft_compiler.ir.expressions import INDEX, Expr, apply, cast, index, number, where
from weft_compiler.ir.indices import (
    clamp_index,
    flatten_indices,
    is_inside,
    minus,
    modulo,
    over,
    plus,
    times,
    unflatten_index,
)
from weft_compiler.ir.loops import Unique, fill, load, nest
from weft_compiler.ir.program import Body, Buffer, Statement, Store
from weft_compiler.lower.precision import wide_type
from weft_compiler.lower.registry import Operation, lowers, require
from weft_compiler.lower.rules.gather import require_in_range
from weft_compiler.lower.rules.reduction import initial
from weft_compiler.lower.values import (
    Reduction,
    StatementDefinition,
    Value,
    compute_value,
    move_elements,
)
from weft_graph.ir.node import Node
from weft_graph.ops.windows import slide
from weft_tensor import dtypes

Element = Callable[..., Expr]

_MOST_TAPS: Final = 64


def _kernel_reason(node: Node) -> str:
    """Return the reason to prefer the kernel, or "": a large window's gradient has many terms."""
    large = prod(node.attrs["ksize"]) > _MOST_TAPS
    return f"its windows have more than {_MOST_TAPS} positions" if large else ""


class _Windows:
    """Window geometry of a pooling op.

    Attributes:
      shape: shape of the input.
      counts: the number of windows along each axis.
      axes: the axes along which windows have several positions.
    """

    def __init__(self, op: Operation, shape: Sequence[int]) -> None:
        self.shape = tuple(shape)
        self.sizes, self.strides = op.attr("ksize"), op.attr("strides")
        self.taps = list(product(*map(range, self.sizes)))
        result = [
            slide(n, k, s, 1, op.attr("padding"))
            for n, k, s in zip(shape, self.sizes, self.strides, strict=True)
        ]
        self.counts = tuple(count for count, _, _ in result)
        self.before = tuple(leading for _, leading, _ in result)
        self.axes = [axis for axis, size in enumerate(self.sizes) if size > 1]

    def place(self, position: Sequence[Expr], tap: Sequence[Expr | int]) -> list[Expr]:
        """Return the input indices of a position in a window; they may be in the padding."""
        return [
            minus(plus(times(i, stride), t), leading)
            for i, t, stride, leading in zip(position, tap, self.strides, self.before, strict=True)
        ]

    def is_inside(self, position: Sequence[Expr]) -> Expr | None:
        """Return the condition that a position is in the input; None if all are."""
        result: Expr | None = None
        for axis, (i, size) in enumerate(zip(position, self.shape, strict=True)):
            last = (self.counts[axis] - 1) * self.strides[axis] + self.sizes[axis] - 1
            if self.before[axis] or last - self.before[axis] >= size:
                in_axis = is_inside(i, size)
                result = in_axis if result is None else apply("bit_and", result, in_axis)
        return result

    def fold(
        self,
        name: str,
        combine: str,
        none: Expr,
        element: Callable[[Sequence[Expr], Sequence[Expr], Expr], Expr],
    ) -> Value:
        """Return the reduction of all windows.

        Args:
          none: the term for positions in the padding.
          element: maps a window, the input indices of a position and the number of the position to
            its term.
        """
        rank, sizes = len(self.shape), [self.sizes[axis] for axis in self.axes]
        # The last axis stays innermost, so that loops access contiguous memory.
        space = (*self.counts[:-1], *sizes, self.counts[-1])

        def combined(*position: Expr) -> Expr:
            window, steps = (*position[: rank - 1], position[-1]), position[rank - 1 : -1]
            tap: list[Expr | int] = [0] * rank
            for axis, step in zip(self.axes, steps, strict=True):
                tap[axis] = step
            place = self.place(window, tap)
            in_bounds, number_of = self.is_inside(place), flatten_indices(steps, sizes)
            if in_bounds is None:
                return element(window, place, number_of)
            clamped = list(map(clamp_index, place, self.shape))
            return where(in_bounds, element(window, clamped, number_of), none)

        axes = frozenset(range(rank - 1, rank - 1 + len(sizes)))
        definition = Reduction(space, axes, combine, none, combined)
        return Value(name, none.dtype, self.counts, definition)

    def spread(self, gradient_of: Callable[[Sequence[Expr], int], Expr], zero: Expr) -> Element:
        """Add to each input position the gradients of the windows that contain it.

        Args:
          gradient_of: maps a window, and the number of a position in it, to the gradient there.
        """

        def element(*position: Expr) -> Expr:
            total: Expr | None = None
            for number_of, tap in enumerate(self.taps):
                window, conditions = self._window(position, tap)
                result = gradient_of(window, number_of)
                for condition in conditions:
                    result = where(condition, result, zero)
                total = result if total is None else apply("add", total, result)
            assert total is not None
            return total

        return element

    def _window(
        self, position: Sequence[Expr], tap: Sequence[int]
    ) -> tuple[Sequence[Expr], list[Expr]]:
        """Return the window that has an element at a position, and the condition that it exists."""
        window: list[Expr] = []
        conditions: list[Expr] = []
        for axis, (i, t) in enumerate(zip(position, tap, strict=True)):
            distance, stride = plus(i, self.before[axis] - t), self.strides[axis]
            if self.sizes[axis] == stride == 1:
                window.append(i)
                continue
            result = over(distance, stride)
            window.append(clamp_index(result, self.counts[axis]))
            conditions.append(is_inside(result, self.counts[axis]))
            if stride > 1:
                conditions.append(apply("equal", modulo(distance, stride), index(0)))
        return window, conditions

    def size_at(self, position: Sequence[Expr]) -> Expr:
        """Return the number of positions of a window that are in the input."""
        result: Expr = index(1)
        for axis in self.axes:
            first = minus(times(position[axis], self.strides[axis]), self.before[axis])
            low = apply("maximum", first, index(0))
            high = apply("minimum", plus(first, self.sizes[axis]), index(self.shape[axis]))
            result = apply("mul", result, minus(high, low))
        return result


def _windows(op: Operation, shape: Sequence[int]) -> _Windows:
    windows = _Windows(op, shape)
    require(0 not in windows.counts and 0 not in windows.shape, "it has zero windows")
    return windows


@lowers("MaxPool", "MaxPool3D")
def _max_pool(op: Operation) -> Value:
    x = op.inputs[0]
    windows = _windows(op, x.shape)
    none = initial("maximum", x.dtype)
    return windows.fold(op.name, "maximum", none, lambda _, place, tap: x.at(*place))


@lowers("AvgPool", "AvgPool3D")
def _avg_pool(op: Operation) -> Value:
    x = op.inputs[0]
    windows, wide = _windows(op, x.shape), wide_type(x.dtype)
    total = windows.fold(
        f"{op.name}_sum", "add", number(0, wide), lambda _, place, tap: cast(x.at(*place), wide)
    )

    def element(*position: Expr) -> Expr:
        return apply("div", total.at(*position), cast(windows.size_at(position), wide))

    return compute_value(op.name, op.dtype(), windows.counts, element)


@lowers("AvgPoolGrad", "AvgPool3DGrad", known_operands=(0,), by_kernel=_kernel_reason)
def _avg_pool_grad(op: Operation) -> Value:
    """Distribute the gradient of each window equally to its elements."""
    gradient = op.inputs[1]
    windows, wide = _windows(op, op.shape()), wide_type(gradient.dtype)
    require(gradient.shape == windows.counts, "the shapes of its operands do not match")

    def share(*position: Expr) -> Expr:
        return apply(
            "div", cast(gradient.at(*position), wide), cast(windows.size_at(position), wide)
        )

    shares = compute_value(f"{op.name}_shares", wide, windows.counts, share)
    element = windows.spread(lambda window, _: shares.at(*window), number(0, wide))
    return compute_value(op.name, op.dtype(), op.shape(), element)


def _first_maximum(op: Operation, windows: _Windows, x: Value, y: Value) -> Value:
    """Return the number of the first position with the maximum, or of a NaN, in each window."""
    no_tap = number(len(windows.taps), dtypes.int32)

    def is_most(window: Sequence[Expr], position: Sequence[Expr], tap: Expr) -> Expr:
        value, limit = x.at(*position), y.at(*window)
        result = apply("equal", value, limit)
        if x.dtype.is_floating:
            both_nan = apply("bit_and", apply("is_nan", value), apply("is_nan", limit))
            result = apply("bit_or", result, both_nan)
        return where(result, cast(tap, dtypes.int32), no_tap)

    return windows.fold(f"{op.name}_first", "minimum", no_tap, is_most)


@lowers("MaxPoolGrad", "MaxPool3DGrad", by_kernel=_kernel_reason)
def _max_pool_grad(op: Operation) -> Value:
    """Add the gradient of each window to its first position with the maximum, or with a NaN."""
    x, y, gradient = op.inputs
    windows, wide = _windows(op, x.shape), wide_type(x.dtype)
    require(y.shape == gradient.shape == windows.counts, "the shapes of its operands do not match")
    zero = number(0, wide)
    first = _first_maximum(op, windows, x, y)

    def gradient_of(window: Sequence[Expr], tap: int) -> Expr:
        selected = apply("equal", first.at(*window), number(tap, dtypes.int32))
        return where(selected, cast(gradient.at(*window), wide), zero)

    return compute_value(op.name, op.dtype(), x.shape, windows.spread(gradient_of, zero))


def _selected_indices(windows: _Windows, first: Value, window: Sequence[Expr]) -> list[Expr]:
    """Return the input indices of the selected position of a window."""
    sizes = [windows.sizes[axis] for axis in windows.axes]
    tap: list[Expr | int] = [0] * len(windows.shape)
    steps = unflatten_index(cast(first.at(*window), INDEX), sizes)
    for axis, step in zip(windows.axes, steps, strict=True):
        tap[axis] = step
    return list(map(clamp_index, windows.place(window, tap), windows.shape))


@lowers("MaxPoolGradGrad", "MaxPool3DGradGrad")
def _max_pool_grad_grad(op: Operation) -> Value:
    """Return the gradient at the position of the maximum of each window."""
    x, y, gradient = op.inputs
    windows = _windows(op, x.shape)
    require(
        y.shape == windows.counts and gradient.shape == x.shape,
        "the shapes of its operands do not match",
    )
    first = _first_maximum(op, windows, x, y)
    return move_elements(
        op.name, gradient, y.shape, lambda *position: _selected_indices(windows, first, position)
    )


@lowers("MaxPoolWithArgmax")
def _max_pool_with_argmax(op: Operation) -> list[Value]:
    """Return the maxima and their flat indices, within their image or within the batch."""
    x = op.inputs[0]
    windows = _windows(op, x.shape)
    none = initial("maximum", x.dtype)
    limit = windows.fold(f"{op.name}_0", "maximum", none, lambda _, place, tap: x.at(*place))
    first = _first_maximum(op, windows, x, limit)
    includes_batch = bool(op.attr("include_batch_in_index"))

    def position(*position: Expr) -> Expr:
        place = _selected_indices(windows, first, position)
        return flatten_indices(
            place if includes_batch else place[1:], x.shape if includes_batch else x.shape[1:]
        )

    return [limit, compute_value(f"{op.name}_1", op.dtype(1), limit.shape, position)]


@lowers("MaxPoolGradWithArgmax")
def _max_pool_grad_with_argmax(op: Operation) -> Value:
    """Add gradients at the flat indices of the maxima."""
    x, gradient, indices = op.inputs
    windows, wide = _windows(op, x.shape), wide_type(x.dtype)
    require(
        gradient.shape == indices.shape == windows.counts, "the shapes of its operands do not match"
    )
    includes_batch, image = bool(op.attr("include_batch_in_index")), prod(x.shape[1:])

    def position(*position: Expr) -> Expr:
        place = cast(indices.at(*position), INDEX)
        return place if includes_batch else plus(place, times(position[0], image))

    positions = compute_value(f"{op.name}_places", INDEX, indices.shape, position)

    def write(
        unique: Unique, result: Buffer, position: Buffer, buffer: Buffer
    ) -> Sequence[Statement]:
        def add(*window: Expr) -> Body:
            clamped = clamp_index(load(position, indices.shape, window), x.size)
            value = cast(load(buffer, indices.shape, window), wide)
            return (Store(result.name, tuple(unflatten_index(clamped, x.shape)), value, "add"),)

        return (*fill(unique, result, number(0, wide)), *nest(unique, indices.shape, add))

    total = Value(
        f"{op.name}_sum", wide, x.shape, StatementDefinition((positions, gradient), write)
    )
    total.requires = (require_in_range(positions, x.size),)
    return compute_value(op.name, op.dtype(), x.shape, total.at)
