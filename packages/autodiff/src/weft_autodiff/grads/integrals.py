"""Gradients of integrals without a closed form."""

from __future__ import annotations

import math

from weft_autodiff.grads.common import div, minus, mul, scalar_like, square
from weft_autodiff.registry import RegisterGradient
from weft_graph.ir.builder import out
from weft_graph.ir.node import Node, Output


@RegisterGradient("Dawsn")
def _dawsn(node: Node, grad: Output) -> Output:
    x, y = node.inputs[0], node.outputs[0]
    return mul(grad, minus(1, mul(scalar_like(2, x), mul(x, y))))


@RegisterGradient("Expint")
def _expint(node: Node, grad: Output) -> Output:
    x = node.inputs[0]
    return mul(grad, div(out("Exp", [x]), x))


@RegisterGradient("FresnelCos")
def _fresnel_cos(node: Node, grad: Output) -> Output:
    return mul(grad, out("Cos", [_phase(node.inputs[0])]))


@RegisterGradient("FresnelSin")
def _fresnel_sin(node: Node, grad: Output) -> Output:
    return mul(grad, out("Sin", [_phase(node.inputs[0])]))


def _phase(x: Output) -> Output:
    return mul(scalar_like(math.pi / 2, x), square(x))


@RegisterGradient("Spence")
def _spence(node: Node, grad: Output) -> Output:
    x = node.inputs[0]  # the slope is -1 at 1
    is_one = out("Equal", [x, scalar_like(1, x)])
    safe = out("SelectV2", [is_one, scalar_like(2, x), x])
    ratio = div(out("Log", [safe]), minus(1, safe))
    return mul(grad, out("SelectV2", [is_one, scalar_like(-1, x), ratio]))
