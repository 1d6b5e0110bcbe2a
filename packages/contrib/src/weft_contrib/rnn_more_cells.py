"""Cells with attention, highways or convolutions, and from architecture search."""

from __future__ import annotations

__all__ = [
    "AttentionCellWrapper",
    "Conv1DLSTMCell",
    "Conv2DLSTMCell",
    "Conv3DLSTMCell",
    "ConvLSTMCell",
    "HighwayWrapper",
    "NASCell",
    "UGRNNCell",
]

from collections.abc import Mapping, Sequence
from typing import Any

from weft_contrib.rnn_cells import linear
from weft_graph.ir import nest
from weft_graph.nn.convolution import convolution
from weft_graph.ops import join, matmul, nn, reduction, shapes
from weft_graph.ops.elementary import sigmoid
from weft_graph.ops.trigonometry import tanh
from weft_graph.rnn.cell.base import RNNCell
from weft_graph.rnn.cell.lstm import LSTMStateTuple
from weft_graph.rnn.cell.wrappers import RNNCellWrapper
from weft_graph.variables.initializers import Constant, Zeros
from weft_graph.variables.scope import get_variable, variable_scope
from weft_tensor import errors
from weft_tensor.shape import TensorShape


class AttentionCellWrapper(RNNCell):
    """A wrapper that attends to the cell's previous outputs.

    Args:
      cell: the wrapped cell.
      attn_length: number of previous outputs to attend to.
      attn_size: size of a stored output; defaults to that of the output.
      attn_vec_size: size of the hidden layer of the attention; `attn_size` by default.
      input_size: size of the wrapped cell's input; defaults to that of the input.
      state_is_tuple: True if the state is a tuple (cell's state, attention, stored outputs) instead
        of one concatenated tensor.
      reuse: reuse mode of the variables.
    Raises:
      InvalidTypeError: `cell` is not a cell.
      InvalidArgumentError: `attn_length` is not positive, or the state of the cell is a tuple and
        `state_is_tuple` is False.
    Source: Bahdanau et al. 2014.

    Examples:
      >>> cell = wf.contrib.rnn.AttentionCellWrapper(wf.contrib.rnn.GRUCell(4), attn_length=3)
      >>> output, state = cell(wf.zeros([2, 5]), cell.zero_state(2, wf.float32))
      >>> output.shape.as_list(), state[2].shape.as_list()
      ([2, 4], [2, 12])
    """

    def __init__(
        self,
        cell: RNNCell,
        attn_length: int,
        attn_size: int | None = None,
        attn_vec_size: int | None = None,
        input_size: int | None = None,
        state_is_tuple: bool = True,
        reuse: Any = None,
    ) -> None:
        super().__init__(_reuse=reuse)
        if not isinstance(cell, RNNCell):
            raise errors.InvalidTypeError(f"cell must be an RNNCell, got {cell!r}")
        if nest.is_nested(cell.state_size) and not state_is_tuple:
            raise errors.InvalidArgumentError(
                f"state_is_tuple=False requires a cell whose state is one tensor, got the state "
                f"size {cell.state_size}"
            )
        if attn_length <= 0:
            raise errors.InvalidArgumentError(f"attn_length must be above 0, got {attn_length}")
        self._cell, self._length = cell, attn_length
        self._size = cell.output_size if attn_size is None else attn_size
        self._hidden = self._size if attn_vec_size is None else attn_vec_size
        self._input_size, self._is_tuple = input_size, state_is_tuple

    def _inner_cells(self) -> Sequence[Any]:
        return (self._cell,)

    @property
    def state_size(self) -> Any:
        """Return (size of the cell, A, A N), or their sum: A values for each of N past outputs."""
        sizes = (self._cell.state_size, self._size, self._size * self._length)
        return sizes if self._is_tuple else sum(sizes)

    @property
    def output_size(self) -> int:
        """A."""
        return self._size

    def call(self, inputs: Any, state: Any) -> Any:
        """Run one step: shape (B, I), and a state."""
        history_size = self._size * self._length
        if self._is_tuple:
            inner, attention, kept_states = state
        else:
            sizes = [self._cell.state_size, self._size, history_size]
            inner, attention, kept_states = join.split(state, sizes, 1)
        past = shapes.reshape(kept_states, [-1, self._length, self._size])
        width = self._input_size or inputs.shape[1].value
        with variable_scope("input_projection"):
            cell_input = linear([inputs, attention], width)
        cell_output, new_inner = self._cell(cell_input, inner)
        query = join.concat(nest.flatten(new_inner), 1) if nest.is_nested(new_inner) else new_inner
        with variable_scope("attention"):
            new_attention = self._attend(query, past)
        with variable_scope("attn_output_projection"):
            output = linear([cell_output, new_attention], self._size)
        newer = join.concat([past[:, 1:], shapes.expand_dims(output, 1)], 1)
        new_state = (new_inner, new_attention, shapes.reshape(newer, [-1, history_size]))
        return output, new_state if self._is_tuple else join.concat(list(new_state), 1)

    def _attend(self, query: Any, past: Any) -> Any:
        """Return the attention-weighted past outputs: shape (B, A)."""
        hidden = self._hidden
        kernel = get_variable("attn_w", [1, 1, self._size, hidden], query.dtype.base_dtype)
        scale = get_variable("attn_v", [hidden], query.dtype.base_dtype)
        flat = shapes.reshape(kernel, [self._size, hidden])
        features = shapes.reshape(
            matmul.matmul(shapes.reshape(past, [-1, self._size]), flat), [-1, self._length, hidden]
        )
        query_features = shapes.expand_dims(linear(query, hidden), 1)
        score = reduction.reduce_sum(scale * tanh(features + query_features), 2)
        weights = shapes.expand_dims(nn.softmax(score), 2)
        return reduction.reduce_sum(weights * past, 1)


