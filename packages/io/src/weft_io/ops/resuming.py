"""Ops that save the positions of random streams, so that a restored program continues them."""

from __future__ import annotations

from weft_graph.ir.op_def import register_op
from weft_graph.ir.traits import READS, WRITES
from weft_graph.ops.shape_rules import fixed_shape, scalar

register_op(
    "RandomStreamState",
    (),
    ("state: string",),
    {"stream": "string"},
    scalar,
    traits=READS,
    doc="How often a random op of the task, the attribute `stream`, has drawn, and its key; or ''.",
)
register_op(
    "RestoreRandomStream",
    ("state: string",),
    (),
    {"stream": "string"},
    fixed_shape(),
    traits=WRITES,
    doc="Let a random op of the task go on from where another was; nothing for ''.",
)
