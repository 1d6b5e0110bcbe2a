"""Predicted op times, used to warn when an int8 graph would not be faster.

Times are those of one thread with AVX-512 VBMI, in nanoseconds: for each op, each element of the
result, or each product. Only ratios matter; other instruction sets have similar ones.
"""

from __future__ import annotations

import logging
import math
from typing import Final

from weft_lite.convert.dynamic import CELLS
from weft_lite.convert.lowered import Lowered, Operation
from weft_lite.convert.prune import CALLED
from weft_lite.schema.enums import DataType, OpKind

_log = logging.getLogger("weft")

LOSS: Final = 1.1
"""Slowdown relative to the float graph above which a warning is logged."""

PER_OP: Final = 50.0

PRODUCTS: Final = {
    OpKind.Conv2D: (0.013, 0.005),
    OpKind.FullyConnected: (0.016, 0.006),
    OpKind.DepthwiseConv2D: (0.057, 0.04),
    OpKind.BatchMatMul: (0.018, 0.016),
}
"""Time per product, in float and in int8."""

ELEMENTS: Final = {
    OpKind.Quantize: (0.25, 0.25), OpKind.Dequantize: (0.12, 0.12), OpKind.Lookup: (0.05, 0.05),
    OpKind.Abs: (0.1, 0.05), OpKind.Neg: (0.1, 0.05), OpKind.Square: (0.1, 0.05),
    OpKind.Relu: (0.12, 0.05), OpKind.Relu6: (0.2, 0.05), OpKind.Softsign: (0.22, 0.05),
    OpKind.Tanh: (0.7, 0.05), OpKind.Sigmoid: (0.55, 0.05), OpKind.Silu: (0.65, 0.05),
    OpKind.LeakyRelu: (0.15, 0.05), OpKind.HardSwish: (0.15, 0.05), OpKind.Gelu: (8.0, 0.08),
    OpKind.Elu: (8.0, 0.07), OpKind.Selu: (8.0, 0.07), OpKind.Softplus: (14.0, 0.08),
    OpKind.Softmax: (1.15, 0.45), OpKind.MaxPool: (2.0, 0.7), OpKind.AvgPool: (1.6, 1.5),
    OpKind.ResizeBilinear: (1.1, 0.4),
}  # fmt: skip
"""Time per element of the result, in float and in int8."""

BINARY: Final = (0.12, 0.08)
MOVING: Final = (0.1, 0.03)


def predict(op: Operation) -> float:
    """Return the time of an op in nanoseconds."""
    out = op.outputs[0]
    x = op.inputs[0] if op.inputs else None
    form = int(x is not None and x.dtype is DataType.INT8)
    count = math.prod(out.shape)
    if op.kind in PRODUCTS and (weights := op.inputs[1]) is not None:
        is_batch = op.kind is OpKind.BatchMatMul and x is not None
        depth = x.shape[-1] if is_batch and x else math.prod(weights.shape) // max(1, out.shape[-1])
        return PER_OP + count * max(1, depth) * PRODUCTS[op.kind][form]
    table = BINARY if OpKind.Add <= op.kind <= OpKind.SquaredDifference else MOVING
    return PER_OP + count * ELEMENTS.get(op.kind, table)[form]


def warn_of_loss(before: list[Operation], after: Lowered) -> None:
    """Log a warning if an int8 graph is predicted to be slower than the float graph.

    Graphs with loops, branches or recurrent cells are not predicted: their iterations are unknown.

    Args:
      before: the ops of the float graph.
      after: the graph in int8.
    """
    if any(op.kind in CALLED or op.kind in CELLS for op in before):
        return
    in_float, in_int8 = sum(map(predict, before)), sum(map(predict, after.ops))
    if in_int8 <= LOSS * in_float:
        return
    floats = {op.name: predict(op) for op in before}
    losses = {op.name: predict(op) - floats.get(op.name, 0.0) for op in after.ops}
    worst = sorted(losses, key=lambda name: -losses[name])[:5]
    _log.warning(
        "int8: the file is predicted to take %.1f times as long as in float; most of it is lost by "
        "%s; leave parts in float with keep_float, convert with weights='dynamic', or measure both "
        "files with weft-lite profile",
        in_int8 / in_float,
        [name for name in worst if losses[name] > 0],
    )


def warn_of_size(size_bytes: int, float_bytes: int) -> None:
    """Log a warning if a file in int8 is not smaller than the file in float."""
    if size_bytes >= float_bytes:
        _log.warning(
            "int8: the file has %d bytes, and %d in float: its quantization parameters take "
            "more bytes than its weights save",
            size_bytes,
            float_bytes,
        )
