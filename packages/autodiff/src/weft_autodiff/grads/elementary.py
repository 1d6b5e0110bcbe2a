"""Gradients of elementary and special functions."""

from __future__ import annotations

import math

from weft_autodiff.grads.common import conj, scalar_like, sum_to_shapes
from weft_autodiff.registry import RegisterGradient
from weft_graph.ir.builder import out
from weft_graph.ir.node import Node, Output
from weft_tensor import dtypes

Pair = list[Output | None]


def _mul(x: Output, y: Output) -> Output:
    return out("Mul", [x, y])


def _div(x: Output, y: Output) -> Output:
    return out("RealDiv", [x, y])


def _plus(number: float, x: Output) -> Output:
    return out("AddV2", [scalar_like(number, x), x])


def _minus(number: float, x: Output) -> Output:
    return out("Sub", [scalar_like(number, x), x])


def _neg(x: Output) -> Output:
    return out("Neg", [x])


def _square(x: Output) -> Output:
    return out("Square", [x])


@RegisterGradient("Exp")
def _exp(node: Node, grad: Output) -> Output:
    return _mul(grad, conj(node.outputs[0]))


@RegisterGradient("Expm1")
def _expm1(node: Node, grad: Output) -> Output:
    return _mul(grad, out("Exp", [conj(node.inputs[0])]))


@RegisterGradient("Log")
def _log(node: Node, grad: Output) -> Output:
    return _div(grad, conj(node.inputs[0]))


@RegisterGradient("Log1p")
def _log1p(node: Node, grad: Output) -> Output:
    return _div(grad, _plus(1, conj(node.inputs[0])))


@RegisterGradient("Sin")
def _sin(node: Node, grad: Output) -> Output:
    return _mul(grad, out("Cos", [conj(node.inputs[0])]))


@RegisterGradient("Cos")
def _cos(node: Node, grad: Output) -> Output:
    return _neg(_mul(grad, out("Sin", [conj(node.inputs[0])])))


@RegisterGradient("Tan")
def _tan(node: Node, grad: Output) -> Output:
    return _div(grad, _square(out("Cos", [conj(node.inputs[0])])))


@RegisterGradient("Asin")
def _asin(node: Node, grad: Output) -> Output:
    return _mul(grad, out("Rsqrt", [_minus(1, _square(conj(node.inputs[0])))]))


@RegisterGradient("Acos")
def _acos(node: Node, grad: Output) -> Output:
    return _neg(_asin(node, grad))


@RegisterGradient("Atan")
def _atan(node: Node, grad: Output) -> Output:
    return _div(grad, _plus(1, _square(conj(node.inputs[0]))))


@RegisterGradient("Sinh")
def _sinh(node: Node, grad: Output) -> Output:
    return _mul(grad, out("Cosh", [conj(node.inputs[0])]))


@RegisterGradient("Cosh")
def _cosh(node: Node, grad: Output) -> Output:
    return _mul(grad, out("Sinh", [conj(node.inputs[0])]))


@RegisterGradient("Tanh")
def _tanh(node: Node, grad: Output) -> Output:
    return out("TanhGrad", [node.outputs[0], grad])


@RegisterGradient("Asinh")
def _asinh(node: Node, grad: Output) -> Output:
    return _div(grad, out("Cosh", [conj(node.outputs[0])]))


@RegisterGradient("Acosh")
def _acosh(node: Node, grad: Output) -> Output:
    return _div(grad, out("Sinh", [conj(node.outputs[0])]))


@RegisterGradient("Atanh")
def _atanh(node: Node, grad: Output) -> Output:
    return _div(grad, _minus(1, _square(conj(node.inputs[0]))))


@RegisterGradient("Sigmoid")
def _sigmoid(node: Node, grad: Output) -> Output:
    return out("SigmoidGrad", [node.outputs[0], grad])


# The two gradient ops are linear in dy and depend on the conjugate of y.


@RegisterGradient("TanhGrad")
def _tanh_grad(node: Node, grad: Output) -> Pair:
    y, dy = node.inputs
    to_y = _mul(conj(grad), _mul(scalar_like(-2, dy), _mul(dy, conj(y))))
    return [to_y, out("TanhGrad", [conj(y), grad])]


@RegisterGradient("SigmoidGrad")
def _sigmoid_grad(node: Node, grad: Output) -> Pair:
    y, dy = node.inputs
    slope = _minus(1, _mul(scalar_like(2, y), conj(y)))
    return [_mul(conj(grad), _mul(dy, slope)), out("SigmoidGrad", [conj(y), grad])]


