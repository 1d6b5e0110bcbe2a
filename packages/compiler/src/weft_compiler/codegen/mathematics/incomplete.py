"""Incomplete gamma and beta functions, computed by iteration.

Power series and continued fractions are evaluated until they converge; asymptotic expansions are
used for large arguments, for which that would take long. Equation numbers are those of the Digital
Library
of Mathematical Functions.
"""

from __future__ import annotations

import math
from typing import Final

from weft_compiler.codegen.mathematics.formula import Formula, Value
from weft_tensor.expansions import TEMME

_SETTLED: Final = 5e-16
"""A continued fraction has converged when its factor is this close to 1; rounding errors prevent a
smaller value.
"""
_LARGE: Final = 1e5
"""Smallest a for which the incomplete gamma functions use Temme's uniform expansion."""
_BETA_LARGE: Final = 1e6
"""The beta function uses an asymptotic expansion if its larger argument is at least this."""
_MOST: Final = 100_000.0
_MOST_BETA: Final = 5000.0
"""The maximal number of iterations of a continued fraction."""


def _front(f: Formula, a: Value, x: Value) -> Value:
    """The common factor x ** a * exp(-x) / gamma(a)."""
    return f.call("exp", a * f.call("log", x) - x - f.call("lgamma", a))


def _finite(f: Formula, x: Value) -> Value:
    return f.abs(x) < math.inf


# ------------------------------------------------------------------------- series and fractions


def _lower_series(f: Formula, a: Value, x: Value) -> Value:
    """P(a, x) by its power series, for x up to about a."""

    def iterate(term: Value, total: Value, point: Value) -> tuple[Value, list[Value]]:
        point = point + 1.0
        term = term * x / point
        total = total + term
        return term > total * 1e-17, [term, total, point]

    first = 1.0 / a
    _, total, _ = f.repeat([first, first, a], iterate)
    return total * _front(f, a, x)


def _away_from_zero(f: Formula, x: Value) -> Value:
    return f.where(f.abs(x) < 1e-300, 1e-300, x)


def _upper_fraction(f: Formula, a: Value, x: Value) -> Value:
    """Q(a, x) by Legendre's continued fraction, 8.9.2, for x above about a + 1."""

    def iterate(k: Value, b: Value, c: Value, d: Value, result: Value) -> tuple[Value, list[Value]]:
        k = k + 1.0
        numerator, b = -k * (k - a), b + 2.0
        d = 1.0 / _away_from_zero(f, numerator * d + b)
        c = _away_from_zero(f, b + numerator / c)
        change = d * c
        continues = (f.abs(change - 1.0) > _SETTLED) & (k <= _MOST)
        return continues, [k, b, c, d, result * change]

    b = x + 1.0 - a
    d = 1.0 / b
    *_, result = f.repeat([f.number(0.0), b, f.number(1e300), d, d], iterate)
    return result * _front(f, a, x)


# --------------------------------------------------------------------------------- large a, 8.12


def _eta(f: Formula, a: Value, x: Value) -> tuple[Value, Value]:
    """Return eta, and eta ** 2 / 2 = x / a - 1 - log(x / a)."""
    mu = (x - a) / a
    clamped = f.where(mu < -0.01, -0.01, f.where(mu > 0.01, 0.01, mu))
    series = clamped * clamped * f.polynomial(clamped, [(-1) ** k / k for k in range(2, 11)])
    usable = (mu > -1.0) & _finite(f, mu)
    point = f.where(usable, mu, 1.0)
    half = f.where(f.abs(mu) < 0.01, series, point - f.call("log1p", point))
    half = f.where(usable, half, math.inf)
    return f.copy_sign(f.sqrt(half * 2.0), mu), half


def _remainder(f: Formula, a: Value, eta: Value) -> tuple[Value, Value]:
    """Return the factor of the remainder, and its derivative with respect to eta."""
    eta = f.where(eta < -0.1, -0.1, f.where(eta > 0.1, 0.1, eta))
    first, second = TEMME
    factor = f.polynomial(eta, first) + f.polynomial(eta, second) / a
    return factor, f.polynomial(eta, [k * c for k, c in enumerate(first)][1:])


def _uniform(f: Formula, a: Value, x: Value, upper: bool) -> Value:
    """P(a, x), or Q(a, x), for large a."""
    eta, half = _eta(f, a, x)
    z = eta * f.sqrt(a * 0.5)
    remainder = f.call("exp", -a * half) / f.sqrt(a * (2 * math.pi)) * _remainder(f, a, eta)[0]
    result = f.call("erfc", z if upper else -z) * 0.5
    return result + remainder if upper else result - remainder


