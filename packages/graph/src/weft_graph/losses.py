"""Losses with weights, reductions and collections: the public `losses` namespace."""

from __future__ import annotations

__all__ = [
    "Reduction",
    "absolute_difference",
    "add_loss",
    "compute_weighted_loss",
    "cosine_distance",
    "get_losses",
    "get_regularization_loss",
    "get_regularization_losses",
    "get_total_loss",
    "hinge_loss",
    "huber_loss",
    "log_loss",
    "mean_pairwise_squared_error",
    "mean_squared_error",
    "sigmoid_cross_entropy",
    "softmax_cross_entropy",
    "sparse_softmax_cross_entropy",
]

from typing import Any

from weft_graph import nn
from weft_graph.ir.builder import convert_to_tensor, out
from weft_graph.ir.collections_keys import GraphKeys, add_to_collection, get_collection
from weft_graph.ir.default_graph import get_default_graph
from weft_graph.ir.node import Output
from weft_graph.nn.scope import scope as _scope
from weft_graph.nn.weights import broadcast_checks, match_ranks, spread
from weft_graph.ops import array, casting, identity, shapes
from weft_graph.ops.reduction import reduce_sum
from weft_tensor import dtypes, errors
from weft_tensor.arguments import check_number
from weft_tensor.shape import format_dims, merge_dims


class Reduction:
    """Reductions of elementwise losses.

    NONE keeps the losses per element. SUM adds them. SUM_OVER_BATCH_SIZE divides the sum by the
    number of elements, SUM_BY_NONZERO_WEIGHTS by the number of nonzero weights, and MEAN by the sum
    of the weights.

    Examples:
      >>> each = wf.losses.Reduction.NONE
      >>> errors = wf.losses.absolute_difference([1.0, 2.0], [3.0, 2.0], reduction=each)
      >>> wf.Session().run(errors)
      array([2., 0.], dtype=float32)
    """

    NONE = "none"
    SUM = "weighted_sum"
    SUM_OVER_BATCH_SIZE = "weighted_sum_over_batch_size"
    MEAN = "weighted_mean"
    SUM_BY_NONZERO_WEIGHTS = "weighted_sum_by_nonzero_weights"
    SUM_OVER_NONZERO_WEIGHTS = SUM_BY_NONZERO_WEIGHTS

    @classmethod
    def all(cls) -> tuple[str, ...]:
        """Return all reductions."""
        return (
            cls.NONE,
            cls.SUM,
            cls.MEAN,
            cls.SUM_OVER_BATCH_SIZE,
            cls.SUM_OVER_NONZERO_WEIGHTS,
            cls.SUM_BY_NONZERO_WEIGHTS,
        )

    @classmethod
    def validate(cls, key: str) -> None:
        """Raise InvalidArgumentError unless `key` is a reduction."""
        if key not in cls.all():
            raise errors.InvalidArgumentError(
                f"reduction must be one of {sorted(set(cls.all()))}, got {key!r}"
            )


_DEFAULT = Reduction.SUM_BY_NONZERO_WEIGHTS
_LOSSES = GraphKeys.LOSSES

# --------------------------------------------------------------------------- weighting


def compute_weighted_loss(
    losses: Any,
    weights: Any = 1.0,
    scope: str | None = None,
    loss_collection: str | None = _LOSSES,
    reduction: str = _DEFAULT,
) -> Output:
    """Multiply losses by weights and reduce them.

    Args:
      losses: floating, any shape.
      weights: rank 0, or the rank of `losses`; each size is 1 or the size of `losses`.
      loss_collection: collection to add the result to, or None.
      reduction: see `Reduction`.
    Returns: rank 0; for Reduction.NONE, the shape of `losses`. Dtype of `losses`.
    Raises: InvalidArgumentError: the weights do not broadcast, or the reduction is unknown.

    Examples:
      >>> wf.Session().run(wf.losses.compute_weighted_loss([1.0, 3.0], [1.0, 0.0]))
      np.float32(1.0)
    """
    Reduction.validate(reduction)
    with _scope(scope, "weighted_loss"):
        losses = convert_to_tensor(losses)
        kind = losses.dtype.base_dtype
        values = casting.cast(losses, dtypes.float32)
        factor = casting.cast(convert_to_tensor(weights), dtypes.float32)
        with get_default_graph().control_dependencies(broadcast_checks(factor, values)):
            result = out("Mul", [values, factor])
        if reduction != Reduction.NONE:
            result = _reduce_losses(result, values, factor, reduction)
        final: Output = casting.cast(result, kind)
        add_loss(final, loss_collection)
        return final


