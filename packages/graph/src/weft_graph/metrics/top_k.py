"""Metrics of the best k predictions, against sets of labels."""

from __future__ import annotations

__all__ = [
    "average_precision_at_k",
    "precision_at_k",
    "precision_at_top_k",
    "recall_at_k",
    "recall_at_top_k",
    "sparse_average_precision_at_k",
    "sparse_precision_at_k",
]

from typing import Any

import numpy as np

from weft_graph.ir.builder import convert_to_tensor, out
from weft_graph.ir.indexed_slices import SparseTensor, is_sparse
from weft_graph.ir.node import Output
from weft_graph.metrics.base import (
    Metric,
    accumulate,
    apply_weights,
    collect,
    metric_variable,
    ratio,
)
from weft_graph.ops import casting, shapes
from weft_graph.ops.reduction import cumsum, reduce_any, reduce_sum
from weft_graph.ops.search import top_k
from weft_graph.ops.sets import set_difference, set_intersection, set_size, set_union
from weft_graph.ops.sparse import sparse_tensor_to_dense
from weft_graph.ops.sparse_shapes import expand_dims
from weft_graph.variables.scope import variable_scope
from weft_tensor import arguments, dtypes, errors

Labels = Output | SparseTensor


def _label_sets(labels: Any, predictions: Output) -> Labels:
    """Return labels with an axis for the labels of each example, as predictions have.

    Raises: InvalidArgumentError: the ranks are unknown or do not match.
    """
    label_sets: Labels
    if is_sparse(labels):
        sparse = SparseTensor.from_value(labels)
        label_sets = sparse.with_values(casting.cast(sparse.values, dtypes.int64))
        (rank,) = sparse.dense_shape.dims or (None,)
    else:
        label_sets = casting.cast(convert_to_tensor(labels), dtypes.int64)
        rank = None if label_sets.dims is None else len(label_sets.dims)
    if rank is None or predictions.dims is None:
        raise errors.InvalidArgumentError(
            "labels and predictions must have known ranks, got shapes "
            f"{label_sets.shape} and {predictions.shape}"
        )
    missing = len(predictions.dims) - rank
    if missing == 1:
        return (
            expand_dims(label_sets)
            if isinstance(label_sets, SparseTensor)
            else shapes.expand_dims(label_sets, -1)
        )
    if missing:
        raise errors.InvalidArgumentError(
            f"labels must have the rank of predictions, {len(predictions.dims)}, or one less, got "
            f"rank {rank}"
        )
    return label_sets


def _select_class(ids: Labels, class_id: int | None) -> Labels:
    """Return the ids of one class, or all ids if it is None."""
    if class_id is None:
        return ids
    if isinstance(ids, SparseTensor):
        matches = out("Where", [out("Equal", [ids.values, class_id])])
        rows = out("Squeeze", [matches], {"squeeze_dims": [1]})
        places = out("GatherV2", [ids.indices, rows, 0])
        return SparseTensor(places, out("GatherV2", [ids.values, rows, 0]), ids.dense_shape)
    places = out("Where", [out("Equal", [ids, class_id])])
    return SparseTensor(
        places, out("GatherNd", [ids, places]), shapes.shape(ids, out_type=dtypes.int64)
    )


def _size(sets: SparseTensor) -> Output:
    size: Output = casting.cast(set_size(sets), dtypes.float64)
    return size


def _suffix(k: int | None, class_id: int | None) -> str:
    best = "_at_k" if k is None else f"_at_{k}"
    return best if class_id is None else f"{best}_class{class_id}"


def _top_k_metric(
    kind: str,
    labels: Any,
    predictions_idx: Any,
    k: int | None,
    class_id: int | None,
    weights: Any,
    collections: tuple[Any, Any],
    name: str | None,
) -> Metric:
    """Return true positives and false positives (or false negatives) among the top k."""
    suffix = _suffix(k, class_id)
    wrong_kind = "false_positive" if kind == "precision" else "false_negative"
    with variable_scope(name, kind + suffix, (predictions_idx, labels, weights)):
        best = casting.cast(convert_to_tensor(predictions_idx), dtypes.int64)
        true_ids = _select_class(_label_sets(labels, best), class_id)
        top_ids = _select_class(best, class_id)
        right = _size(set_intersection(top_ids, true_ids))
        size = _size(set_difference(top_ids, true_ids, aminusb=kind == "precision"))
        streams = []
        for kind_name, values in (("true_positive", right), (wrong_kind, size)):
            variable = metric_variable([], dtypes.float64, name=f"{kind_name}{suffix}")
            total = reduce_sum(apply_weights(values, weights)[0])
            streams.append((convert_to_tensor(variable), accumulate(variable, total)))
        value = _share_or_nan(streams[0][0], streams[1][0])
        update = _share_or_nan(streams[0][1], streams[1][1])
        return collect(value, update, *collections)


