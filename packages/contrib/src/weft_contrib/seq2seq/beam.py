"""Beam search."""

from __future__ import annotations

__all__ = [
    "BeamSearchDecoder",
    "BeamSearchDecoderOutput",
    "BeamSearchDecoderState",
    "FinalBeamSearchDecoderOutput",
    "gather_tree",
]

import math
from typing import Any, NamedTuple

from weft_contrib.seq2seq.attention import tile_batch
from weft_contrib.seq2seq.decoding import Decoder
from weft_contrib.seq2seq.helpers import embedding_of
from weft_graph.control_flow.conditional import cond
from weft_graph.control_flow.loop import while_loop
from weft_graph.control_flow.tensor_array import TensorArray
from weft_graph.ir import nest
from weft_graph.ir.builder import convert_to_tensor
from weft_graph.ops import (
    array,
    casting,
    comparison,
    gather,
    join,
    masks,
    nn,
    reduction,
    search,
    sequence,
    shapes,
)
from weft_graph.rnn.cell.base import assert_like_rnncell
from weft_tensor import dtypes, errors
from weft_tensor.shape import TensorShape


class BeamSearchDecoderState(NamedTuple):
    """The state of a beam search.

    Attributes:
      cell_state: shape (B, W, ...) each.
      log_probs: log-probabilities of the beams, shape (B, W).
      finished: bool, shape (B, W).
      lengths: int64, shape (B, W).
      accumulated_attention_probs: always ().
    """

    cell_state: Any
    log_probs: Any
    finished: Any
    lengths: Any
    accumulated_attention_probs: Any


class BeamSearchDecoderOutput(NamedTuple):
    """The output of a beam search at each step: scores, symbols and parents, shape (B, W)."""

    scores: Any
    predicted_ids: Any
    parent_ids: Any


class FinalBeamSearchDecoderOutput(NamedTuple):
    """The result of a beam search: the beams' symbols, (B, T, W), and the output of all steps."""

    predicted_ids: Any
    beam_search_decoder_output: Any


def gather_tree(step_ids: Any, parent_ids: Any, max_sequence_lengths: Any, end_token: Any) -> Any:
    """Return the symbols of each beam, traced back from its end.

    Args:
      step_ids, parent_ids: int32, shape (T, B, W).
      max_sequence_lengths: int32, shape (B,).
      end_token: filler after the ends.
    Returns: int32, shape (T, B, W).
    """
    steps, parents = convert_to_tensor(step_ids), convert_to_tensor(parent_ids)
    count, batch, width = [shapes.shape(steps)[i] for i in range(3)]
    ends = shapes.expand_dims(casting.cast(max_sequence_lengths, dtypes.int32), 1)
    filler = array.fill([batch, width], casting.cast(end_token, dtypes.int32))
    first = join.tile(shapes.expand_dims(sequence.range(width), 0), [batch, 1])

    def body(t: Any, beams: Any, symbols: Any) -> list[Any]:
        runs = comparison.logical_and(t < ends, array.ones_like(beams, dtypes.bool_))
        current = masks.where(runs, gather.gather(steps[t], beams, batch_dims=1), filler)
        parent_beams = gather.gather(parents[t], beams, batch_dims=1)
        return [t - 1, masks.where(runs, parent_beams, beams), symbols.write(t, current)]

    result_symbols = TensorArray(dtypes.int32, count)
    invariants = [TensorShape([]), TensorShape([None, None]), TensorShape(None)]
    variables = [count - 1, first, result_symbols]
    result_symbols = while_loop(lambda t, *_: t >= 0, body, variables, shape_invariants=invariants)[
        2
    ]
    symbols = result_symbols.stack()
    is_end = casting.cast(comparison.equal(symbols, end_token), dtypes.int32)
    is_after_end = reduction.cumsum(is_end, 0, exclusive=True) > 0
    result = masks.where(is_after_end, array.zeros_like(symbols) + end_token, symbols)
    result.set_shape(steps.shape)
    return result


