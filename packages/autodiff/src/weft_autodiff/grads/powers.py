"""Gradients of powers and roots."""

from __future__ import annotations

from collections.abc import Sequence

from weft_autodiff.grads.common import (
    Pair,
    conj,
    mul,
    neg,
    scalar_like,
    sum_to_shapes,
)
from weft_autodiff.registry import RegisterGradient
from weft_graph.ir.builder import out
from weft_graph.ir.node import Node, Output


@RegisterGradient("Pow", accepts_needed=True)
def _pow(node: Node, grad: Output, needed: Sequence[bool]) -> Pair:
    x, y = node.inputs
    cx, cy = conj(x), conj(y)
    power = out("Pow", [cx, out("Sub", [cy, scalar_like(1, y)])])
    to_x = mul(grad, mul(cy, power))
    if not needed[1]:
        return sum_to_shapes(node, to_x, None)
    # log(x) is undefined for x <= 0, where the power does not depend smoothly on y either.
    zero = scalar_like(0, x)
    usable = out("NotEqual", [x, zero]) if x.dtype.is_complex else out("Greater", [x, zero])
    safe = out("SelectV2", [usable, cx, scalar_like(1, x)])
    log = out("SelectV2", [usable, out("Log", [safe]), zero])
    return sum_to_shapes(node, to_x, mul(grad, mul(conj(node.outputs[0]), log)))


# --------------------------------------------------------------------------- of one input


@RegisterGradient("Square")
def _square(node: Node, grad: Output) -> Output:
    x = conj(node.inputs[0])
    return mul(grad, mul(scalar_like(2, x), x))


@RegisterGradient("Sqrt")
def _sqrt(node: Node, grad: Output) -> Output:
    return out("SqrtGrad", [node.outputs[0], grad])


@RegisterGradient("Rsqrt")
def _rsqrt(node: Node, grad: Output) -> Output:
    return out("RsqrtGrad", [node.outputs[0], grad])


# The gradient ops below are linear in dy and depend on the conjugate of y.


@RegisterGradient("SqrtGrad")
def _sqrt_grad(node: Node, grad: Output) -> Pair:
    quotient = out("RealDiv", [grad, node.inputs[0]])
    to_y = neg(mul(conj(quotient), node.outputs[0]))
    return [to_y, mul(quotient, scalar_like(0.5, grad))]


@RegisterGradient("RsqrtGrad")
def _rsqrt_grad(node: Node, grad: Output) -> Pair:
    y, dy = node.inputs
    square = out("Square", [conj(y)])
    to_y = mul(conj(grad), mul(scalar_like(-1.5, dy), mul(dy, square)))
    return [to_y, out("RsqrtGrad", [conj(y), grad])]
