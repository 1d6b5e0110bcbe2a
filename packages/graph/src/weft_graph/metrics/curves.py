"""Counts at several thresholds, and curves computed from them."""

from __future__ import annotations

__all__ = [
    "auc",
    "false_negatives_at_thresholds",
    "false_positives_at_thresholds",
    "precision_at_thresholds",
    "recall_at_thresholds",
    "sensitivity_at_specificity",
    "specificity_at_sensitivity",
    "true_negatives_at_thresholds",
    "true_positives_at_thresholds",
]

from collections.abc import Callable, Sequence
from typing import Any

from weft_graph.ir.builder import convert_to_tensor, out
from weft_graph.ir.node import Output
from weft_graph.metrics.base import (
    Metric,
    accumulate,
    apply_weights,
    collect,
    current,
    metric_variable,
)
from weft_graph.metrics.counts import share
from weft_graph.ops import array, casting, shapes
from weft_graph.ops.reduction import argmax, argmin, reduce_sum
from weft_graph.variables.base import Variable
from weft_graph.variables.scope import variable_scope
from weft_tensor import dtypes, errors

_KINDS = {
    "tp": ("true_positives", True, True),
    "fn": ("false_negatives", True, False),
    "tn": ("true_negatives", False, False),
    "fp": ("false_positives", False, True),
}
_EDGE = 1e-7
Counts = dict[str, Any]


def _counts(
    labels: Any,
    predictions: Any,
    thresholds: Sequence[float],
    weights: Any,
    kinds: Sequence[str] = ("tp", "fn", "tn", "fp"),
) -> tuple[dict[str, Variable], Counts]:
    """Return variables with one count per threshold, and their updates, for each requested kind."""
    predictions = casting.cast(convert_to_tensor(predictions), dtypes.float32)
    labels = casting.cast(convert_to_tensor(labels), dtypes.bool_)
    factor = None
    if weights is not None:
        _, full = apply_weights(array.ones_like(predictions), weights)
        assert full is not None
        factor = shapes.reshape(full, [1, -1])
    values = shapes.reshape(predictions, [1, -1])
    positive = out("Greater", [values, [[float(t)] for t in thresholds]])
    truth = shapes.reshape(labels, [1, -1])
    opposite = {True: positive, False: out("LogicalNot", [positive])}
    actual = {True: truth, False: out("LogicalNot", [truth])}
    variables: dict[str, Variable] = {}
    updates: Counts = {}
    for kind in kinds:
        name, label, prediction = _KINDS[kind]
        variables[kind] = metric_variable([len(thresholds)], dtypes.float32, name=name)
        is_hit = out("LogicalAnd", [actual[label], opposite[prediction]])
        hits = casting.cast(is_hit, dtypes.float32)
        hits = hits if factor is None else out("Mul", [hits, factor])
        updates[kind] = accumulate(variables[kind], reduce_sum(hits, 1))
    return variables, updates


def _threshold_metric(
    kind: str,
    labels: Any,
    predictions: Any,
    thresholds: Sequence[float],
    weights: Any,
    collections: tuple[Any, Any],
    name: str | None,
) -> Metric:
    with variable_scope(name, _KINDS[kind][0], (predictions, labels, weights)):
        variables, updates = _counts(labels, predictions, thresholds, weights, [kind])
        return collect(current(variables[kind]), updates[kind], *collections)


def true_positives_at_thresholds(
    labels: Any,
    predictions: Any,
    thresholds: Sequence[float],
    weights: Any = None,
    metrics_collections: Any = None,
    updates_collections: Any = None,
    name: str | None = None,
) -> Metric:
    """Count true positives for each threshold.

    Args:
      labels: bool or numbers that are 0 for negatives, any shape.
      predictions: floating, the shape of `labels`; positive above a threshold.
      thresholds: T numbers.
      weights: rank 0, or the rank of `labels` with each size equal or 1.
      metrics_collections, updates_collections: collections to add the value and the update to.
      name: name of the variable scope.
    Returns: float32, shape (T,); and the update.

    Examples:
      >>> value, update = wf.metrics.true_positives_at_thresholds([1, 1], [0.9, 0.4], [0.3, 0.5])
      >>> with wf.Session() as session:
      ...     session.run(wf.local_variables_initializer())
      ...     _ = session.run(update)
      ...     session.run(value)
      array([2., 1.], dtype=float32)
    """
    collections = metrics_collections, updates_collections
    return _threshold_metric("tp", labels, predictions, thresholds, weights, collections, name)


