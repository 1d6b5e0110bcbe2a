"""Stacks of bidirectional networks."""

from __future__ import annotations

__all__ = ["stack_bidirectional_dynamic_rnn", "stack_bidirectional_rnn"]

from collections.abc import Sequence
from typing import Any

from weft_graph.ops import join
from weft_graph.rnn.dynamic import bidirectional_dynamic_rnn
from weft_graph.rnn.static import static_bidirectional_rnn
from weft_graph.variables.scope import variable_scope
from weft_tensor import errors


def stack_bidirectional_rnn(
    cells_fw: Sequence[Any],
    cells_bw: Sequence[Any],
    inputs: Sequence[Any],
    initial_states_fw: Any = None,
    initial_states_bw: Any = None,
    dtype: Any = None,
    sequence_length: Any = None,
    scope: Any = None,
) -> tuple[Any, Any, Any]:
    """Stack `static_bidirectional_rnn`s: each reads the outputs of the previous one.

    Args:
      cells_fw, cells_bw: one cell for each layer.
      inputs: a list of tensors (B, I).
      initial_states_fw, initial_states_bw: one state for each layer.
      dtype: element type of the states, if they are omitted.
      sequence_length: integers, shape (B,).
      scope: name or scope; "stack_bidirectional_rnn" by default.
    Returns: the list of outputs, and the final states of all forward and all backward cells.
    Raises: InvalidArgumentError: the lists differ in length.
    """
    forward, backward = _validate(cells_fw, cells_bw, initial_states_fw, initial_states_bw)
    states_fw, states_bw = [], []
    layer_inputs = inputs
    with variable_scope(scope or "stack_bidirectional_rnn"):
        for i, (fw, bw) in enumerate(zip(cells_fw, cells_bw, strict=True)):
            with variable_scope(f"cell_{i}"):
                layer_inputs, state_fw, state_bw = static_bidirectional_rnn(
                    fw, bw, layer_inputs, forward[i], backward[i], dtype, sequence_length
                )
                states_fw.append(state_fw)
                states_bw.append(state_bw)
    return layer_inputs, tuple(states_fw), tuple(states_bw)


def stack_bidirectional_dynamic_rnn(
    cells_fw: Sequence[Any],
    cells_bw: Sequence[Any],
    inputs: Any,
    initial_states_fw: Any = None,
    initial_states_bw: Any = None,
    dtype: Any = None,
    sequence_length: Any = None,
    parallel_iterations: int | None = None,
    time_major: bool = False,
    scope: Any = None,
    swap_memory: bool = False,
) -> tuple[Any, Any, Any]:
    """Stack `bidirectional_dynamic_rnn`s: each reads the outputs of the previous one.

    Args:
      cells_fw, cells_bw: one cell for each layer.
      inputs: shape (B, T, I), or (T, B, I).
      initial_states_fw, initial_states_bw: one state for each layer.
      dtype, sequence_length, parallel_iterations, time_major, swap_memory: as for `dynamic_rnn`.
      scope: name or scope; "stack_bidirectional_rnn" by default.
    Returns: the outputs, shape (B, T, O), and the final states of all forward and backward cells.
    Raises: InvalidArgumentError: the lists differ in length.
    """
    forward, backward = _validate(cells_fw, cells_bw, initial_states_fw, initial_states_bw)
    states_fw, states_bw = [], []
    layer_inputs = inputs
    with variable_scope(scope or "stack_bidirectional_rnn"):
        for i, (fw, bw) in enumerate(zip(cells_fw, cells_bw, strict=True)):
            with variable_scope(f"cell_{i}"):
                outputs, (state_fw, state_bw) = bidirectional_dynamic_rnn(
                    fw,
                    bw,
                    layer_inputs,
                    initial_state_fw=forward[i],
                    initial_state_bw=backward[i],
                    sequence_length=sequence_length,
                    parallel_iterations=parallel_iterations,
                    dtype=dtype,
                    swap_memory=swap_memory,
                    time_major=time_major,
                )
                layer_inputs = join.concat(outputs, 2)
                states_fw.append(state_fw)
                states_bw.append(state_bw)
    return layer_inputs, tuple(states_fw), tuple(states_bw)


def _validate(
    cells_fw: Sequence[Any], cells_bw: Sequence[Any], forward: Any, backward: Any
) -> tuple[Sequence[Any], Sequence[Any]]:
    count = len(cells_fw)
    if not count or len(cells_bw) != count:
        raise errors.InvalidArgumentError(
            f"the numbers of forward and backward cells must match, got {count} and {len(cells_bw)}"
        )
    for states in (forward, backward):
        if states is not None and len(states) != count:
            raise errors.InvalidArgumentError(f"{count} states are required, got {len(states)}")
    return forward or [None] * count, backward or [None] * count
