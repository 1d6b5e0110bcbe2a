"""Special functions: error, gamma, beta, zeta and Bessel functions, elementwise."""

from __future__ import annotations

__all__ = [
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

from typing import Any

from weft_graph.ir import scalar
from weft_graph.ir.builder import convert_to_tensor, out
from weft_graph.ir.node import Output
from weft_graph.ops import reduction
from weft_graph.ops.elementwise import (
    FLOATING,
    register_binary,
    register_unary,
    unary,
)

# ------------------------------------------------------------------------------ declarations


_WIDE = "{float32, float64}"
register_unary("Erf", FLOATING, scalar.erf, "The error function.", in_float32=True)
register_unary("Erfc", FLOATING, scalar.erfc, "1 - erf(x), accurate for large x.", in_float32=True)
register_unary("Lgamma", FLOATING, scalar.lgamma, "log(|gamma(x)|).", in_float32=True)
register_unary("Digamma", FLOATING, scalar.digamma, "The derivative of lgamma.", in_float32=True)
register_unary(
    "BesselI0e",
    FLOATING,
    scalar.bessel_i0e,
    "exp(-|x|) times the modified Bessel function of order 0.",
    in_float32=True,
)
register_unary(
    "BesselI1e",
    FLOATING,
    scalar.bessel_i1e,
    "exp(-|x|) times the modified Bessel function of order 1.",
    in_float32=True,
)
register_binary(
    "Igamma",
    _WIDE,
    scalar.igamma,
    "The regularised lower incomplete gamma function P(a, x).",
    names="ax",
)
register_binary(
    "Igammac",
    _WIDE,
    scalar.igammac,
    "The regularised upper incomplete gamma function Q(a, x).",
    names="ax",
)
register_binary(
    "IgammaGradA", _WIDE, scalar.igamma_grad_a, "The derivative of Igamma for a.", names="ax"
)
register_binary(
    "Zeta", _WIDE, scalar.zeta, "The Hurwitz zeta function, sum of (q + k) ** -x.", names="xq"
)
register_binary(
    "Polygamma", _WIDE, scalar.polygamma, "The derivative of order a + 1 of lgamma.", names="ax"
)

# --------------------------------------------------------------------------- functions


def erf(x: Any, name: str | None = None) -> Any:
    """The error function, 2 / sqrt(pi) times the integral of exp(-t * t) from 0 to x; floating.

    Of a sparse tensor a sparse one.

    Args:
      x: floating, any shape.
    Returns: shape and dtype of `x`.

    Examples:
      >>> np.round(wf.Session().run(wf.erf([0.0, 0.5, 1.0])), 3)
      array([0.   , 0.52 , 0.843], dtype=float32)
    """
    return unary("Erf", x, name)


def erfc(x: Any, name: str | None = None) -> Output:
    """1 - erf(x), accurate for large x; floating, any shape.

    Args:
      x: floating, any shape.
    Returns: shape and dtype of `x`.

    Examples:
      >>> np.round(wf.Session().run(wf.erfc([0.0, 0.5, 1.0])), 3)
      array([1.   , 0.48 , 0.157], dtype=float32)
    """
    return out("Erfc", [x], name=name)


def lgamma(x: Any, name: str | None = None) -> Output:
    """log(|gamma(x)|), inf at 0 and the negative integers; floating, any shape.

    Args:
      x: floating, any shape.
    Returns: shape and dtype of `x`.

    Examples:
      >>> np.round(wf.Session().run(wf.lgamma([1.0, 4.0])), 3)
      array([0.   , 1.792], dtype=float32)
    """
    return out("Lgamma", [x], name=name)


def digamma(x: Any, name: str | None = None) -> Output:
    """The derivative of `lgamma`, NaN at 0 and the negative integers; floating, any shape.

    Args:
      x: floating, any shape.
    Returns: shape and dtype of `x`.

    Examples:
      >>> np.round(wf.Session().run(wf.digamma([1.0, 2.0])), 3)
      array([-0.577,  0.423], dtype=float32)
    """
    return out("Digamma", [x], name=name)


def polygamma(a: Any, x: Any, name: str | None = None) -> Output:
    """The derivative of order a of `digamma`; float32 or float64, broadcast shape.

    NaN where the order a is negative or no integer.

    Args:
      a, x: float32 or float64, of one dtype; their shapes broadcast.
    Returns: the shape that theirs broadcast to, and their dtype.

    Examples:
      >>> np.round(wf.Session().run(wf.polygamma([1.0], [1.0])), 3)
      array([1.645], dtype=float32)
    """
    return out("Polygamma", [a, x], name=name)


def zeta(x: Any, q: Any, name: str | None = None) -> Output:
    """The Hurwitz zeta function, the sum over k >= 0 of (q + k) ** -x; float32 or float64.

    Args:
      x, q: float32 or float64, of one dtype; their shapes broadcast.
    Returns: the shape that theirs broadcast to, and their dtype.

    Examples:
      >>> np.round(wf.Session().run(wf.zeta([2.0], [1.0])), 3)
      array([1.645], dtype=float32)
    """
    return out("Zeta", [x, q], name=name)


def igamma(a: Any, x: Any, name: str | None = None) -> Output:
    """The regularised lower incomplete gamma function P(a, x); floating, broadcast shape.

    Args:
      a, x: floating, of one dtype; their shapes broadcast.
    Returns: the shape that theirs broadcast to, and their dtype.

    Examples:
      >>> np.round(wf.Session().run(wf.igamma([1.0], [2.0])), 3)
      array([0.865], dtype=float32)
    """
    return out("Igamma", [a, x], name=name)


def igammac(a: Any, x: Any, name: str | None = None) -> Output:
    """The regularised upper incomplete gamma function Q(a, x); floating, broadcast shape.

    Args:
      a, x: floating, of one dtype; their shapes broadcast.
    Returns: the shape that theirs broadcast to, and their dtype.

    Examples:
      >>> np.round(wf.Session().run(wf.igammac([1.0], [2.0])), 3)
      array([0.135], dtype=float32)
    """
    return out("Igammac", [a, x], name=name)


def bessel_i0e(x: Any, name: str | None = None) -> Output:
    """exp(-|x|) times the modified Bessel function of order 0.

    Args:
      x: floating, any shape.
    Returns: shape and dtype of `x`.

    Examples:
      >>> np.round(wf.Session().run(wf.math.bessel_i0e([0.0, 1.0])), 3)
      array([1.   , 0.466], dtype=float32)
    """
    return out("BesselI0e", [x], name=name)


def bessel_i1e(x: Any, name: str | None = None) -> Output:
    """exp(-|x|) times the modified Bessel function of order 1.

    Args:
      x: floating, any shape.
    Returns: shape and dtype of `x`.

    Examples:
      >>> np.round(wf.Session().run(wf.math.bessel_i1e([0.0, 1.0])), 3)
      array([0.   , 0.208], dtype=float32)
    """
    return out("BesselI1e", [x], name=name)


def bessel_i0(x: Any, name: str | None = None) -> Output:
    """The modified Bessel function of order 0.

    Args:
      x: floating, any shape.
    Returns: shape and dtype of `x`.

    Examples:
      >>> np.round(wf.Session().run(wf.math.bessel_i0([0.0, 1.0])), 3)
      array([1.   , 1.266], dtype=float32)
    """
    value = convert_to_tensor(x)
    scale = out("Exp", [out("Abs", [value])])
    return out("Mul", [scale, bessel_i0e(value)], name=name or "bessel_i0")


def bessel_i1(x: Any, name: str | None = None) -> Output:
    """The modified Bessel function of order 1.

    Args:
      x: floating, any shape.
    Returns: shape and dtype of `x`.

    Examples:
      >>> np.round(wf.Session().run(wf.math.bessel_i1([0.0, 1.0])), 3)
      array([0.   , 0.565], dtype=float32)
    """
    value = convert_to_tensor(x)
    scale = out("Exp", [out("Abs", [value])])
    return out("Mul", [scale, bessel_i1e(value)], name=name or "bessel_i1")


def lbeta(x: Any, name: str | None = None) -> Output:
    """log(|beta(x)|) over the last axis: sum(lgamma(x)) - lgamma(sum(x)).

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
