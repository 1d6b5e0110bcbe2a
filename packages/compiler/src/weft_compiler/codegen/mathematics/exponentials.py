"""exp, log and functions based on them.

With n the integer nearest to x / log 2 and r = x - n log 2, exp(x) = 2**n exp(r), where exp(r) is
computed by its Taylor polynomial.  With x = 2**n m, m between sqrt(1/2) and sqrt(2), and
s = (m - 1) / (m + 1), log(x) = n log 2 + 2 artanh(s).  The orders of operations are Tang's and
FreeBSD's, with an error of less than half an ulp before the last addition.
"""

from __future__ import annotations

import math
from typing import Final

from weft_compiler.codegen.mathematics.formula import Formula, Value

INF: Final = math.inf
NAN: Final = math.nan
LOG2: Final = {  # the first part has enough trailing zeros that its products with n are exact
    True: (float.fromhex("0x1.62e42fee00000p-1"), float.fromhex("0x1.a39ef35793c76p-33")),
    False: (0.693359375, -2.12194440054690583e-4),
}


def _reduce_argument(f: Formula, x: Value) -> tuple[Value, Value, Value]:
    """Return n, the integer nearest to x / log 2, and r = x - n log 2 in two parts."""
    high, low = LOG2[f.double]
    k, n = f.round_to_nearest(x * (1 / math.log(2)))
    first = f.fma(k, f.number(-high), x)
    lower = k * low
    r = first - lower
    return n, r, (first - r) - lower


def _tail(f: Formula, r: Value) -> Value:
    """(exp(r) - 1 - r) / r**2."""
    terms = 12 if f.double else 6
    return f.polynomial(r, [1 / math.factorial(k + 2) for k in range(terms)])


def _clamp(f: Formula, x: Value, low: float, high: float) -> Value:
    """Clamp a number; NaN is kept."""
    x = f.where(x > high, high, x)
    return f.where(x < low, low, x)


def _exp_limits(f: Formula) -> tuple[float, float]:
    """Return the argument below which exp is 0, and the argument above which it is infinite."""
    return (-746.0, 710.0) if f.double else (-104.0, 89.0)


def exp(f: Formula, x: Value, halvings: int = 0, low: Value | None = None) -> Value:
    """Return the exponential of x + low, divided by 2 ** halvings; `low` is small.

    Results that underflow are products with an exact 0: Intel processors take ten times as long for
    products that round to 0.
    """
    minimum, maximum = _exp_limits(f)
    n, r, remainder = _reduce_argument(f, _clamp(f, x, minimum, maximum + halvings))
    above_one = r + f.fma(r * r, _tail(f, r), remainder)
    if low is not None:
        above_one = above_one + f.fma(above_one, low, low)
    value = f.where(x < minimum, 0.0, above_one + 1.0)
    return f.scale_by_power(value, n - halvings if halvings else n)


def _expm1(f: Formula, x: Value, halvings: int = 0) -> Value:
    """(exp(x) - 1) / 2 ** halvings: 2**n ((1 - 2**-n) + r + t), the sum in two parts."""
    low = -44.0 if f.double else -20.0
    n, r, remainder = _reduce_argument(f, _clamp(f, x, low, _exp_limits(f)[1] + halvings))
    t = f.fma(r * r, _tail(f, r), f.fma(remainder, r, remainder))
    half = n >> 1
    inverse = f.power_of_two(-half) * f.power_of_two(half - n)
    total, error = f.two_sum(1.0 - inverse, r)
    value = total + (t + error)
    return f.scale_by_power(value, n - halvings if halvings else n)


def expm1(f: Formula, x: Value) -> Value:
    """exp(x) - 1."""
    return f.where(x.equals(0.0), x, _expm1(f, x))


def _square_of_exp_and_one(f: Formula, x: Value) -> Value:
    """exp(2 x) + 1 for x from 0 to 10, to about an ulp, with short latency.

    The terms of exp(2 r) are added in pairs, which have fewer dependencies than Horner's rule.
    """
    high, low = LOG2[f.double]
    k, n = f.round_to_nearest(x * (2 / math.log(2)))
    r = f.fma(k, f.number(-low / 2), f.fma(k, f.number(-high / 2), x))
    square = r * r
    terms = [2.0 ** (index + 2) / math.factorial(index + 2) for index in range(6)]
    pairs = [f.polynomial(r, terms[index : index + 2]) for index in (0, 2, 4)]
    tail = f.fma(f.fma(pairs[2], square, pairs[1]), square, pairs[0])
    scale = f.power_of_two(n)
    return f.fma(f.fma(square, tail, r + r), scale, scale + 1.0)


_TANH: Final = (
    -0.333332819422,
    0.133314422036,
    -0.0537397155531,
    0.0206390887954,
    -0.00570498872745,
)
"""Coefficients of (tanh(x) - x) / x**3 in x**2 below 0.4, to 1e-7 of x, from `tanhf` of Moshier's
Cephes.
"""


