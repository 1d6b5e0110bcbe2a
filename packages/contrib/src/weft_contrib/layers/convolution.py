"""Convolutions and pooling."""

from __future__ import annotations

__all__ = [
    "avg_pool2d",
    "avg_pool3d",
    "conv1d",
    "conv2d",
    "conv2d_transpose",
    "conv3d",
    "conv3d_transpose",
    "convolution",
    "convolution1d",
    "convolution2d",
    "convolution2d_transpose",
    "convolution3d",
    "convolution3d_transpose",
    "max_pool2d",
    "max_pool3d",
    "separable_conv2d",
    "separable_convolution2d",
]

import functools
from collections.abc import Mapping
from typing import Any

from weft_contrib import framework
from weft_contrib.arg_scope import add_arg_scope
from weft_contrib.initializers import xavier_initializer
from weft_contrib.layers.common import (
    Function,
    channels,
    finish_layer,
    layer_scope,
    list_variables_of,
)
from weft_contrib.utils import (
    add_to_variable_collections,
    collect_named_outputs,
    n_positive_integers,
    two_element_tuple,
)
from weft_graph.ir.builder import convert_to_tensor
from weft_graph.layers import convolutional as layers, pooling, separable
from weft_graph.nn.convolution import depthwise_conv2d
from weft_graph.ops import nn
from weft_graph.variables.initializers import Zeros
from weft_graph.variables.scope import variable_scope
from weft_tensor import errors

_NAMES = {"kernel": "weights", "bias": "biases"}
_LAYERS = {1: layers.Conv1D, 2: layers.Conv2D, 3: layers.Conv3D}


@add_arg_scope
def convolution(
    inputs: Any,
    num_outputs: int,
    kernel_size: Any,
    stride: Any = 1,
    padding: str = "SAME",
    data_format: str | None = None,
    rate: Any = 1,
    activation_fn: Function | None = nn.relu,
    normalizer_fn: Function | None = None,
    normalizer_params: Mapping[str, Any] | None = None,
    weights_initializer: Any = xavier_initializer(),
    weights_regularizer: Any = None,
    biases_initializer: Any = Zeros(),
    biases_regularizer: Any = None,
    reuse: Any = None,
    variables_collections: Any = None,
    outputs_collections: Any = None,
    trainable: bool = True,
    scope: Any = None,
    conv_dims: int | None = None,
) -> Any:
    """Compute activation(convolution(inputs, weights) + biases).

    Args:
      inputs: floating, rank 3, 4 or 5: a batch, one to three spatial axes, and channels.
      num_outputs: number of channels of the result.
      kernel_size, stride, rate: one number, or one for each spatial axis.
      padding: "SAME" or "VALID".
      data_format: "NWC", "NHWC" or "NDHWC", or the same with C after N. activation_fn,
        normalizer_fn, normalizer_params, weights_initializer, weights_regularizer,
        biases_initializer, biases_regularizer, reuse, variables_collections, outputs_collections,
        trainable, scope: as for `fully_connected`; the default name is "Conv".
      conv_dims: required number of spatial axes.
    Raises: InvalidArgumentError: the rank, the layout or a size is invalid.

    Examples:
      >>> wf.contrib.layers.conv2d(wf.ones([2, 8, 8, 3]), 4, 3, stride=2).shape
      TensorShape([Dimension(2), Dimension(4), Dimension(4), Dimension(4)])
    """
    with layer_scope(scope, "Conv", inputs, reuse, _NAMES) as (var_scope, x):
        spatial = (x.shape.ndims or 0) - 2
        if spatial not in _LAYERS or conv_dims not in (None, spatial):
            raise errors.InvalidArgumentError(
                f"Convolution expects input with rank {(conv_dims or 2) + 2}, got {x.shape.ndims}"
            )
        layer = _LAYERS[spatial](
            num_outputs,
            n_positive_integers(spatial, kernel_size),
            stride,
            padding,
            channels(data_format, spatial),
            rate,
            use_bias=normalizer_fn is None and biases_initializer is not None,
            kernel_initializer=weights_initializer,
            bias_initializer=biases_initializer,
            kernel_regularizer=weights_regularizer,
            bias_regularizer=biases_regularizer,
            trainable=trainable,
            name=var_scope.name,
            _scope=var_scope,
            _reuse=reuse,
        )
        outputs = layer(x)
        list_variables_of(layer, variables_collections, _NAMES)
        return finish_layer(
            outputs,
            var_scope,
            normalizer_fn=normalizer_fn,
            normalizer_params=normalizer_params,
            activation_fn=activation_fn,
            outputs_collections=outputs_collections,
        )


