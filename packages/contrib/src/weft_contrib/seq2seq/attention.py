"""Attention mechanisms, and the cell wrapper that uses them."""

from __future__ import annotations

__all__ = [
    "AttentionMechanism",
    "AttentionWrapper",
    "AttentionWrapperState",
    "BahdanauAttention",
    "LuongAttention",
    "hardmax",
    "safe_cumprod",
    "tile_batch",
]

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from weft_graph.control_flow.tensor_array import TensorArray
from weft_graph.ir import nest
from weft_graph.ir.builder import convert_to_tensor
from weft_graph.layers.core import Dense
from weft_graph.ops import (
    arithmetic,
    array,
    casting,
    elementary,
    gather,
    identity,
    join,
    masks,
    matmul,
    nn,
    powers,
    reduction,
    shapes,
    trigonometry,
)
from weft_graph.ops.reduction import cumsum
from weft_graph.rnn.cell.base import RNNCell
from weft_graph.variables.initializers import Constant, Ones, Zeros
from weft_graph.variables.scope import get_variable, variable_scope
from weft_tensor import errors


def tile_batch(t: Any, multiplier: int, name: str | None = None) -> Any:
    """Repeat each example, with the copies adjacent.

    Args:
      t: a structure of tensors of shape (B, ...).
      multiplier: number of copies.
    Returns: shape (B * multiplier, ...) each.

    Examples:
      >>> wf.Session().run(wf.contrib.seq2seq.tile_batch(wf.constant([1, 2]), 2))
      array([1, 1, 2, 2], dtype=int32)
    """

    def tile_value(value: Any) -> Any:
        if isinstance(value, TensorArray):
            return value
        x = convert_to_tensor(value)
        if x.shape.ndims is None:
            raise errors.InvalidArgumentError("t must have statically known rank")
        if not x.shape.ndims:
            return x
        tiled_rows = join.tile(
            shapes.expand_dims(x, 1), [1, multiplier, *[1] * (x.shape.ndims - 1)]
        )
        result = shapes.reshape(tiled_rows, join.concat([[-1], shapes.shape(x)[1:]], 0))
        size = x.shape[0].value
        result.set_shape([None if size is None else size * multiplier, *x.shape[1:]])
        return result

    return nest.map_structure(tile_value, t)


def hardmax(logits: Any, name: str | None = None) -> Any:
    """Return 1 at the largest element of the last axis, and 0 elsewhere.

    Args:
      logits: floating.
    """
    x = convert_to_tensor(logits)
    depth = x.shape[-1].value or shapes.shape(x)[-1]
    return gather.one_hot(reduction.argmax(x, -1), depth, dtype=x.dtype)


def safe_cumprod(x: Any, *args: Any, **kwargs: Any) -> Any:
    """Return the cumulative product of numbers in [0, 1], computed from logarithms.

    Args:
      x: floating.
      *args, **kwargs: as for `cumsum`.
    """
    x = convert_to_tensor(x)
    logs = elementary.log(arithmetic.clip_by_value(x, 1.1754944e-38, 1.0))
    return elementary.exp(cumsum(logs, *args, **kwargs))


class AttentionMechanism:
    """Interface of mechanisms that compute attention weights over a memory.

    Attributes:
      keys, values: the scored keys and the values of the memory: shape (B, T, ...).
      batch_size, alignments_size: B and T.
    """

    keys: Any
    values: Any
    batch_size: Any
    alignments_size: Any

    def __call__(self, query: Any, state: Any) -> tuple[Any, Any]:
        """Return the attention weights over the memory, shape (B, T), and the next state.

        Args:
          query: shape (B, Q).
          state: shape (B, T).
        """
        raise NotImplementedError

    def initial_alignments(self, batch_size: Any, dtype: Any) -> Any:
        """Return initial attention weights, which are zero.

        Args:
          batch_size, dtype: batch size and element type of the weights.
        """
        zeros = array.zeros(join.stack([batch_size, self.alignments_size]), dtype)
        num_steps = self.values.shape[1].value
        zeros.set_shape([None, num_steps])
        return zeros

    def initial_state(self, batch_size: Any, dtype: Any) -> Any:
        """Return the initial state, which is the initial attention weights.

        Args:
          batch_size, dtype: batch size and element type of the state.
        """
        return self.initial_alignments(batch_size, dtype)


