"""Convolutions and pooling composed of single-node functions."""

from __future__ import annotations

__all__ = [
    "atrous_conv2d",
    "atrous_conv2d_transpose",
    "avg_pool1d",
    "avg_pool_v2",
    "conv1d",
    "conv1d_transpose",
    "conv2d_transpose",
    "convolution",
    "depthwise_conv2d",
    "max_pool1d",
    "max_pool_v2",
    "pool",
    "separable_conv2d",
]

from collections.abc import Callable, Sequence
from typing import Any

from weft_graph.ir.builder import convert_to_tensor, out
from weft_graph.ir.node import Output
from weft_graph.nn.scope import scope
from weft_graph.ops import conv, pool as pools, shapes, space_to_batch
from weft_graph.ops.conv import expand
from weft_graph.ops.windows import channel_axis, spatial_axes
from weft_tensor import errors
from weft_tensor.shape import Dims, format_dims

_LAYOUTS = {1: ("NWC", "NCW"), 2: ("NHWC", "NCHW"), 3: ("NDHWC", "NCDHW")}


def _layout(data_format: str | None, spatial: int) -> str:
    """Return the full name of a layout.

    Raises: InvalidArgumentError: no layout with this number of axes has this name.
    """
    last, first = _LAYOUTS[spatial]
    if data_format is None or data_format in (last, "channels_last"):
        return last
    if data_format in (first, "channels_first"):
        return first
    raise errors.InvalidArgumentError(
        f"data_format must be {last!r} or {first!r}, got {data_format!r}"
    )


# --------------------------------------------------------------------------- one axis


def conv1d(
    value: Any = None,
    filters: Any = None,
    stride: Any = None,
    padding: Any = None,
    use_cudnn_on_gpu: bool | None = None,
    data_format: str | None = None,
    name: str | None = None,
    input: Any = None,
    dilations: Any = None,
) -> Output:
    """Compute a 1-D convolution (cross-correlation).

    Args:
      value: floating, shape (N, W, C) or (N, C, W); also `input`.
      filters: same dtype, shape (K, C, O).
      stride, dilations: a number, or three of them.
      padding: "SAME" or "VALID".
      data_format: "NWC" (the default) or "NCW".
    Returns: shape (N, W', O) in the layout of `value`.
    Raises: InvalidArgumentError: depths differ, or the window is too large.

    Examples:
      >>> wf.nn.conv1d(wf.zeros([1, 8, 3]), wf.zeros([3, 3, 4]), 1, "SAME").shape
      TensorShape([Dimension(1), Dimension(8), Dimension(4)])
    """
    value = input if value is None else value
    wide, axis = _layout_2d(data_format)
    with scope(name, "conv1d") as full:
        value = shapes.expand_dims(convert_to_tensor(value), axis)
        filters = shapes.expand_dims(convert_to_tensor(filters), 0)
        result = conv.conv2d(
            value,
            filters,
            _strides_2d(stride, wide),
            padding,
            data_format=wide,
            dilations=_strides_2d(dilations, wide),
        )
        return shapes.squeeze(result, [axis], name=full)


def _layout_2d(data_format: str | None) -> tuple[str, int]:
    """Return the 2-D layout for a 1-D layout, and the axis to insert."""
    return ("NHWC", 1) if _layout(data_format, 1) == "NWC" else ("NCHW", 2)


def _strides_2d(value: Any, wide: str) -> list[int]:
    """Return the strides of a 2-D layout for strides along one axis."""
    entries = expand(value, "stride", 1, "NWC" if wide == "NHWC" else "NCW")
    step = entries[1] if wide == "NHWC" else entries[2]
    return [1, 1, step, 1] if wide == "NHWC" else [1, 1, 1, step]


