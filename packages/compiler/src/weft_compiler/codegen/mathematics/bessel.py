"""Modified Bessel functions, scaled by exponentials.

The coefficients are Chebyshev fits. Up to 8 they fit the function, in x / 8; beyond 8 they fit
sqrt(x) times the function, in 8 / x.
"""

from __future__ import annotations

from collections.abc import Sequence

from weft_compiler.codegen.mathematics.formula import Formula, Value
from weft_tensor.expansions import I0E_LARGE, I0E_SMALL, I1E_LARGE, I1E_SMALL


def _chebyshev(f: Formula, coefficients: Sequence[float], t: Value) -> Value:
    """Evaluate a Chebyshev series at t in [0, 1] by Clenshaw's recurrence."""
    twice = t * 4.0 - 2.0
    last, current = f.number(0.0), f.number(0.0)
    for coefficient in reversed(coefficients[1:]):
        last, current = current, f.fma(twice, current, coefficient - last)
    return f.fma(twice * 0.5, current, coefficients[0] - last)


def _scaled(f: Formula, size: Value, small: Sequence[float], large: Sequence[float]) -> Value:
    near = _chebyshev(f, small, f.where(size > 8.0, 8.0, size) * 0.125)
    argument = f.where(size < 8.0, 8.0, size)
    far = _chebyshev(f, large, 8.0 / argument) / f.sqrt(argument)
    return f.where(size > 8.0, far, near)


def bessel_i0e(f: Formula, x: Value) -> Value:
    """exp(-|x|) times the modified Bessel function of order 0."""
    return f.where(f.nan(x), x, _scaled(f, f.abs(x), I0E_SMALL, I0E_LARGE))


def bessel_i1e(f: Formula, x: Value) -> Value:
    """exp(-|x|) times the modified Bessel function of order 1, which is odd."""
    size = f.abs(x)
    value = _scaled(f, size, I1E_SMALL, I1E_LARGE)
    result = f.where(size > 8.0, value, f.where(size > 8.0, 8.0, size) * value)
    return f.where(f.nan(x), x, f.copy_sign(result, x))
