"""`tf.contrib.legacy_seq2seq`: sequence-to-sequence models with one copy of the cell per step."""

from __future__ import annotations

__all__ = [
    "attention_decoder",
    "basic_rnn_seq2seq",
    "embedding_attention_decoder",
    "embedding_attention_seq2seq",
    "embedding_rnn_decoder",
    "embedding_rnn_seq2seq",
    "model_with_buckets",
    "rnn_decoder",
    "sequence_loss",
    "sequence_loss_by_example",
    "tied_rnn_seq2seq",
]

from collections.abc import Callable, Sequence
from typing import Any

from weft_contrib.rnn_cells import EmbeddingWrapper, OutputProjectionWrapper, linear
from weft_contrib.utils import last_dimension
from weft_graph.control_flow.conditional import cond
from weft_graph.ir import nest
from weft_graph.ir.builder import convert_to_tensor
from weft_graph.layers.base import unbuilt_copy
from weft_graph.nn import embedding
from weft_graph.ops import (
    arithmetic,
    array,
    casting,
    conv,
    identity,
    join,
    matmul,
    nn,
    reduction,
    shapes,
    trigonometry,
)
from weft_graph.rnn.static import static_rnn
from weft_graph.variables.scope import get_variable, get_variable_scope, variable_scope
from weft_tensor import dtypes, errors


def _extract_argmax_and_embed(
    table: Any, output_projection: Any = None, update_embedding: bool = True
) -> Callable[[Any, Any], Any]:
    """Return a loop function that embeds the most likely symbol of the previous step."""

    def loop_function(prev: Any, _: Any) -> Any:
        if output_projection is not None:
            weights, biases = output_projection
            prev = nn.bias_add(matmul.matmul(prev, weights), biases)
        rows = embedding.embedding_lookup(table, reduction.argmax(prev, 1))
        return rows if update_embedding else identity.stop_gradient(rows)

    return loop_function


def rnn_decoder(
    decoder_inputs: Sequence[Any],
    initial_state: Any,
    cell: Any,
    loop_function: Callable[[Any, int], Any] | None = None,
    scope: Any = None,
) -> tuple[list[Any], Any]:
    """Run a cell over a list of inputs.

    Args:
      decoder_inputs: tensors of shape (B, I).
      initial_state: initial state of the cell.
      cell: the cell.
      loop_function: function from an output and the step number to the next input; only the first
        of `decoder_inputs` is then used.
      scope: name or scope; "rnn_decoder" by default.
    Returns: the outputs, and the final state.
    """
    with variable_scope(scope or "rnn_decoder"):
        state, outputs, prev = initial_state, [], None
        for i, step_input in enumerate(decoder_inputs):
            if loop_function is not None and prev is not None:
                with variable_scope("loop_function", reuse=True):
                    step_input = loop_function(prev, i)
            if i > 0:
                get_variable_scope().reuse_variables()
            output, state = cell(step_input, state)
            outputs.append(output)
            prev = output if loop_function is not None else None
        return outputs, state


def basic_rnn_seq2seq(
    encoder_inputs: Sequence[Any],
    decoder_inputs: Sequence[Any],
    cell: Any,
    dtype: Any = dtypes.float32,
    scope: Any = None,
) -> tuple[list[Any], Any]:
    """Encode one sequence, and decode another from its final state, with separate weights.

    Args:
      encoder_inputs, decoder_inputs: tensors of shape (B, I).
      cell: the cell.
      dtype: element type of the initial state.
      scope: name or scope; "basic_rnn_seq2seq" by default.
    Returns: the decoder's outputs, and its final state.
    """
    with variable_scope(scope or "basic_rnn_seq2seq"):
        _, state = static_rnn(unbuilt_copy(cell), encoder_inputs, dtype=dtype)
        return rnn_decoder(decoder_inputs, state, cell)