@RegisterGradient("Atan2")
def _atan2(node: Node, grad: Output) -> Pair:
    y, x = node.inputs
    scaled = _div(grad, out("AddV2", [_square(x), _square(y)]))
    return sum_to_shapes(node, _mul(x, scaled), _neg(_mul(y, scaled)))


# ------------------------------------------------------------------------ special functions


@RegisterGradient("Erf")
def _erf(node: Node, grad: Output) -> Output:
    slope = out("Exp", [_neg(_square(node.inputs[0]))])
    return _mul(grad, _mul(scalar_like(2 / math.sqrt(math.pi), slope), slope))


@RegisterGradient("Erfc")
def _erfc(node: Node, grad: Output) -> Output:
    return _neg(_erf(node, grad))


@RegisterGradient("Lgamma")
def _lgamma(node: Node, grad: Output) -> Output:
    return _mul(grad, out("Digamma", [node.inputs[0]]))


@RegisterGradient("Digamma")
def _digamma(node: Node, grad: Output) -> Output:
    x = node.inputs[0]
    dtype = x.dtype.base_dtype
    if dtype in (dtypes.float32, dtypes.float64):
        return _mul(grad, out("Polygamma", [scalar_like(1, x), x]))
    wide = out("Cast", [x], {"DstT": dtypes.float32})
    slope = out("Polygamma", [scalar_like(1, wide), wide])
    return _mul(grad, out("Cast", [slope], {"DstT": dtype}))


@RegisterGradient("BesselI0e")
def _bessel_i0e(node: Node, grad: Output) -> Output:
    x = node.inputs[0]
    turn = _mul(out("Sign", [x]), node.outputs[0])
    return _mul(grad, out("Sub", [out("BesselI1e", [x]), turn]))


@RegisterGradient("BesselI1e")
def _bessel_i1e(node: Node, grad: Output) -> Output:
    x, y = node.inputs[0], node.outputs[0]
    # i1e(x) / x is 1 / 2 at 0.
    is_zero = out("Equal", [x, scalar_like(0, x)])
    safe = out("SelectV2", [is_zero, scalar_like(1, x), x])
    ratio = out("SelectV2", [is_zero, scalar_like(0.5, x), _div(y, safe)])
    slope = out("Sub", [out("BesselI0e", [x]), _mul(out("Sign", [x]), y)])
    return _mul(grad, out("Sub", [slope, ratio]))


def _nonzero(x: Output) -> Output:
    """1 where x is not 0, and 0 where it is."""
    return out("Cast", [out("NotEqual", [x, scalar_like(0, x)])], {"DstT": x.dtype})


@RegisterGradient("Xlogy")
def _xlogy(node: Node, grad: Output) -> Pair:
    x, y = conj(node.inputs[0]), conj(node.inputs[1])
    to_x = _mul(grad, out("Xlogy", [_nonzero(x), y]))
    return sum_to_shapes(node, to_x, _mul(grad, out("Xdivy", [x, y])))


@RegisterGradient("Xdivy")
def _xdivy(node: Node, grad: Output) -> Pair:
    x, y = conj(node.inputs[0]), conj(node.inputs[1])
    to_x = _mul(grad, out("Xdivy", [_nonzero(x), y]))
    return sum_to_shapes(node, to_x, _mul(grad, out("Xdivy", [_neg(x), _square(y)])))


@RegisterGradient("NextAfter")
def _next_after(node: Node, grad: Output) -> Pair:
    return sum_to_shapes(node, grad, None)


@RegisterGradient("Polygamma")
def _polygamma(node: Node, grad: Output) -> Pair:
    a, x = node.inputs  # the order is an integer: nothing flows to it
    return sum_to_shapes(node, None, _mul(grad, out("Polygamma", [_plus(1, a), x])))


@RegisterGradient("Zeta")
def _zeta(node: Node, grad: Output) -> Pair:
    x, q = node.inputs  # for x, as in TensorFlow, none is known
    slope = _mul(x, out("Zeta", [_plus(1, x), q]))
    return sum_to_shapes(node, None, _neg(_mul(grad, slope)))


@RegisterGradient("Igamma")
def _igamma(node: Node, grad: Output) -> Pair:
    a, x = node.inputs
    log = out("Sub", [_mul(out("Sub", [a, scalar_like(1, a)]), out("Log", [x])), x])
    density = out("Exp", [out("Sub", [log, out("Lgamma", [a])])])
    return sum_to_shapes(node, _mul(grad, out("IgammaGradA", [a, x])), _mul(grad, density))


@RegisterGradient("Igammac")
def _igammac(node: Node, grad: Output) -> Pair:
    return _igamma(node, _neg(grad))
