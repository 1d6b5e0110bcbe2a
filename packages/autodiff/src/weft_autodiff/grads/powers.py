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
    to_x = mul(mul(grad, cy), power)  # in this order, none of none where the slope overflows
    if not needed[1]:
        return sum_to_shapes(node, to_x, None)
    # log(x) is undefined for x <= 0, where the power does not depend smoothly on y either.
    zero = scalar_like(0, x)
    usable = out("NotEqual", [x, zero]) if x.dtype.is_complex else out("Greater", [x, zero])
    safe = out("SelectV2", [usable, cx, scalar_like(1, x)])
    log = out("SelectV2", [usable, out("Log", [safe]), zero])
    return sum_to_shapes(node, to_x, mul(mul(grad, conj(node.outputs[0])), log))


# --------------------------------------------------------------------------- of one input


@RegisterGradient("Square")
def _square(node: Node, grad: Output) -> Output:
    x = conj(node.inputs[0])
    return mul(mul(grad, scalar_like(2, x)), x)


@RegisterGradient("Sqrt")
def _sqrt(node: Node, grad: Output) -> Output:
    return out("SqrtGrad", [node.outputs[0], grad])


@RegisterGradient("Rsqrt")
def _rsqrt(node: Node, grad: Output) -> Output:
    return out("RsqrtGrad", [node.outputs[0], grad])


# The gradient ops below are linear in dy and depend on the conjugate of y.


@RegisterGradient("SqrtGrad")
def _sqrt_grad(node: Node, grad: Output) -> Pair:
    y, z = node.inputs[0], node.outputs[0]
    slope = out("MulNoNan", [neg(out("Reciprocal", [conj(y)])), z])
    return [out("MulNoNan", [slope, conj(grad)]), out("SqrtGrad", [conj(y), grad])]


@RegisterGradient("RsqrtGrad")
def _rsqrt_grad(node: Node, grad: Output) -> Pair:
    y, dy = node.inputs
    slope = mul(scalar_like(-1.5, dy), out("MulNoNan", [out("Square", [conj(y)]), dy]))
    to_y = out("MulNoNan", [slope, conj(grad)])
    return [to_y, out("RsqrtGrad", [conj(y), grad])]
