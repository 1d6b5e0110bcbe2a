"""Recurrent networks as loops with a dynamic number of steps."""

from __future__ import annotations

__all__ = ["bidirectional_dynamic_rnn", "dynamic_rnn", "raw_rnn"]

from collections.abc import Callable, Sequence
from typing import Any

from weft_graph.control_flow.loop import while_loop
from weft_graph.control_flow.tensor_array import TensorArray
from weft_graph.ir import nest
from weft_graph.ir.builder import constant, convert_to_tensor, out
from weft_graph.ir.default_graph import get_default_graph
from weft_graph.ir.node import Output
from weft_graph.ops import arithmetic, casting, comparison, control, identity, reduction, shapes
from weft_graph.rnn.cell.base import assert_like_rnncell
from weft_graph.rnn.cell.steps import (
    batch_size_of,
    concat_dims,
    copy_through,
    infer_state_dtype,
    initial_state_of,
    lengths_of,
    rnn_step,
    transpose_batch_time,
    zero_tensors,
)
from weft_graph.variables.scope import variable_scope
from weft_tensor import dtypes, errors
from weft_tensor.shape import Dims

_ITERATIONS = 32


def dynamic_rnn(
    cell: Any,
    inputs: Any,
    sequence_length: Any = None,
    initial_state: Any = None,
    dtype: Any = None,
    parallel_iterations: int | None = None,
    swap_memory: bool = False,
    time_major: bool = False,
    scope: Any = None,
) -> tuple[Any, Any]:
    """Run a recurrent cell over time, as a loop.

    Args:
      cell: an RNNCell.
      inputs: shape (B, T, ...), or (T, B, ...) with `time_major`; or structures of such tensors.
        All sizes except B and T must be static.
      sequence_length: integers, shape (B,). At and after its length an example outputs zeros and
        keeps its state. All steps by default.
      initial_state: in the structure of `cell.state_size`; zeros by default.
      dtype: element type of the initial state and the outputs; required without `initial_state`.
      parallel_iterations: number of steps that may run at the same time; 32 by default.
      swap_memory: True if saved forward values may be stored on the host.
      time_major: True if time is the first axis of inputs and outputs, which avoids two transposes.
      scope: variable scope, or its name; "rnn" by default.
    Returns: the outputs, of shape (B, T, ...) or (T, B, ...) in the structure of
      `cell.output_size`, and the last state.
    Raises:
      InvalidTypeError: `cell` is not a cell, or `sequence_length` not integers.
      InvalidArgumentError: a rank is too low, a size is unknown, or sizes of inputs differ;
        `initial_state` and `dtype` are both missing; `sequence_length` has a wrong shape; or the
        cell's output or state does not match its declared sizes.

    Examples:
      >>> cell = wf.nn.rnn_cell.LSTMCell(8)
      >>> outputs, state = wf.nn.dynamic_rnn(cell, wf.zeros([2, 5, 3]), dtype=wf.float32)
      >>> outputs.shape
      TensorShape([Dimension(2), Dimension(5), Dimension(8)])
    """
    assert_like_rnncell("cell", cell)
    with variable_scope(scope or "rnn") as var_scope:
        var_scope.cache_reads()
        inputs = nest.map_structure(convert_to_tensor, inputs)
        if not time_major:
            inputs = nest.map_structure(transpose_batch_time, inputs)
        batch_size = batch_size_of(nest.flatten(inputs), 1)
        lengths = None
        if sequence_length is not None:
            lengths = _check_lengths(sequence_length, batch_size)
        state = initial_state
        if state is None:
            state = initial_state_of(cell, batch_size, dtype)
        unrolling = _Unrolling(cell, inputs, batch_size, lengths, infer_state_dtype(dtype, state))
        outputs, state = unrolling.run(state, parallel_iterations or _ITERATIONS, swap_memory)
        if not time_major:
            outputs = nest.map_structure(transpose_batch_time, outputs)
    return outputs, state


def _check_lengths(sequence_length: Any, batch_size: Any) -> Output:
    """Return lengths as int32, checked at run time to have one for each example."""
    lengths = casting.cast(lengths_of(sequence_length), dtypes.int32)
    lengths = identity.identity(lengths, name="sequence_length")
    num_lengths = lengths.dims[0] if lengths.dims else None
    if isinstance(batch_size, int) and num_lengths is not None:
        if num_lengths != batch_size:
            raise errors.InvalidArgumentError(
                f"sequence_length must have one entry for each of {batch_size} examples, got "
                f"{lengths!r}"
            )
        return lengths
    shape = shapes.shape(lengths)
    fits = reduction.reduce_all(comparison.equal(shape, [batch_size]))
    text = "sequence_length must have one entry per example; the batch's size and its shape are"
    check = control.Assert(fits, [text, batch_size, shape])
    with get_default_graph().control_dependencies([check]):
        return identity.identity(lengths, name="CheckSeqLen")


