"""Weights packed while lowering, as routines read them."""

from __future__ import annotations

from typing import Any

import numpy as np

from weft_compiler.lower.values import Value
from weft_compiler.windows import LINE, PANEL_BYTES


def packed(name: str, value: Value, matrix: Any) -> Value:
    """A constant as panels of columns, (panels, ..., columns), with zeros where columns end.

    Args:
      value: whose element type it has.
      matrix: an array of at least one dimension.
    """
    columns = PANEL_BYTES // matrix.itemsize
    *rows, depth = matrix.shape
    panels = -(-depth // columns)
    found = aligned((panels, *rows, columns), matrix.dtype)
    for at in range(panels):
        part = matrix[..., at * columns : (at + 1) * columns]
        found[at, ..., : part.shape[-1]] = part
        found[at, ..., part.shape[-1] :] = 0
    found.flags.writeable = False
    return Value(name, value.dtype, found.shape, constant=found)


def aligned(shape: tuple[int, ...], dtype: Any) -> Any:
    """A new array that begins with a line of the cache: loads across two take twice the time."""
    size = int(np.prod(shape)) * dtype.itemsize
    memory = np.empty(size + LINE, np.uint8)
    start = -memory.ctypes.data % LINE
    return memory[start : start + size].view(dtype).reshape(shape)
