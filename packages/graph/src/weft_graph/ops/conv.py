"""Convolutions and their gradients: declarations and single-node functions."""

from __future__ import annotations

__all__ = [
    "conv2d",
    "conv2d_backprop_filter",
    "conv2d_backprop_input",
    "conv3d",
    "conv3d_backprop_filter",
    "conv3d_backprop_filter_v2",
    "conv3d_transpose",
    "depthwise_conv2d_backprop_filter",
    "depthwise_conv2d_backprop_input",
    "depthwise_conv2d_native",
    "depthwise_conv2d_native_backprop_filter",
    "depthwise_conv2d_native_backprop_input",
]

from collections.abc import Sequence
from typing import Any

import numpy as np

from weft_graph.ir.builder import convert_to_tensor, out
from weft_graph.ir.node import Output
from weft_graph.ir.op_def import NodeSpec, register_op
from weft_graph.ir.traits import Traits
from weft_graph.ops import cost_rules
from weft_graph.ops.shape_rules import vector_as_dims
from weft_graph.ops.windows import (
    channel_axis,
    check_attrs,
    check_padding,
    require_rank,
    slide_dims,
    spatial_axes,
)
from weft_tensor import errors
from weft_tensor.arguments import check_whole_number
from weft_tensor.shape import Dims, format_dims, merge_dims

_T = "{float16, bfloat16, float32, float64}"

# ------------------------------------------------------------------------- shape rules


def forward_shape(op: str, node: NodeSpec, x: Dims, filters: Dims, depthwise: bool) -> Dims:
    """Return the output shape of a convolution, and check all static facts."""
    attrs = node.attrs
    data_format: str = attrs["data_format"]
    rank = len(data_format)
    check_attrs(op, attrs, data_format, ("strides", "dilations"))
    pads = check_padding(op, attrs, data_format)
    x = require_rank(op, "input", x, rank)
    filters = require_rank(op, "filter", filters, rank)
    channel, axes = channel_axis(data_format), spatial_axes(data_format)
    if x[channel] is not None and filters[-2] is not None and x[channel] != filters[-2]:
        raise errors.InvalidArgumentError(
            f"{op} requires input depth {x[channel]} to equal filter depth {filters[-2]}, "
            f"got input {format_dims(x)} in {data_format} and filter {format_dims(filters)}"
        )
    counts = slide_dims(
        [x[axis] for axis in axes],
        filters[:-2],
        [attrs["strides"][axis] for axis in axes],
        [attrs["dilations"][axis] for axis in axes],
        attrs["padding"],
        [pads[axis] for axis in axes],
    )
    depth = filters[-1]
    if depthwise:
        inputs = x[channel] if filters[-2] is None else filters[-2]
        depth = None if depth is None or inputs is None else depth * inputs
    result: list[int | None] = [None] * rank
    result[0], result[channel] = x[0], depth
    for axis, count in zip(axes, counts, strict=True):
        result[axis] = count
    return tuple(result)


def _conv_rule(op: str, depthwise: bool = False) -> Any:
    def rule(node: NodeSpec) -> Sequence[Dims]:
        x, filters = node.inputs
        return (forward_shape(op, node, x.dims, filters.dims, depthwise),)

    return rule


def _input_rule(op: str, depthwise: bool = False) -> Any:
    """Shape rule of input gradients: (input_sizes, filter, out_backprop) to the input's shape."""
    rank = 5 if "3D" in op else 4

    def rule(node: NodeSpec) -> Sequence[Dims]:
        sizes, filters, grad = node.inputs
        dims = require_rank(
            op, "input_sizes for a shape", vector_as_dims(sizes, "input_sizes"), rank
        )
        return (_check_backprop_shapes(op, node, dims, filters.dims, grad.dims, depthwise)[0],)

    return rule