class BeamSearchDecoder(Decoder):
    """A decoder that keeps the best partial sequences.

    Args:
      cell: the cell.
      embedding: a function of ids, or their rows.
      start_tokens: int32, shape (B,).
      end_token: int32, rank 0.
      initial_state: initial state of the cell, with each example repeated `beam_width` times
        (`tile_batch`).
      beam_width: W.
      output_layer: layer from outputs to symbols, or None.
      length_penalty_weight: positive values favor longer sequences.
      coverage_penalty_weight: not supported.
      reorder_tensor_arrays: not supported; histories of attention are not reordered.
    Raises:
      InvalidTypeError: `cell` is not a cell.
      InvalidArgumentError: a rank differs.
      UnimplementedError: a coverage penalty is requested.
    Source: Wu et al. 2016.
    """

    tracks_own_finished = True

    def __init__(
        self,
        cell: Any,
        embedding: Any,
        start_tokens: Any,
        end_token: Any,
        initial_state: Any,
        beam_width: int,
        output_layer: Any = None,
        length_penalty_weight: float = 0.0,
        coverage_penalty_weight: float = 0.0,
        reorder_tensor_arrays: bool = True,
    ) -> None:
        assert_like_rnncell("cell", cell)
        if coverage_penalty_weight:
            raise errors.UnimplementedError("BeamSearchDecoder has no coverage penalty")
        self._cell, self._layer = cell, output_layer
        self._embed = embedding_of(embedding)
        self._start = convert_to_tensor(start_tokens, dtypes.int32)
        self._end = convert_to_tensor(end_token, dtypes.int32)
        if self._start.shape.ndims not in (None, 1) or self._end.shape.ndims not in (None, 0):
            raise errors.InvalidArgumentError(
                "start_tokens must be a vector and end_token a scalar, got "
                f"{self._start!r} and {self._end!r}"
            )
        self._width = int(beam_width)
        self._penalty = length_penalty_weight
        self.batch_size = shapes.size(self._start)
        self._first = self._split(self._embed(tile_batch(self._start, self._width)))
        self._initial = nest.map_structure(self._split, initial_state)
        width = TensorShape([self._width])
        self.output_size = BeamSearchDecoderOutput(width, width, width)
        dtype = nest.flatten(initial_state)[0].dtype
        self.output_dtype = BeamSearchDecoderOutput(dtype, dtypes.int32, dtypes.int32)

    def _split(self, value: Any) -> Any:
        """Reshape (B * W, ...) to (B, W, ...)."""
        if isinstance(value, TensorArray) or value.shape.ndims == 0:
            return value
        return self._reshape(value, [self.batch_size, self._width], 1, [None, self._width])

    def _merge(self, value: Any) -> Any:
        """Reshape (B, W, ...) to (B * W, ...)."""
        if isinstance(value, TensorArray) or value.shape.ndims == 0:
            return value
        return self._reshape(value, [self.batch_size * self._width], 2, [None])

    @staticmethod
    def _reshape(value: Any, front: Any, axes: int, static: Any) -> Any:
        inner_sizes = shapes.shape(value)[axes:]
        result = shapes.reshape(value, join.concat([join.stack(front), inner_sizes], 0))
        result.set_shape([*static, *value.shape[axes:]])
        return result

    def initialize(self, name: str | None = None) -> tuple[Any, Any, Any]:
        """Start with one beam for each example; the others have a score of minus infinity."""
        first = array.zeros(join.stack([self.batch_size]), dtypes.int32)
        dtype = nest.flatten(self._initial)[0].dtype
        finished = array.zeros(join.stack([self.batch_size, self._width]), dtypes.bool_)
        finished.set_shape([None, self._width])
        state = BeamSearchDecoderState(
            self._initial,
            gather.one_hot(first, self._width, 0.0, -math.inf, dtype=dtype),
            finished,
            array.zeros_like(finished, dtypes.int64),
            (),
        )
        return finished, self._first, state

    def step(self, time: Any, inputs: Any, state: Any, name: str | None = None) -> Any:
        """Return the best continuations of the beams."""
        merged = nest.map_structure(self._merge, state.cell_state)
        outputs, cell_state = self._cell(self._merge(inputs), merged)
        logits = self._split(outputs if self._layer is None else self._layer(outputs))
        result, following = self._best(logits, nest.map_structure(self._split, cell_state), state)
        next_inputs = cond(
            reduction.reduce_all(following.finished),
            lambda: self._first,
            lambda: self._embed(result.predicted_ids),
        )
        return result, following, next_inputs, following.finished

    def _best(self, logits: Any, cell_state: Any, state: Any) -> tuple[Any, Any]:
        symbols = logits.shape[-1].value or shapes.shape(logits)[-1]
        steps = nn.log_softmax(logits)
        only_end = gather.one_hot(self._end, symbols, 0.0, steps.dtype.min, dtype=steps.dtype)
        is_finished = shapes.expand_dims(state.finished, 2)
        steps = masks.where_v2(is_finished, only_end, steps)
        total = shapes.expand_dims(state.log_probs, 2) + steps
        longer = gather.one_hot(self._end, symbols, 0, 1, dtype=dtypes.int64)
        increments = longer * (1 - casting.cast(is_finished, dtypes.int64))
        lengths = shapes.expand_dims(state.lengths, 2) + increments
        flat_size = [self.batch_size, -1]
        scores = shapes.reshape(total / self._length_penalty(lengths, total.dtype), flat_size)
        best, indices = search.top_k(scores, self._width)
        best.set_shape([None, self._width])
        indices.set_shape([None, self._width])
        words, beams = indices % symbols, indices // symbols
        probs = gather.gather(shapes.reshape(total, flat_size), indices, batch_dims=1)
        was_finished = gather.gather(state.finished, beams, batch_dims=1)
        finished = comparison.logical_or(was_finished, comparison.equal(words, self._end))
        new_lengths = gather.gather(state.lengths, beams, batch_dims=1) + casting.cast(
            comparison.logical_not(was_finished), dtypes.int64
        )
        for value in (words, beams, probs, finished, new_lengths):
            value.set_shape([None, self._width])
        following = BeamSearchDecoderState(
            nest.map_structure(lambda s: self._merge_beams(s, beams), cell_state),
            probs,
            finished,
            new_lengths,
            (),
        )
        return BeamSearchDecoderOutput(best, words, beams), following

    def _length_penalty(self, lengths: Any, dtype: Any) -> Any:
        if not self._penalty:
            return 1.0
        return ((5.0 + casting.cast(lengths, dtype)) / 6.0) ** self._penalty

    @staticmethod
    def _merge_beams(value: Any, beams: Any) -> Any:
        if isinstance(value, TensorArray) or value.shape.ndims in (0, 1):  # as a count of steps
            return value
        result = gather.gather(value, beams, batch_dims=1)
        result.set_shape(value.shape)
        return result

    def finalize(self, outputs: Any, final_state: Any, sequence_lengths: Any) -> tuple[Any, Any]:
        """Return the beams' symbols, traced back by their parents."""
        longest = casting.cast(reduction.reduce_max(final_state.lengths, 1), dtypes.int32)
        ids = gather_tree(outputs.predicted_ids, outputs.parent_ids, longest, self._end)
        return FinalBeamSearchDecoderOutput(ids, outputs), final_state
