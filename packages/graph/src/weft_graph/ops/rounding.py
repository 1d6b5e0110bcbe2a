"""Rounding to integers, elementwise."""

from __future__ import annotations

__all__ = [
    "ceil",
    "floor",
    "rint",
    "round",
]

from typing import Any

from weft_graph.ir import scalar
from weft_graph.ir.builder import convert_to_tensor, out
from weft_graph.ir.node import Output
from weft_graph.ops.elementwise import (
    FLOATING,
    REALS,
    register_unary,
)

# ------------------------------------------------------------------------ declarations
_NEAREST = "The nearest integer, ties to even."
register_unary(
    "Floor", FLOATING, scalar.floor, "The largest integer not above x.", differentiable=False
)
register_unary(
    "Ceil", FLOATING, scalar.ceil, "The smallest integer not below x.", differentiable=False
)
register_unary("Rint", FLOATING, scalar.rint, _NEAREST, differentiable=False)
register_unary("Round", REALS, scalar.rint, _NEAREST, differentiable=False)

# --------------------------------------------------------------------------- functions


def floor(x: Any, name: str | None = None) -> Output:
    """Return the largest integer not above x, as a float; floating, any shape.

    Args:
      x: floating, any shape.
    Returns: shape and dtype of `x`.

    Examples:
      >>> wf.Session().run(wf.floor([-1.5, 1.5]))
      array([-2.,  1.], dtype=float32)
    """
    return out("Floor", [x], name=name)


def ceil(x: Any, name: str | None = None) -> Output:
    """Return the smallest integer not below x, as a float; floating, any shape.

    Args:
      x: floating, any shape.
    Returns: shape and dtype of `x`.

    Examples:
      >>> wf.Session().run(wf.ceil([-1.5, 1.5]))
      array([-1.,  2.], dtype=float32)
    """
    return out("Ceil", [x], name=name)


def rint(x: Any, name: str | None = None) -> Output:
    """Return the nearest integer as a float, ties to even; floating, any shape.

    Args:
      x: floating, any shape.
    Returns: shape and dtype of `x`.

    Examples:
      >>> wf.Session().run(wf.rint([0.5, 1.5, 2.4]))
      array([0., 2., 2.], dtype=float32)
    """
    return out("Rint", [x], name=name)


def round(x: Any, name: str | None = None) -> Output:
    """Return the nearest integer, ties to even; real, any shape; integers unchanged.

    Args:
      x: real, any shape.
    Returns: shape and dtype of `x`.

    Examples:
      >>> wf.Session().run(wf.round([0.5, 1.5, 2.4]))
      array([0., 2., 2.], dtype=float32)
    """
    value = convert_to_tensor(x)
    return value if value.dtype.is_integer else out("Round", [value], name=name)
