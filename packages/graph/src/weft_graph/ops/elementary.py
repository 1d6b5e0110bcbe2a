"""Elementwise exponentials, logarithms, the logistic function, and tests for NaN and infinity."""

from __future__ import annotations

__all__ = [
    "exp",
    "expm1",
    "is_finite",
    "is_inf",
    "is_nan",
    "log",
    "log1p",
    "log_sigmoid",
    "sigmoid",
]
from collections.abc import Sequence
from typing import Any

from weft_graph.ir import scalar
from weft_graph.ir.builder import convert_to_tensor, out
from weft_graph.ir.node import Output
from weft_graph.ir.scalar import Scalar
from weft_graph.ops.elementwise import (
    FLOATING,
    INEXACT,
    register_binary,
    register_gradient_of_unary,
    register_unary,
)
from weft_tensor import errors


def _sigmoid(x: Scalar) -> Scalar:
    # exp overflows to inf for very negative x, and 1 / inf is the right 0.
    return scalar.reciprocal(scalar.exp(-x) + 1)


def _sigmoid_grad(y: Scalar, dy: Scalar) -> Scalar:
    return (1 - y) * y * dy


def _xlogy(x: Scalar, y: Scalar) -> Scalar:
    return scalar.where(scalar.equal(x, 0), 0, x * scalar.log(y))


def _xdivy(x: Scalar, y: Scalar) -> Scalar:
    return scalar.where(scalar.equal(x, 0), 0, x / y)


def _xlog1py(x: Scalar, y: Scalar) -> Scalar:
    return scalar.where(scalar.equal(x, 0), 0, x * scalar.log1p(y))


# ------------------------------------------------------------------------------ declarations

register_unary("Exp", INEXACT, scalar.exp, "e to the power of x.", cheap=True)
register_unary("Expm1", INEXACT, scalar.expm1, "exp(x) - 1, accurate near 0.")
register_unary("Log", INEXACT, scalar.log, "The natural logarithm.", cheap=True)
register_unary("Log1p", INEXACT, scalar.log1p, "log(1 + x), accurate near 0.", cheap=True)
register_unary("Sigmoid", INEXACT, _sigmoid, "1 / (1 + exp(-x)).", in_float32=True, cheap=True)
register_binary("Xlogy", INEXACT, _xlogy, "x * log(y), and 0 where x is 0.")
register_binary("Xlog1py", INEXACT, _xlog1py, "x * log1p(y), and 0 where x is 0.")
register_binary("Xdivy", INEXACT, _xdivy, "x / y, and 0 where x is 0.")
register_binary(
    "NextAfter",
    "{float32, float64} = float32",
    scalar.next_after,
    "The next number after x1 in the direction of x2.",
    names=("x1", "x2"),
)
register_gradient_of_unary("SigmoidGrad", _sigmoid_grad, "dy * y * (1 - y), for y = sigmoid(x).")
register_unary(
    "IsNan",
    FLOATING,
    scalar.is_nan,
    "True if x is NaN.",
    result="bool",
    differentiable=False,
)
register_unary(
    "IsInf",
    FLOATING,
    scalar.is_inf,
    "True if x is infinite, of either sign.",
    result="bool",
    differentiable=False,
)
register_unary(
    "IsFinite",
    FLOATING,
    scalar.is_finite,
    "True if x is neither infinite nor NaN.",
    result="bool",
    differentiable=False,
)

# --------------------------------------------------------------------------- functions


def exp(x: Any, name: str | None = None) -> Output:
    """Return e to the power of x; floating or complex, any shape.

    Args:
      x: floating or complex, any shape.
    Returns: shape and dtype of `x`.

    Examples:
      >>> np.round(wf.Session().run(wf.exp([0.0, 0.5, 1.0])), 3)
      array([1.   , 1.649, 2.718], dtype=float32)
    """
    return out("Exp", [x], name=name)


def expm1(x: Any, name: str | None = None) -> Output:
    """Return exp(x) - 1, accurate near 0; floating or complex, any shape.

    Args:
      x: floating or complex, any shape.
    Returns: shape and dtype of `x`.

    Examples:
      >>> np.round(wf.Session().run(wf.expm1([0.0, 0.5, 1.0])), 3)
      array([0.   , 0.649, 1.718], dtype=float32)
    """
    return out("Expm1", [x], name=name)


def log(x: Any, name: str | None = None) -> Output:
    """Return the natural logarithm; -inf at 0, NaN for negative numbers; floating or complex.

    Args:
      x: floating or complex, any shape.
    Returns: shape and dtype of `x`.

    Examples:
      >>> np.round(wf.Session().run(wf.log([1.0, 10.0])), 3)
      array([0.   , 2.303], dtype=float32)
    """
    return out("Log", [x], name=name)