class NASCell(RNNCell):
    """The recurrent cell found by neural architecture search (NAS).

    Args:
      num_units: H, size of c and of h.
      num_proj: size of the output; H by default, without a projection.
      use_bias: True to use biases.
      reuse: reuse mode of the variables.
      **kwargs: arguments of RNNCell.
    Source: Zoph and Le 2016, "Neural architecture search with reinforcement learning".

    Examples:
      >>> cell = wf.contrib.rnn.NASCell(4)
      >>> output, state = cell(wf.zeros([2, 5]), cell.zero_state(2, wf.float32))
      >>> output.shape.as_list(), [v.op.name for v in wf.trainable_variables()]
      ([2, 4], ['nas_cell/kernel', 'nas_cell/recurrent_kernel'])
    """

    def __init__(
        self,
        num_units: int,
        num_proj: int | None = None,
        use_bias: bool = False,
        reuse: Any = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(_reuse=reuse, **kwargs)
        self._units, self._num_proj, self._use_bias = num_units, num_proj, use_bias

    @property
    def state_size(self) -> LSTMStateTuple:
        """LSTMStateTuple(H, size of the output)."""
        return LSTMStateTuple(self._units, self.output_size)

    @property
    def output_size(self) -> int:
        """`num_proj`, or H."""
        return self._num_proj or self._units

    def call(self, inputs: Any, state: Any) -> Any:
        """Run one step: shapes (B, I), (B, H) and (B, output size)."""
        memory, last = state
        width, dtype = inputs.shape[1].value, inputs.dtype.base_dtype
        if width is None:
            raise errors.InvalidArgumentError(
                f"NASCell requires an input whose last size is known, got {inputs.shape}"
            )
        kernel = get_variable("kernel", [width, 8 * self._units], dtype)
        recurrent = get_variable("recurrent_kernel", [self.output_size, 8 * self._units], dtype)
        from_state = matmul.matmul(last, recurrent)
        from_input = matmul.matmul(inputs, kernel)
        if self._use_bias:
            bias = get_variable("bias", [8 * self._units], dtype, Zeros())
            from_input = nn.bias_add(from_input, bias)
        new_memory, new_state = _compute_tree(
            join.split(from_state, 8, axis=1), join.split(from_input, 8, axis=1), memory
        )
        if self._num_proj is not None:
            projection = get_variable("projection_weights", [self._units, self._num_proj], dtype)
            new_state = matmul.matmul(new_state, projection)
        return new_state, LSTMStateTuple(new_memory, new_state)


def _compute_tree(h: Sequence[Any], x: Sequence[Any], memory: Any) -> tuple[Any, Any]:
    """Compute the tree of figure 8 of the paper: two layers, the memory, two more layers."""
    first = [
        sigmoid(h[0] + x[0]),
        nn.relu(h[1] + x[1]),
        sigmoid(h[2] + x[2]),
        nn.relu(h[3] * x[3]),
        tanh(h[4] + x[4]),
        sigmoid(h[5] + x[5]),
        tanh(h[6] + x[6]),
        sigmoid(h[7] + x[7]),
    ]
    second = [
        tanh(first[0] * first[1]),
        tanh(first[2] + first[3]),
        tanh(first[4] * first[5]),
        sigmoid(first[6] + first[7]),
    ]
    second[0] = tanh(second[0] + memory)
    new_memory = second[0] * second[1]
    return new_memory, tanh(new_memory * tanh(second[2] + second[3]))


class UGRNNCell(RNNCell):
    """A cell with one gate, which mixes the old and the new state.

    Args:
      num_units: H.
      initializer: initializer of the kernel.
      forget_bias: added to the gate's input.
      activation: activation function; tanh by default.
      reuse: reuse mode of the variables.
    Source: Collins et al. 2016, "Capacity and trainability in recurrent neural networks".

    Examples:
      >>> cell = wf.contrib.rnn.UGRNNCell(4)
      >>> output, state = cell(wf.zeros([2, 5]), cell.zero_state(2, wf.float32))
      >>> output.shape.as_list()
      [2, 4]
    """

    def __init__(
        self,
        num_units: int,
        initializer: Any = None,
        forget_bias: float = 1.0,
        activation: Any = tanh,
        reuse: Any = None,
    ) -> None:
        super().__init__(_reuse=reuse)
        self._units, self._initializer = num_units, initializer
        self._forget_bias, self._activation = forget_bias, activation

    @property
    def state_size(self) -> int:
        """H."""
        return self._units

    @property
    def output_size(self) -> int:
        """H."""
        return self._units

    def call(self, inputs: Any, state: Any) -> Any:
        """Run one step: shapes (B, I) and (B, H)."""
        total = linear([inputs, state], 2 * self._units, initializer=self._initializer)
        gate, candidate = join.split(total, 2, axis=1)
        weight = sigmoid(gate + self._forget_bias)
        new = weight * state + (1.0 - weight) * self._activation(candidate)
        return new, new


class HighwayWrapper(RNNCellWrapper):
    """A wrapper that mixes a cell's input into its output, weighted by a gate.

    Args:
      cell: the wrapped cell; its output must have the size of its input.
      couple_carry_transform_gates: use one gate for both input and output.
      carry_bias_init: initial bias of the carry gate.
    Source: Zilly et al. 2016, "Recurrent highway networks".

    Examples:
      >>> cell = wf.contrib.rnn.HighwayWrapper(wf.contrib.rnn.GRUCell(4))
      >>> output, state = cell(wf.zeros([2, 4]), cell.zero_state(2, wf.float32))
      >>> output.shape.as_list()
      [2, 4]
    """

    def __init__(
        self,
        cell: Any,
        couple_carry_transform_gates: bool = True,
        carry_bias_init: float = 1.0,
    ) -> None:
        super().__init__(cell)
        self._coupled, self._start = couple_carry_transform_gates, carry_bias_init

    def __call__(self, inputs: Any, state: Any, scope: Any = None) -> Any:
        """Run one step; see `RNNCell`."""
        outputs, new_state = self.cell(inputs, state, scope=scope)
        if inputs.shape[1].value != outputs.shape[1].value:
            raise errors.InvalidArgumentError(
                f"a highway requires an input as wide as the output, got {inputs.shape} and "
                f"{outputs.shape}"
            )
        carry = self._gate("carry", inputs, self._start)
        past = 1 - carry if self._coupled else self._gate("transform", inputs, -self._start)
        return inputs * carry + outputs * past, new_state

    def _gate(self, name: str, inputs: Any, start: float) -> Any:
        width, dtype = inputs.shape[1].value, inputs.dtype.base_dtype
        kernel = get_variable(f"{name}_w", [width, width], dtype)
        bias = get_variable(f"{name}_b", [width], dtype, Constant(start))
        return sigmoid(nn.bias_add(matmul.matmul(inputs, kernel), bias))


class ConvLSTMCell(RNNCell):
    """An LSTM cell with convolutions instead of matrix products.

    Args:
      conv_ndims: n, the number of spatial axes: 1, 2 or 3.
      input_shape: shape of an example: n sizes, and the channels.
      output_channels: H.
      kernel_shape: n sizes.
      use_bias: True to add a bias.
      skip_connection: True to concatenate the input to the output.
      forget_bias: added to the forget gate's input.
      initializers: dict for "kernel" and "bias"; by default the initializer of the variable scope,
        and zeros.
      name: name of the cell.
    Raises: InvalidArgumentError: `input_shape` does not have n sizes and the channels.
    Source: Shi et al. 2015.

    Examples:
      >>> cell = wf.contrib.rnn.ConvLSTMCell(2, [6, 6, 3], 4, [3, 3])
      >>> output, state = cell(wf.zeros([2, 6, 6, 3]), cell.zero_state(2, wf.float32))
      >>> output.shape.as_list()
      [2, 6, 6, 4]
    """

    def __init__(
        self,
        conv_ndims: int,
        input_shape: Sequence[int],
        output_channels: int,
        kernel_shape: Sequence[int],
        use_bias: bool = True,
        skip_connection: bool = False,
        forget_bias: float = 1.0,
        initializers: Mapping[str, Any] | None = None,
        name: str = "conv_lstm_cell",
    ) -> None:
        super().__init__(name=name)
        if conv_ndims != len(input_shape) - 1:
            raise errors.InvalidArgumentError(
                f"input_shape must be {conv_ndims} sizes and the channels, got {input_shape}"
            )
        self._kernel_shape = list(kernel_shape)
        self._use_bias, self._skips, self._forget_bias = use_bias, skip_connection, forget_bias
        self._initializers = initializers
        space = list(input_shape[:-1])
        self._hidden = [*space, output_channels]
        self._output = [*space, output_channels + (input_shape[-1] if skip_connection else 0)]

    @property
    def state_size(self) -> Any:
        """LSTMStateTuple of the shapes (*space, H)."""
        return LSTMStateTuple(TensorShape(self._hidden), TensorShape(self._hidden))

    @property
    def output_size(self) -> Any:
        """The shape of the output of an example."""
        return TensorShape(self._output)

    def call(self, inputs: Any, state: Any) -> Any:
        """Run one step: shapes (B, *space, C) and (B, *space, H) twice."""
        c, h = state
        width = self._hidden[-1]
        x = join.concat([inputs, h], -1)
        shape = [*self._kernel_shape, x.shape[-1].value, 4 * width]
        dtype, initializers = x.dtype.base_dtype, self._initializers or {}
        kernel = get_variable("kernel", shape, dtype, initializers.get("kernel"))
        gates = convolution(x, kernel, padding="SAME")
        if self._use_bias:
            gates = gates + get_variable(
                "biases", [4 * width], dtype, initializers.get("bias", Zeros())
            )
        i, j, f, o = join.split(gates, 4, axis=-1)
        new_c = sigmoid(f + self._forget_bias) * c + sigmoid(i) * tanh(j)
        new_h = tanh(new_c) * sigmoid(o)
        output = join.concat([new_h, inputs], -1) if self._skips else new_h
        return output, LSTMStateTuple(new_c, new_h)


class Conv1DLSTMCell(ConvLSTMCell):
    """A `ConvLSTMCell` over sequences.

    Args:
      name: name of the cell.
      **kwargs: arguments of `ConvLSTMCell`, from `input_shape` on.

    Examples:
      >>> cell = wf.contrib.rnn.Conv1DLSTMCell(
      ...     input_shape=[6, 3], output_channels=4, kernel_shape=[3]
      ... )
      >>> cell.output_size.as_list()
      [6, 4]
    """

    def __init__(self, name: str = "conv_1d_lstm_cell", **kwargs: Any) -> None:
        super().__init__(1, name=name, **kwargs)


class Conv2DLSTMCell(ConvLSTMCell):
    """A `ConvLSTMCell` over images.

    Args:
      name: name of the cell.
      **kwargs: arguments of `ConvLSTMCell`, from `input_shape` on.

    Examples:
      >>> cell = wf.contrib.rnn.Conv2DLSTMCell(
      ...     input_shape=[6, 6, 3], output_channels=4, kernel_shape=[3, 3]
      ... )
      >>> cell.output_size.as_list()
      [6, 6, 4]
    """

    def __init__(self, name: str = "conv_2d_lstm_cell", **kwargs: Any) -> None:
        super().__init__(2, name=name, **kwargs)


class Conv3DLSTMCell(ConvLSTMCell):
    """A `ConvLSTMCell` over volumes.

    Args:
      name: name of the cell.
      **kwargs: arguments of `ConvLSTMCell`, from `input_shape` on.

    Examples:
      >>> cell = wf.contrib.rnn.Conv3DLSTMCell(
      ...     input_shape=[4, 6, 6, 3], output_channels=4, kernel_shape=[3, 3, 3]
      ... )
      >>> cell.output_size.as_list()
      [4, 6, 6, 4]
    """

    def __init__(self, name: str = "conv_3d_lstm_cell", **kwargs: Any) -> None:
        super().__init__(3, name=name, **kwargs)