class _ScoredAttention(AttentionMechanism):
    """Base class of additive and multiplicative attention.

    Args:
      query_layer, memory_layer: layers applied to queries and memory, or None.
      memory: shape (B, T, M).
      memory_sequence_length: integers, shape (B,); later steps are masked.
      probability_fn: function from scores to weights; softmax by default.
      score_mask_value: the score of masked steps; minus infinity by default.
    """

    def __init__(
        self,
        query_layer: Any,
        memory: Any,
        memory_layer: Any,
        memory_sequence_length: Any = None,
        probability_fn: Callable[..., Any] | None = None,
        score_mask_value: Any = None,
    ) -> None:
        self.query_layer, self.memory_layer = query_layer, memory_layer
        x = convert_to_tensor(memory)
        self._mask = None
        if memory_sequence_length is not None:
            lengths = convert_to_tensor(memory_sequence_length)
            self._mask = masks.sequence_mask(lengths, shapes.shape(x)[1])
            shares = casting.cast(self._mask, x.dtype)
            x *= shapes.expand_dims(shares, -1)
        self.values = x
        self.keys = x if memory_layer is None else memory_layer(x)
        self.batch_size = x.shape[0].value or shapes.shape(x)[0]
        self.alignments_size = x.shape[1].value or shapes.shape(x)[1]
        self._probability = probability_fn or nn.softmax
        self._masked_score = -math.inf if score_mask_value is None else score_mask_value

    def _shares(self, score: Any) -> Any:
        if self._mask is not None:
            score = masks.where(self._mask, score, array.zeros_like(score) + self._masked_score)
        return self._probability(score)


class LuongAttention(_ScoredAttention):
    """Multiplicative attention: the score is the dot product of query and key.

    Args:
      num_units: size of the query, to which keys are projected.
      memory, memory_sequence_length, probability_fn, score_mask_value: the memory, shape (B, T, M),
        its lengths, the function from scores to weights, and the score of masked steps.
      scale: multiply by a variable "attention_g".
      dtype: element type of the variables.
    Source: Luong et al. 2015.
    """

    def __init__(
        self,
        num_units: int,
        memory: Any,
        memory_sequence_length: Any = None,
        scale: bool = False,
        probability_fn: Callable[..., Any] | None = None,
        score_mask_value: Any = None,
        dtype: Any = None,
        custom_key_value_fn: Any = None,
        name: str = "LuongAttention",
    ) -> None:
        layer = Dense(num_units, name="memory_layer", use_bias=False, dtype=dtype)
        super().__init__(
            None, memory, layer, memory_sequence_length, probability_fn, score_mask_value
        )
        if custom_key_value_fn is not None:
            self.keys, self.values = custom_key_value_fn(self.keys, self.values)
        self._num_units, self._scale = num_units, scale

    def __call__(self, query: Any, state: Any) -> tuple[Any, Any]:
        """Return the attention weights, twice: as weights and as the state."""
        depth, key_depth = query.shape[-1].value, self.keys.shape[-1].value
        if depth != key_depth:
            raise errors.InvalidArgumentError(
                "Incompatible or unknown inner dimensions between query and keys: query has "
                f"{depth} units, keys have {key_depth}; num_units must be the query's"
            )
        with variable_scope(None, "luong_attention", [query]):
            product = matmul.matmul(shapes.expand_dims(query, 1), self.keys, transpose_b=True)
            score = shapes.squeeze(product, [1])
            if self._scale:
                score *= get_variable("attention_g", (), query.dtype, Ones())
        shares = self._shares(score)
        return shares, shares


