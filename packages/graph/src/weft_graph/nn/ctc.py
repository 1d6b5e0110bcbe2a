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
    """-log of the probability that a network writes the labels, with blanks between them or not.

    The blank is the last class. Labels from there on end a sequence.

    Args:
      labels: sparse int32 matrix of labels; row b has those of sequence b, from column 0 on.
      inputs: floating, shape (T, B, C): logits; also `logits`.
      sequence_length: int32, shape (B,), 0 to T.
      preprocess_collapse_repeated: labels that equal the one before them are left out.
      ctc_merge_repeated: equal classes one after the other are one label; otherwise each is one.
      ignore_longer_outputs_than_inputs: sequences with more labels than times have a loss of 0;
        otherwise they are refused.
      time_major: whether the logits are (T, B, C), or (B, T, C).
    Returns: shape (B,), dtype of the logits; infinite where the labels cannot be written.
    Raises: InvalidArgumentError: the shapes do not fit, or there are more labels than times.

    Examples:
      >>> labels = wf.SparseTensor([[0, 0], [0, 1]], [0, 1], [1, 2])
      >>> logits = wf.zeros([2, 1, 4])
      >>> np.exp(-wf.Session().run(wf.nn.ctc_loss(labels, logits, [2])))
      array([0.0625], dtype=float32)
    """
    if not isinstance(labels, SparseTensor):
        raise errors.InvalidTypeError(
            "ctc_loss requires labels as a SparseTensor, got another value; ctc_loss_v2 takes "
            "dense ones"
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
    """Like `ctc_loss`, with dense labels and a blank of choice.

    Args:
      labels: int32, shape (B, U); or a sparse matrix as for `ctc_loss`.
      logits: floating, shape (T, B, C), or (B, T, C) if not `logits_time_major`.
      label_length: int32, shape (B,): how many labels of each row count; None for sparse ones.
      logit_length: int32, shape (B,), 0 to T.
      logits_time_major: which of the two shapes the logits have.
      unique: what `ctc_unique_labels` gave; it is not needed.
      blank_index: the class of the blank, from the end if negative; 0 by default. Sparse labels
        need it.
    Returns: shape (B,), dtype of the logits; infinite where the labels cannot be written.
    Raises: InvalidArgumentError: the shapes do not fit, there are more labels than times, or no
      blank was given for sparse labels.

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
                "ctc_loss_v2 requires blank_index where labels are a SparseTensor"
            )
        labels, logits = _move_blank_last(labels, logits, blank_index)
        return ctc_loss(labels, logits, logit_length, time_major=logits_time_major)


def _sparse(labels: Output, lengths: Any) -> SparseTensor:
    """Return the labels of each row up to its length."""
    size = shape(labels, out_type=dtypes.int64)
    indices = where(sequence_mask(lengths, size[1]))
    return SparseTensor(indices, gather_nd(labels, indices), size)


def _move_blank_last(
    labels: SparseTensor, logits: Output, blank: int
) -> tuple[SparseTensor, Output]:
    """Return the classes in another order: the blank last, and no gap where it was."""
    classes = None if logits.dims is None else logits.dims[-1]
    if blank < 0 and classes is None:
        raise errors.InvalidArgumentError(
            "a blank_index counted from the end requires a known number of classes, got logits "
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
    """Return the labels of each row without repetitions, and where each label is among them.

    Args:
      labels: integer, shape (B, U), padded with 0.
    Returns: the labels in the order of their first appearance, same shape, 0 behind the last one;
      and the position of each label among them, int32, same shape.

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
        places = where(new, rank, zeros_like(rank) - 1)
        one_hots = one_hot(places, width, dtype=labels.dtype.base_dtype)
        return reduce_sum(one_hots * expand_dims(labels, 2), 1), positions


def collapse_repeated(
    labels: Any, seq_length: Any, name: str | None = None
) -> tuple[Output, Output]:
    """Return the labels of each row without those that equal the one before them.

    Args:
      labels: integer, shape (B, U).
      seq_length: integer, shape (B,): how many labels of each row count.
    Returns: the labels that stay, shape (B, longest), 0 behind the last one; and how many each row
      has, dtype of `seq_length`.

    Examples:
      >>> labels, lengths = wf.nn.collapse_repeated([[1, 1, 2, 1], [5, 5, 5, 0]], [4, 3])
      >>> [value.tolist() for value in wf.Session().run([labels, lengths])]
      [[[1, 2, 1], [5, 0, 0]], [3, 1]]
    """
    with scope(name, "collapse_repeated_labels"):
        labels = convert_to_tensor(labels, name="labels")
        lengths = convert_to_tensor(seq_length, name="seq_length")
        inside = sequence_mask(lengths, shape(labels)[1])
        changed = not_equal(labels[:, 1:], labels[:, :-1])
        keep_mask = logical_and(concat([inside[:, :1], changed], 1), inside)
        count = reduce_sum(cast(keep_mask, lengths.dtype.base_dtype), 1)
        indices = where(keep_mask)
        column = cumsum(cast(keep_mask, dtypes.int64), 1) - 1
        places = stack([indices[:, 0], gather_nd(column, indices)], 1)
        longest = cast(reduce_max(count), dtypes.int64)
        size = stack([shape(labels, out_type=dtypes.int64)[0], longest])
        return scatter_nd(places, gather_nd(labels, indices), size), count
