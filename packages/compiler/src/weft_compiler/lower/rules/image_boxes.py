"""CropAndResize and its gradients."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from weft_compiler.ir.expressions import INDEX, Expr, apply, cast, index, number, where
from weft_compiler.ir.indices import clamp_index
from weft_compiler.ir.loops import Unique, fill, load, nest
from weft_compiler.ir.program import Body, Buffer, If, Statement, Store
from weft_compiler.lower.registry import Operation, lowers, require
from weft_compiler.lower.rules.gather import require_in_range
from weft_compiler.lower.values import (
    Reduction,
    StatementDefinition,
    Value,
    compute_value,
    reduce_value,
)
from weft_tensor import dtypes

_F32 = dtypes.float32


@dataclass
class _Axis:
    """Sampling positions along one axis of an image, (boxes, positions) each.

    Attributes:
      is_inside: the condition that a position is within the image.
      low, high: the neighboring pixels.
      part: the distance from the lower pixel.
    """

    is_inside: Value
    low: Value
    high: Value
    part: Value


def _number(value: float) -> Expr:
    return number(value, _F32)


def _round_float32(primitive: str, x: Expr, y: Expr) -> Expr:
    """Return a float32 sum, difference or product that is never contracted with another operation.

    Its last bit decides whether a position is exactly on a pixel, and whether it is within the
    image.
    """
    wide = dtypes.float64
    return cast(apply(primitive, cast(x, wide), cast(y, wide)), _F32)


def _axis(op: Operation, boxes: Value, axis: int, size: int, count: int, nearest: bool) -> _Axis:
    name, shape = f"{op.name}_{'yx'[axis]}", (boxes.shape[0], count)
    reach = _number(size - 1)

    def position(box: Expr, position: Expr) -> Expr:
        start, end = boxes.at(box, axis), boxes.at(box, axis + 2)
        if count == 1:
            middle = _round_float32("mul", _number(0.5), _round_float32("add", start, end))
            return _round_float32("mul", middle, reach)
        extent = _round_float32("mul", _round_float32("sub", end, start), reach)
        step = apply("div", extent, _number(count - 1))
        return _round_float32(
            "add",
            _round_float32("mul", start, reach),
            _round_float32("mul", cast(position, _F32), step),
        )

    place = compute_value(f"{name}_place", _F32, shape, position)

    def is_valid_position(*position: Expr) -> Expr:
        non_negative = apply("greater_equal", place.at(*position), _number(0))
        return apply("bit_and", non_negative, apply("less_equal", place.at(*position), reach))

    is_valid = compute_value(f"{name}_inside", dtypes.bool_, shape, is_valid_position)

    def safe(*position: Expr) -> Expr:
        result = where(is_valid.at(*position), place.at(*position), _number(0))
        return apply("floor", apply("add", result, _number(0.5))) if nearest else result

    def neighbour(kind: str) -> Value:
        return compute_value(
            f"{name}_{kind}",
            INDEX,
            shape,
            lambda *position: cast(apply(kind, safe(*position)), INDEX),
        )

    part = compute_value(
        f"{name}_part",
        _F32,
        shape,
        lambda *position: apply("sub", safe(*position), apply("floor", safe(*position))),
    )
    return _Axis(is_valid, neighbour("floor"), neighbour("ceil"), part)


def _axes(
    op: Operation, shape: Sequence[int], counts: Sequence[int], first: int, nearest: bool
) -> tuple[_Axis, _Axis]:
    """Return the sampling positions along the rows and the columns of all crops.

    Args:
      shape: shape of the images.
      first: the position of the boxes operand; the image indices follow it.
    """
    boxes, image_indices = op.inputs[first : first + 2]
    require(
        boxes.shape[1:] == (4,) and image_indices.shape == boxes.shape[:1],
        "the boxes do not have the shape [boxes, 4]",
    )
    require(
        len(shape) == 4 and 0 not in shape[1:3] and min(counts) > 0,
        "the images or the crops have no pixels",
    )
    require(shape[0] > 0 or not image_indices.size, "the batch is empty")
    rows, columns = (
        _axis(op, boxes, axis, shape[1 + axis], counts[axis], nearest) for axis in (0, 1)
    )
    return rows, columns


def _both(rows: _Axis, columns: _Axis, box: Expr, i: Expr, j: Expr) -> Expr:
    return apply("bit_and", rows.is_inside.at(box, i), columns.is_inside.at(box, j))


class _Corners:
    """The four neighbors of a position, in float32."""

    def __init__(self, image: Value, value: Value, rows: _Axis, columns: _Axis) -> None:
        self._image = image
        self._image_indices = value
        self._axes = (rows, columns)

    def at(self, position: Sequence[Expr], y: str, x: str) -> Expr:
        """Return a neighbor for an element of the crops: `low` or `high` along each axis."""
        box, i, j, channel = position
        rows, columns = self._axes
        sizes = self._image.shape
        number_of = clamp_index(cast(self._image_indices.at(box), INDEX), sizes[0])
        row = clamp_index(getattr(rows, y).at(box, i), sizes[1])
        column = clamp_index(getattr(columns, x).at(box, j), sizes[2])
        return cast(self._image.at(number_of, row, column, channel), _F32)


def _interpolate(low: Expr, high: Expr, part: Expr) -> Expr:
    return apply("add", apply("mul", apply("sub", high, low), part), low)


@lowers("CropAndResize", known_operands=(3,))
def _crop(op: Operation) -> Value:
    image, image_indices, shape = op.inputs[0], op.inputs[2], op.shape()
    nearest = op.attr("method") == "nearest"
    rows, columns = _axes(op, image.shape, shape[1:3], 1, nearest)
    corners = _Corners(image, image_indices, rows, columns)
    overflow = _number(op.attr("extrapolation_value"))

    def element(*position: Expr) -> Expr:
        box, i, j, _ = position
        if nearest:
            interpolated = corners.at(position, "low", "low")
        else:
            sides = [
                _interpolate(
                    corners.at(position, y, "low"),
                    corners.at(position, y, "high"),
                    columns.part.at(box, j),
                )
                for y in ("low", "high")
            ]
            upper, lower = sides
            interpolated = _interpolate(upper, lower, rows.part.at(box, i))
        return where(_both(rows, columns, box, i, j), interpolated, overflow)

    result = compute_value(op.name, _F32, shape, element)
    result.requires = (require_in_range(image_indices, image.shape[0]),)
    return result


@lowers("CropAndResizeGradImage", known_operands=(3,))
def _grad_image(op: Operation) -> Value:
    """Add the gradients to the four neighbors of their positions."""
    (grads, _, image_indices), shape = op.inputs[:3], op.shape()
    require(
        grads.rank == 4 and grads.shape[3] == shape[3],
        "the gradients have another number of channels than the images",
    )
    rows, columns = _axes(op, shape, grads.shape[1:3], 1, op.attr("method") == "nearest")
    materialized = compute_value(f"{op.name}_grads", _F32, grads.shape, grads.at)
    numbers = compute_value(f"{op.name}_numbers", INDEX, image_indices.shape, image_indices.at)
    sides = [rows.is_inside, rows.low, rows.high, rows.part]
    sides += [columns.is_inside, columns.low, columns.high, columns.part]

    def write(
        unique: Unique, result: Buffer, buffer: Buffer, numbered: Buffer, *parts: Buffer
    ) -> Sequence[Statement]:
        def position(box: Expr, i: Expr, j: Expr) -> Body:
            position = [(box, i)] * 4 + [(box, j)] * 4
            y_in, y_low, y_high, y_part, x_in, x_low, x_high, x_part = [
                load(part, side.shape, place)
                for part, side, place in zip(parts, sides, position, strict=True)
            ]
            image = clamp_index(load(numbered, numbers.shape, (box,)), shape[0])
            upper_weight, left_weight = (
                apply("sub", _number(1), y_part),
                apply("sub", _number(1), x_part),
            )

            def add(channel: Expr) -> Body:
                gradient = load(buffer, grads.shape, (box, i, j, channel))
                return tuple([
                    Store(
                        result.name,
                        (image, clamp_index(y, shape[1]), clamp_index(x, shape[2]), channel),
                        apply("mul", apply("mul", gradient, tall), wide),
                        "add",
                    )
                    for y, tall in ((y_low, upper_weight), (y_high, y_part))
                    for x, wide in ((x_low, left_weight), (x_high, x_part))
                ])  # fmt: skip

            return (If(apply("bit_and", y_in, x_in), nest(unique, shape[3:], add)),)

        start = fill(unique, result, _number(0))
        return (*start, *(nest(unique, grads.shape[:3], position) if shape[3] else ()))

    total = Value(
        f"{op.name}_sum", _F32, shape, StatementDefinition((materialized, numbers, *sides), write)
    )
    total.requires = (require_in_range(image_indices, shape[0]),)
    return compute_value(op.name, op.dtype(), shape, total.at)


@lowers("CropAndResizeGradBoxes")
def _grad_boxes(op: Operation) -> Value:
    """Return the gradient with respect to the ends of the boxes."""
    grads, image, _, image_indices = op.inputs
    require(grads.rank == image.rank == 4, "the images do not have rank 4")
    require(
        grads.shape[3] == image.shape[3],
        "the gradients have another number of channels than the images",
    )
    rows, columns = _axes(op, image.shape, grads.shape[1:3], 2, False)
    corners = _Corners(image, image_indices, rows, columns)

    def change(axis: int, *position: Expr) -> Expr:
        """Return the difference of neighbors along an axis, times the gradient."""
        box, i, j, _ = position
        part = columns.part.at(box, j) if axis == 0 else rows.part.at(box, i)
        steps = []
        for side in ("low", "high"):
            corner_sides = [("low", side), ("high", side)]
            indices = corner_sides if axis == 0 else [(y, x) for x, y in corner_sides]
            first, second = [corners.at(position, y, x) for y, x in indices]
            steps.append(apply("sub", second, first))
        remaining = apply("sub", _number(1), part)
        slope = apply("add", apply("mul", remaining, steps[0]), apply("mul", part, steps[1]))
        live = where(_both(rows, columns, box, i, j), cast(grads.at(*position), _F32), _number(0))
        return apply("mul", slope, live)

    ends: list[Value] = []
    for last in (False, True):
        for axis in (0, 1):
            ends.append(_end(op, axis, last, grads.shape, image.shape[1 + axis], change))
    result = compute_value(
        op.name, op.dtype(), op.shape(), lambda box, end: _select(ends, box, end)
    )
    result.requires = (require_in_range(image_indices, image.shape[0]),)
    return result


def _select(ends: Sequence[Value], box: Expr, end: Expr) -> Expr:
    result = ends[-1].at(box)
    for position, item in reversed(list(enumerate(ends[:-1]))):
        result = where(apply("equal", end, index(position)), item.at(box), result)
    return result


def _end(
    op: Operation, axis: int, last: bool, shape: Sequence[int], size: int, change: object
) -> Value:
    """Return the gradient of one end of the boxes along an axis."""
    assert callable(change)
    count, name = shape[1 + axis], f"{op.name}_{'yx'[axis]}_{'end' if last else 'start'}"
    space = tuple(shape)
    kept_axis = 1 + axis
    along_axis = reduce_value(
        f"{op.name}_along_{axis}",
        Value(name, _F32, space),
        [position for position in range(1, 4) if position != kept_axis],
        "add",
        _number(0),
        lambda *position: change(axis, *position),
    )
    slope = np.full(1, 0.5, np.float32)
    if count > 1:
        slope = np.arange(count, dtype=np.float32) / np.float32(count - 1)
    slope = slope * np.float32(size - 1)
    weight = slope if last else np.float32(size - 1) - slope
    table = Value(f"{name}_slope", _F32, weight.shape, constant=weight)

    def term(box: Expr, position: Expr) -> Expr:
        return apply("mul", along_axis.at(box, position), table.at(position))

    total = Reduction((space[0], count), frozenset([1]), "add", _number(0), term)
    return Value(name, _F32, space[:1], total)
