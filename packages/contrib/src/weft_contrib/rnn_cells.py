"""Cells of `tf.contrib.rnn` that `nn.rnn_cell` lacks."""

from __future__ import annotations

__all__ = [
    "EmbeddingWrapper",
    "InputProjectionWrapper",
    "LayerNormBasicLSTMCell",
    "OutputProjectionWrapper",
]

from collections.abc import Callable
from typing import Any

from weft_contrib.layers.normalization import layer_norm
from weft_graph.nn import activation as nn_activation, embedding
from weft_graph.ops import join, matmul, nn, shapes, trigonometry
from weft_graph.ops.elementary import sigmoid
from weft_graph.rnn.cell.base import RNNCell
from weft_graph.rnn.cell.lstm import LSTMStateTuple
from weft_graph.variables.initializers import Constant, RandomUniform, Zeros
from weft_graph.variables.scope import get_variable, variable_scope
from weft_tensor import errors


def linear(inputs: Any, size: int, biased: bool = True, initializer: Any = None) -> Any:
    """Compute inputs @ kernel + bias with variables of the current scope.

    Args:
      inputs: shape (B, I), or a list of such tensors to concatenate.
      size: O.
      biased: True to add a bias.
      initializer: initializer of the kernel.
    Returns: shape (B, O).
    """
    tensors = inputs if isinstance(inputs, list | tuple) else [inputs]
    x = tensors[0] if len(tensors) == 1 else join.concat(tensors, 1)
    kernel = get_variable("kernel", [x.shape[1].value, size], x.dtype.base_dtype, initializer)
    product = matmul.matmul(x, kernel)
    if not biased:
        return product
    bias = get_variable("bias", [size], x.dtype.base_dtype, Zeros())
    return nn.bias_add(product, bias)


class _Wrapper(RNNCell):
    """Base class of cells that wrap another cell.

    Args:
      cell: the wrapped cell.
      reuse: reuse mode of the variables.
    """

    def __init__(self, cell: RNNCell, reuse: Any = None) -> None:
        super().__init__(_reuse=reuse)
        self._cell = cell

    @property
    def state_size(self) -> Any:
        """Return the state size of the wrapped cell."""
        return self._cell.state_size

    @property
    def output_size(self) -> Any:
        """Return the output size of the wrapped cell."""
        return self._cell.output_size

    def zero_state(self, batch_size: Any, dtype: Any) -> Any:
        """Return the zero state of the wrapped cell."""
        return self._cell.zero_state(batch_size, dtype)


class OutputProjectionWrapper(_Wrapper):
    """A wrapper that projects a cell's output.

    Args:
      cell: the wrapped cell.
      output_size: size of the output.
      activation: function applied last, or None.
      reuse: reuse mode of the variables.
    """

    def __init__(
        self,
        cell: RNNCell,
        output_size: int,
        activation: Callable[..., Any] | None = None,
        reuse: Any = None,
    ) -> None:
        super().__init__(cell, reuse)
        self._size = int(output_size)
        self._activation = activation

    @property
    def output_size(self) -> int:
        """Size of the output."""
        return self._size

    def call(self, inputs: Any, state: Any) -> Any:
        """Run one step."""
        output, state = self._cell(inputs, state)
        projected = linear(output, self._size)
        return (projected if self._activation is None else self._activation(projected)), state


class InputProjectionWrapper(_Wrapper):
    """A wrapper that projects a cell's input.

    Args:
      cell: the wrapped cell.
      num_proj: size of the projected input.
      activation: function applied to the projected input, or None.
      input_size: accepted and ignored.
      reuse: reuse mode of the variables.
    """

    def __init__(
        self,
        cell: RNNCell,
        num_proj: int,
        activation: Callable[..., Any] | None = None,
        input_size: Any = None,
        reuse: Any = None,
    ) -> None:
        super().__init__(cell, reuse)
        self._num_proj = int(num_proj)
        self._activation = activation

    def call(self, inputs: Any, state: Any) -> Any:
        """Run one step."""
        projected = linear(inputs, self._num_proj)
        if self._activation is not None:
            projected = self._activation(projected)
        return self._cell(projected, state)