def tanh(f: Formula, x: Value) -> Value:
    """The hyperbolic tangent: t / (t + 2) with t = exp(2 |x|) - 1.

    For float32 it is 1 - 2 / (exp(2 |x|) + 1), and near 0 a polynomial, in half the time.
    """
    size = f.abs(x)
    maximum = 22.0 if f.double else 10.0
    size = f.where(size > maximum, maximum, size)
    if not f.double:
        square = size * size
        near = f.fma(size * square, f.polynomial(square, _TANH), size)
        far = 1.0 - 2.0 / _square_of_exp_and_one(f, size)
        return f.copy_sign(f.where(size < 0.625, near, far), x)
    t = _expm1(f, size + size)
    return f.copy_sign(f.where(size < 1e-8, size, t / (t + 2.0)), x)


def sinh(f: Formula, x: Value) -> Value:
    """The hyperbolic sine: h + h / (2 h + 1) with h = (exp(|x|) - 1) / 2."""
    size = f.abs(x)
    h = _expm1(f, size, 1)
    large_result = f.where(h.equals(INF), 0.0, h / (h + h + 1.0))
    return f.copy_sign(f.where(size < 1e-8, size, h + large_result), x)


def cosh(f: Formula, x: Value) -> Value:
    """The hyperbolic cosine."""
    h = exp(f, f.abs(x), 1)
    return h + 0.25 / h


def split(f: Formula, x: Value) -> tuple[Value, Value]:
    """Split a positive normal number into its exponent n and m between sqrt(1/2) and sqrt(2)."""
    root = f.bits_of(f.number(math.sqrt(0.5)))
    bits = f.bits_of(x)
    n = (bits - root) >> f.mantissa
    return n, f.of_bits(bits - (n << f.mantissa))


def _series(f: Formula, s: Value) -> Value:
    """(2 artanh(s) - 2 s) / s, for s**2 below 0.03."""
    z = s * s
    terms = 10 if f.double else 4
    return z * f.polynomial(z, [2 / (2 * k + 3) for k in range(terms)])


def log_sum(f: Formula, n: Value, m: Value, low: Value | None = None) -> Value:
    """n log 2 + log(m) + a small number."""
    high_two, low_two = LOG2[f.double]
    k = f.to_number(n)
    y = m - 1.0
    s = y / (y + 2.0)
    half = y * y * 0.5
    remainder = k * low_two if low is None else f.fma(k, f.number(low_two), low)
    inner = f.fma(s, half + _series(f, s), remainder)
    return f.fma(k, f.number(high_two), y - (half - inner))


def _fix_poles(f: Formula, x: Value, result: Value, pole: float) -> Value:
    """Replace the result of a logarithm at its pole, below it, at infinity and for NaN."""
    result = f.where(x.equals(INF), INF, result)
    result = f.where(x.equals(pole), -INF, result)
    return f.where(x < pole, NAN, f.where(f.nan(x), x, result))


def log(f: Formula, x: Value) -> Value:
    """The natural logarithm."""
    tiny = x < math.ldexp(1.0, 1 - f.bias)
    argument = f.where(tiny, x * 2.0 ** (f.mantissa + 2), x)
    n, m = split(f, argument)
    n = n - f.where(tiny, f.integer(f.mantissa + 2), f.integer(0))
    return _fix_poles(f, x, log_sum(f, n, m), 0.0)


def log1p(f: Formula, x: Value) -> Value:
    """log(1 + x): the logarithm of the rounded sum, corrected for its rounding error."""
    u = x + 1.0
    lost = f.where(u >= 2.0, 1.0 - (u - x), x - (u - 1.0)) / u
    n, m = split(f, u)
    result = f.where(f.abs(x) < 2.0 ** -(f.mantissa + 2), x, log_sum(f, n, m, lost))
    return _fix_poles(f, x, result, -1.0)


def asinh(f: Formula, x: Value) -> Value:
    """The inverse of the hyperbolic sine: log(1 + x + x**2 / (1 + sqrt(1 + x**2)))."""
    size = f.abs(x)
    large = size > 1e9
    argument = f.where(large, 1.0, size)
    square = argument * argument
    small = f.call("log1p", argument + square / (f.sqrt(square + 1.0) + 1.0))
    far = f.call("log", size) + math.log(2)
    return f.copy_sign(f.where(large, far, small), x)


def acosh(f: Formula, x: Value) -> Value:
    """The inverse of the hyperbolic cosine."""
    large = x > 1e9
    t = f.where(large, 1.0, x) - 1.0
    near = f.call("log1p", t + f.sqrt(t * 2.0 + t * t))
    return f.where(x < 1.0, NAN, f.where(large, f.call("log", x) + math.log(2), near))


def atanh(f: Formula, x: Value) -> Value:
    """The inverse of the hyperbolic tangent: log1p(2 x / (1 - x)) / 2."""
    size = f.abs(x)
    return f.copy_sign(f.call("log1p", (size + size) / (1.0 - size)) * 0.5, x)
