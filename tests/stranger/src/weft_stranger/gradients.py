"""Gradients."""

from __future__ import annotations

from weft_autodiff.grads.common import sum_to_shapes
from weft_autodiff.registry import RegisterGradient
from weft_graph.ir.builder import out
from weft_graph.ir.node import Node, Output


@RegisterGradient("StrangerHypot")
def _hypot(node: Node, grad: Output) -> list[Output | None]:
    (x, y), z = node.inputs, node.outputs[0]
    return sum_to_shapes(node, grad * x / z, grad * y / z)


@RegisterGradient("StrangerDiagonal")
def _diagonal(node: Node, grad: Output) -> Output:
    return out("Diag", [grad])
