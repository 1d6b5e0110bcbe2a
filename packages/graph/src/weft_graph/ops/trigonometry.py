"""Trigonometric and hyperbolic functions and their inverses, elementwise."""

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
    "sin",
    "sinh",
    "tan",
    "tanh",
]

from typing import Any

from weft_graph.ir import scalar
from weft_graph.ir.builder import out
from weft_graph.ir.node import Output
from weft_graph.ir.scalar import Scalar
from weft_graph.ops.elementwise import (
    FLOATING,
    INEXACT,
    register_binary,
    register_gradient_of_unary,
    register_unary,
    unary,
)


def _tanh_grad(y: Scalar, dy: Scalar) -> Scalar:
    return (1 - y * y) * dy


# ------------------------------------------------------------------------------ declarations
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
register_binary("Atan2", FLOATING, scalar.atan2, "The angle of (x, y) in (-pi, pi].", names="yx")
register_gradient_of_unary("TanhGrad", _tanh_grad, "dy * (1 - y * y), for y = tanh(x).")

# --------------------------------------------------------------------------- functions


def sin(x: Any, name: str | None = None) -> Output:
    """Return the sine of an angle in radians; floating or complex, any shape.

    Args:
      x: floating or complex, any shape.
    Returns: shape and dtype of `x`.

    Examples:
      >>> np.round(wf.Session().run(wf.sin([0.0, 0.5, 1.0])), 3)
      array([0.   , 0.479, 0.841], dtype=float32)
    """
    return out("Sin", [x], name=name)


def cos(x: Any, name: str | None = None) -> Output:
    """Return the cosine of an angle in radians; floating or complex, any shape.

    Args:
      x: floating or complex, any shape.
    Returns: shape and dtype of `x`.

    Examples:
      >>> np.round(wf.Session().run(wf.cos([0.0, 0.5, 1.0])), 3)
      array([1.   , 0.878, 0.54 ], dtype=float32)
    """
    return out("Cos", [x], name=name)


def tan(x: Any, name: str | None = None) -> Output:
    """Return the tangent of an angle in radians; floating or complex, any shape.

    Args:
      x: floating or complex, any shape.
    Returns: shape and dtype of `x`.

    Examples:
      >>> np.round(wf.Session().run(wf.tan([0.0, 0.5, 1.0])), 3)
      array([0.   , 0.546, 1.557], dtype=float32)
    """
    return out("Tan", [x], name=name)


def asin(x: Any, name: str | None = None) -> Output:
    """Return the angle in radians whose sine is x, NaN beyond [-1, 1]; floating or complex.

    Args:
      x: floating or complex, any shape.
    Returns: shape and dtype of `x`.

    Examples:
      >>> np.round(wf.Session().run(wf.asin([0.0, 0.5, 1.0])), 3)
      array([0.   , 0.524, 1.571], dtype=float32)
    """
    return out("Asin", [x], name=name)


def acos(x: Any, name: str | None = None) -> Output:
    """Return the angle in radians whose cosine is x, NaN beyond [-1, 1]; floating or complex.

    Args:
      x: floating or complex, any shape.
    Returns: shape and dtype of `x`.

    Examples:
      >>> np.round(wf.Session().run(wf.acos([0.0, 0.5, 1.0])), 3)
      array([1.571, 1.047, 0.   ], dtype=float32)
    """
    return out("Acos", [x], name=name)


def atan(x: Any, name: str | None = None) -> Output:
    """Return the angle in radians whose tangent is x; floating or complex, any shape.

    Args:
      x: floating or complex, any shape.
    Returns: shape and dtype of `x`.

    Examples:
      >>> np.round(wf.Session().run(wf.atan([0.0, 0.5, 1.0])), 3)
      array([0.   , 0.464, 0.785], dtype=float32)
    """
    return out("Atan", [x], name=name)


def sinh(x: Any, name: str | None = None) -> Output:
    """Return the hyperbolic sine; floating or complex, any shape.

    Args:
      x: floating or complex, any shape.
    Returns: shape and dtype of `x`.

    Examples:
      >>> np.round(wf.Session().run(wf.sinh([0.0, 0.5, 1.0])), 3)
      array([0.   , 0.521, 1.175], dtype=float32)
    """
    return out("Sinh", [x], name=name)


def cosh(x: Any, name: str | None = None) -> Output:
    """Return the hyperbolic cosine; floating or complex, any shape.

    Args:
      x: floating or complex, any shape.
    Returns: shape and dtype of `x`.

    Examples:
      >>> np.round(wf.Session().run(wf.cosh([0.0, 0.5, 1.0])), 3)
      array([1.   , 1.128, 1.543], dtype=float32)
    """
    return out("Cosh", [x], name=name)


def tanh(x: Any, name: str | None = None) -> Any:
    """Return the hyperbolic tangent; floating or complex; a sparse tensor stays sparse.

    Args:
      x: floating or complex, any shape.
    Returns: shape and dtype of `x`.

    Examples:
      >>> np.round(wf.Session().run(wf.tanh([0.0, 0.5, 1.0])), 3)
      array([0.   , 0.462, 0.762], dtype=float32)
    """
    return unary("Tanh", x, name)


def asinh(x: Any, name: str | None = None) -> Output:
    """Return the inverse of the hyperbolic sine; floating or complex, any shape.

    Args:
      x: floating or complex, any shape.
    Returns: shape and dtype of `x`.

    Examples:
      >>> np.round(wf.Session().run(wf.asinh([0.0, 0.5, 1.0])), 3)
      array([0.   , 0.481, 0.881], dtype=float32)
    """
    return out("Asinh", [x], name=name)


def acosh(x: Any, name: str | None = None) -> Output:
    """Return the inverse of the hyperbolic cosine, NaN below 1; floating or complex, any shape.

    Args:
      x: floating or complex, any shape.
    Returns: shape and dtype of `x`.

    Examples:
      >>> np.round(wf.Session().run(wf.acosh([1.0, 2.0])), 3)
      array([0.   , 1.317], dtype=float32)
    """
    return out("Acosh", [x], name=name)


def atanh(x: Any, name: str | None = None) -> Output:
    """Return the inverse of the hyperbolic tangent, NaN beyond [-1, 1]; floating or complex.

    Args:
      x: floating or complex, any shape.
    Returns: shape and dtype of `x`.

    Examples:
      >>> np.round(wf.Session().run(wf.atanh([0.0, 0.5])), 3)
      array([0.   , 0.549], dtype=float32)
    """
    return out("Atanh", [x], name=name)


def atan2(y: Any, x: Any, name: str | None = None) -> Output:
    """Return the angle in (-pi, pi] of the point (x, y); floating, broadcast shape.

    Args:
      y, x: floating, of the same dtype; their shapes broadcast.
    Returns: the broadcast shape and the common dtype.

    Examples:
      >>> np.round(wf.Session().run(wf.atan2([1.0, -1.0], [1.0, 0.0])), 3)
      array([ 0.785, -1.571], dtype=float32)
    """
    return out("Atan2", [y, x], name=name)
