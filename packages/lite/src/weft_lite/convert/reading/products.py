"""Products, convolutions and recurrent cells."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from weft_graph.ir.builder import convert_to_tensor, create
from weft_graph.ir.node import Output
from weft_lite.convert.lowered import Array
from weft_lite.convert.packing import PANEL, unpack_panels
from weft_lite.convert.reading.reader import Reader, activation_of, node, reads
from weft_lite.schema import tables as t
from weft_lite.schema.enums import Activation, Layout, OpKind, Padding
from weft_tensor import dtypes
from weft_tensor.dtypes import DType


@reads(OpKind.Conv2D, OpKind.DepthwiseConv2D)
def _conv(r: Reader, op: t.Op) -> Output:
    options = op.options
    assert isinstance(options, t.ConvOptions)
    x_tensor = r.tensor(op.inputs[0])
    depth, size = x_tensor.shape[3], (options.kernel_h, options.kernel_w)
    if op.kind == OpKind.Conv2D:
        filters = _matrix(r, op.inputs[1], depth, options.channels)
        filters = filters.reshape(*size, depth, options.channels)
    else:
        filters = r.array(op.inputs[1]).reshape(*size, depth, -1)
    attrs = _windows(options)
    name = "Conv2D" if op.kind == OpKind.Conv2D else "DepthwiseConv2dNative"
    axes = (0, 1, 2) if op.kind == OpKind.Conv2D else (0, 1)
    of_bytes = "Conv2DInteger" if op.kind == OpKind.Conv2D else "DepthwiseConv2dInteger"
    return _product(
        r,
        op,
        filters,
        axes,
        lambda x, w: node(name, x, w, **attrs),
        lambda x, w, zero: node(of_bytes, x, w, zero, **attrs),
    )


@reads(OpKind.Conv2DTranspose)
def _transpose(r: Reader, op: t.Op) -> Output:
    assert isinstance(op.options, t.ConvOptions)
    operands = [r.stored(op.inputs[0]), r.real(op.inputs[1]), r.real(op.inputs[2])]
    result = node("Conv2DBackpropInput", *operands, **_windows(op.options))
    return r.result(op, node("BiasAdd", result, r.real(op.inputs[3])) if r.has(op, 3) else result)


@reads(OpKind.Patches)
def _patches(r: Reader, op: t.Op) -> Output:
    options, x = op.options, r.real(op.inputs[0])
    assert isinstance(options, t.ConvOptions)
    attrs = _windows(options)
    if pads := attrs.pop("explicit_paddings", None):
        x = node("Pad", x, np.reshape(pads, (4, 2)).astype(np.int32))
        attrs["padding"] = "VALID"
    attrs["rates"] = attrs.pop("dilations")
    attrs["ksizes"] = [1, options.kernel_h, options.kernel_w, 1]
    return r.result(op, node("ExtractImagePatches", x, **attrs))


@reads(OpKind.PatchesGrad)
def _patches_grad(r: Reader, op: t.Op) -> Output:
    """Read as the transposed convolution with filters that have a single one."""
    options, patches = op.options, r.real(op.inputs[1])
    assert isinstance(options, t.ConvOptions)
    depth = r.tensor(op.inputs[1]).shape[3]
    shape = options.kernel_h, options.kernel_w, -1, depth
    filters = np.eye(depth, dtype=np.float32).reshape(shape)
    operands = [r.stored(op.inputs[0]), filters, patches]
    return r.result(op, node("Conv2DBackpropInput", *operands, **_windows(options)))


def _windows(options: t.ConvOptions) -> dict[str, Any]:
    """Return the attributes of a convolution."""
    attrs: dict[str, Any] = {
        "strides": [1, options.stride_h or 1, options.stride_w or 1, 1],
        "dilations": [1, options.dilation_h or 1, options.dilation_w or 1, 1],
        "padding": Padding(options.padding).name,
    }
    if options.padding == Padding.EXPLICIT:
        attrs["explicit_paddings"] = [0, 0, *options.pads, 0, 0]
    return attrs


@reads(OpKind.FullyConnected)
def _dense(r: Reader, op: t.Op) -> Output:
    options = op.options
    assert isinstance(options, t.MatMulOptions)
    shape = r.tensor(op.inputs[0]).shape
    matrix = _matrix(r, op.inputs[1], shape[-1], options.columns)[0]

    def multiply(x: Output, w: Any, zero: Any = None) -> Output:
        rows = node("Reshape", x, np.array([-1, shape[-1]], np.int32)) if len(shape) != 2 else x
        result = node("MatMul", rows, w) if zero is None else _matmul_integer(rows, w, zero)
        if len(shape) == 2:
            return result
        sizes = node("Shape", x, out_type=dtypes.int32)
        leading = node(
            "Slice", sizes, np.array([0], np.int32), np.array([len(shape) - 1], np.int32)
        )
        width = np.array([matrix.shape[1]], np.int32)
        return node(
            "Reshape", result, node("ConcatV2", [leading, convert_to_tensor(width)], np.int32(0))
        )

    return _product(r, op, matrix, (0,), multiply, multiply)


def _matrix(r: Reader, number: int, depth: int, columns: int) -> Array:
    """Return weights as (taps, depth, columns), unpacked from the kernels' panels."""
    result, layout = r.array(number), Layout(r.tensor(number).layout)
    if layout is Layout.PLAIN:
        return result.reshape(1, *result.shape)
    if layout is Layout.PANELS4:
        result = result.transpose(0, 1, 2, 4, 3)
        result = result.reshape(*result.shape[:2], -1, PANEL)
    return unpack_panels(result, columns)[:, :depth]


