"""Special functions of probability for float32 and float64, computed in double precision.

The inverses of the error function and of the normal distribution use Halley's method from a rough
estimate. One step is accurate to a few units in the last place in float32, two steps in float64.
The incomplete beta function uses the continued fraction DLMF 8.17.22 by Lentz's method. For
arguments beyond `LARGE` it uses two expansions with at least 7 digits: DLMF 8.18.9, and the one by
the incomplete gamma function (Wise, 1950).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from weft_exec.kernels.common import Array
from weft_exec.kernels.special import apply_in_blocks, erf, erfc, igamma, igammac, lgamma

_STEPS = {np.dtype(np.float32): 1, np.dtype(np.float64): 2}
"""Maximum number of steps of Halley's method, each of which cubes an error below 1e-3."""

# ------------------------------------------------------------------------------ inverses


def _central(y: Array, steps: int) -> Any:
    """Compute the inverse of erf for |y| <= 0.5."""
    square = y * y
    x = y * (math.sqrt(math.pi) / 2) * (1 + math.pi / 12 * square * (1 + 7 * math.pi / 40 * square))
    for _ in range(steps):
        error = (erf(x) - y) * (math.sqrt(math.pi) / 2) * np.exp(x * x)
        x = x - error / (1 + x * error)
    return x


def _tail(p: Array, steps: int) -> Any:
    """Compute the quantile of the normal distribution for 0 < p <= 0.25, which is negative."""
    log = np.log(p)
    t = np.sqrt(-2 * log)
    # Abramowitz and Stegun, 26.2.23: within 4.5e-4.
    x = t - (2.515517 + t * (0.802853 + t * 0.010328)) / (
        1 + t * (1.432788 + t * (0.189269 + t * 0.001308))
    )
    for _ in range(steps):
        ratio = erfc(x * math.sqrt(0.5)) / (2 * p) - 1
        error = ratio * np.exp(x * x / 2 + log) * math.sqrt(2 * math.pi)
        x = x + error / (1 - x * error / 2)
    return -x


@apply_in_blocks
def erfinv(y: Array) -> Any:
    """Compute the inverse of the error function; infinite at -1 and 1, NaN beyond."""
    wide, steps = y.astype(np.float64), _STEPS[y.dtype]
    size = np.abs(wide)
    result = np.copysign(np.where(size == 1, np.inf, np.nan), wide)
    near, far = size <= 0.5, (size > 0.5) & (size < 1)
    result[near] = _central(wide[near], steps)
    outer = _tail((1 - size[far]) / 2, steps) * -math.sqrt(0.5)
    result[far] = np.copysign(outer, wide[far])
    return result


@apply_in_blocks
def ndtri(p: Array) -> Any:
    """Compute the quantile function of the normal distribution; infinite at 0 and 1, NaN beyond."""
    wide, steps = p.astype(np.float64), _STEPS[p.dtype]
    result = np.where(wide == 0, -np.inf, np.where(wide == 1, np.inf, np.nan))
    centered = wide - 0.5
    near = np.abs(centered) <= 0.25
    far = ~near & (wide > 0) & (wide < 1)
    result[near] = math.sqrt(2) * _central(2 * centered[near], steps)
    outer = wide[far]
    result[far] = np.copysign(_tail(np.minimum(outer, 1 - outer), steps), centered[far])
    return result


# ---------------------------------------------------------------------- incomplete beta

LARGE = 1e6
"""Minimum of the larger argument for which the expansions for large arguments are used."""


def _safe(value: Array) -> Any:
    return np.where(np.abs(value) < 1e-300, 1e-300, value)


