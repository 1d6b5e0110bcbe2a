"""Smaller weights in float16 or int8, which are converted to float before use.

A conversion op precedes each user, so that the arena has only one set of float weights at a time.
Weights that a loop body reads are converted before the loop. With "dynamic", products multiply int8
numbers (`dynamic`), and the other weights are stored as with "int8". Lookups read the smaller table
and convert only the selected rows.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from weft_lite.convert.dynamic import CELLS, Int8Products, is_large
from weft_lite.convert.lowered import Array, Lowered, Operation, Value, constant
from weft_lite.convert.packing import PANEL
from weft_lite.convert.prune import called_subgraphs
from weft_lite.convert.scales import is_table
from weft_lite.schema.enums import DataType, Layout, OpKind
from weft_tensor import errors

FORMS: Final = ("float32", "float16", "int8", "dynamic")
WEIGHTS: Final = {
    OpKind.Conv2D: (1,), OpKind.DepthwiseConv2D: (1,), OpKind.FullyConnected: (1,),
    OpKind.Conv2DTranspose: (1,), OpKind.BatchMatMul: (0, 1), OpKind.Gather: (0,),
    **CELLS,
}  # fmt: skip
"""The weight operands, by op, for which int8 is precise enough."""


def shrink(lowered: Lowered, form: str) -> None:
    """Store the weights of a graph in a smaller form.

    Raises: InvalidArgumentError: the form is unknown.
    """
    if form not in FORMS:
        raise errors.InvalidArgumentError(f"weights must be one of {FORMS}, not {form!r}")
    if form == "float32":
        return
    if form == "dynamic":
        small = Int8Products()
        for graph in lowered.graphs():
            graph.ops[:] = small.ops(graph.ops)
    for graph in lowered.graphs():
        graph.ops[:] = [item for op in graph.ops for item in shrink_lookup(op, form)]
    values: dict[Value, Value] = {}
    ops: list[Operation] = []
    for op in lowered.ops:
        for item in _expand_bodies(op, lowered):
            positions = range(len(item.inputs)) if form == "float16" else WEIGHTS.get(item.kind, ())
            for position in positions:
                value = item.inputs[position]
                if value is not None and is_large(value):
                    item.inputs[position] = _floats(value, form, values, ops)
        ops.append(op)
    lowered.ops[:] = ops


def shrink_lookup(op: Operation, form: str) -> list[Operation]:
    """Return ops that look up rows of a smaller table and convert these rows to float.

    An int8 table has a scale per column. Other ops, small tables and int8 lookups along the columns
    are unchanged.
    """
    table = op.inputs[0] if op.inputs else None
    if op.kind is not OpKind.Gather or table is None or not is_large(table) or not is_table(op):
        return [op]
    rank, (out,) = len(table.shape), op.outputs
    keeps_columns = not op.options.batch_dims and 0 <= op.options.axis % rank < rank - 1
    if form != "float16" and not keeps_columns:
        return [op]
    small = _half(table) if form == "float16" else _bytes(table)
    rows = Value(f"{out.name}/rows", small.dtype, out.shape, out.declared)
    rows.scales, rows.axis = small.scales, len(out.shape) - 1
    return [
        Operation(op.kind, [small, *op.inputs[1:]], [rows], op.options, op.name),
        Operation(OpKind.Dequantize, [rows], [out], None, f"{op.name}/dequantize"),
    ]


def _expand_bodies(op: Operation, lowered: Lowered) -> list[Operation]:
    """Return an op and all ops of its subgraphs."""
    result = [op]
    for body in called_subgraphs(op, lowered):
        for item in body.ops:
            result += _expand_bodies(item, lowered)
    return result


def _floats(value: Value, form: str, values: dict[Value, Value], ops: list[Operation]) -> Value:
    """Add an op that converts a constant to float; distant users get separate ops."""
    small = values.get(value)
    if small is None:
        small = values[value] = _half(value) if form == "float16" else _bytes(value)
    result = Value(f"{value.name}/floats", DataType.FLOAT32, value.shape, value.shape)
    result.layout = value.layout
    ops.append(Operation(OpKind.Dequantize, [small], [result], None, f"{value.name}/dequantize"))
    return result


def _half(value: Value) -> Value:
    """Return a constant in float16; larger numbers are clipped to its range."""
    assert value.array is not None
    limit = float(np.finfo(np.float16).max)
    return constant(
        value.name, np.clip(value.array, -limit, limit).astype(np.float16), value.layout
    )


def _bytes(value: Value) -> Value:
    """Quantize weights to int8 with a scale per column, in panels if the weights are packed."""
    assert value.array is not None
    array: Array = value.array
    packed = value.layout is Layout.PANELS
    limit = np.abs(array).max(axis=(1, 2) if packed else tuple(range(array.ndim - 1)))
    scales = np.where(limit > 1e-30, limit / 127, 1.0).astype(np.float32)
    by_element = scales.reshape(-1, 1, 1, PANEL) if packed else scales
    numbers = np.clip(np.rint(array / by_element), -127, 127).astype(np.int8)
    stored = constant(value.name, numbers, value.layout)
    stored.scales = scales.reshape(-1).tolist()
    stored.axis = 0 if packed else array.ndim - 1
    return stored
