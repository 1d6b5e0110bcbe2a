"""Gradients of variables and their updates.

The gradient of a variable is the gradient of its reads: gradients() stops at the reference or
handle, which represents the variable. Updates have no gradient.
"""

from __future__ import annotations

from typing import Any

from weft_autodiff.registry import RegisterGradient
from weft_graph.ir.builder import convert_to_tensor, out
from weft_graph.ir.indexed_slices import IndexedSlices
from weft_graph.ir.node import Node, Output
from weft_graph.ops import resource_state
from weft_tensor import dtypes


@RegisterGradient("ReadVariableOp")
def _read_variable(op: Node, grad: Any) -> Any:
    return grad


@RegisterGradient("ResourceGather")
def _resource_gather(op: Node, grad: Output | None) -> list[Any]:
    """Return the gradient as slices, so that its cost depends on the gathered rows only.

    For batch_dims > 0 the first batch_dims + 1 axes of the variable are flattened, and row indices
    refer to the flattened axis. The slices are then scattered into a dense gradient.
    """
    if grad is None:
        return [None, None]
    handle, indices = op.inputs
    shape = resource_state.variable_shape(handle)
    if op.attrs["batch_dims"]:
        return [_batch_gather(op, grad, shape), None]
    flat = out("Reshape", [indices, [-1]])
    inner = out("StridedSlice", [shape, [1], [0], [1]], {"end_mask": 1})
    rows = out("ConcatV2", [[convert_to_tensor([-1], dtypes.int32), inner], 0])
    return [IndexedSlices(out("Reshape", [grad, rows]), flat, shape), None]


def _batch_gather(op: Node, grad: Output, shape: Output) -> Output:
    indices = op.inputs[1]
    batch = op.attrs["batch_dims"]
    wide = out("Cast", [indices], {"DstT": dtypes.int32})
    size = out("StridedSlice", [shape, [batch], [batch + 1], [1]])
    lead = out("StridedSlice", [shape, [0], [batch], [1]])
    count = out("Prod", [lead, [0]])
    offsets = out("Mul", [out("Range", [0, count, 1]), out("Reshape", [size, []])])
    columns = out("Reshape", [wide, out("Pack", [[count, -1]], {"axis": 0})])
    numbers = out("AddV2", [columns, out("ExpandDims", [offsets, 1])])
    inner = out("StridedSlice", [shape, [batch + 1], [0], [1]], {"end_mask": 1})
    minus = convert_to_tensor([-1], dtypes.int32)
    updates = out("Reshape", [grad, out("ConcatV2", [[minus, inner], 0])])
    total = out("Reshape", [out("Mul", [count, out("Reshape", [size, []])]), [1]])
    table = out("ConcatV2", [[total, inner], 0])
    rows = out("Reshape", [numbers, [-1, 1]])
    return out("Reshape", [out("ScatterNd", [rows, updates, table]), shape])


@RegisterGradient("ResourceGatherNd")
def _resource_gather_nd(op: Node, grad: Output | None) -> list[Any]:
    if grad is None:
        return [None, None]
    handle, indices = op.inputs
    shape = resource_state.variable_shape(handle, out_type=indices.dtype)
    return [out("ScatterNd", [indices, grad, shape]), None]


@RegisterGradient("InitializedValue")
@RegisterGradient("ResourceInitializedValue")
def _initialized_value(op: Node, grad: Any) -> list[Any]:
    return [grad, None]