def _product(
    r: Reader,
    op: t.Op,
    weights: Array,
    axes: tuple[int, ...],
    multiply: Callable[..., Output],
    multiply_bytes: Callable[..., Output],
) -> Output:
    """Return a product of real numbers, or of integers if the operands are quantized.

    Args:
      axes: the axes of the weights to sum over.
      multiply: function for the product of real numbers and weights.
      multiply_bytes: function for the product of int8 numbers and int8 weights with a zero point.
    """
    x, out = r.tensor(op.inputs[0]), r.tensor(op.outputs[0])
    bias = r.array(op.inputs[2]) if r.has(op, 2) else None
    if r.has(op, 3):  # images of bytes, each with a scale
        q = r.tensor(op.inputs[1]).quantization
        step = node("Reshape", r.stored(op.inputs[3]), np.array([-1, 1, 1, 1], np.int32))
        sums = multiply_bytes(r.stored(op.inputs[0]), weights, np.int32(0))
        real = _real(sums, step, q.scales if q else ())
        return r.result(op, real if bias is None else node("BiasAdd", real, bias))
    if x.quantization is None or not x.quantization.scales:
        q, stored_input = r.tensor(op.inputs[1]).quantization, r.stored(op.inputs[0])
        if q is None or not q.scales:
            real = multiply(stored_input, weights.astype(np.float32))
        else:  # a scale for each column
            real = _multiply_int8(stored_input, weights, q.scales, multiply_bytes)
        return r.result(
            op, real if bias is None else node("BiasAdd", real, bias.astype(np.float32))
        )
    quantization, after = x.quantization, out.quantization
    assert quantization is not None and after is not None
    zero = quantization.zero_points[0] if quantization.zero_points else 0
    # The file's bias has the zero point in it.
    sums = weights.astype(np.int64).sum(axes).reshape(-1)
    more = None if bias is None else bias.astype(np.int64) + zero * sums
    stored_input = r.stored(op.inputs[0])
    if stored_input.dtype is dtypes.int8:
        real = multiply_bytes(stored_input, weights, np.int32(zero))
        real = real if more is None else node("BiasAdd", real, more.astype(np.int32))
        real = _cast(real, dtypes.float32)
    else:
        plain = node("Sub", _cast(stored_input, dtypes.float32), np.float32(zero))
        real = multiply(plain, weights.astype(np.float32))
        real = real if more is None else node("BiasAdd", real, more.astype(np.float32))
    filters = r.tensor(op.inputs[1]).quantization
    assert filters is not None
    factor = np.float32(quantization.scales[0]) / np.float32(after.scales[0])
    scaled = node("Mul", real, np.array(filters.scales, np.float32) * factor)
    zero = after.zero_points[0] if after.zero_points else 0
    limits = {Activation.NONE: (-np.inf, np.inf), Activation.RELU: (0, np.inf),
              Activation.RELU6: (0, 6), Activation.RELU_N1_TO_1: (-1, 1)}  # fmt: skip
    ends = [
        float(np.rint(np.float32(end) / np.float32(after.scales[0]) + np.float32(zero))) - zero
        for end in limits[activation_of(op)]
    ]
    return r.rounded(out, scaled, *ends)


def _multiply_int8(
    x: Output, weights: Array, scales: Sequence[float], multiply: Callable[..., Output]
) -> Output:
    """Multiply real rows by int8 weights: each row is quantized with its own scale.

    Args:
      multiply: function for the product of int8 numbers and int8 weights with a zero point.
    """
    rows, step = _quantize_rows(x, [-1])
    return _real(multiply(rows, weights, np.int32(0)), step, scales)


