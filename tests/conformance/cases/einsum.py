"""Sums of products against NumPy's."""

from __future__ import annotations

from typing import Any

import numpy as np
from weft_testing.cases import INEXACT, INTEGERS, Case, complex_normal, integers

A, B, C = complex_normal(2, 3), complex_normal(3, 4, seed=1), complex_normal(4, 2, seed=2)
SQUARE, BATCH, SEVERAL = complex_normal(3, 3), complex_normal(1, 2, 3), complex_normal(4, 3, 2)
WHOLE = integers(0, 5, 2, 3), integers(0, 5, 3, 2)
CLOSE = {
    "float16": (5e-3, 2e-2),
    "bfloat16": (4e-2, 1e-1),
    "float32": (1e-4, 1e-5),
    "complex64": (1e-4, 1e-5),
}


def _diagonal(x: Any) -> Any:
    return np.einsum("ij,j->i", *x)[:, None] * np.eye(len(x[0]))


def _row(equation: str, *operands: Any, **settings: Any) -> Case:
    settings = {"dtypes": INEXACT, "tolerance": CLOSE, "label": equation} | settings
    expected = settings.pop("expected", lambda x: np.einsum(equation, *x))
    return Case("Einsum", [list(operands)], {"equation": equation}, expected, **settings)


CASES = [
    _row("ij,jk->ik", A, B),
    _row("ij,jk,kl->il", A, B, C),
    _row("ij,kl->jl", A, B, dtypes=("float64", "complex128")),
    _row("ii->i", SQUARE),
    _row("iji->j", complex_normal(3, 2, 3)),
    _row("ij->", A),
    _row("i,i->", A[0], A[1]),
    _row("...ij,...jk->...ik", BATCH, SEVERAL),
    _row("i...j,...jk->...ik", complex_normal(2, 4, 3), complex_normal(3, 2)),
    _row("...->...", A, dtypes=("float64",)),
    _row("ij,j->ii", A, A[0], expected=_diagonal),
    _row(
        "ij,jk->ik",
        integers(0, 5, 2, 3),
        integers(0, 5, 3, 2),
        dtypes=INTEGERS,
        tolerance={},
        label="whole",
    ),
    _row("ij,jk->ik", np.zeros((0, 3)), np.zeros((3, 2)), grad=False, label="empty"),
    _row("ij,jk->ik", np.zeros((2, 0)), np.zeros((0, 2)), grad=False, label="sum-of-none"),
]
