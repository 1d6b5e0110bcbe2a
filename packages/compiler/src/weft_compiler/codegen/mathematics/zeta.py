"""The Hurwitz zeta function and derivatives of digamma, by Euler-Maclaurin summation."""

from __future__ import annotations

import math

from weft_compiler.codegen.mathematics.formula import Formula, Value
from weft_tensor.expansions import ZETA


def _is_whole(f: Formula, x: Value) -> Value:
    return x.equals(f.truncate(x))


def _half(f: Formula, x: Value) -> Value:
    """x modulo 2, for a non-negative integer x; NaN for infinity."""
    return x - f.truncate(x * 0.5) * 2.0


def _tail(f: Formula, s: Value, a: Value) -> Value:
    """The sum of the terms from a onwards."""
    power = f.call("pow", a, -s)
    total = f.fma(power, f.number(0.5), power * a / (s - 1.0))
    factor = s * power / a
    for k, coefficient in enumerate(ZETA):
        total = f.fma(factor, f.number(coefficient), total)
        factor = factor * (s + float(2 * k + 1)) * (s + float(2 * k + 2)) / (a * a)
    return total


def zeta_sum(f: Formula, s: Value, a: Value) -> Value:
    """The sum of (a + k) ** -s, for s > 1 and a > 0.

    The expansion of the tail converges if 2 pi a is well above s. Until a is that large, terms are
    added one by one, unless the remaining ones are negligible.
    """
    threshold = s * 0.5 + 12.0

    def iterate(total: Value, point: Value, converged: Value) -> tuple[Value, list[Value]]:
        low = point < threshold
        term = f.where(low, f.call("pow", f.where(low, point, 1.0), -s), 0.0)
        total = total + term
        converged = low & (point > 1.0) & (term * point <= total * 1e-18)
        point = f.where(low, point + 1.0, point)
        return (point < threshold) & ~converged, [total, point, converged]

    total, point, converged = f.repeat([f.number(0.0), a, f.bool_constant(False)], iterate)
    complete = converged | point.equals(math.inf)
    return f.choose(complete, lambda: total, lambda: total + _tail(f, s, point))


def zeta(f: Formula, s: Value, q: Value) -> Value:
    """The Hurwitz zeta function; infinite at s = 1 and at poles, NaN if not real."""
    is_full, non_positive = _is_whole(f, q), q <= 0.0
    undefined = (s < 1.0) | (non_positive & ~is_full & ~_is_whole(f, s)) | f.nan(s) | f.nan(q)
    infinite = s.equals(1.0) | (non_positive & is_full)

    def of_negative() -> Value:
        """Sum the terms at negative arguments, as a difference of sums at positive ones."""
        count = 1.0 - f.truncate(q)
        point = q + count
        remainder = 1.0 - point
        folded = f.call("zeta_sum", s, remainder) - f.call("zeta_sum", s, count + remainder)
        folded = f.where(_half(f, s).equals(1.0), -folded, folded)
        return f.call("zeta_sum", s, point) + folded

    def defined() -> Value:
        return f.choose(non_positive, of_negative, lambda: f.call("zeta_sum", s, q))

    def odd() -> Value:
        return f.where(undefined, math.nan, f.number(math.inf))

    return f.choose(undefined | infinite, odd, defined)


def polygamma(f: Formula, order: Value, x: Value) -> Value:
    """The n-th derivative of digamma; NaN unless n is a non-negative integer."""

    def higher() -> Value:
        factorial = f.call("exp", f.call("lgamma", order + 1.0))
        exact = factorial < 2.0**51
        nearest, _ = f.round_to_nearest(f.where(exact, factorial, 1.0))
        factorial = f.where(exact, nearest, factorial)
        signed = f.where(_half(f, order).equals(0.0), -factorial, factorial)
        return signed * f.call("zeta", order + 1.0, x)

    def valid_result() -> Value:
        return f.choose(order.equals(0.0), lambda: f.call("digamma", x), higher)

    valid = _is_whole(f, order) & (order >= 0.0)
    return f.choose(valid, valid_result, lambda: f.number(math.nan))
