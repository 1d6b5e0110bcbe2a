"""Elementwise integrals without a closed form: exponential, Fresnel and Spence's."""

from __future__ import annotations

__all__ = ["dawsn", "expint", "fresnel_cos", "fresnel_sin", "spence"]

import math
from typing import Any, Final

from weft_graph.ir import scalar
from weft_graph.ir.builder import out
from weft_graph.ir.node import Output
from weft_graph.ir.scalar import Scalar
from weft_graph.ops import chebyshev_series
from weft_graph.ops.elementwise import FLOATING, register_unary
from weft_graph.ops.series import chebyshev, in_float64, power_series


@in_float64
def _dawson(x: Scalar, exact: bool) -> Scalar:
    size, near = scalar.absolute(x), scalar.clamp(x, -3, 3)
    far = scalar.maximum(size, 3)
    low = near * chebyshev(chebyshev_series.DAWSON_NEAR, near * near * (2 / 9) - 1, exact)
    tail = chebyshev(chebyshev_series.DAWSON_FAR, 2 * scalar.square(3 / far) - 1, exact)
    return scalar.where(size > 3, scalar.sign(x) * tail / far, low)


_EULER: Final = 0.5772156649015329


@in_float64
def _exponential_integral(x: Scalar, exact: bool) -> Scalar:
    near, middle, far = scalar.minimum(x, 6), scalar.clamp(x, 6, 24), scalar.maximum(x, 24)
    smooth = chebyshev(chebyshev_series.EI_NEAR, near / 3 - 1, exact) * scalar.exp(near) * near
    low = smooth + (scalar.log(near) + _EULER)
    middle_range = (
        chebyshev(chebyshev_series.EI_MIDDLE, 16 / middle - 5 / 3, exact)
        * scalar.exp(middle)
        / middle
    )
    root = scalar.exp(0.5 * far)  # twice, as exp(far) may be infinite where its share is not
    high = root * (chebyshev(chebyshev_series.EI_FAR, 48 / far - 1, exact) / far) * root
    overflow = scalar.where(scalar.is_inf(x), x, high)
    return scalar.where(x > 24, overflow, scalar.where(x > 6, middle_range, low))


_BEND: Final = 1.75  # from where on Fresnel's integrals are waves about 1 / 2


def _fresnel_waves(size: Scalar, exact: bool) -> tuple[Scalar, Scalar, Scalar, Scalar]:
    """Return the amplitudes of the waves for large x, and the sine and cosine of their phase."""
    far = scalar.maximum(size, _BEND)
    argument = 2 * scalar.square(scalar.square(_BEND / far)) - 1
    first = 1 / (math.pi * far)
    f = first * chebyshev(chebyshev_series.FRESNEL_F, argument, exact)
    g = scalar.square(first) / far * chebyshev(chebyshev_series.FRESNEL_G, argument, exact)
    # From 1e8 on neighboring numbers are more than a period apart.
    quadrant = scalar.trunc_mod(scalar.square(scalar.minimum(far, 1e8)), 4)
    return f, g, scalar.sin((math.pi / 2) * quadrant), scalar.cos((math.pi / 2) * quadrant)


def _fresnel_series(fit: tuple[float, ...], near: Scalar, exact: bool) -> Scalar:
    argument = scalar.square(scalar.square(near)) * (2 / _BEND**4) - 1
    return chebyshev(fit, argument, exact)


@in_float64
def _fresnel_cosine(x: Scalar, exact: bool) -> Scalar:
    size, near = scalar.absolute(x), scalar.clamp(x, -_BEND, _BEND)
    f, g, sine, cosine = _fresnel_waves(size, exact)
    far = scalar.sign(x) * (0.5 + (f * sine - g * cosine))
    return scalar.where(
        size > _BEND, far, near * _fresnel_series(chebyshev_series.FRESNEL_COS, near, exact)
    )


@in_float64
def _fresnel_sine(x: Scalar, exact: bool) -> Scalar:
    size, near = scalar.absolute(x), scalar.clamp(x, -_BEND, _BEND)
    f, g, sine, cosine = _fresnel_waves(size, exact)
    far = scalar.sign(x) * (0.5 - (f * cosine + g * sine))
    low = near * near * near * _fresnel_series(chebyshev_series.FRESNEL_SIN, near, exact)
    return scalar.where(size > _BEND, far, low)