def _filter_rule(op: str, depthwise: bool = False) -> Any:
    """Shape rule of filter gradients: (input, filter_sizes, out_backprop) to the filter's shape."""
    rank = 5 if "3D" in op else 4

    def rule(node: NodeSpec) -> Sequence[Dims]:
        x, sizes, grad = node.inputs
        dims = require_rank(
            op, "filter_sizes for a shape", vector_as_dims(sizes, "filter_sizes"), rank
        )
        return (_check_backprop_shapes(op, node, x.dims, dims, grad.dims, depthwise)[1],)

    return rule


def _check_backprop_shapes(
    op: str, node: NodeSpec, x: Dims, filters: Dims, grad: Dims, depthwise: bool
) -> tuple[Dims, Dims]:
    """Return the shapes of input and filter after checking them against the gradient's shape."""
    expected = forward_shape(op, node, x, filters, depthwise)
    assert expected is not None
    try:
        merge_dims(expected, grad)
    except errors.InvalidArgumentError:
        raise errors.InvalidArgumentError(
            f"{op} requires out_backprop of shape {format_dims(expected)} for input "
            f"{format_dims(x)} and filter {format_dims(filters)}, got {format_dims(grad)}"
        ) from None
    channel = channel_axis(node.attrs["data_format"])
    rank = len(expected)
    inputs = list(require_rank(op, "input", x, rank))
    kernel = list(require_rank(op, "filter", filters, rank))
    if grad is not None:
        inputs[0] = grad[0] if inputs[0] is None else inputs[0]
        if kernel[-1] is None and not depthwise:
            kernel[-1] = grad[channel]
    inputs[channel] = kernel[-2] if inputs[channel] is None else inputs[channel]
    kernel[-2] = inputs[channel] if kernel[-2] is None else kernel[-2]
    return tuple(inputs), tuple(kernel)


# ------------------------------------------------------------------------ declarations

_CONV2D = {
    "T": _T,
    "strides": "list(int)",
    "use_cudnn_on_gpu": "bool = true",
    "padding": "{'SAME', 'VALID', 'EXPLICIT'}",
    "explicit_paddings": "list(int) = []",
    "data_format": "{'NHWC', 'NCHW'} = 'NHWC'",
    "dilations": "list(int) = [1, 1, 1, 1]",
}
_DEPTHWISE = {key: _CONV2D[key] for key in _CONV2D if key != "use_cudnn_on_gpu"}
WINDOWS = {key: _DEPTHWISE[key] for key in _DEPTHWISE if key != "T"}
"""Attributes that determine the windows of images."""

_CONV3D = {
    "T": _T,
    "strides": "list(int) >= 5",
    "padding": "{'SAME', 'VALID'}",
    "data_format": "{'NDHWC', 'NCDHW'} = 'NDHWC'",
    "dilations": "list(int) = [1, 1, 1, 1, 1]",
}


def convolution_traits(
    kernel: int | None, positions: int | None, depthwise: bool, differentiable: bool = True
) -> Traits:
    """Return the traits of a convolution: its cost and scratch memory."""
    return Traits(
        cost=cost_rules.convolution(kernel, positions, depthwise),
        cost_attrs=("strides", "padding", "dilations", "data_format"),
        scratch=cost_rules.columns(kernel),
        differentiable=differentiable,
    )


def _declare(prefix: str, suffix: str, attrs: dict[str, str], depthwise: bool = False) -> None:
    forward = f"{prefix}{'Native' if depthwise else ''}"
    register_op(
        forward,
        ("input: T", "filter: T"),
        ("output: T",),
        attrs,
        _conv_rule(forward, depthwise),
        traits=convolution_traits(1, None, depthwise),
        doc="Cross-correlation of `input` with `filter`.",
    )
    index = attrs | ({"Tshape": "{int32, int64} = int32"} if "3D" in prefix else {})
    sizes = "Tshape" if "3D" in prefix else "int32"
    name = f"{forward}BackpropInput{suffix}"
    register_op(
        name,
        (f"input_sizes: {sizes}", "filter: T", "out_backprop: T"),
        ("output: T",),
        index,
        _input_rule(name, depthwise),
        traits=convolution_traits(1, 2, depthwise),
        doc="Gradient of a convolution with respect to its input.",
    )
    name = f"{forward}BackpropFilter{suffix}"
    register_op(
        name,
        ("input: T", "filter_sizes: int32", "out_backprop: T"),
        ("output: T",),
        attrs,
        _filter_rule(name, depthwise),
        traits=convolution_traits(None, 2, depthwise),
        doc="Gradient of a convolution with respect to its filter.",
    )


