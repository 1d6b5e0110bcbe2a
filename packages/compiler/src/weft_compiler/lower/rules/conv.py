"""Image convolutions and their gradients: calls of implicit-GEMM routines.

Filters are packed for the routine, at compile time if they are constant. The input gradient
consists of one convolution of the output's gradient for each phase of the stride. If these would
mostly multiply zeros, it is one product whose terms are added to their positions (col2im).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Final

import numpy as np

from weft_compiler.ir.expressions import Expr, apply, index, number, where
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
from weft_compiler.ir.program import FOR_KERNELS, Body, Buffer, If, Statement, Store
from weft_compiler.layouts import PAIR, PANEL, Windows, pair_panels, panel_columns
from weft_compiler.lower.precision import NARROW, round_to, widen
from weft_compiler.lower.registry import Operation, lowers, require
from weft_compiler.lower.rules.matmul import product_sums
from weft_compiler.lower.values import (
    Requirement,
    StatementDefinition,
    Value,
    compute_value,
    move_elements,
    reduce_value,
)
from weft_compiler.lower.weight_packing import align_array, pack_columns
from weft_compiler.lower.winograd import gradient_by_points, images_of, points_of
from weft_compiler.routines.bfloat16 import ConvPairs, PackPairs, pack_pairs
from weft_compiler.routines.selection import (
    prefers_col2im,
    select_convolution,
    select_filter_gradient,
    should_pack_filters,
)
from weft_compiler.routines.transpose import Transpose
from weft_compiler.routines.winograd import Winograd, WinogradGradient
from weft_graph.ir.node import Node
from weft_graph.ops.windows import channel_axis, pairs, slide, spatial_axes
from weft_tensor import dtypes
from weft_tensor.dtypes import DType

_TYPES: Final = (dtypes.float32, dtypes.float64, *NARROW)

FEW: Final = 128
"""Windows per image below which one call processes all images and reads filters once."""
_ROW: Final = 24
"""Minimum number of windows per row for one call per row, whose result stays in a cache.
Shorter rows would leave tiles partly empty.
"""


def kernel_reason(node: Node) -> str:
    """Return why the kernel is preferred for a convolution, or ""."""
    dtype = node.outputs[0].dtype
    return "" if dtype in _TYPES else f"there is no lowering rule for convolutions of {dtype.name}"


def _is_worth_compiling(node: Node) -> bool:
    """Return True if compiling a single convolution pays off: its kernel copies all windows."""
    return node.outputs[0].dtype in _TYPES


@dataclass(frozen=True, slots=True)
class Axis:
    """Window geometry along an axis.

    Attributes:
      count: the number of windows.
      taps: the number of taps of a window.
      stride, dilation: the distance between windows, and between taps.
      before: the padding before the first element.
    """

    count: int
    taps: int
    stride: int
    dilation: int
    before: int

    def has_margin(self, size: int) -> bool:
        """Return True if a tap of some window is outside an input of a size."""
        end = (self.count - 1) * self.stride + (self.taps - 1) * self.dilation - self.before
        return self.before > 0 or end >= size


def axes_of(op: Operation, shape: Sequence[int], taps: Sequence[int]) -> list[Axis]:
    """Return the window geometry along the spatial axes.

    Args:
      shape: shape of the input, in the op's layout.
      taps: number of taps of a window.
    """
    layout = op.attr("data_format")
    explicit = op.attr("explicit_paddings") if "explicit_paddings" in op.node.attrs else ()
    pads, result = pairs(explicit, len(layout)), []
    for axis, k in zip(spatial_axes(layout), taps, strict=True):
        stride, dilation = op.attr("strides")[axis], op.attr("dilations")[axis]
        count, leading, _ = slide(shape[axis], k, stride, dilation, op.attr("padding"), pads[axis])
        result.append(Axis(count, k, stride, dilation, leading))
    return result


def channels_last(x: Value, layout: str) -> Value:
    """Transpose a tensor to channels-last layout."""
    axis, rank = channel_axis(layout), x.rank
    if axis == rank - 1:
        return x
    order = [*range(axis), *range(axis + 1, rank), axis]
    shape = [x.shape[axis_index] for axis_index in order]
    return move_elements(
        f"{x.name}_last",
        x,
        shape,
        lambda *indices: (*indices[:axis], indices[-1], *indices[axis:-1]),
    )


def as_layout(x: Value, layout: str, name: str) -> Value:
    """Transpose a channels-last tensor to the layout of an op."""
    axis = channel_axis(layout)
    if axis == x.rank - 1:
        return x
    shape = (*x.shape[:axis], x.shape[-1], *x.shape[axis:-1])
    return move_elements(
        name, x, shape, lambda *indices: (*indices[:axis], *indices[axis + 1 :], indices[axis])
    )


def _operand(op: Operation, x: Value) -> Value:
    """Prepare an operand for the routines: float16 is converted to float32."""
    return widen(op.name, x) if x.dtype is dtypes.float16 else x


def _finalize_result(op: Operation, x: Value, layout: str = "") -> Value:
    """Convert a result to the type and the layout of an op."""
    x = round_to(f"{x.name}_rounded", x, op.dtype())
    return as_layout(x, layout, op.name) if layout else x


@lowers("Conv2D", by_kernel=kernel_reason, compiles_alone=_is_worth_compiling)
def _conv(op: Operation) -> Value:
    x, filters = (_operand(op, operand) for operand in op.inputs)
    require(op.dtype() in _TYPES, f"a convolution of {op.dtype().name}")
    layout = op.attr("data_format")
    axes = axes_of(op, x.shape, filters.shape[:2])
    last = channels_last(x, layout)
    require(last.shape[-1] == filters.shape[2], "the depths of the filter and the input differ")
    windows = x.shape[0] * math.prod(axis.count for axis in axes)
    w = filters
    if should_pack_filters(windows, filters.constant is not None, filters.dtype):
        w = _pack_filters(filters, [range(k) for k in filters.shape[:2]])
    result = _convolve(op, last, w, axes, filters.shape[3])
    return _finalize_result(op, result, layout)


@lowers(
    "Conv2DBackpropInput",
    known_operands=(0,),
    by_kernel=kernel_reason,
    compiles_alone=_is_worth_compiling,
)
def _by_input(op: Operation) -> Value:
    filters, gradient = (_operand(op, operand) for operand in op.inputs[1:])
    require(op.dtype() in _TYPES, f"a convolution of {op.dtype().name}")
    layout, (high, wide, channels, depth) = op.attr("data_format"), filters.shape
    axes = axes_of(op, op.shape(), (high, wide))
    last = channels_last(gradient, layout)
    sizes = [op.shape()[axis] for axis in spatial_axes(layout)]
    shape = (op.shape()[0], *sizes, channels)
    expected = (shape[0], *[axis.count for axis in axes], depth)
    require(last.shape == expected, "the shapes of its operands do not match")
    phases = [_phases(axis, size) for axis, size in zip(axes, sizes, strict=True)]
    if _is_sparse(phases, axes, last.dtype, channels):
        return _finalize_result(op, _spread(op.name, last, filters, axes, shape), layout)
    parts: list[Value | None] = []
    for y, x in product(*phases):
        if not y.taps or not x.taps:
            parts.append(None)  # no tap reaches these positions
            continue
        w = _pack_filters(filters, [y.taps, x.taps], transposed=True)
        part = _convolve(op, last, w, [y.axis, x.axis], channels, "_part")
        if any(
            axis_windows.axis.has_margin(n)
            for axis_windows, n in zip((y, x), last.shape[1:3], strict=True)
        ):
            part.requires = _all_finite(op, filters)
        parts.append(part)
    if len(parts) == 1 and parts[0] is not None:
        return _finalize_result(op, parts[0], layout)
    steps = [axis.stride for axis in axes]
    return _finalize_result(op, _interleave(op, shape, parts, steps), layout)


def _all_finite(op: Operation, filters: Value) -> tuple[Requirement, ...]:
    """Require finite filters, so that they may be multiplied by zero padding.

    Zero times infinity is NaN, and kernels add only terms inside the image. If the check fails, the
    program deoptimizes to kernels; ahead-of-time code has none.
    """
    if op.direct:
        return ()
    if filters.constant is not None and np.isfinite(filters.constant.astype(np.float64)).all():
        return ()
    zero = number(0, filters.dtype)

    def vanishing(*index: Expr) -> Expr:
        return apply("mul", filters.at(*index), zero)

    axes = list(range(filters.rank))
    total = reduce_value(f"{op.name}_finite", filters, axes, "add", zero, vanishing)
    message = f"{FOR_KERNELS}filters that are not finite, beside a margin"
    return (Requirement((), lambda: apply("equal", total.at(), zero), message),)


@dataclass(frozen=True, slots=True)
class _Phase:
    """Input positions that are equal modulo the stride; the same taps reach all of them.

    Attributes:
      taps: the same taps in reverse order, as applied to the output's gradient.
      axis: the window geometry over the output's gradient.
    """

    taps: range
    axis: Axis


def _phases(axis: Axis, size: int) -> list[_Phase]:
    """Return the phases of an axis, one for each position modulo the stride."""
    common = math.gcd(axis.stride, axis.dilation)
    step, dilation = axis.stride // common, axis.dilation // common
    results = []
    for first in range(axis.stride):
        begin = first + axis.before
        reach = [k for k in range(axis.taps) if (begin - k * axis.dilation) % axis.stride == 0]
        taps = range(reach[-1], reach[0] - 1, -step) if reach else range(0)
        # The window that the last tap belongs to begins that tap's offset before the position.
        leading = -((begin - taps[0] * axis.dilation) // axis.stride) if reach else 0
        count = len(range(first, size, axis.stride))
        results.append(_Phase(taps, Axis(count, len(taps), 1, dilation, leading)))
    return results


def _is_sparse(
    phases: Sequence[Sequence[_Phase]], axes: Sequence[Axis], dtype: DType, channels: int
) -> bool:
    """Return True if convolutions by phases would mostly multiply padding or unused lanes."""
    multiplied = math.prod(sum(e.axis.count * len(e.taps) for e in axis) for axis in phases)
    useful = math.prod(axis.count * axis.taps for axis in axes)
    return prefers_col2im(multiplied, useful, channels, dtype)


def _spread(
    name: str, gradient: Value, filters: Value, axes: Sequence[Axis], shape: Sequence[int]
) -> Value:
    """Return the input gradient as a product of the output's gradient and the filters (col2im).

    The product has a term for each tap of each window, which is added where the tap met the input.
    """
    windows, taps, depth = gradient.shape[:3], filters.shape[:3], filters.shape[3]

    def rows_of(x: Value, lead: Sequence[int]) -> Value:
        size = math.prod(lead)
        return move_elements(
            f"{x.name}_rows",
            x,
            (size, depth),
            lambda i, j: (*unflatten_index(i, lead), j),
            dense=True,
        )

    a, b = rows_of(gradient, windows), rows_of(filters, taps)
    terms = product_sums(f"{name}_terms", a, b, (a.shape[0], b.shape[0]), transpose_b=True)

    def write(unique: Unique, y: Buffer, source: Buffer) -> Sequence[Statement]:
        def add(n: Expr, *index: Expr) -> Body:
            (*of_window, i, j), c = index[:-1], index[-1]
            conditions, indices = [], []
            for window, tap, axis, size in zip(of_window, (i, j), axes, shape[1:3], strict=True):
                sum_of = plus(times(window, axis.stride), times(tap, axis.dilation))
                position = minus(sum_of, axis.before)
                conditions.append(is_inside(position, size))
                indices.append(clamp_index(position, size))
            term = [flatten_indices((n, *of_window), windows), flatten_indices((i, j, c), taps)]
            value = load(source, terms.shape, term)
            added = Store(y.name, (n, *indices, c), value, "add")
            return (If(apply("bit_and", *conditions), (added,)),)

        zeros = fill(unique, y, number(0, y.dtype))
        return (*zeros, *nest(unique, (*windows, *taps), add))

    return Value(f"{name}_spread", terms.dtype, tuple(shape), StatementDefinition((terms,), write))


def _interleave(
    op: Operation, shape: Sequence[int], parts: Sequence[Value | None], steps: Sequence[int]
) -> Value:
    """Interleave the parts of a tensor; part i holds every n-th row or column, starting at i."""
    present = [part for part in parts if part is not None]
    dtype = present[0].dtype if present else op.dtype()
    zero = number(0, dtype)

    def write(unique: Unique, y: Buffer, *buffers: Buffer) -> Sequence[Statement]:
        memory = dict(zip(map(id, present), buffers, strict=True))
        body: list[Statement] = []
        for part, start in zip(parts, product(*map(range, steps)), strict=True):
            sizes = [
                len(range(first, size, step))
                for first, size, step in zip(start, shape[1:3], steps, strict=True)
            ]

            def store(
                *index: Expr, part: Value | None = part, start: tuple[int, ...] = start
            ) -> Body:
                indices = [
                    plus(times(i, step), first)
                    for i, step, first in zip(index[1:3], steps, start, strict=True)
                ]
                value = zero if part is None else load(memory[id(part)], part.shape, index)
                return (Store(y.name, (index[0], *indices, index[3]), value),)

            body += nest(unique, (shape[0], *sizes, shape[3]), store)
        return body

    return Value(f"{op.name}_whole", dtype, tuple(shape), StatementDefinition(present, write))


@lowers(
    "Conv2DBackpropFilter",
    known_operands=(1,),
    by_kernel=kernel_reason,
    compiles_alone=_is_worth_compiling,
)
def _by_filter(op: Operation) -> Value:
    require(op.dtype() in _TYPES, f"a convolution of {op.dtype().name}")
    layout, (high, wide, channels, depth) = op.attr("data_format"), op.shape()
    axes = axes_of(op, op.inputs[0].shape, (high, wide))
    x, gradient = (
        channels_last(_operand(op, op.inputs[operand_index]), layout) for operand_index in (0, 2)
    )
    require(x.shape[-1] == channels, "the depths of the filter and the input differ")
    expected = (x.shape[0], *[axis.count for axis in axes], depth)
    require(gradient.shape == expected, "the shapes of its operands do not match")
    convolution = windows_of(x, axes, depth, x.shape[0], axes[0].count)
    routine = select_filter_gradient(convolution, x.dtype, is_direct=op.direct)
    if issubclass(routine, WinogradGradient):
        return _finalize_result(op, gradient_by_points(op, x, gradient, convolution))

    def write(unique: Unique, y: Buffer, *buffers: Buffer) -> Sequence[Statement]:
        zeros = fill(unique, y, number(0, y.dtype))
        if 0 in (*x.shape, *y.shape, *gradient.shape):
            return zeros
        images = x.shape[0]
        step = min(images, -(-FEW // math.prod(gradient.shape[1:3])))

        def call(first: Expr, count: int) -> Body:
            images_view, gradient_view = (
                load(buffer, view.shape, [first, index(0), index(0), index(0)])
                for buffer, view in zip(buffers, (x, gradient), strict=True)
            )
            target = load(y, y.shape, [index(0)] * 4)
            windows = windows_of(x, axes, depth, count, axes[0].count)
            return (routine(images_view, gradient_view, target, **windows.geometry, accumulate=1),)

        full_blocks = images // step
        body = [*zeros, *nest(unique, (full_blocks,), lambda i: call(times(i, step), step))]
        return [*body, *(call(index(full_blocks * step), images % step) if images % step else ())]

    transposed = (depth, high, wide, channels)
    dtype = dtypes.float32 if x.dtype is dtypes.bfloat16 else x.dtype
    result = Value(
        f"{op.name}_turned", dtype, transposed, StatementDefinition((x, gradient), write)
    )
    indices = high * wide * channels

    def transpose(unique: Unique, y: Buffer, source: Buffer) -> Sequence[Statement]:
        views = load(source, transposed, [index(0)] * 4), load(y, op.shape(), [index(0)] * 4)
        call = Transpose(*views, rows=depth, columns=indices, x_row=indices, y_row=depth)
        return (call,) if depth * indices else ()

    return _finalize_result(
        op, Value(op.name, dtype, op.shape(), StatementDefinition((result,), transpose))
    )


# ---------------------------------------------------------------------------- forward


def _pack_filters(filters: Value, taps: Sequence[range], transposed: bool = False) -> Value:
    """Pack filters as panels.

    Args:
      taps: for both axes, the taps of the filter to use.
      transposed: True to swap the channels of the input and the output.
    """
    if filters.dtype is dtypes.bfloat16:
        return _pack_filter_pairs(filters, taps, transposed)
    columns = panel_columns(filters.dtype)
    channels, depth = filters.shape[:1:-1] if transposed else filters.shape[2:]
    panels = -(-depth // columns)
    shape = (panels, len(taps[0]), len(taps[1]), channels, columns)
    if filters.constant is not None:
        array = filters.constant[np.ix_(*taps)]
        array = array.swapaxes(2, 3) if transposed else array
        return pack_columns(f"{filters.name}_packed", filters, array)

    def element(p: Expr, i: Expr, j: Expr, c: Expr, o: Expr) -> Expr:
        position = plus(times(p, columns), o)
        if panels * columns == depth:
            return filters.at(*_tap(taps, i, j), c, position)
        in_bounds = apply("less", position, index(depth))
        return where(
            in_bounds, filters.at(*_tap(taps, i, j), c, clamp_index(position, depth)), zero
        )

    def transpose(unique: Unique, y: Buffer, source: Buffer) -> Sequence[Statement]:
        """Transpose filters to panels; unused columns of the last panel stay undefined."""

        def call(p: Expr, i: Expr, j: Expr, count: int) -> Body:
            first = [*_tap(taps, i, j), times(p, columns), index(0)]
            views = load(source, filters.shape, first), load(y, shape, [p, i, j, *[index(0)] * 2])
            call = Transpose(*views, rows=count, columns=channels, x_row=channels, y_row=columns)
            return (call,)

        full_panels, remainder = divmod(depth, columns)
        body = nest(unique, (full_panels, *shape[1:3]), lambda p, i, j: call(p, i, j, columns))
        if remainder:
            last = index(full_panels)
            body = (*body, *nest(unique, shape[1:3], lambda i, j: call(last, i, j, remainder)))
        return body if channels else ()

    zero, name = number(0, filters.dtype), f"{filters.name}_packed"
    if transposed:
        return Value(name, filters.dtype, shape, StatementDefinition((filters,), transpose))
    return compute_value(name, filters.dtype, shape, element)


def _tap(taps: Sequence[range], *index: Expr) -> list[Expr]:
    """Map the position of a tap to its position in the filter."""
    return [
        plus(times(k, tap_range.step), tap_range.start)
        for k, tap_range in zip(index, taps, strict=True)
    ]


def _transpose_filters(filters: Value, taps: Sequence[range]) -> Value:
    """Select taps of filters, and swap the channels of input and output."""
    shape = (len(taps[0]), len(taps[1]), *filters.shape[:1:-1])
    return move_elements(
        f"{filters.name}_turned", filters, shape, lambda i, j, c, o: [*_tap(taps, i, j), o, c]
    )


def _pack_filter_pairs(filters: Value, taps: Sequence[range], transposed: bool) -> Value:
    """Pack bfloat16 filters as panels of pairs; see `_pack_filters`."""
    channels, depth = filters.shape[:1:-1] if transposed else filters.shape[2:]
    count = len(taps[0]) * len(taps[1])
    shape, name = pair_panels(depth, count * channels), f"{filters.name}_packed"
    if filters.constant is not None:
        array = filters.constant[np.ix_(*taps)]
        array = array.swapaxes(2, 3) if transposed else array
        result = align_array(shape, array.dtype)
        result[...] = pack_pairs(array.reshape(-1, depth))
        return Value(name, filters.dtype, shape, constant=result)
    if transposed and channels % PAIR:  # a pair would span two taps
        filters, transposed = _transpose_filters(filters, taps), False

    def write(unique: Unique, panels: Buffer, source: Buffer) -> Sequence[Statement]:
        first = [index(0)] * 4

        if not transposed:
            views = load(source, filters.shape, first), load(panels, shape, first)
            call = PackPairs(*views, n=depth, k=count * channels, b_row=depth, b_column=1)
            return (call,) if math.prod(filters.shape) else ()

        def tap(columns: int, p: Expr, i: Expr, j: Expr) -> Body:
            indices = _tap(taps, i, j)
            row = times(plus(times(i, len(taps[1])), j), channels // PAIR)
            views = (
                load(source, filters.shape, [*indices, times(p, PANEL), index(0)]),
                load(panels, shape, [p, row, *first[2:]]),
            )
            return (PackPairs(*views, n=columns, k=channels, b_row=1, b_column=channels),)

        full_panels, remainder = divmod(depth, PANEL)
        body = nest(unique, (full_panels, *map(len, taps)), partial(tap, PANEL))
        if remainder:
            last = partial(tap, remainder, index(full_panels))
            body = (*body, *nest(unique, tuple(map(len, taps)), last))
        return body if channels else ()

    return Value(name, filters.dtype, shape, StatementDefinition((filters,), write))


def _convolve(
    op: Operation, x: Value, w: Value, axes: Sequence[Axis], depth: int, suffix: str = ""
) -> Value:
    """Convolve (N, H, W, C) with filters, packed or not: (N, H', W', depth)."""
    shape, name = (x.shape[0], *[axis.count for axis in axes], depth), f"{op.name}{suffix}"
    convolution = windows_of(x, axes, depth, shape[0], shape[1])
    routine = select_convolution(convolution, x.dtype, is_packed=w.rank == 5, is_direct=op.direct)
    if issubclass(routine, Winograd):
        return _convolve_winograd(name, x, w, axes, shape)

    def write(unique: Unique, target: Buffer, *buffers: Buffer) -> Sequence[Statement]:
        if 0 in (*x.shape, *w.shape, *shape):
            return fill(unique, target, number(0, target.dtype))

        def call(image: Expr, row: Expr, images: int, rows: int) -> Body:
            views = (
                load(buffers[0], x.shape, [image, index(0), index(0), index(0)]),
                load(buffers[1], w.shape, [index(0)] * w.rank),
                load(target, shape, [image, row, index(0), index(0)]),
            )
            windows = windows_of(x, axes, depth, images, rows).geometry
            if issubclass(routine, ConvPairs):
                return (routine(*views, **windows, row=row),)
            return (routine(*views, **windows, packed=int(w.rank == 5), row=row),)

        return call_by_rows(unique, shape, axes, call)

    dtype = dtypes.float32 if x.dtype is dtypes.bfloat16 else x.dtype
    return Value(name, dtype, shape, StatementDefinition((x, w), write))


def _convolve_winograd(
    name: str, x: Value, w: Value, axes: Sequence[Axis], shape: tuple[int, ...]
) -> Value:
    """Convolve by Winograd's algorithm; see `_convolve`."""
    points, images = points_of(w), images_of(shape[0], shape[1:3], w.shape[1])

    def write(unique: Unique, target: Buffer, *buffers: Buffer) -> Sequence[Statement]:
        def call(image: Expr) -> Body:
            first = [image, *[index(0)] * 3]
            views = (
                load(buffers[0], x.shape, first),
                load(buffers[1], w.shape, [index(0)] * 5),
                load(buffers[2], points.shape, [index(0)] * 5),
                load(target, shape, first),
            )
            windows = windows_of(x, axes, shape[3], images, shape[1])
            return (Winograd(*views, **windows.geometry, row=index(0)),)

        return call(index(0)) if images == shape[0] else nest(unique, shape[:1], call)

    return Value(name, x.dtype, shape, StatementDefinition((x, w, points), write))


