"""Numbers stored as small integers, and products of them."""

from __future__ import annotations

from typing import Any

import numpy as np

from weft_graph.ir.node import Output
from weft_graph.ops.arithmetic import clip_by_value, maximum, minimum
from weft_graph.ops.comparison import equal
from weft_graph.ops.masks import repeat, where_v2
from weft_graph.ops.reduction import reduce_max, reduce_min
from weft_graph.ops.rounding import rint
from weft_graph.ops.shapes import reshape
from weft_graph.ops.slicing import slice as part
from weft_io.onnx.node_export import NodeExport, Value
from weft_io.onnx.operation import Operation, cast, like
from weft_io.onnx.registry import exporter, importer
from weft_io.onnx.rules.array import shape64
from weft_io.onnx.rules.conv import convolution
from weft_io.onnx.rules.linalg import product
from weft_tensor import dtypes, errors
from weft_tensor.dtypes import DType


def _aligned(operation: Operation, value: Output, x: Output) -> Output:
    """A scale or zero point shaped like x: one, one for each place of an axis, or for a block."""
    rank = len(value.dims or ())
    if rank == 0 or value.dims == (1,):
        return reshape(value, [])
    axis = operation.axis(1)
    if rank == 1 and operation.rank() > 1:
        return reshape(value, [-1 if i == axis else 1 for i in range(operation.rank())])
    block = operation.attribute("block_size", 0)
    if rank > 1 and block:
        wide = repeat(value, block, axis=axis)
        return part(wide, [0] * rank, shape64(x))
    return value


@importer("QuantizeLinear")
def _quantize(operation: Operation) -> Output:
    x, scale, zero = operation[0], operation[1], operation.get(2)
    target = operation.dtype_of("output_dtype", dtypes.uint8) if zero is None else zero.dtype
    factor = cast(_aligned(operation, scale, x), dtypes.float32)
    rows = cast(x, dtypes.float32) / factor
    if target.is_integer:
        rows = rint(rows)
    if zero is not None:
        rows = rows + cast(_aligned(operation, zero, x), dtypes.float32)
    return saturated(rows, target.base_dtype)


def saturated(x: Output, target: DType) -> Output:
    """Whole numbers in floats as integers, the nearest that there are."""
    low, high = float(target.min), float(target.max)
    return cast(clip_by_value(x, low, high), target)


@importer("DequantizeLinear")
def _dequantize(operation: Operation) -> Output:
    x, scale, zero = operation[0], operation[1], operation.get(2)
    target = operation.dtype_of("output_dtype", scale.dtype.base_dtype)
    rows = cast(x, dtypes.float32)
    if zero is not None:
        rows = rows - cast(_aligned(operation, zero, x), dtypes.float32)
    found = rows * cast(_aligned(operation, scale, x), dtypes.float32)
    return cast(found, target)


def _centred(
    operation: Operation, x: int, zero: int, rows: bool = False, value: Output | None = None
) -> Output:
    """The integers of an input, or `value` in its place, without their zero point, as int32."""
    value = cast(operation[x] if value is None else value, dtypes.int32)
    offset = operation.get(zero)
    if offset is None:
        return value
    given = cast(offset, dtypes.int32)
    if rows and len(given.dims or ()) == 1 and given.dims != (1,):
        given = reshape(given, [-1, 1])
    elif given.dims == (1,):
        given = reshape(given, [])
    return value - given


@importer("MatMulInteger")
def _matmul_integer(operation: Operation) -> Output:
    return cast(_exact_product(operation, (0, 2), (1, 3)), dtypes.int32)


def _exact_product(operation: Operation, first: tuple[int, int], second: tuple[int, int]) -> Output:
    """The product of two inputs without their zero points, as float64: sums stay below 2**53.

    There is a fast product of floats, and none of integers.
    """
    x, y = _centred(operation, *first, rows=True), _centred(operation, *second)
    return product(cast(x, dtypes.float64), cast(y, dtypes.float64))


@importer("QLinearMatMul")
def _q_linear_matmul(operation: Operation) -> Output:
    found = cast(_exact_product(operation, (0, 2), (3, 5)), dtypes.float32)
    scale = cast(operation[1], dtypes.float32)
    if len(scale.dims or ()) == 1 and scale.dims != (1,):
        scale = reshape(scale, [-1, 1])
    return _requantized(found, scale * cast(operation[4], dtypes.float32), operation, 6)