_declare("Conv2D", "", _CONV2D)
_declare("DepthwiseConv2d", "", _DEPTHWISE, depthwise=True)
_declare("Conv3D", "V2", _CONV3D)

# --------------------------------------------------------------------- argument forms


def expand(value: Any, name: str, spatial: int, data_format: str) -> list[int]:
    """Return strides or dilations in full form.

    Args:
      value: one number, one per spatial axis, or one per axis of the input.
      name: name of the argument, for messages.
      spatial: number of spatial axes.
      data_format: "NHWC" or another layout.
    Raises: InvalidArgumentError: the number of entries is wrong; InvalidTypeError: they are not
      integers.
    """
    if value is None:
        value = 1
    is_sequence = isinstance(value, list | tuple | np.ndarray) and np.ndim(value) > 0
    entries = [check_whole_number(entry, name) for entry in (value if is_sequence else [value])]
    if len(entries) == spatial + 2:
        return entries
    if len(entries) == 1:
        entries = entries * spatial
    if len(entries) != spatial:
        raise errors.InvalidArgumentError(
            f"{name} requires 1, {spatial} or {spatial + 2} numbers, got {list(entries)}"
        )
    channel = channel_axis(data_format)
    return [1, 1, *entries] if channel == 1 else [1, *entries, 1]


def padding_attrs(padding: Any, data_format: str) -> dict[str, Any]:
    """Return the attributes `padding` and `explicit_paddings` for a padding argument.

    Args:
      padding: "SAME" or "VALID" in upper or lower case, or a list of [before, after], one per axis.
      data_format: "NHWC" or another layout.
    Raises: InvalidArgumentError: it is not one of these.
    """
    if isinstance(padding, bytes):
        padding = padding.decode()
    if isinstance(padding, str):
        return {"padding": padding.upper()}
    if not isinstance(padding, list | tuple) or len(padding) != len(data_format):
        raise errors.InvalidArgumentError(
            f"padding must be 'SAME', 'VALID' or {len(data_format)} pairs [before, after], "
            f"got {padding!r}"
        )
    flat = [check_whole_number(size, "padding") for pair in padding for size in pair]
    if not any(flat):
        return {"padding": "VALID"}
    return {"padding": "EXPLICIT", "explicit_paddings": flat}


def _attrs(
    strides: Any, padding: Any, data_format: str | None, dilations: Any, spatial: int = 2
) -> dict[str, Any]:
    data_format = data_format or ("NHWC" if spatial == 2 else "NDHWC")
    return {
        "strides": expand(strides, "strides", spatial, data_format),
        "data_format": data_format,
        "dilations": expand(dilations, "dilations", spatial, data_format),
        **padding_attrs(padding, data_format),
    }


# ------------------------------------------------------------------------- functions


