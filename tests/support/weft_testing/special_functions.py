"""Special functions with more digits than float64, for measuring errors.

They take float32 or float64 and give long doubles.
"""

from __future__ import annotations

import ctypes
import ctypes.util
from collections.abc import Callable
from statistics import NormalDist
from typing import Any, Final

import numpy as np

Array = Any
_WIDE: Final = np.longdouble
_PI: Final = _WIDE("3.14159265358979323846264338327950288")
_BERNOULLI: Final = tuple(
    _WIDE(a) / b
    for a, b in [(1, 6), (-1, 30), (1, 42), (-1, 30), (5, 66), (-691, 2730), (7, 6), (-3617, 510)]
)


def by_libm(name: str, x: Array) -> Array:
    """Apply a long double function of the C library."""
    one = getattr(ctypes.CDLL(ctypes.util.find_library("m")), f"{name}l")
    one.restype, one.argtypes = ctypes.c_longdouble, [ctypes.c_longdouble]
    return np.array([one(float(each)) for each in x], _WIDE)


def digamma(x: Array) -> Array:
    """Compute digamma for x >= 0, by recurrence to 40 and Stirling's series."""
    at, shift = x.astype(_WIDE), np.zeros(x.shape, _WIDE)
    for _ in range(40):
        low = at < 40
        shift += np.where(low, 1 / np.where(low, at, 1), 0)
        at = np.where(low, at + 1, at)
    inverse = 1 / (at * at)
    power, found = inverse, np.log(at) - 1 / (2 * at)
    for k, number in enumerate(_BERNOULLI, 1):
        found = found - number * power / (2 * k)
        power = power * inverse
    return np.where(x == 0, np.nan, found - shift)


def _bessel(order: int) -> Callable[[Array], Array]:
    def scaled(x: Array) -> Array:
        size = np.abs(x.astype(_WIDE))
        small = np.minimum(size, 60)
        term = (small / 2) ** order
        total = term.copy()
        for k in range(1, 200):
            term = term * (small * small / 4) / (k * (k + order))
            total = total + term
        near = total * np.exp(-small)
        large = np.maximum(size, 50)
        term = np.ones_like(large)
        total = term.copy()
        for k in range(1, 40):
            term = -term * (4 * order * order - (2 * k - 1) ** 2) / (k * 8 * large)
            total = total + term
        found = np.where(size > 55, total / np.sqrt(2 * _PI * large), near)
        found = np.where(np.isinf(size), 0, found)
        return np.copysign(found, x) if order else found

    return scaled


def erfinv(y: Array) -> Array:
    """Compute erfinv from Python's quantile and one Newton step."""
    wide = y.astype(_WIDE)
    size = np.abs(wide)
    found = np.where(size <= 0.5, _central(np.where(size <= 0.5, size, 0)), 0)
    outer = (size > 0.5) & (size < 1)
    found = np.where(outer, _tail(np.where(outer, (1 - size) / 2, 0.25)) / np.sqrt(_WIDE(2)), found)
    found = np.where(size == 1, np.inf, np.where((size > 1) | np.isnan(size), np.nan, found))
    return np.copysign(found, wide)


def ndtri(p: Array) -> Array:
    """Compute the normal quantile for p >= 0 likewise."""
    wide = p.astype(_WIDE)
    away, below = wide - 0.5, np.minimum(wide, 1 - wide)
    near = np.abs(away) <= 0.25
    inner = np.copysign(_central(np.where(near, 2 * np.abs(away), 0)) * np.sqrt(_WIDE(2)), away)
    outer = (below > 0) & ~near
    tail = np.copysign(_tail(np.where(outer, below, 0.25)), away)
    found = np.where(near, inner, np.where(outer, tail, np.nan))
    return np.where(below == 0, np.copysign(_WIDE(np.inf), away), found)


def _central(y: Array) -> Array:
    """Compute the inverse of erf for y from 0 to 0.5."""
    normal = NormalDist()
    start = np.array([normal.inv_cdf((float(each) + 1) / 2) for each in y]) / np.sqrt(2)
    # Of small numbers the quantile of what is near a half has few digits.
    start = np.where(y < 1e-4, (y * np.sqrt(_PI) / 2).astype(np.float64), start)
    slope = 2 / np.sqrt(_PI) * np.exp(-(start.astype(_WIDE) ** 2))
    return start - (by_libm("erf", start) - y) / slope


def _tail(p: Array) -> Array:
    """Compute minus the quantile for 0 < p <= 0.25."""
    normal = NormalDist()
    start = np.array([-normal.inv_cdf(max(float(each), 5e-324)) for each in p]) / np.sqrt(2)
    wide = start.astype(_WIDE)
    slope = -np.exp(-(wide**2)) / np.sqrt(_PI)
    return (wide - (by_libm("erfc", start) / 2 - p) / slope) * np.sqrt(_WIDE(2))


FUNCTIONS: Final[dict[str, Callable[[Array], Array]]] = {
    "lgamma": lambda x: by_libm("lgamma", x),
    "digamma": digamma,
    "bessel_i0e": _bessel(0),
    "bessel_i1e": _bessel(1),
    "erfinv": erfinv,
    "ndtri": ndtri,
}