class _Unrolling:
    """A loop of a cell over inputs with time as the first axis."""

    def __init__(
        self, cell: Any, inputs: Any, batch_size: Any, lengths: Output | None, dtype: Any
    ) -> None:
        leaves = nest.flatten(inputs)
        self._cell = cell
        self._inputs = inputs
        self._lengths = lengths
        steps, batch = _common_sizes(leaves)
        self._steps: Any = shapes.shape(leaves[0])[0] if steps is None else steps
        self._rows = [
            TensorArray(leaf.dtype, size=self._steps, element_shape=leaf.dims[1:]).unstack(leaf)
            for leaf in leaves
        ]
        self._outputs = [
            TensorArray(
                dtype,
                size=self._steps,
                element_shape=concat_dims(batch, size),
                tensor_array_name=f"output_{i}",
            )
            for i, size in enumerate(nest.flatten(cell.output_size))
        ]
        self._zero_output: Any = None
        self._end = self._steps
        if lengths is not None:
            self._zero_output = zero_tensors(cell.output_size, batch_size, dtype)
            # One step at least, so that the shape of the outputs is found out.
            longest = arithmetic.maximum(1, reduction.reduce_max(lengths))
            self._end = arithmetic.minimum(self._steps, longest)

    def run(self, state: Any, parallel_iterations: int, swap_memory: bool) -> tuple[Any, Any]:
        """Return the outputs of all steps, time first, and the last state."""
        _, arrays, state = while_loop(
            lambda time, *_: time < self._end,
            self._step,
            (constant(0, dtypes.int32, name="time"), self._outputs, state),
            parallel_iterations=parallel_iterations,
            swap_memory=swap_memory,
        )
        outputs = [array.stack() for array in arrays]
        return nest.pack_sequence_as(self._cell.output_size, outputs), state

    def _step(self, time: Output, arrays: list[TensorArray], state: Any) -> Any:
        rows = nest.pack_sequence_as(self._inputs, [array.read(time) for array in self._rows])
        if self._lengths is None:
            output, new_state = self._cell(rows, state)
        else:
            past_end = comparison.greater_equal(time, self._lengths)
            output, new_state = rnn_step(
                past_end, self._zero_output, state, lambda: self._cell(rows, state)
            )
        nest.assert_same_structure(self._cell.output_size, output)
        written = [
            array.write(time, value)
            for array, value in zip(arrays, nest.flatten(output), strict=True)
        ]
        return time + 1, written, new_state


def _common_sizes(leaves: Sequence[Output]) -> tuple[int | None, int | None]:
    """Return the number of steps and the batch size where they are static."""
    sizes: list[int | None] = [None, None]
    for leaf in leaves:
        dims = leaf.dims
        if dims is None or len(dims) < 3:
            raise errors.InvalidArgumentError(
                f"inputs must have a rank of at least 3, got {leaf!r}"
            )
        if None in dims[2:]:
            raise errors.InvalidArgumentError(
                f"all sizes of inputs except batch and time must be known, got {leaf!r}"
            )
        for axis, label in enumerate(("numbers of steps", "batch sizes")):
            size, expected = dims[axis], sizes[axis]
            if expected is not None and size not in (None, expected):
                raise errors.InvalidArgumentError(
                    f"inputs must have equal {label}, got {expected} and {size}"
                )
            sizes[axis] = size if expected is None else expected
    return sizes[0], sizes[1]


# --------------------------------------------------------------------------- both directions


