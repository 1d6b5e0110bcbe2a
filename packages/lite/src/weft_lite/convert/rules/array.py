"""Shapes, concatenation, slicing, gathering."""

from __future__ import annotations

import numpy as np

from weft_graph.ir.node import Node
from weft_lite.convert.flow import is_handle
from weft_lite.convert.layouts import emit_image, image
from weft_lite.convert.registry import Builder, OpKind, rule
from weft_lite.convert.rules.state import copy_variable, variable
from weft_lite.schema.enums import PadMode
from weft_lite.schema.tables import (
    AxisOptions,
    BlockOptions,
    ElementwiseOptions,
    PadOptions,
    ReduceOptions,
    StridedSliceOptions,
)

PLAIN = {
    "Reshape": "Reshape", "Transpose": "Transpose", "Slice": "Slice", "Tile": "Tile",
    "BroadcastTo": "BroadcastTo", "Fill": "Fill", "Range": "Range", "Shape": "Shape",
    "ExpandDims": "ExpandDims", "Pad": "Pad", "PadV2": "Pad", "ReverseV2": "Reverse",
    "SpaceToBatchND": "SpaceToBatchNd", "BatchToSpaceND": "BatchToSpaceNd",
    "GatherNd": "GatherNd",
}  # fmt: skip


@rule(*PLAIN)
def lower_unchanged(node: Node, b: Builder) -> None:
    """Lower to the op of the file with the same operands."""
    b.emit(OpKind[PLAIN[node.type]], node, b.inputs(node))


@rule("Identity", "Snapshot", "StopGradient", "PreventGradient", "CheckNumerics", "EnsureShape")
def identity(node: Node, b: Builder) -> None:
    """Reuse the value of the input; copy a variable that is read by reference."""
    if is_handle(node.inputs[0]):
        if node.inputs[0].dtype.is_ref:
            is_available = b.has(node.inputs[0])
            source = b.value(node.inputs[0]) if is_available else variable(node.inputs[0], b)
            copy_variable(node, source, b)
        return
    b.same(node.outputs[0], b.value(node.inputs[0]))


@rule("Squeeze")
def squeeze(node: Node, b: Builder) -> None:
    """Lower to Squeeze, with the axes as an operand."""
    axes = [int(axis) for axis in node.attrs["squeeze_dims"]]
    operand = [b.ints(f"{node.name}/axes", axes)] if axes else []
    b.emit(OpKind.Squeeze, node, [b.value(node.inputs[0]), *operand])


@rule("StridedSlice")
def strided_slice(node: Node, b: Builder) -> None:
    """Lower to StridedSlice, with its masks as options."""
    names = ("begin", "end", "ellipsis", "new_axis", "shrink_axis")
    options = StridedSliceOptions(*(int(node.attrs[f"{name}_mask"]) for name in names))
    b.emit(OpKind.StridedSlice, node, b.inputs(node), options)


@rule("MirrorPad")
def mirror_pad(node: Node, b: Builder) -> None:
    """Lower to MirrorPad."""
    b.emit(OpKind.MirrorPad, node, b.inputs(node), PadOptions(PadMode[node.attrs["mode"]]))


@rule("ConcatV2")
def concat(node: Node, b: Builder) -> None:
    """Lower to Concat along a constant axis."""
    axis = int(b.require_array(node.inputs[-1], "the axis"))
    b.emit(OpKind.Concat, node, b.inputs(node)[:-1], AxisOptions(axis))


@rule("Pack", "Unpack")
def pack(node: Node, b: Builder) -> None:
    """Lower to Pack or Unpack."""
    if node.type == "Unpack" and not node.outputs:
        return
    b.emit(OpKind[node.type], node, b.inputs(node), AxisOptions(int(node.attrs["axis"])))


@rule("Split", "SplitV")
def split(node: Node, b: Builder) -> None:
    """Lower to Split along a constant axis; the sizes of the pieces are in their shapes."""
    value, axis = (node.inputs[1], node.inputs[0]) if node.type == "Split" else (
        node.inputs[0], node.inputs[2],
    )  # fmt: skip
    axis_index = int(b.require_array(axis, "the axis"))
    op = b.emit(OpKind.Split, node, [b.value(value)], AxisOptions(axis_index))
    for result in op.outputs:  # the sizes along the axis are what the results say
        declared = list(result.declared)
        declared[axis_index] = result.shape[axis_index]
        if node.type == "SplitV":
            result.declared = tuple(declared)


