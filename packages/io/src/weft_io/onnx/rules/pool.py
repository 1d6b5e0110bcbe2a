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
from weft_io.onnx.rules.array import padded, shape64
from weft_io.onnx.rules.sliding import Windows, layout, slide, windows, with_margins
from weft_io.onnx.transpositions import channels_first, inverse
from weft_tensor import dtypes, errors


@importer("MaxPool")
def _max_pool(operation: Operation) -> list[Output]:
    result = windows(operation, operation.required("kernel_shape"))
    x = operation.channels_last()
    lowest = float("-inf") if x.dtype.is_floating else x.dtype.min
    if operation.num_outputs > 1:
        results = _with_places(operation, x, result, lowest)
    else:
        whole = with_margins(x, result, lowest)
        if result.is_dilated or len(result.kernel) > 3 or not x.dtype.is_floating:
            results = [_maxima(whole, result)]
        else:
            results = [_slid(whole, result, "max")]
    return [operation.channels_first(item) for item in results]


def _maxima(x: Output, found: Windows) -> Output:
    """Return the maxima of windows, axis by axis: the taps then add up instead of multiplying."""
    for axis in range(len(found.kernel)):
        x = reduce(maximum, found.along(axis).taps(x))
    return x


def _slid(x: Output, found: Windows, kind: str) -> Output:
    """Apply a pooling op to windows without dilation, whose padding is already applied."""
    kernel, strides = found.kernel, found.strides
    if len(kernel) == 1:
        wide = found._replace(kernel=[1, *kernel], strides=[1, *strides])
        return squeeze(_slid(expand_dims(x, 1), wide, kind), [1])
    if len(kernel) == 2:
        rule: Any = max_pool if kind == "max" else avg_pool
    else:
        rule = max_pool3d if kind == "max" else avg_pool3d
    slid: Output = rule(x, [1, *kernel, 1], [1, *strides, 1], "VALID")
    return slid


def _with_places(operation: Operation, x: Output, found: Windows, lowest: Any) -> list[Output]:
    """Return the maxima, and their flat positions in the original input."""
    sizes, count = shape64(operation[0]), operation.rank()
    spatial = list(range(2, count))
    if operation.attribute("storage_order", 0):
        order = [0, 1, *reversed(spatial)]
        flat = reshape(sequence(reduce_prod(sizes)), [sizes[axis] for axis in order])
        places = transpose(flat, [order.index(axis) for axis in range(count)])
    else:
        places = reshape(sequence(reduce_prod(sizes)), sizes)
    places = transpose(places, inverse(channels_first(count)))
    values = found.taps(with_margins(x, found, lowest))
    where = found.taps(with_margins(places, found, 0))
    best, at = values[0], where[0]
    for value, place in zip(values[1:], where[1:], strict=True):
        better = greater(value, best)
        best, at = where_v2(better, value, best), where_v2(better, place, at)
    return [best, at]


@importer("AveragePool")
def _average_pool(operation: Operation) -> Output:
    result = windows(operation, operation.required("kernel_shape"))
    x = operation.channels_last()
    return operation.channels_first(_averages(operation, x, result))


def _averages(operation: Operation, x: Output, found: Windows) -> Output:
    total, counted = _sums(x, found), not found.has_extra
    if counted and (operation.attribute("count_include_pad", 0) or not found.has_margins):
        return total / like(prod(found.kernel), x)
    ones = ones_like(x)
    if operation.attribute("count_include_pad", 0):
        ones = padded(padded(ones, found.sides(with_extra=False), 1), found.extra_sides())
        margins = found._replace(pads=[(0, 0)] * len(found.kernel), extra=[0] * len(found.kernel))
        return total / _sums(ones, margins)
    return total / _sums(ones, found)


def _sums(x: Output, found: Windows) -> Output:
    whole = with_margins(x, found)
    if found.is_dilated or len(found.kernel) > 3:
        return reduce(add, found.taps(whole))
    return _slid(whole, found, "average") * like(prod(found.kernel), x)


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
    x, places, wanted = operation[0], operation[1], operation.get(2)
    kernel = operation.required("kernel_shape")
    count = len(kernel)
    strides = operation.attribute("strides") or [1] * count
    pads = operation.attribute("pads") or [0] * 2 * count
    sizes = shape64(x)
    outer = [
        (sizes[2 + i] - 1) * strides[i] + kernel[i] - pads[i] - pads[count + i]
        for i in range(count)
    ]
    own = stack([sizes[0], sizes[1], *outer])
    flat = scatter_nd(reshape(places, [-1, 1]), reshape(x, [-1]), reshape(reduce_prod(own), [1]))
    result = reshape(flat, own)
    if wanted is None:
        return result
    rest = expand_dims(wanted - own, 1)
    return padded(result, _pair(rest))


def _pair(after: Output) -> Output:
    return concat([after * constant(0, dtypes.int64), after], 1)


# -------------------------------------------------------------------------------- export

_TO_ONNX = {
    "AvgPool": "AveragePool",
    "AvgPool3D": "AveragePool",
    "MaxPool": "MaxPool",
    "MaxPool3D": "MaxPool",
}


@exporter(*_TO_ONNX)
def _write_pool(export: NodeExport) -> Value:
    places, sizes = layout(export), export.dims()
    ksize = [int(item) for item in export.attribute("ksize")]
    if ksize[0] != 1 or ksize[places.channels] != 1:
        raise errors.UnimplementedError("ONNX has no pools over examples or channels")
    kernel = [ksize[axis] for axis in places.spatial]
    attributes = slide(export, places, kernel, [sizes[axis] for axis in places.spatial])
    x = export.transposed(export[0], places.order)
    result = export.add(_TO_ONNX[export.node.type], x, **attributes)
    return export.transposed(result, inverse(places.order))
