"""Normalizations."""

from __future__ import annotations

from typing import Final

from weft_graph.ir.node import Output
from weft_graph.nn.statistics import moments
from weft_graph.ops.arithmetic import abs as absolute
from weft_graph.ops.masks import where_v2
from weft_graph.ops.padding import pad
from weft_graph.ops.powers import pow, rsqrt, sqrt, square
from weft_graph.ops.reduction import reduce_mean, reduce_sum
from weft_graph.ops.slicing import slice as part
from weft_io.onnx.export_graph import Value
from weft_io.onnx.node_export import NodeExport
from weft_io.onnx.operation import Operation, cast, like
from weft_io.onnx.registry import exporter, importer
from weft_io.onnx.rules.array import shape64
from weft_io.onnx.transpositions import channels_first, inverse
from weft_tensor import dtypes, errors

_MAX_SUMMED: Final = 1000
"""Maximum number of channels that LRN sums, because each adds a few nodes."""


@importer("BatchNormalization")
def _batch_normalization(operation: Operation) -> list[Output]:
    spatial = operation.attribute("spatial", 1)
    scale, bias, mean, variance = (
        operation.require_rank(1, index) if spatial else operation[index] for index in range(1, 5)
    )
    epsilon = operation.attribute("epsilon", 1e-5)
    training = operation.attribute("training_mode", 0) or (
        operation.version < 14 and operation.num_outputs > 1
    )
    if not spatial:  # of each element of an image, before version 9
        if training:
            raise errors.UnimplementedError("BatchNormalization with spatial=0 cannot train")
        return [_scale(operation[0], scale, bias, mean, variance, epsilon)]
    # One channel without an axis of its own: the vectors have one element.
    x = operation.channels_last() if operation.rank() > 1 else operation[0]
    if not training:
        return [_reverse(operation, _scale(x, scale, bias, mean, variance, epsilon))]
    momentum = operation.attribute("momentum", 0.9)
    axes = list(range(max(operation.rank() - 1, 1)))
    batch_mean, batch_variance = moments(x, axes)
    batch_mean, batch_variance = cast(batch_mean, mean.dtype), cast(batch_variance, variance.dtype)
    running = [
        old * like(momentum, old) + new * like(1 - momentum, old)
        for old, new in ((mean, batch_mean), (variance, batch_variance))
    ]
    result = _reverse(operation, _scale(x, scale, bias, batch_mean, batch_variance, epsilon))
    return [result, *running, *running][: max(operation.num_outputs, 1)]


def _scale(
    x: Output,
    scale: Output,
    bias: Output,
    mean: Output,
    variance: Output,
    epsilon: float,
) -> Output:
    """Normalize in two passes over x; constant factors are folded."""
    factor = scale * cast(rsqrt(variance + like(epsilon, variance)), scale.dtype)
    offset = bias - cast(mean, factor.dtype) * factor
    return x * cast(factor, x.dtype) + cast(offset, x.dtype)


def _reverse(operation: Operation, x: Output) -> Output:
    return operation.channels_first(x) if operation.rank() > 1 else x


@importer("InstanceNormalization")
def _instance_normalization(operation: Operation) -> Output:
    x, scale, bias = (
        operation.channels_last(),
        operation.require_rank(1, 1),
        operation.require_rank(1, 2),
    )
    mean, variance = moments(x, list(range(1, operation.rank() - 1)), keep_dims=True)
    normal = (x - mean) * rsqrt(variance + like(operation.attribute("epsilon", 1e-5), variance))
    return operation.channels_first(normal * scale + bias)


@importer("LayerNormalization")
def _layer_normalization(operation: Operation) -> list[Output]:
    """Import layer normalization directly, with fewer nodes than ONNX's own definition."""
    x, scale, bias = operation[0], operation[1], operation.get(2)
    axis = operation.attribute("axis", -1)
    if axis >= 0 or x.dims is not None:
        axis = operation.axis(-1) - operation.rank()
    axes = list(range(axis, 0))
    wide = cast(x, operation.dtype_of("stash_type", dtypes.float32))
    mean = reduce_mean(wide, axes, True)
    centred = wide - mean
    variance = reduce_mean(square(centred), axes, True)
    factor = rsqrt(variance + like(operation.attribute("epsilon", 1e-5), variance))
    result = cast(centred * factor, x.dtype) * scale
    total = result if bias is None else result + bias
    return [total, mean, factor][: max(operation.num_outputs, 1)]


@importer("LRN")
def _lrn(operation: Operation) -> Output:
    x, size = operation[0], operation.required("size")
    if not 1 <= size <= _MAX_SUMMED:
        raise errors.InvalidArgumentError(f"LRN sums 1 to {_MAX_SUMMED} channels, got {size}")
    leading = (size - 1) // 2
    sides = [[0, 0], [leading, size - 1 - leading], *[[0, 0]] * (operation.rank() - 2)]
    padded, sizes = pad(square(x), sides), shape64(x)
    origin = [0] * operation.rank()
    total = part(padded, origin, sizes)
    for offset in range(1, size):
        total = total + part(padded, [0, offset, *origin[2:]], sizes)
    alpha, beta = operation.attribute("alpha", 1e-4), operation.attribute("beta", 0.75)
    bias = operation.attribute("bias", 1.0)
    return x / pow(total * like(alpha / size, x) + like(bias, x), like(beta, x))


@importer("LpNormalization")
def _lp_normalization(operation: Operation) -> Output:
    x, axis, p = operation[0], operation.axis(-1), operation.attribute("p", 2)
    if p == 1:
        norm = reduce_sum(absolute(x), axis, True)
    else:
        norm = sqrt(reduce_sum(square(x), axis, True))
    zero = like(0, norm)
    return where_v2(norm > zero, x / where_v2(norm > zero, norm, like(1, norm)), x * like(0, x))


# -------------------------------------------------------------------------------- export


@exporter("FusedBatchNorm", "FusedBatchNormV2", "FusedBatchNormV3")
def _write_batch_normalization(export: NodeExport) -> list[Value | None]:
    if export.attribute("is_training"):
        raise errors.UnimplementedError(
            "only inference can be exported: build the graph with is_training=False"
        )
    rank = export.rank()
    order = channels_first(rank) if export.attribute("data_format")[-1] == "C" else [*range(rank)]
    x = export.transposed(export[0], order)
    epsilon = float(export.attribute("epsilon"))
    result = export.add("BatchNormalization", x, *export.inputs()[1:], epsilon=epsilon)
    omitted: list[Value | None] = [None] * (len(export.node.outputs) - 1)
    return [export.transposed(result, inverse(order)), *omitted]


@exporter("LRN")
def _write_lrn(export: NodeExport) -> Value:
    """Export LRN; ONNX divides alpha by the number of summed channels."""
    order = channels_first(4)
    size = 2 * int(export.attribute("depth_radius")) + 1
    result = export.add(
        "LRN",
        export.transposed(export[0], order),
        size=size,
        alpha=float(export.attribute("alpha")) * size,
        beta=float(export.attribute("beta")),
        bias=float(export.attribute("bias")),
    )
    return export.transposed(result, inverse(order))


@exporter("BiasAdd")
def _write_bias(export: NodeExport) -> Value:
    bias = export[1]
    if export.attribute("data_format", "NHWC")[1] == "C":
        bias = export.reshape(bias, [-1, *[1] * (export.rank() - 2)])
    return export.elementwise("Add", export[0], bias)
