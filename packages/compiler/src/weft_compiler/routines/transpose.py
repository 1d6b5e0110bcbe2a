"""Transposes of matrices."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar

from weft_compiler.codegen.routine import FLOATS, Library, Routine
from weft_compiler.ir.program import Input, Output, Views
from weft_compiler.routines.conv2d import CONV_LIBRARY
from weft_compiler.routines.operands import matrix, span_error, type_error
from weft_tensor.dtypes import DType


@dataclass(frozen=True, slots=True, eq=False)
class Transpose(Routine):
    """Stores the transpose of the matrix x, rows × columns, in y.

    Rows are contiguous, with strides `x_row` and `y_row`. See `weft_compiler.codegen.transpose`.
    """

    x: Input
    y: Output
    _: KW_ONLY
    rows: int
    columns: int
    x_row: int
    y_row: int

    routine: ClassVar[str] = "transpose"
    dtypes: ClassVar[tuple[DType, ...]] = FLOATS
    library: ClassVar[Library | None] = CONV_LIBRARY

    @property
    def work(self) -> int:
        return self.rows * self.columns

    def spans(self, size: int) -> Mapping[str, int]:
        if not self.rows or not self.columns:
            return {"x": 0, "y": 0}
        return {
            "x": (self.rows - 1) * self.x_row + self.columns,
            "y": (self.columns - 1) * self.y_row + self.rows,
        }

    def error(self, views: Views) -> str:
        if min(value for _, value in self.parameters) < 0:
            return type_error(views) or "sizes and strides of at least 0 were required"
        wrong = type_error(views) or span_error(views, self.spans(views["x"][0].size))
        fits = self.y_row >= self.rows or self.columns <= 1
        return wrong or ("" if fits else "rows of y overlap")

    def reference(self, x: Any, y: Any) -> None:
        source = matrix(x, self.rows, self.columns, self.x_row, 1)
        matrix(y, self.columns, self.rows, self.y_row, 1)[...] = source.T
