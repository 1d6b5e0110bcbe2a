"""Arcsine, arccosine and arctangent by polynomials, at most 1e-19 from the minimax error."""

from __future__ import annotations

import math
from typing import Final

from weft_compiler.codegen.mathematics.formula import Formula, Value

PI: Final = (math.pi, 1.2246467991473532e-16)
_ATAN: Final = (
    -0.3333333333333333,
    0.19999999999999804,
    -0.14285714285659604,
    0.1111111110513358,
    -0.09090908752412959,
    0.07692296343583897,
    -0.06666424321026253,
    0.058789225062371914,
    -0.0523040647016232,
    0.04551375225747564,
    -0.03456495684189155,
    0.016279546458951567,
)
"""Coefficients of (atan(x) / x - 1) / x**2 in x**2, for x**2 up to 0.172: a Chebyshev expansion."""
_ASIN: Final = (
    0.16666666666666669,
    0.07499999999998425,
    0.04464285714637338,
    0.030381944137085216,
    0.022372173002005596,
    0.017352391265909227,
    0.013971235301124539,
    0.011478952690257387,
    0.010324318288744113,
    0.005450878187720551,
    0.017419357964884856,
    -0.014881409392818063,
    0.02877844261259304,
)
"""Coefficients of (asin(x) / x - 1) / x**2 in x**2, for x**2 up to 0.25."""


def _arcsine(f: Formula, x: Value) -> Value:
    """asin(x) - x, for x up to 0.5."""
    z = x * x
    return x * z * f.polynomial(z, _ASIN)


def _root(f: Formula, size: Value) -> tuple[Value, Value]:
    """Return the square root of (1 - x) / 2, and its rounding error."""
    half = (1.0 - size) * 0.5
    root = f.sqrt(half)
    square, error = f.two_product(root, root)
    lost = ((half - square) - error) / (root + root)
    return root, f.where(root.equals(0.0), 0.0, lost)


def asin(f: Formula, x: Value) -> Value:
    """The arcsine; for x above 0.5, pi / 2 minus twice the arcsine of a smaller number."""
    size = f.abs(x)
    is_small = size <= 0.5
    root, lost = _root(f, size)
    argument = f.where(is_small, size, root)
    remainder = _arcsine(f, argument)
    far = PI[0] / 2 - ((remainder + lost) * 2.0 - PI[1] / 2 + root * 2.0)
    return f.copy_sign(f.where(is_small, size + remainder, far), x)


def acos(f: Formula, x: Value) -> Value:
    """The arccosine."""
    size = f.abs(x)
    is_small = size <= 0.5
    root, lost = _root(f, size)
    argument = f.where(is_small, x, root)
    remainder = _arcsine(f, argument)
    middle = PI[0] / 2 - (x - (PI[1] / 2 - remainder))
    twice = (root + (remainder + lost)) * 2.0
    obtuse = PI[0] - (((remainder + lost) * 2.0 - PI[1]) + root * 2.0)
    return f.where(is_small, middle, f.where(x < 0.0, obtuse, twice))


def _angle(f: Formula, y: Value, x: Value) -> Value:
    """The angle of a point with x, y >= 0, by the arctangent of a quotient up to 0.41."""
    steep = y > x
    smaller, larger = f.where(steep, x, y), f.where(steep, y, x)
    huge = larger > 1e300
    smaller, larger = f.where(huge, smaller * 0.25, smaller), f.where(huge, larger * 0.25, larger)
    wide = smaller > larger * 0.41421356237309503
    numerator, denominator = (
        f.where(wide, smaller - larger, smaller),
        f.where(wide, smaller + larger, larger),
    )
    q = numerator / denominator
    q = f.where(denominator.equals(0.0), 0.0, q)
    product, error = f.two_product(q, denominator)
    lost = ((numerator - product) - error) / denominator
    exact = (product > 1e-280) | (product < -1e-280)  # otherwise the error is unknown
    lost = f.where(exact & (f.abs(lost) < 1.0), lost, 0.0)
    z = q * q
    remainder = f.fma(q * z, f.polynomial(z, _ATAN), lost)
    first, low = f.where(wide, PI[0] / 4, 0.0), f.where(wide, PI[1] / 4, 0.0)
    total, error = f.two_sum(first, q)
    remainder = remainder + error + low
    transposed, more_error = f.two_sum(f.number(PI[0] / 2), -total)
    return f.where(steep, transposed + ((PI[1] / 2 - remainder) + more_error), total + remainder)


def atan(f: Formula, x: Value) -> Value:
    """The arctangent."""
    size = f.abs(x)
    angle = _angle(f, f.where(size.equals(math.inf), 1e300, size), f.number(1.0))
    return f.copy_sign(f.where(f.nan(x), x, angle), x)


def atan2(f: Formula, y: Value, x: Value) -> Value:
    """The angle of a point (atan2); the signs of zeros are respected."""
    high, wide = f.abs(y), f.abs(x)
    both_infinite = (high.equals(math.inf)) & (wide.equals(math.inf))
    high = f.where(both_infinite, 1.0, high)
    wide = f.where(both_infinite, 1.0, wide)
    angle = f.where(wide.equals(math.inf), 0.0, _angle(f, high, wide))
    angle = f.where(high.equals(math.inf), PI[0] / 2, angle)
    is_obtuse = f.bits_of(x) < 0
    angle = f.where(is_obtuse, PI[0] - (angle - PI[1]), angle)
    return f.where(f.nan(x) | f.nan(y), x + y, f.copy_sign(angle, y))
