"""Recurrent networks unrolled in the graph: one copy of the cell per step."""

from __future__ import annotations

__all__ = ["static_bidirectional_rnn", "static_rnn", "static_state_saving_rnn"]

from collections.abc import Callable, Sequence
from typing import Any

from weft_graph.ir import nest
from weft_graph.ir.builder import convert_to_tensor, out
from weft_graph.ir.default_graph import get_default_graph
from weft_graph.ir.node import Output
from weft_graph.ops import identity, join
from weft_graph.rnn.cell.base import assert_like_rnncell
from weft_graph.rnn.cell.steps import (
    batch_size_of,
    infer_state_dtype,
    lengths_of,
    past_ends,
    rnn_step,
    zero_tensors,
)
from weft_graph.variables.scope import variable_scope
from weft_tensor import errors
from weft_tensor.shape import format_dims


def static_rnn(
    cell: Any,
    inputs: Any,
    initial_state: Any = None,
    dtype: Any = None,
    sequence_length: Any = None,
    scope: Any = None,
) -> tuple[list[Any], Any]:
    """Run a recurrent cell over a list of inputs, with one copy of the cell for each.

    Args:
      cell: an RNNCell.
      inputs: T inputs of shape (B, I), or structures of tensors of shape (B, ...).
      initial_state: in the structure of `cell.state_size`; zeros by default.
      dtype: element type of the initial state and the outputs; required without `initial_state`.
      sequence_length: integers, shape (B,). At and after its length an example outputs zeros and
        keeps its state. All steps by default.
      scope: variable scope, or its name; "rnn" by default.
    Returns: the list of T outputs, and the last state.
    Raises:
      InvalidTypeError: `cell` is not a cell, or `inputs` is not a sequence.
      InvalidArgumentError: there are no inputs, a size other than B is unknown, batch sizes differ,
        or `initial_state` and `dtype` are both missing.

    Examples:
      >>> cell = wf.nn.rnn_cell.GRUCell(8)
      >>> outputs, state = wf.nn.static_rnn(cell, [wf.zeros([2, 3])] * 5, dtype=wf.float32)
      >>> len(outputs)
      5
    """
    assert_like_rnncell("cell", cell)
    if not nest.is_nested(inputs):
        raise errors.InvalidTypeError(f"inputs must be a list of tensors, got {inputs!r}")
    if not inputs:
        raise errors.InvalidArgumentError("static_rnn requires at least one input")
    with variable_scope(scope or "rnn") as var_scope:
        var_scope.cache_reads()
        inputs = nest.map_structure(convert_to_tensor, inputs)
        batch_size = _infer_batch_size(nest.flatten(inputs))
        state = initial_state
        if state is None:
            state = _initial_state(cell, batch_size, dtype)
        step = _step_of(cell, state, len(inputs), batch_size, dtype, sequence_length)
        outputs = []
        for time, step_input in enumerate(inputs):
            if time:
                var_scope.reuse_variables()
            output, state = step(time, step_input, state)
            outputs.append(output)
    return outputs, state


def _infer_batch_size(inputs: Sequence[Output]) -> Any:
    """Return the batch size: an integer if it is static for an input, else a tensor."""
    batch_size = None
    for step_input in inputs:
        dims = step_input.dims
        if not dims:
            raise errors.InvalidArgumentError(
                f"inputs must have a batch axis, got {step_input!r} of shape {format_dims(dims)}"
            )
        if None in dims[1:]:
            raise errors.InvalidArgumentError(
                f"all sizes of inputs except the batch size must be known, got {step_input!r}"
            )
        if batch_size is not None and dims[0] not in (None, batch_size):
            raise errors.InvalidArgumentError(
                f"all inputs must have one batch size, got {batch_size} and {dims[0]} in "
                f"{step_input!r}"
            )
        batch_size = dims[0] if batch_size is None else batch_size
    return batch_size_of(inputs, 0) if batch_size is None else batch_size


def _initial_state(cell: Any, batch_size: Any, dtype: Any) -> Any:
    if not dtype:
        raise errors.InvalidArgumentError("dtype is required without initial_state")
    if hasattr(cell, "get_initial_state"):
        return cell.get_initial_state(inputs=None, batch_size=batch_size, dtype=dtype)
    return cell.zero_state(batch_size, dtype)


def _step_of(
    cell: Any, state: Any, steps: int, batch_size: Any, dtype: Any, sequence_length: Any
) -> Callable[[int, Any, Any], tuple[Any, Any]]:
    """Return the step as a function of time, input and state.

    With sequence lengths, TensorFlow wraps each step in a conditional that skips it when all
    sequences have ended. Here the cell always runs and its results are selected, because a
    conditional costs more than a step and prevents merging and scheduling of nodes across it.
    """
    if sequence_length is None:
        return lambda time, x, old_state: cell(x, old_state)
    zero_output = zero_tensors(cell.output_size, batch_size, infer_state_dtype(dtype, state))
    ends = past_ends(lengths_of(sequence_length), steps)

    def step(time: int, x: Any, old_state: Any) -> tuple[Any, Any]:
        return rnn_step(ends[time], zero_output, old_state, lambda: cell(x, old_state))

    return step


