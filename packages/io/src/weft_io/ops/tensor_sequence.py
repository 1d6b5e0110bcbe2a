"""Ops of sequences of tensors with individual shapes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from weft_graph.ir.op_def import NodeSpec, register_op
from weft_graph.ir.traits import NOT_DIFFERENTIABLE
from weft_graph.ops.shape_rules import scalar
from weft_tensor.shape import Dims

_FORM: Final = {"T": "type", "shape": "shape = unknown"}


def _attr_shape(node: NodeSpec) -> Sequence[Dims]:
    return (node.attrs["shape"],)


register_op(
    "TensorSequence",
    ("values: N * T",),
    ("sequence: variant",),
    {"N": "int >= 0", "T": "type"},
    scalar,
    traits=NOT_DIFFERENTIABLE,
    doc="The sequence of some tensors.",
)
register_op(
    "SequenceInsert",
    ("sequence: variant", "value: T", "position: int64"),
    ("result: variant",),
    {"T": "type"},
    scalar,
    traits=NOT_DIFFERENTIABLE,
    doc="A sequence with one more tensor before a position, which may count from the end.",
)
register_op(
    "SequenceErase",
    ("sequence: variant", "position: int64"),
    ("result: variant",),
    {},
    scalar,
    traits=NOT_DIFFERENTIABLE,
    doc="A sequence without the tensor at a position, which may count from the end.",
)
register_op(
    "SequenceAt",
    ("sequence: variant", "position: int64"),
    ("value: T",),
    _FORM,
    _attr_shape,
    traits=NOT_DIFFERENTIABLE,
    doc="The tensor at a position of a sequence, which may count from the end.",
)
register_op(
    "SequenceLength",
    ("sequence: variant",),
    ("length: int64",),
    {},
    scalar,
    traits=NOT_DIFFERENTIABLE,
    doc="How many tensors a sequence has.",
)
register_op(
    "SequenceSplit",
    ("value: T", "sizes: int64"),
    ("sequence: variant",),
    {"T": "type", "axis": "int", "squeeze": "bool = false"},
    scalar,
    traits=NOT_DIFFERENTIABLE,
    doc="The parts of a tensor along an axis, of these sizes; one size is that of each part.",
)
register_op(
    "SequenceConcat",
    ("sequence: variant",),
    ("value: T",),
    {**_FORM, "axis": "int", "new_axis": "bool = false"},
    _attr_shape,
    traits=NOT_DIFFERENTIABLE,
    doc="The tensors of a sequence as one, along an axis or a new one.",
)
