"""Gradients of Select and Where; comparisons, logical and bitwise ops have none."""

from __future__ import annotations

from weft_autodiff.grads.common import scalar_like, sum_to_shape, zeros_like
from weft_autodiff.registry import RegisterGradient
from weft_graph.ir.builder import out
from weft_graph.ir.node import Node, Output


@RegisterGradient("Select")
def _select(node: Node, grad: Output) -> list[Output | None]:
    condition = node.inputs[0]
    zeros = zeros_like(grad)
    return [
        None,
        out("Select", [condition, grad, zeros]),
        out("Select", [condition, zeros, grad]),
    ]


@RegisterGradient("SelectV2")
def _select_v2(node: Node, grad: Output) -> list[Output | None]:
    condition, t, e = node.inputs
    zero = scalar_like(0, grad)
    return [
        None,
        sum_to_shape(out("SelectV2", [condition, grad, zero]), t),
        sum_to_shape(out("SelectV2", [condition, zero, grad]), e),
    ]
