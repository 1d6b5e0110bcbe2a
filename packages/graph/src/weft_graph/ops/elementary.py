"""Elementary and special functions of one or two variables, elementwise."""

from __future__ import annotations

__all__ = [
    "acos",
    "acosh",
    "asin",
    "asinh",
    "atan",
    "atan2",
    "atanh",
    "cos",
    "cosh",
    "digamma",
    "erf",
    "erfc",
    "exp",
    "expm1",
    "igamma",
    "igammac",
    "is_finite",
    "is_inf",
    "is_nan",
    "lbeta",
    "lgamma",
    "log",
    "log1p",
    "log_sigmoid",
    "polygamma",
    "sigmoid",
    "sin",
    "sinh",
    "tan",
    "tanh",
    "zeta",
]

from collections.abc import Sequence
from typing import Any

from weft_graph.ir import scalar
from weft_graph.ir.builder import convert_to_tensor, out
from weft_graph.ir.node import Output
from weft_graph.ir.scalar import Scalar
from weft_graph.ops import reduction
from weft_graph.ops.elementwise import (
    FLOATING,
    INEXACT,
    register_binary,
    register_gradient_of_unary,
    register_unary,
    unary,
)
from weft_tensor import errors


def _sigmoid(x: Scalar) -> Scalar:
    # exp overflows to inf for very negative x, and 1 / inf is the right 0.
    return scalar.reciprocal(scalar.exp(-x) + 1)


def _tanh_grad(y: Scalar, dy: Scalar) -> Scalar:
    c = scalar.conj(y)
    return (1 - c * c) * dy


def _sigmoid_grad(y: Scalar, dy: Scalar) -> Scalar:
    c = scalar.conj(y)
    return (1 - c) * c * dy


def _xlogy(x: Scalar, y: Scalar) -> Scalar:
    return scalar.where(scalar.equal(x, 0), 0, x * scalar.log(y))


def _xdivy(x: Scalar, y: Scalar) -> Scalar:
    return scalar.where(scalar.equal(x, 0), 0, x / y)


# ------------------------------------------------------------------------------ declarations

_WIDE = "{float32, float64}"

register_unary("Exp", INEXACT, scalar.exp, "e to the power of x.", cheap=True)
register_unary("Expm1", INEXACT, scalar.expm1, "exp(x) - 1, accurate near 0.")
register_unary("Log", INEXACT, scalar.log, "The natural logarithm.", cheap=True)
register_unary("Log1p", INEXACT, scalar.log1p, "log(1 + x), accurate near 0.", cheap=True)
register_unary("Sin", INEXACT, scalar.sin, "The sine of an angle in radians.", cheap=True)
register_unary("Cos", INEXACT, scalar.cos, "The cosine of an angle in radians.", cheap=True)
register_unary("Tan", INEXACT, scalar.tan, "The tangent of an angle in radians.")
register_unary("Asin", INEXACT, scalar.asin, "The angle in radians whose sine is x.")
register_unary("Acos", INEXACT, scalar.acos, "The angle in radians whose cosine is x.")
register_unary("Atan", INEXACT, scalar.atan, "The angle in radians whose tangent is x.")
register_unary("Sinh", INEXACT, scalar.sinh, "The hyperbolic sine.")
register_unary("Cosh", INEXACT, scalar.cosh, "The hyperbolic cosine.")
register_unary("Tanh", INEXACT, scalar.tanh, "The hyperbolic tangent.", cheap=True)
register_unary("Asinh", INEXACT, scalar.asinh, "The inverse of the hyperbolic sine.")
register_unary("Acosh", INEXACT, scalar.acosh, "The inverse of the hyperbolic cosine.")
register_unary("Atanh", INEXACT, scalar.atanh, "The inverse of the hyperbolic tangent.")
register_unary("Sigmoid", INEXACT, _sigmoid, "1 / (1 + exp(-x)).", in_float32=True, cheap=True)
register_binary("Atan2", FLOATING, scalar.atan2, "The angle of (x, y) in (-pi, pi].", names="yx")
register_binary("Xlogy", INEXACT, _xlogy, "x * log(y), and 0 where x is 0.")
register_binary("Xdivy", INEXACT, _xdivy, "x / y, and 0 where x is 0.")
register_binary(
    "NextAfter",
    f"{_WIDE} = float32",
    scalar.next_after,
    "The next number after x1 in the direction of x2.",
    names=("x1", "x2"),
)
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
register_gradient_of_unary("TanhGrad", _tanh_grad, "dy * (1 - y * y), for y = tanh(x).")
register_gradient_of_unary("SigmoidGrad", _sigmoid_grad, "dy * y * (1 - y), for y = sigmoid(x).")
register_unary(
    "IsNan",
    FLOATING,
    scalar.is_nan,
    "Whether x is not a number.",
    result="bool",
    differentiable=False,
)
register_unary(
    "IsInf",
    FLOATING,
    scalar.is_inf,
    "Whether x is infinite, of either sign.",
    result="bool",
    differentiable=False,
)
register_unary(
    "IsFinite",
    FLOATING,
    scalar.is_finite,
    "Whether x is neither infinite nor not a number.",
    result="bool",
    differentiable=False,
)

