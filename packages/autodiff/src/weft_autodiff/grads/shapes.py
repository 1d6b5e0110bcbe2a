"""Gradients of ops that change shapes."""

from __future__ import annotations

from weft_autodiff.grads.common import like_shape
from weft_autodiff.registry import RegisterGradient
from weft_graph.ir.node import Node, Output


@RegisterGradient("Reshape")
def _reshape(op: Node, grad: Output) -> list[Output | None]:
    return [like_shape(grad, op.inputs[0]), None]


@RegisterGradient("ExpandDims")
def _expand_dims(op: Node, grad: Output) -> list[Output | None]:
    return [like_shape(grad, op.inputs[0]), None]


@RegisterGradient("Squeeze")
def _squeeze(op: Node, grad: Output) -> Output:
    return like_shape(grad, op.inputs[0])
