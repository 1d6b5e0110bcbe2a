"""Special functions against series, integrals and recurrences."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from weft_testing.cases import (
    WIDE_FLOATS,
    Array,
    Case,
    normal,
    uniform,
)

POSITIVE = uniform(0.3, 4.0, 3, 4)
SCALAR = np.array(0.4)
NARROW = {"float16": (6e-3, 6e-3), "bfloat16": (5e-2, 5e-2), "complex64": (5e-5, 5e-5)}
SPECIAL = {"float32": (1e-5, 1e-6), "float64": (2e-13, 1e-13)}


def _of_scalars(function: Any) -> Any:
    return np.vectorize(function, otypes=[np.float64])


_erf, _erfc, _lgamma = map(_of_scalars, (math.erf, math.erfc, math.lgamma))
WIDE = np.concatenate([np.linspace(-6, 6, 41), [30.0, -30.0]])
GAMMA_POINTS = np.concatenate([np.linspace(-4.6, 20.3, 50), [1.0, 2.0, 100.5, 1e5]])


def _digamma(x: Array) -> Array:
    """By recurrence up to 30 and the asymptotic series there."""
    total, at = np.zeros_like(x), x.copy()
    for _ in range(60):
        low = at < 30
        total -= np.where(low, 1 / np.where(low, at, 1), 0)
        at = np.where(low, at + 1, at)
    tail = 1 / (12 * at**2) - 1 / (120 * at**4) + 1 / (252 * at**6)
    return total + np.log(at) - 0.5 / at - tail


def _zeta(x: Array, q: Array) -> Array:
    """A long sum and the integral of its tail."""
    n = 2000
    k = np.arange(n).reshape(-1, *(1,) * max(np.ndim(x), np.ndim(q)))
    at = q + n
    tail = at ** (1 - x) / (x - 1) + 0.5 * at**-x + x / 12 * at ** (-x - 1)
    return ((q + k) ** -x).sum(0) + tail


def _polygamma(a: Array, x: Array) -> Array:
    factorial = np.vectorize(lambda n: math.factorial(int(n)), otypes=[np.float64])(a)
    higher = (-1) ** (a + 1) * factorial * _zeta(np.maximum(a, 1) + 1.0, x)
    return np.where(a == 0, _digamma(np.broadcast_to(x, higher.shape).copy()), higher)


def _igamma(a: Array, x: Array) -> Array:
    """By the power series, which converges everywhere."""
    term = np.exp(-x + a * np.log(x) - _lgamma(a + 1))
    total = term.copy()
    for k in range(1, 400):
        term = term * x / (a + k)
        total += term
    return total


def _igamma_grad_a(a: Array, x: Array) -> Array:
    h = 1e-3
    near = _igamma(a + h, x) - _igamma(a - h, x)
    far = _igamma(a + 2 * h, x) - _igamma(a - 2 * h, x)
    return (8 * near - far) / (12 * h)


# Far out, where the power series has too many terms: values of 50 digits, rounded.
FAR_SHAPES = np.array([131072.0, 131072.0, 131072.0, 131072.0, 3e38, 2.0, 2.0])
FAR_POINTS = np.array([131072.0, 131584.0, 0.0, np.inf, 3e38, 1e30, np.inf])
FAR = np.array(
    [
        [0.500367310942357305, 0.921215753319325731, 0, 1, 0.5, 1, 1],
        [-0.0011019334809571064, -0.000405640878844086406, 0, 0, -2.30329433e-20, 0, 0],
    ]
)


SHAPES = np.array([[0.3, 1.0, 2.5], [7.0, 12.5, 40.0]])
POINTS = np.array([[0.1, 1.5, 2.0], [11.0, 9.0, 44.0]])
LOOSE = {"float32": (2e-5, 1e-6), "float64": (1e-11, 1e-12)}
ORDERS = np.array([[0.0, 1, 2], [1, 3, 4]])
ARGUMENTS = np.array([[0.7, 2.2, 5.1], [3.3, 1.1, 14.0]])

CASES = [
    Case("Erf", [WIDE], expected=_erf, tolerance=SPECIAL),
    Case("Erf", [SCALAR], expected=_erf, tolerance=SPECIAL, label="scalar"),
    Case("Erf", [normal(100, 200)], expected=_erf, tolerance=SPECIAL, grad=False, label="large"),
    Case("Erfc", [WIDE], expected=_erfc, tolerance=SPECIAL),
    Case(
        "Erfc",
        [np.array([0.6, 2.0, 5.0, 9.0, 20.0])],
        expected=_erfc,
        dtypes=("float64",),
        tolerance={"float64": (2e-14, 0.0)},
        grad=False,
        label="tail",
    ),
    Case(
        "Lgamma",
        [GAMMA_POINTS],
        expected=_lgamma,
        dtypes=WIDE_FLOATS,
        tolerance={"float32": (1e-5, 1e-5), "float64": (1e-12, 1e-12)},
        grad=False,
    ),
    Case("Lgamma", [POSITIVE], expected=_lgamma, tolerance=NARROW, label="positive"),
    Case(
        "Digamma",
        [GAMMA_POINTS],
        expected=_digamma,
        dtypes=WIDE_FLOATS,
        tolerance={"float32": (3e-4, 1e-4), "float64": (1e-11, 1e-12)},
        grad=False,
    ),
    Case("Digamma", [POSITIVE], expected=_digamma, tolerance=NARROW, label="positive"),
    Case(
        "Digamma",
        [np.array([0.0, -0.0, -1.0, -2.0, 1.0])],
        expected=lambda x: np.where(x <= 0, np.nan, -np.euler_gamma),
        dtypes=WIDE_FLOATS,
        tolerance={"float32": (1e-5, 0.0), "float64": (1e-12, 0.0)},
        grad=False,
        label="poles",
    ),
    Case(
        "Lgamma",
        [np.array([0.0, -0.0, -1.0, -2.0, -np.inf, 1.0])],
        expected=lambda x: np.where(x <= 0, np.inf, 0.0),
        dtypes=WIDE_FLOATS,
        grad=False,
        label="poles",
    ),
    Case(
        "Zeta",
        [ARGUMENTS + 1, POINTS + 1],
        expected=_zeta,
        dtypes=WIDE_FLOATS,
        tolerance=LOOSE,
        grad=[1],
    ),
    Case(
        "Zeta",
        [np.array([2.0, 1.0, 0.5, 2.0, 35.0]), np.array([1.0, 2.0, 2.0, -1.0, 40.0])],
        expected=lambda x, q: np.array([np.pi**2 / 6, np.inf, np.nan, np.inf, _zeta(x, q)[4]]),
        dtypes=WIDE_FLOATS,
        tolerance=LOOSE,
        grad=False,
        label="limits",
    ),
    Case(
        "Zeta",
        [np.array([4.0, 7.0, 2.0, 3e38, 3.0]), np.array([-0.25, -60.75, -999999.5, 2.0, np.inf])],
        expected=lambda x, q: np.array(
            [259.2938854224751, 16376.701057278609, 9.86960340108935862, 0.0, 0.0]
        ),
        dtypes=WIDE_FLOATS,
        tolerance=LOOSE,
        grad=False,
        label="far",
    ),
    Case(
        "Polygamma",
        [ORDERS, ARGUMENTS],
        expected=_polygamma,
        dtypes=WIDE_FLOATS,
        tolerance={"float32": (1e-4, 1e-5), "float64": (1e-10, 1e-11)},
        grad=[1],
    ),
    Case(
        "Igamma", [SHAPES, POINTS], expected=_igamma, dtypes=WIDE_FLOATS, tolerance=LOOSE, order=1
    ),
    Case(
        "Igamma",
        [SHAPES, POINTS],
        expected=_igamma,
        dtypes=WIDE_FLOATS,
        tolerance=LOOSE,
        grad=[1],
        label="second-order",
    ),
    Case(
        "Igammac",
        [SHAPES, POINTS],
        expected=lambda a, x: 1 - _igamma(a, x),
        dtypes=WIDE_FLOATS,
        tolerance=LOOSE,
        order=1,
    ),
    Case(
        "IgammaGradA",
        [SHAPES, POINTS],
        expected=_igamma_grad_a,
        dtypes=WIDE_FLOATS,
        grad=False,
        tolerance={"float32": (1e-4, 1e-6), "float64": (1e-7, 1e-10)},
    ),
    Case(
        "Igamma",
        [FAR_SHAPES, FAR_POINTS],
        expected=lambda a, x: FAR[0],
        dtypes=WIDE_FLOATS,
        tolerance=LOOSE,
        grad=False,
        label="far",
    ),
    Case(
        "Igammac",
        [FAR_SHAPES, FAR_POINTS],
        expected=lambda a, x: 1 - FAR[0],
        dtypes=WIDE_FLOATS,
        tolerance=LOOSE,
        grad=False,
        label="far",
    ),
    Case(
        "IgammaGradA",
        [FAR_SHAPES, FAR_POINTS],
        expected=lambda a, x: FAR[1],
        dtypes=WIDE_FLOATS,
        tolerance={"float32": (1e-5, 1e-12), "float64": (1e-9, 1e-14)},
        grad=False,
        label="far",
    ),
]


def _bisected(function: Any, low: float, high: float) -> Any:
    """The inverse of a rising function."""

    def of_one(y: float) -> float:
        below, above = low, high
        for _ in range(200):
            middle = (below + above) / 2
            below, above = (middle, above) if function(middle) < y else (below, middle)
        return (below + above) / 2

    return _of_scalars(of_one)


def _normal(x: float) -> float:
    return 0.5 * math.erfc(-x / math.sqrt(2))


def _betainc(a: Array, b: Array, x: Array) -> Array:
    """By the power series, for x up to 0.6."""
    log = a * np.log(x) + _lgamma(a + b) - _lgamma(a) - _lgamma(b)
    total, coefficient = 1 / a, np.ones_like(a)
    for n in range(1, 400):
        coefficient = coefficient * (n - b) / n * x
        total = total + coefficient / (a + n)
    return np.exp(log) * total


def _moved_quantile(a: Array, x: Array) -> Array:
    density = np.exp((a - 1) * np.log(x) - x - _lgamma(a))
    return -_igamma_grad_a(a, x) / density


QUANTILES = {"float32": (2e-7, 1e-9), "float64": (2e-14, 1e-15)}
BETA_A, BETA_B = np.array([[0.3, 1.0, 2.5], [7.0, 40.0, 3.0]]), np.array([0.5, 2.0, 13.0])
BETA_X = np.array([[0.1, 0.5, 0.3], [0.55, 0.9, 0.2]])

BETA_FAR = np.array(
    [
        0.6759788786635407,
        0.5081746886456149,
        0.5768099606825854,
        0.5724065488396923,
        0.25,
        0,
        1,
        np.nan,
        np.nan,
    ]
)

CASES += [
    Case(
        "Erfinv",
        [np.array([-0.999, -0.7, -0.5, -1e-4, 0.0, 0.3, 0.6, 0.95])],
        expected=_bisected(math.erf, -6, 6),
        dtypes=WIDE_FLOATS,
        tolerance=QUANTILES,
    ),
    Case(
        "Ndtri",
        [np.array([1e-30, 1e-4, 0.1, 0.25, 0.4999, 0.5, 0.6, 0.76, 0.99])],
        expected=_bisected(_normal, -40, 40),
        tolerance=QUANTILES | {"float64": (1e-13, 1e-15)},
        dtypes=WIDE_FLOATS,
        grad=False,
    ),
    Case(
        "Erfinv",
        [np.array([0.1, 0.3, -0.6, 0.8])],
        expected=_bisected(math.erf, -6, 6),
        dtypes=("float16", "bfloat16"),
        tolerance=NARROW,
        label="narrow",
    ),
    Case(
        "Ndtri",
        [np.array([0.1, 0.3, 0.6, 0.9])],
        expected=_bisected(_normal, -40, 40),
        tolerance=NARROW | QUANTILES,
        label="middle",
    ),
    *(
        Case(
            op,
            [np.array(ends)],
            expected=lambda x: np.array([-np.inf, np.inf, np.nan, np.nan]),
            grad=False,
            label="ends",
        )
        for op, ends in (("Erfinv", [-1.0, 1, -2, np.nan]), ("Ndtri", [0.0, 1, -1, 3]))
    ),
    Case(
        "Betainc",
        [BETA_A, BETA_B, BETA_X],
        expected=lambda a, b, x: _betainc(np.broadcast_to(a, x.shape), b, x),
        dtypes=WIDE_FLOATS,
        tolerance=LOOSE,
        grad=[2],
        order=1,
    ),
    Case(
        "Betainc",
        [
            np.array([2e6, 500.0, 3.0, 2e6, 1.0, 2, 2, 0, 2]),
            np.array([3e6, 2e6, 4e7, 1.5, 1.0, 3, 3, 1, 3]),
            np.array([0.4001, 2.5e-4, 7.5e-8, 0.9999995, 0.25, 0, 1, 0.5, 1.5]),
        ],
        # The first four have 12 digits of SciPy's; the rest is exact.
        expected=lambda a, b, x: BETA_FAR,
        dtypes=("float64",),
        tolerance={"float64": (2e-7, 1e-12)},
        grad=False,
        label="far",
    ),
    # Far above the shape, where the terms of the power series take one another away.
    Case(
        "RandomGammaGrad",
        [np.array([7.0, 0.3]), np.array([44.0, 9.0])],
        expected=lambda a, x: np.array([2.23393072895322, 5.41084636090755]),
        dtypes=WIDE_FLOATS,
        grad=False,
        tolerance={"float32": (1e-4, 1e-6), "float64": (1e-12, 1e-12)},
        label="above",
    ),
    Case(
        "RandomGammaGrad",
        [SHAPES, POINTS],
        expected=_moved_quantile,
        dtypes=WIDE_FLOATS,
        grad=False,
        tolerance={"float32": (1e-4, 1e-6), "float64": (1e-6, 1e-9)},
    ),
]