@rule("Gather", "GatherV2")
def gather(node: Node, b: Builder) -> None:
    """Lower to Gather along a constant axis."""
    axis = int(b.require_array(node.inputs[2], "the axis")) if node.type == "GatherV2" else 0
    batch = int(node.attrs.get("batch_dims", 0))
    if batch < 0:
        batch += len(b.value(node.inputs[1]).shape)
    operands = [b.value(input_) for input_ in node.inputs[:2]]
    b.emit(OpKind.Gather, node, [*operands], AxisOptions(axis, batch))


@rule("OneHot")
def one_hot(node: Node, b: Builder) -> None:
    """Lower to OneHot."""
    b.emit(OpKind.OneHot, node, b.inputs(node), AxisOptions(int(node.attrs["axis"])))


@rule("SpaceToDepth", "DepthToSpace")
def blocks(node: Node, b: Builder) -> None:
    """Lower to SpaceToDepth or DepthToSpace on NHWC images."""
    x = image(b, node, node.inputs[0])
    emit_image(b, OpKind[node.type], node, [x], BlockOptions(int(node.attrs["block_size"])))


@rule("Cast")
def cast(node: Node, b: Builder) -> None:
    """Lower to Cast."""
    b.emit(OpKind.Cast, node, b.inputs(node))


@rule("BroadcastArgs")
def broadcast_args(node: Node, b: Builder) -> None:
    """Lower to select(s0 == 1, s1, s0), with the shorter shape padded by leading ones."""
    first, second = (b.value(input_) for input_ in node.inputs)
    rank = max(first.shape[0], second.shape[0])
    dtype = node.outputs[0].dtype.name
    sizes = []
    for value in (first, second):
        if missing := rank - value.shape[0]:
            constant = b.constant(f"{node.name}/ones", np.ones(missing, dtype))
            full = b.new(f"{node.name}/full", dtype, (rank,))
            b.add(OpKind.Concat, [constant, value], [full], AxisOptions(0), node.name)
            value = full
        sizes.append(value)
    one = b.constant(f"{node.name}/one", np.ones((), dtype))
    is_one = b.new(f"{node.name}/is_one", "bool", (rank,))
    b.add(OpKind.Equal, [sizes[0], one], [is_one], ElementwiseOptions(), node.name)
    b.emit(OpKind.Select, node, [is_one, sizes[1], sizes[0]])


@rule("Rank")
def rank(node: Node, b: Builder) -> None:
    """Replace by a constant, because ranks are static."""
    b.same(node.outputs[0], b.constant(node.name, np.int32(len(b.value(node.inputs[0]).shape))))


@rule("Size")
def size(node: Node, b: Builder) -> None:
    """Lower to Prod(Shape(x))."""
    value = b.value(node.inputs[0])
    shape = b.new(f"{node.name}/shape", node.outputs[0].dtype.name, (len(value.shape),))
    shape.declared = shape.shape
    b.add(OpKind.Shape, [value], [shape], None, node.name)
    b.emit(OpKind.Prod, node, [shape, b.ints(f"{node.name}/axes", [0])], ReduceOptions())


@rule("ZerosLike", "OnesLike")
def lower_fill(node: Node, b: Builder) -> None:
    """Lower to a Fill with zeros or ones, in the shape of the input."""
    value = b.value(node.inputs[0])
    shape = b.ints(f"{node.name}/shape", value.shape)
    if -1 in value.declared:
        shape = b.new(f"{node.name}/shape", "int32", (len(value.shape),))
        shape.declared = shape.shape
        b.add(OpKind.Shape, [value], [shape], None, node.name)
    number = np.asarray(node.type == "OnesLike", node.outputs[0].dtype.as_numpy_dtype)
    b.emit(OpKind.Fill, node, [shape, b.constant(f"{node.name}/value", number)])


@rule("ReverseSequence")
def reverse_sequence(node: Node, b: Builder) -> None:
    """Lower to ReverseSequence."""
    options = AxisOptions(int(node.attrs["seq_dim"]), int(node.attrs["batch_dim"]))
    b.emit(OpKind.ReverseSequence, node, b.inputs(node), options)
