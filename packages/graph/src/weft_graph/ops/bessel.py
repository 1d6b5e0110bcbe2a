"""Bessel functions of orders 0 and 1, elementwise."""

from __future__ import annotations

__all__ = [
    "bessel_i0",
    "bessel_i0e",
    "bessel_i1",
    "bessel_i1e",
    "bessel_j0",
    "bessel_j1",
    "bessel_k0",
    "bessel_k0e",
    "bessel_k1",
    "bessel_k1e",
    "bessel_y0",
    "bessel_y1",
]

import math
from typing import Any

from weft_graph.ir import scalar
from weft_graph.ir.builder import out
from weft_graph.ir.node import Output
from weft_graph.ir.scalar import Scalar
from weft_graph.ops import chebyshev_series
from weft_graph.ops.elementwise import FLOATING, register_unary
from weft_graph.ops.series import chebyshev, in_float64

# --------------------------------------------------------------- of the first and second kind


def _waves(order: int, x: Scalar, exact: bool) -> tuple[Scalar, Scalar]:
    """Return J and Y for x >= 8, from an amplitude and a phase that vary slowly."""
    far = scalar.maximum(x, 8)
    argument = 2 * scalar.square(8 / far) - 1
    p = chebyshev((chebyshev_series.P0, chebyshev_series.P1)[order], argument, exact)
    q = chebyshev((chebyshev_series.Q0, chebyshev_series.Q1)[order], argument, exact) * (8 / far)
    # The cosine and the sine of far - pi / 4 - order * pi / 2, without a rounded difference.
    steady = scalar.where(scalar.is_inf(far), 0, far)
    sum_part, difference = (
        op(scalar.sin(steady), scalar.cos(steady)) for op in (scalar.add, scalar.sub)
    )
    cosine, sine = (sum_part, difference) if order == 0 else (difference, scalar.neg(sum_part))
    scale = scalar.sqrt(1 / (math.pi * far))
    return scale * (p * cosine - q * sine), scale * (p * sine + q * cosine)


def _j_series(order: int, scalar: Scalar, exact: bool) -> Scalar:
    """Return J0, or J1 over x, for x from 0 to 8."""
    fit = (chebyshev_series.J0_NEAR, chebyshev_series.J1_NEAR)[order]
    return chebyshev(fit, scalar * scalar / 32 - 1, exact)


@in_float64
def _j0(x: Scalar, exact: bool) -> Scalar:
    size = scalar.absolute(x)
    near = _j_series(0, scalar.minimum(size, 8), exact)
    return scalar.where(size > 8, _waves(0, size, exact)[0], near)


@in_float64
def _j1(x: Scalar, exact: bool) -> Scalar:
    size, near = scalar.absolute(x), scalar.clamp(x, -8, 8)
    far = scalar.sign(x) * _waves(1, size, exact)[0]
    return scalar.where(size > 8, far, near * _j_series(1, near, exact))


@in_float64
def _y0(x: Scalar, exact: bool) -> Scalar:
    near = scalar.minimum(x, 8)
    smooth = chebyshev(chebyshev_series.Y0_NEAR, near * near / 32 - 1, exact)
    low = smooth + (2 / math.pi) * scalar.log(near) * _j_series(0, near, exact)
    return scalar.where(x > 8, _waves(0, x, exact)[1], low)


@in_float64
def _y1(x: Scalar, exact: bool) -> Scalar:
    near = scalar.minimum(x, 8)
    smooth = chebyshev(chebyshev_series.Y1_NEAR, near * near / 32 - 1, exact)
    slope = smooth + (2 / math.pi) * _log_or_0(near) * _j_series(1, near, exact)
    low = near * slope - 2 / (math.pi * scalar.absolute(near))
    return scalar.where(x > 8, _waves(1, x, exact)[1], low)


def _log_or_0(x: Scalar) -> Scalar:
    """Return the logarithm, and 0 at 0, where it is multiplied by 0."""
    return scalar.log(scalar.where(scalar.equal(x, 0), 1, x))


# ---------------------------------------------------------------------------------- modified


def _i0(x: Scalar) -> Scalar:
    return _scale_by_exp(x, scalar.bessel_i0e(x), scalar.absolute(x))


def _i1(x: Scalar) -> Scalar:
    return _scale_by_exp(x, scalar.bessel_i1e(x), x)


def _scale_by_exp(x: Scalar, scaled: Scalar, limit: Scalar) -> Scalar:
    """Return exp(|x|) times a function, in two steps to avoid overflow of the exponential."""
    root = scalar.exp(0.5 * scalar.absolute(x))
    return scalar.where(scalar.is_inf(x), limit, root * scaled * root)


