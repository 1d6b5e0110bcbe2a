"""Convolutions: filters are packed into panels."""

from __future__ import annotations

from typing import Any

from weft_graph.ir.node import Node
from weft_lite.convert.lowered import constant
from weft_lite.convert.packing import panels
from weft_lite.convert.registry import Builder, NotInLiteError, OpKind, rule
from weft_lite.schema.enums import Layout, Padding
from weft_lite.schema.tables import ConvOptions


def conv_options(node: Node, height: int, width: int, channels: int) -> ConvOptions:
    """The options of a convolution; NotInLiteError where its layout is not NHWC."""
    attrs = node.attrs
    if attrs.get("data_format", "NHWC") != "NHWC":
        raise NotInLiteError("lite computes images in the layout NHWC: transpose them")
    strides, dilations = attrs["strides"], attrs["dilations"]
    padding = Padding[attrs["padding"]]
    pads = list(attrs["explicit_paddings"][2:6]) if padding is Padding.EXPLICIT else []
    return ConvOptions(
        stride_h=int(strides[1]),
        stride_w=int(strides[2]),
        dilation_h=int(dilations[1]),
        dilation_w=int(dilations[2]),
        padding=padding,
        pads=[int(pad) for pad in pads],
        kernel_h=height,
        kernel_w=width,
        channels=channels,
    )


@rule("Conv2D")
def conv2d(node: Node, b: Builder) -> None:
    filters: Any = b.require_array(node.inputs[1], "a filter")
    height, width, depth, channels = filters.shape
    options = conv_options(node, height, width, channels)
    if b.value(node.inputs[0]).shape[3] != depth:
        raise NotInLiteError("lite has no convolutions of groups")
    packed = panels(filters.reshape(height * width, depth, channels))
    weights = constant(node.inputs[1].node.name, packed, Layout.PANELS)
    b.emit(OpKind.Conv2D, node, [b.value(node.inputs[0]), weights], options)


@rule("DepthwiseConv2dNative")
def depthwise(node: Node, b: Builder) -> None:
    filters: Any = b.require_array(node.inputs[1], "a filter")
    height, width, depth, multiplier = filters.shape
    weights = constant(node.inputs[1].node.name, filters.reshape(height, width, -1))
    options = conv_options(node, height, width, depth * multiplier)
    b.emit(OpKind.DepthwiseConv2D, node, [b.value(node.inputs[0]), weights], options)


@rule("Conv2DBackpropInput")
def transposed(node: Node, b: Builder) -> None:
    height, width, channels = b.value(node.inputs[1]).shape[:3]
    options = conv_options(node, height, width, channels)
    b.emit(OpKind.Conv2DTranspose, node, b.inputs(node), options)
