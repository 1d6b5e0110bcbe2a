"""Gradients of simulated quantization: passed through rounding, zero where clipped."""

from __future__ import annotations

from weft_autodiff.grads.common import scalar_like, zeros_like
from weft_autodiff.registry import RegisterGradient
from weft_graph.ir.builder import create, out
from weft_graph.ir.node import Node, Output

Grads = list[Output | None]


def _quantization_attrs(node: Node) -> dict[str, object]:
    return {key: node.attrs[key] for key in ("num_bits", "narrow_range")}


def _args_attrs(node: Node) -> dict[str, object]:
    return _quantization_attrs(node) | {"min": node.attrs["min"], "max": node.attrs["max"]}


@RegisterGradient("FakeQuantWithMinMaxArgs")
def _fake_args(node: Node, grad: Output) -> Output:
    inputs = [grad, node.inputs[0]]
    return out("FakeQuantWithMinMaxArgsGradient", inputs, _args_attrs(node))


@RegisterGradient("FakeQuantWithMinMaxArgsGradient")
def _fake_args_gradient(node: Node, grad: Output) -> Grads:
    inputs = [grad, node.inputs[1]]
    return [out("FakeQuantWithMinMaxArgsGradient", inputs, _args_attrs(node)), None]


@RegisterGradient("FakeQuantWithMinMaxVars")
@RegisterGradient("FakeQuantWithMinMaxVarsPerChannel")
def _fake_vars(node: Node, grad: Output) -> Grads:
    return list(
        create(f"{node.type}Gradient", [grad, *node.inputs], _quantization_attrs(node)).outputs
    )


@RegisterGradient("FakeQuantWithMinMaxVarsGradient")
@RegisterGradient("FakeQuantWithMinMaxVarsPerChannelGradient")
def _fake_vars_gradient(node: Node, *grads: Output | None) -> Grads:
    """Return the gradient with respect to `grad`, from the gradients of the input and the bounds.

    The range contains 0, so negative values outside of it were clipped to the lower bound.
    """
    _, x, low, high = node.inputs
    inside, below, above = (
        grad if grad is not None else zeros_like(output)
        for grad, output in zip(grads, node.outputs, strict=True)
    )
    ends = out("SelectV2", [out("Less", [x, scalar_like(0, x)]), below, above])
    masked = create(
        node.type, [out("Sub", [inside, ends]), x, low, high], _quantization_attrs(node)
    ).outputs[0]
    return [out("AddV2", [masked, ends]), None, None, None]


@RegisterGradient("QuantizeAndDequantize")
@RegisterGradient("QuantizeAndDequantizeV2")
@RegisterGradient("QuantizeAndDequantizeV3")
def _straight_through(node: Node, grad: Output) -> Grads:
    return [grad, *(None,) * (len(node.inputs) - 1)]


@RegisterGradient("QuantizeAndDequantizeV4")
def _quantize_dequantize_v4(node: Node, grad: Output) -> Grads:
    attrs = {"axis": node.attrs["axis"]}
    return list(create("QuantizeAndDequantizeV4Grad", [grad, *node.inputs], attrs).outputs)


@RegisterGradient("QuantizeAndDequantizeV4Grad")
def _quantize_dequantize_v4_grad(node: Node, grad: Output | None, *_: Output | None) -> Grads:
    if grad is None:
        return [None] * 4
    attrs = {"axis": node.attrs["axis"]}
    backprop = create(node.type, [grad, *node.inputs[1:]], attrs)
    return [backprop.outputs[0], None, None, None]
