"""Declarations."""

from __future__ import annotations

from collections.abc import Sequence

from weft_graph.ir.op_def import NodeSpec, register_op
from weft_graph.ir.traits import WAITS, WRITES
from weft_tensor.shape import Dims, broadcast_dims


def _broadcast(node: NodeSpec) -> Sequence[Dims]:
    x, y = node.inputs
    return [broadcast_dims(x.dims, y.dims)]


def _scalar(node: NodeSpec) -> Sequence[Dims]:
    return [()]


register_op(
    "StrangerHypot",
    inputs=("x: T", "y: T"),
    outputs=("z: T",),
    attrs={"T": "{float32, float64}"},
    shape=_broadcast,
    doc="sqrt(x² + y²).",
)
register_op(
    "StrangerTallyAdd",
    inputs=("amount: int64",),
    outputs=("value: int64",),
    attrs={"tally": "string"},
    shape=_scalar,
    traits=WRITES,
    doc="Adds to a tally.",
)
register_op(
    "StrangerTallyAwait",
    inputs=("value: int64",),
    outputs=("reached: int64",),
    attrs={"tally": "string"},
    shape=_scalar,
    traits=WAITS,
    doc="Waits until a tally has reached a value.",
)