def _k0_parts(x: Scalar, exact: bool) -> tuple[Scalar, Scalar, Scalar]:
    """Return K0 for x up to 2, exp(x) times K0 beyond, and x limited to the first range."""
    near, far = scalar.minimum(x, 2), scalar.maximum(x, 2)
    argument = near * near / 2 - 1
    smooth = chebyshev(chebyshev_series.K0_NEAR, argument, exact)
    low = smooth - scalar.log(near) * chebyshev(chebyshev_series.I0_NEAR, argument, exact)
    return low, chebyshev(chebyshev_series.K0_FAR, 4 / far - 1, exact) / scalar.sqrt(far), near


def _k1_parts(x: Scalar, exact: bool) -> tuple[Scalar, Scalar, Scalar]:
    """Return the parts of `_k0_parts` for K1."""
    near, far = scalar.minimum(x, 2), scalar.maximum(x, 2)
    argument = near * near / 2 - 1
    bent = _log_or_0(near) * near * chebyshev(chebyshev_series.I1_NEAR, argument, exact)
    low = chebyshev(chebyshev_series.K1_NEAR, argument, exact) / scalar.absolute(near) + bent
    return low, chebyshev(chebyshev_series.K1_FAR, 4 / far - 1, exact) / scalar.sqrt(far), near


@in_float64
def _k0(x: Scalar, exact: bool) -> Scalar:
    low, high, _ = _k0_parts(x, exact)
    return scalar.where(x > 2, high * scalar.exp(scalar.neg(scalar.maximum(x, 2))), low)


@in_float64
def _k0e(x: Scalar, exact: bool) -> Scalar:
    low, high, near = _k0_parts(x, exact)
    return scalar.where(x > 2, high, low * scalar.exp(near))


@in_float64
def _k1(x: Scalar, exact: bool) -> Scalar:
    low, high, _ = _k1_parts(x, exact)
    return scalar.where(x > 2, high * scalar.exp(scalar.neg(scalar.maximum(x, 2))), low)


@in_float64
def _k1e(x: Scalar, exact: bool) -> Scalar:
    low, high, near = _k1_parts(x, exact)
    return scalar.where(x > 2, high, low * scalar.exp(near))


# ------------------------------------------------------------------------------ declarations

_MODIFIED = "the modified Bessel function of the"
register_unary(
    "BesselI0e",
    FLOATING,
    scalar.bessel_i0e,
    f"exp(-|x|) times {_MODIFIED} first kind of order 0.",
    in_float32=True,
)
register_unary(
    "BesselI1e",
    FLOATING,
    scalar.bessel_i1e,
    f"exp(-|x|) times {_MODIFIED} first kind of order 1.",
    in_float32=True,
)
for _op, _function, _doc in (
    ("BesselI0", _i0, "The modified Bessel function of the first kind of order 0."),
    ("BesselI1", _i1, "The modified Bessel function of the first kind of order 1."),
    ("BesselJ0", _j0, "The Bessel function of the first kind of order 0."),
    ("BesselJ1", _j1, "The Bessel function of the first kind of order 1."),
    ("BesselY0", _y0, "The Bessel function of the second kind of order 0."),
    ("BesselY1", _y1, "The Bessel function of the second kind of order 1."),
    ("BesselK0", _k0, "The modified Bessel function of the second kind of order 0."),
    ("BesselK0e", _k0e, f"exp(x) times {_MODIFIED} second kind of order 0."),
    ("BesselK1", _k1, "The modified Bessel function of the second kind of order 1."),
    ("BesselK1e", _k1e, f"exp(x) times {_MODIFIED} second kind of order 1."),
):
    register_unary(_op, FLOATING, _function, _doc, in_float32=True)

# --------------------------------------------------------------------------------- functions


def bessel_i0(x: Any, name: str | None = None) -> Output:
    """Return the modified Bessel function of the first kind of order 0.

    Args:
      x: floating, any shape.
    Returns: shape and dtype of `x`.

    Examples:
      >>> np.round(wf.Session().run(wf.math.special.bessel_i0([0.0, 1.0])), 3)
      array([1.   , 1.266], dtype=float32)
    """
    return out("BesselI0", [x], name=name)


def bessel_i0e(x: Any, name: str | None = None) -> Output:
    """Return exp(-|x|) times the modified Bessel function of the first kind of order 0.

    Args:
      x: floating, any shape.
    Returns: shape and dtype of `x`.

    Examples:
      >>> np.round(wf.Session().run(wf.math.special.bessel_i0e([0.0, 1.0])), 3)
      array([1.   , 0.466], dtype=float32)
    """
    return out("BesselI0e", [x], name=name)


