"""Counts of correct and wrong binary predictions, and ratios of them."""

from __future__ import annotations

__all__ = [
    "false_negatives",
    "false_positives",
    "precision",
    "recall",
    "true_negatives",
    "true_positives",
]

from collections.abc import Callable
from typing import Any

from weft_graph.ir.builder import out
from weft_graph.ir.node import Output
from weft_graph.metrics.base import (
    Metric,
    accumulate,
    align_ranks,
    apply_weights,
    collect,
    current,
    metric_variable,
)
from weft_graph.ops import casting
from weft_graph.ops.reduction import reduce_sum
from weft_graph.variables.scope import variable_scope
from weft_tensor import dtypes


def _count(
    default: str,
    labels: Any,
    predictions: Any,
    weights: Any,
    collections: tuple[Any, Any],
    name: str | None,
    outcome: tuple[bool, bool],
) -> Metric:
    """Sum the weights of the examples whose label and prediction equal `outcome`."""
    with variable_scope(name, default, (predictions, labels, weights)):
        labels, predictions, factor = align_ranks(labels, predictions, weights)
        matches = out("LogicalAnd", [_is(labels, outcome[0]), _is(predictions, outcome[1])])
        values, _ = apply_weights(casting.cast(matches, dtypes.float32), factor)
        count = metric_variable([], dtypes.float32, name="count")
        value = current(count)
        update = accumulate(count, reduce_sum(values))
        return collect(value, update, *collections)


def _is(value: Output, value_sought: bool) -> Output:
    flags: Output = casting.cast(value, dtypes.bool_)
    return flags if value_sought else out("LogicalNot", [flags])


def true_positives(
    labels: Any,
    predictions: Any,
    weights: Any = None,
    metrics_collections: Any = None,
    updates_collections: Any = None,
    name: str | None = None,
) -> Metric:
    """Count positives that were predicted positive, by weight.

    Args:
      labels, predictions: bool or numbers that are 0 for negatives, the same shape.
      weights: rank 0, or the rank of `labels` with each size equal or 1.
      metrics_collections, updates_collections: collections to add the value and the update to.
      name: name of the variable scope.
    Returns: the sum of weights so far, float32 and rank 0; and the update.
    Raises: InvalidArgumentError: the shapes do not match.

    Examples:
      >>> value, update = wf.metrics.true_positives([1, 0, 1], [1, 1, 1])
      >>> with wf.Session() as session:
      ...     session.run(wf.local_variables_initializer())
      ...     print(round(float(session.run(update)), 3))
      2.0
    """
    collections = metrics_collections, updates_collections
    outcome = True, True
    return _count("true_positives", labels, predictions, weights, collections, name, outcome)


def false_positives(
    labels: Any,
    predictions: Any,
    weights: Any = None,
    metrics_collections: Any = None,
    updates_collections: Any = None,
    name: str | None = None,
) -> Metric:
    """Count negatives that were predicted positive; arguments as for `true_positives`.

    Args:
      labels, predictions, weights, metrics_collections, updates_collections: as for
        `true_positives`.

    Examples:
      >>> value, update = wf.metrics.false_positives([1, 0, 1], [1, 1, 1])
      >>> with wf.Session() as session:
      ...     session.run(wf.local_variables_initializer())
      ...     print(round(float(session.run(update)), 3))
      1.0
    """
    collections = metrics_collections, updates_collections
    outcome = False, True
    return _count("false_positives", labels, predictions, weights, collections, name, outcome)


def true_negatives(
    labels: Any,
    predictions: Any,
    weights: Any = None,
    metrics_collections: Any = None,
    updates_collections: Any = None,
    name: str | None = None,
) -> Metric:
    """Count negatives that were predicted negative; arguments as for `true_positives`.

    Args:
      labels, predictions, weights, metrics_collections, updates_collections: as for
        `true_positives`.

    Examples:
      >>> value, update = wf.metrics.true_negatives([0, 1], [0, 1])
      >>> with wf.Session() as session:
      ...     session.run(wf.local_variables_initializer())
      ...     print(round(float(session.run(update)), 3))
      1.0
    """
    collections = metrics_collections, updates_collections
    outcome = False, False
    return _count("true_negatives", labels, predictions, weights, collections, name, outcome)


def false_negatives(
    labels: Any,
    predictions: Any,
    weights: Any = None,
    metrics_collections: Any = None,
    updates_collections: Any = None,
    name: str | None = None,
) -> Metric:
    """Count positives that were predicted negative; arguments as for `true_positives`.

    Args:
      labels, predictions, weights, metrics_collections, updates_collections: as for
        `true_positives`.

    Examples:
      >>> value, update = wf.metrics.false_negatives([1, 1], [0, 1])
      >>> with wf.Session() as session:
      ...     session.run(wf.local_variables_initializer())
      ...     print(round(float(session.run(update)), 3))
      1.0
    """
    collections = metrics_collections, updates_collections
    outcome = True, False
    return _count("false_negatives", labels, predictions, weights, collections, name, outcome)


def share(part: Any, remainder: Any, name: str | None = None) -> Output:
    """Return part / (part + rest), or 0 where both are 0."""
    return out("DivNoNan", [part, out("AddV2", [part, remainder])], name=name)


def _share_of(
    default: str,
    wrong_count: Callable[..., Metric],
    labels: Any,
    predictions: Any,
    weights: Any,
    collections: tuple[Any, Any],
    name: str | None,
) -> Metric:
    """Return the ratio of true positives to true positives plus another count."""
    with variable_scope(name, default, (predictions, labels, weights)):
        right, right_update = true_positives(labels, predictions, weights)
        misses, wrong_update = wrong_count(labels, predictions, weights)
        value = share(right, misses, "value")
        update = share(right_update, wrong_update, "update_op")
        return collect(value, update, *collections)


def precision(
    labels: Any,
    predictions: Any,
    weights: Any = None,
    metrics_collections: Any = None,
    updates_collections: Any = None,
    name: str | None = None,
) -> Metric:
    """Return the fraction of predicted positives that are true; arguments as for `true_positives`.

    Args:
      labels, predictions, weights, metrics_collections, updates_collections: as for
        `true_positives`.

    Examples:
      >>> value, update = wf.metrics.precision([1, 0, 1], [1, 1, 1])
      >>> with wf.Session() as session:
      ...     session.run(wf.local_variables_initializer())
      ...     print(round(float(session.run(update)), 3))
      0.667
    """
    collections = metrics_collections, updates_collections
    return _share_of("precision", false_positives, labels, predictions, weights, collections, name)


def recall(
    labels: Any,
    predictions: Any,
    weights: Any = None,
    metrics_collections: Any = None,
    updates_collections: Any = None,
    name: str | None = None,
) -> Metric:
    """Return the fraction of positives that are predicted; arguments as for `true_positives`.

    Args:
      labels, predictions, weights, metrics_collections, updates_collections: as for
        `true_positives`.

    Examples:
      >>> value, update = wf.metrics.recall([1, 0, 1], [1, 1, 0])
      >>> with wf.Session() as session:
      ...     session.run(wf.local_variables_initializer())
      ...     print(round(float(session.run(update)), 3))
      0.5
    """
    collections = metrics_collections, updates_collections
    return _share_of("recall", false_negatives, labels, predictions, weights, collections, name)
