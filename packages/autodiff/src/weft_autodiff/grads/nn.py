"""Gradients of activations, biases, softmax and the fused losses."""

from __future__ import annotations

from collections.abc import Sequence

from weft_autodiff.grads.common import ints, scalar_like, shape_of, sum_to_shape
from weft_autodiff.registry import RegisterGradient
from weft_graph.ir.builder import out
from weft_graph.ir.node import Node, Output

Grads = list[Output | None]

_SCALE = 1.0507009873554804934193349852946
_SCALE_ALPHA = _SCALE * 1.6732632423543772848170429916717

# ------------------------------------------------------------------------- activations


def _register(op: str, uses_output: bool = False) -> None:
    """Register an activation's gradient op, which reads the features or the output."""

    def gradient(node: Node, grad: Output) -> Output:
        value = node.outputs[0] if uses_output else node.inputs[0]
        return out(f"{op}Grad", [grad, value])

    RegisterGradient(op)(gradient)


for _op in ("Relu", "Relu6", "Softplus", "Softsign"):
    _register(_op)
for _op in ("Elu", "Selu"):
    _register(_op, uses_output=True)


def _register_masked(op: str) -> None:
    """Register a gradient op whose own gradient passes where the first one did."""

    def gradient(node: Node, grad: Output) -> Grads:
        return [out(op, [grad, node.inputs[1]]), None]

    RegisterGradient(op)(gradient)


_register_masked("ReluGrad")
_register_masked("Relu6Grad")


@RegisterGradient("LeakyRelu")
def _leaky_relu(node: Node, grad: Output) -> Output:
    return out("LeakyReluGrad", [grad, node.inputs[0]], {"alpha": node.attrs["alpha"]})


@RegisterGradient("LeakyReluGrad")
def _leaky_relu_grad(node: Node, grad: Output) -> Grads:
    attrs = {"alpha": node.attrs["alpha"]}
    return [out("LeakyReluGrad", [grad, node.inputs[1]], attrs), None]


def _select_negative(y: Output, values: Output) -> Output:
    """Return `values` where y < 0, else zero."""
    zero = out("ZerosLike", [values])
    return out("SelectV2", [out("Less", [y, scalar_like(0, y)]), values, zero])


@RegisterGradient("EluGrad")
def _elu_grad(node: Node, grad: Output) -> Grads:
    upstream, y = node.inputs
    return [out("EluGrad", [grad, y]), _select_negative(y, out("Mul", [grad, upstream]))]


@RegisterGradient("SeluGrad")
def _selu_grad(node: Node, grad: Output) -> Grads:
    upstream, y = node.inputs
    return [out("SeluGrad", [grad, y]), _select_negative(y, out("Mul", [grad, upstream]))]


@RegisterGradient("SoftplusGrad")
def _softplus_grad(node: Node, grad: Output) -> Grads:
    upstream, x = node.inputs
    slope = out("Sigmoid", [x])
    curve = out("Mul", [slope, out("Sub", [scalar_like(1, x), slope])])
    product = out("Mul", [grad, upstream])
    return [out("SoftplusGrad", [grad, x]), out("Mul", [product, curve])]


@RegisterGradient("SoftsignGrad")
def _softsign_grad(node: Node, grad: Output) -> Grads:
    upstream, x = node.inputs
    inner = out("AddV2", [out("Abs", [x]), scalar_like(1, x)])
    curve = out("Mul", [scalar_like(-2, x), out("Sign", [x])])
    cube = out("Mul", [out("Mul", [inner, inner]), inner])
    product = out("Mul", [grad, upstream])
    second = out("Mul", [product, out("RealDiv", [curve, cube])])
    return [out("SoftsignGrad", [grad, x]), second]


# ----------------------------------------------------------------------- bias and loss


@RegisterGradient("BiasAdd")
def _bias_add(node: Node, grad: Output) -> Grads:
    data_format = node.attrs["data_format"]
    return [grad, out("BiasAddGrad", [grad], {"data_format": data_format})]


@RegisterGradient("BiasAddGrad")
def _bias_add_grad(node: Node, grad: Output) -> Output:
    """Broadcast the gradient of each channel to all its positions."""
    upstream = node.inputs[0]
    if node.attrs["data_format"] == "NCHW":
        rank = None if upstream.dims is None else len(upstream.dims)
        if rank is None:
            grad = _reshape_unknown_rank(grad, upstream)
        else:
            grad = out("Reshape", [grad, ints([-1] + [1] * (rank - 2))])
    return out("BroadcastTo", [grad, shape_of(upstream)])


def _reshape_unknown_rank(grad: Output, like: Output) -> Output:
    extra = out("Sub", [out("Rank", [like]), 2])
    unit_sizes = out("Fill", [out("ExpandDims", [extra, 0]), 1])
    return out("Reshape", [grad, out("ConcatV2", [[ints([-1]), unit_sizes], 0])])


@RegisterGradient("L2Loss")
def _l2_loss(node: Node, grad: Output) -> Output:
    return out("Mul", [node.inputs[0], grad])


# ---------------------------------------------------------------------------- softmax


def _sum_last(value: Output) -> Output:
    return out("Sum", [value, ints([-1])], {"keep_dims": True})


@RegisterGradient("Softmax")
def _softmax(node: Node, grad: Output) -> Output:
    y = node.outputs[0]
    inner = _sum_last(out("Mul", [grad, y]))
    return out("Mul", [out("Sub", [grad, inner]), y])


@RegisterGradient("LogSoftmax")
def _log_softmax(node: Node, grad: Output) -> Output:
    soft = out("Exp", [node.outputs[0]])
    return out("Sub", [grad, out("Mul", [_sum_last(grad), soft])])


def _gradient_of_logits(node: Node, grad: Output | None, by_backprop: Output | None) -> Output:
    """Return the gradient with respect to the logits.

    The op's second output is the gradient of the loss with respect to the logits. Its gradient is
    multiplied by the Jacobian of the softmax, for second derivatives.
    """
    total = None
    if grad is not None:
        total = out("Mul", [out("ExpandDims", [grad, -1]), node.outputs[1]])
    if by_backprop is not None:
        soft = out("Softmax", [node.inputs[0]])
        inner = _sum_last(out("Mul", [by_backprop, soft]))
        second = out("Mul", [out("Sub", [by_backprop, inner]), soft])
        total = second if total is None else out("AddV2", [total, second])
    assert total is not None
    return total


@RegisterGradient("SoftmaxCrossEntropyWithLogits", accepts_none=True, accepts_needed=True)
def _cross_entropy(
    node: Node, grad: Output | None, by_backprop: Output | None, needed: Sequence[bool]
) -> Grads:
    logits, labels = node.inputs
    to_logits = sum_to_shape(_gradient_of_logits(node, grad, by_backprop), logits, labels)
    if not needed[1]:
        return [to_logits, None]
    to_labels = None
    if grad is not None:
        log_soft = out("Neg", [out("LogSoftmax", [logits])])
        to_labels = out("Mul", [out("ExpandDims", [grad, -1]), log_soft])
    if by_backprop is not None:
        second = out("Neg", [by_backprop])
        to_labels = second if to_labels is None else out("AddV2", [to_labels, second])
    assert to_labels is not None
    return [to_logits, sum_to_shape(to_labels, labels, logits)]


@RegisterGradient("SparseSoftmaxCrossEntropyWithLogits", accepts_none=True)
def _sparse_cross_entropy(node: Node, grad: Output | None, by_backprop: Output | None) -> Grads:
    return [_gradient_of_logits(node, grad, by_backprop), None]
