"""Pooling over windows and over all positions, and unpooling."""

from __future__ import annotations

from functools import reduce
from math import prod
from typing import Any

from weft_graph.ir.builder import constant
from weft_graph.ir.node import Output
from weft_graph.ops.arithmetic import abs as absolute, add, maximum
from weft_graph.ops.array import ones_like
from weft_graph.ops.comparison import greater
from weft_graph.ops.gather import scatter_nd
from weft_graph.ops.join import concat, stack
from weft_graph.ops.masks import where_v2
from weft_graph.ops.permutation import transpose
from weft_graph.ops.pool import avg_pool, avg_pool3d, max_pool, max_pool3d
from weft_graph.ops.powers import pow
from weft_graph.ops.reduction import reduce_max, reduce_mean, reduce_prod, reduce_sum
from weft_graph.ops.sequence import range as sequence
from weft_graph.ops.shapes import expand_dims, reshape, squeeze
from weft_io.onnx.export_graph import Value
from weft_io.onnx.node_export import NodeExport
from weft_io.onnx.operation import Operation, like
from weft_io.onnx.registry import exporter, importer
from weft_io.onnx.rules.array import pad_axes, shape64
from weft_io.onnx.rules.windows import Windows, add_margins, layout, slide, windows
from weft_io.onnx.transpositions import channels_first, inverse
from weft_tensor import dtypes, errors


@importer("MaxPool")
def _max_pool(operation: Operation) -> list[Output]:
    result = windows(operation, operation.required("kernel_shape"))
    x = operation.channels_last()
    lowest = float("-inf") if x.dtype.is_floating else x.dtype.min
    if operation.num_outputs > 1:
        results = _max_with_positions(operation, x, result, lowest)
    else:
        padded = add_margins(x, result, lowest)
        if result.is_dilated or len(result.kernel) > 3 or not x.dtype.is_floating:
            results = [_maxima(padded, result)]
        else:
            results = [_pool_windows(padded, result, "max")]
    return [operation.channels_first(item) for item in results]


def _maxima(x: Output, windows: Windows) -> Output:
    """Return the maxima of windows, axis by axis: the taps then add up instead of multiplying."""
    for axis in range(len(windows.kernel)):
        x = reduce(maximum, windows.along(axis).taps(x))
    return x


def _pool_windows(x: Output, windows: Windows, kind: str) -> Output:
    """Apply a pooling op to windows without dilation, whose padding is already applied."""
    kernel, strides = windows.kernel, windows.strides
    if len(kernel) == 1:
        wide = windows._replace(kernel=[1, *kernel], strides=[1, *strides])
        return squeeze(_pool_windows(expand_dims(x, 1), wide, kind), [1])
    if len(kernel) == 2:
        rule: Any = max_pool if kind == "max" else avg_pool
    else:
        rule = max_pool3d if kind == "max" else avg_pool3d
    slid: Output = rule(x, [1, *kernel, 1], [1, *strides, 1], "VALID")
    return slid


def _max_with_positions(
    operation: Operation, x: Output, windows: Windows, lowest: Any
) -> list[Output]:
    """Return the maxima, and their flat positions in the original input."""
    sizes, count = shape64(operation[0]), operation.rank()
    spatial = list(range(2, count))
    if operation.attribute("storage_order", 0):
        order = [0, 1, *reversed(spatial)]
        flat = reshape(sequence(reduce_prod(sizes)), [sizes[axis] for axis in order])
        positions = transpose(flat, [order.index(axis) for axis in range(count)])
    else:
        positions = reshape(sequence(reduce_prod(sizes)), sizes)
    positions = transpose(positions, inverse(channels_first(count)))
    values = windows.taps(add_margins(x, windows, lowest))
    tap_positions = windows.taps(add_margins(positions, windows, 0))
    best, best_position = values[0], tap_positions[0]
    for value, position in zip(values[1:], tap_positions[1:], strict=True):
        better = greater(value, best)
        best, best_position = (
            where_v2(better, value, best),
            where_v2(better, position, best_position),
        )
    return [best, best_position]


