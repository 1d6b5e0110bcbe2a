"""Quotients, remainders and reciprocals against NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
from weft_testing.cases import (
    INEXACT,
    INTEGERS,
    SIGNED,
    WIDE_FLOATS,
    Array,
    Case,
    complex_normal,
    integers,
    uniform,
)

X, Y = complex_normal(3, 4), complex_normal(3, 4, seed=1)
SCALAR, OTHER = np.array(0.7), np.array(-1.3)
BIG, BIG_ROW = complex_normal(40, 50), complex_normal(50, seed=1)
FAR = uniform(0.5, 2.0, 3, 4)
SIGNED_COUNTS = integers(-7, 8, 3, 4)
DIVISORS = np.array([[-3, 2, 5, -1], [3, -2, 1, 4], [7, -5, 2, -2]])
NARROW_POWER = {"float16": (1e-2, 1e-2), "bfloat16": (6e-2, 6e-2)}


def _divide(x: Array, y: Array) -> Array:
    return np.trunc(x / y) if x.dtype.kind in "iu" else x / y


def _no_nan(function: Any) -> Any:
    return lambda x, y: np.where(y == 0, 0, function(x, np.where(y == 0, 1, y)))


def _truncated(x: Array, y: Array) -> Array:
    quotient = x / y
    if quotient.dtype.kind == "c":
        return np.trunc(quotient.real) + 1j * np.trunc(quotient.imag)
    return np.trunc(quotient)


ZEROED = np.where(integers(0, 2, 3, 4) == 1, Y, 0)
AWAY = np.where(np.abs(Y) < 0.3, 0.3, Y)

CASES = [
    *(Case(op, [X, AWAY], expected=_divide, dtypes=INEXACT) for op in ("Div", "RealDiv")),
    *(
        Case(op, [X, AWAY[0]], expected=_divide, dtypes=INEXACT, label="row")
        for op in ("Div", "RealDiv")
    ),
    *(
        Case(op, [SIGNED_COUNTS, DIVISORS], expected=_divide, dtypes=INTEGERS, label="int")
        for op in ("Div", "RealDiv")
    ),
    Case("DivNoNan", [X, AWAY], expected=_no_nan(np.divide), dtypes=INEXACT),
    Case("DivNoNan", [X, ZEROED], expected=_no_nan(np.divide), grad=False, label="zeros"),
    Case("DivNoNan", [SCALAR, OTHER], expected=_no_nan(np.divide), label="scalars"),
    Case(
        "DivNoNan",
        [BIG, BIG_ROW],
        expected=np.divide,
        dtypes=INEXACT,
        grad=False,
        label="large",
        tolerance={"bfloat16": (5e-2, 5e-2)},
    ),
    Case(
        "FloorDiv", [FAR * 10, AWAY.real], expected=lambda x, y: np.floor(x / y), dtypes=WIDE_FLOATS
    ),
    Case(
        "FloorDiv",
        [SIGNED_COUNTS, DIVISORS],
        expected=np.floor_divide,
        dtypes=INTEGERS,
        label="int",
    ),
    Case(
        "FloorDiv",
        [np.array(-7), np.array(2)],
        expected=np.floor_divide,
        dtypes=SIGNED,
        label="scalars",
    ),
    Case("FloorMod", [FAR * 10, AWAY.real], expected=np.mod, dtypes=WIDE_FLOATS),
    Case("FloorMod", [SIGNED_COUNTS, DIVISORS], expected=np.mod, dtypes=INTEGERS, label="int"),
    Case(
        "TruncateDiv",
        [X, AWAY],
        expected=_truncated,
        dtypes=("float32", "float64", "complex64", "complex128"),
    ),
    Case("TruncateDiv", [SIGNED_COUNTS, DIVISORS], expected=_divide, dtypes=INTEGERS, label="int"),
    *(
        row
        for op in ("TruncateMod", "Mod")
        for row in (
            Case(op, [FAR * 10, AWAY.real], expected=np.fmod, dtypes=WIDE_FLOATS),
            Case(op, [SIGNED_COUNTS, DIVISORS], expected=np.fmod, dtypes=INTEGERS, label="int"),
        )
    ),
    *(
        row
        for op in ("Reciprocal", "Inv")
        for row in (
            Case(op, [AWAY], expected=lambda x: 1 / x, dtypes=INEXACT),
            Case(
                op,
                [np.array([1, 2, -1])],
                expected=lambda x: np.trunc(1 / x),
                dtypes=SIGNED,
                label="int",
            ),
        )
    ),
    *(
        Case(
            op,
            [AWAY, X],
            expected=lambda y, dy: -dy * np.conj(y) ** 2,
            dtypes=INEXACT,
            tolerance=NARROW_POWER,
        )
        for op in ("ReciprocalGrad", "InvGrad")
    ),
    Case(
        "ReciprocalGrad",
        [np.array([0.0, np.inf, np.nan, 2.0]), np.zeros(4)],
        expected=lambda y, dy: dy,
        dtypes=INEXACT,
        grad=False,
        label="none",
    ),
]
