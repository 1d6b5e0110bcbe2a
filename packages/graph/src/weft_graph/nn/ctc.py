"""Losses of connectionist temporal classification (Graves et al. 2006)."""

from __future__ import annotations

__all__ = ["collapse_repeated", "ctc_loss", "ctc_loss_v2", "ctc_unique_labels"]

from typing import Any

from weft_graph.ir.builder import convert_to_tensor, create, out
from weft_graph.ir.indexed_slices import SparseTensor
from weft_graph.ir.node import Output
from weft_graph.nn.scope import scope
from weft_graph.ops.array import zeros_like
from weft_graph.ops.casting import cast
from weft_graph.ops.comparison import equal, less_equal, logical_and, not_equal
from weft_graph.ops.gather import gather, gather_nd, one_hot, scatter_nd
from weft_graph.ops.join import concat, stack
from weft_graph.ops.masks import sequence_mask, where
from weft_graph.ops.permutation import transpose
from weft_graph.ops.reduction import argmax, cumsum, reduce_max, reduce_sum
from weft_graph.ops.sequence import range as range_
from weft_graph.ops.shapes import expand_dims, shape
from weft_tensor import dtypes, errors
from weft_tensor.shape import format_dims


def ctc_loss(
    labels: Any,
    inputs: Any = None,
    sequence_length: Any = None,
    preprocess_collapse_repeated: bool = False,
    ctc_merge_repeated: bool = True,
    ignore_longer_outputs_than_inputs: bool = False,
    time_major: bool = True,
    logits: Any = None,
    name: str | None = None,
) -> Output:
    """Return the CTC loss: -log of the probability of the label sequences.

    The blank is the last class. A label that is at least the blank ends a sequence.

    Args:
      labels: sparse int32 matrix; row b has the labels of sequence b, from column 0 on.
      inputs: floating, shape (T, B, C): logits; also `logits`.
      sequence_length: int32, shape (B,), 0 to T.
      preprocess_collapse_repeated: drop labels that equal the previous label.
      ctc_merge_repeated: treat consecutive equal classes as one label; otherwise each is a label.
      ignore_longer_outputs_than_inputs: use a loss of 0 for sequences with more labels than time
        steps; otherwise they are errors.
      time_major: True if the logits have the shape (T, B, C), False for (B, T, C).
    Returns: shape (B,), dtype of the logits; infinite if the labels are impossible.
    Raises: InvalidArgumentError: the shapes do not match, or there are more labels than time
      steps.

    Examples:
      >>> labels = wf.SparseTensor([[0, 0], [0, 1]], [0, 1], [1, 2])
      >>> logits = wf.zeros([2, 1, 4])
      >>> np.exp(-wf.Session().run(wf.nn.ctc_loss(labels, logits, [2])))
      array([0.0625], dtype=float32)
    """
    if not isinstance(labels, SparseTensor):
        raise errors.InvalidTypeError(
            "ctc_loss requires labels to be a SparseTensor; for dense labels use ctc_loss_v2"
        )
    inputs = convert_to_tensor(logits if inputs is None else inputs)
    exact = inputs.dtype.base_dtype
    if exact in (dtypes.float16, dtypes.bfloat16):
        inputs = cast(inputs, dtypes.float32)
    if not time_major:
        inputs = transpose(inputs, [1, 0, 2])
    attrs = {
        "preprocess_collapse_repeated": preprocess_collapse_repeated,
        "ctc_merge_repeated": ctc_merge_repeated,
        "ignore_longer_outputs_than_inputs": ignore_longer_outputs_than_inputs,
    }
    arguments = [inputs, labels.indices, labels.values, sequence_length]
    loss = create("CTCLoss", arguments, attrs, name).outputs[0]
    return loss if loss.dtype is exact else out("Cast", [loss], {"DstT": exact})


def ctc_loss_v2(
    labels: Any,
    logits: Any,
    label_length: Any,
    logit_length: Any,
    logits_time_major: bool = True,
    unique: Any = None,
    blank_index: int | None = None,
    name: str | None = None,
) -> Output:
    """Return `ctc_loss` for dense labels and any class as the blank.

    Args:
      labels: int32, shape (B, U); or a sparse matrix as for `ctc_loss`.
      logits: floating, shape (T, B, C), or (B, T, C) if not `logits_time_major`.
      label_length: int32, shape (B,): number of labels of each row; None for sparse labels.
      logit_length: int32, shape (B,), 0 to T.
      logits_time_major: True if the logits have the shape (T, B, C).
      unique: result of `ctc_unique_labels`; ignored.
      blank_index: class of the blank; negative values count from the end; 0 by default. Required
        for sparse labels.
    Returns: shape (B,), dtype of the logits; infinite if the labels are impossible.
    Raises: InvalidArgumentError: the shapes do not match, there are more labels than time steps,
      or `blank_index` is missing for sparse labels.

    Examples:
      >>> logits = wf.zeros([2, 1, 4])
      >>> np.exp(-wf.Session().run(wf.nn.ctc_loss_v2([[1, 2, 0]], logits, [2], [2])))
      array([0.0625], dtype=float32)
    """
    with scope(name, "ctc_loss_v2"):
        logits = convert_to_tensor(logits)
        if not isinstance(labels, SparseTensor):
            labels = _sparse(convert_to_tensor(labels), label_length)
            blank_index = 0 if blank_index is None else blank_index
        if blank_index is None:
            raise errors.InvalidArgumentError(
                "ctc_loss_v2 requires blank_index if labels are a SparseTensor"
            )
        labels, logits = _move_blank_last(labels, logits, blank_index)
        return ctc_loss(labels, logits, logit_length, time_major=logits_time_major)