def _fix_rank(conv_dims: int, name: str) -> Any:
    @functools.wraps(convolution)
    def convolve(inputs: Any, num_outputs: int, kernel_size: Any, *args: Any, **kwargs: Any) -> Any:
        return convolution.__wrapped__(  # type: ignore[attr-defined]  # `wraps` keeps it
            inputs, num_outputs, kernel_size, *args, **{**kwargs, "conv_dims": conv_dims}
        )

    vars(convolve).pop("_key_op", None)
    convolve.__name__ = convolve.__qualname__ = name
    return add_arg_scope(convolve)


conv1d = convolution1d = _fix_rank(1, "convolution1d")
conv2d = convolution2d = _fix_rank(2, "convolution2d")
conv3d = convolution3d = _fix_rank(3, "convolution3d")


def _transpose(layer_class: Any, spatial: int, default: str, name: str) -> Any:
    def transpose(
        inputs: Any,
        num_outputs: int,
        kernel_size: Any,
        stride: Any = 1,
        padding: str = "SAME",
        data_format: str | None = None,
        activation_fn: Function | None = nn.relu,
        normalizer_fn: Function | None = None,
        normalizer_params: Mapping[str, Any] | None = None,
        weights_initializer: Any = xavier_initializer(),
        weights_regularizer: Any = None,
        biases_initializer: Any = Zeros(),
        biases_regularizer: Any = None,
        reuse: Any = None,
        variables_collections: Any = None,
        outputs_collections: Any = None,
        trainable: bool = True,
        scope: Any = None,
    ) -> Any:
        """Compute activation(transposed convolution(inputs, weights) + biases).

        Args:
          inputs, num_outputs, kernel_size, stride, padding, data_format, activation_fn,
            normalizer_fn, normalizer_params, weights_initializer, weights_regularizer,
            biases_initializer, biases_regularizer, reuse, variables_collections,
            outputs_collections, trainable, scope: as for `convolution`; the default name is
            "Conv2d_transpose".
        """
        with layer_scope(scope, default, inputs, reuse, _NAMES) as (var_scope, x):
            layer = layer_class(
                num_outputs,
                n_positive_integers(spatial, kernel_size),
                stride,
                padding,
                channels(data_format, spatial),
                use_bias=normalizer_fn is None and biases_initializer is not None,
                kernel_initializer=weights_initializer,
                bias_initializer=biases_initializer,
                kernel_regularizer=weights_regularizer,
                bias_regularizer=biases_regularizer,
                trainable=trainable,
                name=var_scope.name,
                _scope=var_scope,
                _reuse=reuse,
            )
            outputs = layer(x)
            list_variables_of(layer, variables_collections, _NAMES)
            return finish_layer(
                outputs,
                var_scope,
                normalizer_fn=normalizer_fn,
                normalizer_params=normalizer_params,
                activation_fn=activation_fn,
                outputs_collections=outputs_collections,
            )

    transpose.__name__ = transpose.__qualname__ = name
    return add_arg_scope(transpose)


conv2d_transpose = convolution2d_transpose = _transpose(
    layers.Conv2DTranspose, 2, "Conv2d_transpose", "convolution2d_transpose"
)
conv3d_transpose = convolution3d_transpose = _transpose(
    layers.Conv3DTranspose, 3, "Conv3d_transpose", "convolution3d_transpose"
)

_SEPARABLE = {
    "depthwise_kernel": "depthwise_weights",
    "pointwise_kernel": "pointwise_weights",
    "bias": "biases",
}