def _reduce_losses(weighted: Output, values: Output, weights: Output, reduction: str) -> Output:
    total = reduce_sum(weighted)
    if reduction == Reduction.SUM:
        return total
    if reduction == Reduction.SUM_OVER_BATCH_SIZE:
        count = casting.cast(shapes.size(values), dtypes.float32)
    elif reduction == Reduction.MEAN:
        count = reduce_sum(spread(weights, values))
    else:
        present = casting.cast(out("NotEqual", [weights, 0.0]), dtypes.float32)
        count = reduce_sum(spread(present, values))
    return out("DivNoNan", [total, count], name="value")


def add_loss(loss: Any, loss_collection: str | None = _LOSSES) -> None:
    """Add a loss to a collection, unless it is None.

    Args:
      loss: a tensor, usually of rank 0.
      loss_collection: name of the collection.

    Examples:
      >>> wf.losses.add_loss(wf.constant(2.0))
      >>> len(wf.losses.get_losses())
      1
    """
    if loss_collection:
        add_to_collection(loss_collection, loss)


def get_losses(scope: str | None = None, loss_collection: str = _LOSSES) -> list[Any]:
    """Return the losses of a collection, optionally of a scope.

    Args:
      scope: prefix of the names of the losses; None for all.
      loss_collection: name of the collection.

    Examples:
      >>> wf.losses.add_loss(wf.constant(2.0))
      >>> len(wf.losses.get_losses())
      1
    """
    return get_collection(loss_collection, scope)


def get_regularization_losses(scope: str | None = None) -> list[Any]:
    """Return the regularization losses, optionally of a scope.

    Args:
      scope: prefix of the names of the losses; None for all.

    Examples:
      >>> wf.losses.get_regularization_losses()
      []
    """
    return get_collection(GraphKeys.REGULARIZATION_LOSSES, scope)


def get_regularization_loss(
    scope: str | None = None, name: str = "total_regularization_loss"
) -> Output:
    """Return the sum of all regularization losses; 0 if there are none.

    Args:
      scope: prefix of the names of the losses; None for all.
    Returns: rank 0.

    Examples:
      >>> wf.Session().run(wf.losses.get_regularization_loss())
      np.float32(0.0)
    """
    losses = get_regularization_losses(scope)
    if not losses:
        return convert_to_tensor(0.0)
    return out("AddN", [losses], name=name)


def get_total_loss(
    add_regularization_losses: bool = True,
    name: str = "total_loss",
    scope: str | None = None,
) -> Output:
    """Return the sum of all losses.

    Args:
      add_regularization_losses: include regularization losses.
      scope: regular expression; include only losses whose name it matches at the start.
    Returns: floating, rank 0.
    Raises: InvalidArgumentError: there are no losses.

    Examples:
      >>> first = wf.losses.absolute_difference([1.0], [3.0])
      >>> second = wf.losses.absolute_difference([1.0], [2.0])
      >>> wf.Session().run(wf.losses.get_total_loss())
      np.float32(3.0)
    """
    losses = get_losses(scope)
    if add_regularization_losses:
        losses += get_regularization_losses(scope)
    if not losses:
        raise errors.InvalidArgumentError(
            "get_total_loss requires at least one loss in the collection, got none"
        )
    return out("AddN", [losses], name=name)


# --------------------------------------------------------------------------- arguments


def _pair(function: str, labels: Any, predictions: Any) -> tuple[Output, Output]:
    """Convert labels and predictions to float32 outputs of the same shape.

    Raises: InvalidArgumentError: one is missing, or the shapes differ.
    """
    if labels is None or predictions is None:
        raise errors.InvalidArgumentError(
            f"{function} requires labels and predictions, got {labels!r} and {predictions!r}"
        )
    predictions = casting.cast(convert_to_tensor(predictions), dtypes.float32)
    labels = casting.cast(convert_to_tensor(labels), dtypes.float32)
    try:
        merge_dims(labels.dims, predictions.dims)
    except errors.InvalidArgumentError:
        raise errors.InvalidArgumentError(
            f"{function} requires labels and predictions of the same shape, "
            f"got {format_dims(labels.dims)} and {format_dims(predictions.dims)}"
        ) from None
    return labels, predictions


# ------------------------------------------------------------------------------ losses


