"""Evaluation of series, for scalar definitions."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from weft_graph.ir import scalar
from weft_graph.ir.scalar import Operand, Scalar
from weft_tensor import dtypes

_ROUNDING = 1e-9  # what float32 does not show of the greatest term


def in_float64(function: Callable[[Scalar, bool], Scalar]) -> Callable[[Scalar], Scalar]:
    """Return a definition that computes in float64 for any element type.

    Args:
      function: scalar function with an additional argument: True if the result is float64, False if
        it is rounded to a narrower type, for which fewer terms suffice.
    """

    def define(x: Scalar) -> Scalar:
        wide = function(scalar.cast(x, dtypes.float64), x.dtype is dtypes.float64)
        return scalar.cast(wide, x.dtype)

    return define


def chebyshev(coefficients: Sequence[float], t: Scalar, exact: bool) -> Scalar:
    """Return a Chebyshev series over t in [-1, 1], by Clenshaw's recurrence."""
    minimum = 0.0 if exact else _ROUNDING * max(map(abs, coefficients))
    terms = max(order for order, c in enumerate(coefficients) if abs(c) > minimum) + 1
    doubled = 2 * t
    last, current = scalar.constant(0.0, t.dtype), scalar.constant(coefficients[terms - 1], t.dtype)
    for coefficient in reversed(coefficients[1 : terms - 1]):
        last, current = current, doubled * current - last + coefficient
    return t * current - last + coefficients[0]


def power_series(coefficients: Sequence[float], x: Scalar) -> Scalar:
    """Return a power series by Horner's rule; the constant term is first."""
    total: Operand = coefficients[-1]
    for coefficient in reversed(coefficients[:-1]):
        total = total * x + coefficient
    assert isinstance(total, Scalar)
    return total