def _uniform_slope(f: Formula, a: Value, x: Value) -> Value:
    """The derivative of P(a, x) with respect to a, for large a."""
    eta, half = _eta(f, a, x)
    vanishes = a * half > 800.0  # as at 0 and at infinity
    mu = f.where(vanishes, 1.0, (x - a) / a)
    log = f.call("log1p", mu)
    flat = f.abs(eta) < 1e-150
    root = f.where(flat | vanishes, 1.0, eta)
    factor, slope = _remainder(f, a, eta)
    remainder = factor * (log - 0.5 / a) - slope * f.where(flat, 1.0, mu / root) / a
    density = f.call("exp", -f.where(vanishes, 0.0, a * half)) / f.sqrt(a * (2 * math.pi))
    result = -density * (f.where(flat, 1.0, log / root) + remainder)
    return f.where(vanishes, 0.0, result)


# ------------------------------------------------------------------------ incomplete gamma


def _incomplete(f: Formula, a: Value, x: Value, upper: bool) -> Value:
    def valid_result() -> Value:
        return f.choose(a >= _LARGE, lambda: _uniform(f, a, x, upper), moderate)

    def moderate() -> Value:
        return f.choose(x < a + 1.0, below, above)

    def below() -> Value:
        lower = f.choose(x.equals(0.0), lambda: f.number(0.0), lambda: _lower_series(f, a, x))
        return 1.0 - lower if upper else lower

    def above() -> Value:
        remainder = f.choose(
            x.equals(math.inf), lambda: f.number(0.0), lambda: _upper_fraction(f, a, x)
        )
        return remainder if upper else 1.0 - remainder

    valid = (a > 0.0) & (x >= 0.0) & _finite(f, a)
    return f.choose(valid, valid_result, lambda: f.number(math.nan))


def igamma(f: Formula, a: Value, x: Value) -> Value:
    """The regularized lower incomplete gamma function P(a, x)."""
    return _incomplete(f, a, x, upper=False)


def igammac(f: Formula, a: Value, x: Value) -> Value:
    """The regularized upper incomplete gamma function Q(a, x)."""
    return _incomplete(f, a, x, upper=True)


def _slope_by_series(f: Formula, s: Value, x: Value) -> Value:
    """The derivative of P(s, x) with respect to s, from its power series term by term."""

    def iterate(
        k: Value, term: Value, rate: Value, total: Value, scale: Value
    ) -> tuple[Value, list[Value]]:
        k = k + 1.0
        point = s + k
        term, rate = term * x / point, rate - 1.0 / point
        total = total + term * rate
        size = f.abs(total)
        scale = f.where(size > scale, size, scale)
        # The terms rise until s + k passes x.
        continues = (point < x) | (term * f.abs(rate) > scale * 1e-17)
        return continues, [k, term, rate, total, scale]

    log, next_s = f.call("log", x), s + 1.0
    term = f.call("exp", s * log - x - f.call("lgamma", next_s))
    rate = log - f.call("digamma", next_s)
    first = term * rate
    start = [f.number(0.0), term, rate, first, f.abs(first)]
    return f.repeat(start, iterate)[3]


def _slope_by_fraction(f: Formula, a: Value, x: Value) -> Value:
    """The derivative of P(a, x) with respect to a, from the continued fraction of Q."""

    def iterate(k: Value, b: Value, *state: Value) -> tuple[Value, list[Value]]:
        c, c_slope, d, d_slope, result, slope = state
        k, b = k + 1.0, b + 2.0
        numerator = -k * (k - a)
        d_next = 1.0 / (numerator * d + b)
        d_slope = -d_next * d_next * (k * d + numerator * d_slope - 1.0)
        c_next = b + numerator / c
        c_slope = k / c - 1.0 - numerator * c_slope / c / c
        change, change_slope = d_next * c_next, d_slope * c_next + d_next * c_slope
        slope = slope * change + result * change_slope
        result = result * change
        has_converged = f.abs(change - 1.0) <= _SETTLED
        has_converged = has_converged & (f.abs(change_slope * result) <= f.abs(slope) * _SETTLED)
        continues = ~has_converged & (k <= _MOST)
        return continues, [k, b, c_next, c_slope, d_next, d_slope, result, slope]

    zero, b = f.number(0.0), x + 1.0 - a
    d = 1.0 / b
    d_slope = d * d
    *_, result, slope = f.repeat([zero, b, f.number(1e300), zero, d, d_slope, d, d_slope], iterate)
    rate = f.call("log", x) - f.call("digamma", a)
    return -_front(f, a, x) * (slope + result * rate)


def igamma_grad_a(f: Formula, a: Value, x: Value) -> Value:
    """The derivative of P(a, x) with respect to a."""

    def valid_result() -> Value:
        return f.choose(a >= _LARGE, lambda: _uniform_slope(f, a, x), moderate)

    def moderate() -> Value:
        # This far above a, the upper function and its slope are 0.
        far = x >= a + f.sqrt(a) * 60.0 + 800.0
        return f.choose(far | x.equals(0.0), lambda: f.number(0.0), inner_result)

    def inner_result() -> Value:
        # Above a + 1 the terms of the series cancel.
        return f.choose(
            x >= a + 1.0, lambda: _slope_by_fraction(f, a, x), lambda: _slope_by_series(f, a, x)
        )

    valid = (a > 0.0) & (x >= 0.0) & _finite(f, a)
    return f.choose(valid, valid_result, lambda: f.number(math.nan))