def absolute_difference(
    labels: Any,
    predictions: Any,
    weights: Any = 1.0,
    scope: str | None = None,
    loss_collection: str | None = _LOSSES,
    reduction: str = _DEFAULT,
) -> Output:
    """Return abs(predictions - labels), weighted and reduced by `compute_weighted_loss`.

    Args:
      labels, predictions: numeric, of the same shape.
      weights, scope, loss_collection, reduction: as for `compute_weighted_loss`.
    Returns: floating, rank 0, unless `reduction` is NONE.
    Raises: InvalidArgumentError: the shapes differ.

    Examples:
      >>> wf.Session().run(wf.losses.absolute_difference([1.0, 2.0], [3.0, 2.0]))
      np.float32(1.0)
    """
    with _scope(scope, "absolute_difference") as full:
        labels, predictions = _pair("absolute_difference", labels, predictions)
        losses = out("Abs", [out("Sub", [predictions, labels])])
        return compute_weighted_loss(losses, weights, full, loss_collection, reduction)


def cosine_distance(
    labels: Any,
    predictions: Any,
    axis: int | None = None,
    weights: Any = 1.0,
    scope: str | None = None,
    loss_collection: str | None = _LOSSES,
    reduction: str = _DEFAULT,
    dim: int | None = None,
) -> Output:
    """Return 1 - sum(labels * predictions) along an axis, for unit vectors.

    Args:
      labels, predictions: floating, the same shape.
      axis: axis of the vectors; also `dim`.
      weights, loss_collection, reduction: as for `compute_weighted_loss`.
    Raises: InvalidArgumentError: the axis is missing, or the shapes differ.

    Examples:
      >>> wf.Session().run(wf.losses.cosine_distance([[1.0, 0.0]], [[0.0, 1.0]], axis=1))
      np.float32(1.0)
    """
    axis = axis if dim is None else dim
    if axis is None:
        raise errors.InvalidArgumentError("cosine_distance requires an axis")
    with _scope(scope, "cosine_distance_loss") as full:
        labels, predictions = _pair("cosine_distance", labels, predictions)
        products = out("Mul", [predictions, labels])
        losses = out("Sub", [1.0, reduce_sum(products, axis, keepdims=True)])
        return compute_weighted_loss(losses, weights, full, loss_collection, reduction)


def hinge_loss(
    labels: Any,
    logits: Any,
    weights: Any = 1.0,
    scope: str | None = None,
    loss_collection: str | None = _LOSSES,
    reduction: str = _DEFAULT,
) -> Output:
    """Return max(1 - z * logits, 0) with z = 2 * labels - 1, weighted and reduced.

    Args:
      labels: 0 or 1, the shape of `logits`.
      logits: floating, any shape.
      weights, loss_collection, reduction: as for `compute_weighted_loss`.

    Examples:
      >>> wf.Session().run(wf.losses.hinge_loss([1.0], [0.25]))
      np.float32(0.75)
    """
    with _scope(scope, "hinge_loss") as full:
        labels, logits = _pair("hinge_loss", labels, logits)
        signs = out("Sub", [out("Mul", [2.0, labels]), array.ones_like(labels)])
        losses = nn.relu(out("Sub", [1.0, out("Mul", [signs, logits])]))
        return compute_weighted_loss(losses, weights, full, loss_collection, reduction)


def huber_loss(
    labels: Any,
    predictions: Any,
    weights: Any = 1.0,
    delta: float = 1.0,
    scope: str | None = None,
    loss_collection: str | None = _LOSSES,
    reduction: str = _DEFAULT,
) -> Output:
    """Return the Huber loss of the error x = predictions - labels.

    It is x ** 2 / 2 where abs(x) <= delta, else delta * abs(x) - delta ** 2 / 2.

    Args:
      labels: floating, any shape.
      predictions: same dtype and shape.
      weights: rank 0, or the rank of `labels` with each size equal to that of `labels` or 1.
      delta: positive, in the unit of the error.
      scope: name scope of the nodes.
      loss_collection: collection to add the loss to, or None.
      reduction: a value of `Reduction`.
    Returns: rank 0, or the shape of `labels` for `Reduction.NONE`.
    Source: Huber 1964.

    Examples:
      >>> wf.Session().run(wf.losses.huber_loss([0.0], [3.0]))
      np.float32(2.5)
    """
    with _scope(scope, "huber_loss") as full:
        labels, predictions = _pair("huber_loss", labels, predictions)
        error = out("Abs", [out("Sub", [predictions, labels])])
        clipped = out("Minimum", [error, delta])
        square = out("Mul", [0.5, out("Mul", [clipped, clipped])])
        linear = out("Mul", [delta, out("Sub", [error, clipped])])
        losses = out("AddV2", [square, linear])
        return compute_weighted_loss(losses, weights, full, loss_collection, reduction)