def conv2d(
    input: Any,
    filter: Any = None,
    strides: Any = None,
    padding: Any = None,
    use_cudnn_on_gpu: bool = True,
    data_format: str | None = "NHWC",
    dilations: Any = (1, 1, 1, 1),
    name: str | None = None,
    filters: Any = None,
) -> Output:
    """Compute a 2-D convolution (cross-correlation).

    Args:
      input: floating, shape (N, H, W, C) or (N, C, H, W).
      filter: same dtype, shape (KH, KW, C, O); also `filters`.
      strides: one number, (SH, SW), or one per axis of `input`.
      padding: "SAME", "VALID", or [before, after] per axis of `input`.
      use_cudnn_on_gpu: accepted and stored as an attribute; no effect.
      data_format: "NHWC" or "NCHW".
      dilations: in the same form as `strides`.
    Returns: shape (N, H', W', O) in the layout of `input`.
    Raises: InvalidArgumentError: depths differ, or the window is too large.

    Examples:
      >>> image = wf.ones([1, 3, 3, 1])
      >>> kernel = wf.ones([2, 2, 1, 1])
      >>> wf.Session().run(wf.nn.conv2d(image, kernel, strides=1, padding="VALID"))[0, :, :, 0]
      array([[4., 4.],
             [4., 4.]], dtype=float32)
    """
    attrs = _attrs(strides, padding, data_format, dilations)
    attrs["use_cudnn_on_gpu"] = use_cudnn_on_gpu
    return out("Conv2D", [input, filters if filter is None else filter], attrs, name)


def conv2d_backprop_input(
    input_sizes: Any,
    filter: Any = None,
    out_backprop: Any = None,
    strides: Any = None,
    padding: Any = None,
    use_cudnn_on_gpu: bool = True,
    data_format: str | None = "NHWC",
    dilations: Any = (1, 1, 1, 1),
    name: str | None = None,
    filters: Any = None,
) -> Output:
    """Return the gradient of `conv2d` with respect to its input.

    Args:
      input_sizes: int32, shape (4,): the shape of the input.
      filter: floating, shape (KH, KW, C, O); also `filters`.
      out_backprop: same dtype, the shape of the convolution's output.
      strides, padding, use_cudnn_on_gpu, data_format, dilations: those of the convolution.
    Returns: shape `input_sizes`.
    Raises: InvalidArgumentError: the shapes do not match.

    Examples:
      >>> kernel, slope = wf.ones([2, 2, 1, 1]), wf.ones([1, 2, 2, 1])
      >>> grad = wf.nn.conv2d_backprop_input([1, 3, 3, 1], kernel, slope, 1, "VALID")
      >>> wf.Session().run(grad)[0, :, :, 0]
      array([[1., 2., 1.],
             [2., 4., 2.],
             [1., 2., 1.]], dtype=float32)
    """
    attrs = _attrs(strides, padding, data_format, dilations)
    attrs["use_cudnn_on_gpu"] = use_cudnn_on_gpu
    filter = filters if filter is None else filter
    return out("Conv2DBackpropInput", [input_sizes, filter, out_backprop], attrs, name)


def conv2d_backprop_input_v2(
    input: Any,
    filter: Any,
    out_backprop: Any,
    strides: Any,
    padding: Any,
    use_cudnn_on_gpu: bool = True,
    explicit_paddings: Sequence[int] = (),
    data_format: str = "NHWC",
    dilations: Any = (1, 1, 1, 1),
    name: str | None = None,
) -> Output:
    """Compute `nn.conv2d_backprop_input` with the input instead of its shape.

    Args:
      input: floating, shape (N, H, W, C) or (N, C, H, W); only its shape is used.
      explicit_paddings: 8 integers, if `padding` is "EXPLICIT".
      filter, out_backprop, strides, padding, use_cudnn_on_gpu, data_format, dilations: as in
        `conv2d_backprop_input`.
    Returns: the shape of `input`.

    Examples:
      >>> kernel, slope = wf.ones([2, 2, 1, 1]), wf.ones([1, 2, 2, 1])
      >>> grad = wf.conv2d_backprop_input_v2(wf.zeros([1, 3, 3, 1]), kernel, slope, 1, "VALID")
      >>> wf.Session().run(grad)[0, 1, :, 0]
      array([2., 4., 2.], dtype=float32)
    """
    return conv2d_backprop_input(
        out("Shape", [input]),
        filter,
        out_backprop,
        strides,
        _padding_of(padding, explicit_paddings),
        use_cudnn_on_gpu,
        data_format,
        dilations,
        name,
    )