def static_state_saving_rnn(
    cell: Any,
    inputs: Any,
    state_saver: Any,
    state_name: Any,
    sequence_length: Any = None,
    scope: Any = None,
) -> tuple[list[Any], Any]:
    """Run `static_rnn` with a state that is stored between Runs.

    Args:
      cell, inputs, sequence_length, scope: as for `static_rnn`.
      state_saver: object with `state(name)`, which returns the initial state, and `save_state(name,
        value)`, which returns a node or a tensor that stores it.
      state_name: the name of the state, or names in the structure of `cell.state_size`.
    Returns: outputs and state. The last output and the state wait until the state is stored.
    Raises: InvalidArgumentError: `state_name` does not have the structure of the state.

    Examples:
      >>> class Saver:
      ...     kept = wf.get_variable("kept", [2, 4], trainable=False)
      ...     def state(self, name):
      ...         return self.kept.read_value()
      ...     def save_state(self, name, value):
      ...         return self.kept.assign(value)
      >>> cell, steps = wf.nn.rnn_cell.GRUCell(4), [wf.ones([2, 5])] * 3
      >>> outputs, state = wf.nn.static_state_saving_rnn(cell, steps, Saver(), "kept")
      >>> len(outputs), state.shape
      (3, TensorShape([Dimension(2), Dimension(4)]))
    """
    sizes = cell.state_size
    names, flat_sizes = nest.flatten(state_name), nest.flatten(sizes)
    if nest.is_nested(sizes) != nest.is_nested(state_name) or len(names) != len(flat_sizes):
        raise errors.InvalidArgumentError(
            f"state_name must have one name for each part of the state, whose size is {sizes}, "
            f"got {state_name!r}"
        )
    initial = nest.pack_sequence_as(sizes, [state_saver.state(name) for name in names])
    outputs, state = static_rnn(cell, inputs, initial, None, sequence_length, scope)
    saved = [
        state_saver.save_state(name, part)
        for name, part in zip(names, nest.flatten(state), strict=True)
    ]
    with get_default_graph().control_dependencies(saved):
        outputs[-1] = nest.map_structure(identity.identity, outputs[-1])
        state = nest.map_structure(identity.identity, state)
    return outputs, state


def static_bidirectional_rnn(
    cell_fw: Any,
    cell_bw: Any,
    inputs: Any,
    initial_state_fw: Any = None,
    initial_state_bw: Any = None,
    dtype: Any = None,
    sequence_length: Any = None,
    scope: Any = None,
) -> tuple[list[Any], Any, Any]:
    """Run one cell forward and another backward over a list of inputs; concatenate outputs.

    Args:
      cell_fw, cell_bw: RNNCells.
      initial_state_fw, initial_state_bw: zeros by default.
      inputs, dtype, sequence_length: as for `static_rnn`; each example is reversed up to its
        length.
      scope: variable scope, or its name; "bidirectional_rnn" by default.
    Returns: T outputs of shape (B, O_fw + O_bw), and the last state of each network.
    Raises: as `static_rnn`.

    Examples:
      >>> forward, backward = wf.nn.rnn_cell.GRUCell(4), wf.nn.rnn_cell.GRUCell(4)
      >>> steps = [wf.ones([2, 5])] * 3
      >>> outputs, _, _ = wf.nn.static_bidirectional_rnn(forward, backward, steps, dtype=wf.float32)
      >>> len(outputs), outputs[0].shape
      (3, TensorShape([Dimension(2), Dimension(8)]))
    """
    assert_like_rnncell("cell_fw", cell_fw)
    assert_like_rnncell("cell_bw", cell_bw)
    with variable_scope(scope or "bidirectional_rnn"):
        with variable_scope("fw") as var_scope:
            forward, state_fw = static_rnn(
                cell_fw, inputs, initial_state_fw, dtype, sequence_length, var_scope
            )
        with variable_scope("bw") as var_scope:
            reversed_inputs = _reverse_steps(inputs, sequence_length)
            backward, state_bw = static_rnn(
                cell_bw, reversed_inputs, initial_state_bw, dtype, sequence_length, var_scope
            )
    backward = _reverse_steps(backward, sequence_length)
    flat = zip(nest.flatten(forward), nest.flatten(backward), strict=True)
    joined = [join.concat([fw, bw], 1) for fw, bw in flat]
    return nest.pack_sequence_as(forward, joined), state_fw, state_bw


def _reverse_steps(values: Sequence[Any], lengths: Any) -> list[Any]:
    """Reverse a list of tensors of shape (B, ...), or structures of them, in time."""
    if lengths is None:
        return list(reversed(values))
    columns = zip(*[nest.flatten(step_values) for step_values in values], strict=True)
    results = [_reverse_column(column, lengths) for column in columns]
    steps = zip(*results, strict=True)
    return [
        nest.pack_sequence_as(template, step) for template, step in zip(values, steps, strict=True)
    ]


def _reverse_column(column: Sequence[Any], lengths: Any) -> list[Output]:
    joined = join.stack(column)
    attrs = {"seq_dim": 0, "batch_dim": 1}
    reversed_value = out("ReverseSequence", [joined, lengths_of(lengths)], attrs)
    return join.unstack(reversed_value, num=len(column))
