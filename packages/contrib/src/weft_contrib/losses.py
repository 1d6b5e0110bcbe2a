"""`tf.contrib.losses`: losses with older names and argument orders."""

from __future__ import annotations

__all__ = [
    "absolute_difference",
    "add_loss",
    "compute_weighted_loss",
    "cosine_distance",
    "get_losses",
    "get_regularization_losses",
    "get_total_loss",
    "hinge_loss",
    "log_loss",
    "mean_pairwise_squared_error",
    "mean_squared_error",
    "sigmoid_cross_entropy",
    "softmax_cross_entropy",
    "sparse_softmax_cross_entropy",
]

from typing import Any

from weft_graph import losses
from weft_graph.losses import (
    add_loss,
    compute_weighted_loss,
    get_losses,
    get_regularization_losses,
    get_total_loss,
)


def absolute_difference(
    predictions: Any, labels: Any = None, weights: Any = 1.0, scope: Any = None
) -> Any:
    """Call `losses.absolute_difference`.

    Args:
      predictions, labels, weights, scope: as for that function.
    """
    return losses.absolute_difference(labels, predictions, weights, scope)


def mean_squared_error(
    predictions: Any, labels: Any = None, weights: Any = 1.0, scope: Any = None
) -> Any:
    """Call `losses.mean_squared_error`.

    Args:
      predictions, labels, weights, scope: as for that function.
    """
    return losses.mean_squared_error(labels, predictions, weights, scope)


def mean_pairwise_squared_error(
    predictions: Any, labels: Any = None, weights: Any = 1.0, scope: Any = None
) -> Any:
    """Call `losses.mean_pairwise_squared_error`.

    Args:
      predictions, labels, weights, scope: as for that function.
    """
    return losses.mean_pairwise_squared_error(labels, predictions, weights, scope)


def log_loss(
    predictions: Any,
    labels: Any = None,
    weights: Any = 1.0,
    epsilon: float = 1e-7,
    scope: Any = None,
) -> Any:
    """Call `losses.log_loss`.

    Args:
      predictions, labels, weights, epsilon, scope: as for that function.
    """
    return losses.log_loss(labels, predictions, weights, epsilon, scope)


def cosine_distance(
    predictions: Any, labels: Any = None, axis: Any = None, weights: Any = 1.0, scope: Any = None
) -> Any:
    """Call `losses.cosine_distance`.

    Args:
      predictions, labels, axis, weights, scope: as for that function.
    """
    return losses.cosine_distance(labels, predictions, axis, weights, scope)


def hinge_loss(logits: Any, labels: Any = None, scope: Any = None) -> Any:
    """Return the hinge loss of each element, without adding it to the collection of losses.

    Args:
      logits, labels, scope: as for `losses.hinge_loss`.
    """
    reduction = losses.Reduction.NONE
    return losses.hinge_loss(labels, logits, scope=scope, loss_collection=None, reduction=reduction)


def sigmoid_cross_entropy(
    logits: Any,
    multi_class_labels: Any,
    weights: Any = 1.0,
    label_smoothing: float = 0,
    scope: Any = None,
) -> Any:
    """Call `losses.sigmoid_cross_entropy`.

    Args:
      logits, multi_class_labels, weights, label_smoothing, scope: as for that function.
    """
    return losses.sigmoid_cross_entropy(multi_class_labels, logits, weights, label_smoothing, scope)


def softmax_cross_entropy(
    logits: Any,
    onehot_labels: Any,
    weights: Any = 1.0,
    label_smoothing: float = 0,
    scope: Any = None,
) -> Any:
    """Call `losses.softmax_cross_entropy`.

    Args:
      logits, onehot_labels, weights, label_smoothing, scope: as for that function.
    """
    return losses.softmax_cross_entropy(onehot_labels, logits, weights, label_smoothing, scope)


def sparse_softmax_cross_entropy(
    logits: Any, labels: Any, weights: Any = 1.0, scope: Any = None
) -> Any:
    """Call `losses.sparse_softmax_cross_entropy`.

    Args:
      logits, labels, weights, scope: as for that function.
    """
    return losses.sparse_softmax_cross_entropy(labels, logits, weights, scope)
