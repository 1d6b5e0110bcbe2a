"""Image resizing and its gradients: sums over the taps of two axes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np

from weft_compiler.ir.expressions import INDEX, Expr, add, apply, number
from weft_compiler.ir.indices import clamp_index
from weft_compiler.lower.precision import wide_type
from weft_compiler.lower.registry import Operation, lowers, require
from weft_compiler.lower.values import Reduction, Value, compute_value, move_elements
from weft_tensor import dtypes
from weft_tensor.dtypes import DType
from weft_tensor.resampling import (
    Array,
    Taps,
    area_taps,
    cubic_taps,
    filter_taps,
    linear_taps,
    nearest_index,
)

_FEW: Final = 8
"""Maximum number of taps to unroll; more become a loop."""
TapsOf = Callable[[int, int, int], Taps]
"""Function from an axis of images and its sizes before and after to the taps."""


def _check_operands(op: Operation) -> tuple[Value, tuple[int, ...]]:
    """Check the operands; return the images and the shape of the result."""
    x, shape = op.inputs[0], op.shape()
    require(x.rank == len(shape) == 4, "the images do not have rank 4")
    require(0 not in (*x.shape[1:3], *shape[1:3]), "the images have no pixels")
    require(x.shape[::3] == shape[::3], "the numbers of images or channels differ")
    return x, shape


def _taps_of(op: Operation) -> TapsOf:
    """Return the taps of methods that have only the images and a size as operands."""
    align = bool(op.attr("align_corners"))
    if op.node.type == "ResizeArea":
        return lambda _, in_size, out_size: area_taps(in_size, out_size, align)
    half = bool(op.attr("half_pixel_centers"))
    taps = linear_taps if "Bilinear" in op.node.type else cubic_taps
    return lambda _, in_size, out_size: taps(in_size, out_size, align, half)


def _filters(op: Operation, first: int) -> TapsOf:
    """Return the taps of filters that two further operands scale and translate."""
    factors, shifts = (
        op.known_value(operand).reshape(-1).tolist() for operand in (first, first + 1)
    )
    require(len(factors) == len(shifts) == 2 and min(factors) > 0, "scales must be positive")
    kind, antialias = op.attr("kernel_type"), bool(op.attr("antialias"))
    return lambda axis, in_size, out_size: filter_taps(
        in_size, out_size, factors[axis - 1], shifts[axis - 1], kind, antialias
    )


@lowers("ResizeBilinear", "ResizeBicubic", "ResizeArea", known_operands=(1,))
def _resize(op: Operation) -> Value:
    return _forward(op, _taps_of(op))


@lowers("ScaleAndTranslate", known_operands=(1, 2, 3))
def _scale_and_translate(op: Operation) -> Value:
    return _forward(op, _filters(op, 2))


def _forward(op: Operation, taps: TapsOf) -> Value:
    x, shape = _check_operands(op)
    return _resample(op, x, [taps(axis, x.shape[axis], shape[axis]) for axis in (1, 2)])


@lowers("ResizeBilinearGrad", "ResizeBicubicGrad")
def _resize_grad(op: Operation) -> Value:
    return _backward(op, _taps_of(op))


@lowers("ScaleAndTranslateGrad", known_operands=(2, 3))
def _scale_and_translate_grad(op: Operation) -> Value:
    return _backward(op, _filters(op, 2))


def _backward(op: Operation, taps: TapsOf) -> Value:
    x, shape = _check_operands(op)
    transposed = [taps(axis, shape[axis], x.shape[axis]).transposed() for axis in (1, 2)]
    return _resample(op, x, transposed)


def _nearest_of(op: Operation, axis: int, size: int, count: int) -> Array:
    align, half = bool(op.attr("align_corners")), bool(op.attr("half_pixel_centers"))
    return nearest_index(size, count, align, half)


@lowers("ResizeNearestNeighbor", known_operands=(1,))
def _nearest(op: Operation) -> Value:
    x, shape = _check_operands(op)
    indices = [
        _table(op, f"places_{axis}", _nearest_of(op, axis, x.shape[axis], shape[axis]), INDEX)
        for axis in (1, 2)
    ]

    def source(*index: Expr) -> list[Expr]:
        sources = [
            clamp_index(table.at(index[axis]), x.shape[axis])
            for axis, table in enumerate(indices, start=1)
        ]
        return [index[0], *sources, index[3]]

    return move_elements(op.name, x, shape, source)


@lowers("ResizeNearestNeighborGrad", known_operands=(1,))
def _nearest_grad(op: Operation) -> Value:
    """Return the gradient: each pixel sums the gradients of the result pixels that copy it."""
    x, shape = _check_operands(op)
    wide = wide_type(x.dtype)
    transposed = []
    for axis in (1, 2):
        index = _nearest_of(op, axis, shape[axis], x.shape[axis])[:, None]
        taps = Taps(index, np.ones(index.shape, np.float32), shape[axis])
        transposed.append(taps.transposed())
    return _resample(op, x, transposed, wide)


# ------------------------------------------------------------------------------- applying


def _table(op: Operation, name: str, array: Any, dtype: DType) -> Value:
    """Return constant numbers as a tensor."""
    array = np.ascontiguousarray(array, dtype.numpy)
    return Value(f"{op.name}_{name}", dtype, array.shape, constant=array)


def _resample(op: Operation, x: Value, taps: list[Taps], wide: DType = dtypes.float32) -> Value:
    """Resample images along both axes, first along the one that leaves less work for the other."""
    rows, columns = taps
    steps = [(axis, item) for axis, item in enumerate(taps, start=1) if not item.is_identity()]
    if len(rows.index) * columns.size > rows.size * len(columns.index):
        steps.reverse()
    result = compute_value(f"{op.name}_wide", wide, x.shape, x.at)
    for axis, item in steps:
        result = _resample_axis(op, result, axis, item)
    return compute_value(op.name, op.dtype(), op.shape(), result.at)


def _resample_axis(op: Operation, x: Value, axis: int, taps: Taps) -> Value:
    """Resample along one axis."""
    count, depth = taps.index.shape
    indices = _table(op, f"places_{axis}", taps.index, INDEX)
    weights = _table(op, f"weights_{axis}", taps.weight, x.dtype)
    shape = (*x.shape[:axis], count, *x.shape[axis + 1 :])

    def read_tap(index: tuple[Expr, ...], tap: Expr | int) -> Expr:
        clamped = clamp_index(indices.at(index[axis], tap), taps.size)
        return x.at(*index[:axis], clamped, *index[axis + 1 :])

    def weighted(index: tuple[Expr, ...], tap: Expr | int) -> Expr:
        return apply("mul", read_tap(index, tap), weights.at(index[axis], tap))

    def interpolated(*index: Expr) -> Expr:
        """Interpolate between two neighbors; the result is exact if they are equal."""
        low, high = read_tap(index, 0), read_tap(index, 1)
        part = apply("mul", apply("sub", high, low), weights.at(index[axis], 1))
        return apply("add", part, low)

    def summed(*index: Expr) -> Expr:
        return add(*[weighted(index, tap) for tap in range(depth)])

    name = f"{op.name}_along_{axis}"
    if taps.between or depth <= _FEW:
        return compute_value(name, x.dtype, shape, interpolated if taps.between else summed)
    space = (*shape[: axis + 1], depth, *shape[axis + 1 :])

    def term(*index: Expr) -> Expr:
        return weighted((*index[: axis + 1], *index[axis + 2 :]), index[axis + 1])

    total = Reduction(space, frozenset([axis + 1]), "add", number(0, x.dtype), term)
    return Value(name, x.dtype, shape, total)
