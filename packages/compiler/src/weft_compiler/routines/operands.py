"""Operands of routines: matrices in flat memory, and checks that several families use."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from weft_compiler.ir.program import Views


def matrix(view: Any, rows: int, columns: int, row: int, column: int) -> Any:
    """Return a matrix in flat memory as a NumPy view, with strides in elements."""
    size = view.itemsize
    return np.lib.stride_tricks.as_strided(view, (rows, columns), (row * size, column * size))


def matrix_span(rows: int, columns: int, row: int, column: int) -> int:
    """Return the number of elements that a matrix spans."""
    return (rows - 1) * row + (columns - 1) * column + 1 if rows and columns else 0


def span_error(views: Views, spans: Mapping[str, int]) -> str:
    """Return an error message if a view has fewer elements than a routine accesses, or ""."""
    for name, needed in spans.items():
        if needed > views[name][1]:
            return f"{name} needs {needed} elements, but has {views[name][1]}"
    return ""


def type_error(views: Views) -> str:
    """Return an error message if views have different element types, or ""."""
    is_uniform = len({dtype for dtype, _ in views.values()}) == 1
    return "" if is_uniform else "the views must have the same element type"
