"""Ops that only move elements."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from weft_graph.ir.builder import convert_to_tensor, create
from weft_graph.ir.node import Output
from weft_lite.convert.lowered import NAMES
from weft_lite.convert.reading.reader import Reader, node, reads
from weft_lite.schema import tables as t
from weft_lite.schema.enums import DataType, OpKind, PadMode
from weft_tensor import dtypes

_MOVES: Final = {
    "Reshape": "Reshape", "Transpose": "Transpose", "Slice": "Slice", "Tile": "Tile",
    "BroadcastTo": "BroadcastTo", "ExpandDims": "ExpandDims", "Reverse": "ReverseV2",
    "GatherNd": "GatherNd", "SpaceToBatchNd": "SpaceToBatchND",
    "BatchToSpaceNd": "BatchToSpaceND",
}  # fmt: skip


@reads(*[OpKind[name] for name in _MOVES])
def _move(r: Reader, op: t.Op) -> Output:
    return node(_MOVES[OpKind(op.kind).name], *map(r.stored, op.inputs))


@reads(OpKind.Squeeze)
def _squeeze(r: Reader, op: t.Op) -> Output:
    axes = r.array(op.inputs[1]).reshape(-1).tolist() if r.has(op, 1) else []
    return node("Squeeze", r.stored(op.inputs[0]), squeeze_dims=axes)


@reads(OpKind.Pad)
def _pad(r: Reader, op: t.Op) -> Output:
    x, q = r.stored(op.inputs[0]), r.tensor(op.inputs[0]).quantization
    zero = q.zero_points[0] if q and q.zero_points else 0
    value = r.stored(op.inputs[2]) if r.has(op, 2) else np.asarray(zero, x.dtype.as_numpy_dtype)
    return node("PadV2", x, r.stored(op.inputs[1]), value)


@reads(OpKind.MirrorPad)
def _mirror(r: Reader, op: t.Op) -> Output:
    mode = PadMode(getattr(op.options, "mode", PadMode.REFLECT)).name
    return node("MirrorPad", r.stored(op.inputs[0]), r.stored(op.inputs[1]), mode=mode)


@reads(OpKind.Concat)
def _concat(r: Reader, op: t.Op) -> Output:
    assert isinstance(op.options, t.AxisOptions)
    return r.result(op, node("ConcatV2", [r.real(i) for i in op.inputs], np.int32(op.options.axis)))


@reads(OpKind.Pack)
def _pack(r: Reader, op: t.Op) -> Output:
    assert isinstance(op.options, t.AxisOptions)
    return r.result(op, node("Pack", [r.real(i) for i in op.inputs], axis=op.options.axis))


@reads(OpKind.Unpack)
def _unpack(r: Reader, op: t.Op) -> Sequence[Output]:
    assert isinstance(op.options, t.AxisOptions)
    attrs = {"num": len(op.outputs), "axis": op.options.axis}
    return create("Unpack", [r.stored(op.inputs[0])], attrs).outputs


@reads(OpKind.Split)
def _split(r: Reader, op: t.Op) -> Sequence[Output]:
    assert isinstance(op.options, t.AxisOptions)
    axis = op.options.axis
    sizes = np.array([r.tensor(number).shape[axis] for number in op.outputs], np.int32)
    operands = [r.stored(op.inputs[0]), convert_to_tensor(sizes), convert_to_tensor(np.int32(axis))]
    return create("SplitV", operands, {"num_split": len(sizes)}).outputs


@reads(OpKind.StridedSlice)
def _stride_slice(r: Reader, op: t.Op) -> Output:
    names = ("begin", "end", "ellipsis", "new_axis", "shrink_axis")
    masks = {f"{name}_mask": getattr(op.options, f"{name}_mask", 0) for name in names}
    return node("StridedSlice", *map(r.stored, op.inputs), **masks)


@reads(OpKind.Gather)
def _gather(r: Reader, op: t.Op) -> Output:
    assert isinstance(op.options, t.AxisOptions)
    x, indices = map(r.stored, op.inputs)
    return node("GatherV2", x, indices, np.int32(op.options.axis), batch_dims=op.options.batch_dims)


@reads(OpKind.Shape)
def _shape(r: Reader, op: t.Op) -> Output:
    dtype = dtypes.as_dtype(NAMES[DataType(r.tensor(op.outputs[0]).dtype)])
    return node("Shape", r.stored(op.inputs[0]), out_type=dtype)


@reads(OpKind.Cumsum)
def _cumsum(r: Reader, op: t.Op) -> Output:
    assert isinstance(op.options, t.ReduceOptions)
    flags = {"exclusive": bool(op.options.exclusive), "reverse": bool(op.options.reverse)}
    return r.result(op, node("Cumsum", r.real(op.inputs[0]), r.stored(op.inputs[1]), **flags))


@reads(OpKind.TopK)
def _top_k(r: Reader, op: t.Op) -> Sequence[Output]:
    return create("TopKV2", list(map(r.stored, op.inputs)), {}).outputs


@reads(OpKind.OneHot)
def _one_hot(r: Reader, op: t.Op) -> Output:
    assert isinstance(op.options, t.AxisOptions)
    return node("OneHot", *map(r.stored, op.inputs), axis=op.options.axis)


@reads(OpKind.ReverseSequence)
def _reverse_sequence(r: Reader, op: t.Op) -> Output:
    assert isinstance(op.options, t.AxisOptions)
    axes = {"seq_dim": op.options.axis, "batch_dim": op.options.batch_dims}
    return node("ReverseSequence", *map(r.stored, op.inputs), **axes)


@reads(OpKind.ResizeBilinear, OpKind.ResizeNearest)
def _resize(r: Reader, op: t.Op) -> Output:
    assert isinstance(op.options, t.ResizeOptions)
    attrs = {
        "align_corners": bool(op.options.align_corners),
        "half_pixel_centers": bool(op.options.half_pixel_centers),
    }
    name = "ResizeBilinear" if op.kind == OpKind.ResizeBilinear else "ResizeNearestNeighbor"
    return r.result(op, node(name, r.real(op.inputs[0]), r.stored(op.inputs[1]), **attrs))


@reads(OpKind.Fill, OpKind.Range)
def _fill(r: Reader, op: t.Op) -> Output:
    return node(OpKind(op.kind).name, *map(r.stored, op.inputs))


@reads(OpKind.SpaceToDepth, OpKind.DepthToSpace)
def _blocks(r: Reader, op: t.Op) -> Output:
    assert isinstance(op.options, t.BlockOptions)
    return node(OpKind(op.kind).name, r.stored(op.inputs[0]), block_size=op.options.block)
