"""Weights of products in the layouts that kernels read in place (`Layout`)."""

from __future__ import annotations

from typing import Any

import numpy as np

PANEL = 16
Array = np.ndarray[Any, Any]


def panels(matrix: Array) -> Array:
    """Return the layout PANELS of weights.

    Args:
      matrix: (taps, depth, columns).
    Returns: (panels, taps, depth, 16), with zeros where there is no column.
    """
    taps, depth, columns = matrix.shape
    count = -(-columns // PANEL)
    padded = np.zeros((taps, depth, count * PANEL), matrix.dtype)
    padded[:, :, :columns] = matrix
    return np.ascontiguousarray(padded.reshape(taps, depth, count, PANEL).transpose(2, 0, 1, 3))


def panels4(matrix: Array) -> Array:
    """Return the layout PANELS4 of int8 weights.

    Args:
      matrix: (taps, depth, columns).
    Returns: (panels, taps, depth / 4, 16, 4), with zeros where there is no depth or column.
    """
    taps, depth, columns = matrix.shape
    padded = np.zeros((taps, -(-depth // 4) * 4, columns), matrix.dtype)
    padded[:, :depth] = matrix
    packed = panels(padded)  # (panels, taps, depth, 16)
    return np.ascontiguousarray(
        packed.reshape(*packed.shape[:2], -1, 4, PANEL).transpose(0, 1, 2, 4, 3)
    )


def unpacked(packed: Array, columns: int) -> Array:
    """Return the matrix (taps, depth, columns) of weights in Layout PANELS."""
    count, taps, depth, _ = packed.shape
    full = packed.transpose(1, 2, 0, 3).reshape(taps, depth, count * PANEL)
    return np.asarray(full[:, :, :columns])
