"""Linear algebra compared with NumPy, and factorizations with their products."""

from __future__ import annotations

from typing import Any

import numpy as np
from weft_testing.cases import (
    COMPLEXES,
    WIDE_FLOATS,
    WIDE_INEXACT,
    Array,
    Case,
    Raw,
    complex_normal,
    normal,
)

from weft_graph.ir.builder import out
from weft_graph.ops import permutation

LOOSE = {"float32": (2e-3, 2e-4), "complex64": (2e-3, 2e-4), "float64": (1e-9, 1e-10),
         "complex128": (1e-9, 1e-10)}  # fmt: skip
UNIT = 2.5 * np.eye(3)
SQUARE = complex_normal(2, 3, 3) + UNIT
RIGHT = complex_normal(2, 3, 2, seed=1)
TALL, WIDE = complex_normal(4, 3), complex_normal(2, 2, 4)
BIG = normal(100, 100) / 10 + 2.5 * np.eye(100)


def _adjoint(x: Array) -> Array:
    return np.conj(x.swapaxes(-1, -2))


def _symmetric(shift: float) -> Any:
    """A graph function: half of x + adjoint(x), plus a multiple of the unit matrix."""

    def prepare(x: Any) -> Any:
        half = np.array(0.5, x.dtype.numpy)
        unit = np.array(shift * np.eye(3), x.dtype.numpy)
        both = out("AddV2", [x, permutation.matrix_transpose(x, conjugate=True)])
        return out("AddV2", [out("Mul", [half, both]), unit])

    return prepare


DEFINITE = {0: _symmetric(5.0)}
SPREAD = {0: _symmetric(0.0)}
DISTINCT = np.diag([1.0, 4.0, 9.0]) + 0.3 * normal(3, 3)


def _inverses() -> list[Case]:
    return [
        row
        for yes in (False, True)
        for turn in (_adjoint if yes else (lambda x: x),)
        for label in ("adjoint" if yes else "plain",)
        for row in (
            Case("MatrixInverse", [SQUARE], {"adjoint": yes},
                 lambda x, turn=turn: np.linalg.inv(turn(x)), dtypes=WIDE_INEXACT, tolerance=LOOSE,
                 label=label),
            Case("MatrixSolve", [SQUARE, RIGHT], {"adjoint": yes},
                 lambda a, b, turn=turn: np.linalg.solve(turn(a), b), dtypes=WIDE_INEXACT,
                 tolerance=LOOSE, label=label),
        )
    ]  # fmt: skip


def _triangular(lower: bool, adjoint: bool) -> Any:
    def reference(a: Array, b: Array) -> Array:
        half = np.tril(a) if lower else np.triu(a)
        return np.linalg.solve(_adjoint(half) if adjoint else half, b)

    return reference


def _triangular_rows() -> list[Case]:
    rows = []
    for lower in (True, False):
        for adjoint in (False, True):
            attrs = {"lower": lower, "adjoint": adjoint}
            label = f"{'lower' if lower else 'upper'}{'-adjoint' if adjoint else ''}"
            rows += [
                Case(
                    "MatrixTriangularSolve",
                    [SQUARE, RIGHT],
                    attrs,
                    _triangular(lower, adjoint),
                    dtypes=WIDE_INEXACT,
                    tolerance=LOOSE,
                    label=label,
                ),
                Case(
                    "MatrixTriangularSolve",
                    [BIG, normal(100, 5)],
                    attrs,
                    _triangular(lower, adjoint),
                    dtypes=WIDE_FLOATS,
                    tolerance=LOOSE,
                    grad=False,
                    label=f"{label}-blocks",
                ),
            ]
    return rows


def _least_squares(l2: float) -> Any:
    def reference(a: Array, b: Array, weight: Any) -> Array:
        unit = l2 * np.eye(a.shape[-1])
        if l2 == 0:
            return np.linalg.pinv(a) @ b
        return np.linalg.solve(_adjoint(a) @ a + unit, _adjoint(a) @ b)

    return reference


LEAST_SQUARES = [
    Case(
        "MatrixSolveLs",
        [matrix, rhs, Raw(l2, "float64")],
        {},
        _least_squares(l2),
        dtypes=WIDE_INEXACT,
        tolerance=LOOSE,
        knowledge=("static",) if gradient else ("static", "ranked", "unknown"),
        grad=None if gradient else False,
        label=f"{label}-{l2}{'-gradient' if gradient else ''}",
    )
    for label, matrix, rhs in (
        ("tall", TALL, complex_normal(4, 2)),
        ("wide", WIDE, complex_normal(2, 2, 3)),
    )
    for l2 in (0.0, 0.5)
    for gradient in (False, True)
]