def tied_rnn_seq2seq(
    encoder_inputs: Sequence[Any],
    decoder_inputs: Sequence[Any],
    cell: Any,
    loop_function: Callable[[Any, int], Any] | None = None,
    dtype: Any = dtypes.float32,
    scope: Any = None,
) -> tuple[list[Any], Any]:
    """Run `basic_rnn_seq2seq` with shared weights of encoder and decoder.

    Args:
      encoder_inputs, decoder_inputs, cell, dtype: as for `basic_rnn_seq2seq`.
      loop_function: as for `rnn_decoder`.
      scope: name or scope; "combined_tied_rnn_seq2seq" by default.
    Returns: the decoder's outputs, and its final state.
    """
    with variable_scope("combined_tied_rnn_seq2seq"):
        name = scope or "tied_rnn_seq2seq"
        _, state = static_rnn(cell, encoder_inputs, dtype=dtype, scope=name)
        get_variable_scope().reuse_variables()
        return rnn_decoder(decoder_inputs, state, cell, loop_function, scope=name)


def embedding_rnn_decoder(
    decoder_inputs: Sequence[Any],
    initial_state: Any,
    cell: Any,
    num_symbols: int,
    embedding_size: int,
    output_projection: Any = None,
    feed_previous: bool = False,
    update_embedding_for_previous: bool = True,
    scope: Any = None,
) -> tuple[list[Any], Any]:
    """Run `rnn_decoder` over ids.

    Args:
      decoder_inputs: integers, shape (B,) each.
      initial_state, cell: as for `rnn_decoder`.
      num_symbols, embedding_size: shape of the variable "embedding".
      output_projection: weights and biases from outputs to symbols, or None.
      feed_previous: use the most likely symbol of the previous step as the input.
      update_embedding_for_previous: propagate gradients through these embeddings.
      scope: name or scope; "embedding_rnn_decoder" by default.
    Returns: the outputs, and the final state.
    """
    with variable_scope(scope or "embedding_rnn_decoder"):
        table = get_variable("embedding", [num_symbols, embedding_size])
        loop = (
            _extract_argmax_and_embed(table, output_projection, update_embedding_for_previous)
            if feed_previous
            else None
        )
        rows = [embedding.embedding_lookup(table, ids) for ids in decoder_inputs]
        return rnn_decoder(rows, initial_state, cell, loop)


def embedding_rnn_seq2seq(
    encoder_inputs: Sequence[Any],
    decoder_inputs: Sequence[Any],
    cell: Any,
    num_encoder_symbols: int,
    num_decoder_symbols: int,
    embedding_size: int,
    output_projection: Any = None,
    feed_previous: Any = False,
    dtype: Any = None,
    scope: Any = None,
) -> tuple[list[Any], Any]:
    """Run `basic_rnn_seq2seq` over ids.

    Args:
      encoder_inputs, decoder_inputs: integers, shape (B,) each.
      cell: the cell.
      num_encoder_symbols, num_decoder_symbols, embedding_size: shapes of the embeddings.
      output_projection: weights and biases; without it the cell's outputs are projected to symbols.
      feed_previous: as for `embedding_rnn_decoder`; a bool or a bool tensor.
      dtype: element type of the initial state.
      scope: name or scope; "embedding_rnn_seq2seq" by default.
    Returns: the decoder's outputs, and its final state.
    """
    with variable_scope(scope or "embedding_rnn_seq2seq") as var_scope:
        dtype = dtype or dtypes.float32
        encoder = EmbeddingWrapper(unbuilt_copy(cell), num_encoder_symbols, embedding_size)
        _, state = static_rnn(encoder, encoder_inputs, dtype=dtype)
        if output_projection is None:
            cell = OutputProjectionWrapper(cell, num_decoder_symbols)

        def decode(feed: bool, scope: Any = None) -> tuple[list[Any], Any]:
            return embedding_rnn_decoder(
                decoder_inputs,
                state,
                cell,
                num_decoder_symbols,
                embedding_size,
                output_projection,
                feed,
                scope=scope,
            )

        return _branch_on_feed(feed_previous, decode, var_scope)


