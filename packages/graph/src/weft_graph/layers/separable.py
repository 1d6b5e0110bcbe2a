"""Separable convolution layers: a depthwise, then a pointwise convolution."""

from __future__ import annotations

__all__ = ["SeparableConv1D", "SeparableConv2D", "separable_conv1d", "separable_conv2d"]

from typing import Any

from weft_graph import nn
from weft_graph.ir.node import Output
from weft_graph.layers.arguments import functions, initializer_of
from weft_graph.layers.convolutional import Conv, Function, functional
from weft_graph.ops import shapes
from weft_tensor.arguments import check_whole_number
from weft_tensor.shape import TensorShape


class _Separable(Conv):
    """Base class of separable convolutions: a depthwise, then a pointwise convolution."""

    def __init__(
        self,
        filters: int,
        kernel_size: Any,
        strides: Any = 1,
        padding: str = "valid",
        data_format: str = "channels_last",
        dilation_rate: Any = 1,
        depth_multiplier: int = 1,
        activation: Function | None = None,
        use_bias: bool = True,
        depthwise_initializer: Any = None,
        pointwise_initializer: Any = None,
        bias_initializer: Any = None,
        depthwise_regularizer: Any = None,
        pointwise_regularizer: Any = None,
        bias_regularizer: Any = None,
        activity_regularizer: Any = None,
        depthwise_constraint: Any = None,
        pointwise_constraint: Any = None,
        bias_constraint: Any = None,
        trainable: bool = True,
        name: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(
            filters,
            kernel_size,
            strides,
            padding,
            data_format,
            dilation_rate,
            activation,
            use_bias,
            bias_initializer=bias_initializer,
            bias_regularizer=bias_regularizer,
            activity_regularizer=activity_regularizer,
            bias_constraint=bias_constraint,
            trainable=trainable,
            name=name,
            **kwargs,
        )
        functions(
            depthwise_regularizer=depthwise_regularizer,
            pointwise_regularizer=pointwise_regularizer,
            depthwise_constraint=depthwise_constraint,
            pointwise_constraint=pointwise_constraint,
        )
        self.depth_multiplier = check_whole_number(depth_multiplier, "depth_multiplier", minimum=1)
        self.depthwise_initializer = initializer_of(depthwise_initializer, "depthwise_initializer")
        self.pointwise_initializer = initializer_of(pointwise_initializer, "pointwise_initializer")
        self.depthwise_regularizer = depthwise_regularizer
        self.pointwise_regularizer = pointwise_regularizer
        self.depthwise_constraint = depthwise_constraint
        self.pointwise_constraint = pointwise_constraint
        self.depthwise_kernel: Any = None
        self.pointwise_kernel: Any = None

    def build(self, input_shape: TensorShape) -> None:
        """Create both kernels and the bias."""
        depth = self.depth_of(input_shape)
        self.depthwise_kernel = self.add_kernel(
            "depthwise_kernel",
            (*self.kernel_size, depth, self.depth_multiplier),
            initializer=self.depthwise_initializer,
            regularizer=self.depthwise_regularizer,
            constraint=self.depthwise_constraint,
        )
        self.pointwise_kernel = self.add_kernel(
            "pointwise_kernel",
            (*(1,) * self.rank, depth * self.depth_multiplier, self.filters),
            initializer=self.pointwise_initializer,
            regularizer=self.pointwise_regularizer,
            constraint=self.pointwise_constraint,
        )
        self.add_bias()


class SeparableConv1D(_Separable):
    """Separable 1-D convolution; see `separable_conv1d`.

    Args:
      filters, kernel_size, depth_multiplier, ...: as for `separable_conv1d`; inputs are floating,
        shape (N, W, C) or (N, C, W).

    Examples:
      >>> wf.layers.SeparableConv1D(4, kernel_size=2)(wf.zeros([2, 5, 3])).shape
      TensorShape([Dimension(2), Dimension(4), Dimension(4)])
    """

    rank = 1

    def call(self, inputs: Output, *args: Any, **kwargs: Any) -> Any:
        """Compute both convolutions, then add the bias and apply the activation."""
        last = self.layout == "NWC"
        axis = 1 if last else 2
        result = nn.separable_conv2d(
            shapes.expand_dims(inputs, axis),
            shapes.expand_dims(self.depthwise_kernel, 0),
            shapes.expand_dims(self.pointwise_kernel, 0),
            self.strides * 2,  # a depthwise convolution strides equally along both axes
            self.padding,
            (1, *self.dilation_rate),
            data_format="NHWC" if last else "NCHW",
        )
        return self.finish(shapes.squeeze(result, [axis]))


class SeparableConv2D(_Separable):
    """Separable 2-D convolution; see `separable_conv2d`.

    Args:
      filters, kernel_size, depth_multiplier, ...: as for `separable_conv2d`; inputs are floating,
        shape (N, H, W, C) or (N, C, H, W).

    Examples:
      >>> wf.layers.SeparableConv2D(4, kernel_size=2)(wf.zeros([2, 5, 5, 3])).shape
      TensorShape([Dimension(2), Dimension(4), Dimension(4), Dimension(4)])
    """

    def call(self, inputs: Output, *args: Any, **kwargs: Any) -> Any:
        """Compute both convolutions, then add the bias and apply the activation."""
        result = nn.separable_conv2d(
            inputs,
            self.depthwise_kernel,
            self.pointwise_kernel,
            self.strides,
            self.padding,
            self.dilation_rate,
            data_format=self.layout,
        )
        return self.finish(result)


# --------------------------------------------------------------------------- functions


def separable_conv1d(
    inputs: Any,
    filters: int,
    kernel_size: Any,
    strides: Any = 1,
    padding: str = "valid",
    data_format: str = "channels_last",
    dilation_rate: Any = 1,
    depth_multiplier: int = 1,
    activation: Function | None = None,
    use_bias: bool = True,
    depthwise_initializer: Any = None,
    pointwise_initializer: Any = None,
    bias_initializer: Any = None,
    depthwise_regularizer: Any = None,
    pointwise_regularizer: Any = None,
    bias_regularizer: Any = None,
    activity_regularizer: Any = None,
    depthwise_constraint: Any = None,
    pointwise_constraint: Any = None,
    bias_constraint: Any = None,
    trainable: bool = True,
    name: str | None = None,
    reuse: Any = None,
) -> Any:
    """Apply a depthwise, then a pointwise convolution, creating their kernels.

    Args:
      inputs: floating, shape (N, W, C) or (N, C, W).
      depth_multiplier: depthwise filters per channel.
      filters, kernel_size, ...: as for `conv2d`, over one axis.
    Returns: shape (N, W', filters) in the layout of `inputs`.

    Examples:
      >>> wf.layers.separable_conv1d(wf.zeros([2, 5, 3]), 4, kernel_size=2).shape
      TensorShape([Dimension(2), Dimension(4), Dimension(4)])
    """
    args = {k: v for k, v in locals().items() if k not in ("inputs", "name", "reuse")}
    return functional(SeparableConv1D, inputs, name, reuse, **args)


def separable_conv2d(
    inputs: Any,
    filters: int,
    kernel_size: Any,
    strides: Any = (1, 1),
    padding: str = "valid",
    data_format: str = "channels_last",
    dilation_rate: Any = (1, 1),
    depth_multiplier: int = 1,
    activation: Function | None = None,
    use_bias: bool = True,
    depthwise_initializer: Any = None,
    pointwise_initializer: Any = None,
    bias_initializer: Any = None,
    depthwise_regularizer: Any = None,
    pointwise_regularizer: Any = None,
    bias_regularizer: Any = None,
    activity_regularizer: Any = None,
    depthwise_constraint: Any = None,
    pointwise_constraint: Any = None,
    bias_constraint: Any = None,
    trainable: bool = True,
    name: str | None = None,
    reuse: Any = None,
) -> Any:
    """Apply a depthwise, then a pointwise convolution, creating their kernels.

    Args:
      inputs: floating, shape (N, H, W, C) or (N, C, H, W).
      depth_multiplier: depthwise filters per channel.
      filters, kernel_size, ...: as for `conv2d`.
    Returns: shape (N, H', W', filters) in the layout of `inputs`.

    Examples:
      >>> wf.layers.separable_conv2d(wf.zeros([2, 5, 5, 3]), 4, kernel_size=2).shape
      TensorShape([Dimension(2), Dimension(4), Dimension(4), Dimension(4)])
    """
    args = {k: v for k, v in locals().items() if k not in ("inputs", "name", "reuse")}
    return functional(SeparableConv2D, inputs, name, reuse, **args)