def call_by_rows(
    unique: Unique,
    shape: Sequence[int],
    axes: Sequence[Axis],
    call: Callable[[Expr, Expr, int, int], Body],
) -> Body:
    """Emit a convolution as calls for a row of windows, for an image or for a batch.

    Args:
      shape: shape of the result.
      call: maps an image, a row, and the numbers of both to the call.
    """
    y, x = axes
    if y.count * x.count < FEW:
        return call(index(0), index(0), shape[0], y.count)
    if x.count >= _ROW:
        return nest(unique, shape[:2], lambda n, i: call(n, i, 1, 1))
    return nest(unique, shape[:1], lambda n: call(n, index(0), 1, y.count))


def windows_of(x: Value, axes: Sequence[Axis], depth: int, images: int, rows: int) -> Windows:
    """Return the window geometry of a call."""
    y, x_ = axes
    return Windows(
        images=images,
        rows=rows,
        width=x_.count,
        depth=depth,
        channels=x.shape[3],
        height=x.shape[1],
        breadth=x.shape[2],
        taps_y=y.taps,
        taps_x=x_.taps,
        stride_y=y.stride,
        stride_x=x_.stride,
        dilation_y=y.dilation,
        dilation_x=x_.dilation,
        before_y=y.before,
        before_x=x_.before,
    )