def bessel_i1(x: Any, name: str | None = None) -> Output:
    """Return the modified Bessel function of the first kind of order 1.

    Args:
      x: floating, any shape.
    Returns: shape and dtype of `x`.

    Examples:
      >>> np.round(wf.Session().run(wf.math.special.bessel_i1([0.0, 1.0])), 3)
      array([0.   , 0.565], dtype=float32)
    """
    return out("BesselI1", [x], name=name)


def bessel_i1e(x: Any, name: str | None = None) -> Output:
    """Return exp(-|x|) times the modified Bessel function of the first kind of order 1.

    Args:
      x: floating, any shape.
    Returns: shape and dtype of `x`.

    Examples:
      >>> np.round(wf.Session().run(wf.math.special.bessel_i1e([0.0, 1.0])), 3)
      array([0.   , 0.208], dtype=float32)
    """
    return out("BesselI1e", [x], name=name)


def bessel_j0(x: Any, name: str | None = None) -> Output:
    """Return the Bessel function of the first kind of order 0.

    Args:
      x: floating, any shape.
    Returns: shape and dtype of `x`.

    Examples:
      >>> np.round(wf.Session().run(wf.math.special.bessel_j0([0.0, 1.0, 10.0])), 3)
      array([ 1.   ,  0.765, -0.246], dtype=float32)
    """
    return out("BesselJ0", [x], name=name)


def bessel_j1(x: Any, name: str | None = None) -> Output:
    """Return the Bessel function of the first kind of order 1.

    Args:
      x: floating, any shape.
    Returns: shape and dtype of `x`.

    Examples:
      >>> np.round(wf.Session().run(wf.math.special.bessel_j1([0.0, 1.0, 10.0])), 3)
      array([0.   , 0.44 , 0.043], dtype=float32)
    """
    return out("BesselJ1", [x], name=name)


def bessel_k0(x: Any, name: str | None = None) -> Output:
    """Return the modified Bessel function of the second kind of order 0.

    Args:
      x: floating, any shape; infinite at 0, NaN below.
    Returns: shape and dtype of `x`.

    Examples:
      >>> np.round(wf.Session().run(wf.math.special.bessel_k0([0.0, 1.0, 5.0])), 3)
      array([  inf, 0.421, 0.004], dtype=float32)
    """
    return out("BesselK0", [x], name=name)


def bessel_k0e(x: Any, name: str | None = None) -> Output:
    """Return exp(x) times the modified Bessel function of the second kind of order 0.

    Args:
      x: floating, any shape; infinite at 0, NaN below.
    Returns: shape and dtype of `x`.

    Examples:
      >>> np.round(wf.Session().run(wf.math.special.bessel_k0e([0.0, 1.0, 5.0])), 3)
      array([  inf, 1.144, 0.548], dtype=float32)
    """
    return out("BesselK0e", [x], name=name)


def bessel_k1(x: Any, name: str | None = None) -> Output:
    """Return the modified Bessel function of the second kind of order 1.

    Args:
      x: floating, any shape; infinite at 0, NaN below.
    Returns: shape and dtype of `x`.

    Examples:
      >>> np.round(wf.Session().run(wf.math.special.bessel_k1([0.0, 1.0, 5.0])), 3)
      array([  inf, 0.602, 0.004], dtype=float32)
    """
    return out("BesselK1", [x], name=name)


def bessel_k1e(x: Any, name: str | None = None) -> Output:
    """Return exp(x) times the modified Bessel function of the second kind of order 1.

    Args:
      x: floating, any shape; infinite at 0, NaN below.
    Returns: shape and dtype of `x`.

    Examples:
      >>> np.round(wf.Session().run(wf.math.special.bessel_k1e([0.0, 1.0, 5.0])), 3)
      array([  inf, 1.636, 0.6  ], dtype=float32)
    """
    return out("BesselK1e", [x], name=name)


def bessel_y0(x: Any, name: str | None = None) -> Output:
    """Return the Bessel function of the second kind of order 0.

    Args:
      x: floating, any shape; infinite at 0, NaN below.
    Returns: shape and dtype of `x`.

    Examples:
      >>> np.round(wf.Session().run(wf.math.special.bessel_y0([0.0, 1.0, 10.0])), 3)
      array([ -inf, 0.088, 0.056], dtype=float32)
    """
    return out("BesselY0", [x], name=name)


def bessel_y1(x: Any, name: str | None = None) -> Output:
    """Return the Bessel function of the second kind of order 1.

    Args:
      x: floating, any shape; infinite at 0, NaN below.
    Returns: shape and dtype of `x`.

    Examples:
      >>> np.round(wf.Session().run(wf.math.special.bessel_y1([0.0, 1.0, 10.0])), 3)
      array([  -inf, -0.781,  0.249], dtype=float32)
    """
    return out("BesselY1", [x], name=name)