def _branch_on_feed(
    feed_previous: Any, decode: Callable[..., Any], var_scope: Any
) -> tuple[list[Any], Any]:
    """Call `decode(feed_previous)`; for a tensor, build a `cond` whose branches share weights."""
    if isinstance(feed_previous, bool):
        outputs, state = decode(feed_previous)
        return outputs, state
    structure: dict[str, Any] = {}

    def branch(feed: bool) -> list[Any]:
        with variable_scope(var_scope, reuse=None if feed else True):
            outputs, state = decode(feed)
        structure["count"], structure["state"] = len(outputs), state
        return [*outputs, *nest.flatten(state)]

    results = cond(feed_previous, lambda: branch(True), lambda: branch(False))
    count = structure["count"]
    return results[:count], nest.pack_sequence_as(structure["state"], results[count:])


def attention_decoder(
    decoder_inputs: Sequence[Any],
    initial_state: Any,
    attention_states: Any,
    cell: Any,
    output_size: int | None = None,
    num_heads: int = 1,
    loop_function: Callable[[Any, int], Any] | None = None,
    dtype: Any = None,
    scope: Any = None,
    initial_state_attention: bool = False,
) -> tuple[list[Any], Any]:
    """Run a decoder with attention to the encoder's outputs.

    Args:
      decoder_inputs: tensors of shape (B, I).
      initial_state: initial state of the cell.
      attention_states: shape (B, T, A), with A and T known.
      cell: the cell.
      output_size: size of the outputs; the cell's by default.
      num_heads: number of attention heads.
      loop_function: as for `rnn_decoder`.
      dtype: element type of the initial state.
      scope: name or scope; "attention_decoder" by default.
      initial_state_attention: attend once before the first step.
    Returns: the outputs, and the final state.
    Raises: InvalidArgumentError: there are no inputs or heads, or A is unknown.
    Source: Vinyals et al. 2014.
    """
    if not decoder_inputs or num_heads < 1:
        raise errors.InvalidArgumentError(
            "attention_decoder requires at least one input and one attention head"
        )
    states = convert_to_tensor(attention_states)
    if states.shape[2].value is None:
        raise errors.InvalidArgumentError(f"Shape[2] of attention_states must be known: {states}")
    size_out: int = cell.output_size if output_size is None else output_size
    with variable_scope(scope or "attention_decoder"):
        heads = _Heads(states, num_heads)
        batch = shapes.shape(convert_to_tensor(decoder_inputs[0]))[0]
        size = states.shape[2].value
        contexts = [array.zeros(join.stack([batch, size]), states.dtype) for _ in range(num_heads)]
        for context in contexts:
            context.set_shape([None, size])
        if initial_state_attention:
            contexts = heads(initial_state)
        state, outputs, prev = initial_state, [], None
        for i, step_input in enumerate(decoder_inputs):
            if i > 0:
                get_variable_scope().reuse_variables()
            if loop_function is not None and prev is not None:
                with variable_scope("loop_function", reuse=True):
                    step_input = loop_function(prev, i)
            step_input = convert_to_tensor(step_input)
            x = linear([step_input, *contexts], last_dimension(step_input.shape, 2))
            cell_output, state = cell(x, state)
            if i == 0 and initial_state_attention:
                with variable_scope(get_variable_scope(), reuse=True):
                    contexts = heads(state)
            else:
                contexts = heads(state)
            with variable_scope("AttnOutputProjection"):
                output = linear([cell_output, *contexts], size_out)
            outputs.append(output)
            prev = output if loop_function is not None else None
        return outputs, state


class _Heads:
    """Additive multi-head attention over fixed states."""

    def __init__(self, states: Any, count: int) -> None:
        size = states.shape[2].value
        self._steps = states.shape[1].value or shapes.shape(states)[1]
        self._size = size
        self._hidden = shapes.reshape(states, [-1, self._steps, 1, size])
        self._features, self._weights = [], []
        for a in range(count):
            kernel = get_variable(f"AttnW_{a}", [1, 1, size, size], states.dtype.base_dtype)
            self._features.append(conv.conv2d(self._hidden, kernel, [1, 1, 1, 1], "SAME"))
            self._weights.append(get_variable(f"AttnV_{a}", [size], states.dtype.base_dtype))

    def __call__(self, query: Any) -> list[Any]:
        """Return the attention-weighted states for a query, one per head."""
        parts = nest.flatten(query)
        query = parts[0] if len(parts) == 1 else join.concat(parts, 1)
        contexts = []
        for a, (features, weights) in enumerate(zip(self._features, self._weights, strict=True)):
            with variable_scope(f"Attention_{a}"):
                y = linear(query, self._size)
            y = shapes.reshape(y, [-1, 1, 1, self._size])
            scores = reduction.reduce_sum(weights * trigonometry.tanh(features + y), [2, 3])
            shares = shapes.reshape(nn.softmax(scores), [-1, self._steps, 1, 1])
            context = reduction.reduce_sum(shares * self._hidden, [1, 2])
            contexts.append(shapes.reshape(context, [-1, self._size]))
        return contexts


