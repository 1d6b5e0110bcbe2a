"""Helpers of decoders, which sample outputs and choose the next inputs."""

from __future__ import annotations

__all__ = [
    "CustomHelper",
    "GreedyEmbeddingHelper",
    "Helper",
    "SampleEmbeddingHelper",
    "ScheduledEmbeddingTrainingHelper",
    "TrainingHelper",
]

from collections.abc import Callable
from typing import Any

from weft_graph.control_flow.conditional import cond
from weft_graph.control_flow.tensor_array import TensorArray
from weft_graph.ir import nest
from weft_graph.ir.builder import convert_to_tensor
from weft_graph.nn import embedding as nn_embedding
from weft_graph.ops import (
    array,
    casting,
    comparison,
    masks,
    random,
    reduction,
    shapes,
)
from weft_graph.rnn.cell.steps import transpose_batch_time
from weft_tensor import dtypes, errors
from weft_tensor.shape import TensorShape


class Helper:
    """Base class of the helpers of `BasicDecoder`.

    Attributes:
      batch_size: int32, rank 0.
      sample_ids_shape, sample_ids_dtype: shape (without the batch) and element type of samples.
    """

    batch_size: Any
    sample_ids_shape: Any = TensorShape([])
    sample_ids_dtype: Any = dtypes.int32

    def initialize(self, name: str | None = None) -> tuple[Any, Any]:
        """Return the initial `finished` mask and the initial inputs."""
        raise NotImplementedError

    def sample(self, time: Any, outputs: Any, state: Any, name: str | None = None) -> Any:
        """Return a sample for each example.

        Args:
          time, outputs, state: time, outputs and state of the step.
        """
        raise NotImplementedError

    def next_inputs(
        self, time: Any, outputs: Any, state: Any, sample_ids: Any, name: str | None = None
    ) -> tuple[Any, Any, Any]:
        """Return the `finished` mask, the next inputs, and the next state.

        Args:
          time, outputs, state, sample_ids: time, outputs, state and samples of the step.
        """
        raise NotImplementedError


class CustomHelper(Helper):
    """A helper that consists of three functions.

    Args:
      initialize_fn, sample_fn, next_inputs_fn: the methods of `Helper`.
      sample_ids_shape, sample_ids_dtype: shape and element type of samples; int32 scalars by
        default.
    """

    def __init__(
        self,
        initialize_fn: Callable[..., Any],
        sample_fn: Callable[..., Any],
        next_inputs_fn: Callable[..., Any],
        sample_ids_shape: Any = None,
        sample_ids_dtype: Any = None,
    ) -> None:
        self._initialize, self._sample, self._next = initialize_fn, sample_fn, next_inputs_fn
        self.sample_ids_shape = TensorShape(sample_ids_shape or [])
        self.sample_ids_dtype = sample_ids_dtype or dtypes.int32
        self._batch_size: Any = None

    @property
    def batch_size(self) -> Any:
        """Return the size of the initial `finished` mask."""
        if self._batch_size is None:
            raise errors.FailedPreconditionError("batch_size accessed before initialize was called")
        return self._batch_size

    def initialize(self, name: str | None = None) -> tuple[Any, Any]:
        """Call the constructor's `initialize_fn`."""
        finished, inputs = self._initialize()
        self._batch_size = shapes.size(finished)
        return finished, inputs

    def sample(self, time: Any, outputs: Any, state: Any, name: str | None = None) -> Any:
        """Call the constructor's `sample_fn`."""
        return self._sample(time=time, outputs=outputs, state=state)

    def next_inputs(
        self, time: Any, outputs: Any, state: Any, sample_ids: Any, name: str | None = None
    ) -> tuple[Any, Any, Any]:
        """Call the constructor's `next_inputs_fn`."""
        step_result: tuple[Any, Any, Any] = self._next(
            time=time, outputs=outputs, state=state, sample_ids=sample_ids
        )
        return step_result


class TrainingHelper(Helper):
    """A helper that reads the inputs from a sequence.

    Args:
      inputs: shape (B, T, ...), or a structure of such.
      sequence_length: int32, shape (B,).
      time_major: the inputs have shape (T, B, ...).
    """

    def __init__(
        self, inputs: Any, sequence_length: Any, time_major: bool = False, name: str | None = None
    ) -> None:
        self._inputs = nest.map_structure(convert_to_tensor, inputs)
        if not time_major:
            self._inputs = nest.map_structure(transpose_batch_time, self._inputs)
        self._arrays = nest.map_structure(_unstack, self._inputs)
        self._lengths = convert_to_tensor(sequence_length)
        if self._lengths.shape.ndims not in (None, 1):
            raise errors.InvalidArgumentError(
                f"Expected sequence_length to be a vector, got {self._lengths!r}"
            )
        self._zeros = nest.map_structure(
            lambda sequence: array.zeros_like(sequence[0]), self._inputs
        )
        self.batch_size = shapes.size(self._lengths)

    @property
    def inputs(self) -> Any:
        """The inputs, with time as the first axis."""
        return self._inputs

    @property
    def sequence_length(self) -> Any:
        """The lengths of the sequences."""
        return self._lengths

    def initialize(self, name: str | None = None) -> tuple[Any, Any]:
        """Return the initial inputs; zeros for empty sequences."""
        finished = comparison.equal(self._lengths, 0)
        return finished, self._read_inputs(0, reduction.reduce_all(finished))

    def _read_inputs(self, time: Any, all_finished: Any) -> Any:
        return cond(
            all_finished,
            lambda: self._zeros,
            lambda: nest.map_structure(lambda ta: ta.read(time), self._arrays),
        )

    def sample(self, time: Any, outputs: Any, state: Any, name: str | None = None) -> Any:
        """Return the index of the largest output."""
        return casting.cast(reduction.argmax(outputs, -1), dtypes.int32)

    def next_inputs(
        self, time: Any, outputs: Any, state: Any, sample_ids: Any, name: str | None = None
    ) -> tuple[Any, Any, Any]:
        """Return the inputs of the next step."""
        finished = casting.cast(time + 1, self._lengths.dtype) >= self._lengths
        return finished, self._read_inputs(time + 1, reduction.reduce_all(finished)), state