def _requantized(found: Output, scale: Output, operation: Operation, at: int) -> Output:
    """Products as small integers, of the scale and zero point in inputs `at` and after."""
    zero = operation[at + 1]
    rows = rint(found * (scale / cast(operation[at], dtypes.float32)))
    return saturated(rows + cast(zero, dtypes.float32), zero.dtype.base_dtype)


def _integer_convolution(operation: Operation, zero: int, w: Output) -> Output:
    """The convolution of integers, exact as sums stay below 2**53: (N, ..., C) of float64."""
    operation.of_rank(operation.rank(1 if operation.op == "ConvInteger" else 3))
    x = _centred(operation, 0, zero, value=operation.channels_last())
    return convolution(operation, cast(x, dtypes.float64), cast(w, dtypes.float64))


@importer("ConvInteger")
def _conv_integer(operation: Operation) -> Output:
    w = cast(operation[1], dtypes.int32)
    zero: Any = operation.get(3)
    if zero is not None:
        zero = cast(zero, dtypes.int32)
        if len(zero.dims or ()) == 1:
            zero = reshape(zero, [-1, *[1] * (operation.rank(1) - 1)])
        w = w - zero
    return operation.channels_first(cast(_integer_convolution(operation, 2, w), dtypes.int32))


@importer("QLinearConv")
def _q_linear_conv(operation: Operation) -> Output:
    w_zero = cast(operation[5], dtypes.int32)
    if len(w_zero.dims or ()) == 1:
        w_zero = reshape(w_zero, [-1, *[1] * (operation.rank(3) - 1)])
    w = cast(operation[3], dtypes.int32) - w_zero
    found = _integer_convolution(operation, 2, w)
    bias = operation.get(8)
    if bias is not None:
        found = found + cast(bias, found.dtype)
    scale = cast(operation[1], dtypes.float64) * cast(operation[4], dtypes.float64)
    scale = scale / cast(operation[6], dtypes.float64)
    zero = operation[7]
    rows = rint(found * scale) + cast(zero, dtypes.float64)
    return operation.channels_first(saturated(rows, zero.dtype.base_dtype))


@importer("DynamicQuantizeLinear")
def _dynamic_quantize(operation: Operation) -> list[Output]:
    rows, scale, zero = _in_8_bits(operation[0])
    return [cast(rows, dtypes.uint8), scale, cast(zero, dtypes.uint8)]


def _in_8_bits(x: Output) -> tuple[Output, Output, Output]:
    """What stands for numbers in 8 bits, still as floats, and the scale and zero point for it."""
    low, high = minimum(reduce_min(x), like(0, x)), maximum(reduce_max(x), like(0, x))
    step = (high - low) / like(255, x)
    scale = where_v2(equal(step, like(0, x)), like(1, x), step)  # of zeros alone
    zero = rint(clip_by_value(-low / scale, 0.0, 255.0))
    return clip_by_value(rint(x / scale) + zero, 0.0, 255.0), scale, zero


def through_8_bits(x: Output) -> Output:
    """The numbers that are left when these are quantised dynamically."""
    rows, scale, zero = _in_8_bits(x)
    return (rows - zero) * scale


# -------------------------------------------------------------------------------- export


@exporter("FakeQuantWithMinMaxArgs", "FakeQuantWithMinMaxVars")
def _write_fake_quantization(export: NodeExport) -> Value:
    """To 8 bits and back, with the range moved so that zero is one of its values."""
    if export.node.type == "FakeQuantWithMinMaxArgs":
        low, high = (float(export.attribute(name)) for name in ("min", "max"))
    else:
        low, high = (float(export.known(i, "the range")) for i in (1, 2))
    if int(export.attribute("num_bits")) != 8 or export.attribute("narrow_range"):
        raise errors.UnimplementedError("ONNX quantises to all values of 8 bits")
    if not low <= 0 <= high or low == high:
        raise errors.UnimplementedError(f"a range to quantise must contain 0, got {low} to {high}")
    scale = np.float32((high - low) / 255)
    zero = np.uint8(np.clip(np.floor(-low / scale + 0.5), 0, 255))
    numbers = export.constant(scale), export.constant(zero)
    small = export.elementwise("QuantizeLinear", export[0], *numbers, dtype=dtypes.uint8)
    return export.elementwise("DequantizeLinear", small, *numbers, dtype=dtypes.float32)
