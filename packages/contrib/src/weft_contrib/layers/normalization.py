"""Normalization over batches, layers and instances."""

from __future__ import annotations

__all__ = ["batch_norm", "group_norm", "instance_norm", "layer_norm"]

from collections.abc import Mapping, Sequence
from typing import Any

from weft_contrib import framework
from weft_contrib.arg_scope import add_arg_scope
from weft_contrib.layers.common import (
    Function,
    channels,
    finish_layer,
    layer_scope,
    list_variables_of,
)
from weft_contrib.utils import add_to_variable_collections
from weft_graph.ir.collections_keys import GraphKeys
from weft_graph.ir.default_graph import (
    add_to_collections,
    control_dependencies,
    get_collection_ref,
)
from weft_graph.layers.normalization import BatchNormalization
from weft_graph.nn import statistics
from weft_graph.ops import identity, shapes
from weft_graph.ops.shape_rules import normal_axes
from weft_graph.variables.initializers import Ones, Zeros
from weft_tensor import dtypes, errors

_NAMES = {name: name for name in ("beta", "gamma", "moving_mean", "moving_variance")}


@add_arg_scope
def batch_norm(
    inputs: Any,
    decay: float = 0.999,
    center: bool = True,
    scale: bool = False,
    epsilon: float = 0.001,
    activation_fn: Function | None = None,
    param_initializers: Mapping[str, Any] | None = None,
    param_regularizers: Mapping[str, Any] | None = None,
    updates_collections: Any = GraphKeys.UPDATE_OPS,
    is_training: Any = True,
    reuse: Any = None,
    variables_collections: Any = None,
    outputs_collections: Any = None,
    trainable: bool = True,
    batch_weights: Any = None,
    fused: bool | None = None,
    data_format: str = "NHWC",
    zero_debias_moving_mean: bool = False,
    scope: Any = None,
    renorm: bool = False,
    renorm_clipping: Any = None,
    renorm_decay: float = 0.99,
    adjustment: Any = None,
) -> Any:
    """Normalize by the batch's statistics during training, and by moving averages otherwise.

    Args:
      inputs: floating, rank 2 to 5.
      decay: decay of the moving averages.
      center, scale: True to use beta and gamma.
      epsilon: added to the variance.
      activation_fn: function applied last, or None.
      param_initializers, param_regularizers: dicts for "beta", "gamma", "moving_mean" and
        "moving_variance".
      updates_collections: collection for the updates of the moving averages; with None, the result
        waits for them.
      is_training: a bool or a bool tensor.
      fused: use the fused op; None to use it if possible.
      data_format: "NHWC" or "NCHW".
      renorm, renorm_clipping, renorm_decay, adjustment: as for `layers.batch_normalization`.
      batch_weights, zero_debias_moving_mean: not supported.
      reuse, variables_collections, outputs_collections, trainable, scope: as for `fully_connected`;
        the default name is "BatchNorm".
    Raises: UnimplementedError: an unsupported argument is set.
    Source: Ioffe and Szegedy 2015.

    Examples:
      >>> wf.contrib.layers.batch_norm(wf.ones([2, 3]), updates_collections=None).shape
      TensorShape([Dimension(2), Dimension(3)])
    """
    _refuse(batch_weights=batch_weights, zero_debias_moving_mean=zero_debias_moving_mean)
    with layer_scope(scope, "BatchNorm", inputs, reuse) as (var_scope, x):
        layer = BatchNormalization(
            1 if data_format.startswith("NC") else -1,
            decay,
            epsilon,
            center,
            scale,
            **_parameter_arguments(param_initializers or {}, param_regularizers or {}),
            renorm=renorm,
            renorm_clipping=renorm_clipping,
            renorm_momentum=renorm_decay,
            adjustment=adjustment,
            fused=fused,
            trainable=trainable,
            name=var_scope.name,
            _scope=var_scope,
            _reuse=reuse,
        )
        num_before = len(get_collection_ref(GraphKeys.UPDATE_OPS))
        outputs = _with_updates(layer(x, training=is_training), num_before, updates_collections)
        list_variables_of(layer, variables_collections, _NAMES)
        return finish_layer(
            outputs, var_scope, activation_fn=activation_fn, outputs_collections=outputs_collections
        )


def _refuse(**arguments: Any) -> None:
    """Raise UnimplementedError for unsupported arguments that are set."""
    unsupported = [
        name for name, value in arguments.items() if value is not None and value is not False
    ]
    if unsupported:
        raise errors.UnimplementedError(f"batch_norm does not support {' and '.join(unsupported)}")