DETERMINANTS = [
    Case("MatrixDeterminant", [SQUARE], {}, np.linalg.det, dtypes=WIDE_INEXACT, tolerance=LOOSE),
    Case(
        "LogMatrixDeterminant",
        [SQUARE],
        {},
        lambda x: tuple(np.linalg.slogdet(x)),
        dtypes=WIDE_INEXACT,
        tolerance=LOOSE,
    ),
    Case(
        "Cholesky",
        [complex_normal(2, 3, 3)],
        {},
        np.linalg.cholesky,
        dtypes=WIDE_INEXACT,
        tolerance=LOOSE,
        prepare=DEFINITE,
    ),
]


def _eigenvalues(x: Array) -> tuple[Array, Array]:
    return np.linalg.eigvalsh(x), np.zeros(0)


def _values(x: Array) -> tuple[Array, Array, Array]:
    return np.linalg.svd(x, compute_uv=False), np.zeros(0), np.zeros(0)


def _expm(x: Array) -> Array:
    """By the power series of a scaled matrix, squared back."""
    scaled = x / 2**8
    total = term = np.broadcast_to(np.eye(x.shape[-1]), x.shape).astype(x.dtype)
    for k in range(1, 20):
        term = term @ scaled / k
        total = total + term
    for _ in range(8):
        total = total @ total
    return total


EXPONENTIALS = [
    Case("MatrixExponential", [SQUARE], {}, _expm, dtypes=WIDE_INEXACT, tolerance=LOOSE),
    Case(
        "MatrixExponential",
        [SQUARE[0] * 5],
        {},
        _expm,
        dtypes=WIDE_INEXACT,
        tolerance=LOOSE,
        grad=False,
        label="scaled",
    ),
    Case("MatrixExponential", [np.zeros((2, 2))], {}, _expm, dtypes=WIDE_FLOATS, label="zero"),
    Case(
        "MatrixExponential",
        [np.zeros((2, 0, 0))],
        {},
        lambda x: x,
        dtypes=WIDE_FLOATS,
        grad=False,
        label="empty",
    ),
]

FACTORS = [
    Case(
        "SelfAdjointEigV2",
        [complex_normal(2, 3, 3)],
        {"compute_v": False},
        _eigenvalues,
        dtypes=WIDE_INEXACT,
        tolerance=LOOSE,
        prepare=SPREAD,
        order=1,
        label="values",
    ),
    Case(
        "SelfAdjointEigV2",
        [DISTINCT],
        {},
        lambda x: tuple(np.linalg.eigh(x)),
        dtypes=("float64",),
        tolerance=LOOSE,
        prepare=SPREAD,
    ),
    Case(
        "SelfAdjointEigV2",
        [complex_normal(3, 3)],
        {},
        None,
        dtypes=COMPLEXES,
        prepare=SPREAD,
        grad=False,
        label="complex",
    ),
    *(
        Case(
            "Svd",
            [x],
            {"compute_uv": False},
            _values,
            dtypes=WIDE_INEXACT,
            tolerance=LOOSE,
            order=1,
            label=f"values-{label}",
        )
        for label, x in (("tall", TALL), ("wide", WIDE))
    ),
    *(
        Case("Svd", [x.real], {}, None, dtypes=WIDE_FLOATS, grad_tolerance=1e-5, label=label)
        for label, x in (("tall", TALL), ("wide", WIDE), ("square", SQUARE))
    ),
    Case(
        "Svd", [TALL], {"full_matrices": True}, None, dtypes=WIDE_INEXACT, grad=False, label="full"
    ),
    *(
        Case(
            "Qr",
            [x.real],
            {},
            lambda x: tuple(np.linalg.qr(x)),
            dtypes=WIDE_FLOATS,
            tolerance=LOOSE,
            grad=False,
            label=label,
        )
        for label, x in (("tall", TALL), ("wide", WIDE), ("square", SQUARE))
    ),
    *(
        Case(
            "Qr",
            [x.real],
            {},
            None,
            dtypes=("float64",),
            knowledge=("static",),
            label=f"{label}-gradient",
        )
        for label, x in (("tall", TALL), ("wide", WIDE), ("square", SQUARE))
    ),
    Case(
        "Qr", [TALL], {"full_matrices": True}, None, dtypes=WIDE_INEXACT, grad=False, label="full"
    ),
]


CASES = [
    *_inverses(),
    *_triangular_rows(),
    *LEAST_SQUARES,
    *DETERMINANTS,
    *FACTORS,
    *EXPONENTIALS,
]
