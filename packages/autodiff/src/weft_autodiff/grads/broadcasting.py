"""Gradients of broadcasting."""

from __future__ import annotations

from weft_autodiff.grads.common import sum_to_shape
from weft_autodiff.registry import RegisterGradient
from weft_graph.ir.node import Node, Output


@RegisterGradient("BroadcastTo")
def _broadcast_to(op: Node, grad: Output) -> list[Output | None]:
    return [sum_to_shape(grad, op.inputs[0]), None]
