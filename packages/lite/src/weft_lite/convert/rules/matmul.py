"""Matrix products, whose constant weights are packed at conversion."""

from __future__ import annotations

from itertools import pairwise
from typing import Any, Final

import numpy as np

from weft_graph.ir.node import Node
from weft_lite.convert.lowered import Value, constant
from weft_lite.convert.packing import panels
from weft_lite.convert.registry import Builder, DataType, OpKind, rule
from weft_lite.schema.enums import Layout
from weft_lite.schema.tables import ElementwiseOptions, MatMulOptions

_LARGEST: Final = 255
"""The largest magnitude of an 8-bit number minus its zero point."""

_EXACT: Final = 2**24
"""The bound below which float32 represents all integers exactly."""


@rule("MatMul", "BatchMatMul", "BatchMatMulV2")
def product(node: Node, b: Builder) -> None:
    """Lower to FullyConnected if the right operand is constant, otherwise to BatchMatMul."""
    first, second = ("transpose_a", "transpose_b") if node.type == "MatMul" else ("adj_x", "adj_y")
    left, right = bool(node.attrs[first]), bool(node.attrs[second])
    weights: Any = b.array(node.inputs[1])
    a = b.value(node.inputs[0])
    if weights is not None and weights.ndim == 2 and not left and a.dtype is DataType.FLOAT32:
        matrix = weights.T if right else weights
        packed = panels(np.ascontiguousarray(matrix)[None])
        operand = constant(node.inputs[1].node.name, packed, Layout.PANELS)
        options = MatMulOptions(columns=matrix.shape[1])
        b.emit(OpKind.FullyConnected, node, [a, operand], options)
        return
    options = MatMulOptions(transpose_a=left, transpose_b=right)
    b.emit(OpKind.BatchMatMul, node, b.inputs(node), options)


@rule("MatMulInteger")
def integer_product(node: Node, b: Builder) -> None:
    """Lower to float products, split so that float32 represents all sums exactly."""
    result = node.outputs[0]
    x, y = (_center(node, b, index) for index in (0, 1))
    weights = b.array(node.inputs[1])
    zero = b.array(node.inputs[3])
    zero_point = None
    if weights is not None and zero is not None:
        zero_point = (weights.astype(np.int32) - zero).astype(np.float32)
    depth = x.shape[-1]
    starts = [*_chunks(zero_point, depth), depth]
    total: Value | None = None
    for start, end in pairwise(starts):
        a = _part(node, b, x, len(x.shape) - 1, start, end)
        part = b.new(f"{node.name}/floats", "float32", b.shape_of(result))
        if zero_point is not None and zero_point.ndim == 2:
            weights = panels(np.ascontiguousarray(zero_point[start:end])[None])
            operand = constant(f"{node.inputs[1].node.name}/{start}", weights, Layout.PANELS)
            options: Any = MatMulOptions(columns=zero_point.shape[1])
            b.add(OpKind.FullyConnected, [a, operand], [part], options, node.name)
        else:
            c = _part(node, b, y, len(y.shape) - 2, start, end)
            b.add(OpKind.BatchMatMul, [a, c], [part], MatMulOptions(), node.name)
        ints = b.new(f"{node.name}/ints", "int32", part.shape)
        b.add(OpKind.Cast, [part], [ints], None, node.name)
        if total is not None:
            sums = b.new(f"{node.name}/sums", "int32", part.shape)
            b.add(OpKind.Add, [total, ints], [sums], ElementwiseOptions(), node.name)
            ints = sums
        total = ints
    assert total is not None
    total.declared = b.like(total, node.name).declared
    b.same(result, total)


def _center(node: Node, b: Builder, index: int) -> Value:
    """Return an operand minus its zero point, in float32."""
    values = []
    for output in (node.inputs[index], node.inputs[index + 2]):
        value = b.value(output)
        floats = b.new(f"{output.node.name}/floats", "float32", value.shape)
        floats.declared = value.declared
        b.add(OpKind.Cast, [value], [floats], None, node.name)
        values.append(floats)
    if (zero := b.array(node.inputs[index + 2])) is not None and not zero.any():
        return values[0]
    centered = b.like(values[0], f"{node.name}/centered")
    b.add(OpKind.Sub, [*values], [centered], ElementwiseOptions(), node.name)
    return centered


def _chunks(weights: Any, depth: int) -> list[int]:
    """Return the split positions of the summed axis that keep sums below 2 ** 24."""
    if weights is None:
        return list(range(0, depth, _EXACT // (_LARGEST * _LARGEST)))
    starts, sums = [0], 0.0
    for row, terms in enumerate(np.moveaxis(np.abs(weights), -2, 0)):
        sums = sums + terms * _LARGEST
        if np.max(sums, initial=0) >= _EXACT:
            starts.append(row)
            sums = terms * _LARGEST
    return starts


def _part(node: Node, b: Builder, value: Value, axis: int, start: int, end: int) -> Value:
    """Return a range of a value along an axis."""
    size = end - start
    if size == value.shape[axis]:
        return value
    begin = [start if i == axis else 0 for i in range(len(value.shape))]
    sizes = [size if i == axis else -1 for i in range(len(value.shape))]
    shape = tuple(size if i == axis else item for i, item in enumerate(value.shape))
    part = b.new(f"{node.name}/part{start}", "float32", shape)
    operands = [value, b.ints(f"{node.name}/begin", begin), b.ints(f"{node.name}/size", sizes)]
    b.add(OpKind.Slice, [*operands], [part], None, node.name)
    return part
