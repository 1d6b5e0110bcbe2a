"""Bands of matrix diagonals, each stored as a row that is padded at one end."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from weft_compiler.ir.expressions import INDEX, Expr, apply, index, number, where
from weft_compiler.ir.indices import clamp_index, is_inside, minus, plus
from weft_compiler.lower.registry import Operation, lowers, require
from weft_compiler.lower.values import Value, compute_value

Otherwise = Callable[..., Expr]
"""Function from the indices of an element outside all diagonals to its value."""


class _Band:
    """Adjacent diagonals of matrices, from the highest to the lowest.

    Attributes:
      lower, upper: offsets of the ends of the band, to the right of the main diagonal.
      longest: the size of the rows that store diagonals.

    Args:
      shape: shape of the matrices.
      operand: the position of the operand that selects the diagonals.
    """

    def __init__(self, op: Operation, shape: Sequence[int], operand: int) -> None:
        rows, columns = shape[-2:]
        ends = op.known_value(operand).reshape(-1)
        require(ends.size in (1, 2), "k must be one diagonal or the two ends of a band")
        self.lower, self.upper = int(ends[0]), int(ends[-1])
        fits = -rows < self.lower <= self.upper < columns
        require(fits or self.lower == self.upper == 0, "the matrices do not have these diagonals")
        self.longest = min(rows + min(self.upper, 0), columns - max(self.lower, 0))
        upper_side, _, lower_side = op.node.attrs.get("align", "LEFT_LEFT").partition("_")
        offset = np.arange(self.upper, self.lower - 1, -1)
        lengths = np.minimum(rows + np.minimum(offset, 0), columns - np.maximum(offset, 0))
        right = np.where(offset >= 0, upper_side == "RIGHT", lower_side == "RIGHT")
        shifts = np.where(right, self.longest - lengths, 0)
        self._tables = {
            name: Value(f"{op.name}_{name}", INDEX, offset.shape, constant=array.astype(np.int64))
            for name, array in (
                ("lengths", lengths),
                ("shifts", shifts),
                ("rows", np.maximum(-offset, 0)),
                ("columns", np.maximum(offset, 0)),
            )
        }

    @property
    def count(self) -> int:
        """The number of diagonals."""
        return self.upper - self.lower + 1

    def _of(self, name: str, kind: Expr) -> Expr:
        """Look up a property of a diagonal in a constant table."""
        return self._tables[name].at(kind)

    def taken(self, x: Value, lead: Sequence[Expr], kind: Expr, position: Expr, none: Expr) -> Expr:
        """Return the matrix element for a position in the stored diagonals."""
        offset = minus(position, self._of("shifts", kind))
        row, column = (plus(offset, self._of(name, kind)) for name in ("rows", "columns"))
        clamped = [
            clamp_index(i, size) for i, size in zip((row, column), x.shape[-2:], strict=True)
        ]
        length = self._of("lengths", kind)
        in_bounds = apply(
            "bit_and", apply("greater_equal", offset, index(0)), apply("less", offset, length)
        )
        return where(in_bounds, x.at(*lead, *clamped), none)

    def put(self, diagonals: Value, position: Sequence[Expr], none: Expr) -> Expr:
        """Return the element of the stored diagonals for a position in the matrices."""
        row, column = position[-2:]
        number_of = minus(plus(row, self.upper), column)
        diagonal_index = clamp_index(number_of, self.count)
        offset = plus(
            minus(row, self._of("rows", diagonal_index)), self._of("shifts", diagonal_index)
        )
        place = [clamp_index(offset, self.longest)]
        if diagonals.rank == len(position):
            place.insert(0, diagonal_index)
        return where(is_inside(number_of, self.count), diagonals.at(*position[:-2], *place), none)


def _with_diagonals(op: Operation, diagonals: Value, band: _Band, if_false: Otherwise) -> Value:
    shape = op.shape()
    rows = (band.longest,) if band.count == 1 else (band.count, band.longest)
    require(diagonals.shape == (*shape[:-2], *rows), "the shape of the diagonals does not match")

    def element(*position: Expr) -> Expr:
        if not diagonals.size:
            return if_false(*position)
        return band.put(diagonals, position, if_false(*position))

    return compute_value(op.name, op.dtype(), shape, element)


@lowers("MatrixDiagV2", "MatrixDiagV3", known_operands=(1, 2, 3))
def _matrices(op: Operation) -> Value:
    diagonals, padding = op.inputs[0], op.inputs[4]
    require(padding.rank == 0, "the padding value is not a scalar")
    band = _Band(op, op.shape(), 1)
    return _with_diagonals(op, diagonals, band, lambda *_: padding.at())


@lowers("MatrixSetDiagV2", "MatrixSetDiagV3", known_operands=(2,))
def _set(op: Operation) -> Value:
    x, diagonals = op.inputs[:2]
    return _with_diagonals(op, diagonals, _Band(op, x.shape, 2), x.at)


@lowers("MatrixDiagPartV2", "MatrixDiagPartV3", known_operands=(1,))
def _diagonals(op: Operation) -> Value:
    x, padding = op.inputs[0], op.inputs[2]
    require(padding.rank == 0, "the padding value is not a scalar")
    band = _Band(op, x.shape, 1)
    lead = x.rank - 2

    def element(*position: Expr) -> Expr:
        diagonal_index = position[lead] if len(position) > lead + 1 else index(0)
        if not x.size:
            return padding.at()
        return band.taken(x, position[:lead], diagonal_index, position[-1], padding.at())

    if not math.prod(op.shape()):
        return compute_value(op.name, x.dtype, op.shape(), lambda *_: number(0, x.dtype))
    return compute_value(op.name, x.dtype, op.shape(), element)
