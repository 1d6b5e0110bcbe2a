"""Exact products and convolutions of 8-bit integers.

Each is a call of a function that computes in floats, which represent all sums exactly. If an
integer kernel is available, an integer op replaces the call.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from weft_graph.functions.body import FunctionGraph
from weft_graph.functions.call import add_call
from weft_graph.functions.substitutes import mark
from weft_graph.functions.trace import trace
from weft_graph.ir.builder import constant
from weft_graph.ir.default_graph import get_default_graph
from weft_graph.ir.node import Output
from weft_graph.ops.conv import conv2d, depthwise_conv2d_native, padding_attrs
from weft_graph.ops.shapes import expand_dims, reshape, squeeze
from weft_io.onnx.export_graph import Value
from weft_io.onnx.node_export import NodeExport
from weft_io.onnx.operation import Operation, cast
from weft_io.onnx.registry import exporter, importer
from weft_io.onnx.rules.conv import (
    Images,
    convolution,
    is_fixed_padding_conv,
    split_filter_groups,
    write_slid,
)
from weft_io.onnx.rules.linalg import product
from weft_tensor import dtypes, errors
from weft_tensor.dtypes import DType
from weft_tensor.shape import num_elements

_SMALL: Final = frozenset({dtypes.int8, dtypes.uint8})

_LARGEST: Final = 255
"""The largest magnitude of an 8-bit number minus its zero point."""

_EXACT: Final = 2**24
"""The bound below which float32 represents all integers exactly."""


def _center_numbers(
    operation: Operation,
    value: Output,
    zero: int,
    dtype: DType,
    shape: Sequence[int] = (),
) -> Output:
    """Subtract the zero point and convert to floats.

    Args:
      shape: shape to which a vector of zero points is reshaped.
    """
    result, offset = operation.cast_to_floats(value, dtype), operation.get(zero)
    if offset is None:
        return result
    zero_point = operation.value(zero)
    if zero_point is not None and not zero_point.any():
        return result
    operand = operation.cast_to_floats(offset, dtype)
    return result - _point(operation, operand, zero, shape)


def _point(operation: Operation, value: Output, index: int, shape: Sequence[int]) -> Output:
    """Return a zero point that broadcasts: a vector reshaped to `shape`, or a scalar for ()."""
    if value.dims == ():
        return value
    if value.dims == (1,) or not shape:
        return reshape(value, [])
    return reshape(value, shape) if operation.rank(index) == 1 else value


def _constant_weights(
    operation: Operation, index: int, zero: int, shape: Sequence[int] = ()
) -> np.ndarray[Any, Any] | None:
    """Return constant integer weights minus their zero point as int32."""
    weights, zero_point = operation.value(index), operation.value(zero)
    if weights is None or (zero_point is None and operation.get(zero) is not None):
        return None
    integers = weights.astype(np.int32)
    if zero_point is not None:
        vector = zero_point.ndim == 1 and zero_point.size > 1 and shape
        integers -= zero_point.astype(np.int32).reshape(shape if vector else _squeeze(zero_point))
    return integers


def _squeeze(value: np.ndarray[Any, Any]) -> tuple[int, ...]:
    return () if value.size == 1 else value.shape


def _exact_type(
    operation: Operation, index: int, integers: np.ndarray[Any, Any] | None, depth: Sequence[int]
) -> DType:
    """Return the floating type that represents sums of products with 8-bit weights exactly.

    The bound on the sums follows from the weights if they are known, and otherwise from the number
    of terms. float32 is usually sufficient, float64 always.

    Args:
      depth: the axes that the product sums over.
    """
    if integers is None:
        dims = operation[index].dims
        count = num_elements(None if dims is None else tuple(dims[axis] for axis in depth))
        bound = None if count is None else count * _LARGEST
    else:
        bound = np.abs(integers).sum(tuple(depth), dtype=np.int64).max(initial=0)
    small = bound is not None and bound * _LARGEST < _EXACT
    return dtypes.float32 if small else dtypes.float64


def _zero_point(operation: Operation, index: int, shape: Sequence[int]) -> Output:
    """Return a zero point as int32: a scalar, or a vector in a shape."""
    operand = operation.get(index)
    if operand is None:
        return constant(np.int32(0))
    return cast(_point(operation, operand, index, shape), dtypes.int32)


def _small(integers: np.ndarray[Any, Any] | None) -> Output | None:
    """Return constant weights minus their zero point as int8, if they fit."""
    limits = np.iinfo(np.int8)
    if (
        integers is None
        or integers.min(initial=0) < limits.min
        or integers.max(initial=0) > limits.max
    ):
        return None
    return constant(integers.astype(np.int8))


def _call_function(
    name: str,
    marks: dict[str, Any],
    values: Sequence[Output],
    body: Callable[..., Output],
) -> Output:
    """Call a function that an integer op may replace.

    Args:
      name: name of the function.
      marks: results of `mark`.
      values: the arguments of the call.
      body: the function's computation.
    """

    def trace_body(*inputs: Output) -> list[Output]:
        return [body(*inputs)]

    def arguments(graph: FunctionGraph) -> tuple[list[Output], dict[str, Any]]:
        return [graph.add_input_like(value, value.node.type) for value in values], {}

    graph = get_default_graph()
    with graph.functions.reserve_name(name) as unique:
        function, _ = trace(trace_body, arguments, unique, graph, ordered=False, attrs=marks)
        graph.functions.add(function)
    result: Output = add_call(function, list(values))[1][0]
    return result


# ---------------------------------------------------------------------------- matrices


def exact_product(operation: Operation, first: tuple[int, int], second: tuple[int, int]) -> Output:
    """Return the product of two inputs minus their zero points, as integers in floats.

    Args:
      first, second: indices of an operand and its zero point among the inputs.
    """
    if {operation[index].dtype.base_dtype for index in (first[0], second[0])} <= _SMALL:
        a_zero = _zero_point(operation, first[1], [-1, 1])
        return product_with_weights(operation, operation[first[0]], a_zero, second)
    x, y = (  # floats of 8 bits; a vector has one zero point
        _center_numbers(
            operation, operation[index], zero, dtypes.float32, shape * (operation.rank(index) > 1)
        )
        for (index, zero), shape in ((first, [-1, 1]), (second, [1, -1]))
    )
    return product(x, y)


def product_with_weights(
    operation: Operation, a: Output, a_zero: Output, second: tuple[int, int]
) -> Output:
    """Return the product of `a` and an input, both minus their zero points."""
    vector = operation.rank(second[0]) == 1
    integers = _constant_weights(operation, *second)
    wide = _exact_type(operation, second[0], integers, [0 if vector else -2])
    b, b_zero = _small(integers), constant(np.int32(0))
    if b is None:
        b, b_zero = operation[second[0]], _zero_point(operation, second[1], [1, -1])
    row = a.dims is not None and len(a.dims) == 1
    a, b = expand_dims(a, 0) if row else a, expand_dims(b, -1) if vector else b
    result = integer_product(operation.op, [a, b, a_zero, b_zero], wide)
    added_axes = [axis for axis, item in ((-2, row), (-1, vector)) if item]
    return cast(squeeze(result, added_axes) if added_axes else result, wide)


def integer_product(name: str, values: Sequence[Output], wide: DType) -> Output:
    """Return the product of 8-bit matrices, by a function that `MatMulInteger` may replace.

    Args:
      name: name of the function.
      values: two matrices, and their int32 zero points.
      wide: floating type that represents sums exactly.
    """

    def body(a: Output, b: Output, a_zero: Output, b_zero: Output) -> Output:
        x, y = cast(a, wide) - cast(a_zero, wide), cast(b, wide) - cast(b_zero, wide)
        return cast(product(x, y), dtypes.int32)

    types = [value.dtype.base_dtype for value in values[:2]]
    return _call_function(name, mark("MatMulInteger", Ta=types[0], Tb=types[1]), values, body)


@importer("MatMulInteger")
def _matmul_integer(operation: Operation) -> Output:
    result = exact_product(operation, (0, 2), (1, 3))
    return operation.cast_to_integers(result, dtypes.int32)


# ------------------------------------------------------------------------- convolutions


def exact_convolution(operation: Operation, zero: int, index: int, w_zero: int) -> Output:
    """Return the convolution minus zero points, as integers in floats: (N, ..., C).

    If the weights minus their zero points have 8 bits, a 2-D convolution is a call of a function
    that an integer op may replace; otherwise it is computed in floats.

    Args:
      zero, at, w_zero:
        indices of the weights and both zero points among the inputs.
    """
    rank = operation.rank(index)
    operation.require_rank(rank)
    shape = [-1, *[1] * (rank - 1)]
    integers = _constant_weights(operation, index, w_zero, shape)
    wide = _exact_type(operation, index, integers, range(1, rank))
    point = operation.value(w_zero)
    w = _small(integers)
    if w is None and (operation.get(w_zero) is None or (point is not None and not point.any())):
        w = operation[index]
    x = operation.channels_last()
    if w is not None and is_fixed_padding_conv(operation, w):
        images = _images(operation.op, _zero_point(operation, zero, []), wide)
        return cast(convolution(operation, x, w, images), wide)
    if integers is None:
        w = _center_numbers(operation, operation[index], w_zero, wide, shape)
    else:
        w = constant(integers.astype(wide.numpy))
    return convolution(operation, _center_numbers(operation, x, zero, wide), w)


def _images(name: str, zero: Output, wide: DType) -> Images:
    """Return the convolution functions for 8-bit integers."""

    def convolution_of(op: str, floats: Callable[..., Output]) -> Callable[..., Output]:
        def call(x: Output, w: Output, strides: Any, padding: Any, dilations: Any) -> Output:
            def body(a: Output, b: Output, a_zero: Output) -> Output:
                centred = cast(a, wide) - cast(a_zero, wide)
                result = floats(centred, cast(b, wide), strides, padding, dilations=dilations)
                return cast(result, dtypes.int32)

            types = {"Ta": x.dtype.base_dtype, "Tb": w.dtype.base_dtype}
            windows = {"strides": strides, "dilations": dilations, "data_format": "NHWC"}
            marks = mark(op, **types, **windows, **padding_attrs(padding, "NHWC"))
            return _call_function(name, marks, [x, w, zero], body)

        return call

    return Images(
        convolution_of("Conv2DInteger", conv2d),
        convolution_of("DepthwiseConv2dInteger", depthwise_conv2d_native),
    )


@importer("ConvInteger")
def _conv_integer(operation: Operation) -> Output:
    result = exact_convolution(operation, 2, 1, 3)
    return operation.channels_first(operation.cast_to_integers(result, dtypes.int32))


# -------------------------------------------------------------------------------- export


def _export_zero_point(export: NodeExport, index: int, dtype: DType) -> Value | None:
    """Return a zero point in the type of its operand; None if it is out of range."""
    value = export[index]
    if value.array is not None:
        limits = np.iinfo(dtype.numpy)
        fits = (
            value.array.size == 0
            or limits.min <= value.array.min() <= value.array.max() <= limits.max
        )
        return export.cast(value, dtype) if fits else None
    producer = value.producer
    source = producer.inputs[0] if producer is not None and producer.op == "Cast" else None
    return source if source is not None and source.dtype is dtype else None


@exporter("MatMulInteger")
def _write_matmul_integer(export: NodeExport) -> Value:
    """Export in 32 bits if ONNX's op does not support the zero points' shapes or values."""
    a_zero, b_zero = (_export_zero_point(export, i + 2, export[i].dtype) for i in (0, 1))
    a_dims, b_dims, b_sizes = (export.node.inputs[i].dims for i in (2, 3, 1))
    if a_dims == () and a_zero is not None and b_zero is not None and b_dims is not None:
        if b_dims == ():
            return export.add(
                "MatMulInteger", export[0], export[1], a_zero, b_zero, dtype=dtypes.int32
            )
        if len(b_dims) == 2 and b_dims[0] == 1 and b_sizes is not None and b_dims[1] == b_sizes[-1]:
            columns = export.reshape(b_zero, [-1])
            return export.add(
                "MatMulInteger", export[0], export[1], a_zero, columns, dtype=dtypes.int32
            )
    a, b = (export.add("Sub", export.cast(export[i], dtypes.int32), export[i + 2]) for i in (0, 1))
    return export.add("MatMul", a, b)


@exporter("Conv2DInteger", "DepthwiseConv2dInteger")
def _write_conv_integer(export: NodeExport) -> Value:
    zero = _export_zero_point(export, 2, export[0].dtype)
    if zero is None:
        raise errors.UnimplementedError(
            f"the zero point must be known to be one of {export[0].dtype.name}"
        )
    return write_slid(export, *split_filter_groups(export), "ConvInteger", zero)