# --------------------------------------------------------------------------- functions


def exp(x: Any, name: str | None = None) -> Output:
    """e to the power of x; floating or complex, any shape.

    Args:
      x: floating or complex, any shape.
    Returns: shape and dtype of `x`.

    Examples:
      >>> np.round(wf.Session().run(wf.exp([0.0, 0.5, 1.0])), 3)
      array([1.   , 1.649, 2.718], dtype=float32)
    """
    return out("Exp", [x], name=name)


def expm1(x: Any, name: str | None = None) -> Output:
    """exp(x) - 1, accurate near 0; floating or complex, any shape.

    Args:
      x: floating or complex, any shape.
    Returns: shape and dtype of `x`.

    Examples:
      >>> np.round(wf.Session().run(wf.expm1([0.0, 0.5, 1.0])), 3)
      array([0.   , 0.649, 1.718], dtype=float32)
    """
    return out("Expm1", [x], name=name)


def log(x: Any, name: str | None = None) -> Output:
    """The natural logarithm, -inf of 0, NaN of a negative number; floating or complex.

    Args:
      x: floating or complex, any shape.
    Returns: shape and dtype of `x`.

    Examples:
      >>> np.round(wf.Session().run(wf.log([1.0, 10.0])), 3)
      array([0.   , 2.303], dtype=float32)
    """
    return out("Log", [x], name=name)


def log1p(x: Any, name: str | None = None) -> Output:
    """log(1 + x), accurate near 0; floating or complex, any shape.

    Args:
      x: floating or complex, any shape.
    Returns: shape and dtype of `x`.

    Examples:
      >>> np.round(wf.Session().run(wf.log1p([0.0, 1.0])), 3)
      array([0.   , 0.693], dtype=float32)
    """
    return out("Log1p", [x], name=name)


def sin(x: Any, name: str | None = None) -> Output:
    """The sine of an angle in radians; floating or complex, any shape.

    Args:
      x: floating or complex, any shape.
    Returns: shape and dtype of `x`.

    Examples:
      >>> np.round(wf.Session().run(wf.sin([0.0, 0.5, 1.0])), 3)
      array([0.   , 0.479, 0.841], dtype=float32)
    """
    return out("Sin", [x], name=name)


def cos(x: Any, name: str | None = None) -> Output:
    """The cosine of an angle in radians; floating or complex, any shape.

    Args:
      x: floating or complex, any shape.
    Returns: shape and dtype of `x`.

    Examples:
      >>> np.round(wf.Session().run(wf.cos([0.0, 0.5, 1.0])), 3)
      array([1.   , 0.878, 0.54 ], dtype=float32)
    """
    return out("Cos", [x], name=name)


def tan(x: Any, name: str | None = None) -> Output:
    """The tangent of an angle in radians; floating or complex, any shape.

    Args:
      x: floating or complex, any shape.
    Returns: shape and dtype of `x`.

    Examples:
      >>> np.round(wf.Session().run(wf.tan([0.0, 0.5, 1.0])), 3)
      array([0.   , 0.546, 1.557], dtype=float32)
    """
    return out("Tan", [x], name=name)


def asin(x: Any, name: str | None = None) -> Output:
    """The angle in radians whose sine is x, NaN beyond [-1, 1]; floating or complex.

    Args:
      x: floating or complex, any shape.
    Returns: shape and dtype of `x`.

    Examples:
      >>> np.round(wf.Session().run(wf.asin([0.0, 0.5, 1.0])), 3)
      array([0.   , 0.524, 1.571], dtype=float32)
    """
    return out("Asin", [x], name=name)