def conv1d_transpose(
    input: Any,
    filters: Any,
    output_shape: Any,
    strides: Any,
    padding: Any = "SAME",
    data_format: str | None = "NWC",
    dilations: Any = None,
    name: str | None = None,
) -> Output:
    """Return the transpose of `conv1d`.

    Args:
      input: floating, shape (N, W, C) or (N, C, W).
      filters: same dtype, shape (K, O, C).
      output_shape: int32, shape (3,).
      strides, padding, data_format, dilations: as for `conv1d`.
    Returns: shape `output_shape`.
    Raises: InvalidArgumentError: the shapes do not match.

    Examples:
      >>> wf.nn.conv1d_transpose(wf.ones([1, 3, 2]), wf.ones([2, 4, 2]), [1, 6, 4], strides=2).shape
      TensorShape([Dimension(1), Dimension(6), Dimension(4)])
    """
    wide, axis = _layout_2d(data_format)
    with scope(name, "conv1d_transpose") as full:
        value = shapes.expand_dims(convert_to_tensor(input), axis)
        filters = shapes.expand_dims(convert_to_tensor(filters), 0)
        if isinstance(output_shape, list | tuple):
            sizes: Any = [*output_shape[:axis], 1, *output_shape[axis:]]
        else:
            output_sizes = convert_to_tensor(output_shape)
            sizes = out("ConcatV2", [[output_sizes[:axis], [1], output_sizes[axis:]], 0])
        result = conv2d_transpose(
            value,
            filters,
            sizes,
            _strides_2d(strides, wide),
            padding,
            data_format=wide,
            dilations=_strides_2d(dilations, wide),
        )
        return shapes.squeeze(result, [axis], name=full)


# --------------------------------------------------------------------------- two axes


def conv2d_transpose(
    value: Any = None,
    filter: Any = None,
    output_shape: Any = None,
    strides: Any = None,
    padding: Any = "SAME",
    data_format: str | None = "NHWC",
    name: str | None = None,
    input: Any = None,
    filters: Any = None,
    dilations: Any = None,
) -> Output:
    """Return the transpose of `conv2d`, also called deconvolution.

    Args:
      value: floating, shape (N, H, W, C) or (N, C, H, W); also `input`.
      filter: same dtype, shape (KH, KW, O, C); also `filters`.
      output_shape: int32, shape (4,).
      strides, padding, data_format, dilations: as for `conv2d`.
    Returns: shape `output_shape`.
    Raises: InvalidArgumentError: the shapes do not match.
    Source: Zeiler et al. 2010, Deconvolutional Networks.

    Examples:
      >>> image = wf.ones([1, 3, 3, 2])
      >>> wf.nn.conv2d_transpose(image, wf.ones([2, 2, 4, 2]), [1, 6, 6, 4], strides=2).shape
      TensorShape([Dimension(1), Dimension(6), Dimension(6), Dimension(4)])
    """
    value = convert_to_tensor(input if value is None else value)
    kernel = convert_to_tensor(filters if filter is None else filter, preferred_dtype=value.dtype)
    return conv.conv2d_backprop_input(
        shapes.shape_vector(output_shape),
        kernel,
        value,
        strides,
        padding,
        data_format=_layout(data_format, 2),
        dilations=dilations,
        name=name or "conv2d_transpose",
    )


def atrous_conv2d(
    value: Any, filters: Any, rate: int, padding: Any, name: str | None = None
) -> Output:
    """Compute `conv2d` with stride 1 and `rate - 1` skipped positions between taps.

    Args:
      value: floating, shape (N, H, W, C).
      filters: same dtype, shape (KH, KW, C, O).
      rate: distance between taps.
      padding: "SAME" or "VALID".
    Returns: shape (N, H', W', O).
    Raises: InvalidArgumentError: depths differ, or the window is too large.

    Examples:
      >>> wf.nn.atrous_conv2d(wf.zeros([1, 9, 9, 2]), wf.zeros([3, 3, 2, 4]), 2, "VALID").shape
      TensorShape([Dimension(1), Dimension(5), Dimension(5), Dimension(4)])
    """
    return conv.conv2d(value, filters, 1, padding, dilations=rate, name=name or "atrous_conv2d")


