"""Gradients of special functions."""

from __future__ import annotations

import math

from weft_autodiff.grads.common import (
    Pair,
    mul,
    neg,
    plus,
    scalar_like,
    square,
    sum_to_shape,
    sum_to_shapes,
)
from weft_autodiff.registry import RegisterGradient
from weft_graph.ir.builder import out
from weft_graph.ir.node import Node, Output
from weft_tensor import dtypes, errors


@RegisterGradient("Erf")
def _erf(node: Node, grad: Output) -> Output:
    slope = out("Exp", [neg(square(node.inputs[0]))])
    return mul(grad, mul(scalar_like(2 / math.sqrt(math.pi), slope), slope))


@RegisterGradient("Erfc")
def _erfc(node: Node, grad: Output) -> Output:
    return neg(_erf(node, grad))


@RegisterGradient("Lgamma")
def _lgamma(node: Node, grad: Output) -> Output:
    return mul(grad, out("Digamma", [node.inputs[0]]))


@RegisterGradient("Digamma")
def _digamma(node: Node, grad: Output) -> Output:
    x = node.inputs[0]
    dtype = x.dtype.base_dtype
    if dtype in (dtypes.float32, dtypes.float64):
        return mul(grad, out("Polygamma", [scalar_like(1, x), x]))
    wide = out("Cast", [x], {"DstT": dtypes.float32})
    slope = out("Polygamma", [scalar_like(1, wide), wide])
    return mul(grad, out("Cast", [slope], {"DstT": dtype}))


@RegisterGradient("Polygamma")
def _polygamma(node: Node, grad: Output) -> Pair:
    a, x = node.inputs  # the order is an integer: nothing flows to it
    return sum_to_shapes(node, None, mul(grad, out("Polygamma", [plus(1, a), x])))


@RegisterGradient("Zeta")
def _zeta(node: Node, grad: Output) -> Pair:
    x, q = node.inputs  # TensorFlow has no derivative by x either
    slope = mul(x, out("Zeta", [plus(1, x), q]))
    return sum_to_shapes(node, None, neg(mul(grad, slope)))


@RegisterGradient("IgammaGradA")
def _igamma_grad_a(node: Node, grad: Output) -> Pair:
    raise errors.UnimplementedError(
        f"{node.name!r} is the derivative of igamma with respect to a, which is not differentiable"
    )


@RegisterGradient("Igamma")
def _igamma(node: Node, grad: Output) -> Pair:
    a, x = node.inputs
    log = out("Sub", [mul(out("Sub", [a, scalar_like(1, a)]), out("Log", [x])), x])
    density = out("Exp", [out("Sub", [log, out("Lgamma", [a])])])
    return sum_to_shapes(node, mul(grad, out("IgammaGradA", [a, x])), mul(grad, density))


@RegisterGradient("Igammac")
def _igammac(node: Node, grad: Output) -> Pair:
    return _igamma(node, neg(grad))


@RegisterGradient("Erfinv")
def _erfinv(node: Node, grad: Output) -> Output:
    slope = out("Exp", [square(node.outputs[0])])
    return mul(grad, mul(scalar_like(math.sqrt(math.pi) / 2, slope), slope))


@RegisterGradient("Ndtri")
def _ndtri(node: Node, grad: Output) -> Output:
    y = node.outputs[0]
    slope = out("Exp", [mul(scalar_like(0.5, y), square(y))])
    return mul(grad, mul(scalar_like(math.sqrt(2 * math.pi), slope), slope))


@RegisterGradient("Betainc")
def _betainc(node: Node, grad: Output) -> list[Output | None]:
    a, b, x = node.inputs  # TensorFlow has none by a and b either
    logs = out("AddV2", [out("Xlog1py", [_minus_one(b), neg(x)]), out("Xlogy", [_minus_one(a), x])])
    gammas = out("AddV2", [out("Lgamma", [a]), out("Lgamma", [b])])
    norm = out("Sub", [gammas, out("Lgamma", [out("AddV2", [a, b])])])
    density = out("Exp", [out("Sub", [logs, norm])])
    return [None, None, sum_to_shape(mul(grad, density), x)]


def _minus_one(x: Output) -> Output:
    return out("Sub", [x, scalar_like(1, x)])


@RegisterGradient("RandomGammaGrad")
def _random_gamma_grad(node: Node, grad: Output) -> Pair:
    raise errors.UnimplementedError(
        f"{node.name!r} is the derivative of a gamma-distributed number, which is not "
        "differentiable"
    )
