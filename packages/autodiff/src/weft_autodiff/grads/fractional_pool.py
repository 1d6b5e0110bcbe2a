"""Gradients of pooling over regions of random sizes."""

from __future__ import annotations

from typing import Any

from weft_autodiff.registry import RegisterGradient
from weft_graph.ir.builder import out
from weft_graph.ir.node import Node, Output

Grads = list[Output | None]


@RegisterGradient("FractionalAvgPool")
def _avg(node: Node, grad: Output | None, *_: Any) -> Grads:
    if grad is None:
        return [None]
    shape = out("Shape", [node.inputs[0]], {"out_type": "int64"})
    attrs = {"overlapping": node.attrs["overlapping"]}
    return [out("FractionalAvgPoolGrad", [shape, grad, *node.outputs[1:]], attrs)]


@RegisterGradient("FractionalMaxPool")
def _max(node: Node, grad: Output | None, *_: Any) -> Grads:
    if grad is None:
        return [None]
    inputs = [node.inputs[0], node.outputs[0], grad, *node.outputs[1:]]
    attrs = {"overlapping": node.attrs["overlapping"]}
    return [out("FractionalMaxPoolGrad", inputs, attrs)]


@RegisterGradient("FractionalAvgPoolGrad")
@RegisterGradient("FractionalMaxPoolGrad")
def _gradient(node: Node, grad: Output) -> Grads:
    raise LookupError(
        f"the gradient of a fractional pool, {node.name!r}, has no gradient of its own"
    )
