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


def _spots(shape: tuple[int, ...], lower: int, upper: int, align: str) -> list[tuple[int, ...]]:
    """Row and column in the matrix, then in the diagonals, of each element of some diagonals."""
    above, _, below = align.partition("_")
    lengths = {d: len(np.diagonal(np.empty(shape), d)) for d in range(lower, upper + 1)}
    longest = max(lengths.values())
    return [
        (i + max(-d, 0), i + max(d, 0), upper - d, i + right * (longest - length))
        for d, length in lengths.items()
        for right in [(above if d >= 0 else below) == "RIGHT"]
        for i in range(length)
    ]


def _diagonals_of(align: str) -> Any:
    def reference(x: Array, k: Array, padding: Array) -> Array:
        lower, upper = int(k.reshape(-1)[0]), int(k.reshape(-1)[-1])
        spots = _spots(x.shape[-2:], lower, upper, align)
        longest = max(at for *_, at in spots) + 1
        result = np.full((*x.shape[:-2], upper - lower + 1, longest), padding, x.dtype)
        for row, column, which, at in spots:
            result[..., which, at] = x[..., row, column]
        return result[..., 0, :] if lower == upper else result

    return reference


def _with_diagonals(align: str) -> Any:
    def reference(x: Array, diagonal: Array, k: Array) -> Array:
        lower, upper = int(k.reshape(-1)[0]), int(k.reshape(-1)[-1])
        rows = diagonal[..., None, :] if lower == upper else diagonal
        result = x.copy()
        for row, column, which, at in _spots(x.shape[-2:], lower, upper, align):
            result[..., row, column] = rows[..., which, at]
        return result

    return reference


def _made_of(size: tuple[int, int], align: str) -> Any:
    def reference(diagonal: Array, k: Array, rows: Array, columns: Array, padding: Array) -> Array:
        lead = diagonal.shape[: -1 if k.size == 1 or k[0] == k[-1] else -2]
        whole = np.full((*lead, *size), padding, diagonal.dtype)
        result: Array = _with_diagonals(align)(whole, diagonal, k)
        return result

    return reference


def _versions(op: str) -> list[tuple[str, dict[str, Any], str]]:
    """The versions of an op, with attributes and how they align."""
    aligned = [(op + "V3", {"align": each}, each) for each in ("RIGHT_LEFT", "LEFT_RIGHT")]
    return [*aligned, (op + "V2", {}, "LEFT_LEFT")]


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
            op,
            [complex_normal(2, 3, 4), Raw(k, "int32"), complex_normal()],
            attrs,
            _diagonals_of(align),
            dtypes=INEXACT if k == [-1, 2] else ("float32",),
            label=f"{k}-{align}",
        )
        for op, attrs, align in _versions("MatrixDiagPart")
        for k in ([-1, 2], [0, 1], [-2, -1], 1)
    ),
    *(
        Case(
            op,
            [complex_normal(2, 3, 4), complex_normal(2, *shape), Raw(k, "int32")],
            attrs,
            _with_diagonals(align),
            dtypes=INEXACT if k == [-1, 2] else ("float32",),
            label=f"{k}-{align}",
        )
        for op, attrs, align in _versions("MatrixSetDiag")
        for k, shape in (([-1, 2], (4, 3)), (-1, (2,)))
    ),
    *(
        Case(
            op,
            [
                complex_normal(2, *shape),
                *(Raw(value, "int32") for value in (k, *given)),
                complex_normal(),
            ],
            attrs,
            _made_of(size, align),
            dtypes=INEXACT if k == [-1, 2] else ("float32",),
            label=f"{k}-{given}-{align}",
        )
        for op, attrs, align in _versions("MatrixDiag")
        for k, shape, given, size in (
            ([-1, 2], (4, 3), (3, 4), (3, 4)),
            (1, (3,), (-1, -1), (4, 4)),
            (-1, (3,), (-1, 3), (4, 3)),
            (0, (3,), (5, -1), (5, 3)),
        )
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
