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
from weft_graph.ops import array, casting, reduction, shapes
from weft_graph.ops.identity import identity
from weft_graph.ops.shape_rules import normal_axes
from weft_graph.variables.initializers import ones_initializer, zeros_initializer
from weft_tensor import dtypes, errors
from weft_tensor.arguments import check_integer, check_number
from weft_tensor.shape import TensorShape, as_dims, format_dims


class BatchNormalization(Layer):
    """Batch normalization: by the batch's statistics in training, by moving statistics otherwise.

    Update ops in GraphKeys.UPDATE_OPS update the moving statistics; a training step must run them.

    Args:
      axis: the channel axis, or several axes.
      momentum: decay factor of the moving statistics.
      epsilon: added to the variance.
      center, scale: add beta, add gamma.
      beta_initializer, gamma_initializer, moving_mean_initializer, moving_variance_initializer:
        zeros, ones, zeros and ones by default.
      beta_regularizer, gamma_regularizer: functions from the variable to a loss.
      beta_constraint, gamma_constraint: functions that optimizers apply after an update.
      renorm: batch renormalization (Ioffe 2017): in training too, the output is that of the moving
        statistics, within the bounds of `renorm_clipping`.
      renorm_clipping: a dict of scalars: bounds "rmin" and "rmax" of the ratio of the standard
        deviations, and "dmax" of the distance of the means in standard deviations; no bounds by
        default.
      renorm_momentum: decay factor of separate moving statistics that `renorm` uses; those of
        inference use `momentum`.
      fused: use the fused op; None to use it if it applies.
      virtual_batch_size: normalize parts of the batch of this size separately. It must divide the
        batch; of M parts, part g has the examples g, g + M, g + 2 M, ....
      adjustment: function from the input shape to a scale and an offset that broadcast to it. In
        training they are applied to the normalized values before gamma and beta.
      trainable: make beta and gamma trainable.
      name: name of the layer.
    Raises: InvalidArgumentError: `fused` with renorm, virtual batches or an adjustment, virtual
      batches with an adjustment, or an unknown key of `renorm_clipping`.
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
        self.renorm = renorm
        self.renorm_clipping = dict(renorm_clipping or {})
        self.renorm_momentum = check_number(renorm_momentum, "renorm_momentum")
        self.virtual_batch_size = virtual_batch_size
        self.adjustment = adjustment
        self._check_variants(fused)
        functions(
            adjustment=adjustment,
            beta_regularizer=beta_regularizer,
            gamma_regularizer=gamma_regularizer,
            beta_constraint=beta_constraint,
            gamma_constraint=gamma_constraint,
        )
        is_sequence = isinstance(axis, list | tuple)
        self.axis = [
            check_integer(axis_item, "axis") for axis_item in (axis if is_sequence else [axis])
        ]
        self.momentum = (
            momentum if hasattr(momentum, "shape") else check_number(momentum, "momentum")
        )
        self.epsilon = check_number(epsilon, "epsilon")
        self.center = center
        self.scale = scale
        self.fused = fused
        zeros, all_ones = zeros_initializer(), ones_initializer()
        self.beta_initializer = initializer_of(beta_initializer, "beta_initializer") or zeros
        self.gamma_initializer = initializer_of(gamma_initializer, "gamma_initializer") or all_ones
        self.moving_mean_initializer = (
            initializer_of(moving_mean_initializer, "moving_mean_initializer") or zeros
        )
        self.moving_variance_initializer = (
            initializer_of(moving_variance_initializer, "moving_variance_initializer") or all_ones
        )
        self.beta_regularizer = beta_regularizer
        self.gamma_regularizer = gamma_regularizer
        self.beta_constraint = beta_constraint
        self.gamma_constraint = gamma_constraint
        self.gamma: Any = None
        self.beta: Any = None
        self.moving_mean: Any = None
        self.moving_variance: Any = None
        self.moving_stddev: Any = None
        self.renorm_mean: Any = None
        self.renorm_stddev: Any = None

    def _check_variants(self, fused: bool | None) -> None:
        variants = {
            "renorm": self.renorm,
            "virtual_batch_size": self.virtual_batch_size is not None,
            "adjustment": self.adjustment is not None,
        }
        used_variants = [name for name, is_used in variants.items() if is_used]
        if used_variants and fused:
            raise errors.InvalidArgumentError(
                f"fused batch normalization does not support {', '.join(used_variants)}"
            )
        self._fusable = not used_variants
        if self.virtual_batch_size is not None:
            check_integer(self.virtual_batch_size, "virtual_batch_size")
            if self.virtual_batch_size < 1 or self.adjustment is not None:
                raise errors.InvalidArgumentError(
                    "virtual_batch_size must be positive and cannot be combined with adjustment, "
                    "got "
                    f"{self.virtual_batch_size}"
                )
        unknown = set(self.renorm_clipping) - {"rmin", "rmax", "dmax"}
        if unknown:
            raise errors.InvalidArgumentError(
                f"renorm_clipping requires keys among rmin, rmax and dmax, got {sorted(unknown)}"
            )

    def build(self, input_shape: TensorShape) -> None:
        """Create gamma, beta and the moving statistics.

        Raises: InvalidArgumentError: the rank or the number of channels is unknown, or `fused` does
          not apply.
        """
        dims = as_dims(input_shape)
        if dims is None:
            raise errors.InvalidArgumentError(
                f"layer {self.name} requires an input of known rank, got an unknown one"
            )
        self.axis = normal_axes(self.axis, len(dims))
        axis_sizes = {axis: dims[axis] for axis in self.axis}
        if None in axis_sizes.values():
            raise errors.InvalidArgumentError(
                f"layer {self.name} requires known sizes along axes {self.axis}, "
                f"got shape {format_dims(dims)}"
            )
        self.input_spec = InputSpec(
            ndim=len(dims), axes={axis: size or 0 for axis, size in axis_sizes.items()}
        )
        fusable = len(dims) == 4 and self.axis in ([1], [3]) and self._fusable
        if self.fused and not fusable:
            raise errors.InvalidArgumentError(
                f"fused batch normalization requires rank 4 and axis 1 or 3, got shape "
                f"{format_dims(dims)} and axis {self.axis}"
            )
        self.fused = fusable if self.fused is None else self.fused
        if len(self.axis) == 1 and self.virtual_batch_size is None:
            shape = [dims[self.axis[0]]]
        else:
            shape = [size if axis in self.axis else 1 for axis, size in enumerate(dims)]
        if self.virtual_batch_size is not None:
            if 0 in self.axis:
                raise errors.InvalidArgumentError(
                    f"virtual batches require that axis does not contain 0, got {self.axis}"
                )
            shape.insert(1, 1)  # the parts of the batch are on an axis of their own
            self.axis = [axis + 1 for axis in self.axis]
        if self.scale:
            self.gamma = self._add(
                "gamma",
                shape,
                self.gamma_initializer,
                self.gamma_regularizer,
                self.gamma_constraint,
            )
        if self.center:
            self.beta = self._add(
                "beta", shape, self.beta_initializer, self.beta_regularizer, self.beta_constraint
            )
        mean, variance = self.moving_mean_initializer, self.moving_variance_initializer
        self.moving_mean = self._add_average("moving_mean", shape, mean)
        self.moving_variance = self._add_average("moving_variance", shape, variance)
        if self.renorm:

            def stddev(*args: Any, **kwargs: Any) -> Output:
                return out("Sqrt", [variance(*args, **kwargs)])

            self.moving_stddev = self._add_average("moving_stddev", shape, stddev)
            self.renorm_mean = self._add_average("renorm_mean", shape, mean)
            self.renorm_stddev = self._add_average("renorm_stddev", shape, stddev)
        self.built = True

    def _add_average(self, name: str, shape: list[Any], initializer: Any) -> Any:
        return self._add(name, shape, initializer, trainable=False)

    def _add(
        self,
        name: str,
        shape: list[Any],
        initializer: Any,
        regularizer: Any = None,
        constraint: Any = None,
        trainable: bool | None = None,
    ) -> Any:
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
        """Normalize the input; `training` is a bool or a bool tensor of rank 0."""
        training = args[0] if args else training
        if self.fused:
            result, mean, variance = smart_cond(
                training,
                lambda: self._call_fused(inputs, True),
                lambda: self._call_fused(inputs, False),
            )
        else:
            result, mean, variance = self._elementary_call(inputs, training)
        static_training = static_bool(training)
        if static_training is not False:
            weight = self._weight_of_batch(training, static_training)
            new_mean = self._update_moving_average(self.moving_mean, mean, weight)
            if self.renorm:
                new_variance = self._update_moving_stddev(variance, weight, training)
            else:
                new_variance = self._update_moving_average(self.moving_variance, variance, weight)
            self.add_update([new_mean, new_variance], inputs)
        result.set_shape(inputs.shape)
        return result

    def _call_fused(self, inputs: Output, training: bool) -> tuple[Output, Any, Any]:
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

    def _elementary_call(self, inputs: Output, training: Any) -> tuple[Output, Any, Any]:
        """Normalize with elementary nodes; return the result and the new moving statistics."""
        dims = shapes.shape(inputs)
        value = inputs
        if self.virtual_batch_size is not None:
            size = convert_to_tensor([self.virtual_batch_size, -1])
            value = shapes.reshape(inputs, out("ConcatV2", [[size, dims[1:]], 0]))
        mean, variance = smart_cond(
            training,
            lambda: self._moments(value),
            lambda: (self.moving_mean, self.moving_variance),
        )
        rank = len(inputs.dims or ()) + (value is not inputs)
        scale, offset = (
            self._broadcast_channels(self.gamma, rank),
            self._broadcast_channels(self.beta, rank),
        )
        if self.adjustment is not None:
            scale, offset = _compose_affine(*self._adjustment(dims, training), scale, offset)
        followed: list[Any] = [mean, variance]
        if self.virtual_batch_size is not None:
            followed = [
                reduction.reduce_mean(statistic, 1, keepdims=True) for statistic in followed
            ]
        if self.renorm and static_bool(training) is not False:
            ratio, distance, *followed = self._renormalize(followed[0], followed[1], training)
            first = self._broadcast_channels(ratio, rank), self._broadcast_channels(distance, rank)
            scale, offset = _compose_affine(*first, scale, offset)
        statistics = self._broadcast_channels(mean, rank), self._broadcast_channels(variance, rank)
        result = nn.batch_normalization(value, *statistics, offset, scale, self.epsilon)
        if value is not inputs:
            result = shapes.reshape(result, dims)
        return result, followed[0], followed[1]

    def _adjustment(self, dims: Output, training: Any) -> tuple[Any, Any]:
        """Return the scale and the offset of the adjustment; 1 and 0 outside of training."""
        scale, offset = map(convert_to_tensor, self.adjustment(dims))
        return (
            smart_cond(training, lambda: scale, lambda: array.ones_like(scale)),
            smart_cond(training, lambda: offset, lambda: array.zeros_like(offset)),
        )

    def _renormalize(self, mean: Any, variance: Any, training: Any) -> tuple[Any, Any, Any, Any]:
        """Return renormalization's ratio of deviations and distance of means, and the moments.

        The ratio and the distance are computed from the averages before this step's update.
        """
        kind = self.moving_mean.dtype.base_dtype
        deviation = self._deviation(variance)
        width = out("Maximum", [self.renorm_stddev, convert_to_tensor(self.epsilon**0.5, kind)])
        ratio = out("RealDiv", [deviation, width])
        distance = out("RealDiv", [out("Sub", [mean, self.renorm_mean]), width])
        low, high, far = (self.renorm_clipping.get(key) for key in ("rmin", "rmax", "dmax"))
        ratio = _clamp(ratio, low, high)
        distance = _clamp(distance, None if far is None else -far, far)
        ratio, distance = (out("StopGradient", [value]) for value in (ratio, distance))
        corrections = [ratio.node, distance.node]
        ratio = smart_cond(training, lambda: ratio, lambda: array.ones_like(ratio))
        distance = smart_cond(training, lambda: distance, lambda: array.zeros_like(distance))
        step = self._weight_of_batch(training, static_bool(training), self.renorm_momentum)
        graph = get_default_graph()
        with graph.control_dependencies(corrections):
            updates = [
                self._update_moving_average(self.renorm_mean, mean, step),
                self._update_moving_average(self.renorm_stddev, deviation, step),
            ]
        with graph.control_dependencies(updates):
            return ratio, distance, identity(mean), identity(variance)

    def _deviation(self, variance: Any) -> Output:
        """Return the standard deviation, which includes epsilon, as in the normalization."""
        epsilon = convert_to_tensor(self.epsilon, self.moving_mean.dtype.base_dtype)
        result: Output = out("Sqrt", [out("AddV2", [variance, epsilon])])
        return result

    def _update_moving_stddev(self, variance: Any, weight: Any, training: Any) -> Any:
        """Update the moving deviation, and set the moving variance to its square."""
        update = self._update_moving_average(self.moving_stddev, self._deviation(variance), weight)
        epsilon = convert_to_tensor(self.epsilon, update.dtype.base_dtype)

        def follow() -> Output:
            return out("Relu", [out("Sub", [out("Square", [update]), epsilon])])

        value = smart_cond(training, follow, lambda: identity(self.moving_variance))
        return self.moving_variance.assign(value)

    def _moments(self, inputs: Output) -> tuple[Output, Output]:
        """Return the mean and variance of the batch, in the dtype of the moving statistics."""
        parts = [1] if self.virtual_batch_size is not None else []
        kept_axes = [*self.axis, *parts]
        axes = [axis for axis in range(len(inputs.dims or ())) if axis not in kept_axes]
        wide = casting.cast(inputs, self.moving_mean.dtype.base_dtype)
        return nn.moments(wide, axes, keepdims=len(kept_axes) > 1)

    def _broadcast_channels(self, value: Any, rank: int) -> Any:
        """Reshape a vector of channels so that it broadcasts to the input."""
        needs_shape = len(self.axis) > 1 or self.virtual_batch_size is not None
        if value is None or needs_shape or self.axis == [rank - 1]:
            return value
        shape = [1] * rank
        shape[self.axis[0]] = -1
        return shapes.reshape(value, shape)

    def _weight_of_batch(
        self, training: Any, static_training: bool | None, momentum: Any = None
    ) -> Any:
        kind = self.moving_mean.dtype.base_dtype
        weight = convert_to_tensor(1 - (self.momentum if momentum is None else momentum), kind)
        if static_training is None:
            weight = out("SelectV2", [training, weight, convert_to_tensor(0, kind)])
        return weight

    def _update_moving_average(self, variable: Any, value: Output, weight: Output) -> Any:
        graph = get_default_graph()
        with graph.name_scope("AssignMovingAvg") as scope, graph.colocate_with(variable.op):
            step = out("Mul", [out("Sub", [variable, value]), weight])
            return variable.assign_sub(step, name=scope)

    def compute_output_shape(self, input_shape: Any) -> TensorShape:
        """Return the input's shape."""
        return TensorShape(input_shape)


def _compose_affine(scale: Any, offset: Any, gamma: Any, beta: Any) -> tuple[Any, Any]:
    """Return one scale and offset equivalent to two pairs applied in sequence."""
    if gamma is not None:
        scale, offset = out("Mul", [scale, gamma]), out("Mul", [offset, gamma])
    return scale, offset if beta is None else out("AddV2", [offset, beta])


def _clamp(value: Output, low: Any, high: Any) -> Output:
    if low is not None:
        value = out("Maximum", [value, low])
    return value if high is None else out("Minimum", [value, high])


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
    """Apply batch normalization, creating its variables; see `BatchNormalization`.

    Args:
      inputs: floating, any known rank.
      training: a bool, or a bool tensor of rank 0. If true, the batch's statistics are used, and
        updates of the moving statistics are added to GraphKeys.UPDATE_OPS.
      reuse: reuse the variables of a previous layer of that name.
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
