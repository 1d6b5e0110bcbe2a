"""Gradients of gathering and scattering; the gradient of a gather is IndexedSlices if possible."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from weft_autodiff.grads.array import all_axes
from weft_autodiff.grads.common import ints, reshape_like, shape_of
from weft_autodiff.registry import RegisterGradient
from weft_graph.ir.builder import constant_of, create, out
from weft_graph.ir.indexed_slices import IndexedSlices
from weft_graph.ir.node import Node, Output
from weft_graph.ops.shape_rules import constant_int
from weft_tensor import dtypes


def _flat(value: Output) -> Output:
    if value.dims is not None and len(value.dims) == 1:
        return value
    return out("Reshape", [value, ints([-1])])


def _rows(params: Output, indices: Output, grad: Output) -> IndexedSlices:
    """Return the gradient of a gather of rows."""
    row_ids = _flat(indices)
    if row_ids is indices:
        values = grad
    elif params.dims is not None and None not in params.dims[1:]:
        values = out("Reshape", [grad, ints([-1, *params.dims[1:]])])
    else:
        inner = out(
            "StridedSlice",
            [out("Shape", [params]), ints([1]), ints([0]), ints([1])],
            {"end_mask": 1},
        )
        count = out("Reshape", [out("Size", [indices]), ints([1])])
        values = out("Reshape", [grad, out("ConcatV2", [[count, inner], 0])])
    return IndexedSlices(values, row_ids, shape_of(params))


@RegisterGradient("Gather")
def _gather(op: Node, grad: Output) -> list[Any]:
    return [_rows(op.inputs[0], op.inputs[1], grad), None]


@RegisterGradient("GatherV2")
def _gather_v2(op: Node, grad: Output) -> list[Any]:
    params, indices, axis = op.inputs
    batch: int = op.attrs["batch_dims"]
    if not batch and constant_int(axis) == 0:
        return [_rows(params, indices, grad), None, None]
    return [_Blocks(params, indices, axis, batch).scatter(grad), None, None]


class _Blocks:
    """A gather seen through tensors of rank 4: (batch, outer, gathered, inner).

    Each size is the product of several sizes of the shape, and static if these are known.
    """

    def __init__(self, params: Output, indices: Output, axis: Output, batch: int) -> None:
        self.params = params
        self.indices = indices
        static_axis = constant_int(axis)
        rank = None if params.dims is None else len(params.dims)
        self.axis: Any = static_axis
        if static_axis is None:
            wide = out("Cast", [axis], {"DstT": dtypes.int32})
            self.axis = out("FloorMod", [wide, out("Rank", [params])])
        elif static_axis < 0:
            self.axis = (
                out("AddV2", [out("Rank", [params]), static_axis])
                if rank is None
                else static_axis + rank
            )
        self.batch: Any = batch
        if batch < 0:
            dims = indices.dims
            count = out("Rank", [indices]) if dims is None else len(dims)
            self.batch = count + batch

    def scatter(self, grad: Output) -> Output:
        """Return the dense gradient of the gathered tensor."""
        params, axis, batch = self.params, self.axis, self.batch
        lead, outer = _product(params, 0, batch), _product(params, batch, axis)
        size, inner = _product(params, axis, axis + 1), _product(params, axis + 1, None)
        gathered = _product(self.indices, batch, None)
        blocks = out("Reshape", [grad, _pack([lead, outer, gathered, inner])])
        transposed = out("Transpose", [blocks, ints([0, 2, 1, 3])])
        rows = out("Reshape", [transposed, _pack([_multiply(lead, gathered), outer, inner])])
        if lead == 1:
            positions = out("Reshape", [self.indices, _pack([gathered])])
        else:
            positions = self._shift_indices(
                out("Reshape", [self.indices, _pack([lead, gathered])]), lead, size
            )
        total = out("UnsortedSegmentSum", [rows, positions, _multiply(lead, size)])
        block_grads = out("Reshape", [total, _pack([lead, size, outer, inner])])
        return reshape_like(out("Transpose", [block_grads, ints([0, 2, 1, 3])]), params)

    def _shift_indices(self, table: Output, lead: Any, size: Any) -> Output:
        """Return indices into the concatenation of all batches."""
        kind = table.dtype.base_dtype
        numbers = out("Range", [0, lead, 1])
        starts = out("Mul", [numbers, size])
        if kind is not dtypes.int32:
            starts = out("Cast", [starts], {"DstT": kind})
        shifted = out("AddV2", [table, out("ExpandDims", [starts, 1])])
        return out("Reshape", [shifted, ints([-1])])


def _product(value: Output, low: Any, high: Any) -> Any:
    """Return the product of the sizes from axis `low` to `high`; None for `high` is the end."""
    dims = value.dims
    if isinstance(low, int) and (high is None or isinstance(high, int)):
        if low == high:
            return 1
        part = (None,) if dims is None else dims[low:high]
        if None not in part:
            return prod(n for n in part if n is not None)
    bounds = [_vector(low), _vector(0 if high is None else high), ints([1])]
    masks = {"end_mask": 1} if high is None else {}
    return out("Prod", [out("StridedSlice", [shape_of(value), *bounds], masks), ints([0])])


def _vector(value: Any) -> Output:
    if isinstance(value, int):
        return ints([value])
    return out("Reshape", [value, ints([1])])


def _pack(sizes: list[Any]) -> Output:
    if all(isinstance(size, int) for size in sizes):
        return ints(sizes)
    return out("Pack", [sizes])


def _multiply(a: Any, b: Any) -> Any:
    if isinstance(a, int) and isinstance(b, int):
        return a * b
    return b if a == 1 else out("Mul", [a, b])


@RegisterGradient("GatherNd")
def _gather_nd(op: Node, grad: Output) -> list[Any]:
    params, indices = op.inputs
    if indices.dims is not None and len(indices.dims) == 2 and indices.dims[1] == 1:
        row_ids = out("Squeeze", [indices], {"squeeze_dims": (1,)})
        return [IndexedSlices(grad, row_ids, shape_of(params)), None]
    shape = out("Shape", [params], {"out_type": indices.dtype.base_dtype})
    return [out("ScatterNd", [indices, grad, shape]), None]


@RegisterGradient("ScatterNd")
def _scatter_nd(op: Node, grad: Output) -> list[Output | None]:
    return [None, out("GatherNd", [grad, op.inputs[0]]), None]


def _scatter_add(op: Node, grad: Output) -> list[Output | None]:
    return [grad, None, out("GatherNd", [grad, op.inputs[1]])]


for _op in ("TensorScatterAdd", "ScatterNdNonAliasingAdd"):
    RegisterGradient(_op)(_scatter_add)


@RegisterGradient("TensorScatterSub")
def _scatter_sub(op: Node, grad: Output) -> list[Output | None]:
    return [grad, None, out("Neg", [out("GatherNd", [grad, op.inputs[1]])])]


@RegisterGradient("TensorScatterMax")
@RegisterGradient("TensorScatterMin")
def _scatter_extreme(op: Node, grad: Output) -> list[Output | None]:
    """Split the gradient of each extreme evenly among the elements equal to it."""
    tensor, indices, updates = op.inputs
    result = op.outputs[0]
    dtype = {"DstT": grad.dtype}
    is_extreme = out("Cast", [out("Equal", [tensor, result])], dtype)
    won = out("Cast", [out("Equal", [updates, out("GatherNd", [result, indices])])], dtype)
    num_extremes = out("TensorScatterAdd", [is_extreme, indices, won])
    share = out("RealDiv", [grad, num_extremes])
    return [
        out("Mul", [share, is_extreme]),
        None,
        out("Mul", [out("GatherNd", [share, indices]), won]),
    ]


@RegisterGradient("TensorScatterUpdate")
def _scatter_update(op: Node, grad: Output) -> list[Output | None]:
    _, indices, updates = op.inputs
    cleared = out("TensorScatterUpdate", [grad, indices, out("ZerosLike", [updates])])
    return [cleared, None, out("GatherNd", [grad, indices])]


@RegisterGradient("DynamicPartition")
def _dynamic_partition(op: Node, *grads: Output) -> list[Output | None]:
    data, partitions = op.inputs
    numbers = out("Range", [0, out("Size", [partitions]), 1])
    positions = create(
        "DynamicPartition",
        [reshape_like(numbers, partitions), partitions],
        {"num_partitions": op.attrs["num_partitions"]},
    ).outputs
    stitched = out("DynamicStitch", [list(positions), list(grads)])
    return [out("Reshape", [stitched, shape_of(data)]), None]


def _stitch(op: Node, grad: Output) -> list[Output | None]:
    count: int = op.attrs["N"]
    indices = op.inputs[:count]
    zero = constant_of(np.array(0, np.int32))
    return [None] * count + [out("GatherV2", [grad, part, zero]) for part in indices]


for _op in ("DynamicStitch", "ParallelDynamicStitch"):
    RegisterGradient(_op)(_stitch)


@RegisterGradient("OneHot")
def _one_hot(op: Node, grad: Output) -> list[Output | None]:
    indices, depth = op.inputs[:2]
    kind = grad.dtype.base_dtype
    unit, zero = [constant_of(np.array(n, kind.numpy)) for n in (1, 0)]
    mask = out("OneHot", [indices, depth, unit, zero], {"axis": op.attrs["axis"]})
    axes = all_axes(grad)
    on = out("Sum", [out("Mul", [grad, mask]), axes])
    return [None, None, on, out("Sub", [out("Sum", [grad, axes]), on])]
