"""Convolutions, whose filters are packed into panels."""

from __future__ import annotations

from typing import Any

from weft_graph.ir.node import Node
from weft_lite.convert.errors import NotInLiteError
from weft_lite.convert.layouts import NHWC, emit_image, explicit_pads, image, layout, spatial
from weft_lite.convert.lowered import constant
from weft_lite.convert.packing import panels
from weft_lite.convert.registry import Builder, OpKind, rule
from weft_lite.schema.enums import Layout, Padding
from weft_lite.schema.tables import ConvOptions


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
    filters: Any = b.require_array(node.inputs[1], "a filter")
    height, width, depth, channels = filters.shape
    options = conv_options(node, height, width, channels)
    x = image(b, node, node.inputs[0])
    if x.shape[3] != depth:
        raise NotInLiteError("lite does not support grouped convolutions")
    packed = panels(filters.reshape(height * width, depth, channels))
    weights = constant(node.inputs[1].node.name, packed, Layout.PANELS)
    emit_image(b, OpKind.Conv2D, node, [x, weights], options)


@rule("DepthwiseConv2dNative")
def depthwise(node: Node, b: Builder) -> None:
    filters: Any = b.require_array(node.inputs[1], "a filter")
    height, width, depth, multiplier = filters.shape
    weights = constant(node.inputs[1].node.name, filters.reshape(height, width, -1))
    options = conv_options(node, height, width, depth * multiplier)
    x = image(b, node, node.inputs[0])
    emit_image(b, OpKind.DepthwiseConv2D, node, [x, weights], options)


@rule("Conv2DBackpropInput")
def transposed(node: Node, b: Builder) -> None:
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
    emit_image(b, OpKind.Conv2DTranspose, node, [sizes, filters, x], options)