def false_negatives_at_thresholds(
    labels: Any,
    predictions: Any,
    thresholds: Sequence[float],
    weights: Any = None,
    metrics_collections: Any = None,
    updates_collections: Any = None,
    name: str | None = None,
) -> Metric:
    """Count false negatives for each threshold.

    Args:
      labels, predictions, thresholds, ...: as for `true_positives_at_thresholds`.
    Returns: float32, shape (T,); and the update.

    Examples:
      >>> value, update = wf.metrics.false_negatives_at_thresholds([1, 1], [0.9, 0.4], [0.3, 0.5])
      >>> with wf.Session() as session:
      ...     session.run(wf.local_variables_initializer())
      ...     _ = session.run(update)
      ...     session.run(value)
      array([0., 1.], dtype=float32)
    """
    collections = metrics_collections, updates_collections
    return _threshold_metric("fn", labels, predictions, thresholds, weights, collections, name)


def true_negatives_at_thresholds(
    labels: Any,
    predictions: Any,
    thresholds: Sequence[float],
    weights: Any = None,
    metrics_collections: Any = None,
    updates_collections: Any = None,
    name: str | None = None,
) -> Metric:
    """Count true negatives for each threshold.

    Args:
      labels, predictions, thresholds, ...: as for `true_positives_at_thresholds`.
    Returns: float32, shape (T,); and the update.

    Examples:
      >>> value, update = wf.metrics.true_negatives_at_thresholds([1, 0], [0.9, 0.4], [0.3, 0.5])
      >>> with wf.Session() as session:
      ...     session.run(wf.local_variables_initializer())
      ...     _ = session.run(update)
      ...     session.run(value)
      array([0., 1.], dtype=float32)
    """
    collections = metrics_collections, updates_collections
    return _threshold_metric("tn", labels, predictions, thresholds, weights, collections, name)


def false_positives_at_thresholds(
    labels: Any,
    predictions: Any,
    thresholds: Sequence[float],
    weights: Any = None,
    metrics_collections: Any = None,
    updates_collections: Any = None,
    name: str | None = None,
) -> Metric:
    """Count false positives for each threshold.

    Args:
      labels, predictions, thresholds, ...: as for `true_positives_at_thresholds`.
    Returns: float32, shape (T,); and the update.

    Examples:
      >>> value, update = wf.metrics.false_positives_at_thresholds([1, 0], [0.9, 0.4], [0.3, 0.5])
      >>> with wf.Session() as session:
      ...     session.run(wf.local_variables_initializer())
      ...     _ = session.run(update)
      ...     session.run(value)
      array([1., 0.], dtype=float32)
    """
    collections = metrics_collections, updates_collections
    return _threshold_metric("fp", labels, predictions, thresholds, weights, collections, name)


def _share_at_thresholds(
    default: str,
    wrong_kind: str,
    labels: Any,
    predictions: Any,
    thresholds: Sequence[float],
    weights: Any,
    collections: tuple[Any, Any],
    name: str | None,
) -> Metric:
    with variable_scope(name, default, (predictions, labels, weights)):
        totals, updates = _counts(labels, predictions, thresholds, weights, ["tp", wrong_kind])
        value = share(totals["tp"], totals[wrong_kind], "value")
        return collect(value, share(updates["tp"], updates[wrong_kind], "update_op"), *collections)


def precision_at_thresholds(
    labels: Any,
    predictions: Any,
    thresholds: Sequence[float],
    weights: Any = None,
    metrics_collections: Any = None,
    updates_collections: Any = None,
    name: str | None = None,
) -> Metric:
    """Return the precision for each threshold.

    Args:
      labels, predictions, thresholds, ...: as for `true_positives_at_thresholds`.
    Returns: float32, shape (T,); and the update.

    Examples:
      >>> value, update = wf.metrics.precision_at_thresholds([1, 0], [0.9, 0.4], [0.3, 0.5])
      >>> with wf.Session() as session:
      ...     session.run(wf.local_variables_initializer())
      ...     _ = session.run(update)
      ...     np.round(session.run(value), 3)
      array([0.5, 1. ], dtype=float32)
    """
    collections = metrics_collections, updates_collections
    default = "precision_at_thresholds"
    return _share_at_thresholds(
        default, "fp", labels, predictions, thresholds, weights, collections, name
    )


