"""Gradients of ops that move blocks to the batch or channel axis, and of image patches."""

from __future__ import annotations

from weft_autodiff.grads.common import ints
from weft_autodiff.registry import RegisterGradient
from weft_graph.ir.builder import out
from weft_graph.ir.node import Node, Output


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
@RegisterGradient("ExtractVolumePatches")
def _extract_patches(op: Node, grad: Output) -> Output:
    # The patches of an image of positions say where each element of the gradient came from.
    images = op.inputs[0]
    shape = out("Shape", [images])
    last = len(op.attrs["ksizes"]) - 1

    def sizes(begin: int, end: int) -> Output:
        return out("StridedSlice", [shape, ints([begin]), ints([end]), ints([1])])

    count = out("Prod", [sizes(1, last), 0])
    numbers = out("Range", [1, out("AddV2", [count, 1]), 1])
    image = out("Reshape", [numbers, out("ConcatV2", [[[1], sizes(1, last), [1]], 0])])
    names = ("ksizes", "strides", "rates", "padding")
    attrs = {name: op.attrs[name] for name in names if name in op.attrs}
    positions = out("Sub", [out(op.type, [image], attrs), 1])
    flat = out("Reshape", [positions, ints([-1])])
    order = ints([1, 0, 2])
    total = out("Reshape", [out("Size", [positions]), ints([1])])
    rows = out("Reshape", [grad, out("ConcatV2", [[sizes(0, 1), total, sizes(last, last + 1)], 0])])
    # Padding has the position -1, which a segment sum leaves out.
    sums = out("UnsortedSegmentSum", [out("Transpose", [rows, order]), flat, count])
    return out("Reshape", [out("Transpose", [sums, order]), shape])
