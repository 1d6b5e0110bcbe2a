"""Tridiagonal matrices against dense ones."""

from __future__ import annotations

import numpy as np
from weft_testing.cases import WIDE_FLOATS, WIDE_INEXACT, Array, Case, complex_normal, normal

CLOSE = {"float32": (1e-4, 1e-4), "complex64": (1e-4, 1e-4), "float64": (1e-10, 1e-10),
         "complex128": (1e-10, 1e-10)}  # fmt: skip
DIAGONALS, RIGHT = complex_normal(2, 3, 5), complex_normal(2, 5, 3, seed=1)
LONG = normal(3, 60) + np.array([[0], [0.5], [0]])
DOMINANT = DIAGONALS + np.array([[0], [6.0], [0]])


def _dense(diagonals: Array) -> Array:
    above, main, below = np.moveaxis(diagonals, -2, 0)
    n = main.shape[-1]
    whole = main[..., None, :] * np.eye(n)
    whole[..., np.arange(n - 1), np.arange(1, n)] = above[..., :-1]
    whole[..., np.arange(1, n), np.arange(n - 1)] = below[..., 1:]
    return whole


def _solved(diagonals: Array, rhs: Array) -> Array:
    return np.linalg.solve(_dense(diagonals), rhs)


def _product(above: Array, main: Array, below: Array, rhs: Array) -> Array:
    return np.asarray(_dense(np.concatenate([above, main, below], -2)) @ rhs)


CASES = [
    Case("TridiagonalSolve", [DIAGONALS, RIGHT], {}, _solved, dtypes=WIDE_INEXACT,
         tolerance=CLOSE),
    Case("TridiagonalSolve", [LONG, normal(60, 2)], {}, _solved, dtypes=WIDE_FLOATS,
         tolerance={"float32": (2e-2, 2e-2), "float64": (1e-10, 1e-10)}, grad=False, label="long"),
    Case("TridiagonalSolve", [DOMINANT, RIGHT], {"partial_pivoting": False}, _solved,
         dtypes=WIDE_INEXACT, tolerance=CLOSE, label="no-pivoting"),
    Case("TridiagonalSolve", [np.zeros((3, 0)), np.zeros((0, 2))], {}, lambda d, x: x,
         dtypes=WIDE_FLOATS, grad=False, label="empty"),
    Case("TridiagonalMatMul", [*(DIAGONALS[:, i : i + 1] for i in range(3)), RIGHT], {}, _product,
         dtypes=WIDE_INEXACT, tolerance=CLOSE),
]  # fmt: skip
