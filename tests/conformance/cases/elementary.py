"""Exponentials, logarithms, the logistic function and tests of numbers against NumPy."""

from __future__ import annotations

import numpy as np
from weft_testing.cases import (
    INEXACT,
    WIDE_FLOATS,
    Case,
    analytic,
    complex_normal,
    uniform,
)

X = complex_normal(3, 4)
INSIDE = uniform(-0.9, 0.9, 3, 4)
ABOVE = uniform(1.2, 3.0, 3, 4)
POSITIVE = uniform(0.3, 4.0, 3, 4)
NARROW = {"float16": (6e-3, 6e-3), "bfloat16": (5e-2, 5e-2), "complex64": (5e-5, 5e-5)}
ODD = np.array([0.0, -1.5, np.inf, -np.inf, np.nan])

CASES = [
    *[
        Case(op, [plane, ABOVE * 0.7 + 0.3j], {}, function, dtypes=INEXACT, tolerance=NARROW)
        for plane in (X,)
        for op, function in (
            ("Xlogy", lambda x, y: x * np.log(y)),
            ("Xlog1py", lambda x, y: x * np.log1p(y)),
            ("Xdivy", lambda x, y: x / y),
        )
    ],
    *(
        Case(
            op,
            [np.array([0.0, 0.0, 2.0]), np.array([0.0, np.nan, 1.0])],
            {},
            lambda x, y, last=last: np.array([0.0, 0.0, last]),
            grad=False,
            label="zeros",
        )
        for op, last in (("Xlogy", 0.0), ("Xlog1py", 2 * np.log(2)), ("Xdivy", 2.0))
    ),
    Case("Xlogy", [np.array(2.0), np.array(3.0)], {}, lambda x, y: x * np.log(y), label="scalars"),
    Case("NextAfter", [X.real, X.imag], {}, np.nextafter, dtypes=("float64",), grad=[0]),
    Case(
        "NextAfter",
        [X.real, X.imag],
        {},
        lambda x, y: x,
        dtypes=("float32",),
        grad=False,
        label="near",
    ),
    *analytic("Exp", np.exp, X.real, NARROW),
    *analytic("Expm1", np.expm1, X.real, NARROW),
    *analytic("Log", np.log, POSITIVE, NARROW),
    *analytic("Log1p", np.log1p, POSITIVE, NARROW),
    *analytic("Sigmoid", lambda x: 1 / (1 + np.exp(-x)), X.real, NARROW),
    Case(
        "Sigmoid",
        [np.array([-1e4, -80.0, 80.0, 1e4])],
        expected=lambda x: np.array([0.0, np.exp(-80), 1.0, 1.0]),
        dtypes=WIDE_FLOATS,
        grad=False,
        label="extremes",
    ),
    Case(
        "SigmoidGrad",
        [INSIDE + 0.2j, X],
        expected=lambda y, dy: dy * y * (1 - y),
        dtypes=INEXACT,
        tolerance=NARROW,
    ),
    Case("IsNan", [ODD], expected=np.isnan),
    Case("IsInf", [ODD], expected=np.isinf),
    Case("IsFinite", [ODD], expected=np.isfinite),
    Case("IsFinite", [np.array(1.0)], expected=np.isfinite, label="scalar"),
]
