"""Matrix square roots and logarithms, compared with the original matrices."""

from __future__ import annotations

from typing import Any

import numpy as np
from weft_testing.cases import (
    COMPLEXES,
    WIDE_FLOATS,
    WIDE_INEXACT,
    Array,
    Case,
    complex_normal,
)

CLOSE = {"float32": (1e-5, 1e-5), "complex64": (1e-5, 1e-5), "float64": (1e-10, 1e-10),
         "complex128": (1e-10, 1e-10), "float16": (2e-2, 2e-2)}  # fmt: skip
NEAR = complex_normal(2, 3, 3) / 3 + 2 * np.eye(3)
JORDAN = np.array([[4.0, 1, 0], [0, 4, 1], [0, 0, 4]])
DEFINITE = np.array([[4.0, 2.0], [2.0, 1.0]])  # singular


def _root(x: Array) -> Array:
    """By the binomial series around the mean of the diagonal."""
    scale = np.trace(x, axis1=-2, axis2=-1)[..., None, None] / x.shape[-1]
    unit = np.eye(x.shape[-1])
    rest, total, term = x / scale - unit, 0 * x + unit, 0 * x + unit
    for k in range(1, 400):
        term = term @ rest * (1.5 - k) / k
        total = total + term
    return np.asarray(total * np.sqrt(scale))


def _log(x: Array) -> Array:
    """By the series of log((1 + y) / (1 - y))."""
    unit = np.eye(x.shape[-1])
    y = np.linalg.solve(x + 2 * unit, x - 2 * unit)
    total, power = 0 * x, y
    for k in range(1, 200, 2):
        total, power = total + 2 * power / k, power @ y @ y
    return np.asarray(total + np.log(2) * unit)


def _known(value: Any) -> Any:
    return lambda x: np.asarray(value)


CASES = [
    Case("MatrixSquareRoot", [NEAR], {}, _root, dtypes=("float16", *WIDE_INEXACT),
         tolerance=CLOSE),
    Case("MatrixSquareRoot", [JORDAN], {}, _root, dtypes=WIDE_INEXACT, tolerance=CLOSE,
         grad=False, label="defective"),
    Case("MatrixSquareRoot", [DEFINITE], {}, lambda x: x / np.sqrt(5), dtypes=WIDE_INEXACT,
         tolerance={**CLOSE, "float64": (1e-7, 1e-7), "complex128": (1e-7, 1e-7)}, grad=False,
         label="singular"),
    Case("MatrixSquareRoot", [np.array([[-4.0, 1.0], [0.0, 9.0]])], {},
         _known(np.full((2, 2), np.nan)), dtypes=WIDE_FLOATS, grad=False, label="not-real"),
    Case("MatrixSquareRoot", [np.array([[-4.0, 13.0], [0.0, 9.0]])], {},
         _known([[2j, 3.0 - 2.0j], [0, 3.0]]), dtypes=COMPLEXES, tolerance=CLOSE, grad=False,
         label="negative"),
    Case("MatrixLogarithm", [NEAR], {}, _log, dtypes=COMPLEXES, tolerance=CLOSE),
    Case("MatrixLogarithm", [np.array([[-1.0, 0.0], [0.0, np.e]])], {},
         _known([[np.pi * 1j, 0], [0, 1]]), dtypes=COMPLEXES, tolerance=CLOSE, grad=False,
         label="negative"),
    Case("MatrixLogarithm", [JORDAN * 100], {},
         _known(np.log(400) * np.eye(3) + [[0, 0.25, -1 / 32], [0, 0, 0.25], [0, 0, 0]]),
         dtypes=COMPLEXES, tolerance=CLOSE, grad=False, label="defective"),
    *(Case(op, [np.zeros((2, 0, 0))], {}, lambda x: x, dtypes=("complex64",), grad=False,
           label="empty") for op in ("MatrixSquareRoot", "MatrixLogarithm")),
]  # fmt: skip
