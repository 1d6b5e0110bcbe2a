"""Cells whose state is their output: the basic RNN cell and the gated recurrent unit."""

from __future__ import annotations

__all__ = ["BasicRNNCell", "GRUCell"]

from typing import Any

from weft_graph import nn
from weft_graph.ir.builder import out
from weft_graph.ir.node import Output
from weft_graph.layers.arguments import activation_of, initializer_of
from weft_graph.layers.base import InputSpec
from weft_graph.ops import join
from weft_graph.rnn.cell.base import LayerRNNCell
from weft_graph.variables.initializers import constant_initializer, zeros_initializer
from weft_tensor.arguments import check_integer


def affine(inputs: Output, state: Output, kernel: Any, bias: Any) -> Output:
    """Return [inputs, state] @ kernel + bias: shapes (B, I), (B, H), (I + H, O), (O,) to (B, O)."""
    product = out("MatMul", [join.concat([inputs, state], 1), kernel])
    return nn.bias_add(product, bias)


class BasicRNNCell(LayerRNNCell):
    """Basic RNN cell: h' = activation([x, h] @ kernel + bias), which is also the output.

    Args:
      num_units: H, size of the state.
      activation: function, or its name; tanh by default.
      reuse: reuse the variables of a previous cell of that name.
      name: name of the cell and its variable scope.
      dtype: element type of the variables; defaults to that of the first input.
      **kwargs: arguments of `layers.Layer`.

    Examples:
      >>> cell = wf.nn.rnn_cell.BasicRNNCell(8)
      >>> output, state = cell(wf.zeros([2, 3]), cell.zero_state(2, wf.float32))
      >>> output.shape
      TensorShape([Dimension(2), Dimension(8)])
    """

    _configured = ("num_units", "activation", "reuse")

    def __init__(
        self,
        num_units: int,
        activation: Any = None,
        reuse: Any = None,
        name: str | None = None,
        dtype: Any = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(name=name, dtype=dtype, _reuse=reuse, **kwargs)
        self.input_spec = InputSpec(ndim=2)
        self._num_units = check_integer(num_units, "num_units", 0)
        self._activation = activation_of(activation) or nn.tanh

    @property
    def state_size(self) -> int:
        """The size H."""
        return self._num_units

    @property
    def output_size(self) -> int:
        """The size H."""
        return self._num_units

    def build(self, input_shape: Any) -> None:
        """Create the kernel (I + H, H) and the bias (H,).

        Raises: InvalidArgumentError: the last size of the input is unknown.
        """
        units = self._num_units
        depth = self._input_depth(input_shape)
        self._kernel = self.add_weight("kernel", shape=(depth + units, units))
        self._bias = self.add_weight("bias", shape=(units,), initializer=zeros_initializer())
        self.built = True

    def call(self, inputs: Output, state: Any) -> tuple[Output, Output]:
        """Compute one step from shapes (B, I) and (B, H)."""
        output = self._activation(affine(inputs, state, self._kernel, self._bias))
        return output, output


class GRUCell(LayerRNNCell):
    """The gated recurrent unit.

        r, u = sigmoid([x, h] @ gates/kernel + gates/bias), split in two
        c = activation([x, r * h] @ candidate/kernel + candidate/bias)
        h' = u * h + (1 - u) * c, which is also the output

    Args:
      num_units: H, size of the state.
      activation: function, or its name; tanh by default.
      reuse: reuse the variables of a previous cell of that name.
      kernel_initializer: initializer of both kernels; defaults to that of the variable scope.
      bias_initializer: initializer of both biases; by default ones for the gates and zeros for the
        candidate.
      name: name of the cell and its variable scope.
      dtype: element type of the variables; defaults to that of the first input.
      **kwargs: arguments of `layers.Layer`.
    Source: Cho et al. 2014.

    Examples:
      >>> cell = wf.nn.rnn_cell.GRUCell(8)
      >>> output, state = cell(wf.zeros([2, 3]), cell.zero_state(2, wf.float32))
      >>> output.shape
      TensorShape([Dimension(2), Dimension(8)])
    """

    _configured = ("num_units", "activation", "reuse", "kernel_initializer", "bias_initializer")

    def __init__(
        self,
        num_units: int,
        activation: Any = None,
        reuse: Any = None,
        kernel_initializer: Any = None,
        bias_initializer: Any = None,
        name: str | None = None,
        dtype: Any = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(name=name, dtype=dtype, _reuse=reuse, **kwargs)
        self.input_spec = InputSpec(ndim=2)
        self._num_units = check_integer(num_units, "num_units", 0)
        self._activation = activation_of(activation) or nn.tanh
        self._kernel_initializer = initializer_of(kernel_initializer, "kernel_initializer")
        self._bias_initializer = initializer_of(bias_initializer, "bias_initializer")

    @property
    def state_size(self) -> int:
        """The size H."""
        return self._num_units

    @property
    def output_size(self) -> int:
        """The size H."""
        return self._num_units

    def build(self, input_shape: Any) -> None:
        """Create the kernels (I + H, 2 H) and (I + H, H), and their biases.

        Raises: InvalidArgumentError: the last size of the input is unknown.
        """
        units = self._num_units
        rows = self._input_depth(input_shape) + units
        biases = self._bias_initializer
        self._gate_kernel = self.add_weight(
            "gates/kernel", shape=(rows, 2 * units), initializer=self._kernel_initializer
        )
        self._gate_bias = self.add_weight(
            "gates/bias",
            shape=(2 * units,),
            initializer=constant_initializer(1.0) if biases is None else biases,
        )
        self._candidate_kernel = self.add_weight(
            "candidate/kernel", shape=(rows, units), initializer=self._kernel_initializer
        )
        self._candidate_bias = self.add_weight(
            "candidate/bias",
            shape=(units,),
            initializer=zeros_initializer() if biases is None else biases,
        )
        self.built = True

    def call(self, inputs: Output, state: Any) -> tuple[Output, Output]:
        """Compute one step from shapes (B, I) and (B, H)."""
        gates = nn.sigmoid(affine(inputs, state, self._gate_kernel, self._gate_bias))
        r, u = join.split(gates, 2, axis=1)
        c = self._activation(
            affine(inputs, r * state, self._candidate_kernel, self._candidate_bias)
        )
        # Not c + u * (h - c), which is a node less: where u is 1 the state must stay what it is.
        new_state = u * state + (1 - u) * c
        return new_state, new_state
