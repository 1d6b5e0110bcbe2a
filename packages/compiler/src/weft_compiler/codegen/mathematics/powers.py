"""x to the power of y: exp(y log x), with the logarithm as a sum of two float64."""

from __future__ import annotations

import math
from typing import Final

from weft_compiler.codegen.mathematics import exponentials
from weft_compiler.codegen.mathematics.formula import Formula, Value

_THIRD: Final = (1 / 3, 1.850371707708594e-17)


def _log(f: Formula, x: Value) -> tuple[Value, Value]:
    """Return log of a positive number in two parts: 2 artanh((m - 1) / (m + 1)) + n log 2."""
    tiny = x < math.ldexp(1.0, -1022)
    n, m = exponentials.split(f, f.where(tiny, x * 2.0**54, x))
    n = n - f.where(tiny, f.integer(54), f.integer(0))
    y = m - 1.0
    denominator, denominator_low = f.two_sum(f.number(2.0), y)
    s = y / denominator
    product, error = f.two_product(s, denominator)
    s_low = (((y - product) - error) - s * denominator_low) / denominator
    z, z_low = f.two_product(s, s)
    z_low = z_low + (s + s) * s_low
    remainder = z * f.polynomial(z, [1 / (2 * k + 5) for k in range(10)])
    t, t_low = f.two_sum(f.number(_THIRD[0]), remainder)
    t_low = t_low + _THIRD[1]
    p, p_low = f.two_product(z, t)
    p_low = p_low + z * t_low + z_low * t
    q, q_low = f.two_product(s, p)
    q_low = q_low + s * p_low + s_low * p
    series, series_low = f.two_sum(s, q)
    series_low = (series_low + s_low + q_low) * 2.0
    k = f.to_number(n)
    high, low = exponentials.LOG2[True]
    total, error = f.two_sum(k * high, series * 2.0)
    return f.two_sum(total, error + (series_low + k * low))


def _is_odd(f: Formula, y: Value) -> tuple[Value, Value]:
    """Return two conditions: that a number is an integer, and that it is an odd integer."""
    full_count = f.truncate(y).equals(y)
    half = y * 0.5
    return full_count, full_count & ~f.truncate(half).equals(half)


def _special(f: Formula, x: Value, y: Value, result: Value) -> Value:
    """Set the results of pow for special arguments: zeros, infinities, negative bases, NaN."""
    size = f.abs(x)
    full_count, odd = _is_odd(f, y)
    none, endless = size.equals(0.0), size.equals(math.inf)
    result = f.where(none, f.where(y < 0.0, math.inf, f.number(0.0)), result)
    result = f.where(endless, f.where(y < 0.0, 0.0, f.number(math.inf)), result)
    grows = f.put("i1", f"xor i1 {(size < 1.0).name}, {(y > 0.0).name}")
    limit = f.where(size.equals(1.0), 1.0, f.where(grows, math.inf, f.number(0.0)))
    unbounded = f.abs(y).equals(math.inf)
    result = f.where(unbounded, limit, result)
    negative = f.bits_of(x) < 0
    result = f.where(negative & odd, -result, result)
    no_number = (x < 0.0) & ~(full_count | unbounded | endless)
    result = f.where(no_number | f.nan(x) | f.nan(y), math.nan, result)
    return f.where(x.equals(1.0) | y.equals(0.0), 1.0, result)


def pow(f: Formula, x: Value, y: Value) -> Value:
    """x to the power of y."""
    size = f.abs(x)
    log, log_low = _log(f, size)
    product, low = f.two_product(y, log)
    low = f.where(f.abs(product) < 800.0, f.fma(y, log_low, low), 0.0)
    return _special(f, x, y, exponentials.exp(f, product, low=low))


def coarse_pow(f: Formula, x: Value, y: Value) -> Value:
    """x to the power of y for float32, by a logarithm with 53 bits."""
    size = f.abs(x)
    n, m = exponentials.split(f, size)
    return _special(f, x, y, exponentials.exp(f, y * exponentials.log_sum(f, n, m)))
