"""The loss of sequences."""

from __future__ import annotations

__all__ = ["sequence_loss"]

from collections.abc import Callable
from typing import Any

from weft_graph.ir.builder import convert_to_tensor
from weft_graph.ops import casting, nn, reduction, shapes
from weft_tensor import errors


def sequence_loss(
    logits: Any,
    targets: Any,
    weights: Any,
    average_across_timesteps: bool = True,
    average_across_batch: bool = True,
    softmax_loss_function: Callable[..., Any] | None = None,
    name: str | None = None,
) -> Any:
    """Return the weighted cross-entropy of sequences.

    Args:
      logits: floating, shape (B, T, N).
      targets: integers, shape (B, T).
      weights: floating, shape (B, T).
      average_across_timesteps, average_across_batch: average over time, over the batch, or over
        both, weighted by `weights`.
      softmax_loss_function: function of `labels` and `logits` that replaces the cross-entropy.
    Returns: rank 0; shape (T,) without the mean over time, (B,) without the mean over the batch,
      (B, T) without both.
    Raises: InvalidArgumentError: a rank differs.

    Examples:
      >>> logits, targets = wf.zeros([2, 3, 4]), wf.zeros([2, 3], wf.int32)
      >>> wf.contrib.seq2seq.sequence_loss(logits, targets, wf.ones([2, 3])).shape
      TensorShape([])
    """
    x, target_ids, w = map(convert_to_tensor, (logits, targets, weights))
    for value, rank, argument in ((x, 3, "logits"), (target_ids, 2, "targets"), (w, 2, "weights")):
        if value.shape.ndims not in (None, rank):
            raise errors.InvalidArgumentError(f"{argument} must have rank {rank}, got {value!r}")
    classes = shapes.shape(x)[2]
    flat = shapes.reshape(x, [-1, classes])
    flat_targets = shapes.reshape(target_ids, [-1])
    entropy = softmax_loss_function or nn.sparse_softmax_cross_entropy_with_logits
    losses = entropy(labels=flat_targets, logits=flat) * shapes.reshape(w, [-1])
    if average_across_timesteps and average_across_batch:
        total = reduction.reduce_sum(w) + 1e-12
        return reduction.reduce_sum(losses) / casting.cast(total, losses.dtype)
    losses = shapes.reshape(losses, shapes.shape(x)[:2])
    losses.set_shape(x.shape[:2])
    if average_across_timesteps or average_across_batch:
        axis = 1 if average_across_timesteps else 0
        return reduction.reduce_sum(losses, axis) / (reduction.reduce_sum(w, axis) + 1e-12)
    return losses
