"""Triangular factors against elimination row by row."""

from __future__ import annotations

import numpy as np
from weft_testing.cases import WIDE_INEXACT, Array, Case, complex_normal, normal

CLOSE = {"float32": (1e-4, 1e-4), "complex64": (1e-4, 1e-4), "float64": (1e-10, 1e-10),
         "complex128": (1e-10, 1e-10), "float16": (2e-2, 2e-2)}  # fmt: skip


def _factors(x: Array) -> tuple[Array, Array]:
    *lead, n, _ = x.shape
    results = [_of_one(matrix) for matrix in x.reshape(-1, n, n)]
    return (
        np.array([a for a, _ in results]).reshape(x.shape),
        np.array([rows for _, rows in results]).reshape(*lead, n),
    )


def _of_one(matrix: Array) -> tuple[Array, Array]:
    a, rows = matrix.copy(), np.arange(len(matrix))
    for k in range(len(a)):
        pivot = k + int(np.abs(a[k:, k]).argmax())
        a[[k, pivot]], rows[[k, pivot]] = a[[pivot, k]], rows[[pivot, k]]
        for i in range(k + 1, len(a)):
            a[i, k] /= a[k, k]
            a[i, k + 1 :] -= a[i, k] * a[k, k + 1 :]
    return a, rows


CASES = [
    Case("Lu", [complex_normal(2, 3, 4, 4)], {}, _factors, dtypes=("float16", *WIDE_INEXACT),
         tolerance=CLOSE),
    Case("Lu", [normal(70, 70)], {}, _factors, dtypes=("float32", "float64"), tolerance=CLOSE,
         grad=False, label="blocks"),
]  # fmt: skip
