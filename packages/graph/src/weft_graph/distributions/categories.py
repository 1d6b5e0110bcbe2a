"""Probabilities and logits, one of which is the parameter of a distribution."""

from __future__ import annotations

from typing import Any

from weft_graph.distributions.distribution import convert_floating, with_assertions
from weft_graph.ir.builder import out
from weft_graph.ir.node import Node, Output
from weft_graph.ops import checks
from weft_graph.ops.elementary import log, log1p, sigmoid
from weft_graph.ops.nn import softmax
from weft_graph.ops.reduction import reduce_sum
from weft_graph.ops.shape_rules import with_rank_at_least
from weft_graph.ops.special import lgamma
from weft_tensor import errors


def logits_and_probs(
    logits: Any, probs: Any, validate_args: bool, over_classes: bool = False
) -> tuple[Output, Output]:
    """Return both the logits and the probabilities from one of them.

    Args:
      over_classes: True if the probabilities along the last axis sum to 1; else each is separate.
    Raises: InvalidArgumentError: both or neither are passed.
    """
    if (logits is None) == (probs is None):
        raise errors.InvalidArgumentError("requires either logits or probs, and not both")
    (value,) = convert_floating(probs if logits is None else logits)
    if over_classes:
        with_rank_at_least(value.dims, 1, "probs" if logits is None else "logits")
    if logits is not None:
        return value, softmax(value) if over_classes else sigmoid(value)
    if validate_args:
        low = checks.assert_non_negative(value)
        if over_classes:
            total = reduce_sum(value, -1)
            value = with_assertions(
                value, [low, checks.assert_near(total, out("OnesLike", [total]))]
            )
        else:
            unit = out("OnesLike", [value])
            value = with_assertions(value, [low, checks.assert_less_equal(value, unit)])
    return (log(value) if over_classes else log(value) - log1p(-value)), value


def log_combinations(total: Output, counts: Output) -> Output:
    """Return the logarithm of the multinomial coefficient of class counts."""
    return lgamma(total + 1.0) - reduce_sum(lgamma(counts + 1.0), -1)


def check_counts(value: Output, total: Output, validate_args: bool) -> Output:
    """Return the counts; with `validate_args`, check that they are integers that sum to `total`."""
    if not validate_args:
        return value
    sums = checks.assert_equal(reduce_sum(value, -1), total, message="counts must sum to the total")
    return with_assertions(value, [*_natural(value, "counts"), sums])


def check_binary(value: Output, validate_args: bool) -> Output:
    """Return samples; with `validate_args`, check that they are 0 or 1."""
    if not validate_args:
        return value
    unit = out("OnesLike", [value])
    limit = checks.assert_less_equal(value, unit, message="a draw must be 0 or 1")
    return with_assertions(value, [*_natural(value, "a draw"), limit])


def _natural(value: Output, label: str) -> list[Node]:
    low = checks.assert_non_negative(value, message=f"{label} must be non-negative")
    if not value.dtype.is_floating:
        return [low]
    message = f"{label} cannot contain fractional components"
    return [low, checks.assert_equal(value, out("Floor", [value]), message=message)]