def log_loss(
    labels: Any,
    predictions: Any,
    weights: Any = 1.0,
    epsilon: float = 1e-7,
    scope: str | None = None,
    loss_collection: str | None = _LOSSES,
    reduction: str = _DEFAULT,
) -> Output:
    """Return -z * log(p + epsilon) - (1 - z) * log(1 - p + epsilon) for probabilities p.

    Args:
      labels: z, floating in [0, 1], any shape.
      predictions: p, same dtype and shape.
      weights: rank 0, or the rank of `labels` with each size equal to that of `labels` or 1.
      epsilon: keeps the logarithm finite.
      scope: name scope of the nodes.
      loss_collection: collection to add the loss to, or None.
      reduction: a value of `Reduction`.
    Returns: rank 0, or the shape of `labels` for `Reduction.NONE`.

    Examples:
      >>> print(round(float(wf.Session().run(wf.losses.log_loss([1.0], [0.5]))), 4))
      0.6931
    """
    with _scope(scope, "log_loss") as full:
        labels, predictions = _pair("log_loss", labels, predictions)
        present = out("Mul", [labels, out("Log", [out("AddV2", [predictions, epsilon])])])
        complement = out("AddV2", [out("Sub", [1.0, predictions]), epsilon])
        absent = out("Mul", [out("Sub", [1.0, labels]), out("Log", [complement])])
        losses = out("Sub", [out("Neg", [present]), absent])
        return compute_weighted_loss(losses, weights, full, loss_collection, reduction)


def mean_squared_error(
    labels: Any,
    predictions: Any,
    weights: Any = 1.0,
    scope: str | None = None,
    loss_collection: str | None = _LOSSES,
    reduction: str = _DEFAULT,
) -> Output:
    """Return (predictions - labels) ** 2, weighted and reduced by `compute_weighted_loss`.

    Args:
      labels, predictions: numeric, of the same shape.
      weights, scope, loss_collection, reduction: as for `compute_weighted_loss`.
    Returns: floating, rank 0, unless `reduction` is NONE.
    Raises: InvalidArgumentError: the shapes differ.

    Examples:
      >>> wf.Session().run(wf.losses.mean_squared_error([1.0, 2.0], [3.0, 2.0]))
      np.float32(2.0)
    """
    with _scope(scope, "mean_squared_error") as full:
        labels, predictions = _pair("mean_squared_error", labels, predictions)
        losses = out("SquaredDifference", [predictions, labels])
        return compute_weighted_loss(losses, weights, full, loss_collection, reduction)


def mean_pairwise_squared_error(
    labels: Any,
    predictions: Any,
    weights: Any = 1.0,
    scope: str | None = None,
    loss_collection: str | None = _LOSSES,
) -> Output:
    """Return the squared difference of pairwise differences of predictions and of labels.

    It is the mean over the pairs of each example, summed over the examples.

    Args:
      labels, predictions: floating, shape (N, ...).
      weights: rank 0, shape (N,), or (N, 1, ...).
      loss_collection: collection to add the result to.
    Returns: rank 0.
    Raises: InvalidArgumentError: the shapes differ.

    Examples:
      >>> wf.Session().run(wf.losses.mean_pairwise_squared_error([[1.0, 2.0]], [[1.0, 4.0]]))
      np.float32(4.0)
    """
    with _scope(scope, "mean_pairwise_squared_error"):
        labels, predictions = _pair("mean_pairwise_squared_error", labels, predictions)
        factor = casting.cast(convert_to_tensor(weights), dtypes.float32)
        difference = out("Sub", [predictions, labels])
        rank = len(difference.dims or ())
        axes = list(range(1, rank))
        if factor.dims is not None and len(factor.dims) == 1 and rank > 1:
            factor = shapes.reshape(factor, [-1] + [1] * (rank - 1))
        all_ones = array.ones_like(difference)
        count = reduce_sum(all_ones, axes, keepdims=True)
        fewer = out("Maximum", [out("Sub", [count, 1.0]), 0.0])
        squares = reduce_sum(out("Square", [difference]), axes, keepdims=True)
        sums = out("Square", [reduce_sum(difference, axes, keepdims=True)])
        first = out("Mul", [2.0, out("DivNoNan", [squares, fewer])])
        second = out("Mul", [2.0, out("DivNoNan", [sums, out("Mul", [count, fewer])])])
        with get_default_graph().control_dependencies(broadcast_checks(factor, first)):
            weighted = out("Mul", [out("Sub", [first, second]), factor])
        result = reduce_sum(weighted, name="value")
        add_loss(result, loss_collection)
        return result