def embedding_attention_decoder(
    decoder_inputs: Sequence[Any],
    initial_state: Any,
    attention_states: Any,
    cell: Any,
    num_symbols: int,
    embedding_size: int,
    num_heads: int = 1,
    output_size: int | None = None,
    output_projection: Any = None,
    feed_previous: bool = False,
    update_embedding_for_previous: bool = True,
    dtype: Any = None,
    scope: Any = None,
    initial_state_attention: bool = False,
) -> tuple[list[Any], Any]:
    """Run `attention_decoder` over ids.

    Args:
      decoder_inputs: integers, shape (B,) each. num_symbols, embedding_size, output_projection,
        feed_previous, update_embedding_for_previous: as for `embedding_rnn_decoder`. initial_state,
        attention_states, cell, num_heads, output_size, dtype, initial_state_attention: as for
        `attention_decoder`.
      scope: name or scope; "embedding_attention_decoder" by default.
    Returns: the outputs, and the final state.
    """
    with variable_scope(scope or "embedding_attention_decoder"):
        table = get_variable("embedding", [num_symbols, embedding_size])
        loop = (
            _extract_argmax_and_embed(table, output_projection, update_embedding_for_previous)
            if feed_previous
            else None
        )
        rows = [embedding.embedding_lookup(table, ids) for ids in decoder_inputs]
        return attention_decoder(
            rows,
            initial_state,
            attention_states,
            cell,
            output_size or cell.output_size,
            num_heads,
            loop,
            initial_state_attention=initial_state_attention,
        )


def embedding_attention_seq2seq(
    encoder_inputs: Sequence[Any],
    decoder_inputs: Sequence[Any],
    cell: Any,
    num_encoder_symbols: int,
    num_decoder_symbols: int,
    embedding_size: int,
    num_heads: int = 1,
    output_projection: Any = None,
    feed_previous: Any = False,
    dtype: Any = None,
    scope: Any = None,
    initial_state_attention: bool = False,
) -> tuple[list[Any], Any]:
    """Run `embedding_rnn_seq2seq` with a decoder that attends to the encoder's outputs.

    Args:
      encoder_inputs, decoder_inputs, cell, num_encoder_symbols, num_decoder_symbols,
        embedding_size, output_projection, feed_previous, dtype: as for `embedding_rnn_seq2seq`.
      num_heads, initial_state_attention: as for `attention_decoder`.
      scope: name or scope; "embedding_attention_seq2seq" by default.
    Returns: the decoder's outputs, and its final state.
    """
    with variable_scope(scope or "embedding_attention_seq2seq") as var_scope:
        dtype = dtype or dtypes.float32
        encoder = EmbeddingWrapper(unbuilt_copy(cell), num_encoder_symbols, embedding_size)
        outputs, state = static_rnn(encoder, encoder_inputs, dtype=dtype)
        rows = [shapes.reshape(output, [-1, 1, cell.output_size]) for output in outputs]
        attention_states = join.concat(rows, 1)
        output_size = None
        if output_projection is None:
            cell = OutputProjectionWrapper(cell, num_decoder_symbols)
            output_size = num_decoder_symbols

        def decode(feed: bool) -> tuple[list[Any], Any]:
            return embedding_attention_decoder(
                decoder_inputs,
                state,
                attention_states,
                cell,
                num_decoder_symbols,
                embedding_size,
                num_heads,
                output_size,
                output_projection,
                feed,
                initial_state_attention=initial_state_attention,
            )

        return _branch_on_feed(feed_previous, decode, var_scope)


