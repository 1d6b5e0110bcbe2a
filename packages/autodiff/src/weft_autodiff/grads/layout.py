"""Gradients of ops that move elements."""

from __future__ import annotations

import numpy as np

from weft_autodiff.grads.array import all_axes
from weft_autodiff.grads.common import ints, shape_of
from weft_autodiff.registry import RegisterGradient
from weft_graph.ir.builder import constant_of, out
from weft_graph.ir.node import Node, Output
from weft_graph.ops.shape_rules import constant_array


def _inner(op: Node, grad: Output) -> Output:
    """The part of a padded tensor that is not padding."""
    x, paddings = op.inputs[:2]
    known = constant_array(paddings)
    if known is not None:
        begin = constant_of(known[:, 0].astype(np.int32))
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
    rest = out("Sub", [out("Sum", [grad, axes]), out("Sum", [inner, axes])])
    return [inner, None, rest]


@RegisterGradient("MirrorPad")
def _mirror_pad(op: Node, grad: Output) -> list[Output | None]:
    return [out("MirrorPadGrad", [grad, op.inputs[1]], {"mode": op.attrs["mode"]}), None]


@RegisterGradient("MirrorPadGrad")
def _mirror_pad_grad(op: Node, grad: Output) -> list[Output | None]:
    return [out("MirrorPad", [grad, op.inputs[1]], {"mode": op.attrs["mode"]}), None]


@RegisterGradient("Transpose")
def _transpose(op: Node, grad: Output) -> list[Output | None]:
    return [out("Transpose", [grad, _inverse(op.inputs[1])]), None]


@RegisterGradient("ConjugateTranspose")
def _conjugate_transpose(op: Node, grad: Output) -> list[Output | None]:
    return [out("ConjugateTranspose", [grad, _inverse(op.inputs[1])]), None]


def _inverse(perm: Output) -> Output:
    known = constant_array(perm)
    if known is not None:
        return constant_of(np.argsort(known).astype(known.dtype))
    return out("InvertPermutation", [perm])


@RegisterGradient("Reverse")
def _reverse(op: Node, grad: Output) -> list[Output | None]:
    return [out("Reverse", [grad, op.inputs[1]]), None]


@RegisterGradient("ReverseV2")
def _reverse_v2(op: Node, grad: Output) -> list[Output | None]:
    return [out("ReverseV2", [grad, op.inputs[1]]), None]


@RegisterGradient("ReverseSequence")
def _reverse_sequence(op: Node, grad: Output) -> list[Output | None]:
    attrs = {"seq_dim": op.attrs["seq_dim"], "batch_dim": op.attrs["batch_dim"]}
    return [out("ReverseSequence", [grad, op.inputs[1]], attrs), None]


@RegisterGradient("Roll")
def _roll(op: Node, grad: Output) -> list[Output | None]:
    _, shift, axis = op.inputs
    return [out("Roll", [grad, out("Neg", [shift]), axis]), None, None]


@RegisterGradient("SpaceToBatchND")
def _space_to_batch(op: Node, grad: Output) -> list[Output | None]:
    return [out("BatchToSpaceND", [grad, *op.inputs[1:]]), None, None]


@RegisterGradient("BatchToSpaceND")
def _batch_to_space(op: Node, grad: Output) -> list[Output | None]:
    return [out("SpaceToBatchND", [grad, *op.inputs[1:]]), None, None]


@RegisterGradient("SpaceToDepth")
def _space_to_depth(op: Node, grad: Output) -> Output:
    return out("DepthToSpace", [grad], _block_attrs(op))


@RegisterGradient("DepthToSpace")
def _depth_to_space(op: Node, grad: Output) -> Output:
    return out("SpaceToDepth", [grad], _block_attrs(op))


def _block_attrs(op: Node) -> dict[str, object]:
    return {name: op.attrs[name] for name in ("block_size", "data_format")}


@RegisterGradient("ExtractImagePatches")
def _extract_image_patches(op: Node, grad: Output) -> Output:
    # The patches of an image of positions say where each element of the gradient came from.
    images = op.inputs[0]
    shape = out("Shape", [images])
    batch, height, width, depth = [
        out("StridedSlice", [shape, ints([i]), ints([i + 1]), ints([1])], {"shrink_axis_mask": 1})
        for i in range(4)
    ]
    count = out("Mul", [height, width])
    numbers = out("Range", [1, out("AddV2", [count, 1]), 1])
    image = out("Reshape", [numbers, out("Pack", [[1, height, width, 1]])])
    attrs = {name: op.attrs[name] for name in ("ksizes", "strides", "rates", "padding")}
    places = out("Sub", [out("ExtractImagePatches", [image], attrs), 1])
    flat = out("Reshape", [places, ints([-1])])
    order = ints([1, 0, 2])
    rows = out("Transpose", [out("Reshape", [grad, out("Pack", [[batch, -1, depth]])]), order])
    # Padding has the position -1, which a segment sum leaves out.
    sums = out("UnsortedSegmentSum", [rows, flat, count])
    return out("Reshape", [out("Transpose", [sums, order]), shape])
