"""Convolutions and their gradients.

Constant filters are packed into panels. A filter that changes between invocations, as in
training, is a matrix that multiplies the windows of the images:

    Conv2D(x, f)                     →   Patches(x) @ f
    Conv2DBackpropFilter(x, grad)    →   Patches(x)ᵀ @ grad
    Conv2DBackpropInput(f, grad)     →   PatchesGrad(grad @ fᵀ)
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from weft_graph.ir.node import Node
from weft_lite.convert.errors import NotInLiteError
from weft_lite.convert.layouts import NHWC, emit_image, explicit_pads, image, layout, spatial
from weft_lite.convert.lowered import Value, constant
from weft_lite.convert.packing import panels
from weft_lite.convert.registry import Builder, DataType, OpKind, rule
from weft_lite.schema.enums import Layout, Padding
from weft_lite.schema.tables import (
    BlockOptions,
    ConvOptions,
    ElementwiseOptions,
    MatMulOptions,
    ReduceOptions,
)


def conv_options(node: Node, height: int, width: int, channels: int) -> ConvOptions:
    """Return the options of a convolution."""
    stride_h, stride_w = spatial(node, node.attrs["strides"])
    dilation_h, dilation_w = spatial(node, node.attrs["dilations"])
    padding = Padding[node.attrs["padding"]]
    return ConvOptions(
        stride_h=stride_h,
        stride_w=stride_w,
        dilation_h=dilation_h,
        dilation_w=dilation_w,
        padding=padding,
        pads=explicit_pads(node) if padding is Padding.EXPLICIT else [],
        kernel_h=height,
        kernel_w=width,
        channels=channels,
    )


@rule("Conv2D")
def conv2d(node: Node, b: Builder) -> None:
    """Lower to Conv2D with packed filters, or to Patches(x) @ f if the filters change."""
    height, width, depth, channels = b.value(node.inputs[1]).shape
    options = conv_options(node, height, width, channels)
    x = image(b, node, node.inputs[0])
    if x.shape[3] != depth:
        raise NotInLiteError("lite does not support grouped convolutions")
    filters: Any = b.array(node.inputs[1])
    if filters is None:
        rows = _rows(b, _patches(b, node, x, options), f"{node.name}/rows")
        matrix = _matrix(b, b.value(node.inputs[1]))
        _emit_image_rows(b, node, _multiply(b, node, rows, matrix))
        return
    packed = panels(filters.reshape(height * width, depth, channels))
    weights = constant(node.inputs[1].node.name, packed, Layout.PANELS)
    emit_image(b, OpKind.Conv2D, node, [x, weights], options)


@rule("Conv2DBackpropFilter")
def conv2d_filter(node: Node, b: Builder) -> None:
    """Lower the gradient with respect to the filters to Patches(x)ᵀ @ grad."""
    result = b.result(node.outputs[0])
    x, grad = (image(b, node, node.inputs[i]) for i in (0, 2))
    height, width, _, channels = result.shape
    options = conv_options(node, height, width, channels)
    rows = _rows(b, _patches(b, node, x, options), f"{node.name}/rows")
    grads = _rows(b, grad, f"{node.name}/grads")
    product = _multiply(b, node, rows, grads, transpose_a=True)
    b.add(OpKind.Reshape, [product, _shape(b, result)], [result], None, node.name)


@rule("Conv2DBackpropInput")
def lower_conv_transpose(node: Node, b: Builder) -> None:
    """Lower to Conv2DTranspose or a sub-pixel convolution; to PatchesGrad if filters change."""
    height, width, channels = b.value(node.inputs[1]).shape[:3]
    options = conv_options(node, height, width, channels)
    sizes, filters = b.inputs(node)[:2]
    if layout(node) != NHWC:
        output_shape = b.require_array(node.inputs[0], "the shape of a transposed convolution")
        sizes = b.ints(
            f"{node.name}/sizes",
            output_shape[[0, 2, 3, 1]] if output_shape.size == 4 else output_shape,
        )
    x = image(b, node, node.inputs[2])
    assert filters is not None
    if b.array(node.inputs[1]) is not None:
        if not _emit_subpixels(node, b, x, options):
            emit_image(b, OpKind.Conv2DTranspose, node, [sizes, filters, x], options)
        return
    matrix = _matrix(b, filters)
    product = _multiply(b, node, _rows(b, x, f"{node.name}/rows"), matrix, transpose_b=True)
    patches = _image_of_rows(b, product, x, node)
    emit_image(b, OpKind.PatchesGrad, node, [sizes, patches], options)


def _emit_subpixels(node: Node, b: Builder, x: Value, options: ConvOptions) -> bool:
    """Lower a transposed convolution with stride s to a convolution with s * s times the channels.

        y = Conv2DTranspose(x, f)   →   y = DepthToSpace(Conv2D(x, g), s)

    The result at s * q + p, in the padded image, is the sum of x[q - d] * f[s * d + p] over d. So
    each remainder p is a convolution of its own, and its results are channels (Shi et al. 2016,
    "Real-time single image and video super-resolution").

    Returns: False if sizes are open, strides differ, filters are dilated or pads exceed filters.
    """
    stride, dims = options.stride_h, b.shape_of(node.outputs[0])
    if b.open or options.stride_w != stride or max(options.dilation_h, options.dilation_w) > 1:
        return False
    first = 1 if layout(node) == NHWC else 2
    rows = _Subpixels(options, 0, x.shape[1], dims[first])
    columns = _Subpixels(options, 1, x.shape[2], dims[first + 1])
    if min(*rows.pads, *columns.pads) < 0:
        return False
    filters: Any = b.array(node.inputs[1])
    pads = (
        (0, rows.taps * stride - filters.shape[0]),
        (0, columns.taps * stride - filters.shape[1]),
    )
    filters = np.pad(filters, (*pads, (0, 0), (0, 0)))
    channels, depth = filters.shape[2:]
    filters = filters.reshape(rows.taps, stride, columns.taps, stride, channels, depth)
    filters = filters[::-1, :, ::-1].transpose(0, 2, 5, 1, 3, 4)  # (taps, taps, C, s, s, O)
    packed = panels(np.ascontiguousarray(filters).reshape(rows.taps * columns.taps, depth, -1))
    weights = constant(node.inputs[1].node.name, packed, Layout.PANELS)
    conv = ConvOptions(
        stride_h=1,
        stride_w=1,
        dilation_h=1,
        dilation_w=1,
        padding=Padding.EXPLICIT,
        pads=[*rows.pads, *columns.pads],
        kernel_h=rows.taps,
        kernel_w=columns.taps,
        channels=channels * stride * stride,
    )
    if stride == 1:
        emit_image(b, OpKind.Conv2D, node, [x, weights], conv)
        return True
    shape = (x.shape[0], rows.count, columns.count, channels * stride * stride)
    product = b.new(f"{node.name}/subpixels", "float32", shape)
    b.add(OpKind.Conv2D, [x, weights], [product], conv, node.name)
    cropped = [rows.start, columns.start], list(dims[first : first + 2])
    if cropped == ([0, 0], [rows.count * stride, columns.count * stride]):
        emit_image(b, OpKind.DepthToSpace, node, [product], BlockOptions(stride))
        return True
    uncropped = b.new(
        f"{node.name}/whole",
        "float32",
        (x.shape[0], rows.count * stride, columns.count * stride, channels),
    )
    b.add(OpKind.DepthToSpace, [product], [uncropped], BlockOptions(stride), node.name)
    begin = b.ints(f"{node.name}/begin", [0, *cropped[0], 0])
    size = b.ints(f"{node.name}/size", [x.shape[0], *cropped[1], channels])
    emit_image(b, OpKind.Slice, node, [uncropped, begin, size])
    return True


class _Subpixels:
    """One axis of a transposed convolution as a convolution of the same input.

    Attributes:
      taps: number of taps of the convolution.
      pads: its padding.
      count: number of its results.
      start: position of the first result in the blocks of `stride` results.
    """

    def __init__(self, options: ConvOptions, axis: int, size: int, result_size: int) -> None:
        kernel = options.kernel_w if axis else options.kernel_h
        stride = options.stride_w if axis else options.stride_h
        pad = 0
        if options.padding == Padding.SAME:
            pad = max(0, (size - 1) * stride + kernel - result_size) // 2
        elif options.padding == Padding.EXPLICIT:
            pad = options.pads[2 * axis]
        first, last = pad // stride, (pad + result_size - 1) // stride
        self.taps = -(-kernel // stride)
        self.pads = (self.taps - 1 - first, last - (size - 1))
        self.count = last - first + 1
        self.start = pad - first * stride


@rule("DepthwiseConv2dNative")
def depthwise(node: Node, b: Builder) -> None:
    """Lower to DepthwiseConv2D, or to a sum over patches if the filters change."""
    height, width, depth, multiplier = b.value(node.inputs[1]).shape
    options = conv_options(node, height, width, depth * multiplier)
    x = image(b, node, node.inputs[0])
    filters: Any = b.array(node.inputs[1])
    if filters is None:
        taps = (height * width, depth, multiplier)
        matrix = _reshape(b, b.value(node.inputs[1]), taps, f"{node.name}/taps")
        products = _per_channel(b, node, _patches(b, node, x, options), matrix)
        sums = b.new(f"{node.name}/sums", "float32", (products.shape[0], depth, multiplier))
        _sum(b, products, [1], sums)
        _emit_image_rows(b, node, sums)
        return
    weights = constant(node.inputs[1].node.name, filters.reshape(height, width, -1))
    emit_image(b, OpKind.DepthwiseConv2D, node, [x, weights], options)


@rule("DepthwiseConv2dNativeBackpropFilter")
def depthwise_filter(node: Node, b: Builder) -> None:
    """Sum the products of windows and gradients over all positions."""
    result = b.result(node.outputs[0])
    height, width, depth, multiplier = result.shape
    x, grad = (image(b, node, node.inputs[i]) for i in (0, 2))
    options = conv_options(node, height, width, depth * multiplier)
    grads = _reshape(b, grad, (-1, 1, depth, multiplier), f"{node.name}/grads")
    products = _per_channel(b, node, _patches(b, node, x, options), grads)
    sums = b.new(f"{node.name}/sums", "float32", products.shape[1:])
    _sum(b, products, [0], sums)
    b.add(OpKind.Reshape, [sums, _shape(b, result)], [result], None, node.name)


@rule("DepthwiseConv2dNativeBackpropInput")
def depthwise_input(node: Node, b: Builder) -> None:
    """Sum the products of gradients and filters over the multipliers, then over windows."""
    filters = b.value(node.inputs[1])
    height, width, depth, multiplier = filters.shape
    options = conv_options(node, height, width, depth * multiplier)
    sizes, grad = b.value(node.inputs[0]), image(b, node, node.inputs[2])
    if layout(node) != NHWC:
        output_shape = b.require_array(node.inputs[0], "the shape of a convolution's input")
        sizes = b.ints(f"{node.name}/sizes", output_shape[[0, 2, 3, 1]])
    taps = _reshape(b, filters, (height * width, depth, multiplier), f"{node.name}/taps")
    grads = _reshape(b, grad, (-1, 1, depth, multiplier), f"{node.name}/grads")
    products = b.new(f"{node.name}/products", "float32", (grads.shape[0], *taps.shape))
    b.add(OpKind.Mul, [grads, taps], [products], ElementwiseOptions(), node.name)
    sums = b.new(f"{node.name}/sums", "float32", products.shape[:3])
    _sum(b, products, [3], sums)
    patches = _image_of_rows(b, sums, grad, node)
    emit_image(b, OpKind.PatchesGrad, node, [sizes, patches], options)


def _patches(b: Builder, node: Node, x: Value, options: ConvOptions) -> Value:
    """Return the windows of images, (N, Oh, Ow, Kh * Kw * C)."""
    name = f"{node.name}/patches"
    height, width = (
        _results(size, kernel, stride, dilation, options, axis)
        for axis, (size, kernel, stride, dilation) in enumerate(
            (
                (x.shape[1], options.kernel_h, options.stride_h, options.dilation_h),
                (x.shape[2], options.kernel_w, options.stride_w, options.dilation_w),
            )
        )
    )
    depth = options.kernel_h * options.kernel_w * x.shape[3]
    patches = b.new(name, "float32", (x.shape[0], height, width, depth))
    b.add(OpKind.Patches, [x], [patches], options, name)
    return patches


def _results(
    size: int, kernel: int, stride: int, dilation: int, options: ConvOptions, axis: int
) -> int:
    """Return the number of windows along an axis."""
    if options.padding == Padding.SAME:
        return -(-size // stride)
    pads = sum(options.pads[2 * axis : 2 * axis + 2])
    return max(0, (size + pads - (kernel - 1) * dilation - 1) // stride + 1)


def _per_channel(b: Builder, node: Node, patches: Value, factors: Value) -> Value:
    """Multiply windows, as (positions, taps, C, 1), by factors (..., C, multiplier)."""
    depth, multiplier = factors.shape[-2:]
    rows = _reshape(b, patches, (-1, patches.shape[3] // depth, depth, 1), f"{node.name}/rows")
    products = b.new(f"{node.name}/products", "float32", (*rows.shape[:3], multiplier))
    b.add(OpKind.Mul, [rows, factors], [products], ElementwiseOptions(), node.name)
    return products


def _multiply(
    b: Builder, node: Node, x: Value, y: Value, transpose_a: bool = False, transpose_b: bool = False
) -> Value:
    """Return the product of two matrices."""
    shape = (x.shape[1] if transpose_a else x.shape[0], y.shape[0] if transpose_b else y.shape[1])
    result = b.new(f"{node.name}/product", "float32", shape)
    options = MatMulOptions(transpose_a=transpose_a, transpose_b=transpose_b)
    b.add(OpKind.BatchMatMul, [x, y], [result], options, node.name)
    return result


def _rows(b: Builder, x: Value, name: str) -> Value:
    """Return images as a matrix with a row for each position."""
    return _reshape(b, x, (-1, x.shape[3]), name)


def _matrix(b: Builder, filters: Value) -> Value:
    """Return filters (Kh, Kw, C, O) as a matrix (Kh * Kw * C, O)."""
    return _reshape(b, filters, (-1, filters.shape[3]), f"{filters.name}/matrix")


def _reshape(b: Builder, x: Value, target: tuple[int, ...], name: str) -> Value:
    """Reshape a value; one dimension may be -1."""
    if x.dtype is not DataType.FLOAT32:
        name = x.dtype.name.lower()
        raise NotInLiteError(f"lite does not support filters that change of type {name}")
    known = max(1, abs(math.prod(target)))
    shape = tuple(math.prod(x.shape) // known if size == -1 else size for size in target)
    result = b.new(name, "float32", shape)
    b.add(OpKind.Reshape, [x, b.ints(f"{name}/shape", target)], [result], None, name)
    return result


def _image_of_rows(b: Builder, rows: Value, like: Value, node: Node) -> Value:
    """Reshape a matrix with one row per image position to images of the given size."""
    target = (-1, *like.shape[1:3], math.prod(rows.shape[1:]))
    return _reshape(b, rows, target, f"{node.name}/images")


def _emit_image_rows(b: Builder, node: Node, rows: Value) -> None:
    """Add the op that reshapes a matrix with one row per position to a node's resulting images."""
    first = 1 if layout(node) == NHWC else 2
    dims = b.shape_of(node.outputs[0])
    target = (-1, *dims[first : first + 2], math.prod(rows.shape[1:]))
    emit_image(b, OpKind.Reshape, node, [rows, b.ints(f"{node.name}/shape", target)])


def _shape(b: Builder, value: Value) -> Value:
    return b.ints(f"{value.name}/shape", value.shape)


def _sum(b: Builder, x: Value, axes: list[int], result: Value) -> None:
    """Add the op that sums over some axes."""
    name = result.name
    b.add(OpKind.Sum, [x, b.ints(f"{name}/axes", axes)], [result], ReduceOptions(), name)
