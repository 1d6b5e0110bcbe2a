"""The gradient of CTC losses, computed by their ops together with the loss."""

from __future__ import annotations

from weft_autodiff.grads.common import mul
from weft_autodiff.registry import RegisterGradient
from weft_graph.ir.builder import out
from weft_graph.ir.node import Node, Output

Grads = list[Output | None]


@RegisterGradient("CTCLoss")
@RegisterGradient("CTCLossV2")
def _ctc_loss(node: Node, grad: Output | None, _: Output | None) -> Grads:
    if grad is None:
        return [None] * 4
    message = "the gradient of a CTC loss is not differentiable"
    slope = out("PreventGradient", [node.outputs[1]], {"message": message})
    weight = out("ExpandDims", [out("ExpandDims", [grad, 0]), -1])
    return [mul(weight, slope), None, None, None]
