"""Gradients of TensorArrays.

Every forward array has a gradient array for each call of `gradients`. The gradient of a read adds
to an element of it, and the gradient of a write reads one. The gradient of a flow is the flow of
the gradient array: it makes the read wait for all earlier additions.
"""

from __future__ import annotations

from typing import Any

from weft_autodiff.registry import RegisterGradient, gradient_source
from weft_graph.ir.node import Node, Output
from weft_graph.ops import tensor_array as ops


def _gradient_array(op: Node, flow: Output) -> tuple[Output, Output]:
    """Return the handle and flow of this call's gradient array, sequenced after `flow`."""
    return ops.tensor_array_grad_v3(op.inputs[0], flow, gradient_source())


@RegisterGradient("TensorArrayGradV3", accepts_none=True)
@RegisterGradient("TensorArrayGradWithShape", accepts_none=True)
def _gradient(op: Node, handle: Any, flow: Any) -> list[Any]:
    return [None, flow, *[None] * (len(op.inputs) - 2)]


@RegisterGradient("TensorArrayReadV3")
def _read(op: Node, grad: Output) -> list[Any]:
    _, index, flow = op.inputs
    with op.graph.colocate_with(op.inputs[0]):
        handle, grad_flow = _gradient_array(op, flow)
        return [None, None, ops.tensor_array_write_v3(handle, index, grad, grad_flow)]


@RegisterGradient("TensorArrayWriteV3")
def _write(op: Node, flow: Output) -> list[Any]:
    _, index, value, _ = op.inputs
    with op.graph.colocate_with(op.inputs[0]):
        handle, grad_flow = _gradient_array(op, flow)
        grad = ops.tensor_array_read_v3(handle, index, grad_flow, value.dtype)
    grad.set_shape(value.dims)
    return [None, None, grad, flow]


@RegisterGradient("TensorArrayGatherV3")
def _gather(op: Node, grad: Output) -> list[Any]:
    _, indices, flow = op.inputs
    with op.graph.colocate_with(op.inputs[0]):
        handle, grad_flow = _gradient_array(op, flow)
        return [None, None, ops.tensor_array_scatter_v3(handle, indices, grad, grad_flow)]


@RegisterGradient("TensorArrayScatterV3")
def _scatter(op: Node, flow: Output) -> list[Any]:
    _, indices, value, _ = op.inputs
    element_dims = value.dims[1:] if value.dims else None
    with op.graph.colocate_with(op.inputs[0]):
        handle, grad_flow = _gradient_array(op, flow)
        grad = ops.tensor_array_gather_v3(handle, indices, grad_flow, value.dtype, element_dims)
    grad.set_shape(value.dims)
    return [None, None, grad, flow]


@RegisterGradient("TensorArrayConcatV3", accepts_none=True)
def _concat(op: Node, grad: Any, lengths: Any) -> list[Any]:
    if grad is None:
        return [None, None]
    with op.graph.colocate_with(op.inputs[0]):
        handle, grad_flow = _gradient_array(op, op.inputs[1])
        return [None, ops.tensor_array_split_v3(handle, grad, op.outputs[1], grad_flow)]


@RegisterGradient("TensorArraySplitV3")
def _split(op: Node, flow: Output) -> list[Any]:
    _, value, _, _ = op.inputs
    element_dims = value.dims[1:] if value.dims else None
    with op.graph.colocate_with(op.inputs[0]):
        handle, grad_flow = _gradient_array(op, flow)
        grad, _ = ops.tensor_array_concat_v3(handle, grad_flow, value.dtype, element_dims)
    grad.set_shape(value.dims)
    return [None, grad, None, flow]
