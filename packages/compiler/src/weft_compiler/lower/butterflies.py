"""Fourier transforms of a few elements, from which larger transforms are composed."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Final

from weft_compiler.ir.expressions import apply, number
from weft_compiler.lower.complex_numbers import Pair
from weft_tensor.dtypes import DType

RADICES: Final = (4, 2, 3, 5, 7, 11, 13)
"""Sizes of the transforms that `butterfly` supports, in the order of the passes."""


def factors_of(size: int) -> list[int]:
    """Factor a size into radices, in the order of the passes.

    Empty if a factor is not supported.
    """
    factors = []
    for radix in RADICES:
        while size % radix == 0:
            factors.append(radix)
            size //= radix
    return factors if size == 1 else []


def scaled(x: Pair, factor: float) -> Pair:
    """Return a complex number times a real one."""
    scale = number(factor, x[0].dtype)
    return apply("mul", x[0], scale), apply("mul", x[1], scale)


def _sum(x: Pair, y: Pair) -> Pair:
    return apply("add", x[0], y[0]), apply("add", x[1], y[1])


def _difference(x: Pair, y: Pair) -> Pair:
    return apply("sub", x[0], y[0]), apply("sub", x[1], y[1])


def _times_i(x: Pair, y: Pair) -> tuple[Pair, Pair]:
    """Return x - i y and x + i y."""
    return (
        (apply("add", x[0], y[1]), apply("sub", x[1], y[0])),
        (apply("sub", x[0], y[1]), apply("add", x[1], y[0])),
    )


def butterfly(x: Sequence[Pair], name: Callable[[Pair], Pair], dtype: DType) -> list[Pair]:
    """Return the Fourier transform of a few elements.

    Args:
      name: stores a number in a variable.
    """
    if len(x) == 2:
        return [_sum(*x), _difference(*x)]
    if len(x) == 4:
        even, odd = [name(_sum(x[i], x[i + 2])) for i in (0, 1)]
        even_rest, odd_rest = [name(_difference(x[i], x[i + 2])) for i in (0, 1)]
        second, fourth = _times_i(even_rest, odd_rest)
        return [_sum(even, odd), second, _difference(even, odd), fourth]
    return _odd_butterfly(x, name, dtype)


def _odd_butterfly(x: Sequence[Pair], name: Callable[[Pair], Pair], dtype: DType) -> list[Pair]:
    """Return the transform of an odd number of elements, by sums of elements at opposite ends."""
    radix = len(x)
    half_count = radix // 2
    sums = [name(_sum(x[j], x[radix - j])) for j in range(1, half_count + 1)]
    rests = [name(_difference(x[j], x[radix - j])) for j in range(1, half_count + 1)]
    total = x[0]
    for sum_ in sums:
        total = _sum(total, sum_)
    results: list[Pair] = [total] * radix
    for k in range(1, half_count + 1):
        even: Pair = x[0]
        odd: Pair = number(0, dtype), number(0, dtype)
        for j in range(1, half_count + 1):
            angle = 2 * math.pi * (j * k % radix) / radix
            even = _sum(even, scaled(sums[j - 1], math.cos(angle)))
            odd = _sum(odd, scaled(rests[j - 1], math.sin(angle)))
        results[k], results[radix - k] = _times_i(name(even), name(odd))
    return results