def acos(x: Any, name: str | None = None) -> Output:
    """The angle in radians whose cosine is x, NaN beyond [-1, 1]; floating or complex.

    Args:
      x: floating or complex, any shape.
    Returns: shape and dtype of `x`.

    Examples:
      >>> np.round(wf.Session().run(wf.acos([0.0, 0.5, 1.0])), 3)
      array([1.571, 1.047, 0.   ], dtype=float32)
    """
    return out("Acos", [x], name=name)


def atan(x: Any, name: str | None = None) -> Output:
    """The angle in radians whose tangent is x; floating or complex, any shape.

    Args:
      x: floating or complex, any shape.
    Returns: shape and dtype of `x`.

    Examples:
      >>> np.round(wf.Session().run(wf.atan([0.0, 0.5, 1.0])), 3)
      array([0.   , 0.464, 0.785], dtype=float32)
    """
    return out("Atan", [x], name=name)


def sinh(x: Any, name: str | None = None) -> Output:
    """The hyperbolic sine; floating or complex, any shape.

    Args:
      x: floating or complex, any shape.
    Returns: shape and dtype of `x`.

    Examples:
      >>> np.round(wf.Session().run(wf.sinh([0.0, 0.5, 1.0])), 3)
      array([0.   , 0.521, 1.175], dtype=float32)
    """
    return out("Sinh", [x], name=name)


def cosh(x: Any, name: str | None = None) -> Output:
    """The hyperbolic cosine; floating or complex, any shape.

    Args:
      x: floating or complex, any shape.
    Returns: shape and dtype of `x`.

    Examples:
      >>> np.round(wf.Session().run(wf.cosh([0.0, 0.5, 1.0])), 3)
      array([1.   , 1.128, 1.543], dtype=float32)
    """
    return out("Cosh", [x], name=name)


def tanh(x: Any, name: str | None = None) -> Any:
    """The hyperbolic tangent; floating or complex, any shape; of a sparse tensor a sparse one.

    Args:
      x: floating or complex, any shape.
    Returns: shape and dtype of `x`.

    Examples:
      >>> np.round(wf.Session().run(wf.tanh([0.0, 0.5, 1.0])), 3)
      array([0.   , 0.462, 0.762], dtype=float32)
    """
    return unary("Tanh", x, name)


def asinh(x: Any, name: str | None = None) -> Output:
    """The inverse of the hyperbolic sine; floating or complex, any shape.

    Args:
      x: floating or complex, any shape.
    Returns: shape and dtype of `x`.

    Examples:
      >>> np.round(wf.Session().run(wf.asinh([0.0, 0.5, 1.0])), 3)
      array([0.   , 0.481, 0.881], dtype=float32)
    """
    return out("Asinh", [x], name=name)


def acosh(x: Any, name: str | None = None) -> Output:
    """The inverse of the hyperbolic cosine, NaN below 1; floating or complex, any shape.

    Args:
      x: floating or complex, any shape.
    Returns: shape and dtype of `x`.

    Examples:
      >>> np.round(wf.Session().run(wf.acosh([1.0, 2.0])), 3)
      array([0.   , 1.317], dtype=float32)
    """
    return out("Acosh", [x], name=name)


def atanh(x: Any, name: str | None = None) -> Output:
    """The inverse of the hyperbolic tangent, NaN beyond [-1, 1]; floating or complex.

    Args:
      x: floating or complex, any shape.
    Returns: shape and dtype of `x`.

    Examples:
      >>> np.round(wf.Session().run(wf.atanh([0.0, 0.5])), 3)
      array([0.   , 0.549], dtype=float32)
    """
    return out("Atanh", [x], name=name)


def atan2(y: Any, x: Any, name: str | None = None) -> Output:
    """The angle in (-pi, pi] of the point (x, y); floating, broadcast shape.

    Args:
      y, x: floating, of one dtype; their shapes broadcast.
    Returns: the shape that theirs broadcast to, and their dtype.

    Examples:
      >>> np.round(wf.Session().run(wf.atan2([1.0, -1.0], [1.0, 0.0])), 3)
      array([ 0.785, -1.571], dtype=float32)
    """
    return out("Atan2", [y, x], name=name)


def sigmoid(x: Any, name: str | None = None) -> Output:
    """1 / (1 + exp(-x)), without overflow; floating or complex, any shape.

    Args:
      x: floating or complex, any shape.
    Returns: shape and dtype of `x`.

    Examples:
      >>> np.round(wf.Session().run(wf.sigmoid([0.0, 0.5, 1.0])), 3)
      array([0.5  , 0.622, 0.731], dtype=float32)
    """
    return out("Sigmoid", [x], name=name)


