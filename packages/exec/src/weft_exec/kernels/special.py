"""Special functions over arrays of float32 or float64: error, gamma and zeta functions.

The coefficients are Chebyshev fits that were computed with 60 digits, or Bernoulli numbers. If a
table is used for both types, float32 uses only its leading terms. Results are accurate to a few
units in the last place; near zeros of a function, the error is relative to the function's scale.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from weft_tensor.expansions import DIGAMMA, LGAMMA, STIRLING, TEMME, ZETA

Array = np.ndarray[Any, Any]
Function = Callable[..., Any]

BLOCK = 1 << 14
"""Number of elements that are processed together, so that temporaries stay in the cache."""

_ERFC = (
    -0.671794084056692263,
    0.00169827984192869783,
    0.192769787051471555,
    0.0103746922536527052,
    -0.13721364535413777,
    0.00797074310154105722,
    0.128513233832157335,
    -0.0432375313164587077,
    -0.12391425645486072,
    0.0970949895883778086,
    0.0982052201408152052,
    -0.160561033275370739,
    -0.0286619920991054969,
    0.202717526066653018,
    -0.0891810275056924201,
    -0.173689004507513402,
    0.213924312637683037,
    0.0402640296889468634,
    -0.253781760723022974,
    0.153914679774390149,
    0.134039789092204046,
    -0.276726499482039016,
    0.0828019963517622392,
    0.226427165489835427,
    -0.194720160721488452,
    -0.0794954003847741028,
    0.107610631805069604,
)
"""Coefficients in t - 1/2 of (log(erfc(x) / t) + x ** 2) / (x * t), for t = 2 / (2 + x) in (0, 1];
this form is exact at 0.
"""

_ERFC_FLOAT32 = (
    -0.6717940785,
    0.001698213326,
    0.1927681693,
    0.01038235849,
    -0.1371378938,
    0.007715389515,
    0.1272182998,
    -0.03951977686,
    -0.1139894986,
    0.06976708903,
    0.06454377872,
    -0.05545543681,
)

_ERF = (
    1.12837916709551257,
    -0.376126389031837524,
    0.112837916709551203,
    -0.0268661706451298545,
    0.00522397762542345435,
    -0.000854832702194542732,
    0.000120553329033506683,
    -0.000014925647581008593,
    1.64620457110130252e-6,
    -1.63646458548163877e-7,
    1.4792435426962471e-8,
    -1.21647643372245056e-9,
    8.70975523285178972e-11,
    -4.23203767648745923e-12,
)
"""Coefficients in x ** 2 of erf(x) / x, for |x| <= 1."""

_ERF_FLOAT32 = (
    1.12837925,
    0.102769865,
    -0.000195289616,
    -0.000614836844,
    8.45959547e-05,
    -4.79446626e-06,
    2.75616865e-08,
    5.42215563e-09,
)
"""Coefficients in x ** 2 of artanh(erf(x)) / x, for |x| <= 4, where erf(x) rounds to 1. The fit is
most accurate where the hyperbolic tangent is steep; the largest observed error is 3.1 units in the
last place.
"""


def apply_in_blocks(function: Function) -> Function:
    """Return a function that applies `function` to blocks of flattened, broadcast inputs.

    The results are stored in `out`, or in a new array of the inputs' type.
    """

    def run(*inputs: Any, out: Array | None = None) -> Any:
        arrays = np.broadcast_arrays(*inputs) if len(inputs) > 1 else [np.asarray(inputs[0])]
        result = np.empty(arrays[0].shape, arrays[0].dtype) if out is None else out
        if out is None and 0 < arrays[0].size <= BLOCK and arrays[0].ndim:
            small_result = function(*arrays)
            return (
                small_result
                if small_result.dtype == arrays[0].dtype
                else small_result.astype(arrays[0].dtype)
            )
        flat = [np.reshape(array, -1) for array in arrays]
        target = result.reshape(-1)
        for index in range(0, target.size, BLOCK):
            part = slice(index, index + BLOCK)
            target[part] = function(*[array[part] for array in flat])
        return result if result.ndim else result[()]

    return run


def _polynomial(coefficients: Sequence[float], x: Array, terms: int | None = None) -> Any:
    """Evaluate a polynomial by Horner's rule; the constant term comes first."""
    selected = coefficients[:terms]
    total = np.full_like(x, selected[-1])
    for coefficient in reversed(selected[:-1]):
        total *= x
        total += x.dtype.type(coefficient)
    return total


