"""Gradients of blocks moved into the batch or the channels, and of patches of images."""

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
    rows = out(
        "Transpose",
        [out("Reshape", [grad, out("Pack", [[batch, out("Size", [places]), depth]])]), order],
    )
    # Padding has the position -1, which a segment sum leaves out.
    sums = out("UnsortedSegmentSum", [rows, flat, count])
    return out("Reshape", [out("Transpose", [sums, order]), shape])
