"""Places in rows that are sorted, each row having values of its own."""

from __future__ import annotations

from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

FEW = 16
"""Rows for which a call for each costs less than steps over all of them."""
LONG = 256
"""Values of a row that NumPy finds as quickly by itself."""


def search(keys: Array, values: Array, right: bool) -> Array:
    """`np.searchsorted` of each row of `values` in the same row of `keys`.

    Args:
      keys: sorted, shape (R, K); what is no number comes last.
      values: shape (R, V), of the same type.
      right: after equal keys rather than before them.
    Returns: positions from 0 to K, shape (R, V).
    """
    rows, width = keys.shape
    if rows < FEW or values.shape[1] > LONG or keys.dtype.kind == "O":
        found = np.empty(values.shape, np.intp)
        for at, row in enumerate(keys):
            found[at] = np.searchsorted(row, values[at], "right" if right else "left")
        return found
    low = np.zeros(values.shape, np.intp)
    if not width or not values.size:
        return low
    high = np.full(values.shape, width, np.intp)
    flat, base = keys.reshape(-1), np.arange(rows)[:, None] * width
    numbers = bool((values == values).all())
    for _ in range(width.bit_length()):
        middle = (low + high) >> 1
        probe = flat.take(base + middle, mode="clip")
        before = probe <= values if right else probe < values
        if not numbers:
            before |= (values != values) & ((probe == probe) | right)
        before &= middle < high
        low = np.where(before, middle + 1, low)
        high = np.where(before, high, middle)
    return low
