"""The gamma function's logarithm, and the derivative of that."""

from __future__ import annotations

import math
from typing import Final

from weft_compiler.codegen.mathematics.formula import Formula, Value

_LGAMMA: Final = (
    0.422784335098467139,
    0.322467033424113236,
    -0.0673523010531981399,
    0.0205808084277803354,
    -0.00738555102866809621,
    0.00289051033103677213,
    -0.00119275391200338729,
    0.000509669515348437314,
    -0.000223154750696477028,
    0.0000994576744009676379,
    -0.0000449263516677034177,
    0.0000205055843728969313,
    -9.43845488405472269e-6,
    4.38473193182937453e-6,
    -2.04493532318005205e-6,
    9.19989807567139467e-7,
    -4.30323469295673188e-7,
    2.78800133924918449e-7,
    -1.34157027346002598e-7,
)
"""log(gamma(2 + z)) / z by z, of |z| up to 0.5: Chebyshev's expansion."""
_STIRLING: Final = (
    0.0833333333333333333,
    -0.00277777777777777778,
    0.000793650793650793651,
    -0.000595238095238095238,
    0.000841750841750841751,
    -0.00191752691752691753,
    0.00641025641025641026,
    -0.0295506535947712418,
    0.179644372368830573,
)
"""B(2k) / (2k (2k - 1)), of odd powers of 1 / x in Stirling's series."""
_DIGAMMA: Final = (
    0.0833333333333333333,
    -0.00833333333333333333,
    0.00396825396825396825,
    -0.00416666666666666667,
    0.00757575757575757576,
    -0.0210927960927960928,
    0.0833333333333333333,
    -0.443259803921568627,
    3.05395433027011974,
)
"""B(2k) / 2k, of even powers of 1 / x."""
_LARGE: Final = 10
"""From here on series in 1 / x are exact."""


def _positive(f: Formula, x: Value) -> Value:
    """The logarithm of gamma(x), of x > 0.

    Below 10 x is 2 + z + steps with |z| <= 0.5, and the recurrence leads there; below 1.5 from the
    other side.
    """
    large = x >= float(_LARGE)
    near = f.where(large, 2.0, x)
    whole, _ = f.nearest(near)
    steps = f.where(whole < 2.0, 0.0, whole - 2.0)
    product = f.number(1.0)
    for k in range(1, _LARGE - 1):
        product = product * f.where(steps >= float(k), near - float(k), 1.0)
    below, tiny = near < 1.5, near < 0.5
    z = f.where(tiny, near, f.where(below, near - 1.0, (near - 2.0) - steps))
    series = z * f.polynomial(z, _LGAMMA)
    log = f.call("log", f.where(large, x, f.where(tiny, near, product)))
    from_above = series + log
    from_below = (series - f.call("log1p", f.where(below, z, 0.0))) - f.where(tiny, log, 0.0)
    given = f.where(large, x, float(_LARGE))
    inverse = 1.0 / given
    tail = f.fma(
        inverse, f.polynomial(inverse * inverse, _STIRLING), f.number(0.5 * math.log(2 * math.pi))
    )
    stirling = f.fma(given - 0.5, log - 1.0, tail - 0.5)
    stirling = f.where(given.equals(math.inf), math.inf, stirling)
    return f.where(large, stirling, f.where(below, from_below, from_above))


def _sine_of_pi(f: Formula, x: Value) -> Value:
    """|sin(pi x)|, exact at integers."""
    large = f.abs(x) > 2.0**50
    given = f.where(large, 0.0, x)
    whole, _ = f.nearest(given)
    return f.call("sin", f.abs(given - whole) * math.pi)


def lgamma(f: Formula, x: Value) -> Value:
    """log(|gamma(x)|), infinite at 0 and the negative integers."""
    negative = x <= 0.0
    found = _positive(f, f.where(negative, 1.0 - x, x))
    sine = _sine_of_pi(f, x)
    pole = sine.equals(0.0)
    reflected = f.call("log", math.pi / f.where(pole, 1.0, sine)) - found
    reflected = f.where(pole, math.inf, reflected)
    return f.where(f.nan(x), x, f.where(negative, reflected, found))


def digamma(f: Formula, x: Value) -> Value:
    """The derivative of `lgamma`, no number at 0 and the negative integers."""
    negative = x <= 0.0
    given = f.where(negative, 1.0 - x, x)
    at, shift = given, f.number(0.0)
    for _ in range(_LARGE):
        low = at < float(_LARGE)
        shift = shift + f.where(low, 1.0 / f.where(low, at, 1.0), 0.0)
        at = f.where(low, at + 1.0, at)
    inverse = 1.0 / (at * at)
    series = f.fma(inverse, f.polynomial(inverse, _DIGAMMA), 0.5 / at)
    found = (f.call("log", at) - series) - shift
    large = f.abs(x) > 2.0**50
    near = f.where(large, 0.0, x)
    whole, _ = f.nearest(near)
    rest = near - whole
    pole = rest.equals(0.0)
    tangent = f.call("tan", f.where(pole, 1.0, rest) * math.pi)
    reflected = f.where(pole, math.nan, found - math.pi / tangent)
    return f.where(f.nan(x), x, f.where(negative, reflected, found))
