"""A decoder controlled by a helper."""

from __future__ import annotations

__all__ = ["BasicDecoder", "BasicDecoderOutput"]

from typing import Any, NamedTuple

from weft_contrib.seq2seq.decoding import Decoder
from weft_graph.ir import nest
from weft_graph.rnn.cell.base import assert_like_rnncell
from weft_tensor.shape import TensorShape


class BasicDecoderOutput(NamedTuple):
    """The output of a `BasicDecoder` at each step.

    Attributes:
      rnn_output: output of the cell, or of the layer after it.
      sample_id: sample of the helper.
    """

    rnn_output: Any
    sample_id: Any


class BasicDecoder(Decoder):
    """A decoder with a cell, and a helper that derives the next inputs from the outputs.

    Args:
      cell: the cell.
      helper: a `Helper`.
      initial_state: initial state of the cell.
      output_layer: applied to the outputs, or None.
    """

    def __init__(
        self, cell: Any, helper: Any, initial_state: Any, output_layer: Any = None
    ) -> None:
        assert_like_rnncell("cell", cell)
        self._cell = cell
        self._helper = helper
        self._initial_state = initial_state
        self._output_layer = output_layer

    @property
    def batch_size(self) -> Any:
        """Return the batch size of the helper."""
        return self._helper.batch_size

    @property
    def output_size(self) -> Any:
        """Return the sizes of outputs and samples."""
        size = self._cell.output_size
        if self._output_layer is not None:
            size = nest.map_structure(
                lambda size_of_part: self._output_layer.compute_output_shape(
                    TensorShape([None]).concatenate(size_of_part)
                )[1:],
                size,
            )
        return BasicDecoderOutput(size, self._helper.sample_ids_shape)

    @property
    def output_dtype(self) -> Any:
        """Return the element types of outputs and samples."""
        dtype = nest.flatten(self._initial_state)[0].dtype
        of_outputs = nest.map_structure(lambda _: dtype, self._cell.output_size)
        return BasicDecoderOutput(of_outputs, self._helper.sample_ids_dtype)

    def initialize(self, name: str | None = None) -> tuple[Any, Any, Any]:
        """Return the helper's initial mask and inputs, and the initial state."""
        finished, inputs = self._helper.initialize()
        return finished, inputs, self._initial_state

    def step(self, time: Any, inputs: Any, state: Any, name: str | None = None) -> Any:
        """Run one step of the cell and of the helper."""
        outputs, state = self._cell(inputs, state)
        if self._output_layer is not None:
            outputs = self._output_layer(outputs)
        samples = self._helper.sample(time=time, outputs=outputs, state=state)
        finished, next_inputs, next_state = self._helper.next_inputs(
            time=time, outputs=outputs, state=state, sample_ids=samples
        )
        return BasicDecoderOutput(outputs, samples), next_state, next_inputs, finished
