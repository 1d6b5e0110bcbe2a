"""Gradients of ragged tensors, in terms of their flat values."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from weft_autodiff.grads.common import ints, shape_of, sum_to_shape
from weft_autodiff.grads.sparse import gradients_at
from weft_autodiff.registry import RegisterGradient
from weft_graph.ir.builder import constant_of, create, out
from weft_graph.ir.indexed_slices import IndexedSlices
from weft_graph.ir.node import Node, Output
from weft_tensor.dtypes import DType

Gradients = Sequence[Output | IndexedSlices | None]


def _value_indices(values: Output, dtype: DType) -> Output:
    """Return the indices of the flat values, in the dtype of splits."""
    return out("Range", [_number(0, dtype), _count(values, dtype), _number(1, dtype)])


def _count(values: Output, dtype: DType) -> Output:
    """Return the number of flat values."""
    return out("Squeeze", [_sizes(values, dtype, 0, 1)], {"squeeze_dims": [0]})


def _sizes(value: Output, dtype: DType, begin: int, end: int | None) -> Output:
    """Return a slice of a shape."""
    shape = out("Shape", [value], {"out_type": dtype})
    bounds = [ints([begin]), ints([end or 0]), ints([1])]
    return out("StridedSlice", [shape, *bounds], {"end_mask": int(end is None)})


def _number(value: int, dtype: DType) -> Output:
    return constant_of(np.array(value, dtype.numpy))


@RegisterGradient("RaggedGather")
def _gather(op: Node, *grads: Output | None) -> Gradients:
    grad = grads[-1]
    levels = op.attrs["PARAMS_RAGGED_RANK"]
    if grad is None:
        return [None] * (levels + 2)
    values, indices = op.inputs[levels:]
    attrs = {"OUTPUT_RAGGED_RANK": op.attrs["OUTPUT_RAGGED_RANK"]}
    inputs = [list(op.inputs[:levels]), _value_indices(values, op.attrs["Tsplits"]), indices]
    row_ids = create("RaggedGather", inputs, attrs).outputs[-1]
    slices = IndexedSlices(grad, row_ids, shape_of(values))
    return [*[None] * levels, slices, None]


@RegisterGradient("RaggedTensorToSparse")
def _to_sparse(op: Node, _: Output | None, grad: Output | None, __: Output | None) -> Gradients:
    levels = op.attrs["RAGGED_RANK"]
    if grad is None:
        return [None] * (levels + 1)
    return [*[None] * levels, out("Reshape", [grad, shape_of(op.inputs[levels])])]


@RegisterGradient("RaggedTensorToTensor")
def _to_tensor(op: Node, grad: Output) -> Gradients:
    _, values, default, *partitions = op.inputs
    kinds = op.attrs["row_partition_types"]
    outer = len(kinds) + (0 if kinds[0] in ("FIRST_DIM_SIZE", b"FIRST_DIM_SIZE") else 1)
    dtype = op.attrs["Tindex"]
    # The same op on the numbers of the values tells where each went.
    inputs = [
        _sizes(grad, dtype, 0, outer),
        _value_indices(values, dtype),
        _number(-1, dtype),
        partitions,
    ]
    indices = out("RaggedTensorToTensor", inputs, {"row_partition_types": kinds})
    value_ids = out("Reshape", [indices, ints([-1])])
    cell_shape = out("ConcatV2", [[ints([-1], dtype), _sizes(grad, dtype, outer, None)], 0])
    cells = out("Reshape", [grad, cell_shape])
    d_values = out("UnsortedSegmentSum", [cells, value_ids, _count(values, dtype)])
    # Cells without a value received the default: sum these cells, and drop the others.
    is_padding = out("Cast", [out("GreaterEqual", [value_ids, _number(0, dtype)])], {"DstT": dtype})
    padding = out("UnsortedSegmentSum", [cells, out("Neg", [is_padding]), 1])
    d_default = sum_to_shape(out("Squeeze", [padding], {"squeeze_dims": [0]}), default)
    return gradients_at(3 + len(partitions), {1: d_values, 2: d_default})


@RegisterGradient("RaggedFillEmptyRows")
def _fill(op: Node, _: Output | None, grad: Output | None, *__: Output | None) -> Gradients:
    if grad is None:
        return [None] * 4
    d_values, d_default = create("RaggedFillEmptyRowsGrad", [op.outputs[3], grad]).outputs
    return gradients_at(4, {1: d_values, 3: d_default})
