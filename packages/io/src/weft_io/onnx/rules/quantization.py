"""Numbers stored as small integers, and products of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from weft_graph.functions.body import FunctionGraph
from weft_graph.functions.call import add_call
from weft_graph.functions.substitutes import mark
from weft_graph.functions.trace import trace
from weft_graph.ir.builder import constant
from weft_graph.ir.default_graph import get_default_graph
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
from weft_io.onnx.rules.array import converted, shape64
from weft_io.onnx.rules.conv import convolution
from weft_io.onnx.rules.linalg import product
from weft_tensor import dtypes, errors
from weft_tensor.dtypes import DType
from weft_tensor.shape import num_elements


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
        block = minimum(block, shape64(x)[axis])  # what reaches further says nothing more
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
    if target.is_floating and not operation.attribute("saturate", 1):
        return converted(rows, target.base_dtype, saturate=False)
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


_LARGEST: Final = 255
"""Of numbers of 8 bits without their zero point."""

_EXACT: Final = 2**24
"""Below it float32 has all integers."""


def _centred(
    operation: Operation,
    value: Output,
    zero: int,
    dtype: DType,
    shape: Sequence[int] = (),
) -> Output:
    """Integers without their zero point, as floats.

    Args:
      shape: of the zero point where it is a vector.
    """
    found, offset = operation.in_floats(value, dtype), operation.get(zero)
    if offset is None:
        return found
    known = operation.value(zero)
    if known is not None and not known.any():
        return found
    given = operation.in_floats(offset, dtype)
    if given.dims == (1,):
        given = reshape(given, [])
    elif len(given.dims or ()) == 1 and shape:
        given = reshape(given, shape)
    return found - given


def weights(
    operation: Operation, at: int, zero: int, depth: Sequence[int], shape: Sequence[int] = ()
) -> Output:
    """Integer weights without their zero point, as floats in which products with 8 bits are exact.

    There is a fast product of floats, and none of integers. All sums of a product stay below that
    of its largest terms, which known weights tell, and else the number of terms: mostly float32
    has them all, and float64 has them always.

    Args:
      depth: the axes that the product sums over.
      shape: of the zero point where it is a vector.
    """
    whole = _known_weights(operation, at, zero, shape)
    dtype = _exact_type(operation, at, whole, depth)
    if whole is None:
        return _centred(operation, operation[at], zero, dtype, shape)
    return constant(whole.astype(dtype.numpy))


def _known_weights(
    operation: Operation, at: int, zero: int, shape: Sequence[int] = ()
) -> np.ndarray[Any, Any] | None:
    """Integer weights without their zero point as int32, where both are known."""
    known, offset = operation.value(at), operation.value(zero)
    if known is None or (offset is None and operation.get(zero) is not None):
        return None
    whole = known.astype(np.int32)
    if offset is not None:
        vector = offset.ndim == 1 and offset.size > 1 and shape
        whole -= offset.astype(np.int32).reshape(shape if vector else _squeezed(offset))
    return whole


def _exact_type(
    operation: Operation, at: int, whole: np.ndarray[Any, Any] | None, depth: Sequence[int]
) -> DType:
    """Floats in which sums of products of weights with 8 bits are exact."""
    if whole is None:
        dims = operation[at].dims
        count = num_elements(None if dims is None else tuple(dims[axis] for axis in depth))
        most = None if count is None else count * _LARGEST
    else:
        most = np.abs(whole).sum(tuple(depth), dtype=np.int64).max(initial=0)
    small = most is not None and most * _LARGEST < _EXACT
    return dtypes.float32 if small else dtypes.float64


def _squeezed(value: np.ndarray[Any, Any]) -> tuple[int, ...]:
    return () if value.size == 1 else value.shape


@importer("MatMulInteger")
def _matmul_integer(operation: Operation) -> Output:
    found = exact_product(operation, (0, 2), (1, 3))
    return operation.in_integers(found, dtypes.int32)


def exact_product(operation: Operation, first: tuple[int, int], second: tuple[int, int]) -> Output:
    """The product of two inputs without their zero points, as whole numbers in floats."""
    pair = [operation[at].dtype.base_dtype for at in (first[0], second[0])]
    ranks = operation.rank(first[0]), operation.rank(second[0])
    if set(pair) <= {dtypes.int8, dtypes.uint8} and min(ranks) > 1:
        return _called(operation, first, second)
    y = weights(operation, *second, [-2] if ranks[1] > 1 else [0])
    x = _centred(operation, operation[first[0]], first[1], y.dtype, [-1, 1])
    return product(x, y)


def _called(operation: Operation, first: tuple[int, int], second: tuple[int, int]) -> Output:
    """The product by a function whose place the op `MatMulInteger` may take."""
    a, a_zero = operation[first[0]], _zero_point(operation, first[1], [-1, 1])
    whole = _known_weights(operation, *second)
    wide = _exact_type(operation, second[0], whole, [-2])
    b, b_zero = _small_weights(operation, *second, whole)
    return cast(integer_product(operation.op, [a, b, a_zero, b_zero], wide), wide)


def integer_product(name: str, values: Sequence[Output], wide: DType) -> Output:
    """The product of matrices of 8 bits, by a function whose place `MatMulInteger` may take.

    Args:
      name: of the function.
      values: two matrices, and what stands for 0 in each, of int32.
      wide: floats in which sums are exact.
    """

    def body(a: Output, b: Output, a_zero: Output, b_zero: Output) -> list[Output]:
        x, y = cast(a, wide) - cast(a_zero, wide), cast(b, wide) - cast(b_zero, wide)
        return [cast(product(x, y), dtypes.int32)]

    def arguments(graph: FunctionGraph) -> tuple[list[Output], dict[str, Any]]:
        return [graph.add_input_like(value, value.node.type) for value in values], {}

    types = [value.dtype.base_dtype for value in values[:2]]
    attrs = mark("MatMulInteger", Ta=types[0], Tb=types[1])
    graph = get_default_graph()
    with graph.functions.reserved(name) as unique:
        function, _ = trace(body, arguments, unique, graph, ordered=False, attrs=attrs)
        graph.functions.add(function)
    found: Output = add_call(function, list(values))[1][0]
    return found


def _zero_point(operation: Operation, at: int, shape: Sequence[int]) -> Output:
    """A zero point of int32: one, or a vector in a shape."""
    given = operation.get(at)
    if given is None:
        return constant(np.int32(0))
    if given.dims == (1,):
        given = reshape(given, [])
    elif len(given.dims or ()) == 1:
        given = reshape(given, shape)
    return cast(given, dtypes.int32)


def _small_weights(
    operation: Operation, at: int, zero: int, whole: np.ndarray[Any, Any] | None
) -> tuple[Output, Output]:
    """Weights and their zero point; known ones without it where they are int8 then."""
    limits = np.iinfo(np.int8)
    if (
        whole is not None
        and limits.min <= whole.min(initial=0) <= whole.max(initial=0) <= limits.max
    ):
        return constant(whole.astype(np.int8)), constant(np.int32(0))
    return operation[at], _zero_point(operation, zero, [1, -1])


@importer("QLinearMatMul")
def _q_linear_matmul(operation: Operation) -> Output:
    found = cast(exact_product(operation, (0, 2), (3, 5)), dtypes.float32)
    scale = cast(operation[1], dtypes.float32)
    if len(scale.dims or ()) == 1 and scale.dims != (1,):
        scale = reshape(scale, [-1, 1])
    return requantized(found, scale * cast(operation[4], dtypes.float32), operation, 6)


def requantized(found: Output, scale: Output, operation: Operation, at: int) -> Output:
    """Products as small integers, of the scale and zero point in inputs `at` and after."""
    zero = operation[at + 1]
    rows = rint(found * (scale / cast(operation[at], found.dtype)))
    return saturated(rows + cast(zero, found.dtype), zero.dtype.base_dtype)


def _exact_convolution(operation: Operation, zero: int, at: int, w_zero: int) -> Output:
    """The convolution without zero points, as whole numbers in floats: (N, ..., C)."""
    rank = operation.rank(at)
    operation.of_rank(rank)
    w = weights(operation, at, w_zero, range(1, rank), [-1, *[1] * (rank - 1)])
    return convolution(operation, _centred(operation, operation.channels_last(), zero, w.dtype), w)


@importer("ConvInteger")
def _conv_integer(operation: Operation) -> Output:
    found = _exact_convolution(operation, 2, 1, 3)
    return operation.channels_first(operation.in_integers(found, dtypes.int32))


@importer("QLinearConv")
def _q_linear_conv(operation: Operation) -> Output:
    found, bias = _exact_convolution(operation, 2, 3, 5), operation.get(8)
    if bias is not None:
        found = found + cast(bias, found.dtype)
    scale = cast(operation[1], found.dtype) * cast(operation[4], found.dtype)
    return operation.channels_first(requantized(found, scale, operation, 6))


@importer("DynamicQuantizeLinear")
def _dynamic_quantize(operation: Operation) -> list[Output]:
    x, order = (operation[0], []) if operation[0].dims is None else operation.plain()
    rows, scale, zero = in_8_bits(x)
    found, point = (operation.in_integers(each, dtypes.uint8) for each in (rows, zero))
    return [operation.transposed(found, order), scale, point]


def in_8_bits(x: Output) -> tuple[Output, Output, Output]:
    """What stands for numbers in 8 bits, still as floats, and the scale and zero point for it."""
    low, high = minimum(reduce_min(x), like(0, x)), maximum(reduce_max(x), like(0, x))
    step = (high - low) / like(255, x)
    scale = where_v2(equal(step, like(0, x)), like(1, x), step)  # of zeros alone
    zero = rint(clip_by_value(-low / scale, 0.0, 255.0))
    return clip_by_value(rint(x / scale) + zero, 0.0, 255.0), scale, zero


def through_8_bits(x: Output) -> Output:
    """The numbers that are left when these are quantised dynamically."""
    rows, scale, zero = in_8_bits(x)
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


@exporter("MatMulInteger")
def _write_matmul_integer(export: NodeExport) -> Value:
    """Of 32 bits, since ONNX's own op takes zero points of fewer shapes."""
    a, b = (export.add("Sub", export.cast(export[i], dtypes.int32), export[i + 2]) for i in (0, 1))
    return export.add("MatMul", a, b)
