"""Long short-term memory (LSTM) cells."""

from __future__ import annotations

__all__ = ["BasicLSTMCell", "LSTMCell", "LSTMStateTuple"]

from typing import Any, NamedTuple

from weft_graph import nn
from weft_graph.ir.builder import out
from weft_graph.ir.node import Output
from weft_graph.layers.arguments import activation_of, initializer_of
from weft_graph.layers.base import InputSpec
from weft_graph.nn.scope import static_number
from weft_graph.ops import arithmetic, join, slicing
from weft_graph.rnn.cell.base import LayerRNNCell
from weft_graph.rnn.cell.basic import affine
from weft_graph.variables.initializers import zeros_initializer
from weft_graph.variables.partitioning import fixed_size_partitioner
from weft_tensor import errors
from weft_tensor.arguments import check_integer


class LSTMStateTuple(NamedTuple):
    """The state of an LSTM cell.

    Attributes:
      c: the memory, shape (B, C).
      h: the last output, shape (B, H).

    Args:
      c: floating, shape (B, C).
      h: same dtype, shape (B, H).

    Examples:
      >>> cell = wf.nn.rnn_cell.LSTMCell(4)
      >>> cell.state_size
      LSTMStateTuple(c=4, h=4)
      >>> start = wf.nn.rnn_cell.LSTMStateTuple(c=wf.zeros([2, 4]), h=wf.ones([2, 4]))
      >>> output, state = cell(wf.zeros([2, 3]), start)
      >>> state.c.shape.as_list()
      [2, 4]
    """

    c: Any
    h: Any

    @property
    def dtype(self) -> Any:
        """The element type of both.

        Raises: InvalidTypeError: they differ.
        """
        if self.c.dtype != self.h.dtype:
            raise errors.InvalidTypeError(
                f"c and h must have the same type, got {self.c.dtype.name} and {self.h.dtype.name}"
            )
        return self.c.dtype