def _fraction(a: Array, b: Array, x: Array) -> Any:
    """Evaluate the continued fraction, which converges quickly for x below about a / (a + b)."""
    c, d = np.ones_like(x), 1 / _safe(1 - (a + b) * x / (a + 1))
    total = d.copy()
    result = np.empty_like(x)
    positions = np.arange(x.size)
    for m in range(1, 5000):
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        d, c = 1 / _safe(1 + even * d), _safe(1 + even / c)
        total = total * d * c
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        d, c = 1 / _safe(1 + odd * d), _safe(1 + odd / c)
        change = d * c
        total = total * change
        is_active = np.abs(change - 1) > 5e-16  # two units in the last place
        num_active = np.count_nonzero(is_active)
        if not num_active:
            break
        # Most converge within ten steps, a few need hundreds: drop elements that have converged.
        if 2 * num_active <= is_active.size:
            result[positions] = total
            a, b, x, c, d, total, positions = (
                v[is_active] for v in (a, b, x, c, d, total, positions)
            )
    result[positions] = total
    return result


def _moderate(a: Array, b: Array, x: Array) -> Any:
    flip = x > (a + 1) / (a + b + 2)
    first, second = np.where(flip, b, a), np.where(flip, a, b)
    index, remaining = np.where(flip, 1 - x, x), np.where(flip, x, 1 - x)
    log = first * np.log(index) + second * np.log(remaining)
    log = log + lgamma(a + b) - lgamma(a) - lgamma(b)
    part = np.exp(log) / first
    some = part > 0  # where the factor vanishes, the fraction is irrelevant
    part[some] *= _fraction(first[some], second[some], index[some])
    return np.where(flip, 1 - part, part)


def _beta_both_large(a: Array, b: Array, x: Array) -> Any:
    total = a + b
    mean = a / total
    half = -(mean * np.log(x / mean) + (1 - mean) * np.log((1 - x) / (1 - mean)))
    eta = np.copysign(np.sqrt(2 * np.maximum(half, 0)), x - mean)
    flat = np.abs(eta) < 1e-4
    deviation = np.sqrt(mean * (1 - mean))
    steep = np.where(flat, 1, eta)
    difference = np.where(flat, 1, x - mean)
    remaining = np.where(flat, (1 - 2 * mean) / (3 * deviation), 1 / steep - deviation / difference)
    density = np.exp(-total * np.minimum(half, 800 / total)) / np.sqrt(2 * np.pi * total)
    return np.clip(erfc(-eta * np.sqrt(total / 2)) / 2 + remaining * density, 0, 1)


def _beta(a: Array, b: Array, x: Array) -> Any:
    """Compute betainc for positive finite a and b and for x in (0, 1)."""
    larger, smaller = np.maximum(a, b), np.minimum(a, b)
    result = np.empty_like(x)
    moderate = larger < LARGE
    both_large = ~moderate & (smaller >= 1e3)
    for selected, function in ((moderate, _moderate), (both_large, _beta_both_large)):
        if selected.any():
            result[selected] = function(a[selected], b[selected], x[selected])
    is_swapped = ~moderate & ~both_large & (b >= a)
    if is_swapped.any():
        a_subset, b_subset, index = a[is_swapped], b[is_swapped], x[is_swapped]
        result[is_swapped] = igamma(a_subset, -(b_subset + (a_subset - 1) / 2) * np.log1p(-index))
    remaining = ~moderate & ~both_large & (b < a)
    if remaining.any():
        a_subset, b_subset, index = b[remaining], a[remaining], x[remaining]
        result[remaining] = igammac(a_subset, -(b_subset + (a_subset - 1) / 2) * np.log(index))
    return result


@apply_in_blocks
def betainc(a: Array, b: Array, x: Array) -> Any:
    """Compute the regularized incomplete beta function; NaN unless a, b > 0 and 0 <= x <= 1."""
    wide_a, wide_b, wide_x = (value.astype(np.float64) for value in (a, b, x))
    valid = (wide_a > 0) & (wide_b > 0) & np.isfinite(wide_a) & np.isfinite(wide_b)
    valid &= (wide_x >= 0) & (wide_x <= 1)
    result = np.where(valid, np.where(wide_x < 0.5, 0.0, 1.0), np.nan)
    is_inside = valid & (wide_x > 0) & (wide_x < 1)
    if is_inside.any():
        result[is_inside] = _beta(wide_a[is_inside], wide_b[is_inside], wide_x[is_inside])
    return result
