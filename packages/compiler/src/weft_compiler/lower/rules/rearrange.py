"""Ops that permute elements: roll, diagonals, bands, space-to-depth."""

from __future__ import annotations

from collections.abc import Sequence

from weft_compiler.ir.expressions import Expr, apply, cast, index, number, where
from weft_compiler.ir.indices import (
    clamp_index,
    flatten_indices,
    minus,
    modulo,
    over,
    plus,
    times,
    unflatten_index,
)
from weft_compiler.lower.precision import wide_type
from weft_compiler.lower.registry import Operation, lowers, require
from weft_compiler.lower.rules.reduction import reduce
from weft_compiler.lower.values import Value, compute_value, move_elements
from weft_tensor import dtypes


@lowers("Roll", known_operands=(1, 2))
def _roll(op: Operation) -> Value:
    x = op.inputs[0]
    shifts = [0] * x.rank
    named = zip(op.known_value(2).reshape(-1), op.known_value(1).reshape(-1), strict=True)
    for axis, shift in named:
        shifts[int(axis)] += int(shift)

    def source(*position: Expr) -> list[Expr]:
        return [
            modulo(plus(i, -shift % size if size else 0), size or 1)
            for i, shift, size in zip(position, shifts, x.shape, strict=True)
        ]

    return move_elements(op.name, x, x.shape, source)


@lowers("MatrixBandPart", known_operands=(1, 2))
def _band(op: Operation) -> Value:
    x, (lower, upper) = op.inputs[0], (int(op.known_value(position)) for position in (1, 2))
    require(lower <= x.shape[-2] and upper <= x.shape[-1], "the matrices have fewer diagonals")

    def element(*position: Expr) -> Expr:
        row, column = position[-2:]
        result = x.at(*position)
        for distance, limit in ((minus(row, column), lower), (minus(column, row), upper)):
            if limit >= 0:
                in_band = apply("less_equal", distance, index(limit))
                result = where(in_band, result, number(0, x.dtype))
        return result

    return compute_value(op.name, x.dtype, x.shape, element)


@lowers("MatrixDiagPart")
def _diagonals(op: Operation) -> Value:
    return move_elements(
        op.name, op.inputs[0], op.shape(), lambda *position: [*position, position[-1]]
    )


@lowers("MatrixDiag")
def _matrices(op: Operation) -> Value:
    x = op.inputs[0]

    def element(*position: Expr) -> Expr:
        return where(
            apply("equal", position[-2], position[-1]), x.at(*position[:-1]), number(0, x.dtype)
        )

    return compute_value(op.name, x.dtype, op.shape(), element)


@lowers("DiagPart")
def _diagonal(op: Operation) -> Value:
    return move_elements(
        op.name, op.inputs[0], op.shape(), lambda *position: [*position, *position]
    )


@lowers("Diag")
def _diag(op: Operation) -> Value:
    x = op.inputs[0]

    def element(*position: Expr) -> Expr:
        result = x.at(*position[: x.rank])
        for i, j in zip(position[: x.rank], position[x.rank :], strict=True):
            result = where(apply("equal", i, j), result, number(0, x.dtype))
        return result

    return compute_value(op.name, x.dtype, op.shape(), element)


def _permute_indices(
    position: Sequence[Expr], data_format: str, inverse: bool = False
) -> list[Expr]:
    """Map indices in a data format to channels-last, or back."""
    if data_format == "NHWC":
        return list(position)
    return [position[axis] for axis in ((0, 3, 1, 2) if inverse else (0, 2, 3, 1))]


def _sizes(shape: Sequence[int], data_format: str) -> Sequence[int]:
    """Return the sizes of images in channels-last order."""
    return shape if data_format == "NHWC" else [shape[axis] for axis in (0, 2, 3, 1)]


@lowers("SpaceToDepth")
def _space_to_depth(op: Operation) -> Value:
    (x,), block, layout = op.inputs, int(op.attr("block_size")), op.attr("data_format")
    channels = _sizes(x.shape, layout)[3]

    def source(*position: Expr) -> list[Expr]:
        n, row, column, depth = _permute_indices(position, layout)
        inner = [block, block, channels]
        down, right, channel = unflatten_index(depth, inner) if x.size else [index(0)] * 3
        place = [n, plus(times(row, block), down), plus(times(column, block), right), channel]
        return _permute_indices(place, layout, inverse=True)

    return move_elements(op.name, x, op.shape(), source)


@lowers("DepthToSpace")
def _depth_to_space(op: Operation) -> Value:
    (x,), block, layout = op.inputs, int(op.attr("block_size")), op.attr("data_format")
    channels = _sizes(op.shape(), layout)[3]

    def source(*position: Expr) -> list[Expr]:
        n, row, column, channel = _permute_indices(position, layout)
        inner = [modulo(row, block), modulo(column, block), channel]
        depth = flatten_indices(inner, [block, block, channels])
        place = [n, over(row, block), over(column, block), depth]
        return _permute_indices(place, layout, inverse=True)

    return move_elements(op.name, x, op.shape(), source)


@lowers("MatrixSetDiag")
def _with_diagonal(op: Operation) -> Value:
    x, diagonal = op.inputs
    size = min(x.shape[-2:])
    require(diagonal.shape == (*x.shape[:-2], size), "the shape of the diagonal does not match")

    def element(*position: Expr) -> Expr:
        if not size:
            return x.at(*position)
        diagonal_element = diagonal.at(*position[:-2], clamp_index(position[-1], size))
        return where(apply("equal", position[-2], position[-1]), diagonal_element, x.at(*position))

    return compute_value(op.name, x.dtype, x.shape, element)


@lowers("EuclideanNorm", known_operands=(1,))
def _norm(op: Operation) -> Value:
    x, axes = op.inputs[0], op.axes()
    wide = dtypes.float64 if x.dtype.is_integer else wide_type(x.dtype)

    def square(*position: Expr) -> Expr:
        return apply("square", cast(x.at(*position), wide))

    squares = compute_value(f"{op.name}_x", wide, x.shape, square)
    total = reduce(f"{op.name}_sum", squares, axes, "add")
    kept_axes = [axis for axis in range(x.rank) if axis not in axes]

    def element(*position: Expr) -> Expr:
        kept_position = [position[axis] for axis in kept_axes] if op.attr("keep_dims") else position
        return apply("sqrt", total.at(*kept_position))

    return compute_value(op.name, x.dtype, op.shape(), element)
