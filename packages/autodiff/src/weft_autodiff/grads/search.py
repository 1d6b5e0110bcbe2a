"""Gradients of ops that find elements."""

from __future__ import annotations

from weft_autodiff.grads.common import div, ints, mul, shape_of
from weft_autodiff.registry import RegisterGradient
from weft_graph.ir.builder import out
from weft_graph.ir.node import Node, Output


def _scatter_gradient(op: Node, grad: Output) -> Output:
    """Return the gradient of the selected elements, scattered to their positions."""
    x, indices = op.inputs[0], op.outputs[1]
    shape = shape_of(x)
    bounds = [ints([-1]), ints([0]), ints([1])]
    size = out("StridedSlice", [shape, *bounds], {"end_mask": 1, "shrink_axis_mask": 1})
    lead = out("StridedSlice", [shape, ints([0]), ints([-1]), ints([1])])
    rows = out("Prod", [lead, ints([0])])
    last = out("StridedSlice", [out("Shape", [indices]), *bounds], {"end_mask": 1})
    table = out("Reshape", [indices, out("ConcatV2", [[out("Reshape", [rows, [1]]), last], 0])])
    starts = out("ExpandDims", [out("Mul", [out("Range", [0, rows, 1]), size]), 1])
    positions = out("Reshape", [out("AddV2", [table, starts]), ints([-1])])
    flat = out("Reshape", [grad, ints([-1])])
    total = out("UnsortedSegmentSum", [flat, positions, out("Mul", [rows, size])])
    return out("Reshape", [total, shape])


@RegisterGradient("TopK")
def _top_k(op: Node, grad: Output, _: Output | None) -> Output:
    return _scatter_gradient(op, grad)


@RegisterGradient("TopKV2")
def _top_k_v2(op: Node, grad: Output, _: Output | None) -> list[Output | None]:
    return [_scatter_gradient(op, grad), None]


@RegisterGradient("NthElement")
def _nth_element(op: Node, grad: Output) -> list[Output | None]:
    """Split the gradient among elements equal to the n-th."""
    x, last = op.inputs[0], ints([-1])
    is_nth = out("Equal", [x, out("ExpandDims", [op.outputs[0], last])])
    shares = out("Cast", [is_nth], {"DstT": x.dtype.base_dtype})
    number = out("Sum", [shares, last], {"keep_dims": True})
    return [mul(div(shares, number), out("ExpandDims", [grad, last])), None]
