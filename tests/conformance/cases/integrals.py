"""Integrals without a closed form against Gauss's sums and power series."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from weft_testing.cases import WIDE_FLOATS, Array, Case

NODES, WEIGHTS = np.polynomial.legendre.leggauss(200)


def _from_0(function: Callable[[Array, Array], Array], x: Array) -> Array:
    """The integrals of function(t, x) from 0 to each x."""
    t = x[:, None] * (NODES + 1) / 2
    return (function(t, x[:, None]) * WEIGHTS).sum(1) * x / 2


def _dawson(x: Array) -> Array:
    return _from_0(lambda t, x: np.exp((t - x) * (t + x)), x)


def _exponential_integral(x: Array) -> Array:
    return np.euler_gamma + np.log(x) + _from_0(lambda t, x: np.expm1(t) / t, x)


def _spence(x: Array) -> Array:
    """From 1 to x, over the logarithm of t."""
    return _from_0(lambda s, x: s * np.exp(s) / -np.expm1(s), np.log(x))


SIGNED = np.array([-7.0, -2.9, -1.0, -0.2, 0.05, 0.7, 1.7, 1.8, 3.1, 6.0])
POSITIVE = np.array([0.02, 0.3, 0.45, 0.55, 0.9, 1.4, 1.9, 2.1, 5.0, 9.0, 23.0, 25.0, 60.0])
FUNCTIONS: dict[str, tuple[Array, Callable[[Array], Array]]] = {
    "Dawsn": (SIGNED, _dawson),
    "Expint": (POSITIVE, _exponential_integral),
    "FresnelCos": (SIGNED, lambda x: _from_0(lambda t, x: np.cos(np.pi / 2 * t * t), x)),
    "FresnelSin": (SIGNED, lambda x: _from_0(lambda t, x: np.sin(np.pi / 2 * t * t), x)),
    "Spence": (POSITIVE, _spence),
}
AT_ENDS = {
    "Dawsn": [-0.538079506912768, 0, 0.538079506912768, 0, np.nan],
    "Expint": [np.nan, -np.inf, 1.89511781635593676, np.inf, np.nan],
    "FresnelCos": [-0.779893400376823, 0, 0.779893400376823, 0.5, np.nan],
    "FresnelSin": [-0.438259147390355, 0, 0.438259147390355, 0.5, np.nan],
    "Spence": [np.nan, np.pi**2 / 6, 0, -np.inf, np.nan],
}

CASES = [
    *(
        Case(
            op,
            [points],
            {},
            function,
            dtypes=WIDE_FLOATS,
            tolerance={"float32": (5e-6, 1e-6), "float64": (2e-12, 2e-13)},
        )
        for op, (points, function) in FUNCTIONS.items()
    ),
    *(
        Case(
            op,
            [np.abs(points[:6]) + 0.13],
            {},
            function,
            dtypes=("float16", "bfloat16"),
            tolerance={"float16": (6e-3, 6e-3), "bfloat16": (5e-2, 5e-2)},
            label="narrow",
        )
        for op, (points, function) in FUNCTIONS.items()
    ),
    *(
        Case(
            op,
            [np.array([-1.0, 0.0, 1.0, np.inf, np.nan])],
            {},
            lambda x, values=values: np.array(values),
            dtypes=WIDE_FLOATS,
            tolerance={"float64": (1e-11, 1e-11)},
            grad=False,
            label="ends",
        )
        for op, values in AT_ENDS.items()
    ),
]
