"""Metrics over classes: confusion matrices and metrics derived from them."""

from __future__ import annotations

__all__ = ["mean_iou", "mean_per_class_accuracy"]

from typing import Any

from weft_graph.ir.builder import convert_to_tensor, out
from weft_graph.ir.default_graph import get_default_graph
from weft_graph.ir.node import Output
from weft_graph.metrics.base import (
    Metric,
    accumulate,
    collect,
    metric_variable,
    ratio,
)
from weft_graph.nn.weights import match_ranks
from weft_graph.ops import array, casting, control, diagonals, shapes
from weft_graph.ops.reduction import reduce_max, reduce_sum
from weft_graph.variables.scope import variable_scope
from weft_tensor import dtypes


def confusion_matrix(
    labels: Any,
    predictions: Any,
    num_classes: Any = None,
    dtype: Any = dtypes.int32,
    name: str | None = None,
    weights: Any = None,
) -> Output:
    """Count how often each class was predicted for each label.

    Args:
      labels, predictions: integers in [0, num_classes), shape (N,) or (N, 1).
      num_classes: one more than the largest value by default.
      dtype: element type of the result.
      weights: weights of the examples, shape (N,); 1 by default.
    Returns: shape (num_classes, num_classes): rows are labels, columns are predictions.
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
        labels, predictions = _check_labels(labels, predictions, count)
        kind = dtypes.as_dtype(dtype)
        if weights is None:
            values = array.ones_like(predictions, dtype=kind)
        else:
            values = casting.cast(convert_to_tensor(weights), kind)
        indices = out("AddV2", [out("Mul", [labels, count]), predictions])
        flat = out("UnsortedSegmentSum", [values, indices, count * count])
        result = shapes.reshape(flat, out("Pack", [[count, count]]))
        if isinstance(num_classes, int):
            result.set_shape([num_classes, num_classes])
        return result


def _check_labels(labels: Output, predictions: Output, count: Output) -> tuple[Output, Output]:
    """Return labels and predictions after assertions at run time that they are in range."""
    checked = []
    for name, value in (("labels", labels), ("predictions", predictions)):
        in_range = out("LogicalAnd", [out("GreaterEqual", [value, 0]), out("Less", [value, count])])
        text = f"{name} must be in [0, num_classes); they and num_classes are"
        good = out("All", [in_range, list(range(len(value.dims or (None,))))])
        check = control.Assert(good, [text, value, count])
        with get_default_graph().control_dependencies([check]):
            checked.append(out("Identity", [value]))
    return checked[0], checked[1]


def _update_confusion_matrix(
    labels: Any, predictions: Any, num_classes: int, weights: Any
) -> tuple[Output, Output]:
    """Return the confusion matrix so far, float64, and its update."""
    total = metric_variable(
        [num_classes, num_classes], dtypes.float64, name="total_confusion_matrix"
    )
    truth, guess = [shapes.reshape(convert_to_tensor(v), [-1]) for v in (labels, predictions)]
    factor = None if weights is None else shapes.reshape(convert_to_tensor(weights), [-1])
    batch_matrix = confusion_matrix(truth, guess, num_classes, dtypes.float64, weights=factor)
    return convert_to_tensor(total), accumulate(total, batch_matrix)


def mean_iou(
    labels: Any,
    predictions: Any,
    num_classes: int,
    weights: Any = None,
    metrics_collections: Any = None,
    updates_collections: Any = None,
    name: str | None = None,
) -> Metric:
    """Return the mean intersection over union: TP / (TP + FP + FN), averaged over classes.

    Args:
      labels, predictions: integers in [0, num_classes), the same shape.
      num_classes: number of classes.
      weights: the shape of `labels`.
      metrics_collections, updates_collections: collections to add the value and the update to.
      name: name of the variable scope.
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
        matrix, update = _update_confusion_matrix(labels, predictions, num_classes, weights)
        rows, columns, num_correct = _margins(matrix)
        union = rows + columns - num_correct
        present = casting.cast(out("NotEqual", [union, 0.0]), dtypes.float32)
        shares = ratio(num_correct, union, "intersection_over_union")
        value = ratio(reduce_sum(shares), reduce_sum(present), "mean_iou")
        return collect(value, update, metrics_collections, updates_collections)


def _margins(matrix: Output) -> tuple[Output, Output, Output]:
    """Return the row sums, column sums and the diagonal, in float32."""
    sums = [reduce_sum(matrix, 1), reduce_sum(matrix, 0), diagonals.diag_part(matrix)]
    rows, columns, num_correct = [casting.cast(total, dtypes.float32) for total in sums]
    return rows, columns, num_correct


def mean_per_class_accuracy(
    labels: Any,
    predictions: Any,
    num_classes: int,
    weights: Any = None,
    metrics_collections: Any = None,
    updates_collections: Any = None,
    name: str | None = None,
) -> Metric:
    """Return the mean over classes of the fraction of correct predictions.

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
        totals = array.ones_like(labels, dtype=dtypes.float32)
        num_correct = casting.cast(out("Equal", [labels, predictions]), dtypes.float32)
        if weights is not None:
            factor = shapes.reshape(casting.cast(convert_to_tensor(weights), dtypes.float32), [-1])
            num_correct, totals = out("Mul", [num_correct, factor]), out("Mul", [totals, factor])
        counts = out("UnsortedSegmentSum", [totals, labels, num_classes])
        hits = out("UnsortedSegmentSum", [num_correct, labels, num_classes])
        new_count, new_total = accumulate(count, counts), accumulate(total, hits)
        shares = ratio(total, count, "per_class_accuracy")
        value = out("Mean", [shares, [0]], name="mean_accuracy")
        update = ratio(new_total, new_count, "update_op")
        return collect(value, update, metrics_collections, updates_collections)
