"""Gradients of ops that join and split tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from weft_autodiff.grads.common import ints, reshape_like
from weft_autodiff.registry import RegisterGradient
from weft_graph.ir.builder import constant_of, create, out
from weft_graph.ir.node import Node, Output
from weft_graph.ops.shape_rules import constant_array, constant_int
from weft_tensor import dtypes


def _cut(grad: Output, parts: Sequence[Output], axis: Output) -> list[Output]:
    """Split the gradient of a concatenation into the gradients of its inputs."""
    if len(parts) == 1:
        return [grad]
    static_axis = constant_int(axis)
    sizes = [
        None if static_axis is None or part.dims is None else part.dims[static_axis]
        for part in parts
    ]
    if None not in sizes:
        if len(set(sizes)) == 1:
            return list(create("Split", [axis, grad], {"num_split": len(parts)}).outputs)
        vector = ints(sizes)
    else:
        # A negative axis counts from the end of the shape as it does from that of the tensor.
        position = out("FloorMod", [axis, out("Rank", [grad])])
        shapes = [out("Shape", [part]) for part in parts]
        vector = out("Pack", [[out("GatherV2", [shape, position, 0]) for shape in shapes]])
    return list(create("SplitV", [grad, vector, axis], {"num_split": len(parts)}).outputs)


def _as_int32(axis: Output) -> Output:
    constant = constant_array(axis)
    if constant is not None:
        return constant_of(np.array(constant.reshape(()), np.int32))
    if axis.dtype.base_dtype is dtypes.int32:
        return axis
    return out("Cast", [axis], {"DstT": dtypes.int32})


@RegisterGradient("ConcatV2")
def _concat_v2(op: Node, grad: Output) -> list[Output | None]:
    *parts, axis = op.inputs
    return [*_cut(grad, parts, _as_int32(axis)), None]


@RegisterGradient("Concat")
def _concat(op: Node, grad: Output) -> list[Output | None]:
    axis, *parts = op.inputs
    return [None, *_cut(grad, parts, _as_int32(axis))]


@RegisterGradient("Split")
def _split(op: Node, *grads: Output) -> list[Output | None]:
    return [None, out("ConcatV2", [list(grads), op.inputs[0]])]


@RegisterGradient("SplitV")
def _split_v(op: Node, *grads: Output) -> list[Output | None]:
    return [out("ConcatV2", [list(grads), op.inputs[2]]), None, None]


@RegisterGradient("Pack")
def _pack(op: Node, grad: Output) -> list[Any]:
    attrs = {"num": len(op.inputs), "axis": op.attrs["axis"]}
    return list(create("Unpack", [grad], attrs).outputs)


@RegisterGradient("Unpack")
def _unpack(op: Node, *grads: Output) -> Output:
    return out("Pack", [list(grads)], {"axis": op.attrs["axis"]})


@RegisterGradient("Tile")
def _tile(op: Node, grad: Output) -> list[Output | None]:
    x, multiples = op.inputs
    repeats = constant_array(multiples)
    if repeats is not None and x.dims is not None and None not in x.dims:
        pairs = [n for pair in zip(repeats.tolist(), x.dims, strict=True) for n in pair]
        shape: Output = ints(pairs)
        axes = ints(range(0, len(pairs), 2))
    else:
        counts = out("Shape", [x], {"out_type": multiples.dtype.base_dtype})
        table = out("Pack", [[multiples, counts]], {"axis": 1})
        shape = out("Reshape", [table, ints([-1])])
        axes = out("Range", [0, out("Size", [shape]), 2])
    return [reshape_like(out("Sum", [out("Reshape", [grad, shape]), axes]), x), None]
