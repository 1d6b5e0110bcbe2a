"""Powers and roots against NumPy."""

from __future__ import annotations

import numpy as np
from weft_testing.cases import (
    INEXACT,
    INTEGERS,
    Case,
    complex_normal,
    integers,
    normal,
    uniform,
)

X, Y = complex_normal(3, 4), complex_normal(3, 4, seed=1)
SCALAR, OTHER = np.array(0.7), np.array(-1.3)
FAR = uniform(0.5, 2.0, 3, 4)
COUNTS = integers(0, 6, 3, 4)
SIGNED_COUNTS = integers(-7, 8, 3, 4)
NARROW_POWER = {"float16": (1e-2, 1e-2), "bfloat16": (6e-2, 6e-2)}
EDGES = np.array([0.0, np.inf, np.nan, 2.0])
AWAY = np.where(np.abs(Y) < 0.3, 0.3, Y)

CASES = [
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
            [EDGES, np.zeros(4)],
            expected=lambda y, dy: dy,
            dtypes=INEXACT,
            grad=False,
            label="none",
        )
        for op in ("SqrtGrad", "RsqrtGrad")
    ),
    Case(
        "SqrtGrad",
        [uniform(0.5, 2, 40, 50), normal(40, 50)],
        expected=lambda y, dy: dy * 0.5 / y,
        grad=False,
        label="large",
    ),
]