def _share_or_nan(part: Output, remainder: Output) -> Output:
    """Return part / (part + rest): NaN without data, unlike `precision` and `recall`."""
    return out("RealDiv", [part, out("AddV2", [part, remainder])])


def _best(predictions: Any, k: int) -> Output:
    indices: Output = top_k(predictions, arguments.check_integer(k, "k", 1)).indices
    return indices


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
    """Return the fraction of labels that are among the k best predictions.

    Args:
      labels: integers, Tensor or SparseTensor, shape (N...,) or (N..., L): the set of classes of
        each example. A label that is not a class of `predictions` is never predicted.
      predictions: floating, shape (N..., C): a score per class.
      k: number of predictions to consider.
      class_id: count this class only.
      weights: rank 0 or shape (N...).
      metrics_collections, updates_collections: collections to add the value and the update to.
      name: name of the variable scope.
    Returns: float64, rank 0, NaN before the first counted label; and the update.
    Raises: InvalidArgumentError: the ranks are unknown or do not match.

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
    best = _best(predictions, k)
    return _top_k_metric("recall", labels, best, k, class_id, weights, places, name)


def recall_at_top_k(
    labels: Any,
    predictions_idx: Any,
    k: int | None = None,
    class_id: int | None = None,
    weights: Any = None,
    metrics_collections: Any = None,
    updates_collections: Any = None,
    name: str | None = None,
) -> Metric:
    """Return `recall_at_k` for predictions that are already the k best classes.

    Args:
      labels, class_id, weights, metrics_collections, updates_collections, name: as for
        `recall_at_k`.
      predictions_idx: integers, shape (N..., k): the predicted classes.
      k: used in names only.
    Returns: float64, rank 0; and the update.
    Raises: InvalidArgumentError: the ranks are unknown or do not match.

    Examples:
      >>> labels = wf.SparseTensor([[0, 0], [0, 1]], wf.constant([1, 2], wf.int64), [1, 2])
      >>> value, update = wf.metrics.recall_at_top_k(labels, [[1, 5]], k=2)
      >>> with wf.Session() as session:
      ...     session.run(wf.local_variables_initializer())
      ...     session.run(update)
      np.float64(0.5)
    """
    places = metrics_collections, updates_collections
    return _top_k_metric("recall", labels, predictions_idx, k, class_id, weights, places, name)


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
    """Return the fraction of the k best predictions that are labels.

    Args:
      labels, predictions, k, ...: as for `recall_at_k`.
    Returns: float64, rank 0, NaN before the first counted prediction; and the update.
    Raises: InvalidArgumentError: the ranks are unknown or do not match.

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
    best = _best(predictions, k)
    return _top_k_metric("precision", labels, best, k, class_id, weights, places, name)


def precision_at_top_k(
    labels: Any,
    predictions_idx: Any,
    k: int | None = None,
    class_id: int | None = None,
    weights: Any = None,
    metrics_collections: Any = None,
    updates_collections: Any = None,
    name: str | None = None,
) -> Metric:
    """Return `precision_at_k` for predictions that are already the k best classes.

    Args:
      labels, predictions_idx, k, ...: as for `recall_at_top_k`.
    Returns: float64, rank 0; and the update.
    Raises: InvalidArgumentError: the ranks are unknown or do not match.

    Examples:
      >>> labels = wf.SparseTensor([[0, 0]], wf.constant([1], wf.int64), [1, 1])
      >>> value, update = wf.metrics.precision_at_top_k(labels, [[1, 5]], k=2)
      >>> with wf.Session() as session:
      ...     session.run(wf.local_variables_initializer())
      ...     session.run(update)
      np.float64(0.5)
    """
    places = metrics_collections, updates_collections
    return _top_k_metric("precision", labels, predictions_idx, k, class_id, weights, places, name)


def sparse_precision_at_k(
    labels: Any,
    predictions: Any,
    k: int,
    class_id: int | None = None,
    weights: Any = None,
    metrics_collections: Any = None,
    updates_collections: Any = None,
    name: str | None = None,
) -> Metric:
    """Deprecated name of `precision_at_k`.

    Args:
      labels, predictions, k, ...: as for `recall_at_k`.
    Returns: float64, rank 0; and the update.

    Examples:
      >>> labels = wf.SparseTensor([[0, 0]], wf.constant([1], wf.int64), [1, 1])
      >>> value, update = wf.metrics.sparse_precision_at_k(labels, [[0.1, 0.6, 0.3]], k=2)
      >>> with wf.Session() as session:
      ...     session.run(wf.local_variables_initializer())
      ...     session.run(update)
      np.float64(0.5)
    """
    places = metrics_collections, updates_collections
    best = _best(predictions, k)
    return _top_k_metric("precision", labels, best, k, class_id, weights, places, name)


