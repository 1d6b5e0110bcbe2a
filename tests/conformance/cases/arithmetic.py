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
    WIDE_FLOATS,
    Array,
    Case,
    complex_normal,
    integers,
    normal,
    uniform,
)

X, Y = complex_normal(3, 4), complex_normal(3, 4, seed=1)
ROW, COLUMN = complex_normal(4, seed=2), complex_normal(3, 1, seed=3)
SCALAR, OTHER = np.array(0.7), np.array(-1.3)
BIG, BIG_ROW = complex_normal(40, 50), complex_normal(50, seed=1)
FAR = uniform(0.5, 2.0, 3, 4)
COUNTS = integers(0, 6, 3, 4)
POSITIVE_COUNTS = integers(1, 6, 3, 4, seed=1)
SIGNED_COUNTS = integers(-7, 8, 3, 4)
DIVISORS = np.array([[-3, 2, 5, -1], [3, -2, 1, 4], [7, -5, 2, -2]])
HALVES = np.array([-2.5, -1.5, -0.5, 0.5, 1.5, 2.5, 0.3, -0.7])
NARROW_POWER = {"float16": (1e-2, 1e-2), "bfloat16": (6e-2, 6e-2)}


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

DIVISION = [
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
    Case("MulNoNan", [X, AWAY], expected=_no_nan(np.multiply), dtypes=INEXACT),
    Case(
        "MulNoNan",
        [np.array([np.nan, np.inf, 2.0]), np.array([0.0, 0.0, 3.0])],
        expected=lambda x, y: np.array([0.0, 0.0, 6.0]),
        grad=False,
        label="zeros",
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
]

POWERS = [
    Case("Pow", [FAR, Y.real], expected=np.power, tolerance=NARROW_POWER),
    Case("Pow", [FAR, np.array(3.0)], expected=np.power, tolerance=NARROW_POWER, label="scalar"),
    Case("Pow", [SCALAR, OTHER], expected=np.power, label="scalars"),
    Case(
        "Pow",
        [X + 2, Y],
        expected=np.power,
        dtypes=("complex64", "complex128"),
        tolerance={"complex64": (1e-4, 1e-4)},
    ),
    Case("Pow", [SIGNED_COUNTS % 4, COUNTS % 4], expected=np.power, dtypes=INTEGERS, label="int"),
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
]


def _sign(x: Array) -> Array:
    if x.dtype.kind == "c":
        return np.where(x == 0, 0, x / np.where(x == 0, 1, np.abs(x)))
    return np.where(np.isnan(x), 0, np.sign(x)) if x.dtype.kind == "f" else np.sign(x)


UNARY = [
    Case("Neg", [X], expected=np.negative, dtypes=INEXACT),
    Case("Neg", [SIGNED_COUNTS], expected=np.negative, dtypes=SIGNED, label="int"),
    Case("Neg", [SCALAR], expected=np.negative, label="scalar"),
    Case("Abs", [X.real], expected=np.abs),
    Case("Abs", [SIGNED_COUNTS], expected=np.abs, dtypes=INTEGERS, label="int"),
    Case("Abs", [OTHER], expected=np.abs, label="scalar"),
    Case("Sign", [X], expected=_sign, dtypes=INEXACT),
    Case("Sign", [SIGNED_COUNTS], expected=_sign, dtypes=INTEGERS, label="int"),
    Case("Sign", [np.array([np.nan, -0.0, 0.0, np.inf])], expected=_sign, grad=False, label="nan"),
    Case("Square", [X], expected=np.square, dtypes=INEXACT),
    Case("Square", [COUNTS], expected=np.square, dtypes=INTEGERS, label="int"),
    Case("Sqrt", [FAR], expected=np.sqrt),
    Case("Sqrt", [X + 3], expected=np.sqrt, dtypes=("complex64", "complex128"), label="complex"),
    Case("Sqrt", [SCALAR], expected=np.sqrt, label="scalar"),
    Case("Rsqrt", [FAR], expected=lambda x: 1 / np.sqrt(x)),
    Case(
        "Rsqrt",
        [X + 3],
        expected=lambda x: 1 / np.sqrt(x),
        dtypes=("complex64", "complex128"),
        label="complex",
    ),
    Case(
        "Rsqrt",
        [uniform(0.5, 2, 40, 50)],
        expected=lambda x: 1 / np.sqrt(x),
        grad=False,
        label="large",
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
        Case(op, [HALVES], expected=function)
        for op, function in (
            ("Floor", np.floor),
            ("Ceil", np.ceil),
            ("Rint", np.rint),
            ("Round", np.rint),
        )
    ),
    Case("Round", [SIGNED_COUNTS], expected=lambda x: x, dtypes=INTEGERS, label="int"),
]

GRADIENT_OPS = [
    Case("SqrtGrad", [AWAY, X], expected=lambda y, dy: dy * 0.5 / np.conj(y), dtypes=INEXACT),
    Case(
        "RsqrtGrad",
        [AWAY, X],
        expected=lambda y, dy: dy * -0.5 * np.conj(y) ** 3,
        dtypes=INEXACT,
        tolerance=NARROW_POWER,
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
        "SqrtGrad",
        [uniform(0.5, 2, 40, 50), normal(40, 50)],
        expected=lambda y, dy: dy * 0.5 / y,
        grad=False,
        label="large",
    ),
]


def _clip(t: Array, low: Array, high: Array) -> Array:
    return np.maximum(np.minimum(t, high), low)


LOW, HIGH = np.array(-0.5), np.array(0.5)
MANY = [
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
]

STRINGS = np.array([[b"a", b"bc"], [b"", b"d"]], object)
TEXT = [
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

CASES = [*_binary_rows(), *DIVISION, *POWERS, *UNARY, *GRADIENT_OPS, *MANY, *TEXT]