def atrous_conv2d_transpose(
    value: Any,
    filters: Any,
    output_shape: Any,
    rate: int,
    padding: Any,
    name: str | None = None,
) -> Output:
    """Return the transpose of `atrous_conv2d`.

    Args:
      value: floating, shape (N, H, W, C).
      filters: same dtype, shape (KH, KW, O, C).
      output_shape: int32, shape (4,).
      rate, padding: as for `atrous_conv2d`.
    Returns: shape `output_shape`.
    Raises: InvalidArgumentError: the shapes do not match.

    Examples:
      >>> kernel = wf.ones([2, 2, 1, 1])
      >>> small = wf.nn.atrous_conv2d(wf.ones([1, 5, 5, 1]), kernel, 2, "VALID")
      >>> wf.nn.atrous_conv2d_transpose(small, kernel, [1, 5, 5, 1], 2, "VALID").shape
      TensorShape([Dimension(1), Dimension(5), Dimension(5), Dimension(1)])
    """
    return conv2d_transpose(
        value, filters, output_shape, 1, padding, dilations=rate, name=name or "atrous_transpose"
    )


def depthwise_conv2d(
    input: Any,
    filter: Any = None,
    strides: Any = None,
    padding: Any = None,
    rate: Any = None,
    name: str | None = None,
    data_format: str | None = None,
    dilations: Any = None,
) -> Output:
    """Compute the 2-D convolution of each channel with separate filters.

    Args:
      input: floating, shape (N, H, W, C) or (N, C, H, W).
      filter: same dtype, shape (KH, KW, C, M).
      strides, padding: as for `conv2d`.
      rate: dilation of height and width; also `dilations`.
      data_format: "NHWC" or "NCHW".
    Returns: shape (N, H', W', C * M) in the layout of `input`.
    Raises: InvalidArgumentError: depths differ, or the window is too large.

    Examples:
      >>> image = wf.ones([1, 3, 3, 2])
      >>> wf.nn.depthwise_conv2d(image, wf.ones([2, 2, 2, 3]), [1, 1, 1, 1], "VALID").shape
      TensorShape([Dimension(1), Dimension(2), Dimension(2), Dimension(6)])
    """
    return conv.depthwise_conv2d_native(
        input,
        filter,
        strides,
        padding,
        _layout(data_format, 2),
        rate if dilations is None else dilations,
        name or "depthwise",
    )


def separable_conv2d(
    input: Any,
    depthwise_filter: Any,
    pointwise_filter: Any,
    strides: Any,
    padding: Any,
    rate: Any = None,
    name: str | None = None,
    data_format: str | None = None,
    dilations: Any = None,
) -> Output:
    """Compute a depthwise convolution followed by a pointwise one.

    Args:
      input: floating, shape (N, H, W, C) or (N, C, H, W).
      depthwise_filter: same dtype, shape (KH, KW, C, M).
      pointwise_filter: same dtype, shape (1, 1, C * M, O).
      strides, padding, rate, data_format: as for `depthwise_conv2d`.
    Returns: shape (N, H', W', O) in the layout of `input`.
    Raises: InvalidArgumentError: depths differ, or the window is too large.

    Examples:
      >>> image = wf.zeros([1, 5, 5, 2])
      >>> each, mixing = wf.zeros([2, 2, 2, 3]), wf.zeros([1, 1, 6, 4])
      >>> wf.nn.separable_conv2d(image, each, mixing, [1] * 4, "SAME").shape
      TensorShape([Dimension(1), Dimension(5), Dimension(5), Dimension(4)])
    """
    pointwise = convert_to_tensor(pointwise_filter)
    if pointwise.dims is not None and (len(pointwise.dims) != 4 or pointwise.dims[:2] != (1, 1)):
        raise errors.InvalidArgumentError(
            f"separable_conv2d requires a pointwise_filter of shape [1,1,?,?], "
            f"got {format_dims(pointwise.dims)}"
        )
    with scope(name, "separable_conv2d") as full:
        middle = depthwise_conv2d(
            input, depthwise_filter, strides, padding, rate, None, data_format, dilations
        )
        data_format = _layout(data_format, 2)
        return conv.conv2d(middle, pointwise, 1, "VALID", data_format=data_format, name=full)


