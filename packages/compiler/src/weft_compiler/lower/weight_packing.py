"""Packing of constant weights at compile time."""

from __future__ import annotations

from typing import Any

import numpy as np

from weft_compiler.layouts import LINE, PANEL_BYTES
from weft_compiler.lower.values import Value


def pack_columns(name: str, value: Value, matrix: Any) -> Value:
    """Return a constant packed as panels of columns, (panels, ..., columns), padded with zeros.

    Args:
      value: the constant, whose element type the result gets.
      matrix: its content, an array of at least one dimension.
    """
    columns = PANEL_BYTES // matrix.itemsize
    *rows, depth = matrix.shape
    panels = -(-depth // columns)
    result = align_array((panels, *rows, columns), matrix.dtype)
    for index in range(panels):
        part = matrix[..., index * columns : (index + 1) * columns]
        result[index, ..., : part.shape[-1]] = part
        result[index, ..., part.shape[-1] :] = 0
    result.flags.writeable = False
    return Value(name, value.dtype, result.shape, constant=result)


def align_array(shape: tuple[int, ...], dtype: Any) -> Any:
    """Return a new array that starts at a cache line: loads across lines take twice as long."""
    size = int(np.prod(shape)) * dtype.itemsize
    memory = np.empty(size + LINE, np.uint8)
    start = -memory.ctypes.data % LINE
    return memory[start : start + size].view(dtype).reshape(shape)