def _sparse(labels: Output, lengths: Any) -> SparseTensor:
    """Return the labels of each row up to its length, as a sparse tensor."""
    size = shape(labels, out_type=dtypes.int64)
    indices = where(sequence_mask(lengths, size[1]))
    return SparseTensor(indices, gather_nd(labels, indices), size)


def _move_blank_last(
    labels: SparseTensor, logits: Output, blank: int
) -> tuple[SparseTensor, Output]:
    """Reorder the classes so that the blank is last and the others keep their order."""
    classes = None if logits.dims is None else logits.dims[-1]
    if blank < 0 and classes is None:
        raise errors.InvalidArgumentError(
            "a negative blank_index requires a known number of classes, got logits "
            f"of shape {format_dims(logits.dims)}"
        )
    if blank < 0 and classes is not None:
        blank += classes
    if blank < 0 or (classes is not None and blank >= classes):
        raise errors.InvalidArgumentError(
            f"blank_index must be one of {classes} classes, got {blank}"
        )
    values = cast(labels.values, dtypes.int32)
    last = shape(logits)[-1] - 1
    shifted = where(equal(values, blank), zeros_like(values) + last, values - 1)
    values = where(less_equal(values, blank - 1), values, shifted)
    if blank + 1 != classes:
        parts = [logits[..., :blank], logits[..., blank + 1 :], logits[..., blank : blank + 1]]
        logits = concat(parts, -1)
    return SparseTensor(labels.indices, values, labels.dense_shape), logits


def ctc_unique_labels(labels: Any, name: str | None = None) -> tuple[Output, Output]:
    """Return the unique labels of each row, and the index of each label among them.

    Args:
      labels: integer, shape (B, U), padded with 0.
    Returns: the unique labels in order of first appearance, same shape, padded with 0; and the
      index of each label among them, int32, same shape.

    Examples:
      >>> unique, positions = wf.nn.ctc_unique_labels([[3, 4, 4, 3]])
      >>> [value.tolist() for value in wf.Session().run([unique, positions])]
      [[[3, 4, 0, 0]], [[0, 1, 1, 0]]]
    """
    with scope(name, "ctc_unique_labels"):
        labels = convert_to_tensor(labels)
        width = shape(labels)[1]
        equal_pairs = cast(equal(expand_dims(labels, 2), expand_dims(labels, 1)), dtypes.int32)
        first = argmax(equal_pairs, 2, output_type=dtypes.int32)
        new = equal(first, range_(width))
        rank = cumsum(cast(new, dtypes.int32), 1) - 1
        positions = gather(rank, first, batch_dims=1)
        index_rows = where(new, rank, zeros_like(rank) - 1)
        one_hots = one_hot(index_rows, width, dtype=labels.dtype.base_dtype)
        return reduce_sum(one_hots * expand_dims(labels, 2), 1), positions


def collapse_repeated(
    labels: Any, seq_length: Any, name: str | None = None
) -> tuple[Output, Output]:
    """Drop the labels of each row that equal the previous label.

    Args:
      labels: integer, shape (B, U).
      seq_length: integer, shape (B,): number of labels of each row.
    Returns: the remaining labels, shape (B, longest), padded with 0; and their number per row,
      dtype of `seq_length`.

    Examples:
      >>> labels, lengths = wf.nn.collapse_repeated([[1, 1, 2, 1], [5, 5, 5, 0]], [4, 3])
      >>> [value.tolist() for value in wf.Session().run([labels, lengths])]
      [[[1, 2, 1], [5, 0, 0]], [3, 1]]
    """
    with scope(name, "collapse_repeated_labels"):
        labels = convert_to_tensor(labels, name="labels")
        lengths = convert_to_tensor(seq_length, name="seq_length")
        in_sequence = sequence_mask(lengths, shape(labels)[1])
        changed = not_equal(labels[:, 1:], labels[:, :-1])
        keep_mask = logical_and(concat([in_sequence[:, :1], changed], 1), in_sequence)
        count = reduce_sum(cast(keep_mask, lengths.dtype.base_dtype), 1)
        indices = where(keep_mask)
        column = cumsum(cast(keep_mask, dtypes.int64), 1) - 1
        index_rows = stack([indices[:, 0], gather_nd(column, indices)], 1)
        longest = cast(reduce_max(count), dtypes.int64)
        size = stack([shape(labels, out_type=dtypes.int64)[0], longest])
        return scatter_nd(index_rows, gather_nd(labels, indices), size), count