def log_sigmoid(x: Any, name: str | None = None) -> Output:
    """log(sigmoid(x)) = -softplus(-x); floating, any shape.

    Args:
      x: floating, any shape.
    Returns: shape and dtype of `x`.

    Examples:
      >>> np.round(wf.Session().run(wf.log_sigmoid([0.0, 2.0])), 3)
      array([-0.693, -0.127], dtype=float32)
    """
    return out("Neg", [out("Softplus", [out("Neg", [x])])], name=name or "LogSigmoid")


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


def xlogy(x: Any, y: Any, name: str | None = None) -> Output:
    """x * log(y), and 0 where x is 0 whatever y is; floating or complex, broadcast shape.

    Args:
      x, y: floating or complex, of one dtype; their shapes broadcast.
    Returns: the shape that theirs broadcast to, and their dtype.

    Examples:
      >>> wf.Session().run(wf.math.xlogy([0.0, 2.0], [0.0, 1.0]))
      array([0., 0.], dtype=float32)
    """
    return out("Xlogy", [x, y], name=name or "xlogy")


def xdivy(x: Any, y: Any, name: str | None = None) -> Output:
    """x / y, and 0 where x is 0 whatever y is; floating or complex, broadcast shape.

    Args:
      x, y: floating or complex, of one dtype; their shapes broadcast.
    Returns: the shape that theirs broadcast to, and their dtype.

    Examples:
      >>> wf.Session().run(wf.math.xdivy([0.0, 2.0], [0.0, 4.0]))
      array([0. , 0.5], dtype=float32)
    """
    return out("Xdivy", [x, y], name=name or "xdivy")


def nextafter(x1: Any, x2: Any, name: str | None = None) -> Output:
    """The next number after x1 towards x2.

    Args:
      x1: float32 or float64, any shape.
      x2: same dtype; broadcasts with `x1`.
    Returns: the broadcast shape.

    Examples:
      >>> bool(wf.Session().run(wf.math.nextafter(1.0, 2.0) > 1.0))
      True
    """
    return out("NextAfter", [x1, x2], name=name)


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


def is_nan(x: Any, name: str | None = None) -> Output:
    """Whether x is not a number; floating to bool, any shape.

    Args:
      x: floating, any shape.
    Returns: bool, shape of `x`.

    Examples:
      >>> wf.Session().run(wf.is_nan([1.0, np.nan]))
      array([False,  True])
    """
    return out("IsNan", [x], name=name)


def is_inf(x: Any, name: str | None = None) -> Output:
    """Whether x is infinite, of either sign; floating to bool, any shape.

    Args:
      x: floating, any shape.
    Returns: bool, shape of `x`.

    Examples:
      >>> wf.Session().run(wf.is_inf([1.0, -np.inf]))
      array([False,  True])
    """
    return out("IsInf", [x], name=name)


def is_finite(x: Any, name: str | None = None) -> Output:
    """Whether x is neither infinite nor NaN; floating to bool, any shape.

    Args:
      x: floating, any shape.
    Returns: bool, shape of `x`.

    Examples:
      >>> wf.Session().run(wf.is_finite([1.0, np.nan, np.inf]))
      array([ True, False, False])
    """
    return out("IsFinite", [x], name=name)


def polyval(coeffs: Sequence[Any], x: Any, name: str | None = None) -> Output:
    """The value at x of a polynomial, by Horner's scheme.

    Args:
      coeffs: coefficients, that of the highest power first; each of x's dtype, shapes broadcast.
      x: numeric, any shape.
    Returns: broadcast shape; zeros for no coefficients.
    Raises: InvalidArgumentError: `coeffs` is not a list.

    Examples:
      >>> wf.Session().run(wf.math.polyval([1.0, 0.0, 2.0], 3.0))
      np.float32(11.0)
    """
    if not isinstance(coeffs, list | tuple):
        raise errors.InvalidArgumentError(
            f"polyval requires a list of coefficients, got {coeffs!r}"
        )
    value = convert_to_tensor(x, name="x")
    if not coeffs:
        return out("ZerosLike", [value], name=name)
    total = convert_to_tensor(coeffs[0], value.dtype.base_dtype)
    for coefficient in coeffs[1:]:
        total = out("AddV2", [coefficient, out("Mul", [total, value])])
    return out("Identity", [total], name=name or "polyval")
