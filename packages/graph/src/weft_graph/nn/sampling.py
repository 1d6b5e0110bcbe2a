"""Losses over a random sample of many classes."""

from __future__ import annotations

__all__ = ["nce_loss", "sampled_softmax_loss"]

from typing import Any

from weft_graph.ir.builder import convert_to_tensor, out
from weft_graph.ir.node import Output
from weft_graph.nn.cross_entropy import sigmoid_cross_entropy_with_logits
from weft_graph.nn.embedding import embedding_lookup
from weft_graph.nn.scope import scope
from weft_graph.ops import array, candidates, casting, identity, nn, reduction, shapes
from weft_tensor import dtypes


def nce_loss(
    weights: Any,
    biases: Any,
    labels: Any,
    inputs: Any,
    num_sampled: int,
    num_classes: int,
    num_true: int = 1,
    sampled_values: Any = None,
    remove_accidental_hits: bool = False,
    partition_strategy: str = "mod",
    name: str = "nce_loss",
) -> Output:
    """Return the noise-contrastive estimation loss of true against sampled classes.

    Args:
      weights: floating, shape (num_classes, D), or a list of parts of it.
      biases: same dtype, shape (num_classes,).
      labels: int64, shape (N, num_true): the true classes.
      inputs: same dtype as `weights`, shape (N, D).
      num_sampled: number of classes to sample for the whole batch.
      num_classes: number of classes.
      num_true: number of true classes per example.
      sampled_values: result of a candidate sampler; distinct log-uniform samples by default.
      remove_accidental_hits: ignore sampled classes that are true classes.
      partition_strategy: as in `embedding_lookup`.
    Returns: shape (N,).
    Raises: InvalidArgumentError: the shapes do not match.
    Source: Gutmann and Hyvärinen 2010.

    Examples:
      >>> labels = wf.constant([[1], [3]], wf.int64)
      >>> wf.nn.nce_loss(wf.ones([9, 4]), wf.zeros([9]), labels, wf.ones([2, 4]), 5, 9).shape
      TensorShape([Dimension(2)])
    """
    with scope(name, "nce_loss"):
        logits, targets = _compute_sampled_logits(
            weights,
            biases,
            labels,
            inputs,
            num_sampled,
            num_classes,
            num_true,
            sampled_values,
            True,
            remove_accidental_hits,
            partition_strategy,
            None,
        )
        losses = sigmoid_cross_entropy_with_logits(labels=targets, logits=logits)
        return reduction.reduce_sum(losses, 1)


def sampled_softmax_loss(
    weights: Any,
    biases: Any,
    labels: Any,
    inputs: Any,
    num_sampled: int,
    num_classes: int,
    num_true: int = 1,
    sampled_values: Any = None,
    remove_accidental_hits: bool = True,
    partition_strategy: str = "mod",
    name: str = "sampled_softmax_loss",
    seed: int | None = None,
) -> Output:
    """Return the softmax cross entropy over true and sampled classes, for training.

    Args:
      weights, biases, labels, inputs, num_sampled, num_classes, num_true, sampled_values,
        remove_accidental_hits, partition_strategy: as for `nce_loss`.
      seed: seed of the sampler.
    Returns: shape (N,).
    Raises: InvalidArgumentError: the shapes do not match.
    Source: Jean et al. 2014.

    Examples:
      >>> labels = wf.constant([[1], [3]], wf.int64)
      >>> weights, biases, inputs = wf.ones([9, 4]), wf.zeros([9]), wf.ones([2, 4])
      >>> wf.nn.sampled_softmax_loss(weights, biases, labels, inputs, 5, 9).shape
      TensorShape([Dimension(2)])
    """
    with scope(name, "sampled_softmax_loss"):
        logits, targets = _compute_sampled_logits(
            weights,
            biases,
            labels,
            inputs,
            num_sampled,
            num_classes,
            num_true,
            sampled_values,
            True,
            remove_accidental_hits,
            partition_strategy,
            seed,
        )
        targets = identity.stop_gradient(targets)
        return nn.softmax_cross_entropy_with_logits_v2(labels=targets, logits=logits)


def _compute_sampled_logits(
    weights: Any,
    biases: Any,
    labels: Any,
    inputs: Any,
    num_sampled: int,
    num_classes: int,
    num_true: int,
    sampled_values: Any,
    subtract_log_q: bool,
    remove_accidental_hits: bool,
    partition_strategy: str,
    seed: int | None,
) -> tuple[Output, Output]:
    """Return logits of true, then sampled classes, and the targets 1 / num_true and 0."""
    labels = casting.cast(convert_to_tensor(labels), dtypes.int64)
    inputs = convert_to_tensor(inputs)
    if sampled_values is None:
        sampled_values = candidates.log_uniform_candidate_sampler(
            labels, num_true, num_sampled, True, num_classes, seed
        )
    sampled, true_count, sampled_count = [identity.stop_gradient(v) for v in sampled_values]

    def rows(table: Any, ids: Output) -> Output:
        return embedding_lookup(table, ids, partition_strategy)

    flat = shapes.reshape(labels, [-1])
    true_logits = _true_logits(inputs, rows(weights, flat), num_true)
    true_logits += shapes.reshape(rows(biases, flat), [-1, num_true])
    products = out("MatMul", [inputs, rows(weights, sampled)], {"transpose_b": True})
    sampled_logits = out("AddV2", [products, rows(biases, sampled)])
    if remove_accidental_hits:
        removed = _hits(labels, sampled, num_true, num_sampled)
        sampled_logits += casting.cast(removed, sampled_logits.dtype)
    if subtract_log_q:
        kind = inputs.dtype.base_dtype
        true_logits -= casting.cast(out("Log", [true_count]), kind)
        sampled_logits -= casting.cast(out("Log", [sampled_count]), kind)
    logits = out("ConcatV2", [[true_logits, sampled_logits], 1])
    true_targets = array.ones_like(true_logits)
    true_targets = true_targets if num_true == 1 else true_targets / num_true
    targets = out("ConcatV2", [[true_targets, array.zeros_like(sampled_logits)], 1])
    return logits, targets


def _true_logits(inputs: Output, rows: Output, num_true: int) -> Output:
    """Return the inner products of each input (N, D) with its rows of (N * num_true, D)."""
    if num_true == 1:
        return reduction.reduce_sum(out("Mul", [inputs, rows]), 1, keepdims=True)
    depth = inputs.dims[1] if inputs.dims is not None else None
    size: Any = shapes.shape(inputs)[1] if depth is None else depth
    cube = shapes.reshape(rows, [-1, num_true, size])
    return reduction.reduce_sum(out("Mul", [shapes.expand_dims(inputs, 1), cube]), 2)


def _hits(labels: Output, sampled: Output, num_true: int, num_sampled: int) -> Output:
    """Return the most negative float32 where a sampled class is a true one of the row, else 0."""
    hits = candidates.compute_accidental_hits(labels, sampled, num_true)
    ids = casting.cast(hits.ids, dtypes.int32)
    positions = out("Pack", [[hits.indices, ids]], {"axis": 1})
    batch = shapes.shape(labels)[0]
    shape = out("Pack", [[batch, num_sampled]])
    # One sampled class may hit twice in a row, and then counts once.
    return out("SparseToDense", [positions, shape, hits.weights, 0.0], {"validate_indices": False})
