"""Trigonometric and hyperbolic functions against NumPy."""

from __future__ import annotations

import numpy as np
from weft_testing.cases import (
    INEXACT,
    Case,
    analytic,
    complex_normal,
    uniform,
)

X = complex_normal(3, 4)
INSIDE = uniform(-0.9, 0.9, 3, 4)
ABOVE = uniform(1.2, 3.0, 3, 4)
BIG = uniform(0.2, 0.8, 40, 60)
NARROW = {"float16": (6e-3, 6e-3), "bfloat16": (5e-2, 5e-2), "complex64": (5e-5, 5e-5)}

CASES = [
    *analytic("Sin", np.sin, X.real, NARROW),
    *analytic("Cos", np.cos, X.real, NARROW),
    *analytic("Tan", np.tan, INSIDE, NARROW),
    *analytic("Asin", np.arcsin, INSIDE, NARROW),
    *analytic("Acos", np.arccos, INSIDE, NARROW),
    *analytic("Atan", np.arctan, X.real, NARROW),
    *analytic("Sinh", np.sinh, X.real, NARROW),
    *analytic("Cosh", np.cosh, X.real, NARROW),
    *analytic("Tanh", np.tanh, X.real, NARROW),
    *analytic("Asinh", np.arcsinh, X.real, NARROW),
    *analytic("Acosh", np.arccosh, ABOVE, NARROW, beyond_one=True),
    *analytic("Atanh", np.arctanh, INSIDE, NARROW),
    Case("Atan2", [X.real, X.imag], expected=np.arctan2),
    Case("Atan2", [X.real, X.imag[:, :1]], expected=np.arctan2, label="broadcast"),
    Case(
        "TanhGrad",
        [INSIDE + 0.2j, X],
        expected=lambda y, dy: dy * (1 - y**2),
        dtypes=INEXACT,
        tolerance=NARROW,
    ),
    Case(
        "TanhGrad",
        [BIG, BIG],
        expected=lambda y, dy: dy * (1 - y * y),
        grad=False,
        tolerance=NARROW,
        label="large",
    ),
]