def chebyshev(coefficients: Sequence[float], t: Array, terms: int) -> Any:
    """Evaluate a Chebyshev series over t in [0, 1] by Clenshaw's recurrence."""
    doubled = 4 * t - 2
    last = np.zeros_like(t)
    current = np.zeros_like(t)
    for coefficient in reversed(coefficients[1:terms]):
        following = doubled * current
        following -= last
        following += t.dtype.type(coefficient)
        last, current = current, following
    return doubled / 2 * current - last + t.dtype.type(coefficients[0])


# ----------------------------------------------------------------------------------- error


_UNDERFLOW = 30
"""Smallest argument for which erfc(x) is 0 in float64."""


def _erfc_positive(x: Array) -> Any:
    """Compute erfc(x) for x >= 0."""
    single = x.dtype == np.float32
    index = np.minimum(x, _UNDERFLOW)
    t = index + 2
    np.divide(2, t, out=t)
    total = _polynomial(_ERFC_FLOAT32 if single else _ERFC, t - x.dtype.type(0.5))
    total *= index
    total *= t
    # exp(-x * x) with the square split in two, so that its rounding error does not grow with x:
    # the head has so few digits that its square is exact.
    scale = x.dtype.type(2.0**5 if single else 2.0**16)
    head = index * scale
    np.rint(head, out=head)
    head /= scale
    total -= (index - head) * (index + head)
    np.exp(total, out=total)
    total *= t
    head *= -head
    total *= np.exp(head, out=head)
    return total


def _erf_small(x: Array) -> Any:
    return x * _polynomial(_ERF, x * x, 9 if x.dtype == np.float32 else None)


_NUMBERS = [np.array(number, np.float32) for number in reversed(_ERF_FLOAT32)]
_LIMIT = np.full(BLOCK, 16, np.float32)


def _erf_float32(x: Array) -> Any:
    """Compute erf(x) by a hyperbolic tangent, which NumPy has vectorized."""
    first, *coefficients, last = _NUMBERS
    square = np.multiply(x, x)
    # Beyond the limit the tangent is 1. A scalar limit would take three times as long.
    np.minimum(square, _LIMIT[: x.size].reshape(x.shape), out=square)
    total = np.multiply(square, first)
    for number in coefficients:
        np.add(total, number, out=total)
        np.multiply(total, square, out=total)
    np.add(total, last, out=total)
    np.multiply(total, x, out=total)
    return np.tanh(total, out=total)


@apply_in_blocks
def erf(x: Array) -> Any:
    """Compute the error function."""
    if x.dtype == np.float32:
        return _erf_float32(x)
    size = np.abs(x)
    small = _erf_small(np.clip(x, -1, 1))
    if not (size > 1).any():
        return small
    large = np.copysign(1 - _erfc_positive(np.maximum(size, 1)), x)
    return np.where(size > 1, large, small)


@apply_in_blocks
def erfc(x: Array) -> Any:
    """Compute the complementary error function, 1 - erf(x)."""
    tail = _erfc_positive(np.abs(x))
    sign = np.copysign(x.dtype.type(1), x)
    tail *= sign
    tail += np.subtract(1, sign, out=sign)
    return tail


# ----------------------------------------------------------------------------------- gamma


def _lgamma_positive(x: Array) -> Any:
    """Compute log(gamma(x)) for x > 0."""
    large = x >= 10
    # For the others x = 2 + z + steps: the recurrence leads to |z| <= 0.5.
    clipped = np.where(large, 2.0, x)
    steps = np.clip(np.rint(clipped) - 2, 0, None)
    z = clipped - 2 - steps
    product = np.ones_like(x)
    for k in range(1, 9):
        product *= np.where(steps >= k, clipped - k, 1)
    below = clipped < 1.5
    z = np.where(below, clipped - 1, z)
    tiny = clipped < 0.5
    z = np.where(tiny, clipped, z)
    series = z * _polynomial(LGAMMA, z)
    result = series + np.log(product)
    result -= np.where(below, np.log1p(z), 0)
    result -= np.where(tiny, np.log(np.where(tiny, clipped, 1)), 0)
    if not large.any():
        return result
    big = np.where(large, x, 10)
    inverse = 1 / big
    stirling = (big - 0.5) * (np.log(big) - 1) - 0.5 + 0.5 * np.log(2 * np.pi)
    stirling += inverse * _polynomial(STIRLING, inverse * inverse)
    stirling = np.where(np.isinf(big), np.inf, stirling)
    return np.where(large, stirling, result)