def _parameter_arguments(
    initializers: Mapping[str, Any], regularizers: Mapping[str, Any]
) -> dict[str, Any]:
    """Return arguments of a layer from initializers and regularizers by parameter name."""
    initial = {"beta": Zeros(), "gamma": Ones(), "moving_mean": Zeros(), "moving_variance": Ones()}
    options = {
        f"{name}_initializer": initializers.get(name, default) for name, default in initial.items()
    }
    return options | {f"{name}_regularizer": regularizers.get(name) for name in ("beta", "gamma")}


def _with_updates(outputs: Any, num_before: int, collections: Any) -> Any:
    """Move the update ops added by a layer to the requested collections; return the outputs."""
    listed = get_collection_ref(GraphKeys.UPDATE_OPS)
    updates = listed[num_before:]
    del listed[num_before:]
    if collections is None:
        with control_dependencies(updates):
            return identity.identity(outputs)
    for update in updates:
        add_to_collections(collections, update)
    return outputs


@add_arg_scope
def layer_norm(
    inputs: Any,
    center: bool = True,
    scale: bool = True,
    activation_fn: Function | None = None,
    reuse: Any = None,
    variables_collections: Any = None,
    outputs_collections: Any = None,
    trainable: bool = True,
    begin_norm_axis: int = 1,
    begin_params_axis: int = -1,
    scope: Any = None,
) -> Any:
    """Normalize by the statistics of each example.

    Args:
      inputs: floating, shape (B, ...).
      center, scale: True to use beta and gamma.
      activation_fn: function applied last, or None.
      begin_norm_axis: first axis whose elements are normalized together.
      begin_params_axis: first axis of beta and gamma.
      reuse, variables_collections, outputs_collections, trainable, scope: as for `fully_connected`;
        the default name is "LayerNorm".
    Raises: InvalidArgumentError: an axis is out of range, or its size is unknown.
    Source: Ba et al. 2016.
    """
    with layer_scope(scope, "LayerNorm", inputs, reuse) as (var_scope, x):
        rank = x.shape.ndims
        if rank is None:
            raise errors.InvalidArgumentError("layer_norm requires inputs of a known rank")
        first = begin_norm_axis + rank if begin_norm_axis < 0 else begin_norm_axis
        if first >= rank or begin_params_axis >= rank:
            raise errors.InvalidArgumentError(
                f"begin_params_axis ({begin_params_axis}) and begin_norm_axis ({begin_norm_axis}) "
                f"must be < rank(inputs) ({rank})"
            )
        sizes = [size.value for size in x.shape[begin_params_axis:]]
        beta, gamma = _parameters(x, sizes, center, scale, trainable, variables_collections)
        mean, variance = statistics.moments(x, list(range(first, rank)), keep_dims=True)
        epsilon = 1e-3 if x.dtype.base_dtype is dtypes.float16 else 1e-12
        outputs = statistics.batch_normalization(x, mean, variance, beta, gamma, epsilon)
        outputs.set_shape(x.shape)
        return finish_layer(
            outputs,
            var_scope,
            activation_fn=activation_fn,
            outputs_collections=outputs_collections,
        )


@add_arg_scope
def instance_norm(
    inputs: Any,
    center: bool = True,
    scale: bool = True,
    epsilon: float = 1e-6,
    activation_fn: Function | None = None,
    param_initializers: Mapping[str, Any] | None = None,
    reuse: Any = None,
    variables_collections: Any = None,
    outputs_collections: Any = None,
    trainable: bool = True,
    data_format: str = "NHWC",
    scope: Any = None,
) -> Any:
    """Normalize by the statistics of each channel of each example.

    Args:
      inputs: floating, rank at least 3.
      center, scale: True to use beta and gamma.
      epsilon: added to the variance.
      activation_fn: function applied last, or None.
      param_initializers: dict for "beta" and "gamma".
      data_format: "NHWC" or "NCHW".
      reuse, variables_collections, outputs_collections, trainable, scope: as for `fully_connected`;
        the default name is "InstanceNorm".
    Source: Ulyanov et al. 2016.
    """
    with layer_scope(scope, "InstanceNorm", inputs, reuse) as (var_scope, x):
        first = channels(data_format) == "channels_first"
        rank = x.shape.ndims
        if not rank or x.shape[1 if first else -1].value is None:
            raise errors.InvalidArgumentError(
                f"instance_norm requires a known number of channels, got {x.shape}"
            )
        size = x.shape[1 if first else -1].value
        beta, gamma = _parameters(
            x, [size], center, scale, trainable, variables_collections, param_initializers or {}
        )
        if first:
            tiled_shape = [1, size, *[1] * (rank - 2)]
            beta = None if beta is None else shapes.reshape(beta, tiled_shape)
            gamma = None if gamma is None else shapes.reshape(gamma, tiled_shape)
        axes = list(range(2, rank)) if first else list(range(1, rank - 1))
        mean, variance = statistics.moments(x, axes, keep_dims=True)
        outputs = statistics.batch_normalization(x, mean, variance, beta, gamma, epsilon)
        outputs.set_shape(x.shape)
        return finish_layer(
            outputs,
            var_scope,
            activation_fn=activation_fn,
            outputs_collections=outputs_collections,
        )


