"""Gradients of pooling."""

from __future__ import annotations

from typing import Any

from weft_autodiff.grads.common import scalar_like, shape_of
from weft_autodiff.registry import RegisterGradient
from weft_graph.ir.builder import out
from weft_graph.ir.node import Node, Output


def _attrs(node: Node, *left_out: str) -> dict[str, Any]:
    return {k: v for k, v in node.attrs.items() if k[0] != "_" and k not in left_out}


def _register_max(pool: str) -> None:
    def gradient_of_pool(node: Node, grad: Output) -> Output:
        return out(f"{pool}Grad", [node.inputs[0], node.outputs[0], grad], _attrs(node))

    def gradient_of_grad(node: Node, grad: Output) -> list[Output | None]:
        x, y, _ = node.inputs
        return [None, None, out(f"{pool}GradGrad", [x, y, grad], _attrs(node))]

    def gradient_of_grad_grad(node: Node, grad: Output) -> list[Output | None]:
        x, y, _ = node.inputs
        return [None, None, out(f"{pool}Grad", [x, y, grad], _attrs(node))]

    RegisterGradient(pool)(gradient_of_pool)
    RegisterGradient(f"{pool}Grad")(gradient_of_grad)
    RegisterGradient(f"{pool}GradGrad")(gradient_of_grad_grad)


def _register_max_v2() -> None:
    def gradient_of_pool(node: Node, grad: Output) -> list[Output | None]:
        x, *window = node.inputs
        return [out("MaxPoolGradV2", [x, node.outputs[0], grad, *window], _attrs(node)), None, None]

    def gradient_of_grad(node: Node, grad: Output) -> list[Output | None]:
        x, y, _, *window = node.inputs
        second = out("MaxPoolGradGradV2", [x, y, grad, *window], _attrs(node))
        return [None, None, second, None, None]

    def gradient_of_grad_grad(node: Node, grad: Output) -> list[Output | None]:
        x, y, _, *window = node.inputs
        return [None, None, out("MaxPoolGradV2", [x, y, grad, *window], _attrs(node)), None, None]

    RegisterGradient("MaxPoolV2")(gradient_of_pool)
    RegisterGradient("MaxPoolGradV2")(gradient_of_grad)
    RegisterGradient("MaxPoolGradGradV2")(gradient_of_grad_grad)


def _register_avg(pool: str) -> None:
    def gradient_of_pool(node: Node, grad: Output) -> Output:
        return out(f"{pool}Grad", [shape_of(node.inputs[0]), grad], _attrs(node))

    def gradient_of_grad(node: Node, grad: Output) -> list[Output | None]:
        return [None, out(pool, [grad], _attrs(node))]

    RegisterGradient(pool)(gradient_of_pool)
    RegisterGradient(f"{pool}Grad")(gradient_of_grad)


_register_max("MaxPool")
_register_max("MaxPool3D")
_register_max_v2()
_register_avg("AvgPool")
_register_avg("AvgPool3D")


@RegisterGradient("MaxPoolWithArgmax")
def _max_pool_with_argmax(node: Node, grad: Output | None, _: Output | None) -> Output | None:
    if grad is None:
        return None
    return out("MaxPoolGradWithArgmax", [node.inputs[0], grad, node.outputs[1]], _attrs(node))


@RegisterGradient("MaxPoolGradWithArgmax")
def _max_pool_grad_with_argmax(node: Node, grad: Output) -> list[Output | None]:
    x, upstream, argmax = node.inputs
    return [None, _gather_at(grad, argmax, x, upstream, node), None]


def _gather_at(grad: Output, argmax: Output, x: Output, like: Output, node: Node) -> Output:
    """Return the entries of `grad` at flat indices `argmax`, in the shape of `like`."""
    indices = out("Reshape", [argmax, [-1]])
    if not node.attrs["include_batch_in_index"]:
        dtype = argmax.dtype
        image = out("Prod", [out("Shape", [x], {"out_type": dtype})[1:], [0]])
        batch = out("Shape", [x], {"out_type": dtype})[0]
        zero, unit = scalar_like(0, argmax), scalar_like(1, argmax)
        starts = out("ExpandDims", [out("Range", [zero, batch, unit]) * image, -1])
        rows = out("Reshape", [argmax, out("Pack", [[batch, scalar_like(-1, argmax)]])])
        indices = out("Reshape", [rows + starts, [-1]])
    selected = out("GatherV2", [out("Reshape", [grad, [-1]]), indices, 0])
    return out("Reshape", [selected, shape_of(like)])
