"""Gradients of quotients, remainders and reciprocals."""

from __future__ import annotations

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


@RegisterGradient("Div")
@RegisterGradient("RealDiv")
def _div(node: Node, grad: Output) -> Pair:
    to_x = out("RealDiv", [grad, conj(node.inputs[1])])
    to_y = neg(mul(to_x, conj(node.outputs[0])))
    return sum_to_shapes(node, to_x, to_y)


@RegisterGradient("DivNoNan")
def _div_no_nan(node: Node, grad: Output) -> Pair:
    to_x = out("DivNoNan", [grad, conj(node.inputs[1])])
    to_y = neg(mul(to_x, conj(node.outputs[0])))
    return sum_to_shapes(node, to_x, to_y)


@RegisterGradient("FloorMod")
def _floor_mod(node: Node, grad: Output) -> Pair:
    quotient = out("FloorDiv", list(node.inputs))
    return sum_to_shapes(node, grad, neg(mul(grad, quotient)))


@RegisterGradient("TruncateMod")
@RegisterGradient("Mod")
def _truncate_mod(node: Node, grad: Output) -> Pair:
    quotient = out("TruncateDiv", list(node.inputs))
    return sum_to_shapes(node, grad, neg(mul(grad, quotient)))


# --------------------------------------------------------------------------- of one input


@RegisterGradient("Reciprocal")
@RegisterGradient("Inv")
def _reciprocal(node: Node, grad: Output) -> Output:
    return out("ReciprocalGrad", [node.outputs[0], grad])


@RegisterGradient("ReciprocalGrad")
@RegisterGradient("InvGrad")
def _reciprocal_grad(node: Node, grad: Output) -> Pair:
    y, dy = node.inputs
    slope = mul(scalar_like(-2, dy), out("MulNoNan", [conj(y), dy]))
    to_y = out("MulNoNan", [slope, conj(grad)])
    return [to_y, out("ReciprocalGrad", [conj(y), grad])]
