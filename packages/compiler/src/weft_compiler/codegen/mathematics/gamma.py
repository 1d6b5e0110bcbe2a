"""The logarithm of the gamma function, and its derivative."""

from __future__ import annotations

import math
from typing import Final

from weft_compiler.codegen.mathematics.formula import Formula, Value
from weft_tensor.expansions import DIGAMMA, LGAMMA, STIRLING

_LARGE: Final = 10
"""Smallest argument for which the series in 1 / x is exact to working precision."""


def _positive(f: Formula, x: Value) -> Value:
    """log(gamma(x)) for x > 0.

    Below 10, the recurrence moves x to 2 + z with |z| <= 0.5: downwards, or upwards if x < 1.5.
    """
    large = x >= float(_LARGE)
    shifted = f.where(large, 2.0, x)
    full_count, _ = f.round_to_nearest(shifted)
    steps = f.where(full_count < 2.0, 0.0, full_count - 2.0)
    product = f.number(1.0)
    for k in range(1, _LARGE - 1):
        product = product * f.where(steps >= float(k), shifted - float(k), 1.0)
    below_split, tiny = shifted < 1.5, shifted < 0.5
    z = f.where(tiny, shifted, f.where(below_split, shifted - 1.0, (shifted - 2.0) - steps))
    series = z * f.polynomial(z, LGAMMA)
    log = f.call("log", f.where(large, x, f.where(tiny, shifted, product)))
    from_above = series + log
    from_below = (series - f.call("log1p", f.where(below_split, z, 0.0))) - f.where(tiny, log, 0.0)
    argument = f.where(large, x, float(_LARGE))
    inverse = 1.0 / argument
    tail = f.fma(
        inverse, f.polynomial(inverse * inverse, STIRLING), f.number(0.5 * math.log(2 * math.pi))
    )
    stirling = f.fma(argument - 0.5, log - 1.0, tail - 0.5)
    stirling = f.where(argument.equals(math.inf), math.inf, stirling)
    return f.where(large, stirling, f.where(below_split, from_below, from_above))


def _sine_of_pi(f: Formula, x: Value) -> Value:
    """|sin(pi x)|, exact at integers."""
    large = f.abs(x) > 2.0**50
    argument = f.where(large, 0.0, x)
    full_count, _ = f.round_to_nearest(argument)
    return f.call("sin", f.abs(argument - full_count) * math.pi)


def lgamma(f: Formula, x: Value) -> Value:
    """log(|gamma(x)|); infinite at 0 and the negative integers."""
    negative = x <= 0.0
    result = _positive(f, f.where(negative, 1.0 - x, x))
    sine = _sine_of_pi(f, x)
    pole = sine.equals(0.0)
    reflected = f.call("log", math.pi / f.where(pole, 1.0, sine)) - result
    reflected = f.where(pole, math.inf, reflected)
    return f.where(f.nan(x), x, f.where(negative, reflected, result))


def digamma(f: Formula, x: Value) -> Value:
    """The derivative of `lgamma`; NaN at 0 and the negative integers."""
    negative = x <= 0.0
    argument = f.where(negative, 1.0 - x, x)
    point, shift = argument, f.number(0.0)
    for _ in range(_LARGE):
        low = point < float(_LARGE)
        shift = shift + f.where(low, 1.0 / f.where(low, point, 1.0), 0.0)
        point = f.where(low, point + 1.0, point)
    inverse = 1.0 / (point * point)
    series = f.fma(inverse, f.polynomial(inverse, DIGAMMA), 0.5 / point)
    result = (f.call("log", point) - series) - shift
    large = f.abs(x) > 2.0**50
    shifted = f.where(large, 0.0, x)
    full_count, _ = f.round_to_nearest(shifted)
    remainder = shifted - full_count
    pole = remainder.equals(0.0)
    tangent = f.call("tan", f.where(pole, 1.0, remainder) * math.pi)
    reflected = f.where(pole, math.nan, result - math.pi / tangent)
    return f.where(f.nan(x), x, f.where(negative, reflected, result))
