"""Binary search in the rows of sorted matrices."""

from __future__ import annotations

from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

FEW = 16
"""Number of rows for which one call per row costs less than steps over all rows."""
LONG = 256
"""Minimum length of a row for which NumPy's search is as fast."""
_BLOCK = 1 << 13
"""Number of values that are searched together, so that steps stay in the cache."""


def search(keys: Array, values: Array, right: bool) -> Array:
    """Compute `np.searchsorted` of each row of `values` in the same row of `keys`.

    Args:
      keys: sorted, shape (R, K); NaNs come last.
      values: shape (R, V), of the same type.
      right: True for positions after equal keys, False for positions before them.
    Returns: positions from 0 to K, shape (R, V).
    """
    rows, width = keys.shape
    if rows < FEW or values.shape[1] > LONG or keys.dtype.kind == "O":
        result = np.empty(values.shape, np.intp)
        for index, row in enumerate(keys):
            result[index] = np.searchsorted(row, values[index], "right" if right else "left")
        return result
    result = np.zeros(values.shape, np.intp)
    if not width or not values.size:
        return result
    step = max(1, _BLOCK // values.shape[1])
    for position in range(0, rows, step):
        part = slice(position, position + step)
        _halve(keys[part], values[part], right, result[part])
    return result


def _halve(keys: Array, values: Array, right: bool, array: Array) -> None:
    """Run all binary searches in lockstep, because the rows are equally long."""
    rows, remaining = keys.shape
    flat, base = np.ascontiguousarray(keys).reshape(-1), np.arange(rows)[:, None] * remaining
    unknown = values != values
    numbers = not unknown.any()
    low_index, probe = np.empty(values.shape, np.intp), np.empty(values.shape, keys.dtype)
    array[...] = base
    while remaining:
        half = (remaining + 1) // 2
        np.add(array, half - 1, out=low_index)
        flat.take(low_index, out=probe, mode="clip")
        is_before = probe <= values if right else probe < values
        if not numbers:
            is_before |= unknown & ((probe == probe) | right)
        np.multiply(is_before, half, out=low_index)
        np.add(array, low_index, out=array)
        remaining -= half
    array -= base
