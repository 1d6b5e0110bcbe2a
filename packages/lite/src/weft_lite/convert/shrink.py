"""Smaller weights: of float16, or of int8 with a scale for each channel; floats are computed.

An op in front of the one that takes them makes floats of them, so that the arena has one set of
weights at a time. Those that a body takes are made before the loop. With "dynamic" products of
weights multiply bytes (`dynamic`), and other weights are as with "int8".
"""

from __future__ import annotations

from typing import Final

import numpy as np

from weft_lite.convert.dynamic import CELLS, Bytes, is_large
from weft_lite.convert.lowered import Array, Lowered, Operation, Value, constant
from weft_lite.convert.packing import PANEL
from weft_lite.convert.prune import called
from weft_lite.schema.enums import DataType, Layout, OpKind
from weft_tensor import errors

FORMS: Final = ("float32", "float16", "int8", "dynamic")
WEIGHTS: Final = {
    OpKind.Conv2D: (1,), OpKind.DepthwiseConv2D: (1,), OpKind.FullyConnected: (1,),
    OpKind.Conv2DTranspose: (1,), OpKind.BatchMatMul: (0, 1), OpKind.Gather: (0,),
    **CELLS,
}  # fmt: skip
"""The operands that are weights, which int8 is precise enough for."""


def shrink(lowered: Lowered, form: str) -> None:
    """Let a graph hold its weights in another form.

    Raises: InvalidArgumentError: there is no such form.
    """
    if form not in FORMS:
        raise errors.InvalidArgumentError(f"weights must be one of {FORMS}, not {form!r}")
    if form == "float32":
        return
    if form == "dynamic":
        small = Bytes()
        for graph in lowered.graphs():
            graph.ops[:] = small.ops(graph.ops)
    values: dict[Value, Value] = {}
    ops: list[Operation] = []
    for op in lowered.ops:
        for item in _expand_bodies(op, lowered):
            places = range(len(item.inputs)) if form == "float16" else WEIGHTS.get(item.kind, ())
            for place in places:
                value = item.inputs[place]
                if value is not None and is_large(value):
                    item.inputs[place] = _floats(value, form, values, ops)
        ops.append(op)
    lowered.ops[:] = ops


def _expand_bodies(op: Operation, lowered: Lowered) -> list[Operation]:
    result = [op]
    for body in called(op, lowered):
        for item in body.ops:
            result += _expand_bodies(item, lowered)
    return result


def _floats(value: Value, form: str, values: dict[Value, Value], ops: list[Operation]) -> Value:
    """Add an op that converts a small constant to float; distant uses get separate ops."""
    small = values.get(value)
    if small is None:
        small = values[value] = _half(value) if form == "float16" else _bytes(value)
    result = Value(f"{value.name}/floats", DataType.FLOAT32, value.shape, value.shape)
    result.layout = value.layout
    ops.append(Operation(OpKind.Dequantize, [small], [result], None, f"{value.name}/dequantize"))
    return result


def _half(value: Value) -> Value:
    assert value.array is not None
    limit = float(np.finfo(np.float16).max)
    return constant(
        value.name, np.clip(value.array, -limit, limit).astype(np.float16), value.layout
    )


def _bytes(value: Value) -> Value:
    """Quantize weights to int8 with a scale per column; scales of packed weights are in panels."""
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
