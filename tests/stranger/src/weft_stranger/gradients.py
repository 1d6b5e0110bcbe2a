"""Gradients."""

from __future__ import annotations

from weft_autodiff.registry import NotDifferentiable, RegisterGradient
from weft_graph.ir.node import Node, Output


@RegisterGradient("StrangerHypot")
def _hypot(node: Node, grad: Output) -> list[Output]:
    (x, y), z = node.inputs, node.outputs[0]
    return [grad * x / z, grad * y / z]


NotDifferentiable("StrangerTallyAdd")
NotDifferentiable("StrangerTallyAwait")
