"""`tf.contrib.cudnn_rnn`: plain cells that can use the weights of cuDNN's networks."""

from __future__ import annotations

__all__ = ["CudnnCompatibleGRUCell", "CudnnCompatibleLSTMCell"]

from typing import Any

from weft_contrib.rnn_block_cells import LSTMBlockCell
from weft_graph.ops import join, matmul, nn, trigonometry
from weft_graph.ops.elementary import sigmoid
from weft_graph.rnn.cell.basic import GRUCell
from weft_graph.variables.initializers import Ones, Zeros


class CudnnCompatibleLSTMCell(LSTMBlockCell):
    """An LSTM cell without forget bias, compatible with cuDNN.

    Args:
      num_units: H.
      reuse: reuse mode of the variables.
    """

    def __init__(self, num_units: int, reuse: Any = None) -> None:
        super().__init__(num_units, 0.0, reuse=reuse, name="cudnn_compatible_lstm_cell")


class CudnnCompatibleGRUCell(GRUCell):
    """A GRU cell that applies the reset gate after the product, compatible with cuDNN.

    Args:
      num_units: H.
      reuse: reuse mode of the variables.
      kernel_initializer: initializer of the kernels.
    """

    def __init__(self, num_units: int, reuse: Any = None, kernel_initializer: Any = None) -> None:
        super().__init__(num_units, reuse=reuse, name="cudnn_compatible_gru_cell")
        self._kernel_initializer = kernel_initializer

    def build(self, input_shape: Any) -> None:
        """Create gates/kernel, gates/bias and the projections of input and state."""
        depth, units = self._input_depth(input_shape), self._num_units
        kernel, bias = self._kernel_initializer, self._bias_initializer
        self._gates = self.add_weight(
            "gates/kernel", [depth + units, 2 * units], initializer=kernel
        )
        self._gate_bias = self.add_weight("gates/bias", [2 * units], initializer=bias or Ones())
        self._candidates = []
        for side, size in (("input", depth), ("hidden", units)):
            name = f"candidate/{side}_projection"
            weights = self.add_weight(f"{name}/kernel", [size, units], initializer=kernel)
            offset = self.add_weight(f"{name}/bias", [units], initializer=bias or Zeros())
            self._candidates.append((weights, offset))
        self.built = True

    def call(self, inputs: Any, state: Any) -> Any:
        """Run one step: shapes (B, I) and (B, H)."""
        product = matmul.matmul(join.concat([inputs, state], 1), self._gates)
        r, u = join.split(sigmoid(nn.bias_add(product, self._gate_bias)), 2, axis=1)
        (weights, bias), (hidden, hidden_bias) = self._candidates
        candidate = nn.bias_add(matmul.matmul(inputs, weights), bias)
        candidate += r * nn.bias_add(matmul.matmul(state, hidden), hidden_bias)
        new = (1 - u) * trigonometry.tanh(candidate) + u * state
        return new, new