@add_arg_scope
def group_norm(
    inputs: Any,
    groups: int = 32,
    channels_axis: int = -1,
    reduction_axes: Sequence[int] = (-3, -2),
    center: bool = True,
    scale: bool = True,
    epsilon: float = 1e-6,
    activation_fn: Function | None = None,
    param_initializers: Mapping[str, Any] | None = None,
    reuse: Any = None,
    variables_collections: Any = None,
    outputs_collections: Any = None,
    trainable: bool = True,
    scope: Any = None,
    mean_close_to_zero: bool = False,
) -> Any:
    """Normalize by the statistics of groups of channels of each example.

    Args:
      inputs: floating, of a known rank.
      groups: number of groups, a divisor of the number of channels.
      channels_axis: the axis of the channels.
      reduction_axes: the axes that are normalized together with the channels of a group.
      center, scale: True to use beta and gamma.
      epsilon: added to the variance.
      activation_fn: function applied last, or None.
      param_initializers: dict for "beta" and "gamma".
      reuse, variables_collections, outputs_collections, trainable, scope: as for `fully_connected`;
        the default name is "GroupNorm".
      mean_close_to_zero: accepted and ignored; the variance is always computed from the differences
        to the mean.
    Raises: InvalidArgumentError: the number of channels is unknown or not a multiple of `groups`,
      or an axis is out of range or repeated.
    Source: Wu and He 2018.

    Examples:
      >>> image = wf.constant([[[[1.0, 3.0, 10.0, 30.0]]]])
      >>> net = wf.contrib.layers.group_norm(image, groups=2)
      >>> with wf.Session() as session:
      ...     session.run(wf.global_variables_initializer())
      ...     print(session.run(net).round(3).tolist())
      [[[[-1.0, 1.0, -1.0, 1.0]]]]
    """
    with layer_scope(scope, "GroupNorm", inputs, reuse) as (var_scope, x):
        rank = x.shape.ndims
        if not rank:
            raise errors.InvalidArgumentError("group_norm requires inputs of a known rank")
        channel_axis, *other_axes = normal_axes([channels_axis, *reduction_axes], rank)
        size = x.shape[channel_axis].value
        if size is None or groups < 1 or size % groups:
            raise errors.InvalidArgumentError(
                f"group_norm requires channels that are a multiple of groups={groups}, got {size}"
            )
        beta, gamma = _parameters(
            x, [size], center, scale, trainable, variables_collections, param_initializers or {}
        )
        tiled_shape = [groups if i == channel_axis else 1 for i in range(rank)]
        tiled_shape.insert(channel_axis + 1, size // groups)
        beta, gamma = [None if p is None else shapes.reshape(p, tiled_shape) for p in (beta, gamma)]
        sizes = shapes.shape(x)
        split = [sizes[i] if n.value is None else n.value for i, n in enumerate(x.shape)]
        split[channel_axis : channel_axis + 1] = [groups, size // groups]
        axes = [channel_axis + 1, *[i + (i > channel_axis) for i in other_axes]]
        parts = shapes.reshape(x, split)
        mean, variance = statistics.moments(parts, axes, keep_dims=True)
        normalized = statistics.batch_normalization(parts, mean, variance, beta, gamma, epsilon)
        outputs = shapes.reshape(normalized, shapes.shape(x))
        outputs.set_shape(x.shape)
        return finish_layer(
            outputs,
            var_scope,
            activation_fn=activation_fn,
            outputs_collections=outputs_collections,
        )


def _parameters(
    x: Any,
    sizes: Any,
    center: bool,
    scale: bool,
    trainable: bool,
    collections: Any,
    initializers: Mapping[str, Any] | None = None,
) -> tuple[Any, Any]:
    """Create the variables beta and gamma, or return None for each."""
    if None in sizes:
        raise errors.InvalidArgumentError(f"the sizes of the parameters must be known, got {x!r}")
    variables = []
    for name, enabled, default in (("beta", center, Zeros()), ("gamma", scale, Ones())):
        variable = None
        if enabled:
            initializer = (initializers or {}).get(name, default)
            dtype = x.dtype.base_dtype
            variable = framework.model_variable(
                name, sizes, dtype, initializer, trainable=trainable
            )
            add_to_variable_collections(variable, collections, name)
        variables.append(variable)
    return variables[0], variables[1]
