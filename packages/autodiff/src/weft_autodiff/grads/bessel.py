"""Gradients of Bessel functions."""

from __future__ import annotations

from weft_autodiff.grads.common import div, mul, neg, scalar_like
from weft_autodiff.registry import RegisterGradient
from weft_graph.ir.builder import out
from weft_graph.ir.node import Node, Output


@RegisterGradient("BesselI0")
def _bessel_i0(node: Node, grad: Output) -> Output:
    return mul(grad, out("BesselI1", [node.inputs[0]]))


@RegisterGradient("BesselI1")
def _bessel_i1(node: Node, grad: Output) -> Output:
    return mul(grad, out("Sub", [out("BesselI0", [node.inputs[0]]), _over_argument(node)]))


@RegisterGradient("BesselI0e")
def _bessel_i0e(node: Node, grad: Output) -> Output:
    x = node.inputs[0]
    slope = mul(out("Sign", [x]), node.outputs[0])
    return mul(grad, out("Sub", [out("BesselI1e", [x]), slope]))


@RegisterGradient("BesselI1e")
def _bessel_i1e(node: Node, grad: Output) -> Output:
    x, y = node.inputs[0], node.outputs[0]
    slope = out("Sub", [out("BesselI0e", [x]), mul(out("Sign", [x]), y)])
    return mul(grad, out("Sub", [slope, _over_argument(node)]))


@RegisterGradient("BesselJ0")
def _bessel_j0(node: Node, grad: Output) -> Output:
    return neg(mul(grad, out("BesselJ1", [node.inputs[0]])))


@RegisterGradient("BesselJ1")
def _bessel_j1(node: Node, grad: Output) -> Output:
    return mul(grad, out("Sub", [out("BesselJ0", [node.inputs[0]]), _over_argument(node)]))


@RegisterGradient("BesselY0")
def _bessel_y0(node: Node, grad: Output) -> Output:
    return neg(mul(grad, out("BesselY1", [node.inputs[0]])))


@RegisterGradient("BesselY1")
def _bessel_y1(node: Node, grad: Output) -> Output:
    x, y = node.inputs[0], node.outputs[0]
    return mul(grad, out("Sub", [out("BesselY0", [x]), div(y, x)]))


@RegisterGradient("BesselK0")
def _bessel_k0(node: Node, grad: Output) -> Output:
    return neg(mul(grad, out("BesselK1", [node.inputs[0]])))


@RegisterGradient("BesselK0e")
def _bessel_k0e(node: Node, grad: Output) -> Output:
    return mul(grad, out("Sub", [node.outputs[0], out("BesselK1e", [node.inputs[0]])]))


@RegisterGradient("BesselK1")
def _bessel_k1(node: Node, grad: Output) -> Output:
    x, y = node.inputs[0], node.outputs[0]
    return neg(mul(grad, out("AddV2", [out("BesselK0", [x]), div(y, x)])))


@RegisterGradient("BesselK1e")
def _bessel_k1e(node: Node, grad: Output) -> Output:
    x, y = node.inputs[0], node.outputs[0]
    slope = out("Sub", [y, out("BesselK0e", [x])])
    return mul(grad, out("Sub", [slope, div(y, x)]))


def _over_argument(node: Node) -> Output:
    """Return I1(x) / x, which is 1 / 2 at 0."""
    x, y = node.inputs[0], node.outputs[0]
    is_zero = out("Equal", [x, scalar_like(0, x)])
    safe = out("SelectV2", [is_zero, scalar_like(1, x), x])
    return out("SelectV2", [is_zero, scalar_like(0.5, x), div(y, safe)])