def conv2d_backprop_filter_v2(
    input: Any,
    filter: Any,
    out_backprop: Any,
    strides: Any,
    padding: Any,
    use_cudnn_on_gpu: bool = True,
    explicit_paddings: Sequence[int] = (),
    data_format: str = "NHWC",
    dilations: Any = (1, 1, 1, 1),
    name: str | None = None,
) -> Output:
    """Compute `nn.conv2d_backprop_filter` with the filter instead of its shape.

    Args:
      filter: floating, shape (KH, KW, C, O); only its shape is used.
      explicit_paddings: 8 integers, if `padding` is "EXPLICIT".
      input, out_backprop, strides, padding, use_cudnn_on_gpu, data_format, dilations: as in
        `conv2d_backprop_filter`.
    Returns: the shape of `filter`.

    Examples:
      >>> image, slope = wf.ones([1, 3, 3, 1]), wf.ones([1, 2, 2, 1])
      >>> grad = wf.conv2d_backprop_filter_v2(image, wf.zeros([2, 2, 1, 1]), slope, 1, "VALID")
      >>> wf.Session().run(grad)[0, :, 0, 0]
      array([4., 4.], dtype=float32)
    """
    return conv2d_backprop_filter(
        input,
        out("Shape", [filter]),
        out_backprop,
        strides,
        _padding_of(padding, explicit_paddings),
        use_cudnn_on_gpu,
        data_format,
        dilations,
        name,
    )


def _padding_of(padding: Any, explicit: Sequence[int]) -> Any:
    """Return a padding in the form of `conv2d`: for "EXPLICIT", a pair for each axis."""
    if padding != "EXPLICIT":
        return padding
    return [list(explicit[i : i + 2]) for i in range(0, len(explicit), 2)]


def conv2d_backprop_filter(
    input: Any,
    filter_sizes: Any,
    out_backprop: Any,
    strides: Any,
    padding: Any,
    use_cudnn_on_gpu: bool = True,
    data_format: str | None = "NHWC",
    dilations: Any = (1, 1, 1, 1),
    name: str | None = None,
) -> Output:
    """Return the gradient of `conv2d` with respect to its filter.

    Args:
      input: floating, shape (N, H, W, C) or (N, C, H, W).
      filter_sizes: int32, shape (4,): the shape of the filter.
      out_backprop: same dtype, the shape of the convolution's output.
      strides, padding, use_cudnn_on_gpu, data_format, dilations: those of the convolution.
    Returns: shape `filter_sizes`.
    Raises: InvalidArgumentError: the shapes do not match.

    Examples:
      >>> image, slope = wf.ones([1, 3, 3, 1]), wf.ones([1, 2, 2, 1])
      >>> grad = wf.nn.conv2d_backprop_filter(image, [2, 2, 1, 1], slope, 1, "VALID")
      >>> wf.Session().run(grad)[:, :, 0, 0]
      array([[4., 4.],
             [4., 4.]], dtype=float32)
    """
    attrs = _attrs(strides, padding, data_format, dilations)
    attrs["use_cudnn_on_gpu"] = use_cudnn_on_gpu
    return out("Conv2DBackpropFilter", [input, filter_sizes, out_backprop], attrs, name)


