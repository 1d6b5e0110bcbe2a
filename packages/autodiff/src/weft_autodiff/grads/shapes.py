"""Gradients of ops that change shapes."""

from __future__ import annotations

from weft_autodiff.grads.common import reshape_like
from weft_autodiff.registry import RegisterGradient
from weft_graph.ir.node import Node, Output


@RegisterGradient("Reshape")
def _reshape(op: Node, grad: Output) -> list[Output | None]:
    return [reshape_like(grad, op.inputs[0]), None]


@RegisterGradient("ExpandDims")
def _expand_dims(op: Node, grad: Output) -> list[Output | None]:
    return [reshape_like(grad, op.inputs[0]), None]


@RegisterGradient("Squeeze")
def _squeeze(op: Node, grad: Output) -> Output:
    return reshape_like(grad, op.inputs[0])
