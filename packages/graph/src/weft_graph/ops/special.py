"""Special functions: error, gamma, beta and zeta functions, elementwise."""

from __future__ import annotations

__all__ = [
    "betainc",
    "digamma",
    "erf",
    "erfc",
    "igamma",
    "igammac",
    "lbeta",
    "lgamma",
    "polygamma",
    "zeta",
]

from collections.abc import Sequence
from math import sqrt
from typing import Any

from weft_graph.ir import scalar
from weft_graph.ir.builder import convert_to_tensor, out
from weft_graph.ir.node import Output
from weft_graph.ir.op_def import NodeSpec, register_op
from weft_graph.ir.scalar import Scalar
from weft_graph.ir.traits import elementwise
from weft_graph.ops import reduction
from weft_graph.ops.elementwise import (
    FLOATING,
    register_binary,
    register_unary,
    unary,
)
from weft_tensor import dtypes
from weft_tensor.shape import Dims, broadcast_dims

# ------------------------------------------------------------------------------ declarations


def _broadcast_of_three(node: NodeSpec) -> Sequence[Dims]:
    a, b, x = (value.dims for value in node.inputs)
    return (broadcast_dims(broadcast_dims(a, b), x),)


def _gamma_draw_slope(alpha: Scalar, sample: Scalar) -> Scalar:
    """Return the derivative of a quantile by a: -(dP / da) / (dP / dx) (Figurnov et al., 2018)."""
    a, x = scalar.cast(alpha, dtypes.float64), scalar.cast(sample, dtypes.float64)
    log_density = (a - 1) * scalar.log(x) - x - scalar.lgamma(a)
    slope = scalar.neg(scalar.igamma_grad_a(a, x)) * scalar.exp(scalar.neg(log_density))
    return scalar.cast(slope, alpha.dtype)


_WIDE = "{float32, float64}"
register_unary("Erf", FLOATING, scalar.erf, "The error function.", in_float32=True)
register_unary("Erfc", FLOATING, scalar.erfc, "1 - erf(x), accurate for large x.", in_float32=True)
register_unary("Lgamma", FLOATING, scalar.lgamma, "log(|gamma(x)|).", in_float32=True)
register_unary("Digamma", FLOATING, scalar.digamma, "The derivative of lgamma.", in_float32=True)
register_binary(
    "Igamma",
    _WIDE,
    scalar.igamma,
    "The regularized lower incomplete gamma function P(a, x).",
    names="ax",
)
register_binary(
    "Igammac",
    _WIDE,
    scalar.igammac,
    "The regularized upper incomplete gamma function Q(a, x).",
    names="ax",
)
register_binary(
    "IgammaGradA",
    _WIDE,
    scalar.igamma_grad_a,
    "The derivative of Igamma with respect to a.",
    names="ax",
)
register_binary(
    "Zeta", _WIDE, scalar.zeta, "The Hurwitz zeta function, sum of (q + k) ** -x.", names="xq"
)
register_binary(
    "Polygamma", _WIDE, scalar.polygamma, "The derivative of order a + 1 of lgamma.", names="ax"
)

register_unary("Erfinv", FLOATING, scalar.erfinv, "The inverse of Erf.", in_float32=True)
register_unary(
    "Ndtri",
    FLOATING,
    scalar.ndtri,
    "The quantiles of the standard normal distribution.",
    in_float32=True,
)
register_op(
    "Betainc",
    ("a: T", "b: T", "x: T"),
    ("z: T",),
    {"T": _WIDE},
    _broadcast_of_three,
    traits=elementwise(scalar.betainc),
    doc="The regularized incomplete beta function of a and b at x.",
)
register_binary(
    "RandomGammaGrad",
    _WIDE,
    _gamma_draw_slope,
    "The derivative of a gamma-distributed number for its shape parameter.",
    names=("alpha", "sample"),
)

# --------------------------------------------------------------------------- functions


def erf(x: Any, name: str | None = None) -> Any:
    """Return the error function, 2 / sqrt(pi) times the integral of exp(-t * t) from 0 to x.

    A sparse tensor stays sparse.

    Args:
      x: floating, any shape.
    Returns: shape and dtype of `x`.

    Examples:
      >>> np.round(wf.Session().run(wf.erf([0.0, 0.5, 1.0])), 3)
      array([0.   , 0.52 , 0.843], dtype=float32)
    """
    return unary("Erf", x, name)


def erfc(x: Any, name: str | None = None) -> Output:
    """Return 1 - erf(x), accurate for large x; floating, any shape.

    Args:
      x: floating, any shape.
    Returns: shape and dtype of `x`.

    Examples:
      >>> np.round(wf.Session().run(wf.erfc([0.0, 0.5, 1.0])), 3)
      array([1.   , 0.48 , 0.157], dtype=float32)
    """
    return out("Erfc", [x], name=name)


def lgamma(x: Any, name: str | None = None) -> Output:
    """Return log(|gamma(x)|), inf at 0 and negative integers; floating, any shape.

    Args:
      x: floating, any shape.
    Returns: shape and dtype of `x`.

    Examples:
      >>> np.round(wf.Session().run(wf.lgamma([1.0, 4.0])), 3)
      array([0.   , 1.792], dtype=float32)
    """
    return out("Lgamma", [x], name=name)


