"""Powers and roots, elementwise."""

from __future__ import annotations

__all__ = [
    "pow",
    "rsqrt",
    "sqrt",
    "square",
]

from typing import Any

from weft_graph.ir import scalar
from weft_graph.ir.builder import out
from weft_graph.ir.node import Output
from weft_graph.ir.scalar import Scalar
from weft_graph.ops.elementwise import (
    INEXACT,
    NUMBERS,
    register_binary,
    register_gradient_of_unary,
    register_unary,
    unary,
    zero_if_zero_grad,
)

# ------------------------------------------------------------------ scalar definitions


def _rsqrt(x: Scalar) -> Scalar:
    return 1 / scalar.sqrt(x)


def _sqrt_grad(y: Scalar, dy: Scalar) -> Scalar:
    return zero_if_zero_grad(dy, dy * 0.5 / scalar.conj(y))


def _rsqrt_grad(y: Scalar, dy: Scalar) -> Scalar:
    c = scalar.conj(y)
    return zero_if_zero_grad(dy, c * c * c * dy * -0.5)


# ------------------------------------------------------------------------ declarations
register_binary("Pow", NUMBERS, scalar.power, "x to the power of y.")
register_unary("Square", NUMBERS, scalar.square, "x * x.", cheap=True)
register_unary(
    "Sqrt", INEXACT, scalar.sqrt, "The square root; NaN for negative numbers.", cheap=True
)
register_unary("Rsqrt", INEXACT, _rsqrt, "1 / sqrt(x).", cheap=True)

register_gradient_of_unary(
    "SqrtGrad", _sqrt_grad, "dy * 0.5 / y with y = sqrt(x); 0 where dy is 0."
)
register_gradient_of_unary(
    "RsqrtGrad", _rsqrt_grad, "dy * -0.5 * y ** 3, for y = rsqrt(x); 0 where dy is 0."
)

# --------------------------------------------------------------------------- functions


def pow(x: Any, y: Any, name: str | None = None) -> Output:
    """Return x to the power of y; numeric, broadcast shape.

    Args:
      x, y: numeric, of the same dtype; their shapes broadcast.
    Returns: the broadcast shape and the common dtype.
    Raises: InvalidArgumentError: at run time, an integer has a negative exponent.

    Examples:
      >>> wf.Session().run(wf.pow([2.0, 3.0], 2.0))
      array([4., 9.], dtype=float32)
    """
    return out("Pow", [x, y], name=name)


def square(x: Any, name: str | None = None) -> Any:
    """Return x * x; numeric, any shape; a sparse tensor stays sparse.

    Args:
      x: numeric, any shape.
    Returns: shape and dtype of `x`.

    Examples:
      >>> wf.Session().run(wf.square([-3.0, 2.0]))
      array([9., 4.], dtype=float32)
    """
    return unary("Square", x, name)


def sqrt(x: Any, name: str | None = None) -> Any:
    """Return the square root, NaN for negative numbers; floating or complex, any shape.

    A sparse tensor stays sparse.

    Args:
      x: floating or complex, any shape.
    Returns: shape and dtype of `x`.

    Examples:
      >>> wf.Session().run(wf.sqrt([4.0, 9.0]))
      array([2., 3.], dtype=float32)
    """
    return unary("Sqrt", x, name)


def rsqrt(x: Any, name: str | None = None) -> Output:
    """Return 1 / sqrt(x); floating or complex, any shape.

    Args:
      x: floating or complex, any shape.
    Returns: shape and dtype of `x`.

    Examples:
      >>> wf.Session().run(wf.rsqrt([4.0, 0.25]))
      array([0.5, 2. ], dtype=float32)
    """
    return out("Rsqrt", [x], name=name)
