"""Products of matrices: weights are packed into panels, others are packed as it runs."""

from __future__ import annotations

from typing import Any

import numpy as np

from weft_graph.ir.node import Node
from weft_lite.convert.lowered import constant
from weft_lite.convert.packing import panels
from weft_lite.convert.registry import Builder, DataType, OpKind, rule
from weft_lite.schema.enums import Layout
from weft_lite.schema.tables import MatMulOptions


@rule("MatMul", "BatchMatMul", "BatchMatMulV2")
def product(node: Node, b: Builder) -> None:
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
