"""Declarations."""

from __future__ import annotations

from collections.abc import Sequence

from weft_graph.ir.op_def import NodeSpec, register_op
from weft_graph.ir.scalar import Scalar, sqrt, square
from weft_graph.ir.traits import READS, WAITS, WRITES, Traits, elementwise
from weft_graph.ops import cost_rules
from weft_tensor.shape import Dims, broadcast_dims


def _broadcast(node: NodeSpec) -> Sequence[Dims]:
    x, y = node.inputs
    return [broadcast_dims(x.dims, y.dims)]


def _hypot(x: Scalar, y: Scalar) -> Scalar:
    return sqrt(square(x) + square(y))


def _diagonal(node: NodeSpec) -> Sequence[Dims]:
    dims = node.inputs[0].dims
    return [None if dims is None else dims[:1]]


def _scalar(node: NodeSpec) -> Sequence[Dims]:
    return [()]


register_op(
    "StrangerHypot",
    inputs=("x: T", "y: T"),
    outputs=("z: T",),
    attrs={"T": "{float32, float64}"},
    shape=_broadcast,
    traits=elementwise(_hypot, cheap=True, cost=cost_rules.per_output(4)),
    doc="sqrt(x² + y²).",
)
register_op(
    "StrangerDiagonal",
    inputs=("x: T",),
    outputs=("diagonal: T",),
    attrs={"T": "{float32, float64}"},
    shape=_diagonal,
    traits=Traits(view=0),
    doc="The diagonal of a square matrix, as a view of it.",
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
    "StrangerTallyGet",
    outputs=("value: int64",),
    attrs={"tally": "string"},
    shape=_scalar,
    traits=READS,
    doc="What a tally is now.",
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