def sequence_loss_by_example(
    logits: Sequence[Any],
    targets: Sequence[Any],
    weights: Sequence[Any],
    average_across_timesteps: bool = True,
    softmax_loss_function: Callable[..., Any] | None = None,
    name: str | None = None,
) -> Any:
    """Return the weighted cross-entropy of each sequence.

    Args:
      logits: tensors of shape (B, N).
      targets: integers, shape (B,) each.
      weights: floating, shape (B,) each.
      average_across_timesteps: divide by the sum of weights.
      softmax_loss_function: function of `labels` and `logits` that replaces the cross-entropy.
        Returns: shape (B,).
    Raises: InvalidArgumentError: the lists differ in length.
    """
    if not len(logits) == len(targets) == len(weights):
        raise errors.InvalidArgumentError(
            "Lengths of logits, weights, and targets must be the same "
            f"{len(logits)}, {len(weights)}, {len(targets)}."
        )
    entropy = softmax_loss_function or nn.sparse_softmax_cross_entropy_with_logits
    losses = []
    for logit, target, weight in zip(logits, targets, weights, strict=True):
        if softmax_loss_function is None:
            target = shapes.reshape(target, [-1])
        losses.append(entropy(labels=target, logits=logit) * weight)
    total = arithmetic.add_n(losses)
    if average_across_timesteps:
        total /= arithmetic.add_n([convert_to_tensor(w) for w in weights]) + 1e-12
    return total


def sequence_loss(
    logits: Sequence[Any],
    targets: Sequence[Any],
    weights: Sequence[Any],
    average_across_timesteps: bool = True,
    average_across_batch: bool = True,
    softmax_loss_function: Callable[..., Any] | None = None,
    name: str | None = None,
) -> Any:
    """Return the sum of `sequence_loss_by_example` over the batch.

    Args:
      logits, targets, weights, average_across_timesteps, softmax_loss_function: as for
        `sequence_loss_by_example`.
      average_across_batch: divide by the number of sequences.
    Returns: rank 0.
    """
    losses = sequence_loss_by_example(
        logits, targets, weights, average_across_timesteps, softmax_loss_function
    )
    total = reduction.reduce_sum(losses)
    if average_across_batch:
        total /= casting.cast(shapes.shape(convert_to_tensor(targets[0]))[0], total.dtype)
    return total


def model_with_buckets(
    encoder_inputs: Sequence[Any],
    decoder_inputs: Sequence[Any],
    targets: Sequence[Any],
    weights: Sequence[Any],
    buckets: Sequence[tuple[int, int]],
    seq2seq: Callable[..., Any],
    softmax_loss_function: Callable[..., Any] | None = None,
    per_example_loss: bool = False,
    name: str | None = None,
) -> tuple[list[Any], list[Any]]:
    """Build a model for each bucket, with shared weights.

    Args:
      encoder_inputs, decoder_inputs, targets, weights: lists as long as the largest bucket.
      buckets: pairs of encoder and decoder lengths.
      seq2seq: a function from encoder and decoder inputs to outputs and states.
      softmax_loss_function: as for `sequence_loss`.
      per_example_loss: return losses of shape (B,).
    Returns: the outputs and the loss of each bucket.
    Raises: InvalidArgumentError: a list is too short.
    """
    longest_in, longest_out = (max(sizes) for sizes in zip(*buckets, strict=True))
    if len(encoder_inputs) < longest_in or min(map(len, (targets, weights))) < longest_out:
        raise errors.InvalidArgumentError(
            f"lists as long as the last bucket {buckets[-1]} are required, got "
            f"{len(encoder_inputs)}, {len(targets)} and {len(weights)}"
        )
    outputs, losses = [], []
    loss = sequence_loss_by_example if per_example_loss else sequence_loss
    for j, (size_in, size_out) in enumerate(buckets):
        with variable_scope(get_variable_scope(), reuse=True if j > 0 else None):
            bucket_outputs, _ = seq2seq(encoder_inputs[:size_in], decoder_inputs[:size_out])
            outputs.append(bucket_outputs)
            losses.append(
                loss(
                    bucket_outputs,
                    targets[:size_out],
                    weights[:size_out],
                    softmax_loss_function=softmax_loss_function,
                )
            )
    return outputs, losses
