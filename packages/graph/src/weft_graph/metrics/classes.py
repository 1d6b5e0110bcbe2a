"""Metrics over classes: confusion matrices, and the best k predictions."""

from __future__ import annotations

__all__ = ["mean_iou", "mean_per_class_accuracy", "precision_at_k", "recall_at_k"]

from typing import Any

import numpy as np

from weft_graph.ir.builder import convert_to_tensor, out
from weft_graph.ir.default_graph import get_default_graph
from weft_graph.ir.node import Output
from weft_graph.metrics.base import (
    Metric,
    accumulate,
    collect,
    metric_variable,
    ratio,
    weighted,
)
from weft_graph.metrics.counts import share
from weft_graph.nn.weights import match_ranks
from weft_graph.ops import array, casting, control, diagonals, shapes
from weft_graph.ops.reduction import reduce_any, reduce_max, reduce_sum
from weft_graph.ops.search import top_k
from weft_graph.variables.scope import variable_scope
from weft_tensor import dtypes, errors


def confusion_matrix(
    labels: Any,
    predictions: Any,
    num_classes: Any = None,
    dtype: Any = dtypes.int32,
    name: str | None = None,
    weights: Any = None,
) -> Output:
    """How often each class was taken for each other.

    Args:
      labels, predictions: integers in [0, num_classes), shape (N,) or (N, 1).
      num_classes: one more than the largest value by default.
      dtype: of the result.
      weights: what an example counts for, shape (N,); 1 by default.
    Returns: shape (num_classes, num_classes): row of the label, column of the prediction.
    Raises: InvalidArgumentError: at run time, a class out of range.

    Examples:
      >>> wf.Session().run(wf.confusion_matrix([0, 1, 1], [0, 1, 0]))
      array([[1, 0],
             [1, 1]], dtype=int32)
    """
    with get_default_graph().name_scope(name or "confusion_matrix"):
        labels, predictions = convert_to_tensor(labels), convert_to_tensor(predictions)
        labels, predictions, _ = match_ranks(labels, predictions, None)
        labels = casting.cast(labels, dtypes.int64)
        predictions = casting.cast(predictions, dtypes.int64)
        if num_classes is None:
            largest = out("Maximum", [reduce_max(predictions), reduce_max(labels)])
            num_classes = largest + 1
        count = casting.cast(convert_to_tensor(num_classes), dtypes.int64)
        labels, predictions = _checked(labels, predictions, count)
        kind = dtypes.as_dtype(dtype)
        if weights is None:
            values = array.ones_like(predictions, dtype=kind)
        else:
            values = casting.cast(convert_to_tensor(weights), kind)
        places = out("AddV2", [out("Mul", [labels, count]), predictions])
        flat = out("UnsortedSegmentSum", [values, places, count * count])
        result = shapes.reshape(flat, out("Pack", [[count, count]]))
        if isinstance(num_classes, int):
            result.set_shape([num_classes, num_classes])
        return result


def _checked(labels: Output, predictions: Output, count: Output) -> tuple[Output, Output]:
    """Both, after assertions at run time that they are in range."""
    found = []
    for name, value in (("labels", labels), ("predictions", predictions)):
        inside = out("LogicalAnd", [out("GreaterEqual", [value, 0]), out("Less", [value, count])])
        text = f"{name} must be in [0, num_classes); they and num_classes are"
        good = out("All", [inside, list(range(len(value.dims or (None,))))])
        check = control.Assert(good, [text, value, count])
        with get_default_graph().control_dependencies([check]):
            found.append(out("Identity", [value]))
    return found[0], found[1]


def _streamed_matrix(
    labels: Any, predictions: Any, num_classes: int, weights: Any
) -> tuple[Output, Output]:
    """The confusion matrix so far, float64, and its update."""
    total = metric_variable(
        [num_classes, num_classes], dtypes.float64, name="total_confusion_matrix"
    )
    truth, guess = [shapes.reshape(convert_to_tensor(v), [-1]) for v in (labels, predictions)]
    factor = None if weights is None else shapes.reshape(convert_to_tensor(weights), [-1])
    added = confusion_matrix(truth, guess, num_classes, dtypes.float64, weights=factor)
    return convert_to_tensor(total), accumulate(total, added)


