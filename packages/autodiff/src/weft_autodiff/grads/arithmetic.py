"""Gradients of arithmetic.

For complex values the gradient of a real loss L is dL/dRe(x) + i dL/dIm(x), as in TensorFlow, so
the derivative of a holomorphic function enters conjugated.
"""

from __future__ import annotations

from weft_autodiff.grads.common import conj, scalar_like, sum_to_shape, sum_to_shapes
from weft_autodiff.registry import RegisterGradient
from weft_graph.ir.builder import out
from weft_graph.ir.node import Node, Output
from weft_graph.ir.traits import Role

Pair = list[Output | None]


def _neg(x: Output) -> Output:
    return out("Neg", [x])


def _mul(x: Output, y: Output) -> Output:
    return out("Mul", [x, y])


@RegisterGradient("Add")
@RegisterGradient("AddV2")
def _add(node: Node, grad: Output) -> Pair:
    return sum_to_shapes(node, grad, grad)


@RegisterGradient("Sub")
def _sub(node: Node, grad: Output) -> Pair:
    to_x, to_y = sum_to_shapes(node, grad, grad)
    return [to_x, None if to_y is None else _neg(to_y)]


@RegisterGradient("Mul")
def _mul_grad(node: Node, grad: Output) -> Pair:
    x, y = node.inputs
    return sum_to_shapes(node, _mul(grad, conj(y)), _mul(grad, conj(x)))


@RegisterGradient("Div")
@RegisterGradient("RealDiv")
def _div(node: Node, grad: Output) -> Pair:
    to_x = out("RealDiv", [grad, conj(node.inputs[1])])
    to_y = _neg(_mul(to_x, conj(node.outputs[0])))
    return sum_to_shapes(node, to_x, to_y)


@RegisterGradient("DivNoNan")
def _div_no_nan(node: Node, grad: Output) -> Pair:
    to_x = out("DivNoNan", [grad, conj(node.inputs[1])])
    to_y = _neg(_mul(to_x, conj(node.outputs[0])))
    return sum_to_shapes(node, to_x, to_y)


@RegisterGradient("MulNoNan")
def _mul_no_nan(node: Node, grad: Output) -> Pair:
    x, y = node.inputs
    to_x = out("MulNoNan", [grad, conj(y)])
    return sum_to_shapes(node, to_x, out("MulNoNan", [conj(x), grad]))


@RegisterGradient("FloorMod")
def _floor_mod(node: Node, grad: Output) -> Pair:
    quotient = out("FloorDiv", list(node.inputs))
    return sum_to_shapes(node, grad, _neg(_mul(grad, quotient)))


@RegisterGradient("TruncateMod")
@RegisterGradient("Mod")
def _truncate_mod(node: Node, grad: Output) -> Pair:
    quotient = out("TruncateDiv", list(node.inputs))
    return sum_to_shapes(node, grad, _neg(_mul(grad, quotient)))


@RegisterGradient("Pow")
def _pow(node: Node, grad: Output) -> Pair:
    x, y = node.inputs
    cx, cy = conj(x), conj(y)
    power = out("Pow", [cx, out("Sub", [cy, scalar_like(1, y)])])
    to_x = _mul(grad, _mul(cy, power))
    if y.node.role is Role.CONSTANT:
        return sum_to_shapes(node, to_x, None)
    # log(x) is undefined for x <= 0, where the power does not depend smoothly on y either.
    zero = scalar_like(0, x)
    usable = out("NotEqual", [x, zero]) if x.dtype.is_complex else out("Greater", [x, zero])
    safe = out("SelectV2", [usable, cx, scalar_like(1, x)])
    log = out("SelectV2", [usable, out("Log", [safe]), zero])
    return sum_to_shapes(node, to_x, _mul(grad, _mul(conj(node.outputs[0]), log)))