@add_arg_scope
def separable_convolution2d(
    inputs: Any,
    num_outputs: int | None,
    kernel_size: Any,
    depth_multiplier: int = 1,
    stride: Any = 1,
    padding: str = "SAME",
    data_format: str | None = "NHWC",
    rate: Any = 1,
    activation_fn: Function | None = nn.relu,
    normalizer_fn: Function | None = None,
    normalizer_params: Mapping[str, Any] | None = None,
    weights_initializer: Any = xavier_initializer(),
    pointwise_initializer: Any = None,
    weights_regularizer: Any = None,
    biases_initializer: Any = Zeros(),
    biases_regularizer: Any = None,
    reuse: Any = None,
    variables_collections: Any = None,
    outputs_collections: Any = None,
    trainable: bool = True,
    scope: Any = None,
) -> Any:
    """Compute a depthwise convolution, followed by a product over the channels.

    Args:
      num_outputs: number of channels of the result; None to omit the product.
      depth_multiplier: number of filters for each channel.
      pointwise_initializer: initializer of the product's weights; `weights_initializer` by default.
      inputs, kernel_size, stride, padding, data_format, rate, activation_fn, normalizer_fn,
        normalizer_params, weights_initializer, weights_regularizer, biases_initializer,
        biases_regularizer, reuse, variables_collections, outputs_collections, trainable, scope: as
        for `convolution`; the default name is "SeparableConv2d".
    """
    with layer_scope(scope, "SeparableConv2d", inputs, reuse, _SEPARABLE) as (var_scope, x):
        biased = normalizer_fn is None and biases_initializer is not None
        if num_outputs is not None:
            layer = separable.SeparableConv2D(
                num_outputs,
                two_element_tuple(kernel_size),
                stride,
                padding,
                channels(data_format),
                two_element_tuple(rate),
                depth_multiplier,
                use_bias=biased,
                depthwise_initializer=weights_initializer,
                pointwise_initializer=pointwise_initializer or weights_initializer,
                bias_initializer=biases_initializer,
                depthwise_regularizer=weights_regularizer,
                pointwise_regularizer=weights_regularizer,
                bias_regularizer=biases_regularizer,
                trainable=trainable,
                name=var_scope.name,
                _scope=var_scope,
                _reuse=reuse,
            )
            outputs = layer(x)
            list_variables_of(layer, variables_collections, _SEPARABLE)
        else:
            variable_args = {"regularizer": weights_regularizer, "initializer": weights_initializer}
            outputs = _depthwise(
                x, {**variable_args, "trainable": trainable}, kernel_size, depth_multiplier, stride,
                padding, data_format, rate, variables_collections,
            )  # fmt: skip
            if biased:
                variable_args = {
                    "regularizer": biases_regularizer,
                    "initializer": biases_initializer,
                }
                variable_args["trainable"] = trainable
                outputs = _with_biases(outputs, variable_args, data_format, variables_collections)
        return finish_layer(
            outputs,
            var_scope,
            normalizer_fn=normalizer_fn,
            normalizer_params=normalizer_params,
            activation_fn=activation_fn,
            outputs_collections=outputs_collections,
        )


def _with_biases(
    x: Any, variable_args: Mapping[str, Any], data_format: Any, collections: Any
) -> Any:
    """Add a bias per channel."""
    axis = 1 if channels(data_format) == "channels_first" else -1
    biases = framework.model_variable(
        "biases", [x.shape[axis].value], x.dtype.base_dtype, **variable_args
    )
    add_to_variable_collections(biases, collections, "biases")
    return nn.bias_add(x, biases, data_format=data_format)


def _depthwise(
    x: Any,
    variable_args: dict[str, Any],
    kernel_size: Any,
    depth_multiplier: int,
    stride: Any,
    padding: str,
    data_format: str | None,
    rate: Any,
    collections: Any,
) -> Any:
    first = channels(data_format) == "channels_first"
    shape = [*two_element_tuple(kernel_size), x.shape[1 if first else 3].value, depth_multiplier]
    weights = framework.model_variable(
        "depthwise_weights", shape, x.dtype.base_dtype, **variable_args
    )
    add_to_variable_collections(weights, collections, "weights")
    height, width = two_element_tuple(stride)
    strides = [1, 1, height, width] if first else [1, height, width, 1]
    return depthwise_conv2d(
        x, weights, strides, padding, two_element_tuple(rate), data_format=data_format
    )


separable_conv2d = separable_convolution2d


def _pool(layer_class: Any, spatial: int, default: str, name: str) -> Any:
    def pool(
        inputs: Any,
        kernel_size: Any,
        stride: Any = 2,
        padding: str = "VALID",
        data_format: str | None = None,
        outputs_collections: Any = None,
        scope: Any = None,
    ) -> Any:
        """Return the maximum or mean of each window.

        Args:
          inputs: floating, rank 4 or 5.
          kernel_size, stride: one number, or one for each spatial axis.
          padding: "SAME" or "VALID".
          data_format: "NHWC" or "NCHW", and with a D for rank 5.
          outputs_collections, scope: as for `convolution`; the default is the name of the function,
            such as "MaxPool2D".
        """
        with variable_scope(scope, default, [inputs]) as var_scope:
            layout = channels(data_format, spatial)
            layer = layer_class(kernel_size, stride, padding, layout, name=var_scope.name)
            outputs = layer(convert_to_tensor(inputs))
            return collect_named_outputs(outputs_collections, var_scope.name, outputs)

    pool.__name__ = pool.__qualname__ = name
    return add_arg_scope(pool)


max_pool2d = _pool(pooling.MaxPooling2D, 2, "MaxPool2D", "max_pool2d")
avg_pool2d = _pool(pooling.AveragePooling2D, 2, "AvgPool2D", "avg_pool2d")
max_pool3d = _pool(pooling.MaxPooling3D, 3, "MaxPool3D", "max_pool3d")
avg_pool3d = _pool(pooling.AveragePooling3D, 3, "AvgPool3D", "avg_pool3d")