# ---------------------------------------------------------------------- any number of axes


def convolution(
    input: Any,
    filter: Any = None,
    padding: Any = None,
    strides: Any = None,
    dilation_rate: Any = None,
    name: str | None = None,
    data_format: str | None = None,
    filters: Any = None,
    dilations: Any = None,
) -> Output:
    """Compute the convolution over one, two or three spatial axes.

    Args:
      input: floating, shape (N, S..., C), or (N, C, S...) for a `data_format` of that form.
      filter: same dtype, shape (K..., C, O); also `filters`.
      padding: "SAME" or "VALID".
      strides, dilation_rate: one number, or one per spatial axis.
      data_format: "NWC", "NCW", "NHWC", "NCHW", "NDHWC" or "NCDHW".
    Returns: shape (N, S'..., O) in the layout of `input`.
    Raises: InvalidArgumentError: depths or ranks differ, or the window is too large.

    Examples:
      >>> wf.nn.convolution(wf.zeros([1, 8, 3]), wf.zeros([3, 3, 4]), "SAME").shape
      TensorShape([Dimension(1), Dimension(8), Dimension(4)])
    """
    value = convert_to_tensor(input)
    kernel = convert_to_tensor(filters if filter is None else filter, preferred_dtype=value.dtype)
    rate = dilation_rate if dilations is None else dilations
    spatial = _spatial_rank(value.dims, kernel.dims, data_format)
    full_format = _layout(data_format, spatial)
    if spatial == 1:
        return conv1d(
            value,
            kernel,
            _to_scalar(strides),
            padding,
            data_format=full_format,
            name=name or "convolution",
            dilations=_to_scalar(rate),
        )
    function: Callable[..., Output] = conv.conv2d if spatial == 2 else conv.conv3d
    return function(
        value,
        kernel,
        strides,
        padding,
        data_format=full_format,
        dilations=rate,
        name=name or "convolution",
    )


def _to_scalar(value: Any) -> Any:
    return value[0] if isinstance(value, list | tuple) and len(value) == 1 else value


def _spatial_rank(x: Dims, kernel: Dims, data_format: str | None) -> int:
    ranks = [len(dims) - 2 for dims in (x, kernel) if dims is not None]
    if data_format is not None and data_format.startswith("N"):
        ranks.append(len(data_format) - 2)
    if not ranks or min(ranks) != max(ranks) or ranks[0] not in _LAYOUTS:
        raise errors.InvalidArgumentError(
            "convolution requires input, filter and data_format of the same rank from 3 to "
            "5, got "
            f"{format_dims(x)}, {format_dims(kernel)} and {data_format!r}"
        )
    return ranks[0]


def pool(
    input: Any,
    window_shape: Sequence[int],
    pooling_type: str,
    padding: str,
    dilation_rate: Any = None,
    strides: Any = None,
    name: str | None = None,
    data_format: str | None = None,
    dilations: Any = None,
) -> Output:
    """Compute pooling over one, two or three spatial axes.

    Args:
      input: floating, shape (N, S..., C), or (N, C, S...) for a `data_format` of that form.
      window_shape: one size per spatial axis.
      pooling_type: "MAX" or "AVG".
      padding: "SAME" or "VALID".
      dilation_rate: distance between taps, implemented by moving space to the batch; 1 by default.
      strides: 1 by default.
      data_format: as for `convolution`.
    Raises: InvalidArgumentError: the pooling type is unknown, ranks do not match, or strides and
      dilation are combined.

    Examples:
      >>> wf.nn.pool(wf.zeros([1, 8, 3]), [2], "MAX", "VALID", strides=[2]).shape
      TensorShape([Dimension(1), Dimension(4), Dimension(3)])
    """
    spatial = len(window_shape)
    value = convert_to_tensor(input)
    full_format = _layout(data_format, spatial)
    rates = _rates(dilation_rate if dilations is None else dilations, spatial)
    steps = list(strides) if isinstance(strides, list | tuple) else [strides or 1] * spatial
    functions = {"MAX": max_pool_of_rank, "AVG": avg_pool_of_rank}
    if pooling_type not in functions:
        raise errors.InvalidArgumentError(
            f"pooling_type must be 'MAX' or 'AVG', got {pooling_type!r}"
        )
    function = functions[pooling_type]
    with scope(name, pooling_type.lower() + "_pool") as full:
        if max(rates) == 1:
            return function(value, list(window_shape), steps, padding, full_format, full)
        return _dilated_pool(
            function, value, list(window_shape), steps, padding, full_format, rates
        )