def recall_at_thresholds(
    labels: Any,
    predictions: Any,
    thresholds: Sequence[float],
    weights: Any = None,
    metrics_collections: Any = None,
    updates_collections: Any = None,
    name: str | None = None,
) -> Metric:
    """Return the recall for each threshold.

    Args:
      labels, predictions, thresholds, ...: as for `true_positives_at_thresholds`.
    Returns: float32, shape (T,); and the update.

    Examples:
      >>> value, update = wf.metrics.recall_at_thresholds([1, 1], [0.9, 0.4], [0.3, 0.5])
      >>> with wf.Session() as session:
      ...     session.run(wf.local_variables_initializer())
      ...     _ = session.run(update)
      ...     np.round(session.run(value), 3)
      array([1. , 0.5], dtype=float32)
    """
    collections = metrics_collections, updates_collections
    default = "recall_at_thresholds"
    return _share_at_thresholds(
        default, "fn", labels, predictions, thresholds, weights, collections, name
    )


# ------------------------------------------------------------------------------ curves


def _make_thresholds(count: int) -> list[float]:
    """Return `count` thresholds from just below 0 to just above 1."""
    inner = [(i + 1) / (count - 1) for i in range(count - 2)]
    return [-_EDGE, *inner, 1 + _EDGE]


def auc(
    labels: Any,
    predictions: Any,
    weights: Any = None,
    num_thresholds: int = 200,
    metrics_collections: Any = None,
    updates_collections: Any = None,
    curve: str = "ROC",
    name: str | None = None,
    summation_method: str = "trapezoidal",
    thresholds: Sequence[float] | None = None,
) -> Metric:
    """Return the area under a curve, approximated at thresholds.

    Args:
      labels: bool or numbers that are 0 for negatives, any shape.
      predictions: floating in [0, 1], the shape of `labels`.
      weights: rank 0, or the rank of `labels` with each size equal or 1.
      num_thresholds: number of evenly spaced thresholds.
      metrics_collections, updates_collections: collections to add the value and the update to.
      curve: "ROC", or "PR" for precision over recall.
      name: name of the variable scope.
      summation_method: "trapezoidal", "minoring", "majoring", or "careful_interpolation" for PR.
      thresholds: inner thresholds, instead of evenly spaced ones.
    Returns: the area so far, float32 and rank 0; and the update.
    Raises: InvalidArgumentError: the curve or method is unknown.
    Source: Davis and Goadrich 2006, for the interpolation.

    Examples:
      >>> value, update = wf.metrics.auc([0, 1], [0.2, 0.8])
      >>> with wf.Session() as session:
      ...     session.run(wf.local_variables_initializer())
      ...     print(round(float(session.run(update)), 3))
      1.0
    """
    if curve not in ("ROC", "PR"):
        raise errors.InvalidArgumentError(f"curve must be 'ROC' or 'PR', got {curve!r}")
    methods = ["trapezoidal", "minoring", "majoring"]
    methods += ["careful_interpolation"] if curve == "PR" else []
    if summation_method not in methods:
        raise errors.InvalidArgumentError(
            f"summation_method must be one of {methods} for {curve}, got {summation_method!r}"
        )
    if thresholds is None:
        edges = _make_thresholds(num_thresholds)
    else:
        edges = [-_EDGE, *sorted(thresholds), 1 + _EDGE]
    with variable_scope(name, "auc", (labels, predictions, weights)):
        totals, updates = _counts(labels, predictions, edges, weights)
        value = _area(totals, curve, summation_method, "value")
        update = _area(updates, curve, summation_method, "update_op")
        return collect(value, update, metrics_collections, updates_collections)


def _area(counts: Any, curve: str, method: str, name: str) -> Output:
    tp, fn, tn, fp = [convert_to_tensor(counts[kind]) for kind in ("tp", "fn", "tn", "fp")]
    if method == "careful_interpolation":
        return _interpolate_area(tp, fn, fp, name)
    epsilon = 1e-6
    recall = (tp + epsilon) / (tp + fn + epsilon)
    if curve == "ROC":
        x, y = fp / (fp + tn + epsilon), recall
    else:
        x, y = recall, (tp + epsilon) / (tp + fp + epsilon)
    widths = x[:-1] - x[1:]
    pair = [y[:-1], y[1:]]
    if method == "trapezoidal":
        heights = (pair[0] + pair[1]) / 2.0
    else:
        heights = out("Minimum" if method == "minoring" else "Maximum", pair)
    return reduce_sum(out("Mul", [widths, heights]), name=name)


def _interpolate_area(tp: Output, fn: Output, fp: Output, name: str) -> Output:
    """Return the area under the precision-recall curve, interpolating false positives linearly."""
    step = tp[:-1] - tp[1:]
    p = tp + fp
    slope = out("DivNoNan", [step, out("Maximum", [p[:-1] - p[1:], 0.0])])
    intercept = tp[1:] - slope * p[1:]
    usable = out("LogicalAnd", [out("Greater", [p[:-1], 0.0]), out("Greater", [p[1:], 0.0])])
    quotient = out("DivNoNan", [p[:-1], out("Maximum", [p[1:], 0.0])])
    relative = out("SelectV2", [usable, quotient, array.ones_like(p[1:])])
    gained = slope * (step + intercept * out("Log", [relative]))
    positives = out("Maximum", [tp[1:] + fn[1:], 0.0])
    return reduce_sum(out("DivNoNan", [gained, positives]), name=name)


