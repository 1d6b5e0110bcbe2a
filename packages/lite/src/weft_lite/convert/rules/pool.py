"""Windows."""

from __future__ import annotations

from weft_graph.ir.node import Node
from weft_lite.convert.registry import Builder, NotInLiteError, OpKind, rule
from weft_lite.schema.enums import Padding
from weft_lite.schema.tables import PoolOptions


@rule("MaxPool", "AvgPool")
def pool(node: Node, b: Builder) -> None:
    attrs = node.attrs
    window, strides = attrs["ksize"], attrs["strides"]
    if attrs["data_format"] != "NHWC" or window[0] != 1 or window[3] != 1:
        raise NotInLiteError("lite computes windows over height and width, in the layout NHWC")
    padding = Padding[attrs["padding"]]
    pads = attrs["explicit_paddings"][2:6] if padding is Padding.EXPLICIT else []
    options = PoolOptions(
        window_h=int(window[1]),
        window_w=int(window[2]),
        stride_h=int(strides[1]),
        stride_w=int(strides[2]),
        padding=padding,
        pads=[int(pad) for pad in pads],
    )
    b.emit(OpKind[node.type], node, b.inputs(node), options)