def mean_iou(
    labels: Any,
    predictions: Any,
    num_classes: int,
    weights: Any = None,
    metrics_collections: Any = None,
    updates_collections: Any = None,
    name: str | None = None,
) -> Metric:
    """The mean over classes of true positives / (true and false positives and false negatives).

    Args:
      labels, predictions: integers in [0, num_classes), the same shape.
      num_classes: how many classes there are.
      weights: the shape of `labels`.
      metrics_collections, updates_collections: where value and update are listed.
      name: of the variable scope.
    Returns: the mean over the classes that occur, float32 and rank 0; and an update that returns
      the confusion matrix.

    Examples:
      >>> value, update = wf.metrics.mean_iou([0, 1, 1], [0, 1, 0], 2)
      >>> with wf.Session() as session:
      ...     session.run(wf.local_variables_initializer())
      ...     _ = session.run(update)
      ...     np.round(session.run(value), 3)
      np.float32(0.5)
    """
    with variable_scope(name, "mean_iou", (predictions, labels, weights)):
        matrix, update = _streamed_matrix(labels, predictions, num_classes, weights)
        rows, columns, right = _margins(matrix)
        union = rows + columns - right
        present = casting.cast(out("NotEqual", [union, 0.0]), dtypes.float32)
        shares = ratio(right, union, "intersection_over_union")
        value = ratio(reduce_sum(shares), reduce_sum(present), "mean_iou")
        return collect(value, update, metrics_collections, updates_collections)


def _margins(matrix: Output) -> tuple[Output, Output, Output]:
    """Row sums, column sums and the diagonal, in float32."""
    sums = [reduce_sum(matrix, 1), reduce_sum(matrix, 0), diagonals.diag_part(matrix)]
    rows, columns, right = [casting.cast(each, dtypes.float32) for each in sums]
    return rows, columns, right


def mean_per_class_accuracy(
    labels: Any,
    predictions: Any,
    num_classes: int,
    weights: Any = None,
    metrics_collections: Any = None,
    updates_collections: Any = None,
    name: str | None = None,
) -> Metric:
    """The mean over classes of how often they are recognised.

    Args:
      labels, predictions, num_classes, ...: as for `mean_iou`.
    Returns: float32, rank 0; and the update, which returns the accuracy of each class.

    Examples:
      >>> value, update = wf.metrics.mean_per_class_accuracy([0, 1, 1], [0, 1, 0], 2)
      >>> with wf.Session() as session:
      ...     session.run(wf.local_variables_initializer())
      ...     _ = session.run(update)
      ...     np.round(session.run(value), 3)
      np.float32(0.75)
    """
    with variable_scope(name, "mean_accuracy", (predictions, labels, weights)):
        labels = shapes.reshape(casting.cast(convert_to_tensor(labels), dtypes.int64), [-1])
        predictions = casting.cast(convert_to_tensor(predictions), dtypes.int64)
        predictions = shapes.reshape(predictions, [-1])
        total = metric_variable([num_classes], dtypes.float32, name="total")
        count = metric_variable([num_classes], dtypes.float32, name="count")
        ones = array.ones_like(labels, dtype=dtypes.float32)
        right = casting.cast(out("Equal", [labels, predictions]), dtypes.float32)
        if weights is not None:
            factor = shapes.reshape(casting.cast(convert_to_tensor(weights), dtypes.float32), [-1])
            right, ones = out("Mul", [right, factor]), out("Mul", [ones, factor])
        counts = out("UnsortedSegmentSum", [ones, labels, num_classes])
        hits = out("UnsortedSegmentSum", [right, labels, num_classes])
        new_count, new_total = accumulate(count, counts), accumulate(total, hits)
        shares = ratio(total, count, "per_class_accuracy")
        value = out("Mean", [shares, [0]], name="mean_accuracy")
        update = ratio(new_total, new_count, "update_op")
        return collect(value, update, metrics_collections, updates_collections)


# -------------------------------------------------------------------------- the best k


def _hits(
    labels: Any, predictions: Any, k: int, class_id: int | None
) -> tuple[Output, Output, Output]:
    """Per example: predicted labels, other predictions, other labels; counts in float32."""
    labels = casting.cast(convert_to_tensor(labels), dtypes.int64)
    best = casting.cast(top_k(predictions, k).indices, dtypes.int64)
    if labels.dims is None or best.dims is None:
        raise errors.InvalidArgumentError("labels and predictions must have known ranks")
    if len(labels.dims) == len(best.dims) - 1:
        labels = shapes.expand_dims(labels, -1)
    size = labels.dims[-1] if labels.dims else None
    if size is None:
        raise errors.InvalidArgumentError("the number of labels per example must be known")
    equal = out("Equal", [shapes.expand_dims(best, -1), shapes.expand_dims(labels, -2)])
    found = reduce_any(equal, -1)
    first = _first_of_equal(labels, size)
    if class_id is not None:
        found = out("LogicalAnd", [found, out("Equal", [best, class_id])])
        first = out("LogicalAnd", [first, out("Equal", [labels, class_id])])
        chosen = out("Equal", [best, class_id])
    else:
        chosen = out("GreaterEqual", [best, 0])
    right, guesses, wanted = [
        reduce_sum(casting.cast(each, dtypes.float32), -1) for each in (found, chosen, first)
    ]
    return right, guesses - right, wanted - right