@importer("AveragePool")
def _average_pool(operation: Operation) -> Output:
    result = windows(operation, operation.required("kernel_shape"))
    x = operation.channels_last()
    return operation.channels_first(_averages(operation, x, result))


def _averages(operation: Operation, x: Output, windows: Windows) -> Output:
    total, counted = _sums(x, windows), not windows.has_extra
    if counted and (operation.attribute("count_include_pad", 0) or not windows.has_margins):
        return total / like(prod(windows.kernel), x)
    unit_image = ones_like(x)
    if operation.attribute("count_include_pad", 0):
        unit_image = pad_axes(
            pad_axes(unit_image, windows.sides(with_extra=False), 1), windows.extra_sides()
        )
        margins = windows._replace(
            pads=[(0, 0)] * len(windows.kernel), extra=[0] * len(windows.kernel)
        )
        return total / _sums(unit_image, margins)
    return total / _sums(unit_image, windows)


def _sums(x: Output, windows: Windows) -> Output:
    padded = add_margins(x, windows)
    if windows.is_dilated or len(windows.kernel) > 3:
        return reduce(add, windows.taps(padded))
    return _pool_windows(padded, windows, "average") * like(prod(windows.kernel), x)


@importer("LpPool")
def _lp_pool(operation: Operation) -> Output:
    result, p = windows(operation, operation.required("kernel_shape")), operation.attribute("p", 2)
    x = operation.channels_last()
    sums = _sums(pow(absolute(x), like(p, x)), result)
    return operation.channels_first(pow(sums, like(1 / p, x)))


@importer("GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool")
def _global(operation: Operation) -> Output:
    x, axes = operation.channels_last(), list(range(1, operation.rank() - 1))
    if operation.op == "GlobalAveragePool":
        return operation.channels_first(reduce_mean(x, axes, True))
    if operation.op == "GlobalMaxPool":
        return operation.channels_first(reduce_max(x, axes, True))
    p = operation.attribute("p", 2)
    sums = reduce_sum(pow(absolute(x), like(p, x)), axes, True)
    return operation.channels_first(pow(sums, like(1 / p, x)))


@importer("MaxUnpool")
def _max_unpool(operation: Operation) -> Output:
    x, positions, output_shape = operation[0], operation[1], operation.get(2)
    kernel = operation.required("kernel_shape")
    count = len(kernel)
    strides = operation.attribute("strides") or [1] * count
    pads = operation.attribute("pads") or [0] * 2 * count
    sizes = shape64(x)
    outer = [
        (sizes[2 + i] - 1) * strides[i] + kernel[i] - pads[i] - pads[count + i]
        for i in range(count)
    ]
    input_sizes = stack([sizes[0], sizes[1], *outer])
    flat = scatter_nd(
        reshape(positions, [-1, 1]), reshape(x, [-1]), reshape(reduce_prod(input_sizes), [1])
    )
    result = reshape(flat, input_sizes)
    if output_shape is None:
        return result
    extra = expand_dims(output_shape - input_sizes, 1)
    return pad_axes(result, _pair(extra))


def _pair(trailing: Output) -> Output:
    return concat([trailing * constant(0, dtypes.int64), trailing], 1)


# -------------------------------------------------------------------------------- export

_TO_ONNX = {
    "AvgPool": "AveragePool",
    "AvgPool3D": "AveragePool",
    "MaxPool": "MaxPool",
    "MaxPool3D": "MaxPool",
}


@exporter(*_TO_ONNX)
def _write_pool(export: NodeExport) -> Value:
    positions, sizes = layout(export), export.dims()
    ksize = [int(item) for item in export.attribute("ksize")]
    if ksize[0] != 1 or ksize[positions.channels] != 1:
        raise errors.UnimplementedError("ONNX cannot pool over the batch or channel axis")
    kernel = [ksize[axis] for axis in positions.spatial]
    attributes = slide(export, positions, kernel, [sizes[axis] for axis in positions.spatial])
    x = export.transposed(export[0], positions.order)
    result = export.add(_TO_ONNX[export.node.type], x, **attributes)
    return export.transposed(result, inverse(positions.order))
