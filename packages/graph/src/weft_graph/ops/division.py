"""Quotients, remainders and reciprocals, elementwise."""

from __future__ import annotations

__all__ = [
    "divide",
    "floordiv",
    "floormod",
    "mod",
    "reciprocal",
    "truediv",
]

import operator
from typing import Any

import numpy as np

from weft_graph.ir import scalar
from weft_graph.ir.builder import convert_to_tensor, out
from weft_graph.ir.node import Output
from weft_graph.ir.scalar import Scalar
from weft_graph.ir.value_rules import binary_value_rule
from weft_graph.ops.casting import cast
from weft_graph.ops.elementwise import (
    INEXACT,
    NUMBERS,
    REALS,
    pair,
    register_binary,
    register_gradient_of_unary,
    register_unary,
    zero_if_zero_grad,
)
from weft_tensor import dtypes
from weft_tensor.dtypes import DType

# ------------------------------------------------------------------ scalar definitions


def _div_no_nan(x: Scalar, y: Scalar) -> Scalar:
    return scalar.where(scalar.equal(y, 0), 0, x / y)


def _floor_div(x: Scalar, y: Scalar) -> Scalar:
    return scalar.floor_div(x, y) if x.dtype.is_integer else scalar.floor(x / y)


def _truncate_div(x: Scalar, y: Scalar) -> Scalar:
    return scalar.trunc(x / y)


def _reciprocal_grad(y: Scalar, dy: Scalar) -> Scalar:
    c = scalar.conj(y)
    return zero_if_zero_grad(dy, -(c * c * dy))


# ------------------------------------------------------------ values that are known before


def _truncate_divide_integers(x: int, y: int) -> int:
    return abs(x) // abs(y) * (1 if (x < 0) == (y < 0) else -1)


