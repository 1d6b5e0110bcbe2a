"""Gradients of exponentials, logarithms and the logistic function."""

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


@RegisterGradient("Exp")
def _exp(node: Node, grad: Output) -> Output:
    return mul(grad, conj(node.outputs[0]))


@RegisterGradient("Expm1")
def _expm1(node: Node, grad: Output) -> Output:
    return mul(grad, out("Exp", [conj(node.inputs[0])]))


@RegisterGradient("Log")
def _log(node: Node, grad: Output) -> Output:
    return div(grad, conj(node.inputs[0]))


@RegisterGradient("Log1p")
def _log1p(node: Node, grad: Output) -> Output:
    return div(grad, plus(1, conj(node.inputs[0])))


@RegisterGradient("Sigmoid")
def _sigmoid(node: Node, grad: Output) -> Output:
    return out("SigmoidGrad", [conj(node.outputs[0]), grad])


@RegisterGradient("SigmoidGrad")
def _sigmoid_grad(node: Node, grad: Output) -> Pair:
    y, dy = node.inputs
    slope = minus(1, mul(scalar_like(2, y), y))
    return [mul(grad, conj(mul(dy, slope))), out("SigmoidGrad", [conj(y), grad])]


def _nonzero(x: Output) -> Output:
    """Return 1 where x is not 0, and 0 elsewhere."""
    return out("Cast", [out("NotEqual", [x, scalar_like(0, x)])], {"DstT": x.dtype})


@RegisterGradient("Xlogy")
def _xlogy(node: Node, grad: Output) -> Pair:
    x, y = conj(node.inputs[0]), conj(node.inputs[1])
    to_x = mul(grad, out("Xlogy", [_nonzero(x), y]))
    return sum_to_shapes(node, to_x, mul(grad, out("Xdivy", [x, y])))


@RegisterGradient("Xlog1py")
def _xlog1py(node: Node, grad: Output) -> Pair:
    x, y = conj(node.inputs[0]), conj(node.inputs[1])
    to_x = mul(grad, out("Xlog1py", [_nonzero(x), y]))
    return sum_to_shapes(node, to_x, mul(grad, out("Xdivy", [x, plus(1, y)])))


@RegisterGradient("Xdivy")
def _xdivy(node: Node, grad: Output) -> Pair:
    x, y = conj(node.inputs[0]), conj(node.inputs[1])
    to_x = mul(grad, out("Xdivy", [_nonzero(x), y]))
    return sum_to_shapes(node, to_x, mul(grad, out("Xdivy", [neg(x), square(y)])))


@RegisterGradient("NextAfter")
def _next_after(node: Node, grad: Output) -> Pair:
    return sum_to_shapes(node, grad, None)
