"""Gradients of products of matrices."""

from __future__ import annotations

from weft_autodiff.grads.common import conj, sum_to_shape
from weft_autodiff.registry import RegisterGradient
from weft_graph.ir.builder import out
from weft_graph.ir.node import Node, Output

Pair = list[Output | None]


def _matmul(x: Output, y: Output, tx: bool, ty: bool) -> Output:
    attrs = {}
    if tx:
        attrs["transpose_a"] = True
    if ty:
        attrs["transpose_b"] = True
    return out("MatMul", [x, y], attrs)


@RegisterGradient("MatMul")
def _matmul_grad(node: Node, grad: Output) -> Pair:
    a, b = conj(node.inputs[0]), conj(node.inputs[1])
    ta, tb = node.attrs["transpose_a"], node.attrs["transpose_b"]
    to_a = _matmul(b, grad, tb, True) if ta else _matmul(grad, b, False, not tb)
    to_b = _matmul(grad, a, True, ta) if tb else _matmul(a, grad, not ta, False)
    return [to_a, to_b]


def _batch(x: Output, y: Output, ax: bool, ay: bool) -> Output:
    return out("BatchMatMulV2", [x, y], {"adj_x": ax, "adj_y": ay})


@RegisterGradient("BatchMatMul")
@RegisterGradient("BatchMatMulV2")
def _batch_matmul(node: Node, grad: Output) -> Pair:
    x, y = node.inputs
    ax, ay = node.attrs["adj_x"], node.attrs["adj_y"]
    to_x = _batch(y, grad, ay, True) if ax else _batch(grad, y, False, not ay)
    to_y = _batch(grad, x, True, ax) if ay else _batch(x, grad, not ax, False)
    return [_sum_batches(to_x, x, y), _sum_batches(to_y, y, x)]


def _sum_batches(grad: Output, value: Output, other_operand: Output) -> Output:
    """Sum `grad` over the leading axes along which `value` was broadcast."""
    lead = None if value.dims is None else value.dims[:-2]
    other_lead = None if other_operand.dims is None else other_operand.dims[:-2]
    if lead is not None and lead == other_lead and None not in lead:
        return grad
    return sum_to_shape(grad, value)


@RegisterGradient("Cross")
def _cross(node: Node, grad: Output) -> Pair:
    a, b = node.inputs
    return [out("Cross", [b, grad]), out("Cross", [grad, a])]
