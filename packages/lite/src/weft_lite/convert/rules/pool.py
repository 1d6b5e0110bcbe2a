"""Pooling."""

from __future__ import annotations

import math

from weft_graph.ir.node import Node
from weft_lite.convert.errors import NotInLiteError
from weft_lite.convert.layouts import emit_image, explicit_pads, image, spatial
from weft_lite.convert.registry import Builder, OpKind, rule
from weft_lite.schema.enums import Padding
from weft_lite.schema.tables import PoolOptions


@rule("MaxPool", "AvgPool")
def pool(node: Node, b: Builder) -> None:
    window = node.attrs["ksize"]
    window_h, window_w = spatial(node, window)
    if window_h * window_w != math.prod(window):
        raise NotInLiteError(
            f"lite pools over height and width, got windows of {list(window)} elements"
        )
    stride_h, stride_w = spatial(node, node.attrs["strides"])
    padding = Padding[node.attrs["padding"]]
    options = PoolOptions(
        window_h=window_h,
        window_w=window_w,
        stride_h=stride_h,
        stride_w=stride_w,
        padding=padding,
        pads=explicit_pads(node) if padding is Padding.EXPLICIT else [],
    )
    emit_image(b, OpKind[node.type], node, [image(b, node, node.inputs[0])], options)