def _sin_pi(x: Array) -> Any:
    """Compute sin(pi * x), exactly at the integers."""
    remaining = x - 2 * np.rint(x / 2)
    remaining = np.where(np.abs(remaining) > 0.5, np.copysign(1, remaining) - remaining, remaining)
    return np.sin(np.pi * remaining)


def _tan_pi(x: Array) -> Any:
    return np.tan(np.pi * (x - np.rint(x)))


@apply_in_blocks
def lgamma(x: Array) -> Any:
    """Compute log(|gamma(x)|)."""
    wide = x.astype(np.float64)
    negative = wide <= 0
    positive = _lgamma_positive(np.where(negative, 1 - wide, wide))
    if not negative.any():
        return positive
    sine = np.abs(_sin_pi(np.where(np.isinf(wide), 0.5, wide)))
    reflected = np.where(sine == 0, np.inf, np.log(np.pi / np.where(sine == 0, 1, sine)) - positive)
    return np.where(negative, np.where(np.isinf(wide), np.inf, reflected), positive)


@apply_in_blocks
def digamma(x: Array) -> Any:
    """Compute the derivative of log(gamma(x)); NaN at 0 and the negative integers."""
    wide = x.astype(np.float64)
    negative = wide <= 0
    index = np.where(negative, 1 - wide, wide)
    shift = np.zeros_like(index)
    for _ in range(10):
        low = index < 10
        shift += np.where(low, 1 / np.where(low, index, 1), 0)
        index = np.where(low, index + 1, index)
    inverse = 1 / (index * index)
    result = np.log(index) - 0.5 / index - inverse * _polynomial(DIGAMMA, inverse) - shift
    if not negative.any():
        return result
    pole = negative & (wide == np.rint(wide))
    reflected = result - np.pi / np.where(pole, 1, _tan_pi(wide))
    return np.where(pole, np.nan, np.where(negative, reflected, result))


# ------------------------------------------------------------------------------------ zeta


@apply_in_blocks
def zeta(x: Array, q: Array) -> Any:
    """Compute the Hurwitz zeta function by Euler-Maclaurin summation."""
    s, a = x.astype(np.float64), q.astype(np.float64)
    is_integer = a == np.rint(a)
    undefined = (s < 1) | ((a <= 0) & ~is_integer & (s != np.rint(s))) | np.isnan(s) | np.isnan(a)
    infinite = (s == 1) | ((a <= 0) & is_integer)
    usable = ~(undefined | infinite)
    s, a = np.where(usable, s, 2), np.where(usable, a, 1)
    is_negative = a < 0
    if not is_negative.any():
        total = _zeta_sum(s, a)
    else:
        # The terms below 0 are a difference of two sums above it.
        n = np.where(is_negative, -np.floor(a), 0)
        a = a + n
        odd, remaining = np.mod(s, 2) == 1, np.where(is_negative, 1 - a, 1)
        folded = _zeta_sum(s, remaining) - _zeta_sum(s, n + remaining)
        total = _zeta_sum(s, a) + np.where(is_negative, np.where(odd, -folded, folded), 0)
    return _apply_limits(total, infinite, undefined)


def _zeta_sum(s: Array, a: Array) -> Any:
    """Compute the sum for s > 1 and a > 0."""
    total = np.zeros_like(a)
    # The sum of the tail converges where 2 pi a is well above s; terms before that are added one
    # by one, up to where nothing that follows can matter.
    threshold = 12 + s / 2
    low = a < threshold
    is_done = np.zeros(a.shape, bool)
    while low.any():
        term = np.where(low, np.where(low, a, 1) ** -s, 0)
        total += term
        is_done |= low & (a > 1) & (term * a <= total * 1e-18)
        a = np.where(low, a + 1, a)
        low = (a < threshold) & ~is_done
    is_complete = is_done | np.isinf(a)
    return total + np.where(
        is_complete, 0, _zeta_tail(np.where(is_complete, 2, s), np.where(is_complete, 20, a))
    )


def _zeta_tail(s: Array, a: Array) -> Any:
    power = a**-s
    total = power * a / (s - 1) + 0.5 * power
    factor = s * power / a
    for k, coefficient in enumerate(ZETA):
        total += coefficient * factor
        factor = factor * (s + 2 * k + 1) * (s + 2 * k + 2) / (a * a)
    return total


def _apply_limits(total: Array, infinite: Array, undefined: Array) -> Any:
    total = np.where(infinite, np.inf, total)
    return np.where(undefined, np.nan, total)


