"""`tf.contrib.crf`: conditional random fields on chains of tags."""

from __future__ import annotations

__all__ = [
    "crf_binary_score",
    "crf_decode",
    "crf_forward",
    "crf_log_likelihood",
    "crf_log_norm",
    "crf_multitag_sequence_score",
    "crf_sequence_score",
    "crf_unary_score",
    "viterbi_decode",
]

from typing import Any

import numpy as np

from weft_graph.control_flow.loop import while_loop
from weft_graph.control_flow.tensor_array import TensorArray
from weft_graph.ir.builder import convert_to_tensor
from weft_graph.ops import (
    arithmetic,
    array,
    casting,
    gather,
    join,
    masks,
    permutation,
    reduction,
    sequence,
    shapes,
)
from weft_graph.variables.scope import get_variable
from weft_tensor import dtypes
from weft_tensor.shape import TensorShape


def _time_first(x: Any) -> Any:
    rank = x.shape.ndims
    return permutation.transpose(x, [1, 0, *range(2, rank)])


def _mask(lengths: Any, steps: Any, dtype: Any) -> Any:
    return casting.cast(masks.sequence_mask(lengths, steps), dtype)


def crf_unary_score(tag_indices: Any, sequence_lengths: Any, inputs: Any) -> Any:
    """Return the sum of the potentials of tags for each sequence.

    Args:
      tag_indices: integers, shape (B, T).
      sequence_lengths: integers, shape (B,).
      inputs: potentials, floating, shape (B, T, N).
    Returns: shape (B,).
    """
    x = convert_to_tensor(inputs)
    tag_mask = gather.one_hot(convert_to_tensor(tag_indices), shapes.shape(x)[2], dtype=x.dtype)
    scores = reduction.reduce_sum(x * tag_mask, 2)
    return reduction.reduce_sum(scores * _mask(sequence_lengths, shapes.shape(x)[1], x.dtype), 1)


def crf_binary_score(tag_indices: Any, sequence_lengths: Any, transition_params: Any) -> Any:
    """Return the sum of the scores of transitions for each sequence.

    Args:
      tag_indices: integers, shape (B, T).
      sequence_lengths: integers, shape (B,).
      transition_params: floating, shape (N, N); the score of a transition from the row's tag to the
        column's.
    Returns: shape (B,).
    """
    tags = convert_to_tensor(tag_indices)
    table = convert_to_tensor(transition_params)
    steps = shapes.shape(tags)[1] - 1
    pairs = join.stack([tags[:, :-1], tags[:, 1:]], -1)
    scores = gather.gather_nd(table, pairs)
    counts = arithmetic.maximum(casting.cast(sequence_lengths, dtypes.int32) - 1, 0)
    return reduction.reduce_sum(scores * _mask(counts, steps, table.dtype.base_dtype), 1)


def crf_sequence_score(
    inputs: Any, tag_indices: Any, sequence_lengths: Any, transition_params: Any
) -> Any:
    """Return the score of tags, by potentials and transitions; 0 for empty sequences.

    Args:
      inputs, tag_indices, sequence_lengths, transition_params: as for `crf_unary_score` and
        `crf_binary_score`.
    Returns: shape (B,).
    """
    unary = crf_unary_score(tag_indices, sequence_lengths, inputs)
    return unary + crf_binary_score(tag_indices, sequence_lengths, transition_params)


def crf_multitag_sequence_score(
    inputs: Any, tag_bitmap: Any, sequence_lengths: Any, transition_params: Any
) -> Any:
    """Return the log of the summed probability weights of all allowed tag sequences.

    Args:
      inputs, sequence_lengths, transition_params: as for `crf_sequence_score`.
      tag_bitmap: the allowed tags: bool, shape (B, T, N).
    Returns: shape (B,).
    """
    x = convert_to_tensor(inputs)
    allowed = masks.where(tag_bitmap, x, array.fill(shapes.shape(x), -np.inf))
    return crf_log_norm(allowed, sequence_lengths, transition_params)


def crf_forward(inputs: Any, state: Any, transition_params: Any, sequence_lengths: Any) -> Any:
    """Run the forward algorithm: the log of the sum over all tag sequences up to each step.

    Args:
      inputs: potentials after the first step, shape (B, T - 1, N).
      state: potentials of the first step, shape (B, N).
      transition_params: shape (N, N).
      sequence_lengths: integers, shape (B,), including the first step.
    Returns: shape (B, N), for the last step of each sequence.
    """
    table = shapes.expand_dims(convert_to_tensor(transition_params), 0)
    steps = _time_first(convert_to_tensor(inputs))
    ends = casting.cast(convert_to_tensor(sequence_lengths), dtypes.int32) - 1

    def body(i: Any, alpha: Any) -> list[Any]:
        paths = shapes.expand_dims(alpha, 2) + table
        following = steps[i] + reduction.reduce_logsumexp(paths, 1)
        runs = shapes.expand_dims(i < ends, 1)
        return [i + 1, masks.where_v2(runs, following, alpha)]

    count = shapes.shape(steps)[0]
    state = convert_to_tensor(state)
    alpha = while_loop(lambda i, _: i < count, body, [0, state])[1]
    alpha.set_shape(state.shape)
    return alpha


