"""Max and average pooling layers over one, two and three axes."""

from __future__ import annotations

__all__ = [
    "AveragePooling1D",
    "AveragePooling2D",
    "AveragePooling3D",
    "MaxPooling1D",
    "MaxPooling2D",
    "MaxPooling3D",
    "average_pooling1d",
    "average_pooling2d",
    "average_pooling3d",
    "max_pooling1d",
    "max_pooling2d",
    "max_pooling3d",
]

from collections.abc import Callable
from typing import Any

from weft_graph.ir.node import Output
from weft_graph.layers.arguments import layout_of, padding_of, sizes
from weft_graph.layers.base import InputSpec, Layer
from weft_graph.nn.convolution import avg_pool_of_rank, max_pool_of_rank
from weft_graph.ops.windows import slide, spatial_axes
from weft_tensor.shape import TensorShape, as_dims


class _Pool(Layer):
    """Base class of pooling layers.

    Args:
      pool_size: size of the window: one number, or one per spatial axis.
      strides: in the same form; None for `pool_size`.
      padding: "valid" or "same".
      data_format: "channels_last" or "channels_first".
      name: name of the layer.
    """

    rank = 2
    function: Callable[..., Output] = staticmethod(max_pool_of_rank)

    def __init__(
        self,
        pool_size: Any,
        strides: Any,
        padding: str = "valid",
        data_format: str = "channels_last",
        name: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(name=name, **kwargs)
        self.pool_size = sizes(pool_size, self.rank, "pool_size")
        self.strides = sizes(pool_size if strides is None else strides, self.rank, "strides")
        self.padding = padding_of(padding)
        self.data_format = data_format
        self.layout = layout_of(data_format, self.rank)
        self.input_spec = InputSpec(ndim=self.rank + 2)

    def call(self, inputs: Output, *args: Any, **kwargs: Any) -> Any:
        """Compute the pooled input."""
        window, strides = list(self.pool_size), list(self.strides)
        return type(self).function(inputs, window, strides, self.padding, self.layout, None)

    def compute_output_shape(self, input_shape: Any) -> TensorShape:
        """Return the output shape."""
        dims = list(as_dims(input_shape) or (None,) * (self.rank + 2))
        for i, axis in enumerate(spatial_axes(self.layout)):
            size = dims[axis]
            if size is not None:
                k, s = self.pool_size[i], self.strides[i]
                dims[axis] = slide(size, k, s, 1, self.padding)[0]
        return TensorShape(dims)


class MaxPooling1D(_Pool):
    """Max pooling along one axis.

    Args:
      pool_size: size of the window along the axis, at least 1.
      strides: step of the window; None for `pool_size`.
      padding: "valid" or "same".
      data_format: "channels_last" for inputs of shape (N, W, C), "channels_first" for (N, C, W).
      name: name of the layer.

    Examples:
      >>> pool = wf.layers.MaxPooling1D(pool_size=2, strides=2)
      >>> wf.Session().run(pool(wf.constant([[[1.0], [3.0], [5.0], [7.0]]])))[0, :, 0]
      array([3., 7.], dtype=float32)
    """

    rank = 1


class MaxPooling2D(_Pool):
    """Max pooling of images.

    Args:
      pool_size: size of the window: one number, or one per spatial axis.
      strides: in the same form; None for `pool_size`.
      padding: "valid" or "same".
      data_format: "channels_last" for inputs of shape (N, H, W, C), "channels_first" for
        (N, C, H, W).
      name: name of the layer.

    Examples:
      >>> pool = wf.layers.MaxPooling2D(pool_size=2, strides=2)
      >>> wf.Session().run(pool(wf.reshape(wf.range(16.0), [1, 4, 4, 1])))[0, :, :, 0]
      array([[ 5.,  7.],
             [13., 15.]], dtype=float32)
    """


class MaxPooling3D(_Pool):
    """Max pooling of volumes.

    Args:
      pool_size: size of the window: one number, or one per spatial axis.
      strides: in the same form; None for `pool_size`.
      padding: "valid" or "same".
      data_format: "channels_last" for inputs of shape (N, D, H, W, C), "channels_first" for
        (N, C, D, H, W).
      name: name of the layer.

    Examples:
      >>> wf.layers.MaxPooling3D(pool_size=2, strides=2)(wf.zeros([1, 4, 4, 4, 2])).shape
      TensorShape([Dimension(1), Dimension(2), Dimension(2), Dimension(2), Dimension(2)])
    """

    rank = 3


class AveragePooling1D(_Pool):
    """Average pooling along one axis.

    Args:
      pool_size: size of the window along the axis, at least 1.
      strides: step of the window; None for `pool_size`.
      padding: "valid" or "same".
      data_format: "channels_last" for inputs of shape (N, W, C), "channels_first" for (N, C, W).
      name: name of the layer.

    Examples:
      >>> pool = wf.layers.AveragePooling1D(pool_size=2, strides=2)
      >>> wf.Session().run(pool(wf.constant([[[1.0], [3.0], [5.0], [7.0]]])))[0, :, 0]
      array([2., 6.], dtype=float32)
    """

    rank = 1
    function = staticmethod(avg_pool_of_rank)


class AveragePooling2D(_Pool):
    """Average pooling of images.

    Args:
      pool_size: size of the window: one number, or one per spatial axis.
      strides: in the same form; None for `pool_size`.
      padding: "valid" or "same".
      data_format: "channels_last" for inputs of shape (N, H, W, C), "channels_first" for
        (N, C, H, W).
      name: name of the layer.

    Examples:
      >>> pool = wf.layers.AveragePooling2D(pool_size=2, strides=2)
      >>> wf.Session().run(pool(wf.reshape(wf.range(16.0), [1, 4, 4, 1])))[0, :, :, 0]
      array([[ 2.5,  4.5],
             [10.5, 12.5]], dtype=float32)
    """

    function = staticmethod(avg_pool_of_rank)


class AveragePooling3D(_Pool):
    """Average pooling of volumes.

    Args:
      pool_size: size of the window: one number, or one per spatial axis.
      strides: in the same form; None for `pool_size`.
      padding: "valid" or "same".
      data_format: "channels_last" for inputs of shape (N, D, H, W, C), "channels_first" for
        (N, C, D, H, W).
      name: name of the layer.

    Examples:
      >>> wf.layers.AveragePooling3D(pool_size=2, strides=2)(wf.zeros([1, 4, 4, 4, 2])).shape
      TensorShape([Dimension(1), Dimension(2), Dimension(2), Dimension(2), Dimension(2)])
    """

    rank = 3
    function = staticmethod(avg_pool_of_rank)


def max_pooling1d(
    inputs: Any,
    pool_size: Any,
    strides: Any,
    padding: str = "valid",
    data_format: str = "channels_last",
    name: str | None = None,
) -> Output:
    """Return the maximum of each window along one axis.

    Args:
      inputs: real, shape (N, W, C) or (N, C, W).
      pool_size, strides, padding, data_format: as for `MaxPooling1D`.
    Returns: shape (N, W', C) in the layout of `inputs`.

    Examples:
      >>> wf.layers.max_pooling1d(wf.zeros([2, 10, 3]), 2, 2).shape
      TensorShape([Dimension(2), Dimension(5), Dimension(3)])
    """
    result: Output = MaxPooling1D(pool_size, strides, padding, data_format, name)(inputs)
    return result


def max_pooling2d(
    inputs: Any,
    pool_size: Any,
    strides: Any,
    padding: str = "valid",
    data_format: str = "channels_last",
    name: str | None = None,
) -> Output:
    """Return the maximum of each window of an image.

    Args:
      inputs: floating, shape (N, H, W, C) or (N, C, H, W).
      pool_size, strides: one number, or one per spatial axis.
      padding: "valid" or "same".
      data_format: "channels_last" or "channels_first".
    Returns: shape (N, H', W', C) in the layout of `inputs`.

    Examples:
      >>> wf.layers.max_pooling2d(wf.zeros([1, 28, 28, 3]), pool_size=2, strides=2).shape
      TensorShape([Dimension(1), Dimension(14), Dimension(14), Dimension(3)])
    """
    result: Output = MaxPooling2D(pool_size, strides, padding, data_format, name)(inputs)
    return result


def max_pooling3d(
    inputs: Any,
    pool_size: Any,
    strides: Any,
    padding: str = "valid",
    data_format: str = "channels_last",
    name: str | None = None,
) -> Output:
    """Return the maximum of each window of a volume.

    Args:
      inputs: floating, shape (N, D, H, W, C) or (N, C, D, H, W).
      pool_size, strides, padding, data_format: as for `max_pooling2d`.
    Returns: shape (N, D', H', W', C) in the layout of `inputs`.

    Examples:
      >>> wf.layers.max_pooling3d(wf.zeros([1, 4, 4, 4, 2]), 2, 2).shape
      TensorShape([Dimension(1), Dimension(2), Dimension(2), Dimension(2), Dimension(2)])
    """
    result: Output = MaxPooling3D(pool_size, strides, padding, data_format, name)(inputs)
    return result


def average_pooling1d(
    inputs: Any,
    pool_size: Any,
    strides: Any,
    padding: str = "valid",
    data_format: str = "channels_last",
    name: str | None = None,
) -> Output:
    """Return the mean of each window along one axis.

    Args:
      inputs: floating, shape (N, W, C) or (N, C, W).
      pool_size, strides, padding, data_format: as for `AveragePooling1D`.
    Returns: shape (N, W', C) in the layout of `inputs`.

    Examples:
      >>> wf.layers.average_pooling1d(wf.zeros([2, 10, 3]), 2, 2).shape
      TensorShape([Dimension(2), Dimension(5), Dimension(3)])
    """
    result: Output = AveragePooling1D(pool_size, strides, padding, data_format, name)(inputs)
    return result


def average_pooling2d(
    inputs: Any,
    pool_size: Any,
    strides: Any,
    padding: str = "valid",
    data_format: str = "channels_last",
    name: str | None = None,
) -> Output:
    """Return the mean of each window of an image.

    Args:
      inputs: floating, shape (N, H, W, C) or (N, C, H, W).
      pool_size, strides, padding, data_format: as for `max_pooling2d`.
    Returns: shape (N, H', W', C) in the layout of `inputs`.

    Examples:
      >>> wf.layers.average_pooling2d(wf.zeros([1, 28, 28, 3]), pool_size=2, strides=2).shape
      TensorShape([Dimension(1), Dimension(14), Dimension(14), Dimension(3)])
    """
    result: Output = AveragePooling2D(pool_size, strides, padding, data_format, name)(inputs)
    return result


def average_pooling3d(
    inputs: Any,
    pool_size: Any,
    strides: Any,
    padding: str = "valid",
    data_format: str = "channels_last",
    name: str | None = None,
) -> Output:
    """Return the mean of each window of a volume.

    Args:
      inputs: floating, shape (N, D, H, W, C) or (N, C, D, H, W).
      pool_size, strides, padding, data_format: as for `max_pooling2d`.
    Returns: shape (N, D', H', W', C) in the layout of `inputs`.

    Examples:
      >>> wf.layers.average_pooling3d(wf.zeros([1, 4, 4, 4, 2]), 2, 2).shape
      TensorShape([Dimension(1), Dimension(2), Dimension(2), Dimension(2), Dimension(2)])
    """
    result: Output = AveragePooling3D(pool_size, strides, padding, data_format, name)(inputs)
    return result
