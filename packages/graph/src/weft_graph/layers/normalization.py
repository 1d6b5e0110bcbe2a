"""Batch normalization with moving statistics."""

from __future__ import annotations

__all__ = ["BatchNormalization", "batch_normalization"]

from typing import Any

from weft_graph import nn
from weft_graph.ir.builder import convert_to_tensor, out
from weft_graph.ir.default_graph import get_default_graph
from weft_graph.ir.node import Output
from weft_graph.layers.arguments import functions, initializer_of
from weft_graph.layers.base import InputSpec, Layer
from weft_graph.layers.core import smart_cond, static_bool
from weft_graph.ops import array, casting, shapes
from weft_graph.ops.shape_rules import normal_axes
from weft_graph.variables.initializers import ones_initializer, zeros_initializer
from weft_tensor import dtypes, errors
from weft_tensor.arguments import integer, number
from weft_tensor.shape import TensorShape, as_dims, format_dims


class BatchNormalization(Layer):
    """Normalizes by the statistics of the batch while training, by moving ones otherwise.

    The moving statistics are updated by operations in GraphKeys.UPDATE_OPS, which a training step
    must run.

    Args:
      axis: of the channels, or several.
      momentum: of the moving statistics.
      epsilon: added to the variance.
      center, scale: whether there are beta and gamma.
      beta_initializer, gamma_initializer, moving_mean_initializer, moving_variance_initializer:
        zeros, ones, zeros and ones by default.
      beta_regularizer, gamma_regularizer: functions from the variable to a loss.
      beta_constraint, gamma_constraint: functions that optimizers apply after an update.
      renorm, renorm_clipping, renorm_momentum, virtual_batch_size, adjustment: not supported.
      fused: use the fused operation; None where it applies.
      trainable: whether beta and gamma are trainable.
      name: of the layer.
    Raises: UnimplementedError: renorm, virtual batches or an adjustment.
    Source: Ioffe and Szegedy 2015.

    Examples:
      >>> wf.layers.BatchNormalization()(wf.zeros([2, 3]), training=True).shape
      TensorShape([Dimension(2), Dimension(3)])
    """

    def __init__(
        self,
        axis: Any = -1,
        momentum: float = 0.99,
        epsilon: float = 1e-3,
        center: bool = True,
        scale: bool = True,
        beta_initializer: Any = None,
        gamma_initializer: Any = None,
        moving_mean_initializer: Any = None,
        moving_variance_initializer: Any = None,
        beta_regularizer: Any = None,
        gamma_regularizer: Any = None,
        beta_constraint: Any = None,
        gamma_constraint: Any = None,
        renorm: bool = False,
        renorm_clipping: Any = None,
        renorm_momentum: float = 0.99,
        fused: bool | None = None,
        trainable: bool = True,
        virtual_batch_size: int | None = None,
        adjustment: Any = None,
        name: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(trainable, name, **kwargs)
        if renorm or virtual_batch_size is not None or adjustment is not None:
            raise errors.UnimplementedError(
                "batch_normalization knows no renorm, virtual_batch_size or adjustment"
            )
        functions(
            beta_regularizer=beta_regularizer,
            gamma_regularizer=gamma_regularizer,
            beta_constraint=beta_constraint,
            gamma_constraint=gamma_constraint,
        )
        several = isinstance(axis, list | tuple)
        self.axis = [integer(each, "axis") for each in (axis if several else [axis])]
        self.momentum = momentum if hasattr(momentum, "shape") else number(momentum, "momentum")
        self.epsilon = number(epsilon, "epsilon")
        self.center = center
        self.scale = scale
        self.fused = fused
        zeros, ones = zeros_initializer(), ones_initializer()
        beta = initializer_of(beta_initializer, "beta_initializer") or zeros
        gamma = initializer_of(gamma_initializer, "gamma_initializer") or ones
        mean = initializer_of(moving_mean_initializer, "moving_mean_initializer") or zeros
        variance = (
            initializer_of(moving_variance_initializer, "moving_variance_initializer") or ones
        )
        self._settings = {
            "beta": (beta, beta_regularizer, beta_constraint),
            "gamma": (gamma, gamma_regularizer, gamma_constraint),
            "moving_mean": (mean, None, None),
            "moving_variance": (variance, None, None),
        }
        self.gamma: Any = None
        self.beta: Any = None
        self.moving_mean: Any = None
        self.moving_variance: Any = None

    def build(self, input_shape: TensorShape) -> None:
        """Make gamma, beta and the moving statistics.

        Raises: InvalidArgumentError: the rank or the channels are not known, or `fused` does not
          apply.
        """
        dims = as_dims(input_shape)
        if dims is None:
            raise errors.InvalidArgumentError(
                f"layer {self.name} requires an input of known rank, got an unknown one"
            )
        self.axis = normal_axes(self.axis, len(dims))
        known = {axis: dims[axis] for axis in self.axis}
        if None in known.values():
            raise errors.InvalidArgumentError(
                f"layer {self.name} requires known sizes along axes {self.axis}, "
                f"got shape {format_dims(dims)}"
            )
        self.input_spec = InputSpec(
            ndim=len(dims), axes={axis: size or 0 for axis, size in known.items()}
        )
        fusable = len(dims) == 4 and self.axis in ([1], [3])
        if self.fused and not fusable:
            raise errors.InvalidArgumentError(
                f"fused batch normalization requires rank 4 and axis 1 or 3, got shape "
                f"{format_dims(dims)} and axis {self.axis}"
            )
        self.fused = fusable if self.fused is None else self.fused
        if len(self.axis) == 1:
            shape = [dims[self.axis[0]]]
        else:
            shape = [size if axis in self.axis else 1 for axis, size in enumerate(dims)]
        if self.scale:
            self.gamma = self._add("gamma", shape)
        if self.center:
            self.beta = self._add("beta", shape)
        self.moving_mean = self._add("moving_mean", shape, trainable=False)
        self.moving_variance = self._add("moving_variance", shape, trainable=False)
        self.built = True

    def _add(self, name: str, shape: list[Any], trainable: bool | None = None) -> Any:
        initializer, regularizer, constraint = self._settings[name]
        kind = self._dtype
        narrow = kind in (dtypes.float16, dtypes.bfloat16)
        return self.add_weight(
            name,
            shape=shape,
            dtype=dtypes.float32 if narrow else kind,
            initializer=initializer,
            regularizer=regularizer,
            constraint=constraint,
            trainable=trainable,
        )

    def call(self, inputs: Output, *args: Any, training: Any = False, **kwargs: Any) -> Any:
        """The normalized input; `training` is a Boolean or a Boolean tensor of rank 0."""
        training = args[0] if args else training
        if self.fused:
            result, mean, variance = smart_cond(
                training,
                lambda: self._fused_call(inputs, True),
                lambda: self._fused_call(inputs, False),
            )
        else:
            mean, variance = smart_cond(
                training,
                lambda: self._moments(inputs),
                lambda: (self.moving_mean, self.moving_variance),
            )
            result = self._normalized(inputs, mean, variance)
        known = static_bool(training)
        if known is not False:
            weight = self._weight_of_batch(training, known)
            self.add_update(
                [
                    self._moved(self.moving_mean, mean, weight),
                    self._moved(self.moving_variance, variance, weight),
                ],
                inputs,
            )
        result.set_shape(inputs.shape)
        return result

    def _fused_call(self, inputs: Output, training: bool) -> tuple[Output, Any, Any]:
        size = self.moving_mean.shape
        kind = self.moving_mean.dtype.base_dtype
        gamma = array.ones(size, kind) if self.gamma is None else self.gamma
        beta = array.zeros(size, kind) if self.beta is None else self.beta
        return nn.fused_batch_norm(
            inputs,
            gamma,
            beta,
            None if training else self.moving_mean,
            None if training else self.moving_variance,
            epsilon=self.epsilon,
            data_format="NCHW" if self.axis == [1] else "NHWC",
            is_training=training,
        )

    def _moments(self, inputs: Output) -> tuple[Output, Output]:
        """Mean and variance of the batch, in the type of the moving ones."""
        axes = [axis for axis in range(len(inputs.dims or ())) if axis not in self.axis]
        wide = casting.cast(inputs, self.moving_mean.dtype.base_dtype)
        return nn.moments(wide, axes, keepdims=len(self.axis) > 1)

    def _normalized(self, inputs: Output, mean: Any, variance: Any) -> Output:
        """What the fused operation does, of elementary nodes."""
        rank = len(inputs.dims or ())
        statistics = self._spread(mean, rank), self._spread(variance, rank)
        beta, gamma = self._spread(self.beta, rank), self._spread(self.gamma, rank)
        return nn.batch_normalization(inputs, *statistics, beta, gamma, self.epsilon)

    def _spread(self, value: Any, rank: int) -> Any:
        """A vector in a shape that broadcasts along the channels."""
        if value is None or len(self.axis) > 1 or self.axis == [rank - 1]:
            return value
        shape = [1] * rank
        shape[self.axis[0]] = -1
        return shapes.reshape(value, shape)

    def _weight_of_batch(self, training: Any, known: bool | None) -> Any:
        kind = self.moving_mean.dtype.base_dtype
        weight = convert_to_tensor(1 - self.momentum, kind)
        if known is None:
            weight = out("SelectV2", [training, weight, convert_to_tensor(0, kind)])
        return weight

    def _moved(self, variable: Any, value: Output, weight: Output) -> Any:
        graph = get_default_graph()
        with graph.name_scope("AssignMovingAvg") as scope, graph.colocate_with(variable.op):
            step = out("Mul", [out("Sub", [variable, value]), weight])
            return variable.assign_sub(step, name=scope)

    def compute_output_shape(self, input_shape: Any) -> TensorShape:
        """The input's shape."""
        return TensorShape(input_shape)


def batch_normalization(
    inputs: Any,
    axis: Any = -1,
    momentum: float = 0.99,
    epsilon: float = 1e-3,
    center: bool = True,
    scale: bool = True,
    beta_initializer: Any = None,
    gamma_initializer: Any = None,
    moving_mean_initializer: Any = None,
    moving_variance_initializer: Any = None,
    beta_regularizer: Any = None,
    gamma_regularizer: Any = None,
    beta_constraint: Any = None,
    gamma_constraint: Any = None,
    training: Any = False,
    trainable: bool = True,
    name: str | None = None,
    reuse: Any = None,
    renorm: bool = False,
    renorm_clipping: Any = None,
    renorm_momentum: float = 0.99,
    fused: bool | None = None,
    virtual_batch_size: int | None = None,
    adjustment: Any = None,
) -> Output:
    """Batch normalization with variables of its own; see `BatchNormalization`.

    Args:
      inputs: floating, any known rank.
      training: a Boolean or a Boolean tensor of rank 0: use the batch's statistics, and add updates
        of the moving ones to GraphKeys.UPDATE_OPS.
      reuse: the variables of a previous layer of that name.
    Returns: shape and dtype of `inputs`.

    Examples:
      >>> x = wf.placeholder(wf.float32, [None, 8])
      >>> y = wf.layers.batch_normalization(x, training=True)
      >>> updates = wf.get_collection(wf.GraphKeys.UPDATE_OPS)
      >>> len(updates)
      2
    """
    args = {
        key: value
        for key, value in locals().items()
        if key not in ("inputs", "training", "name", "reuse")
    }
    layer = BatchNormalization(**args, name=name, _scope=name, _reuse=reuse)
    result: Output = layer(inputs, training=training)
    return result