def crf_log_norm(inputs: Any, sequence_lengths: Any, transition_params: Any) -> Any:
    """Return the log of the normalization constant; 0 for empty sequences.

    Args:
      inputs: potentials, floating, shape (B, T, N).
      sequence_lengths: integers, shape (B,).
      transition_params: floating, shape (N, N).
    Returns: shape (B,).
    """
    x = convert_to_tensor(inputs)
    alpha = crf_forward(x[:, 1:], x[:, 0], transition_params, sequence_lengths)
    total = reduction.reduce_logsumexp(alpha, 1)
    empty = convert_to_tensor(sequence_lengths) <= 0
    return masks.where_v2(empty, array.zeros_like(total), total)


def crf_log_likelihood(
    inputs: Any, tag_indices: Any, sequence_lengths: Any, transition_params: Any = None
) -> tuple[Any, Any]:
    """Return the log-likelihood of tags.

    Args:
      inputs: potentials, floating, shape (B, T, N).
      tag_indices: integers, shape (B, T).
      sequence_lengths: integers, shape (B,).
      transition_params: shape (N, N); the variable "transitions" by default.
    Returns: shape (B,), and the transition scores.

    Examples:
      >>> potentials, scores = np.zeros([1, 2, 2], "f"), np.zeros([2, 2], "f")
      >>> crf = wf.contrib.crf
      >>> likelihood, _ = crf.crf_log_likelihood(potentials, [[0, 1]], [2], scores)
      >>> likelihood.shape
      TensorShape([Dimension(1)])
    """
    x = convert_to_tensor(inputs)
    if transition_params is None:
        size = x.shape[2].value
        transition_params = get_variable("transitions", [size, size])
    score = crf_sequence_score(x, tag_indices, sequence_lengths, transition_params)
    return score - crf_log_norm(x, sequence_lengths, transition_params), transition_params


def viterbi_decode(score: Any, transition_params: Any) -> tuple[list[int], Any]:
    """Return the best tags of one sequence, computed by NumPy.

    Args:
      score: potentials, shape (T, N).
      transition_params: shape (N, N).
    Returns: the tags, and their total score.

    Examples:
      >>> wf.contrib.crf.viterbi_decode(np.array([[1.0, 0.0], [0.0, 2.0]]), np.zeros([2, 2]))
      ([0, 1], np.float64(3.0))
    """
    score, table = np.asarray(score), np.asarray(transition_params)
    best = score[0]
    backpointers = np.zeros(score.shape, np.int32)
    for t in range(1, len(score)):
        paths = best[:, None] + table
        backpointers[t] = paths.argmax(0)
        best = score[t] + paths.max(0)
    tags = [int(best.argmax())]
    for t in range(len(score) - 1, 0, -1):
        tags.append(int(backpointers[t, tags[-1]]))
    return tags[::-1], best.max()


def crf_decode(potentials: Any, transition_params: Any, sequence_length: Any) -> tuple[Any, Any]:
    """Return the best tags of sequences.

    Args:
      potentials: floating, shape (B, T, N).
      transition_params: floating, shape (N, N).
      sequence_length: integers, shape (B,).
    Returns: tags, int32, shape (B, T), 0 after the end; and their total scores, shape (B,).
    """
    x = convert_to_tensor(potentials)
    table = shapes.expand_dims(convert_to_tensor(transition_params), 0)
    steps = _time_first(x)
    ends = casting.cast(convert_to_tensor(sequence_length), dtypes.int32) - 1
    batch, count, tags = [shapes.shape(x)[i] for i in range(3)]
    identity = join.tile(shapes.expand_dims(sequence.range(tags), 0), [batch, 1])

    def forward(t: Any, best: Any, pointers: Any) -> list[Any]:
        paths = shapes.expand_dims(best, 2) + table
        runs = shapes.expand_dims(t <= ends, 1)
        following = masks.where_v2(runs, steps[t] + reduction.reduce_max(paths, 1), best)
        backpointers = casting.cast(reduction.argmax(paths, 1), dtypes.int32)
        return [t + 1, following, pointers.write(t, masks.where_v2(runs, backpointers, identity))]

    pointers = TensorArray(dtypes.int32, count, element_shape=[x.shape[0].value, x.shape[2].value])
    pointers = pointers.write(0, identity)
    invariants = [
        TensorShape([]),
        TensorShape([x.shape[0].value, x.shape[2].value]),
        TensorShape(None),
    ]
    _, best, pointers = while_loop(
        lambda t, *_: t < count, forward, [1, x[:, 0], pointers], shape_invariants=invariants
    )
    last = casting.cast(reduction.argmax(best, 1), dtypes.int32)

    def backward(t: Any, tag: Any, out: Any) -> list[Any]:
        out = out.write(t, tag)
        rows = join.stack([sequence.range(batch), tag], 1)
        return [t - 1, gather.gather_nd(kept_rows.read(t), rows), out]

    kept_rows = TensorArray(dtypes.int32, count, clear_after_read=False).unstack(pointers.stack())
    path = TensorArray(dtypes.int32, count)
    _, _, path = while_loop(
        lambda t, *_: t >= 0,
        backward,
        [count - 1, last, path],
        shape_invariants=[TensorShape([]), TensorShape([None]), TensorShape(None)],
    )
    result = permutation.transpose(path.stack(), [1, 0])
    result *= _mask(sequence_length, count, dtypes.int32)
    result.set_shape([x.shape[0].value, x.shape[1].value])
    score = reduction.reduce_max(best, 1)
    return result, score