def depthwise_conv2d_native(
    input: Any,
    filter: Any,
    strides: Any,
    padding: Any,
    data_format: str | None = "NHWC",
    dilations: Any = (1, 1, 1, 1),
    name: str | None = None,
) -> Output:
    """Compute the 2-D convolution of each channel with separate filters.

    Args:
      input: floating, shape (N, H, W, C) or (N, C, H, W).
      filter: same dtype, shape (KH, KW, C, M).
      strides, padding, data_format, dilations: as for `conv2d`.
    Returns: shape (N, H', W', C * M) in the layout of `input`; output channel c * M + m is channel
      c with filter m.
    Raises: InvalidArgumentError: depths differ, or the window is too large.

    Examples:
      >>> image = wf.zeros([1, 5, 5, 2])
      >>> wf.nn.depthwise_conv2d_native(image, wf.zeros([2, 2, 2, 3]), [1] * 4, "SAME").shape
      TensorShape([Dimension(1), Dimension(5), Dimension(5), Dimension(6)])
    """
    attrs = _attrs(strides, padding, data_format, dilations)
    return out("DepthwiseConv2dNative", [input, filter], attrs, name)


def depthwise_conv2d_native_backprop_input(
    input_sizes: Any,
    filter: Any,
    out_backprop: Any,
    strides: Any,
    padding: Any,
    data_format: str | None = "NHWC",
    dilations: Any = (1, 1, 1, 1),
    name: str | None = None,
) -> Output:
    """Return the gradient of `depthwise_conv2d_native` with respect to its input.

    Args:
      input_sizes: int32, shape (4,): the shape of the input.
      filter: floating, shape (KH, KW, C, M).
      out_backprop: same dtype, the shape of the convolution's output.
      strides, padding, data_format, dilations: those of the convolution.
    Returns: shape `input_sizes`.
    Raises: InvalidArgumentError: the shapes do not match.

    Examples:
      >>> kernel, slope = wf.ones([2, 2, 1, 1]), wf.ones([1, 2, 2, 1])
      >>> backprop = wf.nn.depthwise_conv2d_backprop_input
      >>> grad = backprop([1, 3, 3, 1], kernel, slope, [1] * 4, "VALID")
      >>> wf.Session().run(grad)[0, :, :, 0]
      array([[1., 2., 1.],
             [2., 4., 2.],
             [1., 2., 1.]], dtype=float32)
    """
    attrs = _attrs(strides, padding, data_format, dilations)
    inputs = [input_sizes, filter, out_backprop]
    return out("DepthwiseConv2dNativeBackpropInput", inputs, attrs, name)


def depthwise_conv2d_native_backprop_filter(
    input: Any,
    filter_sizes: Any,
    out_backprop: Any,
    strides: Any,
    padding: Any,
    data_format: str | None = "NHWC",
    dilations: Any = (1, 1, 1, 1),
    name: str | None = None,
) -> Output:
    """Return the gradient of `depthwise_conv2d_native` with respect to its filter.

    Args:
      input: floating, shape (N, H, W, C) or (N, C, H, W).
      filter_sizes: int32, shape (4,): the shape of the filter.
      out_backprop: same dtype, the shape of the convolution's output.
      strides, padding, data_format, dilations: those of the convolution.
    Returns: shape `filter_sizes`.
    Raises: InvalidArgumentError: the shapes do not match.

    Examples:
      >>> image, slope = wf.ones([1, 3, 3, 1]), wf.ones([1, 2, 2, 1])
      >>> backprop = wf.nn.depthwise_conv2d_backprop_filter
      >>> grad = backprop(image, [2, 2, 1, 1], slope, [1] * 4, "VALID")
      >>> wf.Session().run(grad)[:, :, 0, 0]
      array([[4., 4.],
             [4., 4.]], dtype=float32)
    """
    attrs = _attrs(strides, padding, data_format, dilations)
    inputs = [input, filter_sizes, out_backprop]
    return out("DepthwiseConv2dNativeBackpropFilter", inputs, attrs, name)


