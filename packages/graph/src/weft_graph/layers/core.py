"""Dense, dropout and flatten layers."""

from __future__ import annotations

__all__ = ["Dense", "Dropout", "Flatten", "dense", "dropout", "flatten"]

from collections.abc import Callable
from typing import Any

from weft_graph import nn
from weft_graph.control_flow.conditional import cond
from weft_graph.ir.builder import convert_to_tensor, out
from weft_graph.ir.constant_value import constant_value
from weft_graph.ir.node import Output
from weft_graph.layers.arguments import activation_of, functions, initializer_of
from weft_graph.layers.base import InputSpec, Layer
from weft_graph.ops import contraction, identity, shapes
from weft_graph.variables.initializers import zeros_initializer
from weft_tensor import errors
from weft_tensor.arguments import check_number, check_whole_number
from weft_tensor.shape import TensorShape, as_dims, format_dims

Function = Callable[..., Any]


class Dense(Layer):
    """Dense layer: activation(inputs @ kernel + bias), over the last axis.

    Args:
      units: size of the output's last axis.
      activation: applied last; None for none.
      use_bias: add a bias.
      kernel_initializer: initializer of the kernel (I, units); that of the variable scope by
        default.
      bias_initializer: initializer of the bias (units,).
      kernel_regularizer, bias_regularizer: functions from the variable to a loss.
      activity_regularizer: function from the output to a loss.
      kernel_constraint, bias_constraint: functions that optimizers apply after an update.
      trainable: make the variables trainable.
      name: name of the layer.

    Examples:
      >>> layer = wf.layers.Dense(4)
      >>> layer(wf.ones([2, 3])).shape, [variable.name for variable in layer.variables]
      (TensorShape([Dimension(2), Dimension(4)]), ['dense/kernel:0', 'dense/bias:0'])
    """

    def __init__(
        self,
        units: int,
        activation: Function | None = None,
        use_bias: bool = True,
        kernel_initializer: Any = None,
        bias_initializer: Any = None,
        kernel_regularizer: Any = None,
        bias_regularizer: Any = None,
        activity_regularizer: Any = None,
        kernel_constraint: Any = None,
        bias_constraint: Any = None,
        trainable: bool = True,
        name: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(trainable, name, activity_regularizer=activity_regularizer, **kwargs)
        functions(
            kernel_regularizer=kernel_regularizer,
            bias_regularizer=bias_regularizer,
            kernel_constraint=kernel_constraint,
            bias_constraint=bias_constraint,
        )
        self.units = check_whole_number(units, "units", minimum=0)
        self.activation = activation_of(activation)
        self.use_bias = use_bias
        self.kernel_initializer = initializer_of(kernel_initializer, "kernel_initializer")
        self.bias_initializer = (
            initializer_of(bias_initializer, "bias_initializer") or zeros_initializer()
        )
        self.kernel_regularizer = kernel_regularizer
        self.bias_regularizer = bias_regularizer
        self.kernel_constraint = kernel_constraint
        self.bias_constraint = bias_constraint
        self.input_spec = InputSpec(min_ndim=2)
        self.kernel: Any = None
        self.bias: Any = None

    def build(self, input_shape: TensorShape) -> None:
        """Create the kernel and the bias.

        Raises: InvalidArgumentError: the last size of the input is unknown.
        """
        dims = as_dims(input_shape) or (None,)
        if dims[-1] is None:
            raise errors.InvalidArgumentError(
                f"layer {self.name} requires an input whose last size is known, "
                f"got shape {format_dims(dims)}"
            )
        self.input_spec = InputSpec(min_ndim=2, axes={-1: dims[-1]})
        self.kernel = self.add_weight(
            "kernel",
            shape=(dims[-1], self.units),
            initializer=self.kernel_initializer,
            regularizer=self.kernel_regularizer,
            constraint=self.kernel_constraint,
        )
        if self.use_bias:
            self.bias = self.add_weight(
                "bias",
                shape=(self.units,),
                initializer=self.bias_initializer,
                regularizer=self.bias_regularizer,
                constraint=self.bias_constraint,
            )
        self.built = True

    def call(self, inputs: Output, *args: Any, **kwargs: Any) -> Any:
        """Compute activation(inputs @ kernel + bias)."""
        rank = len(inputs.dims or ())
        if rank > 2:
            result = contraction.tensordot(inputs, self.kernel, [[rank - 1], [0]])
            result.dims = (*(inputs.dims or ())[:-1], self.units)
        else:
            result = out("MatMul", [inputs, self.kernel])
        if self.use_bias:
            result = nn.bias_add(result, self.bias)
        return result if self.activation is None else self.activation(result)

    def compute_output_shape(self, input_shape: Any) -> TensorShape:
        """Return the input's shape with `units` as its last size.

        Raises: InvalidArgumentError: its rank is below 2, or its last size is not known.
        """
        dims = as_dims(input_shape)
        if dims is None or len(dims) < 2 or dims[-1] is None:
            raise errors.InvalidArgumentError(
                "the input of a dense layer must have rank 2 at least and a known last size, got "
                f"{format_dims(dims)}"
            )
        return TensorShape((*dims[:-1], self.units))


def dense(
    inputs: Any,
    units: int,
    activation: Function | None = None,
    use_bias: bool = True,
    kernel_initializer: Any = None,
    bias_initializer: Any = None,
    kernel_regularizer: Any = None,
    bias_regularizer: Any = None,
    activity_regularizer: Any = None,
    kernel_constraint: Any = None,
    bias_constraint: Any = None,
    trainable: bool = True,
    name: str | None = None,
    reuse: Any = None,
) -> Output:
    """Compute activation(inputs @ kernel + bias) with new variables; see `Dense`.

    Args:
      inputs: floating, shape (N, ..., I).
      reuse: reuse the variables of a previous layer of that name.
    Returns: shape (N, ..., units).

    Examples:
      >>> x = wf.ones([2, 3])
      >>> hidden = wf.layers.dense(x, 4, wf.nn.relu, kernel_initializer=wf.ones_initializer())
      >>> with wf.Session() as session:
      ...     session.run(wf.global_variables_initializer())
      ...     session.run(hidden)
      array([[3., 3., 3., 3.],
             [3., 3., 3., 3.]], dtype=float32)
    """
    layer = Dense(
        units,
        activation,
        use_bias,
        kernel_initializer,
        bias_initializer,
        kernel_regularizer,
        bias_regularizer,
        activity_regularizer,
        kernel_constraint,
        bias_constraint,
        trainable,
        name,
        _scope=name,
        _reuse=reuse,
    )
    result: Output = layer(inputs)
    return result


class Dropout(Layer):
    """Dropout layer: `nn.dropout` in training, the identity otherwise.

    Args:
      rate: fraction of elements set to 0.
      noise_shape, seed: as for `nn.dropout`.
      name: name of the layer.

    Examples:
      >>> wf.layers.Dropout(0.5)(wf.zeros([2, 3]), training=True).shape
      TensorShape([Dimension(2), Dimension(3)])
    """

    def __init__(
        self,
        rate: Any = 0.5,
        noise_shape: Any = None,
        seed: int | None = None,
        name: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(name=name, **kwargs)
        self.rate = rate if hasattr(rate, "shape") else check_number(rate, "rate", 0.0, 1.0)
        self.noise_shape = noise_shape
        self.seed = seed

    def call(self, inputs: Output, *args: Any, training: Any = False, **kwargs: Any) -> Any:
        """Apply dropout if `training`, a bool or a bool tensor of rank 0, is true."""
        training = args[0] if args else training

        def apply_dropout() -> Output:
            return nn.dropout(inputs, noise_shape=self.noise_shape, seed=self.seed, rate=self.rate)

        return smart_cond(training, apply_dropout, lambda: identity.identity(inputs))

    def compute_output_shape(self, input_shape: Any) -> TensorShape:
        """Return the input's shape."""
        return TensorShape(input_shape)


def static_bool(value: Any) -> bool | None:
    """Return the static value of a bool, or None if it is unknown."""
    if isinstance(value, Output) or hasattr(value, "_as_output"):
        static = constant_value(convert_to_tensor(value))
        return None if static is None else bool(static)
    return bool(value)


def smart_cond(pred: Any, true_fn: Function, false_fn: Function) -> Any:
    """Like `cond`, but adds no nodes if `pred` is statically known."""
    static = static_bool(pred)
    if static is None:
        return cond(pred, true_fn, false_fn)
    return true_fn() if static else false_fn()


def dropout(
    inputs: Any,
    rate: Any = 0.5,
    noise_shape: Any = None,
    seed: int | None = None,
    training: Any = False,
    name: str | None = None,
) -> Output:
    """Apply `nn.dropout` if `training`, else return the input; see `Dropout`.

    Args:
      inputs: floating, any shape.
      rate: fraction of the elements set to 0.
      noise_shape: int32; shape of the random mask, which broadcasts to that of `inputs`.
      seed: seed of the random mask.
      training: a bool, or a bool tensor of rank 0.
    Returns: shape and dtype of `inputs`.

    Examples:
      >>> wf.Session().run(wf.layers.dropout([1.0, 2.0], training=False))
      array([1., 2.], dtype=float32)
    """
    layer = Dropout(rate, noise_shape, seed, name)
    result: Output = layer(inputs, training=training)
    return result


class Flatten(Layer):
    """Layer that flattens all axes except the batch axis.

    Args:
      data_format: "channels_last" or "channels_first"; the latter's channels are first moved last.

    Examples:
      >>> wf.layers.Flatten()(wf.zeros([2, 3, 4])).shape
      TensorShape([Dimension(2), Dimension(12)])
    """

    def __init__(
        self, data_format: str | None = None, name: str | None = None, **kwargs: Any
    ) -> None:
        super().__init__(name=name, **kwargs)
        self.data_format = data_format or "channels_last"
        self.input_spec = InputSpec(min_ndim=1)

    def call(self, inputs: Output, *args: Any, **kwargs: Any) -> Any:
        """Return the reshaped input."""
        dims = inputs.dims or ()
        if self.data_format == "channels_first" and len(dims) > 2:
            inputs = out("Transpose", [inputs, [0, *range(2, len(dims)), 1]])
            dims = inputs.dims or ()
        width = _product(dims[1:])
        if width is not None and dims:
            return shapes.reshape(inputs, [-1 if dims[0] is None else dims[0], width])
        batch: Any = shapes.shape(inputs)[0] if dims[0] is None else dims[0]
        result = shapes.reshape(inputs, [batch, -1])
        result.dims = (dims[0], None)
        return result

    def compute_output_shape(self, input_shape: Any) -> TensorShape:
        """Return (batch size, product of the other sizes)."""
        dims = as_dims(input_shape) or (None,)
        return TensorShape((dims[0], _product(dims[1:])))


def _product(dims: tuple[int | None, ...]) -> int | None:
    total = 1
    for size in dims:
        if size is None:
            return None
        total *= size
    return total


def flatten(inputs: Any, name: str | None = None, data_format: str = "channels_last") -> Output:
    """Flatten all axes except the batch axis: shape (N, ...) to (N, P); see `Flatten`.

    Args:
      inputs: any type, shape (N, ...).
      data_format: "channels_last" or "channels_first"; the latter's channels are first moved last.
    Returns: shape (N, P), dtype of `inputs`.

    Examples:
      >>> wf.layers.flatten(wf.zeros([2, 3, 4])).shape
      TensorShape([Dimension(2), Dimension(12)])
    """
    result: Output = Flatten(data_format, name)(inputs)
    return result