def _unstack(value: Any) -> TensorArray:
    count = shapes.shape(value)[0]
    elements = TensorArray(
        value.dtype, count, element_shape=value.shape[1:], clear_after_read=False
    )
    return elements.unstack(value)


class ScheduledEmbeddingTrainingHelper(TrainingHelper):
    """A training helper that sometimes replaces an input by a sample.

    Args:
      inputs, sequence_length, time_major: as for `TrainingHelper`.
      embedding: a function of ids, or a table of rows.
      sampling_probability: probability of using a sample; floating, rank 0 or shape (B,).
      seed, scheduling_seed: seeds of the random numbers.
    Source: Bengio et al. 2015.
    """

    def __init__(
        self,
        inputs: Any,
        sequence_length: Any,
        embedding: Any,
        sampling_probability: Any,
        time_major: bool = False,
        seed: int | None = None,
        scheduling_seed: int | None = None,
        name: str | None = None,
    ) -> None:
        super().__init__(inputs, sequence_length, time_major)
        self._embed = embedding_of(embedding)
        self._probability = convert_to_tensor(sampling_probability)
        self._seeds = seed, scheduling_seed

    def sample(self, time: Any, outputs: Any, state: Any, name: str | None = None) -> Any:
        """Return samples for randomly selected examples, and -1 for the others."""
        seed, scheduling_seed = self._seeds
        draws = random.random_uniform([self.batch_size], seed=scheduling_seed)
        samples = random.multinomial(outputs, 1, seed, output_dtype=dtypes.int32)
        ids = shapes.reshape(samples, [-1])
        return masks.where(draws < self._probability, ids, array.zeros_like(ids) - 1)

    def next_inputs(
        self, time: Any, outputs: Any, state: Any, sample_ids: Any, name: str | None = None
    ) -> tuple[Any, Any, Any]:
        """Return the next inputs, replaced by embeddings of samples where those exist."""
        finished, next_inputs, state = super().next_inputs(time, outputs, state, sample_ids)
        has_sample = sample_ids >= 0
        rows = self._embed(masks.where(has_sample, sample_ids, array.zeros_like(sample_ids)))
        return finished, masks.where(has_sample, rows, next_inputs), state


class GreedyEmbeddingHelper(Helper):
    """A helper whose next input is the embedding of the largest output.

    Args:
      embedding: a function of ids, or a table of rows.
      start_tokens: int32, shape (B,).
      end_token: int32, rank 0.
    Raises: InvalidArgumentError: a rank differs.
    """

    def __init__(self, embedding: Any, start_tokens: Any, end_token: Any) -> None:
        self._embed = embedding_of(embedding)
        self._start = convert_to_tensor(start_tokens, dtypes.int32)
        self._end = convert_to_tensor(end_token, dtypes.int32)
        if self._start.shape.ndims not in (None, 1):
            raise errors.InvalidArgumentError("start_tokens must be a vector")
        if self._end.shape.ndims not in (None, 0):
            raise errors.InvalidArgumentError("end_token must be a scalar")
        self._first = self._embed(self._start)
        self.batch_size = shapes.size(self._start)

    def initialize(self, name: str | None = None) -> tuple[Any, Any]:
        """Return a `finished` mask of False, and the embeddings of the start tokens."""
        return array.zeros_like(self._start, dtypes.bool_), self._first

    def sample(self, time: Any, outputs: Any, state: Any, name: str | None = None) -> Any:
        """Return the index of the largest output."""
        return casting.cast(reduction.argmax(outputs, -1), dtypes.int32)

    def next_inputs(
        self, time: Any, outputs: Any, state: Any, sample_ids: Any, name: str | None = None
    ) -> tuple[Any, Any, Any]:
        """Return the embeddings of the samples; at the end, the inputs for start tokens."""
        finished = comparison.equal(sample_ids, self._end)
        all_finished = reduction.reduce_all(finished)
        return (
            finished,
            cond(all_finished, lambda: self._first, lambda: self._embed(sample_ids)),
            state,
        )


class SampleEmbeddingHelper(GreedyEmbeddingHelper):
    """A helper whose next input is the embedding of a sample of the outputs.

    Args:
      embedding, start_tokens, end_token: as for `GreedyEmbeddingHelper`.
      softmax_temperature: divisor of the outputs.
      seed: seed of the random numbers.
    """

    def __init__(
        self,
        embedding: Any,
        start_tokens: Any,
        end_token: Any,
        softmax_temperature: Any = None,
        seed: int | None = None,
    ) -> None:
        super().__init__(embedding, start_tokens, end_token)
        self._temperature, self._seed = softmax_temperature, seed

    def sample(self, time: Any, outputs: Any, state: Any, name: str | None = None) -> Any:
        """Return samples of the outputs."""
        logits = outputs if self._temperature is None else outputs / self._temperature
        samples = random.multinomial(logits, 1, self._seed, output_dtype=dtypes.int32)
        return shapes.reshape(samples, [-1])


def embedding_of(embedding: Any) -> Callable[[Any], Any]:
    """Return a function from ids to embeddings.

    Args:
      embedding: such a function, or a table of rows.
    """
    if callable(embedding):
        return embedding  # type: ignore[no-any-return]  # a function of ids
    return lambda ids: nn_embedding.embedding_lookup(embedding, ids)
