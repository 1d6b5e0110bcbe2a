"""Convolutions and transposed convolutions with one to three spatial axes.

Everything is computed with channels last.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from weft_graph.ir.constant_value import constant_value_as_dims
from weft_graph.ir.node import Output
from weft_graph.ops.conv import (
    conv2d,
    conv2d_backprop_input,
    conv3d,
    conv3d_transpose,
    depthwise_conv2d_native,
)
from weft_graph.ops.join import concat, split, stack
from weft_graph.ops.permutation import transpose
from weft_graph.ops.shapes import expand_dims, reshape, squeeze
from weft_io.onnx.export_graph import Value
from weft_io.onnx.node_export import NodeExport
from weft_io.onnx.operation import Operation, cast
from weft_io.onnx.registry import exporter, importer
from weft_io.onnx.rules.array import pad_axes, shape64
from weft_io.onnx.rules.windows import (
    Windows,
    add_margins,
    layout,
    slide,
    stack_margins,
    windows,
)
from weft_io.onnx.transpositions import inverse
from weft_tensor import dtypes, errors
from weft_tensor.shape import format_dims


@importer("Conv")
def _conv(operation: Operation) -> Output:
    w, bias = operation[1], operation.vector(2)
    operation.require_rank(operation.rank(1))
    result = convolution(operation, operation.channels_last(), w)
    return operation.channels_first(result if bias is None else result + bias)


class Images(NamedTuple):
    """Functions that convolve images: (x, filters, strides, padding, dilations=).

    Attributes:
      plain: convolution with filters (KH, KW, C, M).
      depthwise: convolution of each channel with its own filters, (KH, KW, C, M / C).
    """

    plain: Callable[..., Output]
    depthwise: Callable[..., Output]


_FLOATS: Final = Images(conv2d, depthwise_conv2d_native)


def is_fixed_padding_conv(operation: Operation, w: Output) -> bool:
    """Return True for a convolution of 1-D or 2-D images with known padding."""
    kernel = _kernel(operation, w)
    pads = windows(operation, kernel).pads
    return len(kernel) <= 2 and all(not isinstance(item, Output) for pair in pads for item in pair)


def convolution(operation: Operation, x: Output, w: Output, images: Images = _FLOATS) -> Output:
    """Add the convolution that an operation's attributes describe.

    Args:
      x: (N, ..., C).
      w: (M, C / group, ...).
      images: functions for other types than floats; requires that `is_fixed_padding_conv` is true.
    Returns: (N, ..., M).
    Raises: UnimplementedError: there are more than three spatial axes.
    """
    kernel = _kernel(operation, w)
    result = windows(operation, kernel)
    spatial, group = len(kernel), operation.attribute("group", 1)
    if spatial > 3:
        raise errors.UnimplementedError(
            f"{operation.op} over {spatial} axes is not supported; at most 3 axes are"
        )
    has_static_padding = all(not isinstance(item, Output) for pair in result.pads for item in pair)
    if spatial == 3 or not has_static_padding:
        x, result = add_margins(x, result), result._replace(pads=[])
    if spatial > 1:
        return _group(operation, x, w, result, group, images)
    pads: list[Any] = [(0, 0), *result.pads] if result.pads else []
    line = Windows([1, *kernel], [1, *result.strides], [1, *result.dilations], pads, [])
    x, w = expand_dims(x, operation.shared(1)), expand_dims(w, operation.shared(2))
    return squeeze(_group(operation, x, w, line, group, images), [1])


def _kernel(operation: Operation, w: Output) -> list[int]:
    if w.dims is None or None in w.dims[2:]:
        kernel_shape = operation.attribute("kernel_shape")
        if kernel_shape is None:
            raise errors.UnimplementedError(
                f"{operation.op} requires a kernel of known shape, got shape "
                f"{format_dims(w.dims)}; set the attribute kernel_shape, or declare the shape in "
                "the model"
            )
        return list(kernel_shape)
    return [size for size in w.dims[2:] if size is not None]


def _group(
    operation: Operation, x: Output, w: Output, windows: Windows, group: int, images: Images
) -> Output:
    if group == 1:
        return _conv3d(operation, x, w, windows, images)
    inner = w.dims[1] if w.dims else None
    if inner == 1 and len(windows.kernel) == 2:
        return _depthwise(operation, x, w, windows, group, images)
    parts = [
        _conv3d(operation, part_x, part_w, windows, images)
        for part_x, part_w in zip(split(x, group, -1), split(w, group, 0), strict=True)
    ]
    return concat(parts, -1)


def _padding(windows: Windows) -> Any:
    return [[0, 0], *map(list, windows.pads), [0, 0]] if windows.pads else "VALID"


def _conv3d(operation: Operation, x: Output, w: Output, windows: Windows, images: Images) -> Output:
    strides, dilations = [1, *windows.strides, 1], [1, *windows.dilations, 1]
    if len(windows.kernel) == 2:
        w = transpose(w, operation.shared((2, 3, 1, 0)))
        return images.plain(x, w, strides, _padding(windows), dilations=dilations)
    w = transpose(w, operation.shared((2, 3, 4, 1, 0)))
    return conv3d(x, w, strides, "VALID", dilations=dilations)


def _depthwise(
    operation: Operation, x: Output, w: Output, windows: Windows, group: int, images: Images
) -> Output:
    """Convolve each channel with its own filters."""
    filters = transpose(reshape(w, [group, -1, *windows.kernel]), operation.shared((2, 3, 0, 1)))
    return images.depthwise(
        x, filters, [1, *windows.strides, 1], _padding(windows),
        dilations=[1, *windows.dilations, 1],
    )  # fmt: skip


@importer("ConvTranspose")
def _conv_transpose(operation: Operation) -> Output:
    w, bias = operation[1], operation.vector(2)
    kernel, group = _kernel(operation, w), operation.attribute("group", 1)
    spatial = len(kernel)
    operation.require_rank(spatial + 2)
    if group != 1 and (group < 1 or operation.size(0, 1) % group):
        raise errors.InvalidArgumentError(
            f"group of ConvTranspose must divide the channels of its input, of which its weights "
            f"have {operation.size(0, 1)}, got {group}"
        )
    x = operation.channels_last()
    strides = operation.attribute("strides") or [1] * spatial
    dilations = operation.attribute("dilations") or [1] * spatial
    if spatial == 1:
        x, w = expand_dims(x, 1), expand_dims(w, 2)
        full = squeeze(
            _scatter_windows(x, w, [1, *strides], [1, *dilations], [1, *kernel], group), [1]
        )
    elif spatial in (2, 3):
        full = _scatter_windows(x, w, strides, dilations, kernel, group)
    else:
        raise errors.UnimplementedError(
            f"ConvTranspose over {spatial} axes is not supported; at most 3 axes are"
        )
    result = _cut(operation, full, strides, dilations, kernel)
    return operation.channels_first(result if bias is None else result + bias)


def _scatter_windows(
    x: Output,
    w: Output,
    strides: Sequence[int],
    dilations: Sequence[int],
    kernel: Sequence[int],
    group: int,
) -> Output:
    """Return the sum of the contributions of all windows, without cropping."""
    if group > 1:
        parts = zip(split(x, group, -1), split(w, group, 0), strict=True)
        return concat([_scatter_windows(a, b, strides, dilations, kernel, 1) for a, b in parts], -1)
    sizes = shape64(x)
    outer = [
        (sizes[1 + i] - 1) * strides[i] + (kernel[i] - 1) * dilations[i] + 1
        for i in range(len(kernel))
    ]
    depth = shape64(w)[1]
    output_shape = cast(stack([sizes[0], *outer, depth]), dtypes.int32)
    if len(kernel) == 2:
        return conv2d_backprop_input(
            output_shape, transpose(w, [2, 3, 1, 0]), x, [1, *strides, 1], "VALID",
            dilations=[1, *dilations, 1],
        )  # fmt: skip
    return conv3d_transpose(
        x, transpose(w, [2, 3, 4, 1, 0]), output_shape, [1, *strides, 1], "VALID",
        dilations=[1, *dilations, 1],
    )  # fmt: skip


def _cut(
    operation: Operation,
    full: Output,
    strides: Sequence[int],
    dilations: Sequence[int],
    kernel: Sequence[int],
) -> Output:
    """Return the part of the full result that the attributes select, padded with zeros."""
    count = len(kernel)
    extra = operation.attribute("output_padding") or [0] * count
    output_shape = operation.attribute("output_shape")
    auto = operation.attribute("auto_pad", "NOTSET")
    flat = operation.attribute("pads") or [0] * 2 * count
    sides: list[list[Any]] = [[0, 0]]
    sizes, inputs = shape64(full), shape64(operation.channels_last())
    for i in range(count):
        if output_shape or auto in ("SAME_UPPER", "SAME_LOWER"):
            target = output_shape[-count:][i] if output_shape else inputs[1 + i] * strides[i]
            total = sizes[1 + i] + extra[i] - target
            smaller, larger = total // 2, total - total // 2
            leading, trailing = (smaller, larger) if auto == "SAME_UPPER" else (larger, smaller)
            sides.append([-leading, extra[i] - trailing])
        else:
            sides.append([-flat[i], extra[i] - flat[count + i]])
    return pad_axes(full, stack_margins([*sides, [0, 0]]))


# -------------------------------------------------------------------------------- export


@exporter("Conv2D", "Conv3D", "DepthwiseConv2dNative")
def _write_conv(export: NodeExport) -> Value:
    return write_slid(export, *split_filter_groups(export))


def split_filter_groups(export: NodeExport) -> tuple[Value, list[int], int]:
    """Return filters (M, C / group, ...), the kernel size along each axis, and `group`.

    Raises: UnimplementedError: a required size is unknown.
    """
    axes_layout = layout(export)
    count = len(axes_layout.spatial)
    kernel = _static_kernel_size(export, count)
    if not export.node.type.startswith("Depthwise"):
        return export.transposed(export[1], [count + 1, count, *range(count)]), kernel, 1
    sizes = export.dims()[axes_layout.channels], export.dims(1)[count]
    depth = next((item for item in sizes if item is not None), None)
    if depth is None:
        raise errors.UnimplementedError("the number of channels must be known")
    w = export.transposed(export[1], [2, 3, 0, 1])
    return export.reshape(w, [-1, 1, *kernel]), kernel, depth


def _static_kernel_size(export: NodeExport, count: int) -> list[int]:
    result = [size for size in export.dims(1)[:count] if size is not None]
    if len(result) < count:
        raise errors.UnimplementedError("the shape of the filter must be known")
    return result


def write_slid(
    export: NodeExport,
    w: Value,
    kernel: Sequence[int],
    group: int,
    op: str = "Conv",
    *operands: Value,
) -> Value:
    """Export a convolution of the first input.

    Args:
      w, kernel, group: results of `split_filter_groups`.
      op: ONNX's name; ops other than Conv return int32.
      *operands: inputs after the filters.
    """
    axes_layout, sizes = layout(export), export.dims()
    attributes = slide(export, axes_layout, kernel, [sizes[axis] for axis in axes_layout.spatial])
    x = export.transposed(export[0], axes_layout.order)
    dtype = x.dtype if op == "Conv" else dtypes.int32
    result = export.add(op, x, w, *operands, dtype=dtype, group=group, **attributes)
    return export.transposed(result, inverse(axes_layout.order))


@exporter("Conv2DBackpropInput", "Conv3DBackpropInputV2")
def _write_conv_transpose(export: NodeExport) -> Value:
    """Export the gradient of a convolution, whose padding depends on the sizes of its input."""
    axes_layout = layout(export)
    count = len(axes_layout.spatial)
    kernel, output_shape = (
        _static_kernel_size(export, count),
        constant_value_as_dims(export.node.inputs[0]),
    )
    sizes = [None if output_shape is None else output_shape[axis] for axis in axes_layout.spatial]
    known_sizes = [size for size in sizes if size is not None]
    if len(known_sizes) < count:
        raise errors.UnimplementedError("the height and the width of the result must be known")
    if output_shape is not None and export.dims(1)[count] != output_shape[axes_layout.channels]:
        raise errors.UnimplementedError("grouped transposed convolutions cannot be exported")
    attributes = slide(export, axes_layout, kernel, known_sizes)
    pads = attributes.setdefault("pads", [0] * 2 * count)
    dilations = attributes.get("dilations", [1] * count)
    extra = []
    for i, size in enumerate(known_sizes):
        extent, stride = (kernel[i] - 1) * dilations[i] + 1, attributes["strides"][i]
        margin = pads[i] + pads[count + i]
        num_steps = (size + margin - extent) // stride
        extra.append(size - (num_steps * stride + extent - margin))
    w = export.transposed(export[1], [count + 1, count, *range(count)])
    x = export.transposed(export[2], axes_layout.order)
    result = export.add("ConvTranspose", x, w, output_padding=extra, **attributes)
    return export.transposed(result, inverse(axes_layout.order))
