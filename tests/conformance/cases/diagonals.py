"""Diagonals and bands of matrices against NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
from weft_testing.cases import (
    INEXACT,
    INTEGERS,
    NUMBERS,
    Array,
    Case,
    Raw,
    complex_normal,
    integers,
)


def _matrix_diag(x: Array) -> Array:
    return x[..., None] * np.eye(x.shape[-1], dtype=x.dtype)


def _set_diag(x: Array, d: Array) -> Array:
    result = x.copy()
    at = np.arange(d.shape[-1])
    result[..., at, at] = d
    return result


def _band(lower: int, upper: int) -> Any:
    def reference(x: Array, *_: Array) -> Array:
        low = x if lower < 0 else np.triu(x, -lower)
        return low if upper < 0 else np.tril(low, upper)

    return reference


ANY = (*NUMBERS, "bool")
CASES = [
    Case("Diag", [complex_normal(3)], {}, np.diag, dtypes=INEXACT),
    Case(
        "Diag",
        [integers(0, 9, 2, 3)],
        {},
        lambda x: np.diag(x.reshape(-1)).reshape(2, 3, 2, 3),
        dtypes=INTEGERS,
        label="rank-2",
    ),
    Case("DiagPart", [complex_normal(3, 3)], {}, np.diag, dtypes=INEXACT),
    Case(
        "DiagPart",
        [integers(0, 9, 2, 3, 2, 3)],
        {},
        lambda x: np.diag(x.reshape(6, 6)).reshape(2, 3),
        dtypes=INTEGERS,
        label="rank-4",
    ),
    Case("MatrixDiag", [integers(0, 9, 2, 3)], {}, _matrix_diag, dtypes=ANY),
    *(
        Case(
            "MatrixDiagPart",
            [complex_normal(*shape)],
            {},
            lambda x: np.diagonal(x, axis1=-2, axis2=-1),
            dtypes=INEXACT,
            label=str(shape[-1]),
        )
        for shape in ((2, 3, 3), (2, 3, 4), (4, 2))
    ),
    Case(
        "MatrixSetDiag",
        [complex_normal(2, 3, 4), complex_normal(2, 3)],
        {},
        _set_diag,
        dtypes=INEXACT,
    ),
    Case(
        "MatrixSetDiag",
        [integers(0, 5, 3, 3), integers(0, 5, 3)],
        {},
        _set_diag,
        dtypes=INTEGERS,
        label="int",
    ),
    *(
        Case(
            "MatrixBandPart",
            [complex_normal(2, 3, 4), Raw(lower, kind), Raw(upper, kind)],
            {},
            _band(lower, upper),
            dtypes=INEXACT if kind == "int64" else ("float32",),
            label=f"{lower}-{upper}-{kind}",
        )
        for lower, upper in ((0, -1), (-1, 0), (1, 1), (0, 0))
        for kind in ("int64", "int32")
    ),
]
