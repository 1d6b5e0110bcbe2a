"""Products of matrices against NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
from weft_testing.cases import (
    COMPLEXES,
    INEXACT,
    INTEGERS,
    REALS,
    Array,
    Case,
    complex_normal,
    integers,
    normal,
)

LOOSE = {
    "float16": (5e-3, 2e-2),
    "bfloat16": (4e-2, 1e-1),
    "float32": (1e-4, 1e-5),
    "complex64": (1e-4, 1e-5),
}


def _product(ta: bool, tb: bool) -> Any:
    return lambda a, b: (a.T if ta else a) @ (b.T if tb else b)


def _adjoint(x: Array, yes: bool) -> Array:
    return np.conj(x.swapaxes(-1, -2)) if yes else x


def _batched(ax: bool, ay: bool) -> Any:
    return lambda x, y: _adjoint(x, ax) @ _adjoint(y, ay)


def _matmul_rows() -> list[Case]:
    rows = []
    for ta in (False, True):
        for tb in (False, True):
            a = complex_normal(*((4, 3) if ta else (3, 4)))
            b = complex_normal(*((5, 4) if tb else (4, 5)), seed=1)
            attrs = {"transpose_a": ta, "transpose_b": tb}
            label = f"{'t' if ta else 'n'}{'t' if tb else 'n'}"
            rows.append(
                Case(
                    "MatMul",
                    [a, b],
                    attrs,
                    _product(ta, tb),
                    dtypes=INEXACT,
                    tolerance=LOOSE,
                    label=label,
                )
            )
            large = complex_normal(60, 60)
            rows.append(
                Case(
                    "MatMul",
                    [large, large],
                    attrs,
                    _product(ta, tb),
                    dtypes=INEXACT,
                    tolerance=LOOSE,
                    grad=False,
                    label=f"{label}-large",
                )
            )
    return rows


def _batch_rows() -> list[Case]:
    rows = []
    for op in ("BatchMatMul", "BatchMatMulV2"):
        for ax, ay in ((False, False), (True, False), (False, True), (True, True)):
            x = complex_normal(2, *((4, 3) if ax else (3, 4)))
            y = complex_normal(2, *((5, 4) if ay else (4, 5)), seed=1)
            rows.append(
                Case(
                    op,
                    [x, y],
                    {"adj_x": ax, "adj_y": ay},
                    _batched(ax, ay),
                    dtypes=INEXACT,
                    tolerance=LOOSE,
                    label=f"{'a' if ax else 'n'}{'a' if ay else 'n'}",
                )
            )
    return rows


CASES = [
    *_matmul_rows(),
    *_batch_rows(),
    Case(
        "MatMul",
        [integers(0, 5, 3, 4), integers(0, 5, 4, 2)],
        {},
        np.matmul,
        dtypes=INTEGERS,
        label="int",
    ),
    Case("MatMul", [np.zeros((0, 3)), normal(3, 2)], {}, np.matmul, grad=False, label="no-rows"),
    Case("MatMul", [np.zeros((2, 0)), np.zeros((0, 3))], {}, np.matmul, label="no-inner"),
    Case(
        "BatchMatMulV2",
        [normal(2, 1, 3, 4), normal(5, 4, 2)],
        {},
        np.matmul,
        tolerance=LOOSE,
        label="broadcast",
    ),
    Case(
        "BatchMatMulV2",
        [normal(3, 4), normal(5, 4, 2)],
        {},
        np.matmul,
        tolerance=LOOSE,
        label="matrix-left",
    ),
    Case(
        "BatchMatMulV2",
        [complex_normal(5, 4, 3), complex_normal(4, 2)],
        {"adj_x": True},
        _batched(True, False),
        dtypes=COMPLEXES,
        tolerance=LOOSE,
        label="adjoint-broadcast",
    ),
    Case(
        "Cross", [normal(4, 3), normal(4, 3, seed=1)], {}, np.cross, dtypes=("float32", "float64")
    ),
    Case(
        "Cross",
        [integers(0, 3, 2, 3), integers(0, 3, 2, 3, seed=1)],
        {},
        lambda a, b: np.cross(a.astype(int), b.astype(int)),
        dtypes=REALS[4:8],
        label="int",
    ),
]
