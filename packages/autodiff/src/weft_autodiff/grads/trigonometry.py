"""Gradients of trigonometric and hyperbolic functions and of their inverses."""

from __future__ import annotations

from weft_autodiff.grads.common import (
    Pair,
    conj,
    div,
    minus,
    mul,
    neg,
    plus,
    scalar_like,
    square,
    sum_to_shapes,
)
from weft_autodiff.registry import RegisterGradient
from weft_graph.ir.builder import out
from weft_graph.ir.node import Node, Output


@RegisterGradient("Sin")
def _sin(node: Node, grad: Output) -> Output:
    return mul(grad, out("Cos", [conj(node.inputs[0])]))


@RegisterGradient("Cos")
def _cos(node: Node, grad: Output) -> Output:
    return neg(mul(grad, out("Sin", [conj(node.inputs[0])])))


@RegisterGradient("Tan")
def _tan(node: Node, grad: Output) -> Output:
    return div(grad, square(out("Cos", [conj(node.inputs[0])])))


@RegisterGradient("Asin")
def _asin(node: Node, grad: Output) -> Output:
    return mul(grad, out("Rsqrt", [minus(1, square(conj(node.inputs[0])))]))


@RegisterGradient("Acos")
def _acos(node: Node, grad: Output) -> Output:
    return neg(_asin(node, grad))


@RegisterGradient("Atan")
def _atan(node: Node, grad: Output) -> Output:
    return div(grad, plus(1, square(conj(node.inputs[0]))))


@RegisterGradient("Sinh")
def _sinh(node: Node, grad: Output) -> Output:
    return mul(grad, out("Cosh", [conj(node.inputs[0])]))


@RegisterGradient("Cosh")
def _cosh(node: Node, grad: Output) -> Output:
    return mul(grad, out("Sinh", [conj(node.inputs[0])]))


@RegisterGradient("Tanh")
def _tanh(node: Node, grad: Output) -> Output:
    return out("TanhGrad", [conj(node.outputs[0]), grad])


@RegisterGradient("Asinh")
def _asinh(node: Node, grad: Output) -> Output:
    return div(grad, out("Cosh", [conj(node.outputs[0])]))


@RegisterGradient("Acosh")
def _acosh(node: Node, grad: Output) -> Output:
    return div(grad, out("Sinh", [conj(node.outputs[0])]))


@RegisterGradient("Atanh")
def _atanh(node: Node, grad: Output) -> Output:
    return div(grad, minus(1, square(conj(node.inputs[0]))))


@RegisterGradient("TanhGrad")
def _tanh_grad(node: Node, grad: Output) -> Pair:
    y, dy = node.inputs
    to_y = mul(grad, conj(mul(scalar_like(-2, dy), mul(dy, y))))
    return [to_y, out("TanhGrad", [conj(y), grad])]


@RegisterGradient("Atan2")
def _atan2(node: Node, grad: Output) -> Pair:
    y, x = node.inputs
    scaled = div(grad, out("AddV2", [square(x), square(y)]))
    return sum_to_shapes(node, mul(x, scaled), neg(mul(y, scaled)))