@apply_in_blocks
def polygamma(a: Array, x: Array) -> Any:
    """Compute the derivative of order a of digamma."""
    order, index = a.astype(np.float64), x.astype(np.float64)
    valid = (order == np.rint(order)) & (order >= 0)
    n = np.where(valid, order, 1)
    factorial = np.exp(lgamma(n + 1))
    factorial = np.where(factorial < 2.0**52, np.rint(factorial), factorial)
    sign = np.where(np.mod(n, 2) == 0, -1, 1)
    higher = sign * factorial * zeta(n + 1, index)
    result = np.where(n == 0, digamma(index), higher)
    return np.where(valid, result, np.nan)


# ----------------------------------------------------------------------- incomplete gamma


_SETTLED = 5e-16
"""A continued fraction has converged when its factors are this close to 1; rounding errors prevent
a smaller value.
"""
LARGE = 1e5
"""Smallest a for which the incomplete functions use Temme's uniform expansion."""


def _eta(a: Array, x: Array) -> tuple[Any, Any]:
    """Compute Temme's eta for a point, and eta ** 2 / 2 = x / a - 1 - log(x / a)."""
    mu = (x - a) / a
    clipped = np.clip(mu, -0.01, 0.01)
    series = clipped * clipped * _polynomial([(-1) ** k / k for k in range(2, 11)], clipped)
    usable = (mu > -1) & np.isfinite(mu)
    index = np.where(usable, mu, 1)
    half = np.where(usable, np.where(np.abs(mu) < 0.01, series, index - np.log1p(index)), np.inf)
    return np.copysign(np.sqrt(2 * half), mu), half


def _remainder(a: Array, eta: Array) -> tuple[Any, Any]:
    """Return the factor of the remainder, and its derivative with respect to eta."""
    eta = np.clip(eta, -0.1, 0.1)  # beyond, all that it is multiplied with is 0
    first, second = TEMME
    factor = _polynomial(first, eta) + _polynomial(second, eta) / a
    return factor, _polynomial([k * c for k, c in enumerate(first)][1:], eta)


def _uniform(a: Array, x: Array) -> Any:
    """Compute P(a, x) and Q(a, x) for large a."""
    eta, half = _eta(a, x)
    z = eta * np.sqrt(a / 2)
    remaining = np.exp(-a * half) / np.sqrt(2 * np.pi * a) * _remainder(a, eta)[0]
    return erfc(-z) / 2 - remaining, erfc(z) / 2 + remaining


def _uniform_slope(a: Array, x: Array) -> Any:
    """Compute the derivative of P(a, x) with respect to a, for large a."""
    eta, half = _eta(a, x)
    vanishes = a * half > 800  # as at 0 and at infinity
    mu = np.where(vanishes, 1, (x - a) / a)
    log = np.log1p(mu)
    flat = np.abs(eta) < 1e-150
    root = np.where(flat | vanishes, 1, eta)
    factor, slope = _remainder(a, eta)
    remaining = factor * (log - 0.5 / a) - slope * np.where(flat, 1, mu / root) / a
    density = np.exp(-np.where(vanishes, 0, a * half)) / np.sqrt(2 * np.pi * a)
    return np.where(vanishes, 0, -density * (np.where(flat, 1, log / root) + remaining))


def _lower_series(a: Array, x: Array) -> Any:
    """Compute P(a, x) by its power series, for x up to about a."""
    term = 1 / a
    total = term.copy()
    index = a.copy()
    while True:
        index += 1
        term = term * x / index
        total += term
        if not (term > total * 1e-17).any():
            break
    return total * np.exp(a * np.log(x) - x - lgamma(a))


def _upper_fraction(a: Array, x: Array) -> Any:
    """Compute Q(a, x) by Legendre's continued fraction, for x above about a + 1."""
    tiny = 1e-300
    b = x + 1 - a
    c = np.full_like(x, 1 / tiny)
    d = 1 / b
    result = d.copy()
    k = 0
    while True:
        k += 1
        numerator = -k * (k - a)
        b = b + 2
        d = numerator * d + b
        d = 1 / np.where(np.abs(d) < tiny, tiny, d)
        c = b + numerator / c
        c = np.where(np.abs(c) < tiny, tiny, c)
        change = d * c
        result *= change
        if not (np.abs(change - 1) > _SETTLED).any() or k > 100_000:
            break
    return result * np.exp(a * np.log(x) - x - lgamma(a))


