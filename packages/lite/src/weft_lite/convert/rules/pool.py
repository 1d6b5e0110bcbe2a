"""Pooling and its gradients."""

from __future__ import annotations

import math

from weft_graph.ir.node import Node
from weft_lite.convert.errors import NotInLiteError
from weft_lite.convert.layouts import NHWC, emit_image, explicit_pads, image, layout, spatial
from weft_lite.convert.registry import Builder, OpKind, rule
from weft_lite.schema.enums import Padding
from weft_lite.schema.tables import PoolOptions


@rule("MaxPool", "AvgPool")
def pool(node: Node, b: Builder) -> None:
    """Lower to MaxPool or AvgPool on NHWC images."""
    operands = [image(b, node, node.inputs[0])]
    emit_image(b, OpKind[node.type], node, [*operands], _options(node))


@rule("MaxPoolGrad")
def max_pool_grad(node: Node, b: Builder) -> None:
    """Lower to MaxPoolGrad on NHWC images."""
    operands = [image(b, node, output) for output in node.inputs]
    emit_image(b, OpKind.MaxPoolGrad, node, [*operands], _options(node))


@rule("AvgPoolGrad")
def avg_pool_grad(node: Node, b: Builder) -> None:
    """Lower to AvgPoolGrad on NHWC images."""
    sizes = b.value(node.inputs[0])
    if layout(node) != NHWC:
        shape = b.require_array(node.inputs[0], "the shape of a pooled image")
        sizes = b.ints(f"{node.name}/sizes", shape[[0, 2, 3, 1]])
    operands = [sizes, image(b, node, node.inputs[1])]
    emit_image(b, OpKind.AvgPoolGrad, node, [*operands], _options(node))


def _options(node: Node) -> PoolOptions:
    """Return the options of pooling.

    Raises: NotInLiteError: windows extend over the batch or over channels.
    """
    window = node.attrs["ksize"]
    window_h, window_w = spatial(node, window)
    if window_h * window_w != math.prod(window):
        raise NotInLiteError(
            f"lite pools over height and width, got windows of {list(window)} elements"
        )
    stride_h, stride_w = spatial(node, node.attrs["strides"])
    padding = Padding[node.attrs["padding"]]
    return PoolOptions(
        window_h=window_h,
        window_w=window_w,
        stride_h=stride_h,
        stride_w=stride_w,
        padding=padding,
        pads=explicit_pads(node) if padding is Padding.EXPLICIT else [],
    )
