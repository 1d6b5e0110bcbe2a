"""Cells of `tf.contrib.rnn` with one op per step, and layers with one op for all steps."""

from __future__ import annotations

__all__ = [
    "GRUBlockCell",
    "GRUBlockCellV2",
    "LSTMBlockCell",
    "LSTMBlockFusedCell",
    "LSTMBlockWrapper",
]

from abc import abstractmethod
from typing import Any, ClassVar

from weft_graph.ir.builder import convert_to_tensor, create
from weft_graph.ir.node import Output
from weft_graph.layers.base import InputSpec, Layer
from weft_graph.ops import (
    array,
    casting,
    gather,
    join,
    masks,
    permutation,
    reduction,
    sequence,
    shapes,
)
from weft_graph.rnn.cell.base import LayerRNNCell
from weft_graph.rnn.cell.lstm import LSTMStateTuple
from weft_graph.variables.initializers import Constant, Zeros
from weft_tensor import dtypes, errors
from weft_tensor.arguments import check_integer
from weft_tensor.shape import as_dims, format_dims


class _Weights:
    """The variables of a block LSTM, in the order of its ops' inputs.

    Args:
      layer: the layer that owns the variables.
      depth: size of the layer's input.
      units: H.
      peepholes: True to add peephole weights.
    """

    def __init__(self, layer: Layer, depth: int, units: int, peepholes: bool) -> None:
        self._kernel = layer.add_weight("kernel", [depth + units, 4 * units])
        self._bias = layer.add_weight("bias", [4 * units], initializer=Zeros())
        names = [f"w_{gate}_diag" for gate in "ifo"] if peepholes else []
        self._peepholes = [layer.add_weight(name, [units]) for name in names]
        self._units = units

    def in_order(self) -> list[Any]:
        """Return w, wci, wcf, wco and b, in this order."""
        zeros = None if self._peepholes else array.zeros([self._units], self._kernel.dtype)
        return [self._kernel, *(self._peepholes or [zeros] * 3), self._bias]


def _pair(state: Any, role: str) -> tuple[Any, Any]:
    if not isinstance(state, tuple | list) or len(state) != 2:
        raise errors.InvalidArgumentError(f"{role} must be a pair (c, h), got {state!r}")
    return state[0], state[1]


class LSTMBlockCell(LayerRNNCell):
    """Long short-term memory with one op per step, `LSTMBlockCell`.

    The variables are those of `nn.rnn_cell.LSTMCell`: kernel, bias, and w_i_diag, w_f_diag and
    w_o_diag. Gradients flow back only through c and h, also where c was clipped. They cannot be
    differentiated again.

    Args:
      num_units: H.
      forget_bias: added to the forget gate's input.
      cell_clip: bound of c on both sides; None or a negative number for none.
      use_peephole: True if the gates read c.
      dtype: element type of the variables.
      reuse: reuse mode of the variables.
      name: name of the cell.

    Examples:
      >>> cell = wf.contrib.rnn.LSTMBlockCell(8, use_peephole=True)
      >>> output, (c, h) = cell(wf.zeros([2, 3]), cell.zero_state(2, wf.float32))
      >>> output.shape.as_list()
      [2, 8]
    """

    _configured = ("num_units", "forget_bias", "cell_clip", "use_peephole", "reuse")

    def __init__(
        self,
        num_units: int,
        forget_bias: float = 1.0,
        cell_clip: float | None = None,
        use_peephole: bool = False,
        dtype: Any = None,
        reuse: Any = None,
        name: str | None = "lstm_cell",
    ) -> None:
        super().__init__(name=name, dtype=dtype, _reuse=reuse)
        self.input_spec = InputSpec(ndim=2)
        self._num_units = check_integer(num_units, "num_units", 0)
        self._forget_bias = forget_bias
        self._cell_clip = cell_clip
        self._use_peephole = use_peephole

    @property
    def state_size(self) -> LSTMStateTuple:
        """LSTMStateTuple(H, H)."""
        return LSTMStateTuple(self._num_units, self._num_units)

    @property
    def output_size(self) -> int:
        """H."""
        return self._num_units

    def build(self, input_shape: Any) -> None:
        """Create kernel (I + H, 4 H), bias (4 H,) and peepholes (H,)."""
        depth = self._input_depth(input_shape)
        self._weights = _Weights(self, depth, self._num_units, self._use_peephole)
        self.built = True

    def call(self, inputs: Any, state: Any) -> tuple[Output, LSTMStateTuple]:
        """Run one step: shapes (B, I) and (B, H) twice."""
        c, h = _pair(state, f"the state of {self.name}")
        attrs = {
            "forget_bias": self._forget_bias,
            "cell_clip": -1.0 if self._cell_clip is None else self._cell_clip,
            "use_peephole": self._use_peephole,
        }
        outputs = create("LSTMBlockCell", [inputs, c, h, *self._weights.in_order()], attrs).outputs
        return outputs[6], LSTMStateTuple(outputs[1], outputs[6])