def bidirectional_dynamic_rnn(
    cell_fw: Any,
    cell_bw: Any,
    inputs: Any,
    sequence_length: Any = None,
    initial_state_fw: Any = None,
    initial_state_bw: Any = None,
    dtype: Any = None,
    parallel_iterations: int | None = None,
    swap_memory: bool = False,
    time_major: bool = False,
    scope: Any = None,
) -> tuple[tuple[Any, Any], tuple[Any, Any]]:
    """Run one cell forward in time and another backward.

    Args:
      cell_fw, cell_bw: RNNCells.
      sequence_length: as for `dynamic_rnn`; each example is reversed up to its length.
      initial_state_fw, initial_state_bw: zeros by default.
      inputs, dtype, parallel_iterations, swap_memory, time_major: as for `dynamic_rnn`.
      scope: variable scope, or its name; "bidirectional_rnn" by default.
    Returns: the outputs of both (those of the backward cell in the order of the inputs), and the
      last states of both.
    Raises: as `dynamic_rnn`.

    Examples:
      >>> cell = wf.nn.rnn_cell.GRUCell
      >>> (forward, backward), _ = wf.nn.bidirectional_dynamic_rnn(
      ...     cell(4), cell(4), wf.zeros([2, 5, 3]), dtype=wf.float32
      ... )
      >>> forward.shape
      TensorShape([Dimension(2), Dimension(5), Dimension(4)])
    """
    assert_like_rnncell("cell_fw", cell_fw)
    assert_like_rnncell("cell_bw", cell_bw)
    options = (dtype, parallel_iterations, swap_memory, time_major)

    def reverse_structure(values: Any) -> Any:
        return nest.map_structure(
            lambda tensor: _reverse_in_time(tensor, sequence_length, 0 if time_major else 1), values
        )

    with variable_scope(scope or "bidirectional_rnn"):
        with variable_scope("fw") as var_scope:
            forward, state_fw = dynamic_rnn(
                cell_fw, inputs, sequence_length, initial_state_fw, *options, var_scope
            )
        with variable_scope("bw") as var_scope:
            backward, state_bw = dynamic_rnn(
                cell_bw,
                reverse_structure(inputs),
                sequence_length,
                initial_state_bw,
                *options,
                var_scope,
            )
        backward = reverse_structure(backward)
    return (forward, backward), (state_fw, state_bw)


def _reverse_in_time(value: Any, lengths: Any, axis: int) -> Output:
    """Reverse a tensor in time, which is axis 0 or 1; the other one is the batch axis."""
    if lengths is None:
        return out("ReverseV2", [value, [axis]])
    return out(
        "ReverseSequence", [value, lengths_of(lengths)], {"seq_dim": axis, "batch_dim": 1 - axis}
    )


# ---------------------------------------------------------------------------------- raw_rnn


def raw_rnn(
    cell: Any,
    loop_fn: Callable[[Any, Any, Any, Any], Any],
    parallel_iterations: int | None = None,
    swap_memory: bool = False,
    scope: Any = None,
) -> tuple[Any, Any, Any]:
    """Run a recurrent network whose inputs, states and outputs a function controls per step.

    The arguments of `loop_fn` are the time (int32, rank 0), the cell's output and state after the
    previous step, and the loop state. It returns (elements_finished, next_input, next_cell_state,
    emit_output, next_loop_state). At time 0, the output, state and loop state are None. It then
    returns the initial state as `next_cell_state`, and the initial loop state or None. As
    `emit_output` it returns a structure of tensors with the shapes (without the batch axis) and
    types of emitted values, or None for the shapes and types of the output.

    Args:
      cell: an RNNCell.
      loop_fn: where elements_finished, of shape (B,), is True, the next states are ignored and
        zeros are emitted. The loop ends when it is True for all examples. A later loop state of
        None keeps the previous one.
      parallel_iterations: number of steps that may run at the same time; 32 by default.
      swap_memory: True if saved forward values may be stored on the host.
      scope: variable scope, or its name; "rnn" by default.
    Returns: TensorArrays with an element of shape (B, ...) per step, in the structure of emitted
      values; the last state; and the last loop state, or None.
    Raises:
      InvalidTypeError: `cell` is not a cell, or `loop_fn` is not callable.
      InvalidArgumentError: results have another structure or shape than in the previous step.

    Examples:
      >>> cell, inputs = wf.nn.rnn_cell.GRUCell(4), wf.ones([3, 2, 5])
      >>> def step(time, output, state, loop_state):
      ...     state = cell.zero_state(2, wf.float32) if output is None else state
      ...     return wf.fill([2], time >= 3), inputs[wf.minimum(time, 2)], state, output, None
      >>> outputs, _, _ = wf.nn.raw_rnn(cell, step)
      >>> with wf.Session() as session:
      ...     session.run(wf.global_variables_initializer())
      ...     session.run(outputs.stack()).shape
      (3, 2, 4)
    """
    assert_like_rnncell("cell", cell)
    if not callable(loop_fn):
        raise errors.InvalidTypeError(f"loop_fn must be callable, got {loop_fn!r}")
    with variable_scope(scope or "rnn") as var_scope:
        var_scope.cache_reads()
        raw = _RawLoop(cell, loop_fn)
        *_, arrays, state, loop_state = while_loop(
            lambda time, finished, *_: comparison.logical_not(reduction.reduce_all(finished)),
            raw.step,
            raw.initial,
            parallel_iterations=parallel_iterations or _ITERATIONS,
            swap_memory=swap_memory,
        )
    return arrays, state, loop_state if raw.has_loop_state else None