class BahdanauAttention(_ScoredAttention):
    """Additive attention: the score is v · tanh(key + query).

    Args:
      num_units: size to which queries and keys are projected.
      memory, memory_sequence_length, probability_fn, score_mask_value: as for `LuongAttention`.
      normalize: scale v to a learned length, and add a bias.
      dtype: element type of the variables.
    Source: Bahdanau et al. 2015; Salimans and Kingma 2016.
    """

    def __init__(
        self,
        num_units: int,
        memory: Any,
        memory_sequence_length: Any = None,
        normalize: bool = False,
        probability_fn: Callable[..., Any] | None = None,
        score_mask_value: Any = None,
        dtype: Any = None,
        custom_key_value_fn: Any = None,
        name: str = "BahdanauAttention",
    ) -> None:
        of_query = Dense(num_units, name="query_layer", use_bias=False, dtype=dtype)
        of_memory = Dense(num_units, name="memory_layer", use_bias=False, dtype=dtype)
        super().__init__(
            of_query, memory, of_memory, memory_sequence_length, probability_fn, score_mask_value
        )
        if custom_key_value_fn is not None:
            self.keys, self.values = custom_key_value_fn(self.keys, self.values)
        self._num_units, self._normalize = num_units, normalize

    def __call__(self, query: Any, state: Any) -> tuple[Any, Any]:
        """Return the attention weights, twice: as weights and as the state."""
        with variable_scope(None, "bahdanau_attention", [query]):
            total = self.keys + shapes.expand_dims(self.query_layer(query), 1)
            units, dtype = self._num_units, query.dtype
            v: Any = get_variable("attention_v", [units], dtype)
            if self._normalize:
                length = get_variable("attention_g", (), dtype, Constant(math.sqrt(1.0 / units)))
                total += get_variable("attention_b", [units], dtype, Zeros())
                v = length * v / powers.sqrt(reduction.reduce_sum(powers.square(v)))
            score = reduction.reduce_sum(v * trigonometry.tanh(total), [2])
        shares = self._shares(score)
        return shares, shares


class AttentionWrapperState(NamedTuple):
    """The state of an `AttentionWrapper`.

    Attributes:
      cell_state: state of the wrapped cell.
      attention: the last attention, shape (B, A).
      time: int32, rank 0.
      alignments: the last weights, shape (B, T); a tuple for several mechanisms.
      alignment_history: a TensorArray of weights, or ().
      attention_state: state of the mechanism; a tuple for several mechanisms.
    """

    cell_state: Any
    attention: Any
    time: Any
    alignments: Any
    alignment_history: Any
    attention_state: Any

    def clone(self, **kwargs: Any) -> AttentionWrapperState:
        """Return the state with some parts replaced.

        Args:
          **kwargs: parts by name.
        """

        def with_shape(old: Any, new: Any) -> Any:
            if isinstance(old, TensorArray) or not hasattr(new, "set_shape"):
                return new
            new = identity.identity(new) if new.shape.ndims is None else new
            if new.shape.is_compatible_with(old.shape):
                new.set_shape(old.shape)
            return new

        cloned: AttentionWrapperState = nest.map_structure(
            with_shape, self, self._replace(**kwargs)
        )
        return cloned


