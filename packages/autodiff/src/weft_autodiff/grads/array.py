"""Gradients of constants, placeholders, shapes, and tensors of one value."""

from __future__ import annotations

from weft_autodiff.grads.common import like_shape, sum_to_shape
from weft_autodiff.registry import RegisterGradient
from weft_graph.ir.builder import constant_of, out
from weft_graph.ir.node import Node, Output
from weft_graph.ops.array import rank


@RegisterGradient("PlaceholderWithDefault")
def _with_default(op: Node, grad: Output) -> Output:
    return grad


@RegisterGradient("Reshape")
def _reshape(op: Node, grad: Output) -> list[Output | None]:
    return [like_shape(grad, op.inputs[0]), None]


@RegisterGradient("ExpandDims")
def _expand_dims(op: Node, grad: Output) -> list[Output | None]:
    return [like_shape(grad, op.inputs[0]), None]


@RegisterGradient("Squeeze")
def _squeeze(op: Node, grad: Output) -> Output:
    return like_shape(grad, op.inputs[0])


def all_axes(value: Output) -> Output:
    """All axes of a tensor as a vector."""
    import numpy as np

    if value.dims is not None:
        return constant_of(np.arange(len(value.dims), dtype=np.int32))
    return out("Range", [0, rank(value), 1])


@RegisterGradient("Fill")
def _fill(op: Node, grad: Output) -> list[Output | None]:
    return [None, out("Sum", [grad, all_axes(grad)])]


@RegisterGradient("BroadcastTo")
def _broadcast_to(op: Node, grad: Output) -> list[Output | None]:
    return [sum_to_shape(grad, op.inputs[0]), None]