def digamma(x: Any, name: str | None = None) -> Output:
    """Return the derivative of `lgamma`, NaN at 0 and the negative integers; floating, any shape.

    Args:
      x: floating, any shape.
    Returns: shape and dtype of `x`.

    Examples:
      >>> np.round(wf.Session().run(wf.digamma([1.0, 2.0])), 3)
      array([-0.577,  0.423], dtype=float32)
    """
    return out("Digamma", [x], name=name)


def polygamma(a: Any, x: Any, name: str | None = None) -> Output:
    """Return the derivative of order a of `digamma`; float32 or float64, broadcast shape.

    It is NaN where the order a is negative or not an integer.

    Args:
      a, x: float32 or float64, of the same dtype; their shapes broadcast.
    Returns: the broadcast shape and the common dtype.

    Examples:
      >>> np.round(wf.Session().run(wf.polygamma([1.0], [1.0])), 3)
      array([1.645], dtype=float32)
    """
    return out("Polygamma", [a, x], name=name)


def zeta(x: Any, q: Any, name: str | None = None) -> Output:
    """Return the Hurwitz zeta function, the sum over k >= 0 of (q + k) ** -x; float32 or float64.

    Args:
      x, q: float32 or float64, of the same dtype; their shapes broadcast.
    Returns: the broadcast shape and the common dtype.

    Examples:
      >>> np.round(wf.Session().run(wf.zeta([2.0], [1.0])), 3)
      array([1.645], dtype=float32)
    """
    return out("Zeta", [x, q], name=name)


def igamma(a: Any, x: Any, name: str | None = None) -> Output:
    """Return the regularized lower incomplete gamma function P(a, x); floating, broadcast shape.

    Args:
      a, x: floating, of the same dtype; their shapes broadcast.
    Returns: the broadcast shape and the common dtype.

    Examples:
      >>> np.round(wf.Session().run(wf.igamma([1.0], [2.0])), 3)
      array([0.865], dtype=float32)
    """
    return out("Igamma", [a, x], name=name)


def igammac(a: Any, x: Any, name: str | None = None) -> Output:
    """Return the regularized upper incomplete gamma function Q(a, x); floating, broadcast shape.

    Args:
      a, x: floating, of the same dtype; their shapes broadcast.
    Returns: the broadcast shape and the common dtype.

    Examples:
      >>> np.round(wf.Session().run(wf.igammac([1.0], [2.0])), 3)
      array([0.135], dtype=float32)
    """
    return out("Igammac", [a, x], name=name)


def lbeta(x: Any, name: str | None = None) -> Output:
    """Return log(|beta(x)|) over the last axis: sum(lgamma(x)) - lgamma(sum(x)).

    Args:
      x: floating, shape (..., N).
    Returns: shape (...).

    Examples:
      >>> np.round(wf.Session().run(wf.lbeta([2.0, 3.0])), 3)  # log(1 / 12)
      np.float32(-2.485)
    """
    value = convert_to_tensor(x)
    total = reduction.reduce_sum(lgamma(value), -1)
    return out("Sub", [total, lgamma(reduction.reduce_sum(value, -1))], name=name or "lbeta")


def erfinv(x: Any, name: str | None = None) -> Output:
    """Return the inverse of `erf`; infinite at -1 and 1, NaN beyond.

    Args:
      x: floating, any shape.
    Returns: shape and dtype of `x`.

    Examples:
      >>> np.round(wf.Session().run(wf.math.erfinv([0.0, 0.5, 1.0])), 3)
      array([0.   , 0.477,   inf], dtype=float32)
    """
    return out("Erfinv", [x], name=name or "erfinv")


def ndtri(x: Any, name: str | None = None) -> Output:
    """Return quantiles of the standard normal distribution: the inverse of its CDF.

    Args:
      x: floating, any shape; infinite at 0 and 1, NaN beyond.
    Returns: shape and dtype of `x`.

    Examples:
      >>> np.round(wf.Session().run(wf.math.ndtri([0.5, 0.975])), 3)
      array([0.  , 1.96], dtype=float32)
    """
    return out("Ndtri", [x], name=name or "ndtri")


def erfcinv(x: Any, name: str | None = None) -> Output:
    """Return the inverse of `erfc`, accurate for small x; infinite at 0 and 2, NaN beyond.

    Args:
      x: floating, any shape.
    Returns: shape and dtype of `x`.

    Examples:
      >>> np.round(wf.Session().run(wf.math.erfcinv([0.1, 0.5])), 3)
      array([1.163, 0.477], dtype=float32)
    """
    quantile = ndtri(0.5 * convert_to_tensor(x))
    return out("Mul", [quantile, -sqrt(0.5)], name=name or "erfcinv")


def betainc(a: Any, b: Any, x: Any, name: str | None = None) -> Output:
    """Return the regularized incomplete beta function: the CDF of the beta distribution at x.

    Gradients flow to `x` only.

    Args:
      a, b: float32 or float64, positive.
      x: same dtype, in [0, 1].
    Returns: the broadcast shape and the common dtype; NaN outside of these ranges.

    Examples:
      >>> np.round(wf.Session().run(wf.betainc(2.0, 3.0, [0.0, 0.5, 1.0])), 4)
      array([0.    , 0.6875, 1.    ], dtype=float32)
    """
    return out("Betainc", [a, b, x], name=name)