class LSTMBlockWrapper(Layer):
    """Base class of layers that run all steps at once.

    Examples:
      >>> layer = wf.contrib.rnn.LSTMBlockFusedCell(8)
      >>> isinstance(layer, wf.contrib.rnn.LSTMBlockWrapper)
      True
    """

    @property
    @abstractmethod
    def num_units(self) -> int:
        """H."""

    @abstractmethod
    def _call_cell(
        self,
        inputs: Output,
        initial_cell_state: Output,
        initial_output: Output,
        dtype: Any,
        sequence_length: Output | None,
    ) -> tuple[Output, Output]:
        """Compute all steps.

        Args:
          inputs: shape (T, B, I).
          initial_cell_state, initial_output: shape (B, H).
          dtype: element type of the states.
          sequence_length: int32 or int64, shape (B,), or None.
        Returns: c and h of each step, shape (T, B, H).
        """

    def __call__(self, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        """Run all steps.

        Args:
          inputs: floating, shape (T, B, I), or a list of T tensors of shape (B, I).
          initial_state: pair (c, h) of shape (B, H); zeros by default.
          dtype: element type of the zeros.
          sequence_length: integers, shape (B,), or None for T.
        Returns: the outputs, in the form of the inputs, 0 after the end of a sequence; the final
          LSTMStateTuple of each sequence.
        Raises: InvalidArgumentError: there is neither `initial_state` nor `dtype`, or the state is
          not a pair.
        """
        listed = isinstance(inputs, list)
        outputs, state = super().__call__(join.stack(inputs) if listed else inputs, *args, **kwargs)
        return (join.unstack(outputs) if listed else outputs), state

    def call(
        self,
        inputs: Output,
        initial_state: Any = None,
        dtype: Any = None,
        sequence_length: Any = None,
    ) -> tuple[Output, LSTMStateTuple]:
        """Run all steps on one tensor, as `__call__` does."""
        steps, batch = (shapes.shape(inputs)[axis] for axis in range(2))
        if initial_state is not None:
            c, h = _pair(initial_state, "initial_state")
            dtype = convert_to_tensor(c).dtype.base_dtype
        elif dtype is None:
            raise errors.InvalidArgumentError(f"{self.name} requires initial_state or dtype")
        else:
            c = h = array.zeros(join.stack([batch, self.num_units]), dtype)
        if sequence_length is not None:
            sequence_length = casting.cast(sequence_length, dtypes.int32)
        cells, outputs = self._call_cell(inputs, c, h, dtype, sequence_length)
        if sequence_length is not None:
            mask = masks.sequence_mask(sequence_length, steps, dtype)
            outputs = outputs * shapes.expand_dims(permutation.transpose(mask), -1)
        last = [_final_state(*pair, sequence_length) for pair in ((c, cells), (h, outputs))]
        return outputs, LSTMStateTuple(*last)


def _final_state(first: Any, states: Output, lengths: Output | None) -> Output:
    """Return the state at the end of each sequence; the initial one for empty sequences.

    Args:
      first: shape (B, H).
      states: shape (T, B, H).
      lengths: shape (B,), or None for T.
    """
    if lengths is None:
        return join.concat([[first], states[-1:]], 0)[-1]
    positions = join.stack([lengths, sequence.range(shapes.shape(lengths)[0])], 1)
    return gather.gather_nd(join.concat([[first], states], 0), positions)


class LSTMBlockFusedCell(LSTMBlockWrapper):
    """Long short-term memory with one op for all steps, `BlockLSTM`.

    Variables and gradients are those of `LSTMBlockCell`. The call is that of `LSTMBlockWrapper`:
    the first axis is that of the steps.

    Args:
      num_units: H.
      forget_bias: added to the forget gate's input.
      cell_clip: bound of c on both sides; None or a negative number for none.
      use_peephole: True if the gates read c.
      reuse: reuse mode of the variables.
      dtype: element type of the variables.
      name: name of the layer.

    Examples:
      >>> layer = wf.contrib.rnn.LSTMBlockFusedCell(8)
      >>> outputs, state = layer(wf.zeros([5, 2, 3]), dtype=wf.float32, sequence_length=[5, 4])
      >>> outputs.shape.as_list(), state.c.shape.as_list()
      ([5, 2, 8], [2, 8])
    """

    def __init__(
        self,
        num_units: int,
        forget_bias: float = 1.0,
        cell_clip: float | None = None,
        use_peephole: bool = False,
        reuse: Any = None,
        dtype: Any = None,
        name: str | None = "lstm_fused_cell",
    ) -> None:
        super().__init__(name=name, dtype=dtype, _reuse=reuse)
        self.input_spec = InputSpec(ndim=3)
        self._num_units = check_integer(num_units, "num_units", 0)
        self._forget_bias = forget_bias
        self._cell_clip = cell_clip
        self._use_peephole = use_peephole

    @property
    def num_units(self) -> int:
        """H."""
        return self._num_units

    def build(self, input_shape: Any) -> None:
        """Create kernel (I + H, 4 H), bias (4 H,) and peepholes (H,).

        Raises: InvalidArgumentError: the last size of the input is unknown.
        """
        dims = as_dims(input_shape)
        if not dims or dims[-1] is None:
            raise errors.InvalidArgumentError(
                f"{self.name} requires an input whose last size is known, got {format_dims(dims)}"
            )
        self._weights = _Weights(self, dims[-1], self._num_units, self._use_peephole)
        self.built = True

    def _call_cell(
        self,
        inputs: Output,
        initial_cell_state: Output,
        initial_output: Output,
        dtype: Any,
        sequence_length: Output | None,
    ) -> tuple[Output, Output]:
        longest = shapes.shape(inputs)[0] if sequence_length is None else sequence_length
        attrs = {
            "forget_bias": self._forget_bias,
            "cell_clip": -1.0 if self._cell_clip is None else self._cell_clip,
            "use_peephole": self._use_peephole,
        }
        # without sequences there is no longest one
        count = reduction.reduce_max(join.concat([[0], shapes.reshape(longest, [-1])], 0))
        states = [initial_cell_state, initial_output]
        op_inputs = [casting.cast(count, dtypes.int64), inputs, *states, *self._weights.in_order()]
        op_outputs = create("BlockLSTM", op_inputs, attrs).outputs
        return op_outputs[1], op_outputs[6]


class GRUBlockCellV2(LayerRNNCell):
    """A gated recurrent unit with one op per step, `GRUBlockCell`.

    The variables are those of `nn.rnn_cell.GRUCell`: gates/kernel, gates/bias, candidate/kernel,
    candidate/bias. Gradients cannot be differentiated again.

    Args:
      num_units: H.
      cell_size: deprecated name of `num_units`.
      reuse: reuse mode of the variables.
      name: name of the cell.
    Raises: InvalidArgumentError: neither or both sizes are set.

    Examples:
      >>> cell = wf.contrib.rnn.GRUBlockCellV2(8)
      >>> output, state = cell(wf.zeros([2, 3]), cell.zero_state(2, wf.float32))
      >>> output.shape.as_list()
      [2, 8]
    """

    _configured = ("num_units", "reuse")
    _names: ClassVar = ("gates/kernel", "gates/bias", "candidate/kernel", "candidate/bias")

    def __init__(
        self,
        num_units: int | None = None,
        cell_size: int | None = None,
        reuse: Any = None,
        name: str | None = "gru_cell",
    ) -> None:
        super().__init__(name=name, _reuse=reuse)
        if (num_units is None) is (cell_size is None):
            raise errors.InvalidArgumentError(
                f"num_units or its deprecated name cell_size is required, got {num_units} and "
                f"{cell_size}"
            )
        self.input_spec = InputSpec(ndim=2)
        units = cell_size if num_units is None else num_units
        self._num_units = check_integer(units, "num_units", 0)

    @property
    def state_size(self) -> int:
        """H."""
        return self._num_units

    @property
    def output_size(self) -> int:
        """H."""
        return self._num_units

    def build(self, input_shape: Any) -> None:
        """Create the kernels (I + H, 2 H) and (I + H, H), and their biases."""
        units, rows = self._num_units, self._input_depth(input_shape) + self._num_units
        gates, gate_bias, candidate, candidate_bias = self._names
        self._weights = [
            self.add_weight(gates, [rows, 2 * units]),
            self.add_weight(candidate, [rows, units]),
            self.add_weight(gate_bias, [2 * units], initializer=Constant(1.0)),
            self.add_weight(candidate_bias, [units], initializer=Zeros()),
        ]
        self.built = True

    def call(self, inputs: Any, state: Any) -> tuple[Output, Output]:
        """Run one step: shapes (B, I) and (B, H)."""
        new = create("GRUBlockCell", [inputs, state, *self._weights]).outputs[3]
        return new, new


class GRUBlockCell(GRUBlockCellV2):
    """A `GRUBlockCellV2` with the older names of its variables: w_ru, b_ru, w_c, b_c.

    Args:
      num_units, cell_size, reuse, name: as for `GRUBlockCellV2`.

    Examples:
      >>> cell = wf.contrib.rnn.GRUBlockCell(8)
      >>> output, state = cell(wf.zeros([2, 3]), cell.zero_state(2, wf.float32))
      >>> [variable.op.name for variable in cell.trainable_variables]
      ['gru_cell/w_ru', 'gru_cell/w_c', 'gru_cell/b_ru', 'gru_cell/b_c']
    """

    _names = ("w_ru", "b_ru", "w_c", "b_c")