def conv3d(
    input: Any,
    filter: Any = None,
    strides: Any = None,
    padding: Any = None,
    data_format: str | None = "NDHWC",
    dilations: Any = (1, 1, 1, 1, 1),
    name: str | None = None,
    filters: Any = None,
) -> Output:
    """Compute a 3-D convolution (cross-correlation).

    Args:
      input: floating, shape (N, D, H, W, C) or (N, C, D, H, W).
      filter: same dtype, shape (KD, KH, KW, C, O); also `filters`.
      strides, dilations: one number, one per spatial axis, or one per axis of `input`.
      padding: "SAME" or "VALID".
      data_format: "NDHWC" or "NCDHW".
    Returns: shape (N, D', H', W', O) in the layout of `input`.
    Raises: InvalidArgumentError: depths differ, or the window is too large.

    Examples:
      >>> wf.nn.conv3d(wf.zeros([1, 5, 5, 5, 2]), wf.zeros([3, 3, 3, 2, 4]), [1] * 5, "SAME").shape
      TensorShape([Dimension(1), Dimension(5), Dimension(5), Dimension(5), Dimension(4)])
    """
    attrs = _attrs(strides, padding, data_format, dilations, spatial=3)
    return out("Conv3D", [input, filters if filter is None else filter], attrs, name)


def conv3d_transpose(
    value: Any,
    filter: Any = None,
    output_shape: Any = None,
    strides: Any = None,
    padding: Any = "SAME",
    data_format: str | None = "NDHWC",
    name: str | None = None,
    input: Any = None,
    filters: Any = None,
    dilations: Any = None,
) -> Output:
    """Return the transpose of `conv3d`.

    Args:
      value: floating, shape (N, D, H, W, C); also `input`.
      filter: same dtype, shape (KD, KH, KW, O, C); also `filters`.
      output_shape: int32 or int64, shape (5,).
      strides, padding, data_format, dilations: as for `conv3d`.
    Returns: shape `output_shape`.
    Raises: InvalidArgumentError: the shapes do not match.

    Examples:
      >>> volume, kernel = wf.ones([1, 2, 2, 2, 3]), wf.ones([2, 2, 2, 4, 3])
      >>> wf.nn.conv3d_transpose(volume, kernel, [1, 4, 4, 4, 4], strides=2).shape
      TensorShape([Dimension(1), Dimension(4), Dimension(4), Dimension(4), Dimension(4)])
    """
    attrs = _attrs(strides, padding, data_format, dilations, spatial=3)
    filter = filters if filter is None else filter
    value = convert_to_tensor(input if value is None else value)
    inputs = [output_shape, filter, value]
    return out("Conv3DBackpropInputV2", inputs, attrs, name or "conv3d_transpose")


def conv3d_backprop_filter_v2(
    input: Any,
    filter_sizes: Any,
    out_backprop: Any,
    strides: Any,
    padding: Any,
    data_format: str | None = "NDHWC",
    dilations: Any = (1, 1, 1, 1, 1),
    name: str | None = None,
) -> Output:
    """Return the gradient of `conv3d` with respect to its filter.

    Args:
      input: floating, shape (N, D, H, W, C) or (N, C, D, H, W).
      filter_sizes: int32, shape (5,): the shape of the filter.
      out_backprop: same dtype, the shape of the convolution's output.
      strides, padding, data_format, dilations: those of the convolution.
    Returns: shape `filter_sizes`.
    Raises: InvalidArgumentError: the shapes do not match.

    Examples:
      >>> volume, slope = wf.ones([1, 3, 3, 3, 1]), wf.ones([1, 2, 2, 2, 1])
      >>> grad = wf.nn.conv3d_backprop_filter(volume, [2, 2, 2, 1, 1], slope, 1, "VALID")
      >>> wf.Session().run(grad).ravel()
      array([8., 8., 8., 8., 8., 8., 8., 8.], dtype=float32)
    """
    attrs = _attrs(strides, padding, data_format, dilations, spatial=3)
    return out("Conv3DBackpropFilterV2", [input, filter_sizes, out_backprop], attrs, name)


conv3d_backprop_filter = conv3d_backprop_filter_v2
depthwise_conv2d_backprop_filter = depthwise_conv2d_native_backprop_filter
depthwise_conv2d_backprop_input = depthwise_conv2d_native_backprop_input