def _truncate_divide(x: np.ndarray[Any, Any], y: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    if x.dtype.kind not in "iu":
        return np.asarray(np.trunc(np.divide(x, y)))
    quotients = np.frompyfunc(_truncate_divide_integers, 2, 1)(x, y)  # which refuses zeros
    return np.asarray(quotients).astype(x.dtype)


# ------------------------------------------------------------------------ declarations


_DIV = "x / y; integers round toward zero."
register_binary("Div", NUMBERS, scalar.div, _DIV, cheap=True)
register_binary("RealDiv", NUMBERS, scalar.div, _DIV, cheap=True)
register_binary("DivNoNan", INEXACT, _div_no_nan, "x / y, and 0 where y is 0.")
register_binary(
    "FloorDiv",
    REALS,
    _floor_div,
    "x / y rounded down.",
    value=binary_value_rule(np.floor_divide, operator.floordiv),
    cheap=True,
    differentiable=False,
)
register_binary(
    "FloorMod",
    REALS,
    scalar.floor_mod,
    "The remainder of FloorDiv, with the sign of y.",
    value=binary_value_rule(np.remainder, operator.mod),
    cheap=True,
)
register_binary(
    "TruncateDiv",
    NUMBERS,
    _truncate_div,
    "x / y rounded toward zero.",
    value=binary_value_rule(_truncate_divide, _truncate_divide_integers),
    differentiable=False,
)
register_binary("TruncateMod", REALS, scalar.trunc_mod, "Another name of Mod.")
register_binary("Mod", REALS, scalar.trunc_mod, "The remainder of TruncateDiv, with the sign of x.")
register_unary("Reciprocal", NUMBERS, scalar.reciprocal, "1 / x.", cheap=True)
register_unary("Inv", NUMBERS, scalar.reciprocal, "1 / x.")
register_gradient_of_unary(
    "ReciprocalGrad", _reciprocal_grad, "-dy * y * y, for y = 1 / x; 0 where dy is 0."
)
register_gradient_of_unary(
    "InvGrad", _reciprocal_grad, "-dy * y * y, for y = 1 / x; 0 where dy is 0."
)

# --------------------------------------------------------------------------- functions


TRUE_QUOTIENT: dict[DType, DType] = {
    dtypes.int8: dtypes.float32,
    dtypes.uint8: dtypes.float32,
    dtypes.int16: dtypes.float32,
    dtypes.uint16: dtypes.float32,
    dtypes.int32: dtypes.float64,
    dtypes.uint32: dtypes.float64,
    dtypes.int64: dtypes.float64,
    dtypes.uint64: dtypes.float64,
}
"""Result types of true division, by type of the integer operands."""


def truediv(x: Any, y: Any, name: str | None = None) -> Output:
    """Return x / y like Python's `/`.

    Args:
      x: numeric. 8 and 16-bit integers are divided in float32, wider ones in float64.
      y: same dtype; the shapes broadcast.
    Raises: InvalidTypeError: the dtypes differ.
    Returns: the broadcast shape and the common dtype.

    Examples:
      >>> wf.Session().run(wf.truediv([7.0, -7.0], 2.0))
      array([ 3.5, -3.5], dtype=float32)
    """
    a, b = pair(x, y)
    quotient = TRUE_QUOTIENT.get(a.dtype.base_dtype)
    if quotient is not None:
        a, b = cast(a, quotient), cast(b, quotient)
    return out("RealDiv", [a, b], name=name or "truediv")


def divide(x: Any, y: Any, name: str | None = None) -> Output:
    """Return x / y like Python's `/`; see `truediv`.

    Args:
      x, y: numeric, of the same dtype; their shapes broadcast.
    Returns: the broadcast shape and the common dtype.

    Examples:
      >>> wf.Session().run(wf.divide([1.0, 2.0], 4.0))
      array([0.25, 0.5 ], dtype=float32)
    """
    return truediv(x, y, name)


def div(x: Any, y: Any, name: str | None = None) -> Output:
    """Return x / y like Python 2's `/`: rounded down for integers, exact otherwise.

    Args:
      x, y: numeric, of the same dtype; their shapes broadcast.
    Returns: the broadcast shape and the common dtype.

    Examples:
      >>> wf.Session().run(wf.div([7, -7], 2))
      array([ 3, -4], dtype=int32)
    """
    a, b = pair(x, y)
    return out("FloorDiv" if a.dtype.is_integer else "RealDiv", [a, b], name=name or "div")


def realdiv(x: Any, y: Any, name: str | None = None) -> Output:
    """Return x / y; numeric, broadcast shape.

    Args:
      x, y: numeric, of the same dtype; their shapes broadcast.
    Returns: the broadcast shape and the common dtype.

    Examples:
      >>> wf.Session().run(wf.realdiv([7.0], 2.0))
      array([3.5], dtype=float32)
    """
    return out("RealDiv", [x, y], name=name)


def div_no_nan(x: Any, y: Any, name: str | None = None) -> Output:
    """Return x / y, and 0 where y is 0; floating or complex, broadcast shape.

    Args:
      x, y: floating or complex, of the same dtype; their shapes broadcast.
    Returns: the broadcast shape and the common dtype.

    Examples:
      >>> wf.Session().run(wf.div_no_nan([1.0, 2.0], [0.0, 4.0]))
      array([0. , 0.5], dtype=float32)
    """
    return out("DivNoNan", list(pair(x, y)), name=name or "div_no_nan")


def floordiv(x: Any, y: Any, name: str | None = None) -> Output:
    """Return x / y rounded down; real, broadcast shape.

    Args:
      x, y: real, of the same dtype; their shapes broadcast.
    Returns: the broadcast shape and the common dtype.
    Raises: InvalidArgumentError: at run time, an integer divisor is 0.

    Examples:
      >>> wf.Session().run(wf.floordiv([7, -7], 2))
      array([ 3, -4], dtype=int32)
    """
    return out("FloorDiv", [x, y], name=name or "floordiv")


def floor_div(x: Any, y: Any, name: str | None = None) -> Output:
    """Return x / y rounded down; see `floordiv`.

    Args:
      x, y: numeric, of the same dtype; their shapes broadcast.
    Returns: the broadcast shape and the common dtype.

    Examples:
      >>> wf.Session().run(wf.floor_div([7, -7], 2))
      array([ 3, -4], dtype=int32)
    """
    return out("FloorDiv", [x, y], name=name)


def floormod(x: Any, y: Any, name: str | None = None) -> Output:
    """Return the remainder of `floordiv`, with the sign of y; real, broadcast shape.

    Args:
      x, y: real, of the same dtype; their shapes broadcast.
    Returns: the broadcast shape and the common dtype.
    Raises: InvalidArgumentError: at run time, an integer divisor is 0.

    Examples:
      >>> wf.Session().run(wf.floormod([7, -7], 3))
      array([1, 2], dtype=int32)
    """
    return out("FloorMod", [x, y], name=name)


mod = floormod


def truncatediv(x: Any, y: Any, name: str | None = None) -> Output:
    """Return x / y rounded toward zero; numeric, broadcast shape.

    Args:
      x, y: numeric, of the same dtype; their shapes broadcast.
    Returns: the broadcast shape and the common dtype.
    Raises: InvalidArgumentError: at run time, an integer divisor is 0.

    Examples:
      >>> wf.Session().run(wf.truncatediv([7, -7], 2))
      array([ 3, -3], dtype=int32)
    """
    return out("TruncateDiv", [x, y], name=name)


def truncatemod(x: Any, y: Any, name: str | None = None) -> Output:
    """Return the remainder of `truncatediv`, with the sign of x; real, broadcast shape.

    Args:
      x, y: real, of the same dtype; their shapes broadcast.
    Returns: the broadcast shape and the common dtype.
    Raises: InvalidArgumentError: at run time, an integer divisor is 0.

    Examples:
      >>> wf.Session().run(wf.truncatemod([7, -7], 3))
      array([ 1, -1], dtype=int32)
    """
    return out("TruncateMod", [x, y], name=name)


def reciprocal(x: Any, name: str | None = None) -> Output:
    """Return 1 / x; numeric, any shape.

    Args:
      x: numeric, any shape.
    Returns: shape and dtype of `x`.
    Raises: InvalidArgumentError: at run time, an integer is 0.

    Examples:
      >>> wf.Session().run(wf.reciprocal([2.0, 4.0]))
      array([0.5 , 0.25], dtype=float32)
    """
    return out("Reciprocal", [x], name=name)


def reciprocal_no_nan(x: Any, name: str | None = None) -> Output:
    """Return 1 / x, and 0 where x is 0; floating or complex, any shape.

    Args:
      x: floating or complex, any shape.
    Returns: shape and dtype of `x`.

    Examples:
      >>> wf.Session().run(wf.math.reciprocal_no_nan([0.0, 4.0]))
      array([0.  , 0.25], dtype=float32)
    """
    return div_no_nan(1, convert_to_tensor(x), name or "reciprocal_no_nan")
