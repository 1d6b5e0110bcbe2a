"""Inverses of the error function and of the normal distribution: Halley's method.

The first estimate has an error below 1e-3; each step cubes the error.
"""

from __future__ import annotations

import math
from typing import Final

from weft_compiler.codegen.mathematics.formula import Formula, Value

_STEPS: Final = 2


def _central(f: Formula, y: Value) -> Value:
    """The inverse of erf, for |y| up to 0.5."""
    half_root = math.sqrt(math.pi) / 2
    square = y * y
    series = f.polynomial(square, [1.0, math.pi / 12, 7 * math.pi**2 / 480])
    x = y * half_root * series
    for _ in range(_STEPS):
        error = (f.call("erf", x) - y) * half_root * f.call("exp", x * x)
        x = x - error / (x * error + 1.0)
    return x


def _tail(f: Formula, p: Value) -> Value:
    """Minus the quantile of p, for 0 < p <= 0.25."""
    log = f.call("log", p)
    t = f.sqrt(log * -2.0)
    # Abramowitz and Stegun, 26.2.23: within 4.5e-4.
    x = t - f.polynomial(t, [2.515517, 0.802853, 0.010328]) / f.polynomial(
        t, [1.0, 1.432788, 0.189269, 0.001308]
    )
    for _ in range(_STEPS):
        ratio = f.call("erfc", x * math.sqrt(0.5)) / (p + p) - 1.0
        error = ratio * f.call("exp", x * x * 0.5 + log) * math.sqrt(2 * math.pi)
        x = x + error / (1.0 - x * error * 0.5)
    return x


def erfinv(f: Formula, y: Value) -> Value:
    """The inverse of the error function; infinite at -1 and 1, NaN beyond."""
    size = f.abs(y)
    is_central = size <= 0.5
    inner = _central(f, f.where(is_central, size, 0.25))
    far = (1.0 - size) * 0.5
    is_inside = size < 1.0
    outer = _tail(f, f.where(is_central, 0.25, f.where(is_inside, far, 0.25))) * math.sqrt(0.5)
    ends = f.where(size.equals(1.0), math.inf, f.number(math.nan))
    result = f.where(is_central, inner, f.where(is_inside, outer, ends))
    return f.where(f.nan(y), y, f.copy_sign(result, y))


def ndtri(f: Formula, p: Value) -> Value:
    """The quantile of the normal distribution; infinite at 0 and 1, NaN beyond."""
    distance = p - 0.5
    size = f.abs(distance)
    is_central = size <= 0.25
    inner = _central(f, f.where(is_central, distance + distance, 0.25)) * math.sqrt(2)
    tail_probability = f.where(p > 0.5, 1.0 - p, p)
    is_inside = tail_probability > 0.0
    outer = _tail(f, f.where(is_central, 0.25, f.where(is_inside, tail_probability, 0.25)))
    ends = f.where(tail_probability.equals(0.0), math.inf, f.number(math.nan))
    far = f.where(is_inside, outer, ends)
    return f.where(f.nan(p), p, f.where(is_central, inner, f.where(distance < 0.0, -far, far)))