# B(2k) / (2k + 1)! of the Bernoulli numbers: the dilogarithm of 1 - exp(-u) by powers of u.
_BERNOULLI: Final = tuple(
    number / math.factorial(2 * k + 1)
    for k, number in enumerate(
        (1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6, -3617 / 510), start=1
    )
)


@in_float64
def _spence(x: Scalar, exact: bool) -> Scalar:
    """Compute it by a series for 1 / 2 to 2, and by identities for 1 - x and 1 / x elsewhere."""
    inverted = x > 2
    y = scalar.where(inverted, 1 / x, x)
    mirrored = y < 0.5
    u = scalar.neg(scalar.where(mirrored, scalar.log1p(scalar.neg(y)), scalar.log(y)))
    square = u * u
    value = u - 0.25 * square + u * square * power_series(_BERNOULLI, square)
    product = scalar.log(scalar.where(scalar.equal(y, 0), 1, y)) * u  # of 0 and infinity 0
    value = scalar.where(mirrored, math.pi**2 / 6 + product - value, value)
    return scalar.where(inverted, -0.5 * scalar.square(scalar.log(x)) - value, value)


for _op, _function, _doc in (
    ("Dawsn", _dawson, "exp(-x * x) times the integral of exp(t * t) from 0 to x."),
    ("Expint", _exponential_integral, "The integral of exp(t) / t from -inf to x."),
    ("FresnelCos", _fresnel_cosine, "The integral of cos(pi / 2 * t * t) from 0 to x."),
    ("FresnelSin", _fresnel_sine, "The integral of sin(pi / 2 * t * t) from 0 to x."),
    ("Spence", _spence, "The integral of log(t) / (1 - t) from 1 to x."),
):
    register_unary(_op, FLOATING, _function, _doc, in_float32=True)


def dawsn(x: Any, name: str | None = None) -> Output:
    """Return Dawson's integral: exp(-x * x) times the integral of exp(t * t) from 0 to x.

    Args:
      x: floating, any shape.
    Returns: shape and dtype of `x`.

    Examples:
      >>> np.round(wf.Session().run(wf.math.special.dawsn([0.0, 1.0, 10.0])), 3)
      array([0.   , 0.538, 0.05 ], dtype=float32)
    """
    return out("Dawsn", [x], name=name)


def expint(x: Any, name: str | None = None) -> Output:
    """Return the exponential integral: the integral of exp(t) / t from -inf to x.

    Args:
      x: floating, any shape; -inf at 0, NaN below.
    Returns: shape and dtype of `x`.

    Examples:
      >>> np.round(wf.Session().run(wf.math.special.expint([0.0, 1.0, 2.0])), 3)
      array([ -inf, 1.895, 4.954], dtype=float32)
    """
    return out("Expint", [x], name=name)


def fresnel_cos(x: Any, name: str | None = None) -> Output:
    """Return Fresnel's integral of cos(pi / 2 * t * t) from 0 to x.

    Args:
      x: floating, any shape.
    Returns: shape and dtype of `x`.

    Examples:
      >>> np.round(wf.Session().run(wf.math.special.fresnel_cos([0.0, 1.0, 10.0])), 3)
      array([0.  , 0.78, 0.5 ], dtype=float32)
    """
    return out("FresnelCos", [x], name=name)


def fresnel_sin(x: Any, name: str | None = None) -> Output:
    """Return Fresnel's integral of sin(pi / 2 * t * t) from 0 to x.

    Args:
      x: floating, any shape.
    Returns: shape and dtype of `x`.

    Examples:
      >>> np.round(wf.Session().run(wf.math.special.fresnel_sin([0.0, 1.0, 10.0])), 3)
      array([0.   , 0.438, 0.468], dtype=float32)
    """
    return out("FresnelSin", [x], name=name)


def spence(x: Any, name: str | None = None) -> Output:
    """Return Spence's integral of log(t) / (1 - t) from 1 to x, the dilogarithm of 1 - x.

    Args:
      x: floating, any shape; NaN below 0.
    Returns: shape and dtype of `x`.

    Examples:
      >>> np.round(wf.Session().run(wf.math.special.spence([0.0, 1.5, 2.0])), 3)
      array([ 1.645, -0.448, -0.822], dtype=float32)
    """
    return out("Spence", [x], name=name)