def sigmoid_cross_entropy(
    multi_class_labels: Any,
    logits: Any,
    weights: Any = 1.0,
    label_smoothing: float = 0,
    scope: str | None = None,
    loss_collection: str | None = _LOSSES,
    reduction: str = _DEFAULT,
) -> Output:
    """Return the sigmoid cross entropy, weighted and reduced.

    Args:
      multi_class_labels: in [0, 1], shape (N, C).
      logits: floating, shape (N, C).
      weights, loss_collection, reduction: as for `compute_weighted_loss`.
      label_smoothing: moves labels towards 1/2.
    Raises: InvalidArgumentError: the shapes differ.

    Examples:
      >>> loss = wf.losses.sigmoid_cross_entropy([[1.0]], [[0.0]])
      >>> print(round(float(wf.Session().run(loss)), 4))
      0.6931
    """
    with _scope(scope, "sigmoid_cross_entropy_loss") as full:
        logits = convert_to_tensor(logits)
        kind = logits.dtype.base_dtype
        labels = casting.cast(convert_to_tensor(multi_class_labels), kind)
        if check_number(label_smoothing, "label_smoothing") > 0:
            labels = out(
                "AddV2", [out("Mul", [labels, 1 - label_smoothing]), 0.5 * label_smoothing]
            )
        losses = nn.sigmoid_cross_entropy_with_logits(labels=labels, logits=logits)
        return compute_weighted_loss(losses, weights, full, loss_collection, reduction)


def softmax_cross_entropy(
    onehot_labels: Any,
    logits: Any,
    weights: Any = 1.0,
    label_smoothing: float = 0,
    scope: str | None = None,
    loss_collection: str | None = _LOSSES,
    reduction: str = _DEFAULT,
) -> Output:
    """Return the softmax cross entropy, weighted and reduced; no gradient flows to the labels.

    Args:
      onehot_labels: rows that sum to 1, shape (N, C).
      logits: floating, shape (N, C).
      weights: rank 0 or shape (N,).
      label_smoothing: moves labels towards 1/C.
      loss_collection, reduction: as for `compute_weighted_loss`.
    Raises: InvalidArgumentError: the shapes differ.

    Examples:
      >>> loss = wf.losses.softmax_cross_entropy([[0.0, 1.0]], [[0.0, 0.0]])
      >>> print(round(float(wf.Session().run(loss)), 4))
      0.6931
    """
    with _scope(scope, "softmax_cross_entropy_loss") as full:
        logits = convert_to_tensor(logits)
        kind = logits.dtype.base_dtype
        labels = casting.cast(convert_to_tensor(onehot_labels), kind)
        if check_number(label_smoothing, "label_smoothing") > 0:
            classes = casting.cast(shapes.shape(labels)[1], kind)
            share = out("RealDiv", [label_smoothing, classes])
            labels = out("AddV2", [out("Mul", [labels, 1 - label_smoothing]), share])
        labels = identity.stop_gradient(labels)
        losses = nn.softmax_cross_entropy_with_logits_v2(labels=labels, logits=logits)
        return compute_weighted_loss(losses, weights, full, loss_collection, reduction)


def sparse_softmax_cross_entropy(
    labels: Any,
    logits: Any,
    weights: Any = 1.0,
    scope: str | None = None,
    loss_collection: str | None = _LOSSES,
    reduction: str = _DEFAULT,
) -> Output:
    """Return the softmax cross entropy with one class per row, weighted and reduced.

    Args:
      labels: int32 or int64, shape (N,) or (N, 1): classes in [0, C).
      logits: floating, shape (N, C).
      weights: rank 0, shape (N,) or (N, 1).
      loss_collection, reduction: as for `compute_weighted_loss`.
    Raises: InvalidArgumentError: the shapes do not match.

    Examples:
      >>> loss = wf.losses.sparse_softmax_cross_entropy([1], [[0.0, 0.0]])
      >>> print(round(float(wf.Session().run(loss)), 4))
      0.6931
    """
    with _scope(scope, "sparse_softmax_cross_entropy_loss") as full:
        labels, logits = convert_to_tensor(labels), convert_to_tensor(logits)
        weights = convert_to_tensor(weights)
        labels, _, weights = match_ranks(labels, logits, weights, expected_difference=1)
        losses = nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits)
        return compute_weighted_loss(losses, weights, full, loss_collection, reduction)