class BasicLSTMCell(LayerRNNCell):
    """LSTM cell without the options of `LSTMCell`.

        i, j, f, o = [x, h] @ kernel + bias, split in four
        c' = sigmoid(f + forget_bias) * c + sigmoid(i) * activation(j)
        h' = sigmoid(o) * activation(c'), which is also the output

    Args:
      num_units: H, size of c and of h.
      forget_bias: added to the forget gate's input.
      state_is_tuple: True if the state is an LSTMStateTuple, False for c and h concatenated: (B, 2
        H).
      activation: function, or its name; tanh by default.
      reuse: reuse the variables of a previous cell of that name.
      name: name of the cell and its variable scope.
      dtype: element type of the variables; defaults to that of the first input.
      **kwargs: arguments of `layers.Layer`.
    Source: Hochreiter and Schmidhuber 1997; Zaremba et al. 2014.

    Examples:
      >>> cell = wf.nn.rnn_cell.BasicLSTMCell(8)
      >>> output, state = cell(wf.zeros([2, 3]), cell.zero_state(2, wf.float32))
      >>> output.shape
      TensorShape([Dimension(2), Dimension(8)])
    """

    _configured = ("num_units", "forget_bias", "state_is_tuple", "activation", "reuse")

    def __init__(
        self,
        num_units: int,
        forget_bias: float = 1.0,
        state_is_tuple: bool = True,
        activation: Any = None,
        reuse: Any = None,
        name: str | None = None,
        dtype: Any = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(name=name, dtype=dtype, _reuse=reuse, **kwargs)
        self.input_spec = InputSpec(ndim=2)
        self._num_units = check_integer(num_units, "num_units", 0)
        self._forget_bias = forget_bias
        self._state_is_tuple = state_is_tuple
        self._activation = activation_of(activation) or nn.tanh

    @property
    def state_size(self) -> Any:
        """The sizes LSTMStateTuple(H, H), or 2 H."""
        units = self._num_units
        return LSTMStateTuple(units, units) if self._state_is_tuple else 2 * units

    @property
    def output_size(self) -> int:
        """The size H."""
        return self._num_units

    def build(self, input_shape: Any) -> None:
        """Create the kernel (I + H, 4 H) and the bias (4 H,).

        Raises: InvalidArgumentError: the last size of the input is unknown.
        """
        units = self._num_units
        depth = self._input_depth(input_shape)
        self._kernel = self.add_weight("kernel", shape=(depth + units, 4 * units))
        self._bias = self.add_weight("bias", shape=(4 * units,), initializer=zeros_initializer())
        self.built = True

    def call(self, inputs: Output, state: Any) -> tuple[Output, Any]:
        """Compute one step from shapes (B, I), (B, H) and (B, H)."""
        c, h = state if self._state_is_tuple else join.split(state, 2, axis=1)
        i, j, f, o = join.split(affine(inputs, h, self._kernel, self._bias), 4, axis=1)
        act, sigmoid = self._activation, nn.sigmoid
        if static_number(self._forget_bias) != 0:
            f = arithmetic.add(f, self._forget_bias)
        retained = arithmetic.multiply(c, sigmoid(f))
        new_c = arithmetic.add(retained, arithmetic.multiply(sigmoid(i), act(j)))
        new_h = arithmetic.multiply(act(new_c), sigmoid(o))
        if self._state_is_tuple:
            return new_h, LSTMStateTuple(new_c, new_h)
        return new_h, join.concat([new_c, new_h], 1)


class LSTMCell(LayerRNNCell):
    """LSTM cell with optional peepholes, clipping and projection.

        i, j, f, o = [x, h] @ kernel + bias, split in four
        c' = sigmoid(f + forget_bias + w_f * c) * c + sigmoid(i + w_i * c) * activation(j)
        h' = (sigmoid(o + w_o * c') * activation(c')) @ projection, which is also the output

    The terms with w_f, w_i and w_o are the peepholes.  c' is clipped before its uses, and h' after
    the projection.

    Args:
      num_units: C, size of c.
      use_peepholes: add peepholes, so that the gates depend on c.
      cell_clip: clip c' to [-cell_clip, cell_clip]; None for no limit.
      initializer: initializer of kernels and peepholes; defaults to that of the variable scope.
      num_proj: H, size of h and of the output; by default C, without a projection.
      proj_clip: clip h' to [-proj_clip, proj_clip] if there is a projection.
      num_unit_shards, num_proj_shards: number of parts of the kernel and of the projection, along
        their rows; by default the partitioner of the variable scope.
      forget_bias: added to the forget gate's input.
      state_is_tuple: True if the state is an LSTMStateTuple, False for c and h concatenated: (B, C
        + H).
      activation: function, or its name; tanh by default.
      reuse: reuse the variables of a previous cell of that name.
      name: name of the cell and its variable scope.
      dtype: element type of the variables; defaults to that of the first input.
      **kwargs: arguments of `layers.Layer`.
    Source: Hochreiter and Schmidhuber 1997; Sak et al. 2014.

    Examples:
      >>> cell = wf.nn.rnn_cell.LSTMCell(8)
      >>> output, state = cell(wf.zeros([2, 3]), cell.zero_state(2, wf.float32))
      >>> output.shape
      TensorShape([Dimension(2), Dimension(8)])
    """

    _configured = (
        "num_units",
        "use_peepholes",
        "cell_clip",
        "initializer",
        "num_proj",
        "proj_clip",
        "num_unit_shards",
        "num_proj_shards",
        "forget_bias",
        "state_is_tuple",
        "activation",
        "reuse",
    )

    def __init__(
        self,
        num_units: int,
        use_peepholes: bool = False,
        cell_clip: float | None = None,
        initializer: Any = None,
        num_proj: int | None = None,
        proj_clip: float | None = None,
        num_unit_shards: int | None = None,
        num_proj_shards: int | None = None,
        forget_bias: float = 1.0,
        state_is_tuple: bool = True,
        activation: Any = None,
        reuse: Any = None,
        name: str | None = None,
        dtype: Any = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(name=name, dtype=dtype, _reuse=reuse, **kwargs)
        self.input_spec = InputSpec(ndim=2)
        self._num_units = check_integer(num_units, "num_units", 0)
        self._use_peepholes = use_peepholes
        self._cell_clip = cell_clip
        self._initializer = initializer_of(initializer, "initializer")
        self._num_proj = None if num_proj is None else check_integer(num_proj, "num_proj", 1)
        self._proj_clip = proj_clip
        self._num_unit_shards = num_unit_shards
        self._num_proj_shards = num_proj_shards
        self._forget_bias = forget_bias
        self._state_is_tuple = state_is_tuple
        self._activation = activation_of(activation) or nn.tanh

    @property
    def state_size(self) -> Any:
        """The sizes LSTMStateTuple(C, H), or C + H."""
        c, h = self._num_units, self.output_size
        return LSTMStateTuple(c, h) if self._state_is_tuple else c + h

    @property
    def output_size(self) -> int:
        """The size H."""
        return self._num_units if self._num_proj is None else self._num_proj

    def build(self, input_shape: Any) -> None:
        """Create the kernel (I + H, 4 C), the bias (4 C,), peepholes (C,) and projection (C, H).

        Raises: InvalidArgumentError: the last size of the input is unknown.
        """
        units, rows = self._num_units, self._input_depth(input_shape) + self.output_size
        self._kernel = self._matrix("kernel", (rows, 4 * units), self._num_unit_shards)
        self._bias = self.add_weight("bias", shape=(4 * units,), initializer=zeros_initializer())
        if self._use_peepholes:
            self._peep_f, self._peep_i, self._peep_o = [
                self.add_weight(f"w_{gate}_diag", shape=(units,), initializer=self._initializer)
                for gate in "fio"
            ]
        if self._num_proj is not None:
            self._projection = self._matrix(
                "projection/kernel", (units, self._num_proj), self._num_proj_shards
            )
        self.built = True

    def _matrix(self, name: str, shape: tuple[int, int], shards: int | None) -> Any:
        partitioner = None if shards is None else fixed_size_partitioner(shards)
        return self.add_weight(
            name, shape=shape, initializer=self._initializer, partitioner=partitioner
        )

    def call(self, inputs: Output, state: Any) -> tuple[Output, Any]:
        """Compute one step from shapes (B, I), (B, C) and (B, H)."""
        c, h = state if self._state_is_tuple else self._cut(state)
        i, j, f, o = join.split(affine(inputs, h, self._kernel, self._bias), 4, axis=1)
        act, sigmoid = self._activation, nn.sigmoid
        if static_number(self._forget_bias) != 0:
            f = f + self._forget_bias
        if self._use_peepholes:
            f, i = f + c * self._peep_f, i + c * self._peep_i
        new_c = _clip(sigmoid(f) * c + sigmoid(i) * act(j), self._cell_clip)
        if self._use_peepholes:
            o = o + new_c * self._peep_o
        new_h = sigmoid(o) * act(new_c)
        if self._num_proj is not None:
            new_h = _clip(out("MatMul", [new_h, self._projection]), self._proj_clip)
        if self._state_is_tuple:
            return new_h, LSTMStateTuple(new_c, new_h)
        return new_h, join.concat([new_c, new_h], 1)

    def _cut(self, state: Any) -> tuple[Output, Output]:
        c, h = self._num_units, self.output_size
        return slicing.slice(state, [0, 0], [-1, c]), slicing.slice(state, [0, c], [-1, h])


def _clip(value: Output, limit: float | None) -> Output:
    if limit is None:
        return value
    result: Output = arithmetic.clip_by_value(value, -limit, limit)
    return result
