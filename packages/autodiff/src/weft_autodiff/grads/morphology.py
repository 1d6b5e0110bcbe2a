"""Gradients of greyscale morphology."""

from __future__ import annotations

from weft_autodiff.registry import RegisterGradient
from weft_graph.ir.builder import out
from weft_graph.ir.node import Node, Output

Grads = list[Output | None]


@RegisterGradient("Dilation2D")
def _dilation(node: Node, grad: Output) -> Grads:
    attrs = {key: node.attrs[key] for key in ("strides", "rates", "padding")}
    inputs = [*node.inputs, grad]
    return [out(f"Dilation2DBackprop{by}", inputs, attrs) for by in ("Input", "Filter")]


@RegisterGradient("Dilation2DBackpropInput")
@RegisterGradient("Dilation2DBackpropFilter")
def _gradient(node: Node, grad: Output) -> Grads:
    raise LookupError(f"the gradient of a dilation, {node.name!r}, has no gradient of its own")