def _rates(value: Any, spatial: int) -> list[int]:
    return list(value) if isinstance(value, list | tuple) else [value or 1] * spatial


def _dilated_pool(
    function: Callable[..., Output],
    value: Output,
    window: list[int],
    steps: list[int],
    padding: str,
    data_format: str,
    rates: list[int],
) -> Output:
    if max(steps) > 1:
        raise errors.InvalidArgumentError(
            f"strides above 1 and dilation above 1 cannot be combined, got {steps} and {rates}"
        )
    if channel_axis(data_format) == 1:
        raise errors.UnimplementedError("a dilated pool requires channels in the last axis")
    if value.dims is None or any(value.dims[a] is None for a in spatial_axes(data_format)):
        raise errors.InvalidArgumentError(
            f"a dilated pool requires known spatial sizes, got {format_dims(value.dims)}"
        )
    sizes = [value.dims[axis] or 0 for axis in spatial_axes(data_format)]
    pads, crops = [], []
    for size, k, rate in zip(sizes, window, rates, strict=True):
        reach = (k - 1) * rate if padding.upper() == "SAME" else 0
        low = reach // 2
        extra = -(size + reach) % rate
        pads.append([low, reach - low + extra])
        crops.append([0, extra])
    grouped = space_to_batch.space_to_batch_nd(value, rates, pads)
    pooled = function(grouped, window, steps, "VALID", data_format, None)
    return space_to_batch.batch_to_space_nd(pooled, rates, crops)


def max_pool_of_rank(
    value: Any, ksize: Any, strides: Any, padding: str, data_format: str, name: str | None
) -> Output:
    """Compute max pooling in any layout of one, two or three spatial axes."""
    return _dispatch_on_rank(
        pools.max_pool, pools.max_pool3d, value, ksize, strides, padding, data_format, name
    )


def avg_pool_of_rank(
    value: Any, ksize: Any, strides: Any, padding: str, data_format: str, name: str | None
) -> Output:
    """Compute average pooling in any layout of one, two or three spatial axes."""
    return _dispatch_on_rank(
        pools.avg_pool, pools.avg_pool3d, value, ksize, strides, padding, data_format, name
    )


def _dispatch_on_rank(
    plane: Callable[..., Output],
    volume: Callable[..., Output],
    value: Any,
    ksize: Any,
    strides: Any,
    padding: str,
    data_format: str,
    name: str | None,
) -> Output:
    if len(data_format) == 5:
        return volume(value, ksize, strides, padding, data_format, name)
    if len(data_format) == 4:
        return plane(value, ksize, strides, padding, data_format, name)
    wide, axis = _layout_2d(data_format)
    value = shapes.expand_dims(convert_to_tensor(value), axis)
    result = plane(value, _strides_2d(ksize, wide), _strides_2d(strides, wide), padding, wide)
    return shapes.squeeze(result, [axis], name=name)


