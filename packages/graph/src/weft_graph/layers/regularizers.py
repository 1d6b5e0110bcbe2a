"""Regularizers: functions from a variable to a loss, for layers and get_variable."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from weft_graph import nn
from weft_graph.ir.builder import convert_to_tensor, out
from weft_graph.ir.collections_keys import GraphKeys, add_to_collection, get_collection
from weft_graph.ir.node import Output
from weft_graph.nn.scope import scope as _scope
from weft_graph.ops.reduction import reduce_sum
from weft_tensor import errors

Regularizer = Callable[[Any], "Output | None"]


def _check_scale(scale: float) -> float:
    if isinstance(scale, bool | int) or not scale >= 0:
        raise errors.InvalidArgumentError(f"scale must be a float of at least 0, got {scale!r}")
    return scale


def l1_regularizer(scale: float, scope: str | None = None) -> Regularizer:
    """Return the regularizer scale * sum(abs(w)); it returns None if the scale is 0.

    Raises: InvalidArgumentError: the scale is negative, or an integer.
    """
    factor = _check_scale(scale)

    def regularize(weights: Any) -> Output | None:
        if factor == 0:
            return None
        with _scope(scope, "l1_regularizer") as full:
            return out("Mul", [factor, reduce_sum(out("Abs", [weights]))], name=full)

    return regularize


def l2_regularizer(scale: float, scope: str | None = None) -> Regularizer:
    """Return the regularizer scale * sum(w ** 2) / 2; it returns None if the scale is 0.

    Raises: InvalidArgumentError: the scale is negative, or an integer.
    """
    factor = _check_scale(scale)

    def regularize(weights: Any) -> Output | None:
        if factor == 0:
            return None
        with _scope(scope, "l2_regularizer") as full:
            return out("Mul", [factor, nn.l2_loss(weights)], name=full)

    return regularize


def l1_l2_regularizer(
    scale_l1: float = 1.0, scale_l2: float = 1.0, scope: str | None = None
) -> Regularizer:
    """Return the sum of an L1 and an L2 regularizer."""
    return sum_regularizer(
        [l1_regularizer(scale_l1), l2_regularizer(scale_l2)], scope or "l1_l2_regularizer"
    )


def sum_regularizer(
    regularizers: Sequence[Regularizer | None], scope: str | None = None
) -> Regularizer:
    """Return the sum of several regularizers; None counts as zero."""
    members = [regularizer for regularizer in regularizers if regularizer is not None]

    def regularize(weights: Any) -> Output | None:
        with _scope(scope, "sum_regularizer") as full:
            losses = [loss for loss in (member(weights) for member in members) if loss is not None]
            return out("AddN", [losses], name=full) if losses else None

    return regularize


def apply_regularization(regularizer: Regularizer, weights_list: Any = None) -> Output:
    """Sum a regularizer over weights, and add the sum to the regularization losses.

    Args:
      regularizer: function from a variable to a loss.
      weights_list: variables; those of GraphKeys.WEIGHTS by default.
    Returns: rank 0.
    """
    weights = get_collection(GraphKeys.WEIGHTS) if weights_list is None else weights_list
    with _scope(None, "get_regularization_penalty"):
        losses = [loss for loss in map(regularizer, weights) if loss is not None]
        total = out("AddN", [losses]) if losses else convert_to_tensor(0.0)
    add_to_collection(GraphKeys.REGULARIZATION_LOSSES, total)
    return total


__all__ = [
    "apply_regularization",
    "l1_l2_regularizer",
    "l1_regularizer",
    "l2_regularizer",
    "sum_regularizer",
]