# ------------------------------------------------------------------------ average precision


def _average_precision(labels: Labels, best: Output, classes: Output) -> Output:
    """Return each example's average precision: the mean of the precision at each of its labels.

    Dense labels that are not a class are ignored, and repeated ones count repeatedly.
    """
    unique_labels = set_union(labels, labels)  # without repetitions, next to each other
    table = sparse_tensor_to_dense(unique_labels, np.int64(np.iinfo(np.int64).min))
    pairs = out("Equal", [shapes.expand_dims(best, -1), shapes.expand_dims(table, -2)])
    hits = casting.cast(reduce_any(pairs, -1), dtypes.float64)
    k = shapes.shape(best)[-1]
    places = casting.cast(out("Range", [1, k + 1, 1]), dtypes.float64)
    precision = out("RealDiv", [cumsum(hits, -1), places])
    total = reduce_sum(out("Mul", [precision, hits]), -1)
    if isinstance(labels, SparseTensor):
        count = set_size(unique_labels)
    else:
        is_class = out(
            "LogicalAnd", [out("GreaterEqual", [labels, 0]), out("Less", [labels, classes])]
        )
        count = reduce_sum(casting.cast(is_class, dtypes.int32), -1)
    relevant = out("Minimum", [count, k])
    return out("RealDiv", [total, casting.cast(relevant, dtypes.float64)])


def average_precision_at_k(
    labels: Any,
    predictions: Any,
    k: int,
    weights: Any = None,
    metrics_collections: Any = None,
    updates_collections: Any = None,
    name: str | None = None,
) -> Metric:
    """Return the mean over examples of their average precision among the k best predictions.

    Args:
      labels: integers, Tensor or SparseTensor, shape (N...,) or (N..., L), as for `recall_at_k`.
      predictions: floating, shape (N..., C): a score per class.
      k: number of predictions to consider.
      weights: rank 0 or shape (N...).
      metrics_collections, updates_collections: collections to add the value and the update to.
      name: name of the variable scope.
    Returns: float64, rank 0: 0 without examples, NaN once an example has no labels; and the
      update.
    Raises: InvalidArgumentError: the ranks are unknown or do not match.

    Examples:
      >>> scores = [[0.1, 0.6, 0.3]]
      >>> value, update = wf.metrics.average_precision_at_k(wf.constant([[2]], wf.int64), scores, 2)
      >>> with wf.Session() as session:
      ...     session.run(wf.local_variables_initializer())
      ...     session.run(update)
      np.float64(0.5)
    """
    suffix = _suffix(k, None)
    with variable_scope(name, f"average_precision{suffix}", (predictions, labels, weights)):
        best = casting.cast(_best(predictions, k), dtypes.int64)
        classes = shapes.shape(predictions, out_type=dtypes.int64)[-1]
        averages = _average_precision(_label_sets(labels, best), best, classes)
        products, full = apply_weights(averages, weights)
        count = shapes.size(averages) if full is None else reduce_sum(full)
        streams = []
        for label, total in (("max", casting.cast(count, dtypes.float64)), ("total", products)):
            variable = metric_variable([], dtypes.float64, name=label)
            streams.append((convert_to_tensor(variable), accumulate(variable, reduce_sum(total))))
        value = ratio(streams[1][0], streams[0][0], "mean")
        update = ratio(streams[1][1], streams[0][1], "update")
        return collect(value, update, metrics_collections, updates_collections)


def sparse_average_precision_at_k(
    labels: Any,
    predictions: Any,
    k: int,
    weights: Any = None,
    metrics_collections: Any = None,
    updates_collections: Any = None,
    name: str | None = None,
) -> Metric:
    """Deprecated name of `average_precision_at_k`.

    Args:
      labels, predictions, k, ...: as for `average_precision_at_k`.
    Returns: float64, rank 0; and the update.

    Examples:
      >>> labels = wf.SparseTensor([[0, 0]], wf.constant([2], wf.int64), [1, 1])
      >>> value, update = wf.metrics.sparse_average_precision_at_k(labels, [[0.1, 0.6, 0.3]], 2)
      >>> with wf.Session() as session:
      ...     session.run(wf.local_variables_initializer())
      ...     session.run(update)
      np.float64(0.5)
    """
    places = metrics_collections, updates_collections
    return average_precision_at_k(labels, predictions, k, weights, *places, name)