def max_pool1d(
    input: Any,
    ksize: Any,
    strides: Any,
    padding: str,
    data_format: str = "NWC",
    name: str | None = None,
) -> Output:
    """Return the maximum of each window along one axis.

    Args:
      input: real, shape (N, W, C) or (N, C, W).
      ksize, strides: one number, or three.
      padding: "SAME" or "VALID".
      data_format: "NWC" or "NCW".
    Returns: shape (N, W', C) in the layout of `input`.
    Raises: InvalidArgumentError: the window is too large.

    Examples:
      >>> signal = wf.constant([[[1.0], [3.0], [5.0], [7.0]]])
      >>> wf.Session().run(wf.nn.max_pool1d(signal, 2, 2, "VALID"))[0, :, 0]
      array([3., 7.], dtype=float32)
    """
    return max_pool_of_rank(input, ksize, strides, padding, _layout(data_format, 1), name)


def avg_pool1d(
    input: Any,
    ksize: Any,
    strides: Any,
    padding: str,
    data_format: str = "NWC",
    name: str | None = None,
) -> Output:
    """Return the mean of each window along one axis.

    Args:
      input: floating, shape (N, W, C) or (N, C, W).
      ksize, strides, padding, data_format: as for `max_pool1d`.
    Returns: shape (N, W', C) in the layout of `input`.
    Raises: InvalidArgumentError: the window is too large.

    Examples:
      >>> signal = wf.constant([[[1.0], [3.0], [5.0], [7.0]]])
      >>> wf.Session().run(wf.nn.avg_pool1d(signal, 2, 2, "VALID"))[0, :, 0]
      array([2., 6.], dtype=float32)
    """
    return avg_pool_of_rank(input, ksize, strides, padding, _layout(data_format, 1), name)


def max_pool_v2(
    input: Any,
    ksize: Any,
    strides: Any,
    padding: str,
    data_format: str | None = None,
    name: str | None = None,
) -> Output:
    """Return the maximum of each window over all spatial axes of `input`.

    Args:
      input: real, shape (N, ..., C) or (N, C, ...), rank 3 to 5.
      ksize, strides: one number, one per spatial axis, or one per axis of `input`.
      padding: "SAME" or "VALID".
      data_format: such as "NHWC" or "NCHW"; channels last by default.
    Returns: the layout of `input`.
    Raises: InvalidArgumentError: the rank is wrong, or the window is too large.

    Examples:
      >>> signal = wf.constant([[[1.0], [3.0], [5.0], [7.0]]])
      >>> wf.Session().run(wf.nn.max_pool_v2(signal, 2, 2, "VALID"))[0, :, 0]
      array([3., 7.], dtype=float32)
    """
    full = _format_of(input, data_format)
    return max_pool_of_rank(input, ksize, strides, padding, full, name)


def avg_pool_v2(
    input: Any,
    ksize: Any,
    strides: Any,
    padding: str,
    data_format: str | None = None,
    name: str | None = None,
) -> Output:
    """Return the mean of each window over all spatial axes of `input`.

    Args:
      input: floating, shape (N, ..., C) or (N, C, ...), rank 3 to 5.
      ksize, strides, padding, data_format: as for `max_pool_v2`.
    Returns: the layout of `input`.
    Raises: InvalidArgumentError: the rank is wrong, or the window is too large.

    Examples:
      >>> signal = wf.constant([[[1.0], [3.0], [5.0], [7.0]]])
      >>> wf.Session().run(wf.nn.avg_pool_v2(signal, 2, 2, "VALID"))[0, :, 0]
      array([2., 6.], dtype=float32)
    """
    full = _format_of(input, data_format)
    return avg_pool_of_rank(input, ksize, strides, padding, full, name)


def _format_of(value: Any, data_format: str | None) -> str:
    if data_format is not None and data_format.startswith("N"):
        return _layout(data_format, len(data_format) - 2)
    dims = convert_to_tensor(value).dims
    if dims is None or len(dims) - 2 not in _LAYOUTS:
        raise errors.InvalidArgumentError(
            f"a pool requires an input of rank 3 to 5, got {format_dims(dims)}"
        )
    return _layout(data_format, len(dims) - 2)
