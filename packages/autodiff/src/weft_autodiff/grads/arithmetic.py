"""Gradients of arithmetic.

For complex values the gradient of a real loss L is dL/dRe(x) + i dL/dIm(x), as in TensorFlow, so
the derivative of a holomorphic function is conjugated.
"""

from __future__ import annotations

from weft_autodiff.grads.common import (
    Pair,
    conj,
    mul,
    neg,
    scalar_like,
    sum_to_shape,
    sum_to_shapes,
)
from weft_autodiff.registry import RegisterGradient
from weft_graph.ir.builder import out
from weft_graph.ir.node import Node, Output


@RegisterGradient("Add")
@RegisterGradient("AddV2")
def _add(node: Node, grad: Output) -> Pair:
    return sum_to_shapes(node, grad, grad)


@RegisterGradient("Sub")
def _sub(node: Node, grad: Output) -> Pair:
    to_x, to_y = sum_to_shapes(node, grad, grad)
    return [to_x, None if to_y is None else neg(to_y)]


@RegisterGradient("Mul")
def _mul_grad(node: Node, grad: Output) -> Pair:
    x, y = node.inputs
    return sum_to_shapes(node, mul(grad, conj(y)), mul(grad, conj(x)))


@RegisterGradient("MulNoNan")
def _mul_no_nan(node: Node, grad: Output) -> Pair:
    x, y = node.inputs
    to_x = out("MulNoNan", [grad, conj(y)])
    return sum_to_shapes(node, to_x, out("MulNoNan", [conj(x), grad]))


def _extreme(node: Node, grad: Output, comparison: str) -> Pair:
    takes_x = out(comparison, list(node.inputs))
    zero = scalar_like(0, grad)
    to_x = out("SelectV2", [takes_x, grad, zero])
    return sum_to_shapes(node, to_x, out("SelectV2", [takes_x, zero, grad]))


@RegisterGradient("Maximum")
def _maximum(node: Node, grad: Output) -> Pair:
    return _extreme(node, grad, "GreaterEqual")


@RegisterGradient("Minimum")
def _minimum(node: Node, grad: Output) -> Pair:
    return _extreme(node, grad, "LessEqual")


@RegisterGradient("SquaredDifference")
def _squared_difference(node: Node, grad: Output) -> Pair:
    x, y = node.inputs
    if grad.dtype.is_complex:
        # |x - y| ** 2 is real: only the real part of the gradient counts.
        real = out("Real", [grad], {"Tout": grad.dtype.real_dtype})
        grad = out("Cast", [real], {"DstT": grad.dtype})
    scaled = mul(grad, scalar_like(2, grad))
    difference = mul(scaled, out("Sub", [x, y]))
    to_x, to_y = sum_to_shapes(node, difference, difference)
    return [to_x, None if to_y is None else neg(to_y)]


# --------------------------------------------------------------------------- of one input


@RegisterGradient("Neg")
def _negative(node: Node, grad: Output) -> Output:
    return neg(grad)


@RegisterGradient("Abs")
def _abs(node: Node, grad: Output) -> Output:
    return mul(grad, out("Sign", [node.inputs[0]]))


@RegisterGradient("ComplexAbs")
def _complex_abs(node: Node, grad: Output) -> Output:
    x = node.inputs[0]
    return mul(out("Cast", [grad], {"DstT": x.dtype}), out("Sign", [x]))


@RegisterGradient("Sign")
def _sign(node: Node, grad: Output) -> Output | None:
    if not grad.dtype.is_complex:
        return None
    # x / |x| turns with the part of a change that is perpendicular to x.
    x, y = node.inputs[0], node.outputs[0]
    real = grad.dtype.real_dtype
    projection = out("Real", [mul(conj(y), grad)], {"Tout": real})
    perpendicular = out("Sub", [grad, mul(y, out("Cast", [projection], {"DstT": grad.dtype}))])
    size = out("Cast", [out("ComplexAbs", [x], {"Tout": real})], {"DstT": grad.dtype})
    return out("DivNoNan", [perpendicular, size])


# ----------------------------------------------------------------------------- many inputs


@RegisterGradient("AddN")
@RegisterGradient("AccumulateNV2")
def _add_n(node: Node, grad: Output) -> Pair:
    return [grad] * len(node.inputs)


@RegisterGradient("ClipByValue")
def _clip(node: Node, grad: Output) -> Pair:
    t, low, high = node.inputs
    zero = scalar_like(0, grad)
    below, above = out("Less", [t, low]), out("Greater", [t, high])
    outside = out("LogicalOr", [below, above])
    crossed = out("Greater", [low, high])  # then the result is `low`, whatever t is
    to_low = out("SelectV2", [out("LogicalOr", [below, crossed]), grad, zero])
    to_high = out("SelectV2", [crossed, zero, out("SelectV2", [above, grad, zero])])
    return [
        out("SelectV2", [outside, zero, grad]),
        sum_to_shape(to_low, low, t),
        sum_to_shape(to_high, high, t),
    ]
