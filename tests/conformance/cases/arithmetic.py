"""Arithmetic against NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
from weft_testing.cases import (
    INEXACT,
    INTEGERS,
    NUMBERS,
    REALS,
    SIGNED,
    STRING,
    Array,
    Case,
    complex_normal,
    integers,
)

X, Y = complex_normal(3, 4), complex_normal(3, 4, seed=1)
ROW, COLUMN = complex_normal(4, seed=2), complex_normal(3, 1, seed=3)
SCALAR, OTHER = np.array(0.7), np.array(-1.3)
BIG, BIG_ROW = complex_normal(40, 50), complex_normal(50, seed=1)
COUNTS = integers(0, 6, 3, 4)
POSITIVE_COUNTS = integers(1, 6, 3, 4, seed=1)
SIGNED_COUNTS = integers(-7, 8, 3, 4)


def _binary_rows() -> list[Case]:
    rows = []
    for op, function in (
        ("Add", np.add),
        ("AddV2", np.add),
        ("Sub", np.subtract),
        ("Mul", np.multiply),
        ("SquaredDifference", lambda x, y: (x - y) * np.conj(x - y)),
    ):
        rows += [
            Case(op, [X, Y], expected=function, dtypes=INEXACT),
            Case(op, [X, ROW], expected=function, dtypes=INEXACT, label="row"),
            Case(op, [COLUMN, ROW], expected=function, dtypes=INEXACT, label="outer"),
            Case(op, [SCALAR, X], expected=function, label="scalar-left"),
            Case(op, [SCALAR, OTHER], expected=function, dtypes=INEXACT, label="scalars"),
            Case(op, [BIG, BIG_ROW], expected=function, dtypes=INEXACT, grad=False, label="large"),
            Case(
                op, [POSITIVE_COUNTS + 5, COUNTS], expected=function, dtypes=INTEGERS, label="int"
            ),
            Case(op, [np.zeros((0, 4)), ROW], expected=function, grad=False, label="empty"),
        ]
    return rows


def _no_nan(function: Any) -> Any:
    return lambda x, y: np.where(y == 0, 0, function(x, np.where(y == 0, 1, y)))


AWAY = np.where(np.abs(Y) < 0.3, 0.3, Y)


def _sign(x: Array) -> Array:
    if x.dtype.kind == "c":
        return np.where(x == 0, 0, x / np.where(x == 0, 1, np.abs(x)))
    return np.sign(x)


def _clip(t: Array, low: Array, high: Array) -> Array:
    return np.maximum(np.minimum(t, high), low)


LOW, HIGH = np.array(-0.5), np.array(0.5)

STRINGS = np.array([[b"a", b"bc"], [b"", b"d"]], object)

CASES = [
    *_binary_rows(),
    Case("MulNoNan", [X, AWAY], expected=_no_nan(np.multiply), dtypes=INEXACT),
    Case(
        "MulNoNan",
        [np.array([np.nan, np.inf, 2.0]), np.array([0.0, 0.0, 3.0])],
        expected=lambda x, y: np.array([0.0, 0.0, 6.0]),
        grad=False,
        label="zeros",
    ),
    Case("Maximum", [X.real, Y.real], expected=np.maximum, dtypes=REALS),
    Case("Maximum", [X.real, ROW.real], expected=np.maximum, label="row"),
    Case("Minimum", [X.real, Y.real], expected=np.minimum, dtypes=REALS),
    Case("Minimum", [SCALAR, X.real], expected=np.minimum, label="scalar"),
    *(
        Case(
            op,
            [np.array([np.nan, 1.0]), np.array([1.0, np.nan])],
            expected=np.maximum,
            grad=False,
            label="nan",
        )
        for op in ("Maximum", "Minimum")
    ),
    Case("Neg", [X], expected=np.negative, dtypes=INEXACT),
    Case("Neg", [SIGNED_COUNTS], expected=np.negative, dtypes=SIGNED, label="int"),
    Case("Neg", [SCALAR], expected=np.negative, label="scalar"),
    Case("Abs", [X.real], expected=np.abs),
    Case("Abs", [SIGNED_COUNTS], expected=np.abs, dtypes=INTEGERS, label="int"),
    Case("Abs", [OTHER], expected=np.abs, label="scalar"),
    Case("Sign", [X], expected=_sign, dtypes=INEXACT),
    Case("Sign", [SIGNED_COUNTS], expected=_sign, dtypes=INTEGERS, label="int"),
    Case("Sign", [np.array([np.nan, -0.0, 0.0, np.inf])], expected=_sign, grad=False, label="nan"),
    *(
        row
        for op, attrs in (("AddN", {}), ("AccumulateNV2", {"shape": None}))
        for row in (
            Case(op, [[X, Y, AWAY]], attrs, lambda x: x[0] + x[1] + x[2], dtypes=INEXACT),
            Case(op, [[X, Y]], attrs, lambda x: x[0] + x[1], dtypes=NUMBERS[:4], label="pair"),
            Case(op, [[X]], attrs, lambda x: x[0], label="single"),
            Case(op, [[SCALAR, OTHER]], attrs, lambda x: x[0] + x[1], label="scalars"),
            Case(
                op,
                [[BIG, BIG, BIG]],
                attrs,
                lambda x: 3 * x[0],
                dtypes=INEXACT,
                grad=False,
                label="large",
            ),
            Case(
                op,
                [[COUNTS, COUNTS, COUNTS]],
                attrs,
                lambda x: 3 * x[0],
                dtypes=INTEGERS,
                label="int",
            ),
        )
    ),
    Case("ClipByValue", [X.real, LOW, HIGH], expected=_clip),
    Case(
        "ClipByValue",
        [X.real, np.full(4, -0.5), np.full((3, 1), 0.5)],
        expected=_clip,
        label="broadcast",
    ),
    Case("ClipByValue", [SCALAR, LOW, HIGH], expected=_clip, label="scalar"),
    Case(
        "ClipByValue",
        [COUNTS, np.array(1), np.array(3)],
        expected=_clip,
        dtypes=INTEGERS,
        label="int",
    ),
    Case(
        "Add",
        [STRINGS, np.array(b"!", object)],
        expected=lambda x, y: x + y,
        dtypes=STRING,
        label="string",
    ),
    Case(
        "Add",
        [np.array(b"a", object), np.array(b"b", object)],
        expected=lambda x, y: np.array(b"ab", object),
        dtypes=STRING,
        label="strings",
    ),
]
