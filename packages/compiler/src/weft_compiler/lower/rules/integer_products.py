"""Products of 8-bit integers: calls of int8 routines, with corrections for zero points.

For integers a and b with zero points za and zb:

    sum (a - za) (b - zb) = sum a b - zb sum a - za sum b + k za zb

Sums of constants are computed at compile time, and terms of zero points that are 0 are omitted. The
routines require b as int8, so 128 is subtracted from a uint8 b and from its zero point.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, Final

import numpy as np

from weft_compiler.ir.expressions import Expr, apply, cast, index, number, where
from weft_compiler.ir.indices import Operand, clamp_index, is_inside, modulo, over, plus, times
from weft_compiler.ir.loops import Unique, fill, load, nest
from weft_compiler.ir.program import Allocate, Body, Buffer, Statement
from weft_compiler.layouts import FOUR, PANEL
from weft_compiler.lower.registry import Operation, lowers, require
from weft_compiler.lower.rules.conv import (
    Axis,
    as_layout,
    axes_of,
    call_by_rows,
    channels_last,
    windows_of,
)
from weft_compiler.lower.rules.depthwise import MOST_TAPS
from weft_compiler.lower.values import (
    StatementDefinition,
    Value,
    broadcast,
    compute_value,
    reduce_value,
)
from weft_compiler.routines.int8 import ConvBytes, MatmulBytes, PackBytes, pack_bytes
from weft_tensor import dtypes

_FLIP: Final = 128
"""The number that is subtracted from unsigned bytes."""


def _int32(name: str, array: Any) -> Value:
    contiguous = np.asarray(array, np.int32)
    return Value(name, dtypes.int32, contiguous.shape, constant=contiguous)


def _is_zero(x: Value) -> bool:
    return x.constant is not None and not np.any(x.constant)


def _wide(x: Expr) -> Expr:
    return cast(x, dtypes.int32)


def _difference(terms: Sequence[Expr]) -> Expr:
    """Return the first term minus all other terms."""
    total = terms[0]
    for term in terms[1:]:
        total = apply("sub", total, term)
    return total


# ---------------------------------------------------------------------------- matrices


@dataclass(frozen=True, slots=True)
class _Columns:
    """The second operand, packed.

    Attributes:
      panels, sums: in the layout of the routines: (..., panels, fours, columns, 4) and (...,
        panels, columns).
      shape: (..., k, n).
      offset: the number that was subtracted from each element.
    """

    panels: Value
    sums: Value
    shape: tuple[int, ...]
    offset: int

    def sum_of(self, lead: Sequence[Expr | int], column: Expr) -> Expr:
        """Return the sum of a column."""
        return self.sums.at(*lead, over(column, PANEL), modulo(column, PANEL))


def _columns(b: Value) -> _Columns:
    offset = _FLIP if b.dtype is dtypes.uint8 else 0
    lead, (k, n) = b.shape[:-2], b.shape[-2:]
    panels = -(-n // PANEL)
    shapes = (*lead, panels, -(-k // FOUR), PANEL, FOUR), (*lead, panels, PANEL)
    if b.constant is not None:
        signed = (b.constant.astype(np.int16) - offset).astype(np.int8).reshape(-1, k, n)
        packed = [pack_bytes(matrix) for matrix in signed]
        parts = [
            np.array([matrix[index] for matrix in packed], dtype.numpy).reshape(shape)
            for index, (dtype, shape) in enumerate(
                zip((dtypes.int8, dtypes.int32), shapes, strict=True)
            )
        ]
        panels_value = Value(f"{b.name}_packed", dtypes.int8, shapes[0], constant=parts[0])
        sums = Value(f"{b.name}_sums", dtypes.int32, shapes[1], constant=parts[1])
        return _Columns(panels_value, sums, b.shape, offset)

    def write(unique: Unique, target: Buffer, source: Buffer) -> Sequence[Statement]:
        sums_buffer = Buffer(unique("sums"), dtypes.int32, (panels, PANEL))

        def call(*indices: Expr) -> Body:
            views = (
                load(source, b.shape, [*indices, index(0), index(0)]),
                load(target, shapes[0], [*indices, *[index(0)] * 4]),
                load(sums_buffer, sums_buffer.shape, [index(0), index(0)]),
            )
            return (Allocate(sums_buffer), PackBytes(*views, n=n, k=k, b_row=n, b_column=1))

        return nest(unique, lead, call)

    panels_value = Value(
        f"{b.name}_packed", dtypes.int8, shapes[0], StatementDefinition((b,), write)
    )
    rank = len(b.shape)
    totals = reduce_value(
        f"{b.name}_totals", b, [rank - 2], "add", number(0, dtypes.int32),
        lambda *indices: apply("sub", _wide(b.at(*indices)), number(offset, dtypes.int32)),
    )  # fmt: skip

    def padded(*indices: Expr) -> Expr:
        column = plus(times(indices[-2], PANEL), indices[-1])
        column_total = totals.at(*indices[:-2], clamp_index(column, n))
        return where(apply("less", column, index(n)), column_total, number(0, dtypes.int32))

    sums = compute_value(f"{b.name}_sums", dtypes.int32, shapes[1], padded)
    return _Columns(panels_value, sums, b.shape, offset)


@lowers("MatMulInteger")
def _matmul(op: Operation) -> Value:
    a, b, a_zero, b_zero = op.inputs
    shape, k = op.shape(), a.shape[-1]
    if not math.prod(shape) or not k:
        return compute_value(op.name, dtypes.int32, shape, lambda *_: number(0, dtypes.int32))
    columns = _columns(b)
    result = _product(op.name, a, columns, shape)
    if b_zero.constant is not None:
        b_zero = _int32(f"{op.name}_zero", b_zero.constant.astype(np.int32) - columns.offset)
    elif columns.offset:
        b_zero = _subtract(b_zero, columns.offset)
    rows = None
    if not _is_zero(b_zero):
        rank = a.rank
        rows = reduce_value(
            f"{op.name}_rows", a, [rank - 1], "add", number(0, dtypes.int32),
            lambda *indices: _wide(a.at(*indices)),
        )  # fmt: skip

    def element(*index: Expr) -> Expr:
        terms = [result.at(*index)]
        lead = broadcast(a.shape[:-2], index[:-2])
        right = broadcast(b.shape[:-2], index[:-2])
        za, zb = (
            a_zero.at(*broadcast(a_zero.shape, index)),
            b_zero.at(*broadcast(b_zero.shape, index)),
        )
        if rows is not None:
            # (sum a - k za) zb
            total = rows.at(*lead, index[-2])
            if not _is_zero(a_zero):
                total = apply("sub", total, apply("mul", number(k, dtypes.int32), za))
            terms.append(apply("mul", total, zb))
        if not _is_zero(a_zero):
            terms.append(apply("mul", columns.sum_of(right, index[-1]), za))
        return _difference(terms)

    if rows is None and _is_zero(a_zero):
        return result
    return compute_value(f"{op.name}_centred", dtypes.int32, shape, element)


def _subtract(x: Value, amount: int) -> Value:
    return compute_value(
        f"{x.name}_less",
        dtypes.int32,
        x.shape,
        lambda *indices: apply("sub", x.at(*indices), number(amount, dtypes.int32)),
    )


def _product(name: str, a: Value, columns: _Columns, shape: Sequence[int]) -> Value:
    """Return the products of the original elements, corrected for the subtracted numbers."""
    m, k, n = *a.shape[-2:], columns.shape[-1]
    is_single = math.prod(columns.shape[:-2]) == 1
    rows = m * math.prod(a.shape[:-2]) if is_single else m

    def write(unique: Unique, c: Buffer, *operands: Buffer) -> Sequence[Statement]:
        shapes = (a.shape, columns.panels.shape, columns.sums.shape, tuple(shape))
        ends = (2, 4, 2, 2)

        def lead(batch: Sequence[int], indices: Sequence[Expr]) -> Sequence[Operand]:
            return broadcast(batch, indices) if indices else [index(0)] * len(batch)

        def call(*indices: Expr) -> Body:
            views = [
                load(buffer, full_shape, [*lead(full_shape[:-end], indices), *[index(0)] * end])
                for buffer, full_shape, end in zip((*operands, c), shapes, ends, strict=True)
            ]
            return (MatmulBytes(*views, m=rows, n=n, k=k, a_row=k, c_row=n),)

        return call() if is_single else nest(unique, shape[:-2], call)

    operands = (a, columns.panels, columns.sums)
    return Value(name, dtypes.int32, tuple(shape), StatementDefinition(operands, write))


# ---------------------------------------------------------------------------- convolutions


def _pad_image(x: Value, axes: Sequence[Axis], zero: Value) -> Value:
    """Return the image padded with its zero point as far as windows reach."""
    sizes = [(axis.count - 1) * axis.stride + (axis.taps - 1) * axis.dilation + 1 for axis in axes]
    if not any(axis.before for axis in axes) and all(
        size <= actual for size, actual in zip(sizes, x.shape[1:3], strict=True)
    ):
        return x

    def element(n: Expr, i: Expr, j: Expr, c: Expr) -> Expr:
        indices = [plus(index, -axis.before) for index, axis in zip((i, j), axes, strict=True)]
        clamped = list(map(clamp_index, indices, x.shape[1:3]))
        in_bounds = apply("bit_and", *map(is_inside, indices, x.shape[1:3]))
        return where(in_bounds, x.at(n, *clamped, c), cast(zero.at(), x.dtype))

    return compute_value(f"{x.name}_framed", x.dtype, (x.shape[0], *sizes, x.shape[3]), element)


def _filters(op: Operation) -> Any:
    """Return filters as int8."""
    w = op.inputs[1].constant
    require(w is not None, "the filters are not constants")
    require(w.max(initial=0) <= dtypes.int8.max, "the filters have values above 127")
    return w.astype(np.int8)


def _zero_point_of(op: Operation, x: Value) -> tuple[Value, int | None]:
    """Return the zero point, and its number if it is known."""
    zero = op.inputs[2]
    if zero.constant is None:
        return zero, None
    value = int(zero.constant)
    require(x.dtype.min <= value <= x.dtype.max, f"{value} as the zero point of {x.dtype.name}")
    return zero, value


@lowers("Conv2DInteger")
def _conv(op: Operation) -> Value:
    layout, w = op.attr("data_format"), _filters(op)
    axes = axes_of(op, op.inputs[0].shape, w.shape[:2])
    x, depth = channels_last(op.inputs[0], layout), w.shape[3]
    require(x.shape[-1] == w.shape[2], "the depths of the filter and the input differ")
    shape = (x.shape[0], *[axis.count for axis in axes], depth)
    zero, outside = _zero_point_of(op, x)
    if outside is None:
        x = _pad_image(x, axes, zero)
        axes = [Axis(a.count, a.taps, a.stride, a.dilation, 0) for a in axes]
    matrix = w.reshape(-1, depth)
    panels, sums = pack_bytes(matrix)
    operands = (
        x,
        Value(f"{op.name}_packed", dtypes.int8, panels.shape, constant=panels),
        Value(f"{op.name}_sums", dtypes.int32, sums.shape, constant=sums),
    )

    def write(unique: Unique, y: Buffer, *buffers: Buffer) -> Sequence[Statement]:
        if 0 in (*x.shape, *w.shape, *shape):
            return fill(unique, y, number(0, y.dtype))

        def call(image: Expr, row: Expr, images: int, rows: int) -> Body:
            views = (
                load(buffers[0], x.shape, [image, *[index(0)] * 3]),
                load(buffers[1], panels.shape, [index(0)] * 4),
                load(buffers[2], sums.shape, [index(0)] * 2),
                load(y, shape, [image, row, index(0), index(0)]),
            )
            windows = windows_of(x, axes, depth, images, rows)
            return (ConvBytes(*views, **windows.geometry, outside=outside or 0, row=row),)

        return call_by_rows(unique, shape, axes, call)

    result = Value(op.name, dtypes.int32, shape, StatementDefinition(operands, write))
    return as_layout(
        _subtract_zero_products(result, zero, outside, matrix.sum(0, dtype=np.int32)),
        layout,
        op.name,
    )


def _subtract_zero_products(result: Value, zero: Value, value: int | None, sums: Any) -> Value:
    """Subtract the products with the zero point: `sums` times the zero point."""
    if value == 0:
        return result
    name = f"{result.name}_centred"
    if value is not None:
        known_value = _int32(f"{name}_sums", sums * np.int32(value))
        return compute_value(
            name, dtypes.int32, result.shape,
            lambda *indices: apply("sub", result.at(*indices), known_value.at(indices[-1])),
        )  # fmt: skip
    totals = _int32(f"{name}_sums", sums)
    return compute_value(
        name, dtypes.int32, result.shape,
        lambda *indices: apply(
            "sub", result.at(*indices), apply("mul", totals.at(indices[-1]), zero.at())
        ),
    )  # fmt: skip


@lowers("DepthwiseConv2dInteger")
def _depthwise(op: Operation) -> Value:
    layout, w = op.attr("data_format"), _filters(op)
    high, wide, channels, multiplier = w.shape
    require(high * wide <= MOST_TAPS, f"its windows have more than {MOST_TAPS} positions")
    axes = axes_of(op, op.inputs[0].shape, (high, wide))
    x = channels_last(op.inputs[0], layout)
    shape = (x.shape[0], *[axis.count for axis in axes], channels * multiplier)
    require(0 not in (*shape, *x.shape) and x.shape[3] == channels, "it has zero windows")
    zero, value = _zero_point_of(op, x)
    framed = _pad_image(x, axes, zero)
    # Widened at compile time; loops over channels would widen them again for each position.
    filters = Value(f"{op.name}_wide", dtypes.int32, w.shape, constant=w.astype(np.int32))

    def element(n: Expr, i: Expr, j: Expr, o: Expr) -> Expr:
        c, m = over(o, multiplier), modulo(o, multiplier)
        total: Expr | None = None
        for tap in product(range(high), range(wide)):
            indices = [
                plus(times(index, axis.stride), k * axis.dilation)
                for index, axis, k in zip((i, j), axes, tap, strict=True)
            ]
            term = apply("mul", _wide(framed.at(n, *indices, c)), _wide(filters.at(*tap, c, m)))
            total = term if total is None else apply("add", total, term)
        assert total is not None
        return total

    result = compute_value(op.name, dtypes.int32, shape, element)
    sums = w.reshape(high * wide, -1).sum(0, dtype=np.int32)
    return as_layout(_subtract_zero_products(result, zero, value, sums), layout, op.name)
