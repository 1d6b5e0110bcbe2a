"""Gradients of padding."""

from __future__ import annotations

import numpy as np

from weft_autodiff.grads.array import all_axes
from weft_autodiff.grads.common import ints, shape_of
from weft_autodiff.registry import RegisterGradient
from weft_graph.ir.builder import constant_of, out
from weft_graph.ir.node import Node, Output
from weft_graph.ops.shape_rules import constant_array


def _inner(op: Node, grad: Output) -> Output:
    """Return the part of a padded tensor that is not padding."""
    x, paddings = op.inputs[:2]
    constant = constant_array(paddings)
    if constant is not None:
        begin = constant_of(constant[:, 0].astype(np.int32))
        return out("Slice", [grad, begin, shape_of(x)])
    kind = paddings.dtype.base_dtype
    bounds = [ints([0, 0]), ints([0, 1]), ints([1, 1])]
    begin = out(
        "StridedSlice", [paddings, *bounds], {"begin_mask": 1, "end_mask": 1, "shrink_axis_mask": 2}
    )
    return out("Slice", [grad, begin, out("Shape", [x], {"out_type": kind})])


@RegisterGradient("Pad")
def _pad(op: Node, grad: Output) -> list[Output | None]:
    return [_inner(op, grad), None]


@RegisterGradient("PadV2")
def _pad_v2(op: Node, grad: Output) -> list[Output | None]:
    inner = _inner(op, grad)
    axes = all_axes(grad)
    border = out("Sub", [out("Sum", [grad, axes]), out("Sum", [inner, axes])])
    return [inner, None, border]


@RegisterGradient("MirrorPad")
def _mirror_pad(op: Node, grad: Output) -> list[Output | None]:
    return [out("MirrorPadGrad", [grad, op.inputs[1]], {"mode": op.attrs["mode"]}), None]


@RegisterGradient("MirrorPadGrad")
def _mirror_pad_grad(op: Node, grad: Output) -> list[Output | None]:
    return [out("MirrorPad", [grad, op.inputs[1]], {"mode": op.attrs["mode"]}), None]
