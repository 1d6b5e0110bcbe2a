"""Elementwise functions, reductions, pooling, and type conversions."""

from __future__ import annotations

from typing import Final

import numpy as np

from weft_graph.ir.builder import convert_to_tensor, create
from weft_graph.ir.node import Output
from weft_lite.convert.lowered import NAMES
from weft_lite.convert.reading.reader import Reader, node, reads
from weft_lite.schema import tables as t
from weft_lite.schema.enums import DataType, OpKind, Padding
from weft_tensor import dtypes

_UNCHANGED_KINDS: Final = (
    "Abs Neg Sign Square Sqrt Rsqrt Exp Expm1 Log Log1p Sin Cos Tan Asin Acos Atan Sinh Cosh Asinh "
    "Acosh Atanh Tanh Sigmoid Relu Relu6 Elu Selu Softplus Softsign Erf Erfc Floor Ceil Rint "
    "Reciprocal IsNan IsInf IsFinite LogicalNot Add Sub Mul Maximum Minimum Pow SquaredDifference "
    "Atan2 FloorDiv FloorMod TruncateDiv TruncateMod Less LessEqual Greater GreaterEqual Equal "
    "NotEqual LogicalAnd LogicalOr LogSoftmax"
)


@reads(*[OpKind[name] for name in _UNCHANGED_KINDS.split()])
def _elementwise(r: Reader, op: t.Op) -> Output:
    return r.result(op, node(OpKind(op.kind).name, *map(r.real, op.inputs)))


@reads(OpKind.Div)
def _div(r: Reader, op: t.Op) -> Output:
    x, y = map(r.real, op.inputs)
    return r.result(op, node("TruncateDiv" if x.dtype.is_integer else "RealDiv", x, y))


@reads(OpKind.Lookup)
def _lookup(r: Reader, op: t.Op) -> Output:
    is_int8 = r.tensor(op.inputs[0]).dtype == DataType.INT8
    numbers = create("Cast", [r.stored(op.inputs[0])], {"DstT": dtypes.int32}).outputs[0]
    index = node("Add", numbers, np.int32(128 if is_int8 else 0))
    return node("Gather", r.stored(op.inputs[1]), index)


@reads(OpKind.LeakyRelu)
def _leaky(r: Reader, op: t.Op) -> Output:
    assert isinstance(op.options, t.ElementwiseOptions)
    return r.result(op, node("LeakyRelu", r.real(op.inputs[0]), alpha=op.options.alpha))


@reads(OpKind.Silu)
def _silu(r: Reader, op: t.Op) -> Output:
    x = r.real(op.inputs[0])
    return r.result(op, node("Mul", x, node("Sigmoid", x)))


@reads(OpKind.HardSwish)
def _hard_swish(r: Reader, op: t.Op) -> Output:
    x = r.real(op.inputs[0])
    sixth = node("Mul", node("Relu6", node("Add", x, np.float32(3))), np.float32(1 / 6))
    return r.result(op, node("Mul", x, sixth))


@reads(OpKind.Gelu)
def _gelu(r: Reader, op: t.Op) -> Output:
    x = r.real(op.inputs[0])
    assert isinstance(op.options, t.ElementwiseOptions)
    if op.options.exact:
        inner = node("Erf", node("Mul", x, np.float32(np.sqrt(0.5))))
    else:
        cube = node("Mul", node("Mul", node("Square", x), x), np.float32(0.044715))
        inner = node("Tanh", node("Mul", node("Add", x, cube), np.float32(np.sqrt(2 / np.pi))))
    half = node("Mul", x, np.float32(0.5))
    return r.result(op, node("Mul", half, node("Add", inner, np.float32(1))))


@reads(OpKind.Select)
def _select(r: Reader, op: t.Op) -> Output:
    return r.result(op, node("SelectV2", *map(r.real, op.inputs)))


