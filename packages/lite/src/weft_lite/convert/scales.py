"""Choice of scales shared by several values, so that int8 graphs need few Quantize ops.

Ops that move elements keep the scale of their operand. A Concat needs one scale for its result and
all operands; an operand that only the Concat reads is quantized with that scale from the start.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping
from typing import Final

import numpy as np

from weft_lite.convert.calibration import Range, Scale, union
from weft_lite.convert.lowered import Lowered, Operation, Value
from weft_lite.schema.enums import DataType, OpKind

LOOKUPS: Final = {OpKind.Gather, OpKind.GatherNd}
"""Ops whose first operand is a table if it is constant."""

SHARING: Final = {
    OpKind.MaxPool, OpKind.AvgPool, OpKind.Reshape, OpKind.Squeeze, OpKind.ExpandDims,
    OpKind.Transpose, OpKind.Slice, OpKind.StridedSlice, OpKind.Tile, OpKind.BroadcastTo,
    OpKind.Reverse, OpKind.SpaceToDepth, OpKind.DepthToSpace, OpKind.Split, OpKind.Unpack,
    OpKind.ReverseSequence, OpKind.MirrorPad, OpKind.ResizeNearest, *LOOKUPS,
}  # fmt: skip
"""Ops whose results are elements or means of the first operand and therefore share its scale."""

JOINING: Final = {OpKind.Concat, OpKind.Pack}
"""Ops whose operands and result share one scale."""


def take_out_fakes(source: Lowered) -> dict[Value, Scale]:
    """Remove pairs of Quantize and Dequantize, and return their scales."""
    scales: dict[Value, Scale] = {}
    stored: dict[Value | None, Operation] = {}
    real: dict[Value, Value] = {}
    ends = source.results()
    for op in list(source.ops):
        op.inputs = [real.get(value, value) if value else None for value in op.inputs]
        first = op.inputs[0] if op.inputs else None
        if op.kind is OpKind.Quantize and first is not None and first.array is None:
            stored[op.outputs[0]] = op
        elif op.kind is OpKind.Dequantize and first in stored:
            started = stored[first]
            x, numbers = started.inputs[0], started.outputs[0]
            assert x is not None
            scales[x] = Scale(numbers.scales[0], numbers.zero_points[0])
            if op.outputs[0] not in ends:
                real[op.outputs[0]] = x
                source.ops.remove(op)
                source.ops.remove(started)
    for body in source.bodies:
        for op in body.ops:
            op.inputs = [real.get(value, value) if value else None for value in op.inputs]
        body.outputs = [real.get(value, value) for value in body.outputs]
    _copy_to_moved(source, scales)
    return scales


def _copy_to_moved(source: Lowered, scales: dict[Value, Scale]) -> None:
    """Copy the scale of a result to an operand that is only moved and has no other reader."""
    readers, ends = _count_readers(source), source.results()
    for op in reversed(source.ops):
        x, out = (op.inputs or [None])[0], op.outputs[0]
        is_moved = x is not None and readers[x] == 1 and x not in ends
        if is_moved and x is not None and _keeps_elements(op) and out in scales:
            scales.setdefault(x, scales[out])


def _keeps_elements(op: Operation) -> bool:
    """Return True if all results of an op are elements of the first operand."""
    return op.kind in SHARING and op.kind is not OpKind.AvgPool and len(op.outputs) == 1


def _count_readers(source: Lowered) -> Counter[Value | None]:
    """Return the number of ops that read each value, including those in bodies."""
    return Counter(value for graph in source.graphs() for op in graph.ops for value in op.inputs)


def is_table(op: Operation) -> bool:
    """Return True if an op looks up rows of a constant table of finite floats."""
    table = op.inputs[0] if op.kind in LOOKUPS else None
    return (
        table is not None
        and table.array is not None
        and table.dtype is DataType.FLOAT32
        and bool(np.isfinite(table.array).all())
    )


def widen_ranges(source: Lowered, ranges: Mapping[Value, Range]) -> dict[Value, Range]:
    """Return ranges that include whole tables, not only the rows that samples look up.

    Results of lookups, and values that ops only move or join, get the range of the table.
    """
    result = dict(ranges)
    tables: dict[Value | None, Range] = {}
    for op in source.ops:
        first, out = (op.inputs or [None])[0], op.outputs[0]
        if is_table(op) and first is not None and first.array is not None and first.array.size:
            tables[out] = Range(float(first.array.min()), float(first.array.max()))
        elif op.kind in SHARING and first in tables:
            tables.update(dict.fromkeys(op.outputs, tables[first]))
        elif op.kind in JOINING and out in ranges:
            parts = [tables[value] for value in op.inputs if value in tables]
            if parts:
                tables[out] = union([ranges[out], *parts])
    result.update(
        {value: item for value, item in tables.items() if value is not None and value in ranges}
    )
    return result


def join_scales(
    source: Lowered,
    scale_of: Callable[[Value], Scale | None],
    fixed: Collection[Value],
) -> dict[Value, Scale]:
    """Return the scales of values that only a Concat reads, directly or after moves.

    Args:
      source: the graph.
      scale_of: returns the scale of a value, or None if it stays in float.
      fixed: values whose scale cannot be chosen.
    Returns: scales by value; for a lookup by its table, if nothing else reads it.
    """
    readers, ends = _count_readers(source), source.results()
    result: dict[Value, Scale] = {}
    for op in reversed(source.ops):
        out, operands = op.outputs[0], op.inputs
        scale: Scale | None = result.get(out)
        if op.kind in JOINING:
            scale = scale or scale_of(out)
        elif _keeps_elements(op):
            operands = operands[:1]
        else:
            continue
        for value in operands:
            if value is None or value.dtype is not DataType.FLOAT32 or value in fixed:
                continue
            is_free = readers[value] == 1 and value not in ends
            if scale is not None and is_free and (value.array is None or op.kind in LOOKUPS):
                result[value] = scale
    return result


def find_operands(source: Lowered, readers: Callable[[Operation], bool]) -> set[Value]:
    """Return the values that certain ops read, directly or after moves."""
    result: set[Value] = set()
    for op in reversed(source.ops):
        is_moved = op.kind in SHARING | JOINING and not result.isdisjoint(op.outputs)
        if is_moved or readers(op):
            result.update(value for value in op.inputs if value is not None)
    return result