class AttentionWrapper(RNNCell):
    """A wrapper that lets a cell attend to a memory at each step.

    Args:
      cell: the wrapped cell.
      attention_mechanism: a mechanism, or a list.
      attention_layer_size: size to which the concatenated output and context are projected; a list
        for several mechanisms. Without it, the attention is the context.
      alignment_history: keep the weights of all steps.
      cell_input_fn: function from inputs and attention to the cell's inputs; concatenation by
        default.
      output_attention: return the attention instead of the cell's output.
      initial_cell_state: initial state of the cell, for `zero_state`.
      attention_layer: a layer that replaces `attention_layer_size`.
      name: name of the cell.
    Source: Luong et al. 2015.
    """

    def __init__(
        self,
        cell: Any,
        attention_mechanism: Any,
        attention_layer_size: Any = None,
        alignment_history: bool = False,
        cell_input_fn: Callable[..., Any] | None = None,
        output_attention: bool = True,
        initial_cell_state: Any = None,
        name: str | None = None,
        attention_layer: Any = None,
    ) -> None:
        super().__init__(name=name)
        self._is_sequence = isinstance(attention_mechanism, list | tuple)
        self._mechanisms = list(attention_mechanism) if self._is_sequence else [attention_mechanism]
        self._layers = self._build_layers(attention_layer_size, attention_layer)
        self._cell = cell
        self._keeps_history = alignment_history
        self._cell_input = cell_input_fn or (
            lambda inputs, attention: join.concat([inputs, attention], -1)
        )
        self._output_attention = output_attention
        self._initial_cell_state = initial_cell_state

    def _build_layers(self, size: Any, layer: Any) -> list[Any]:
        count = len(self._mechanisms)
        if size is not None and layer is not None:
            raise errors.InvalidArgumentError(
                "Only one of attention_layer_size and attention_layer should be set"
            )
        sizes_or_layers = size if size is not None else layer
        if sizes_or_layers is None:
            return [None] * count
        values = (
            list(sizes_or_layers)
            if isinstance(sizes_or_layers, list | tuple)
            else [sizes_or_layers]
        )
        if len(values) != count:
            raise errors.InvalidArgumentError(
                f"an attention layer for each mechanism is required, got {len(values)} for {count}"
            )
        if layer is not None:
            return values
        return [Dense(units, name="attention_layer", use_bias=False) for units in values]

    @property
    def _attention_size(self) -> int:
        sizes = [
            int(m.values.shape[-1].value) if layer is None else int(layer.units)
            for m, layer in zip(self._mechanisms, self._layers, strict=True)
        ]
        return sum(sizes)

    def _as_given(self, values: Sequence[Any]) -> Any:
        return tuple(values) if self._is_sequence else values[0]

    @property
    def output_size(self) -> Any:
        """Return the size of the attention, or of the cell's output."""
        return self._attention_size if self._output_attention else self._cell.output_size

    @property
    def state_size(self) -> Any:
        """Return the sizes in the structure of the state."""
        sizes = [m.alignments_size for m in self._mechanisms]
        return AttentionWrapperState(
            self._cell.state_size,
            self._attention_size,
            (),
            self._as_given(sizes),
            self._as_given([() for _ in sizes]) if self._keeps_history else (),
            self._as_given(sizes),
        )

    def zero_state(self, batch_size: Any, dtype: Any) -> AttentionWrapperState:
        """Return the initial state.

        Args:
          batch_size: B, the batch size of the memory.
          dtype: element type of the state.
        """
        inner = self._initial_cell_state
        if inner is None:
            inner = self._cell.zero_state(batch_size, dtype)
        inner = nest.map_structure(lambda s: identity.identity(s, "checked_cell_state"), inner)
        shares = [m.initial_alignments(batch_size, dtype) for m in self._mechanisms]
        history = [
            TensorArray(dtype, 0, dynamic_size=True, element_shape=share.shape) for share in shares
        ]
        attention = array.zeros(join.stack([batch_size, self._attention_size]), dtype)
        attention.set_shape([None, self._attention_size])
        states = [m.initial_state(batch_size, dtype) for m in self._mechanisms]
        return AttentionWrapperState(
            inner,
            attention,
            convert_to_tensor(0),
            self._as_given(shares),
            self._as_given(history) if self._keeps_history else (),
            self._as_given(states),
        )

    def call(self, inputs: Any, state: Any) -> tuple[Any, AttentionWrapperState]:
        """Run one step."""
        if not isinstance(state, AttentionWrapperState):
            raise errors.InvalidTypeError(f"an AttentionWrapperState is required, got {state!r}")
        output, inner = self._cell(self._cell_input(inputs, state.attention), state.cell_state)
        attention_states = state.attention_state if self._is_sequence else (state.attention_state,)
        attended = [
            self._attend(mechanism, layer, output, previous)
            for mechanism, layer, previous in zip(
                self._mechanisms, self._layers, attention_states, strict=True
            )
        ]
        contexts, shares, states = zip(*attended, strict=True)
        history = state.alignment_history
        if self._keeps_history:
            histories = history if self._is_sequence else (history,)
            written = [ta.write(state.time, s) for ta, s in zip(histories, shares, strict=True)]
            history = self._as_given(written)
        attention = contexts[0] if len(contexts) == 1 else join.concat(list(contexts), 1)
        following = AttentionWrapperState(
            inner,
            attention,
            state.time + 1,
            self._as_given(shares),
            history,
            self._as_given(states),
        )
        return (attention if self._output_attention else output), following

    @staticmethod
    def _attend(mechanism: Any, layer: Any, output: Any, state: Any) -> tuple[Any, Any, Any]:
        shares, next_state = mechanism(output, state)
        product = matmul.matmul(shapes.expand_dims(shares, 1), mechanism.values)
        context = shapes.squeeze(product, [1])
        if layer is not None:
            context = layer(join.concat([output, context], 1))
        return context, shares, next_state