class _RawLoop:
    """The body of `raw_rnn`.

    Attributes:
      initial: initial values of the loop variables: time, the mask of finished examples, the input,
        the TensorArrays, the state and the loop state.
      has_loop_state: True if `loop_fn` returned a loop state.
    """

    def __init__(self, cell: Any, loop_fn: Callable[[Any, Any, Any, Any], Any]) -> None:
        self._cell = cell
        self._loop_fn = loop_fn
        time = constant(0, dtypes.int32, name="time")
        finished, first, state, emitted, loop_state = loop_fn(time, None, None, None)
        nest.assert_same_structure(state, cell.state_size)
        first = nest.map_structure(convert_to_tensor, first)
        leaves = nest.flatten(first)
        _check_batch_sizes(leaves)
        batch_size = batch_size_of(leaves, 0)
        state = nest.map_structure(_to_state, state)
        sizes, kinds = _emitted_sizes(cell, state, emitted)
        structure = cell.output_size if emitted is None else emitted
        static_batch_size = batch_size if isinstance(batch_size, int) else None
        arrays = [
            TensorArray(
                kind,
                size=0,
                dynamic_size=True,
                element_shape=concat_dims(static_batch_size, size),
                name=f"rnn_output_{i}",
            )
            for i, (size, kind) in enumerate(zip(sizes, kinds, strict=True))
        ]
        zeros = [
            zero_tensors(size, batch_size, kind) for size, kind in zip(sizes, kinds, strict=True)
        ]
        self._zero_emit = nest.pack_sequence_as(structure, zeros)
        self.has_loop_state = loop_state is not None
        self.initial = (
            time,
            convert_to_tensor(finished, dtypes.bool_),
            first,
            nest.pack_sequence_as(structure, arrays),
            state,
            loop_state if self.has_loop_state else constant(0, dtypes.int32, name="no_state"),
        )

    def step(
        self,
        time: Output,
        finished: Output,
        cell_input: Any,
        arrays: Any,
        state: Any,
        loop_state: Any,
    ) -> Any:
        """Compute the loop variables after a step."""
        output, new_state = self._cell(cell_input, state)
        nest.assert_same_structure(state, new_state)
        nest.assert_same_structure(self._cell.output_size, output)
        following = time + 1
        is_finished, next_input, next_state, emit, next_loop_state = self._loop_fn(
            following, output, new_state, loop_state if self.has_loop_state else None
        )
        nest.assert_same_structure(state, next_state)
        nest.assert_same_structure(cell_input, next_input)
        emit = copy_through(finished, self._zero_emit, emit)
        written = nest.map_structure(lambda array, value: array.write(time, value), arrays, emit)
        return (
            following,
            comparison.logical_or(finished, is_finished),
            next_input,
            written,
            copy_through(finished, state, next_state),
            loop_state if next_loop_state is None else next_loop_state,
        )


def _to_state(value: Any) -> Any:
    return value if isinstance(value, TensorArray) else convert_to_tensor(value)


def _check_batch_sizes(leaves: Sequence[Output]) -> None:
    sizes = {leaf.dims[0] for leaf in leaves if leaf.dims and leaf.dims[0] is not None}
    if len(sizes) > 1:
        raise errors.InvalidArgumentError(
            f"the input of a step must have one batch size, got {leaves!r}"
        )


def _emitted_sizes(cell: Any, state: Any, emitted: Any) -> tuple[list[Any], list[Any]]:
    """Return the sizes (without the batch) and element types of a step's outputs."""
    if emitted is None:
        sizes = nest.flatten(cell.output_size)
        return sizes, [nest.flatten(state)[0].dtype.base_dtype] * len(sizes)
    leaves = [convert_to_tensor(leaf) for leaf in nest.flatten(emitted)]
    sizes = [_size_of(leaf) for leaf in leaves]
    return sizes, [leaf.dtype.base_dtype for leaf in leaves]


def _size_of(value: Output) -> Any:
    dims: Dims = value.dims
    is_static = dims is not None and None not in dims
    return value.shape if is_static else shapes.shape(value)