def log1p(x: Any, name: str | None = None) -> Output:
    """Return log(1 + x), accurate near 0; floating or complex, any shape.

    Args:
      x: floating or complex, any shape.
    Returns: shape and dtype of `x`.

    Examples:
      >>> np.round(wf.Session().run(wf.log1p([0.0, 1.0])), 3)
      array([0.   , 0.693], dtype=float32)
    """
    return out("Log1p", [x], name=name)


def sigmoid(x: Any, name: str | None = None) -> Output:
    """Return 1 / (1 + exp(-x)), without overflow; floating or complex, any shape.

    Args:
      x: floating or complex, any shape.
    Returns: shape and dtype of `x`.

    Examples:
      >>> np.round(wf.Session().run(wf.sigmoid([0.0, 0.5, 1.0])), 3)
      array([0.5  , 0.622, 0.731], dtype=float32)
    """
    return out("Sigmoid", [x], name=name)


def log_sigmoid(x: Any, name: str | None = None) -> Output:
    """Return log(sigmoid(x)) = -softplus(-x); floating, any shape.

    Args:
      x: floating, any shape.
    Returns: shape and dtype of `x`.

    Examples:
      >>> np.round(wf.Session().run(wf.log_sigmoid([0.0, 2.0])), 3)
      array([-0.693, -0.127], dtype=float32)
    """
    return out("Neg", [out("Softplus", [out("Neg", [x])])], name=name or "LogSigmoid")


def xlogy(x: Any, y: Any, name: str | None = None) -> Output:
    """Return x * log(y), 0 where x is 0; floating or complex, broadcast shape.

    Args:
      x, y: floating or complex, of the same dtype; their shapes broadcast.
    Returns: the broadcast shape and the common dtype.

    Examples:
      >>> wf.Session().run(wf.math.xlogy([0.0, 2.0], [0.0, 1.0]))
      array([0., 0.], dtype=float32)
    """
    return out("Xlogy", [x, y], name=name or "xlogy")


def xlog1py(x: Any, y: Any, name: str | None = None) -> Output:
    """Return x * log1p(y), 0 where x is 0; floating or complex, broadcast shape.

    Args:
      x, y: floating or complex, of the same dtype; their shapes broadcast.
    Returns: the broadcast shape and the common dtype.

    Examples:
      >>> wf.Session().run(wf.math.xlog1py([0.0, 2.0], [-1.0, 0.0]))
      array([0., 0.], dtype=float32)
    """
    return out("Xlog1py", [x, y], name=name or "xlog1py")


def xdivy(x: Any, y: Any, name: str | None = None) -> Output:
    """Return x / y, 0 where x is 0; floating or complex, broadcast shape.

    Args:
      x, y: floating or complex, of the same dtype; their shapes broadcast.
    Returns: the broadcast shape and the common dtype.

    Examples:
      >>> wf.Session().run(wf.math.xdivy([0.0, 2.0], [0.0, 4.0]))
      array([0. , 0.5], dtype=float32)
    """
    return out("Xdivy", [x, y], name=name or "xdivy")


def nextafter(x1: Any, x2: Any, name: str | None = None) -> Output:
    """Return the next representable number after x1 in the direction of x2.

    Args:
      x1: float32 or float64, any shape.
      x2: same dtype; broadcasts with `x1`.
    Returns: the broadcast shape.

    Examples:
      >>> bool(wf.Session().run(wf.math.nextafter(1.0, 2.0) > 1.0))
      True
    """
    return out("NextAfter", [x1, x2], name=name)


def is_nan(x: Any, name: str | None = None) -> Output:
    """Return True where x is NaN; floating to bool, any shape.

    Args:
      x: floating, any shape.
    Returns: bool, shape of `x`.

    Examples:
      >>> wf.Session().run(wf.is_nan([1.0, np.nan]))
      array([False,  True])
    """
    return out("IsNan", [x], name=name)


def is_inf(x: Any, name: str | None = None) -> Output:
    """Return True where x is infinite, of either sign; floating to bool, any shape.

    Args:
      x: floating, any shape.
    Returns: bool, shape of `x`.

    Examples:
      >>> wf.Session().run(wf.is_inf([1.0, -np.inf]))
      array([False,  True])
    """
    return out("IsInf", [x], name=name)


def is_finite(x: Any, name: str | None = None) -> Output:
    """Return True where x is neither infinite nor NaN; floating to bool, any shape.

    Args:
      x: floating, any shape.
    Returns: bool, shape of `x`.

    Examples:
      >>> wf.Session().run(wf.is_finite([1.0, np.nan, np.inf]))
      array([ True, False, False])
    """
    return out("IsFinite", [x], name=name)


def polyval(coeffs: Sequence[Any], x: Any, name: str | None = None) -> Output:
    """Return the value at x of a polynomial, by Horner's scheme.

    Args:
      coeffs: coefficients from the highest power down; dtype of x, shapes broadcast.
      x: numeric, any shape.
    Returns: broadcast shape; zeros if there are no coefficients.
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