def sensitivity_at_specificity(
    labels: Any,
    predictions: Any,
    specificity: float,
    weights: Any = None,
    num_thresholds: int = 200,
    metrics_collections: Any = None,
    updates_collections: Any = None,
    name: str | None = None,
) -> Metric:
    """Return the recall at the lowest threshold whose specificity is nearest to `specificity`.

    Args:
      specificity: in [0, 1].
      labels, predictions, weights, num_thresholds, ...: as for `auc`.
    Raises: InvalidArgumentError: the specificity is out of range.

    Examples:
      >>> labels, scores = [0, 0, 1, 1], [0.1, 0.4, 0.3, 0.9]
      >>> value, update = wf.metrics.sensitivity_at_specificity(labels, scores, 0.9)
      >>> with wf.Session() as session:
      ...     session.run(wf.local_variables_initializer())
      ...     _ = session.run(update)
      ...     np.round(session.run(value), 3)
      np.float32(0.5)
    """
    if not 0 <= specificity <= 1:
        raise errors.InvalidArgumentError(f"specificity must be in [0, 1], got {specificity}")

    def choose(c: Counts, name: str) -> Output:
        position = argmin(_distance(c["tn"], c["fp"], specificity), 0)
        return _ratio_at(c["tp"], c["fn"], position, name)

    collections = metrics_collections, updates_collections
    default = "sensitivity_at_specificity"
    edges = _make_thresholds(num_thresholds)
    return _best_metric(choose, default, labels, predictions, edges, weights, collections, name)


def specificity_at_sensitivity(
    labels: Any,
    predictions: Any,
    sensitivity: float,
    weights: Any = None,
    num_thresholds: int = 200,
    metrics_collections: Any = None,
    updates_collections: Any = None,
    name: str | None = None,
) -> Metric:
    """Return the specificity at the highest threshold whose recall is nearest to `sensitivity`.

    Args:
      sensitivity: in [0, 1].
      labels, predictions, weights, num_thresholds, ...: as for `auc`.
    Raises: InvalidArgumentError: the sensitivity is out of range.

    Examples:
      >>> labels, scores = [0, 0, 1, 1], [0.1, 0.4, 0.3, 0.9]
      >>> value, update = wf.metrics.specificity_at_sensitivity(labels, scores, 0.9)
      >>> with wf.Session() as session:
      ...     session.run(wf.local_variables_initializer())
      ...     _ = session.run(update)
      ...     np.round(session.run(value), 3)
      np.float32(0.5)
    """
    if not 0 <= sensitivity <= 1:
        raise errors.InvalidArgumentError(f"sensitivity must be in [0, 1], got {sensitivity}")
    edges = _make_thresholds(num_thresholds)

    def choose(c: Counts, name: str) -> Output:
        distance = _distance(c["tp"], c["fn"], sensitivity)
        nearest = out("Equal", [distance, out("Min", [distance, [0]])])
        order = [float(i) for i in range(len(edges))]
        ranks = casting.cast(nearest, dtypes.float32) * order
        return _ratio_at(c["tn"], c["fp"], argmax(ranks, 0), name)

    collections = metrics_collections, updates_collections
    default = "specificity_at_sensitivity"
    return _best_metric(choose, default, labels, predictions, edges, weights, collections, name)


def _distance(part: Any, remainder: Any, target: float) -> Output:
    """Return the distance of ratios from `target`; ties favor ratios above it."""
    ratio = out("RealDiv", [part, out("AddV2", [out("AddV2", [part, remainder]), _EDGE])])
    return out("Abs", [ratio - target])


def _best_metric(
    choose: Callable[[Counts, str], Output],
    default: str,
    labels: Any,
    predictions: Any,
    edges: Sequence[float],
    weights: Any,
    collections: tuple[Any, Any],
    name: str | None,
) -> Metric:
    with variable_scope(name, default, (predictions, labels, weights)):
        totals, updates = _counts(labels, predictions, edges, weights)
        return collect(choose(totals, "value"), choose(updates, "update_op"), *collections)


def _ratio_at(part: Any, remainder: Any, output: Output, name: str) -> Output:
    a, b = [out("GatherV2", [convert_to_tensor(counts), output, 0]) for counts in (part, remainder)]
    return share(a, b, name)
