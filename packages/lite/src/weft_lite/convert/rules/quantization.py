"""Fake-quant ops, which round during training and provide the ranges for int8."""

from __future__ import annotations

import numpy as np

from weft_graph.ir.node import Node
from weft_lite.convert.errors import NotInLiteError
from weft_lite.convert.registry import Builder, OpKind, rule
from weft_lite.schema.tables import ElementwiseOptions


@rule("FakeQuantWithMinMaxArgs", "FakeQuantWithMinMaxVars")
def fake_quant(node: Node, b: Builder) -> None:
    """Lower to a Quantize and a Dequantize."""
    if int(node.attrs["num_bits"]) != 8:
        raise NotInLiteError("lite supports only 8-bit quantization: use num_bits=8")
    if node.type == "FakeQuantWithMinMaxVars":
        low, high = (float(b.require_array(input_, "a range")) for input_ in node.inputs[1:])
    else:
        low, high = float(node.attrs["min"]), float(node.attrs["max"])
    if not low < high:
        raise NotInLiteError(f"its range is empty: {low} to {high}")
    minimum = 1 if node.attrs["narrow_range"] else 0
    scale = float(np.float32((high - low) / (255 - minimum))) or 1.0
    zero = int(np.clip(np.floor(minimum - low / scale + 0.5), minimum, 255))
    x = b.value(node.inputs[0])
    if minimum:
        bound = b.constant(f"{node.name}/least", np.float32((minimum - zero) * scale))
        cut = b.like(x, f"{node.name}/cut")
        b.add(OpKind.Maximum, [x, bound], [cut], ElementwiseOptions(), node.name)
        x = cut
    stored = b.new(f"{node.name}/int8", "int8", x.shape)
    stored.declared = x.declared
    stored.scales, stored.zero_points = [scale], [zero - 128]
    b.add(OpKind.Quantize, [x], [stored], None, node.name)
    b.emit(OpKind.Dequantize, node, [stored])


@rule("FakeQuantWithMinMaxVarsPerChannel")
def fake_quant_of_channels(node: Node, b: Builder) -> None:
    """Raise NotInLiteError: constant weights, which lite supports, are folded before this rule."""
    raise NotInLiteError("per-channel ranges are supported only for constant weights")
