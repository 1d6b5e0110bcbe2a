"""Sine, cosine and tangent.

Large arguments are reduced exactly for any magnitude (Payne and Hanek). x is an integer times a
power of two. The integer is multiplied with a window of the stored bits of 2 / pi, chosen so that
the product modulo 4 is the number of quarter turns.
"""

from __future__ import annotations

import functools
import math
from typing import Final

from weft_compiler.codegen.mathematics.formula import Formula, Value

_PADDING: Final = {True: 58, False: 26}
_WORDS: Final = {True: 146, False: 26}
_HALF_PI: Final = (math.pi / 2, 6.123233995736766e-17)


@functools.cache
def two_over_pi_words(double: bool) -> tuple[int, ...]:
    """Return a table of 64-bit words of 2 / pi, each starting 8 bits after the previous one."""
    bits = 8 * _WORDS[double] + 64
    unit = 1 << (bits + 64)
    pi = 16 * _arctangent(5, unit) - 4 * _arctangent(239, unit)  # Machin's formula
    fraction = ((2 * unit * unit // pi) >> 64) >> _PADDING[double]
    return tuple(
        (fraction >> (bits - 64 - 8 * index)) & ((1 << 64) - 1) for index in range(_WORDS[double])
    )


def _arctangent(inverse: int, unit: int) -> int:
    """The arctangent of 1 / inverse, in units of 1 / one."""
    power = unit // inverse
    total, divisor, sign = power, 1, 1
    while power:
        power //= inverse * inverse
        divisor, sign = divisor + 2, -sign
        total += sign * (power // divisor)
    return total


def _window(f: Formula, bits: Value, bias: int, mantissa: int) -> tuple[Value, Value]:
    """Return the integer factor of x, and the index of the word of 2 / pi to start with."""
    scale = f.logical_shift(bits, mantissa) - bias
    fraction = (bits & ((1 << mantissa) - 1)) | (1 << mantissa)
    position = scale >> 3
    point = f.where(position < 0, f.like(position, 0), position)
    return fraction << (scale & 7), point


def _unsigned(f: Formula, x: Value) -> Value:
    """Convert an unsigned 32-bit integer, stored in 64 bits, to float64."""
    return f.of_bits(x | 0x4330000000000000) - 2.0**52


def _signed(f: Formula, x: Value) -> Value:
    """Convert the upper half of a 64-bit word, as a signed integer, to float64."""
    upper = f.logical_shift(x, 32) ^ 0x80000000
    return f.of_bits(upper | 0x4330000000000000) - (2.0**52 + 2.0**31)


def _high_product(f: Formula, x: Value, y: Value) -> tuple[Value, Value]:
    """Return the upper and the lower word of the product of two 64-bit words."""
    mask = 0xFFFFFFFF
    x0, x1, y0, y1 = x & mask, f.logical_shift(x, 32), y & mask, f.logical_shift(y, 32)
    low = x0 * y0
    middle = x1 * y0 + f.logical_shift(low, 32)
    low_sum = x0 * y1 + (middle & mask)
    high = x1 * y1 + f.logical_shift(middle, 32) + f.logical_shift(low_sum, 32)
    return high, (low_sum << 32) | (low & mask)


def _carry(f: Formula, total: Value, part: Value) -> Value:
    """Return 1 if a sum of unsigned words overflowed: it is smaller than one of its terms."""
    overflows = f.put("i1", f"icmp ult i64 {total.name}, {part.name}")
    return f.convert("zext", overflows, "i64")


def _quarter(f: Formula, product: Value) -> tuple[Value, Value]:
    """Split a product into the nearest quarter turn and the remainder."""
    n = f.logical_shift(product + (1 << 61), 62)
    return n, product - (n << 62)


def _reduce_double(f: Formula, size: Value) -> tuple[Value, Value, Value]:
    """Return the quarter turns of a float64, and the remainder in two parts."""
    table = f.table("weft.two_over_pi.f64", two_over_pi_words(True))
    x, point = _window(f, f.bits_of(size), 1075 - 56, 52)
    words = [f.entry(table, point + skip) for skip in (0, 8, 16)]
    high, low = _high_product(f, x, words[1])
    carried, _ = _high_product(f, x, words[2])
    low_all = low + carried
    n, remainder = _quarter(f, x * words[0] + high + _carry(f, low_all, low))
    pieces = [_signed(f, remainder) * 2.0**-30, _unsigned(f, remainder & 0xFFFFFFFF) * 2.0**-62]
    pieces += [_unsigned(f, f.logical_shift(low_all, 32)) * 2.0**-94]
    pieces += [_unsigned(f, low_all & 0xFFFFFFFF) * 2.0**-126]
    first, error = f.two_sum(pieces[0], pieces[1])
    high_part, error_2 = f.two_sum(first, error + pieces[2])
    high_part, error_3 = f.two_sum(high_part, error_2 + pieces[3])
    r, r_error = f.two_product(high_part, f.number(_HALF_PI[0]))
    low_part = high_part * _HALF_PI[1] + error_3 * _HALF_PI[0] + r_error
    r, lost = f.two_sum(r, low_part)
    return n, r, lost


def _reduce_single(f: Formula, size: Value) -> tuple[Value, Value, Value]:
    """Return the quarter turns of a float32 and the remainder in two parts, via float64."""
    table = f.table("weft.two_over_pi.f32", two_over_pi_words(False))
    x, point = _window(f, f.convert("zext", f.bits_of(size), "i64"), 150 - 24, 23)
    lower = x * f.logical_shift(f.entry(table, point + 8), 32)
    n, remainder = _quarter(f, x * f.entry(table, point) + f.logical_shift(lower, 32))
    wide = _signed(f, remainder) * 2.0**32 + _unsigned(f, remainder & 0xFFFFFFFF)
    wide = wide * (2.0**-62 * math.pi / 2)
    r = f.convert("fptrunc", wide, "float")
    lost = f.convert("fptrunc", wide - f.convert("fpext", r, "double"), "float")
    return f.convert("trunc", n, "i32"), r, lost


def _reduce_argument(f: Formula, x: Value) -> tuple[Value, Value, Value]:
    size = f.abs(x)
    n, r, lost = (_reduce_double if f.double else _reduce_single)(f, size)
    near = size < math.pi / 4
    n = f.where(near, f.integer(0), n)
    return n, f.where(near, size, r), f.where(near, 0.0, lost)


def _sine(f: Formula, r: Value, lost: Value) -> Value:
    """Return the sine of a remainder below an eighth turn, by its Taylor polynomial."""
    z = r * r
    terms = range(1, 9 if f.double else 5)
    series = f.polynomial(z, [(-1) ** k / math.factorial(2 * k + 1) for k in terms])
    return r + f.fma(r * z, series, lost)


def _cosine(f: Formula, r: Value, lost: Value) -> Value:
    """Return the cosine of a remainder below an eighth turn, with 1 - r**2 / 2 corrected."""
    z = r * r
    half = z * 0.5
    first = 1.0 - half
    terms = range(2, 10 if f.double else 6)
    series = f.polynomial(z, [(-1) ** k / math.factorial(2 * k) for k in terms])
    return first + (((1.0 - first) - half) + (f.fma(z * z, series, -(r * lost))))


def _at_infinity(f: Formula, x: Value, result: Value) -> Value:
    """Return NaN if x is infinite or NaN, else the result."""
    return f.where(f.abs(x) < math.inf, result, x - x)


def sin(f: Formula, x: Value) -> Value:
    """The sine."""
    n, r, lost = _reduce_argument(f, x)
    result = f.where((n & 1).equals(0), _sine(f, r, lost), _cosine(f, r, lost))
    result = f.where((n & 2).equals(0), result, -result)
    sign = f.bits_of(x) & (-1 << (63 if f.double else 31))
    return _at_infinity(f, x, f.of_bits(f.bits_of(result) ^ sign))


def cos(f: Formula, x: Value) -> Value:
    """The cosine."""
    n, r, lost = _reduce_argument(f, x)
    result = f.where((n & 1).equals(0), _cosine(f, r, lost), _sine(f, r, lost))
    result = f.where(((n + 1) & 2).equals(0), result, -result)
    return _at_infinity(f, x, result)


def tan(f: Formula, x: Value) -> Value:
    """The tangent: sine divided by cosine."""
    n, r, lost = _reduce_argument(f, x)
    s, c = _sine(f, r, lost), _cosine(f, r, lost)
    even = (n & 1).equals(0)
    result = f.where(even, s, -c) / f.where(even, c, s)
    sign = f.bits_of(x) & (-1 << (63 if f.double else 31))
    return _at_infinity(f, x, f.of_bits(f.bits_of(result) ^ sign))
