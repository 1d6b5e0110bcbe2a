"""Weights of products in the layouts that kernels read (`Layout`)."""

from __future__ import annotations

from typing import Any

import numpy as np

PANEL = 16
Array = np.ndarray[Any, Any]


def panels(matrix: Array) -> Array:
    """Pack weights in the layout PANELS.

    Args:
      matrix: (taps, depth, columns).
    Returns: (panels, taps, depth, 16), padded with zero columns.
    """
    taps, depth, columns = matrix.shape
    count = -(-columns // PANEL)
    padded = np.zeros((taps, depth, count * PANEL), matrix.dtype)
    padded[:, :, :columns] = matrix
    return np.ascontiguousarray(padded.reshape(taps, depth, count, PANEL).transpose(2, 0, 1, 3))


def panels4(matrix: Array) -> Array:
    """Pack int8 weights in the layout PANELS4.

    Args:
      matrix: (taps, depth, columns).
    Returns: (panels, taps, depth / 4, 16, 4), padded with zeros.
    """
    taps, depth, columns = matrix.shape
    padded = np.zeros((taps, -(-depth // 4) * 4, columns), matrix.dtype)
    padded[:, :depth] = matrix
    packed = panels(padded)  # (panels, taps, depth, 16)
    return np.ascontiguousarray(
        packed.reshape(*packed.shape[:2], -1, 4, PANEL).transpose(0, 1, 2, 4, 3)
    )


def unpack_panels(packed: Array, columns: int) -> Array:
    """Unpack weights in the layout PANELS to a matrix (taps, depth, columns)."""
    count, taps, depth, _ = packed.shape
    full = packed.transpose(1, 2, 0, 3).reshape(taps, depth, count * PANEL)
    return np.asarray(full[:, :, :columns])