def _quantize_rows(x: Output, axes: Sequence[int]) -> tuple[Output, Output]:
    """Quantize real numbers to int8, with a scale for each index of the other axes."""
    limit = node("Max", node("Abs", x), np.array(axes, np.int32), keep_dims=True)
    step = node("Div", limit, np.float32(127))
    tiny = node("Less", step, np.finfo(np.float32).tiny)
    step = node("SelectV2", tiny, np.float32(1), step)  # so small that int8 numbers are zeros
    scaled = node("Rint", node("Mul", x, node("Div", np.float32(1), step)))
    cut = node("Minimum", node("Maximum", scaled, np.float32(-128)), np.float32(127))
    return _cast(cut, dtypes.int8), step


def _real(sums: Output, step: Output, scales: Sequence[float]) -> Output:
    """Dequantize sums of products of int8 numbers, with a scale per column."""
    factors = node("Mul", step, np.array(scales, np.float32))
    return node("Mul", _cast(sums, dtypes.float32), factors)


@reads(OpKind.DynamicQuantize)
def _images(r: Reader, op: t.Op) -> list[Output]:
    """Quantize images to int8, with a scale for each image."""
    x = r.stored(op.inputs[0])
    result, step = _quantize_rows(x, range(1, len(r.tensor(op.inputs[0]).shape)))
    return [result, node("Reshape", step, np.array([-1], np.int32))]


def _cast(x: Output, dtype: DType) -> Output:
    return create("Cast", [x], {"DstT": dtype}).outputs[0]


@reads(OpKind.BatchMatMul)
def _matmul(r: Reader, op: t.Op) -> Output:
    options = op.options
    left = bool(getattr(options, "transpose_a", 0))
    right = bool(getattr(options, "transpose_b", 0))
    a, b = r.real(op.inputs[0]), r.real(op.inputs[1])
    return r.result(op, node("BatchMatMulV2", a, b, adj_x=left, adj_y=right))


@reads(OpKind.LstmCell)
def _lstm(r: Reader, op: t.Op) -> list[Output]:
    x, c, h = (r.real(number) for number in op.inputs[:3])
    options = op.options
    assert isinstance(options, t.CellOptions)
    gates = _gates(r, op, [x, h], 3, 4)
    entry, new, forget, leave = create(
        "Split", [convert_to_tensor(np.int32(1)), gates], {"num_split": 4}
    ).outputs
    forget_gate = node("Sigmoid", node("Add", forget, np.float32(options.forget_bias)))
    state = node(
        "Add", node("Mul", forget_gate, c), node("Mul", node("Sigmoid", entry), node("Tanh", new))
    )
    if options.cell_clip:
        clip = np.float32(options.cell_clip)
        state = node("Minimum", node("Maximum", state, -clip), clip)
    return [state, node("Mul", node("Sigmoid", leave), node("Tanh", state))]


@reads(OpKind.GruCell)
def _gru(r: Reader, op: t.Op) -> Output:
    x, h = (r.real(number) for number in op.inputs[:2])
    gates = node("Sigmoid", _gates(r, op, [x, h], 2, 3))
    halves = create("Split", [convert_to_tensor(np.int32(1)), gates], {"num_split": 2}).outputs
    reset, update = halves
    fresh = node("Tanh", _gates(r, op, [x, node("Mul", reset, h)], 4, 5))
    remaining = node("Mul", node("Sub", np.float32(1), update), fresh)
    return node("Add", node("Mul", update, h), remaining)


def _gates(r: Reader, op: t.Op, parts: list[Output], weights: int, bias: int) -> Output:
    """Multiply input and state by weights; int8 weights are padded to multiples of 4 rows."""
    first, second = (int(part.shape[1]) for part in parts)
    number = op.inputs[weights]
    fours = Layout(r.tensor(number).layout) is Layout.PANELS4
    gap = -first % 4 if fours else 0
    columns = r.tensor(op.outputs[0]).shape[1] * {2: 2, 3: 4, 4: 1}[weights]
    matrix = _matrix(r, number, first + gap + second, columns)[0]
    halves = matrix[:first], matrix[first + gap :]
    q = r.tensor(number).quantization
    if q is not None and q.scales:
        result = node(
            "Add",
            *[
                _multiply_int8(part, half, q.scales, _matmul_integer)
                for part, half in zip(parts, halves, strict=True)
            ],
        )
    else:
        rows = np.concatenate(halves).astype(np.float32)
        result = node("MatMul", node("ConcatV2", parts, np.int32(1)), rows)
    return node("BiasAdd", result, r.array(op.inputs[bias])) if r.has(op, bias) else result


def _matmul_integer(x: Output, weights: Array, zero: Any) -> Output:
    return node("MatMulInteger", x, weights, zero, np.int32(0))
