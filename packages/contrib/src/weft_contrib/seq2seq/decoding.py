"""Decoders, and the loop that runs one."""

from __future__ import annotations

from weft_graph.ir.constant_value import constant_value

__all__ = ["Decoder", "dynamic_decode"]

from typing import Any

from weft_graph.control_flow.loop import while_loop
from weft_graph.control_flow.tensor_array import TensorArray
from weft_graph.ir import nest
from weft_graph.ir.builder import convert_to_tensor
from weft_graph.ops import array, comparison, masks, reduction
from weft_graph.rnn.cell.steps import transpose_batch_time
from weft_graph.variables.scope import variable_scope
from weft_tensor import dtypes, errors
from weft_tensor.shape import TensorShape


class Decoder:
    """Base class of decoders for `dynamic_decode`.

    Attributes:
      batch_size: int32, rank 0.
      output_size, output_dtype: size and element type of the outputs, in their structure.
      tracks_own_finished: True if `step` returns all finished entries, because beams are reordered.
    """

    batch_size: Any
    output_size: Any
    output_dtype: Any
    tracks_own_finished = False

    def initialize(self, name: str | None = None) -> tuple[Any, Any, Any]:
        """Return the initial `finished` mask, the initial inputs, and the initial state."""
        raise NotImplementedError

    def step(self, time: Any, inputs: Any, state: Any, name: str | None = None) -> Any:
        """Return outputs, the next state, the next inputs, and the `finished` mask.

        Args:
          time: int32, rank 0.
          inputs, state: inputs and state of this step.
        """
        raise NotImplementedError

    def finalize(self, outputs: Any, final_state: Any, sequence_lengths: Any) -> tuple[Any, Any]:
        """Return the final outputs and state, from the outputs of all steps and the last state.

        Args:
          outputs: shape (T, B, ...) each.
          final_state: the last state.
          sequence_lengths: int32, shape (B,).
        """
        return outputs, final_state


def dynamic_decode(
    decoder: Decoder,
    output_time_major: bool = False,
    impute_finished: bool = False,
    maximum_iterations: Any = None,
    parallel_iterations: int = 32,
    swap_memory: bool = False,
    scope: Any = None,
) -> tuple[Any, Any, Any]:
    """Run a decoder until all sequences are finished.

    Args:
      decoder: a `Decoder`.
      output_time_major: return outputs of shape (T, B, ...) instead of (B, T, ...).
      impute_finished: after the end of a sequence, outputs are zero and the state is unchanged.
      maximum_iterations: the largest number of steps; an integer or a tensor.
      parallel_iterations, swap_memory: as for `while_loop`.
      scope: scope of variables; "decoder" by default.
    Returns: the outputs, the final state, and the lengths, int32, shape (B,).
    Raises:
      InvalidTypeError: `decoder` is not a Decoder.
    """
    if not hasattr(decoder, "initialize") or not hasattr(decoder, "step"):
        raise errors.InvalidTypeError(f"Expected decoder to be type Decoder, got {decoder!r}")
    with variable_scope(scope, "decoder"):
        if maximum_iterations is not None:
            maximum_iterations = convert_to_tensor(maximum_iterations, dtypes.int32)
        finished, inputs, state = decoder.initialize()
        if maximum_iterations is not None:
            finished = comparison.logical_or(finished, maximum_iterations <= 0)
        batch = _static(decoder.batch_size)
        arrays = nest.map_structure(
            lambda dtype, size: TensorArray(
                dtype,
                0,
                dynamic_size=True,
                element_shape=TensorShape([batch]).concatenate(size),
            ),
            decoder.output_dtype,
            decoder.output_size,
        )
        lengths = array.zeros_like(finished, dtypes.int32)

        def body(
            time: Any, arrays: Any, state: Any, inputs: Any, finished: Any, lengths: Any
        ) -> Any:
            outputs, next_state, next_inputs, ends = decoder.step(time, inputs, state)
            if not decoder.tracks_own_finished:
                ends = comparison.logical_or(ends, finished)
            lengths = masks.where(
                comparison.logical_not(finished), array.zeros_like(lengths) + time + 1, lengths
            )
            if impute_finished:
                outputs = nest.map_structure(
                    lambda out: masks.where(finished, array.zeros_like(out), out), outputs
                )
                next_state = nest.map_structure(
                    lambda new, old: _select_state(finished, new, old), next_state, state
                )
            nest.assert_same_structure(state, next_state)
            arrays = nest.map_structure(lambda ta, out: ta.write(time, out), arrays, outputs)
            return time + 1, arrays, next_state, next_inputs, ends, lengths

        variables = (convert_to_tensor(0), arrays, state, inputs, finished, lengths)
        _, arrays, state, _, _, lengths = while_loop(
            lambda time, arrays, state, inputs, finished, lengths: comparison.logical_not(
                reduction.reduce_all(finished)
            ),
            body,
            variables,
            shape_invariants=nest.map_structure(_invariant, variables),
            parallel_iterations=parallel_iterations,
            maximum_iterations=maximum_iterations,
            swap_memory=swap_memory,
        )
        outputs = nest.map_structure(lambda ta: ta.stack(), arrays)
        outputs, state = decoder.finalize(outputs, state, lengths)
        if not output_time_major:
            outputs = nest.map_structure(transpose_batch_time, outputs)
        return outputs, state, lengths


def _invariant(value: Any) -> TensorShape:
    return TensorShape(None) if isinstance(value, TensorArray) else value.shape


def _static(batch_size: Any) -> int | None:
    static = constant_value(convert_to_tensor(batch_size))
    return None if static is None else int(static)


def _select_state(finished: Any, new: Any, old: Any) -> Any:
    """Select the old state for finished sequences, except for TensorArrays and scalars."""
    if isinstance(old, TensorArray) or new.shape.ndims == 0:
        return new
    new.set_shape(old.shape)
    return masks.where(finished, old, new)