@reads(OpKind.Cast)
def _cast(r: Reader, op: t.Op) -> Output:
    dtype = dtypes.as_dtype(NAMES[DataType(r.tensor(op.outputs[0]).dtype)])
    if r.is_constant(op.inputs[0]):
        return convert_to_tensor(r.array(op.inputs[0]).astype(dtype.as_numpy_dtype))
    return node("Cast", r.stored(op.inputs[0]), DstT=dtype)


@reads(OpKind.Quantize, OpKind.Dequantize, OpKind.Copy)
def _requantize(r: Reader, op: t.Op) -> Output:
    if r.is_constant(op.inputs[0]) and op.kind == OpKind.Dequantize:
        real_array = r.made[op.outputs[0]] = r.real_array(op.inputs[0])
        return convert_to_tensor(real_array)
    return r.quantized(op.outputs[0], r.real(op.inputs[0]))


@reads(OpKind.Softmax)
def _softmax(r: Reader, op: t.Op) -> Output:
    beta = getattr(op.options, "beta", 1.0)
    x = r.real(op.inputs[0])
    return r.result(op, node("Softmax", x if beta == 1.0 else node("Mul", x, np.float32(beta))))


@reads(OpKind.LayerNorm)
def _layer_norm(r: Reader, op: t.Op) -> Output:
    assert isinstance(op.options, t.AxisOptions)
    x, last = r.real(op.inputs[0]), np.array([-1], np.int32)
    centred = node("Sub", x, node("Mean", x, last, keep_dims=True))
    variance = node("Mean", node("Square", centred), last, keep_dims=True)
    factor = node("Rsqrt", node("Add", variance, np.float32(op.options.epsilon)))
    result = node("Mul", centred, factor)
    for index, name in ((1, "Mul"), (2, "Add")):
        if r.has(op, index):
            result = node(name, result, r.real(op.inputs[index]))
    return r.result(op, result)


@reads(OpKind.L2Normalize)
def _l2(r: Reader, op: t.Op) -> Output:
    assert isinstance(op.options, t.AxisOptions)
    x, last = r.real(op.inputs[0]), np.array([-1], np.int32)
    total = node("Sum", node("Square", x), last, keep_dims=True)
    minimum = np.float32(op.options.epsilon)
    return r.result(op, node("Mul", x, node("Rsqrt", node("Maximum", total, minimum))))


@reads(OpKind.Sum, OpKind.Mean, OpKind.Max, OpKind.Min, OpKind.Prod, OpKind.All, OpKind.Any)
def _reduce(r: Reader, op: t.Op) -> Output:
    keep = bool(getattr(op.options, "keep_dims", 0))
    result = node(
        OpKind(op.kind).name, r.real(op.inputs[0]), r.stored(op.inputs[1]), keep_dims=keep
    )
    return r.result(op, result)


@reads(OpKind.ArgMax, OpKind.ArgMin)
def _arg(r: Reader, op: t.Op) -> Output:
    dtype = dtypes.as_dtype(NAMES[DataType(r.tensor(op.outputs[0]).dtype)])
    return node(
        OpKind(op.kind).name, r.stored(op.inputs[0]), r.stored(op.inputs[1]), output_type=dtype
    )


@reads(OpKind.MaxPool, OpKind.AvgPool, OpKind.MaxPoolGrad, OpKind.AvgPoolGrad)
def _pool(r: Reader, op: t.Op) -> Output:
    options = op.options
    assert isinstance(options, t.PoolOptions)
    attrs = {
        "ksize": [1, options.window_h, options.window_w, 1],
        "strides": [1, options.stride_h, options.stride_w, 1],
        "padding": Padding(options.padding).name,
    }
    if options.padding == Padding.EXPLICIT:
        attrs["explicit_paddings"] = [0, 0, *options.pads, 0, 0]
    operands = map(r.real, op.inputs)
    return r.result(op, node(OpKind(op.kind).name, *operands, **attrs))