def _first_of_equal(labels: Output, size: int) -> Output:
    """Which labels of an example occur for the first time in it."""
    same = out("Equal", [shapes.expand_dims(labels, -1), shapes.expand_dims(labels, -2)])
    earlier = np.tri(size, k=-1, dtype=np.bool_)
    repeated = reduce_any(out("LogicalAnd", [same, earlier]), -1)
    return out("LogicalNot", [repeated])


def _at_k(
    default: str,
    other: str,
    labels: Any,
    predictions: Any,
    k: int,
    class_id: int | None,
    weights: Any,
    collections: tuple[Any, Any],
    name: str | None,
) -> Metric:
    suffix = f"_at_{k}" if class_id is None else f"_at_{k}_class{class_id}"
    with variable_scope(name, default + suffix, (predictions, labels, weights)):
        right, extra, missed = _hits(labels, predictions, k, class_id)
        wrong = extra if other == "false_positive" else missed
        streams = []
        for kind, values in (("true_positive", right), (other, wrong)):
            variable = metric_variable([], dtypes.float64, name=f"{kind}{suffix}")
            values, _ = weighted(values, weights)
            total = reduce_sum(casting.cast(values, dtypes.float64))
            streams.append((convert_to_tensor(variable), accumulate(variable, total)))
        value = share(streams[0][0], streams[1][0])
        update = share(streams[0][1], streams[1][1])
        return collect(value, update, *collections)


def recall_at_k(
    labels: Any,
    predictions: Any,
    k: int,
    class_id: int | None = None,
    weights: Any = None,
    metrics_collections: Any = None,
    updates_collections: Any = None,
    name: str | None = None,
) -> Metric:
    """The fraction of labels that are among the k best predictions.

    Args:
      labels: integers, shape (N,) or (N, L): the classes of each example. What is no class of
        `predictions` is one that is never predicted.
      predictions: floating, shape (N, C): a score per class.
      k: how many predictions count.
      class_id: count this class only.
      weights: rank 0 or shape (N,).
      metrics_collections, updates_collections: where value and update are listed.
      name: of the variable scope.
    Returns: float64, rank 0; and the update.
    Raises: InvalidArgumentError: the ranks or the number of labels are not known.

    Examples:
      >>> scores = [[0.1, 0.6, 0.3], [0.5, 0.4, 0.1]]
      >>> value, update = wf.metrics.recall_at_k(wf.constant([[1], [2]], wf.int64), scores, k=1)
      >>> with wf.Session() as session:
      ...     session.run(wf.local_variables_initializer())
      ...     _ = session.run(update)
      ...     session.run(value)
      np.float64(0.5)
    """
    places = metrics_collections, updates_collections
    other = "false_negative"
    return _at_k("recall", other, labels, predictions, k, class_id, weights, places, name)


def precision_at_k(
    labels: Any,
    predictions: Any,
    k: int,
    class_id: int | None = None,
    weights: Any = None,
    metrics_collections: Any = None,
    updates_collections: Any = None,
    name: str | None = None,
) -> Metric:
    """The fraction of the k best predictions that are labels.

    Args:
      labels, predictions, k, ...: as for `recall_at_k`.
    Returns: float64, rank 0; and the update.
    Raises: InvalidArgumentError: the ranks or the number of labels are not known.

    Examples:
      >>> scores = [[0.1, 0.6, 0.3], [0.5, 0.4, 0.1]]
      >>> value, update = wf.metrics.precision_at_k(wf.constant([[1], [2]], wf.int64), scores, k=2)
      >>> with wf.Session() as session:
      ...     session.run(wf.local_variables_initializer())
      ...     _ = session.run(update)
      ...     session.run(value)
      np.float64(0.25)
    """
    places = metrics_collections, updates_collections
    other = "false_positive"
    return _at_k("precision", other, labels, predictions, k, class_id, weights, places, name)
