"""Bessel functions against their integrals."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from weft_testing.cases import WIDE_FLOATS, Array, Case

# Over all reals these integrands fall so fast that equal steps give all digits, and those around a
# circle as well.
CIRCLE = 2 * np.pi * np.arange(400) / 400
LINE = np.linspace(0, 12, 2401)
WEIGHTS = np.where(np.isin(np.arange(2401), (0, 2400)), 0.5, 1.0) * LINE[1]


def _i(order: int, x: Array, scale: float = 0.0) -> Array:
    """The mean of exp(x * cos(t)) * cos(order * t), times exp(-scale * |x|)."""
    size = np.abs(x)[:, None]
    integrand = np.exp(size * (np.cos(CIRCLE) - scale)) * np.cos(order * CIRCLE)
    return np.copysign(1, x) ** order * integrand.mean(1)


def _j(order: int, x: Array) -> Array:
    return np.cos(order * CIRCLE - x[:, None] * np.sin(CIRCLE)).mean(1)


def _y(order: int, x: Array) -> Array:
    """Schlaefli's integral: by Gauss over half a circle, and by steps along the line."""
    nodes, weights = np.polynomial.legendre.leggauss(120)
    angles = np.pi / 2 * (nodes + 1)
    around = (np.sin(x[:, None] * np.sin(angles) - order * angles) * weights).sum(1) / 2
    nodes, weights = np.polynomial.legendre.leggauss(60)
    total = np.zeros_like(x)
    for start in np.arange(0, 10, 0.5):
        t = start + (nodes + 1) / 4
        grown = np.exp(order * t) + (-1) ** order * np.exp(-order * t)
        total += (grown * np.exp(-x[:, None] * np.sinh(t)) * weights).sum(1) / 4
    return around - total / np.pi


def _k(order: int, x: Array, scale: float = 0.0) -> Array:
    grown = np.exp(-x[:, None] * (np.cosh(LINE) - scale))
    return (grown * np.cosh(order * LINE) * WEIGHTS).sum(1)


SIGNED = np.array([-30.0, -8.5, -2.0, -0.3, 0.1, 1.0, 7.9, 8.1, 50.0])
MIDDLE = np.array([-8.5, -2.0, -0.3, 0.1, 1.0, 7.5, 9.5])
POSITIVE = np.array([0.1, 0.5, 1.0, 1.9, 2.1, 5.0, 7.9, 8.1, 20.0, 50.0])
NARROW = {"float16": (6e-3, 6e-3), "bfloat16": (5e-2, 5e-2), "float64": (1e-12, 1e-13)}
FUNCTIONS: dict[str, tuple[Array, Callable[[Array], Array]]] = {
    "BesselI0e": (SIGNED, lambda x: _i(0, x, 1)),
    "BesselI1e": (SIGNED, lambda x: _i(1, x, 1)),
    "BesselI0": (MIDDLE, lambda x: _i(0, x)),
    "BesselI1": (MIDDLE, lambda x: _i(1, x)),
    "BesselJ0": (SIGNED, lambda x: _j(0, x)),
    "BesselJ1": (SIGNED, lambda x: _j(1, x)),
    "BesselY0": (POSITIVE, lambda x: _y(0, x)),
    "BesselY1": (POSITIVE, lambda x: _y(1, x)),
    "BesselK0": (POSITIVE, lambda x: _k(0, x)),
    "BesselK0e": (POSITIVE, lambda x: _k(0, x, 1)),
    "BesselK1": (POSITIVE, lambda x: _k(1, x)),
    "BesselK1e": (POSITIVE, lambda x: _k(1, x, 1)),
}
ENDS = np.array([-1.0, 0.0, np.inf, np.nan])
AT_ENDS = {
    "BesselI0": [1.266065877752, 1, np.inf, np.nan],
    "BesselI1": [-0.565159103992, 0, np.inf, np.nan],
    "BesselJ0": [0.765197686558, 1, 0, np.nan],
    "BesselJ1": [-0.440050585745, 0, 0, np.nan],
    "BesselY0": [np.nan, -np.inf, 0, np.nan],
    "BesselY1": [np.nan, -np.inf, 0, np.nan],
    "BesselK0": [np.nan, np.inf, 0, np.nan],
    "BesselK0e": [np.nan, np.inf, 0, np.nan],
    "BesselK1": [np.nan, np.inf, 0, np.nan],
    "BesselK1e": [np.nan, np.inf, 0, np.nan],
}

CASES = [
    *(
        Case(op, [points], {}, function, tolerance=NARROW)
        for op, (points, function) in FUNCTIONS.items()
    ),
    *(
        Case(
            op,
            [ENDS],
            {},
            lambda x, values=values: np.array(values),
            tolerance={"float64": (1e-11, 1e-11)},
            dtypes=WIDE_FLOATS,
            grad=False,
            label="ends",
        )
        for op, values in AT_ENDS.items()
    ),
]
