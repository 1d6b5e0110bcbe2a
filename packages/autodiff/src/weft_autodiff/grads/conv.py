"""Gradients of convolutions, to any order: each of the three ops by the other two."""

from __future__ import annotations

from typing import Any

from weft_autodiff.grads.common import shape_of
from weft_autodiff.registry import RegisterGradient
from weft_graph.ir.builder import out
from weft_graph.ir.node import Node, Output


def _register(forward: str, by_input: str, by_filter: str, typed_sizes: bool = False) -> None:
    def attrs_of(node: Node, target: str) -> dict[str, Any]:
        attrs = {k: v for k, v in node.attrs.items() if k[0] != "_" and k != "Tshape"}
        if typed_sizes and target == by_input:
            attrs["Tshape"] = "int32"
        return attrs

    def call(op: str, inputs: list[Output], node: Node) -> Output:
        return out(op, inputs, attrs_of(node, op))

    def gradient_of_forward(node: Node, grad: Output) -> list[Output | None]:
        x, filters = node.inputs
        return [
            call(by_input, [shape_of(x), filters, grad], node),
            call(by_filter, [x, shape_of(filters), grad], node),
        ]

    def gradient_of_input_backprop(node: Node, grad: Output) -> list[Output | None]:
        _, filters, upstream = node.inputs
        return [
            None,
            call(by_filter, [grad, shape_of(filters), upstream], node),
            call(forward, [grad, filters], node),
        ]

    def gradient_of_filter_backprop(node: Node, grad: Output) -> list[Output | None]:
        x, _, upstream = node.inputs
        return [
            call(by_input, [shape_of(x), grad, upstream], node),
            None,
            call(forward, [x, grad], node),
        ]

    RegisterGradient(forward)(gradient_of_forward)
    RegisterGradient(by_input)(gradient_of_input_backprop)
    RegisterGradient(by_filter)(gradient_of_filter_backprop)


_register("Conv2D", "Conv2DBackpropInput", "Conv2DBackpropFilter")
_register("Conv3D", "Conv3DBackpropInputV2", "Conv3DBackpropFilterV2", typed_sizes=True)
_register(
    "DepthwiseConv2dNative",
    "DepthwiseConv2dNativeBackpropInput",
    "DepthwiseConv2dNativeBackpropFilter",
)