def _extreme(node: Node, grad: Output, comparison: str) -> Pair:
    chosen = out(comparison, list(node.inputs))
    zero = scalar_like(0, grad)
    to_x = out("SelectV2", [chosen, grad, zero])
    return sum_to_shapes(node, to_x, out("SelectV2", [chosen, zero, grad]))


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
    scaled = _mul(grad, scalar_like(2, grad))
    difference = _mul(scaled, out("Sub", [x, y]))
    to_x, to_y = sum_to_shapes(node, difference, difference)
    return [to_x, None if to_y is None else _neg(to_y)]


# --------------------------------------------------------------------------- of one input


@RegisterGradient("Neg")
def _negative(node: Node, grad: Output) -> Output:
    return _neg(grad)


@RegisterGradient("Abs")
def _abs(node: Node, grad: Output) -> Output:
    return _mul(grad, out("Sign", [node.inputs[0]]))


@RegisterGradient("ComplexAbs")
def _complex_abs(node: Node, grad: Output) -> Output:
    x = node.inputs[0]
    return _mul(out("Cast", [grad], {"DstT": x.dtype}), out("Sign", [x]))


@RegisterGradient("Sign")
def _sign(node: Node, grad: Output) -> Output | None:
    if not grad.dtype.is_complex:
        return None
    # x / |x| turns with the part of a change that is perpendicular to x.
    x, y = node.inputs[0], node.outputs[0]
    real = grad.dtype.real_dtype
    along = out("Real", [_mul(conj(y), grad)], {"Tout": real})
    across = out("Sub", [grad, _mul(y, out("Cast", [along], {"DstT": grad.dtype}))])
    size = out("Cast", [out("ComplexAbs", [x], {"Tout": real})], {"DstT": grad.dtype})
    return out("DivNoNan", [across, size])


@RegisterGradient("Square")
def _square(node: Node, grad: Output) -> Output:
    x = conj(node.inputs[0])
    return _mul(grad, _mul(scalar_like(2, x), x))


@RegisterGradient("Sqrt")
def _sqrt(node: Node, grad: Output) -> Output:
    return out("SqrtGrad", [node.outputs[0], grad])


@RegisterGradient("Rsqrt")
def _rsqrt(node: Node, grad: Output) -> Output:
    return out("RsqrtGrad", [node.outputs[0], grad])


@RegisterGradient("Reciprocal")
@RegisterGradient("Inv")
def _reciprocal(node: Node, grad: Output) -> Output:
    return out("ReciprocalGrad", [node.outputs[0], grad])


# The gradient ops below are linear in dy and depend on the conjugate of y.


@RegisterGradient("SqrtGrad")
def _sqrt_grad(node: Node, grad: Output) -> Pair:
    quotient = out("RealDiv", [grad, node.inputs[0]])
    to_y = _neg(_mul(conj(quotient), node.outputs[0]))
    return [to_y, _mul(quotient, scalar_like(0.5, grad))]


@RegisterGradient("RsqrtGrad")
def _rsqrt_grad(node: Node, grad: Output) -> Pair:
    y, dy = node.inputs
    square = out("Square", [conj(y)])
    to_y = _mul(conj(grad), _mul(scalar_like(-1.5, dy), _mul(dy, square)))
    return [to_y, out("RsqrtGrad", [conj(y), grad])]


@RegisterGradient("ReciprocalGrad")
@RegisterGradient("InvGrad")
def _reciprocal_grad(node: Node, grad: Output) -> Pair:
    y, dy = node.inputs
    to_y = _mul(conj(grad), _mul(scalar_like(-2, dy), _mul(dy, conj(y))))
    return [to_y, out("ReciprocalGrad", [conj(y), grad])]


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
    to_low = out("SelectV2", [below, grad, zero])
    to_high = out("SelectV2", [above, grad, zero])
    return [
        out("SelectV2", [outside, zero, grad]),
        sum_to_shape(to_low, low, t),
        sum_to_shape(to_high, high, t),
    ]