class EmbeddingWrapper(_Wrapper):
    """A wrapper that embeds a cell's input ids with a variable "embedding".

    Args:
      cell: the wrapped cell.
      embedding_classes, embedding_size: shape of the variable.
      initializer: initializer of the variable; uniform with variance 1 by default.
      reuse: reuse mode of the variables.
    Raises: InvalidArgumentError: a size is not positive.
    """

    def __init__(
        self,
        cell: RNNCell,
        embedding_classes: int,
        embedding_size: int,
        initializer: Any = None,
        reuse: Any = None,
    ) -> None:
        super().__init__(cell, reuse)
        if embedding_classes <= 0 or embedding_size <= 0:
            raise errors.InvalidArgumentError(
                "Both embedding_classes and embedding_size must be > 0: "
                f"{embedding_classes}, {embedding_size}."
            )
        self._shape = [embedding_classes, embedding_size]
        self._initializer = initializer or RandomUniform(-(3.0**0.5), 3.0**0.5)

    def call(self, inputs: Any, state: Any) -> Any:
        """Run one step."""
        first = state[0] if isinstance(state, tuple) else state
        table = get_variable("embedding", self._shape, first.dtype, self._initializer)
        rows = embedding.embedding_lookup(table, shapes.reshape(inputs, [-1]))
        return self._cell(rows, state)


class LayerNormBasicLSTMCell(RNNCell):
    """An LSTM cell with layer normalization and recurrent dropout.

    Args:
      num_units: H.
      forget_bias: added to the forget gate's input.
      input_size: accepted and ignored.
      activation: activation function; tanh by default.
      layer_norm: True to normalize gates and state.
      norm_gain, norm_shift: initial values of gamma and beta.
      dropout_keep_prob: keep probability of the candidates; a number or a tensor.
      dropout_prob_seed: seed of the random numbers.
      reuse: reuse mode of the variables.
    Source: Ba et al. 2016; Semeniuta et al. 2016.
    """

    def __init__(
        self,
        num_units: int,
        forget_bias: float = 1.0,
        input_size: Any = None,
        activation: Callable[..., Any] = trigonometry.tanh,
        layer_norm: bool = True,
        norm_gain: float = 1.0,
        norm_shift: float = 0.0,
        dropout_keep_prob: Any = 1.0,
        dropout_prob_seed: int | None = None,
        reuse: Any = None,
    ) -> None:
        super().__init__(_reuse=reuse)
        self._units = num_units
        self._activation = activation
        self._forget_bias = forget_bias
        self._keep_prob = dropout_keep_prob
        self._seed = dropout_prob_seed
        self._layer_norm = layer_norm
        self._gain, self._shift = norm_gain, norm_shift

    @property
    def state_size(self) -> LSTMStateTuple:
        """LSTMStateTuple(H, H)."""
        return LSTMStateTuple(self._units, self._units)

    @property
    def output_size(self) -> int:
        """H."""
        return self._units

    def call(self, inputs: Any, state: Any) -> Any:
        """Run one step: shapes (B, I) and (B, H) twice."""
        c, h = state
        total = linear([inputs, h], 4 * self._units, not self._layer_norm)
        i, j, f, o = join.split(total, 4, axis=1)
        i, j = self._normalize(i, "input"), self._normalize(j, "transform")
        f, o = self._normalize(f, "forget"), self._normalize(o, "output")
        candidate = self._activation(j)
        if not isinstance(self._keep_prob, float) or self._keep_prob < 1:
            candidate = nn_activation.dropout(candidate, self._keep_prob, seed=self._seed)
        new_c = c * sigmoid(f + self._forget_bias) + sigmoid(i) * candidate
        new_c = self._normalize(new_c, "state")
        new_h = self._activation(new_c) * sigmoid(o)
        return new_h, LSTMStateTuple(new_c, new_h)

    def _normalize(self, x: Any, scope: str) -> Any:
        if not self._layer_norm:
            return x
        with variable_scope(scope):
            for name, value in (("gamma", self._gain), ("beta", self._shift)):
                get_variable(name, x.shape[-1:], x.dtype.base_dtype, Constant(value))
        return layer_norm(x, reuse=True, scope=scope)