def _incomplete(a: Array, x: Array, upper: bool) -> Any:
    wide_a, wide_x = a.astype(np.float64), x.astype(np.float64)
    valid = (wide_a > 0) & (wide_x >= 0) & np.isfinite(wide_a)
    large = valid & (wide_a >= LARGE)
    by_series = valid & ~large & (wide_x > 0) & (wide_x < wide_a + 1)
    by_fraction = valid & ~large & (wide_x >= wide_a + 1) & np.isfinite(wide_x)
    result = np.full_like(wide_x, np.nan)
    result[valid] = np.where(wide_x[valid] > 0, 0.0, 1.0)  # the upper one's limits
    if by_series.any():
        result[by_series] = 1 - _lower_series(wide_a[by_series], wide_x[by_series])
    if by_fraction.any():
        result[by_fraction] = _upper_fraction(wide_a[by_fraction], wide_x[by_fraction])
    if large.any():
        below, above = _uniform(wide_a[large], wide_x[large])
        result[large] = above
    if upper:
        return result
    lower = 1 - result
    if large.any():
        lower[large] = below
    if by_series.any():
        lower[by_series] = _lower_series(wide_a[by_series], wide_x[by_series])
    return lower


@apply_in_blocks
def igamma(a: Array, x: Array) -> Any:
    """Compute the regularized lower incomplete gamma function P(a, x)."""
    return _incomplete(a, x, upper=False)


@apply_in_blocks
def igammac(a: Array, x: Array) -> Any:
    """Compute the regularized upper incomplete gamma function Q(a, x)."""
    return _incomplete(a, x, upper=True)


@apply_in_blocks
def igamma_grad_a(a: Array, x: Array) -> Any:
    """Compute the derivative of P(a, x) with respect to a."""
    wide_a, wide_x = a.astype(np.float64), x.astype(np.float64)
    valid = (wide_a > 0) & (wide_x >= 0) & np.isfinite(wide_a)
    large = valid & (wide_a >= LARGE)
    # So far above `a`, the upper function and its slope are 0.
    is_inside = valid & ~large & (wide_x > 0) & (wide_x < wide_a + 60 * np.sqrt(wide_a) + 800)
    result = np.where(valid, 0.0, np.nan)
    by_fraction = is_inside & (wide_x >= wide_a + 1)
    by_series = is_inside & ~by_fraction
    if by_series.any():
        result[by_series] = _slope_by_series(wide_a[by_series], wide_x[by_series])
    if by_fraction.any():  # where the terms of the series cancel
        result[by_fraction] = _slope_by_fraction(wide_a[by_fraction], wide_x[by_fraction])
    if large.any():
        result[large] = _uniform_slope(wide_a[large], wide_x[large])
    return result


def _slope_by_fraction(a: Array, x: Array) -> Any:
    """Compute the derivative of P(a, x) with respect to a from the fraction of Q(a, x)."""
    b = x + 1 - a
    c, c_slope = np.full_like(x, 1e300), np.zeros_like(x)
    d = 1 / b
    d_slope = d * d
    result, slope = d.copy(), d_slope.copy()
    k = 0
    while True:
        k += 1
        numerator, b = -k * (k - a), b + 2
        d_next = 1 / (numerator * d + b)
        d_slope = -d_next * d_next * (k * d + numerator * d_slope - 1)
        c_next = b + numerator / c
        c_slope = -1 + k / c - numerator * c_slope / c / c
        d, c = d_next, c_next
        change, change_slope = d * c, d_slope * c + d * c_slope
        slope = slope * change + result * change_slope
        result = result * change
        has_converged = np.abs(change - 1) <= _SETTLED
        has_converged &= np.abs(change_slope * result) <= _SETTLED * np.abs(slope)
        if has_converged.all() or k > 100_000:
            break
    front = np.exp(a * np.log(x) - x - lgamma(a))
    return -front * (slope + result * (np.log(x) - digamma(a)))


def _slope_by_series(s: Array, index: Array) -> Any:
    """Compute the derivative of P(s, index) with respect to s from its power series."""
    log = np.log(index)
    term = np.exp(s * log - index - lgamma(s + 1))
    rate = log - digamma(s + 1)
    total = term * rate
    scale = np.abs(total)
    k = 0
    while True:
        k += 1
        term = term * index / (s + k)
        rate = rate - 1 / (s + k)
        total += term * rate
        scale = np.maximum(scale, np.abs(total))
        # The terms rise until s + k passes x.
        if not ((s + k < index) | (term * np.abs(rate) > scale * 1e-17)).any():
            break
    return total
