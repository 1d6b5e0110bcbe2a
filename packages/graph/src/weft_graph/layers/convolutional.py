"""Convolution layers over one, two and three axes, and transposed convolutions."""

from __future__ import annotations

__all__ = [
    "Conv1D",
    "Conv2D",
    "Conv2DTranspose",
    "Conv3D",
    "Conv3DTranspose",
    "conv1d",
    "conv2d",
    "conv2d_transpose",
    "conv3d",
    "conv3d_transpose",
]

from collections.abc import Callable
from typing import Any

from weft_graph import nn
from weft_graph.ir.builder import out
from weft_graph.ir.node import Output
from weft_graph.layers.arguments import (
    activation_of,
    functions,
    initializer_of,
    layout_of,
    padding_of,
    sizes,
)
from weft_graph.layers.base import InputSpec, Layer
from weft_graph.ops import shapes
from weft_graph.ops.windows import channel_axis, slide, spatial_axes, window_extent
from weft_graph.variables.initializers import zeros_initializer
from weft_tensor import errors
from weft_tensor.arguments import check_whole_number
from weft_tensor.shape import TensorShape, as_dims, format_dims

Function = Callable[..., Any]


class Conv(Layer):
    """Base class of convolutions: activation(convolution(inputs, kernel) + bias).

    Args:
      filters: number of channels of the output.
      kernel_size: size of the window: one number, or one per spatial axis.
      strides, dilation_rate: in the same form as `kernel_size`; not both above 1.
      padding: "valid" or "same".
      data_format: "channels_last" or "channels_first".
      activation: applied last; None for none.
      use_bias: add a bias.
      kernel_initializer: defaults to that of the variable scope.
      bias_initializer: zeros by default.
      kernel_regularizer, bias_regularizer: functions from the variable to a loss.
      activity_regularizer: function from the output to a loss.
      kernel_constraint, bias_constraint: functions that optimizers apply after an update.
      trainable: make the variables trainable.
      name: name of the layer.
    """

    rank = 2

    def __init__(
        self,
        filters: int,
        kernel_size: Any,
        strides: Any = 1,
        padding: str = "valid",
        data_format: str = "channels_last",
        dilation_rate: Any = 1,
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
        self.filters = check_whole_number(filters, "filters", minimum=0)
        self.kernel_size = sizes(kernel_size, self.rank, "kernel_size")
        self.strides = sizes(strides, self.rank, "strides")
        self.dilation_rate = sizes(dilation_rate, self.rank, "dilation_rate")
        self.padding = padding_of(padding)
        self.data_format = data_format
        self.layout = layout_of(data_format, self.rank)
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
        self.input_spec = InputSpec(ndim=self.rank + 2)
        self.kernel: Any = None
        self.bias: Any = None

    def depth_of(self, input_shape: TensorShape) -> int:
        """Return the number of input channels, which all later inputs must have.

        Raises: InvalidArgumentError: it is not known.
        """
        dims = as_dims(input_shape) or ()
        axis = channel_axis(self.layout)
        depth = dims[axis]
        if depth is None:
            raise errors.InvalidArgumentError(
                f"layer {self.name} requires an input whose channels are known, "
                f"got shape {format_dims(dims)}"
            )
        self.input_spec = InputSpec(ndim=self.rank + 2, axes={axis: depth})
        return depth

    def add_kernel(self, name: str, shape: tuple[int, ...], **settings: Any) -> Any:
        defaults = {
            "initializer": self.kernel_initializer,
            "regularizer": self.kernel_regularizer,
            "constraint": self.kernel_constraint,
        }
        return self.add_weight(name, shape=shape, **(defaults | settings))

    def add_bias(self) -> None:
        if self.use_bias:
            self.bias = self.add_weight(
                "bias",
                shape=(self.filters,),
                initializer=self.bias_initializer,
                regularizer=self.bias_regularizer,
                constraint=self.bias_constraint,
            )
        self.built = True

    def finish(self, result: Output) -> Any:
        if self.use_bias:
            result = nn.bias_add(result, self.bias, data_format=self.layout)
        return result if self.activation is None else self.activation(result)

    def build(self, input_shape: TensorShape) -> None:
        """Create the kernel and the bias."""
        depth = self.depth_of(input_shape)
        self.kernel = self.add_kernel("kernel", (*self.kernel_size, depth, self.filters))
        self.add_bias()

    def call(self, inputs: Output, *args: Any, **kwargs: Any) -> Any:
        """Compute activation(convolution(inputs, kernel) + bias)."""
        result = nn.convolution(
            inputs,
            self.kernel,
            self.padding,
            self.strides,
            self.dilation_rate,
            data_format=self.layout,
            name=f"Conv{self.rank}D",
        )
        return self.finish(result)

    def compute_output_shape(self, input_shape: Any) -> TensorShape:
        """Return the output shape."""
        dims = list(as_dims(input_shape) or (None,) * (self.rank + 2))
        axes = spatial_axes(self.layout)
        for i, axis in enumerate(axes):
            dims[axis] = self._output_size(dims[axis], i)
        dims[channel_axis(self.layout)] = self.filters
        return TensorShape(dims)

    def _output_size(self, size: int | None, i: int) -> int | None:
        if size is None:
            return None
        k, s, d = self.kernel_size[i], self.strides[i], self.dilation_rate[i]
        return slide(size, k, s, d, self.padding)[0]


class Conv1D(Conv):
    """1-D convolution over (N, W, C); see `conv1d`.

    Args:
      filters, kernel_size, ...: as for `conv1d`; inputs are floating, shape (N, W, C) or
        (N, C, W).

    Examples:
      >>> wf.layers.Conv1D(4, kernel_size=3)(wf.zeros([2, 10, 3])).shape
      TensorShape([Dimension(2), Dimension(8), Dimension(4)])
    """

    rank = 1


class Conv2D(Conv):
    """2-D convolution over (N, H, W, C); see `conv2d`.

    Args:
      filters, kernel_size, ...: as for `conv2d`; inputs are floating, shape
        (N, H, W, C) or (N, C, H, W).

    Examples:
      >>> wf.layers.Conv2D(4, kernel_size=3)(wf.zeros([2, 5, 5, 3])).shape
      TensorShape([Dimension(2), Dimension(3), Dimension(3), Dimension(4)])
    """


class Conv3D(Conv):
    """3-D convolution over (N, D, H, W, C); see `conv3d`.

    Args:
      filters, kernel_size, ...: as for `conv3d`; inputs are floating, shape
        (N, D, H, W, C) or (N, C, D, H, W).

    Examples:
      >>> wf.layers.Conv3D(4, kernel_size=3)(wf.zeros([1, 5, 5, 5, 2])).shape
      TensorShape([Dimension(1), Dimension(3), Dimension(3), Dimension(3), Dimension(4)])
    """

    rank = 3


class Conv2DTranspose(Conv):
    """Transposed 2-D convolution; see `conv2d_transpose`.

    Args:
      filters, kernel_size, ...: as for `conv2d_transpose`; inputs are floating, shape
        (N, H, W, C) or (N, C, H, W).

    Examples:
      >>> wf.layers.Conv2DTranspose(4, kernel_size=2, strides=2)(wf.zeros([2, 5, 5, 3])).shape
      TensorShape([Dimension(2), Dimension(10), Dimension(10), Dimension(4)])
    """

    def build(self, input_shape: TensorShape) -> None:
        """Create the kernel and the bias."""
        depth = self.depth_of(input_shape)
        self.kernel = self.add_kernel("kernel", (*self.kernel_size, self.filters, depth))
        self.add_bias()

    def call(self, inputs: Output, *args: Any, **kwargs: Any) -> Any:
        """Compute the transposed convolution, then add the bias and apply the activation."""
        static = as_dims(self.compute_output_shape(inputs.shape)) or ()
        output_sizes: Any = list(static)
        if None in static:
            dynamic = shapes.shape(inputs)
            for axis, size in enumerate(static):
                if size is None and axis == 0:
                    output_sizes[axis] = dynamic[axis]
                elif size is None:
                    output_sizes[axis] = self._grow(
                        dynamic[axis], spatial_axes(self.layout).index(axis)
                    )
            output_sizes = out("Pack", [output_sizes])
        functions: dict[int, Function] = {2: nn.conv2d_transpose, 3: nn.conv3d_transpose}
        result: Output = functions[self.rank](
            inputs, self.kernel, output_sizes, self.strides, self.padding, data_format=self.layout
        )
        result.set_shape(static)
        return self.finish(result)

    def _output_size(self, size: int | None, i: int) -> int | None:
        return None if size is None else self._grow(size, i)

    def _grow(self, size: Any, i: int) -> Any:
        extra = max(window_extent(self.kernel_size[i], 1) - self.strides[i], 0)
        grown = size * self.strides[i]
        return grown + extra if self.padding == "VALID" else grown


class Conv3DTranspose(Conv2DTranspose):
    """Transposed 3-D convolution; see `conv3d_transpose`.

    Args:
      filters, kernel_size, ...: as for `conv3d_transpose`; inputs are floating, shape
        (N, D, H, W, C) or (N, C, D, H, W).

    Examples:
      >>> layer = wf.layers.Conv3DTranspose(4, kernel_size=2, strides=2)
      >>> layer(wf.zeros([1, 3, 3, 3, 2])).shape
      TensorShape([Dimension(1), Dimension(6), Dimension(6), Dimension(6), Dimension(4)])
    """

    rank = 3


# --------------------------------------------------------------------------- functions


def functional(layer: type[Conv], inputs: Any, name: str | None, reuse: Any, **args: Any) -> Any:
    """Create a layer of a class with `args` in the scope `name`, and apply it to `inputs`."""
    return layer(**args, name=name, _scope=name, _reuse=reuse)(inputs)


def conv1d(
    inputs: Any,
    filters: int,
    kernel_size: Any,
    strides: Any = 1,
    padding: str = "valid",
    data_format: str = "channels_last",
    dilation_rate: Any = 1,
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
) -> Any:
    """Apply a 1-D convolution, creating its kernel and bias.

    Args:
      inputs: floating, shape (N, W, C) or (N, C, W).
      filters, kernel_size, ...: as for `conv2d`, over one axis.
    Returns: shape (N, W', filters) in the layout of `inputs`.

    Examples:
      >>> wf.layers.conv1d(wf.zeros([2, 10, 3]), filters=4, kernel_size=3).shape
      TensorShape([Dimension(2), Dimension(8), Dimension(4)])
    """
    args = {k: v for k, v in locals().items() if k not in ("inputs", "name", "reuse")}
    return functional(Conv1D, inputs, name, reuse, **args)


def conv2d(
    inputs: Any,
    filters: int,
    kernel_size: Any,
    strides: Any = (1, 1),
    padding: str = "valid",
    data_format: str = "channels_last",
    dilation_rate: Any = (1, 1),
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
) -> Any:
    """Apply a 2-D convolution, creating its kernel and bias.

    Args:
      inputs: floating, shape (N, H, W, C) or (N, C, H, W).
      filters: number of channels of the output.
      kernel_size: one number or (KH, KW).
      strides, dilation_rate: in the same form as `kernel_size`.
      padding: "valid" or "same".
      data_format: "channels_last" or "channels_first".
      activation: applied last; None for none.
      use_bias: add a bias.
      kernel_initializer, bias_initializer: initializers; those of the variable scope and zeros by
        default.
      kernel_regularizer, bias_regularizer, activity_regularizer: functions that return a loss.
      kernel_constraint, bias_constraint: functions that optimizers apply after an update.
      trainable: make the variables trainable.
      name: name of the layer and the variable scope.
      reuse: reuse the variables of a previous layer of that name.
    Returns: shape (N, H', W', filters) in the layout of `inputs`.

    Examples:
      >>> images = wf.placeholder(wf.float32, [None, 28, 28, 1])
      >>> wf.layers.conv2d(images, filters=32, kernel_size=5, padding="same").shape
      TensorShape([Dimension(None), Dimension(28), Dimension(28), Dimension(32)])
    """
    args = {k: v for k, v in locals().items() if k not in ("inputs", "name", "reuse")}
    return functional(Conv2D, inputs, name, reuse, **args)


def conv3d(
    inputs: Any,
    filters: int,
    kernel_size: Any,
    strides: Any = (1, 1, 1),
    padding: str = "valid",
    data_format: str = "channels_last",
    dilation_rate: Any = (1, 1, 1),
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
) -> Any:
    """Apply a 3-D convolution, creating its kernel and bias.

    Args:
      inputs: floating, shape (N, D, H, W, C) or (N, C, D, H, W).
      filters, kernel_size, ...: as for `conv2d`, over three axes.
    Returns: shape (N, D', H', W', filters) in the layout of `inputs`.

    Examples:
      >>> wf.layers.conv3d(wf.zeros([1, 5, 5, 5, 2]), 4, kernel_size=3).shape
      TensorShape([Dimension(1), Dimension(3), Dimension(3), Dimension(3), Dimension(4)])
    """
    args = {k: v for k, v in locals().items() if k not in ("inputs", "name", "reuse")}
    return functional(Conv3D, inputs, name, reuse, **args)


def conv2d_transpose(
    inputs: Any,
    filters: int,
    kernel_size: Any,
    strides: Any = (1, 1),
    padding: str = "valid",
    data_format: str = "channels_last",
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
) -> Any:
    """Apply a transposed 2-D convolution, creating its kernel and bias.

    Args:
      inputs: floating, shape (N, H, W, C) or (N, C, H, W).
      filters, kernel_size, ...: as for `conv2d`.
    Returns: shape (N, H * SH, W * SW, filters) for "same" padding; for "valid", large enough for
      all windows; in the layout of `inputs`.

    Examples:
      >>> wf.layers.conv2d_transpose(wf.zeros([2, 5, 5, 3]), 4, kernel_size=2, strides=2).shape
      TensorShape([Dimension(2), Dimension(10), Dimension(10), Dimension(4)])
    """
    args = {k: v for k, v in locals().items() if k not in ("inputs", "name", "reuse")}
    return functional(Conv2DTranspose, inputs, name, reuse, **args)


def conv3d_transpose(
    inputs: Any,
    filters: int,
    kernel_size: Any,
    strides: Any = (1, 1, 1),
    padding: str = "valid",
    data_format: str = "channels_last",
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
) -> Any:
    """Apply a transposed 3-D convolution, creating its kernel and bias.

    Args:
      inputs: floating, shape (N, D, H, W, C) or (N, C, D, H, W).
      filters, kernel_size, ...: as for `conv2d`, over three axes.
    Returns: shape (N, D * SD, H * SH, W * SW, filters) for "same" padding; for "valid", large
      enough for all windows; in the layout of `inputs`.

    Examples:
      >>> wf.layers.conv3d_transpose(wf.zeros([1, 3, 3, 3, 2]), 4, kernel_size=2, strides=2).shape
      TensorShape([Dimension(1), Dimension(6), Dimension(6), Dimension(6), Dimension(4)])
    """
    args = {k: v for k, v in locals().items() if k not in ("inputs", "name", "reuse")}
    return functional(Conv3DTranspose, inputs, name, reuse, **args)
