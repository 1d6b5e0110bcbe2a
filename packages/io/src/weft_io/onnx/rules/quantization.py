"""Quantization and dequantization."""

from __future__ import annotations

import numpy as np

from weft_graph.ir.node import Output
from weft_graph.ops.arithmetic import clip_by_value, maximum, minimum
from weft_graph.ops.comparison import equal
from weft_graph.ops.masks import repeat, where_v2
from weft_graph.ops.reduction import reduce_max, reduce_min
from weft_graph.ops.rounding import rint
from weft_graph.ops.sequence import range as sequence
from weft_graph.ops.shapes import reshape
from weft_graph.ops.slicing import slice as part
from weft_io.onnx.export_graph import Value
from weft_io.onnx.node_export import NodeExport
from weft_io.onnx.operation import Operation, cast, like, rank_of
from weft_io.onnx.registry import exporter, importer
from weft_io.onnx.rules.array import convert_elements, shape64
from weft_io.onnx.rules.integer_products import exact_convolution, exact_product
from weft_tensor import dtypes, errors
from weft_tensor.dtypes import DType


def _align(operation: Operation, value: Output, x: Output) -> Output:
    """Reshape a scale or zero point to broadcast with x: one, per position, or per block."""
    block = operation.attribute("block_size", 0)
    if value.dims in ((), (1,)):
        return reshape(value, [])
    if value.dims is None and block:
        raise errors.UnimplementedError(
            f"{operation.op} in blocks requires a scale and a zero point of known rank"
        )
    if value.dims is None or len(value.dims) == 1:
        return _along_axis(operation, value)
    if block:
        operation.require_rank(len(value.dims))
        axis = operation.axis(1)
        block = minimum(block, shape64(x)[axis])  # a larger block is the same
        wide = repeat(value, block, axis=axis)
        return part(wide, [0] * len(value.dims), shape64(x))
    return value


def _along_axis(operation: Operation, value: Output) -> Output:
    """Return a scalar, or a vector along the axis with size 1 on the other axes."""
    x, axis = operation[0], operation.attribute("axis", 1)
    if x.dims is None:
        axes = sequence(rank_of(x))
        axis = axis if axis >= 0 else rank_of(x) + axis
        return reshape(value, where_v2(equal(axes, axis), -1, 1))
    if value.dims is not None and value.dims[0] is not None:
        axis = operation.axis(1)  # more than one number
    rank = len(x.dims)
    return reshape(value, [-1 if axis in (i, i - rank) else 1 for i in range(rank)])


@importer("QuantizeLinear")
def _quantize(operation: Operation) -> Output:
    x, scale, zero = operation[0], operation[1], operation.get(2)
    target = operation.dtype_of("output_dtype", dtypes.uint8) if zero is None else zero.dtype
    factor = cast(_align(operation, scale, x), dtypes.float32)
    rows = cast(x, dtypes.float32) / factor
    if target.is_integer:
        rows = rint(rows)
    if zero is not None:
        rows = rows + cast(_align(operation, zero, x), dtypes.float32)
    if target.is_floating and not operation.attribute("saturate", 1):
        return convert_elements(rows, target.base_dtype, saturate=False)
    return saturate_integers(rows, target.base_dtype)


def saturate_integers(x: Output, target: DType) -> Output:
    """Convert integral floats to integers, saturating."""
    low, high = float(target.min), float(target.max)
    return cast(clip_by_value(x, low, high), target)


@importer("DequantizeLinear")
def _dequantize(operation: Operation) -> Output:
    x, scale, zero = operation[0], operation[1], operation.get(2)
    target = operation.dtype_of("output_dtype", scale.dtype.base_dtype)
    rows = cast(x, dtypes.float32)
    if zero is not None:
        rows = rows - cast(_align(operation, zero, x), dtypes.float32)
    result = rows * cast(_align(operation, scale, x), dtypes.float32)
    return cast(result, target)


@importer("QLinearMatMul")
def _q_linear_matmul(operation: Operation) -> Output:
    result = cast(exact_product(operation, (0, 2), (3, 5)), dtypes.float32)
    scale = cast(operation[1], dtypes.float32)
    if operation.rank(1) == 1 and scale.dims != (1,):
        scale = reshape(scale, [-1, 1] if operation.rank(0) > 1 else [])
    return requantize(result, scale * cast(operation[4], dtypes.float32), operation, 6)


def requantize(products: Output, scale: Output, operation: Operation, index: int) -> Output:
    """Requantize products with the scale and zero point in inputs `index` and after."""
    zero = operation[index + 1]
    rows = rint(products * (scale / cast(operation[index], products.dtype)))
    return saturate_integers(rows + cast(zero, products.dtype), zero.dtype.base_dtype)


@importer("QLinearConv")
def _q_linear_conv(operation: Operation) -> Output:
    result, bias = exact_convolution(operation, 2, 3, 5), operation.get(8)
    if bias is not None:
        result = result + cast(bias, result.dtype)
    scale = cast(operation[1], result.dtype) * cast(operation[4], result.dtype)
    return operation.channels_first(requantize(result, scale, operation, 6))


@importer("DynamicQuantizeLinear")
def _dynamic_quantize(operation: Operation) -> list[Output]:
    x, order = (operation[0], []) if operation[0].dims is None else operation.plain()
    rows, scale, zero = quantize_dynamically(x)
    result, point = (operation.cast_to_integers(item, dtypes.uint8) for item in (rows, zero))
    return [operation.transposed(result, order), scale, point]


def quantize_dynamically(x: Output) -> tuple[Output, Output, Output]:
    """Quantize to 8 bits, as floats; return the values, scale and zero point."""
    low, high = minimum(reduce_min(x), like(0, x)), maximum(reduce_max(x), like(0, x))
    step = (high - low) / like(255, x)
    scale = where_v2(equal(step, like(0, x)), like(1, x), step)  # of zeros alone
    zero = rint(clip_by_value(-low / scale, 0.0, 255.0))
    return clip_by_value(rint(x / scale) + zero, 0.0, 255.0), scale, zero


def round_trip_int8(x: Output) -> Output:
    """Quantize to 8 bits dynamically, and dequantize."""
    rows, scale, zero = quantize_dynamically(x)
    return (rows - zero) * scale


# -------------------------------------------------------------------------------- export


@exporter("FakeQuantWithMinMaxArgs", "FakeQuantWithMinMaxVars")
def _write_fake_quantization(export: NodeExport) -> Value:
    """Export a quantization to 8 bits and back, with a range adjusted to represent zero exactly."""
    if export.node.type == "FakeQuantWithMinMaxArgs":
        low, high = (float(export.attribute(name)) for name in ("min", "max"))
    else:
        low, high = (float(export.known(i, "the range")) for i in (1, 2))
    if int(export.attribute("num_bits")) != 8 or export.attribute("narrow_range"):
        raise errors.UnimplementedError("ONNX supports only num_bits=8 with narrow_range=False")
    if not low <= 0 <= high or low == high:
        raise errors.UnimplementedError(
            f"the quantization range must contain 0, got {low} to {high}"
        )
    scale = np.float32((high - low) / 255)
    zero = np.uint8(np.clip(np.floor(-low / scale + 0.5), 0, 255))
    numbers = export.constant(scale), export.constant(zero)
    small = export.elementwise("QuantizeLinear", export[0], *numbers, dtype=dtypes.uint8)
    return export.elementwise("DequantizeLinear", small, *numbers, dtype=dtypes.float32)