# ------------------------------------------------------------------------- incomplete beta


def _fraction(f: Formula, a: Value, b: Value, x: Value) -> Value:
    """The continued fraction 8.17.22, which converges fast for x below about a / (a + b)."""

    def step(part: Value, c: Value, d: Value) -> tuple[Value, Value]:
        unit = f.number(1.0)
        return _away_from_zero(f, unit + part / c), 1.0 / _away_from_zero(f, unit + part * d)

    def iterate(m: Value, c: Value, d: Value, total: Value) -> tuple[Value, list[Value]]:
        m = m + 1.0
        twice = a + m * 2.0
        c, d = step(m * (b - m) * x / ((twice - 1.0) * twice), c, d)
        total = total * d * c
        c, d = step(-(a + m) * (a + b + m) * x / (twice * (twice + 1.0)), c, d)
        change = d * c
        return (f.abs(change - 1.0) > _SETTLED) & (m < _MOST_BETA), [m, c, d, total * change]

    d = 1.0 / _away_from_zero(f, 1.0 - (a + b) * x / (a + 1.0))
    *_, total = f.repeat([f.number(0.0), f.number(1.0), d, d], iterate)
    return total


def _moderate(f: Formula, a: Value, b: Value, x: Value) -> Value:
    flip = x > (a + 1.0) / (a + b + 2.0)
    first, second = f.where(flip, b, a), f.where(flip, a, b)
    point, remainder = f.where(flip, 1.0 - x, x), f.where(flip, x, 1.0 - x)
    log = first * f.call("log", point) + second * f.call("log", remainder)
    log = log + f.call("lgamma", a + b) - f.call("lgamma", a) - f.call("lgamma", b)
    part = f.call("exp", log) / first
    # If the factor vanishes, the fraction has no effect.
    part = f.choose(part > 0.0, lambda: part * _fraction(f, first, second, point), lambda: part)
    return f.where(flip, 1.0 - part, part)


def _both_large(f: Formula, a: Value, b: Value, x: Value) -> Value:
    """The incomplete beta function for large a and b, by expansion 8.18.9."""
    total = a + b
    mean = a / total
    complement = 1.0 - mean
    half = mean * f.call("log", x / mean) + complement * f.call("log", (1.0 - x) / complement)
    half = f.where(half < 0.0, -half, 0.0)
    eta = f.copy_sign(f.sqrt(half * 2.0), x - mean)
    flat = f.abs(eta) < 1e-4
    spread = f.sqrt(mean * complement)
    steep, distance = f.where(flat, 1.0, eta), f.where(flat, 1.0, x - mean)
    remainder = f.where(flat, (1.0 - mean * 2.0) / (spread * 3.0), 1.0 / steep - spread / distance)
    maximum = 800.0 / total
    density = f.call("exp", -total * f.where(half < maximum, half, maximum))
    density = density / f.sqrt(total * (2 * math.pi))
    result = f.call("erfc", -eta * f.sqrt(total * 0.5)) * 0.5 + remainder * density
    return f.where(result < 0.0, 0.0, f.where(result > 1.0, 1.0, result))


def _by_gamma(f: Formula, small: Value, large: Value, log: Value, name: str) -> Value:
    """The beta function of a large and a small argument, by incomplete gamma (Wise, 1950)."""
    return f.call(name, small, -(large + (small - 1.0) * 0.5) * log)


def betainc(f: Formula, a: Value, b: Value, x: Value) -> Value:
    """The regularized incomplete beta function; NaN unless a, b > 0 and x is in [0, 1]."""
    larger, smaller = f.where(a < b, b, a), f.where(a < b, a, b)

    def valid_result() -> Value:
        ends = (x <= 0.0) | (x >= 1.0)
        return f.choose(ends, lambda: f.where(x < 0.5, 0.0, 1.0), inner_result)

    def inner_result() -> Value:
        return f.choose(larger < _BETA_LARGE, lambda: _moderate(f, a, b, x), large)

    def large() -> Value:
        return f.choose(smaller >= 1e3, lambda: _both_large(f, a, b, x), fraction_result)

    def fraction_result() -> Value:
        def of_few() -> Value:
            return _by_gamma(f, a, b, f.call("log1p", -x), "igamma")

        return f.choose(b >= a, of_few, lambda: _by_gamma(f, b, a, f.call("log", x), "igammac"))

    valid = (a > 0.0) & (b > 0.0) & _finite(f, a) & _finite(f, b) & (x >= 0.0) & (x <= 1.0)
    return f.choose(valid, valid_result, lambda: f.number(math.nan))
