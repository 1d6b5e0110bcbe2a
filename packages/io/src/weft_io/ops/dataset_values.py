"""Ops that compute values of datasets: reductions over all elements, and optional elements."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from weft_graph.ir.op_def import NodeSpec, register_op
from weft_graph.ir.traits import NOT_DIFFERENTIABLE, READS, WAITS, State, Traits
from weft_graph.ops.shape_rules import scalar, with_rank
from weft_tensor.shape import Dims

_FORM: Final = {"output_types": "list(type) >= 1", "output_shapes": "list(shape) >= 1"}


def _component_shapes(node: NodeSpec) -> Sequence[Dims]:
    with_rank(node.inputs[0].dims, 0, "a dataset or an optional value")
    shapes: Sequence[Dims] = node.attrs["output_shapes"]
    return shapes


def _no_outputs(node: NodeSpec) -> Sequence[Dims]:
    return ()


register_op(
    "ReduceDataset",
    (
        "input_dataset: variant",
        "initial_state: Tstate",
        "other_arguments: Targuments",
    ),
    ("components: output_types",),
    {
        "f": "func",
        "Tstate": "list(type) >= 1",
        "Targuments": "list(type)",
        **_FORM,
        "use_inter_op_parallelism": "bool = true",
    },
    _component_shapes,
    traits=Traits(state=State.READS, asynchronous=True, differentiable=False),
    doc="The last state of a function of a state and each element.",
)
register_op(
    "DatasetToSingleElement",
    ("dataset: variant",),
    ("components: output_types",),
    _FORM,
    _component_shapes,
    traits=READS,
    doc="The only element.",
)
register_op(
    "DatasetCardinality",
    ("input_dataset: variant",),
    ("cardinality: int64",),
    {},
    scalar,
    traits=READS,
    doc="How many elements there are, as far as that is known: -1 for no end, -2 for unknown.",
)
register_op(
    "DatasetToTFRecord",
    ("input_dataset: variant", "filename: string", "compression_type: string"),
    (),
    {},
    _no_outputs,
    traits=Traits(state=State.WRITES, asynchronous=True, writes_files=True, differentiable=False),
    doc="Write all elements to a file.",
)
register_op(
    "OptionalFromValue",
    ("components: Toutput_types",),
    ("optional: variant",),
    {"Toutput_types": "list(type) >= 1"},
    scalar,
    traits=NOT_DIFFERENTIABLE,
    doc="An optional value that is there.",
)
register_op(
    "OptionalNone",
    (),
    ("optional: variant",),
    {},
    scalar,
    traits=NOT_DIFFERENTIABLE,
    doc="An optional value that is not there.",
)
register_op(
    "OptionalHasValue",
    ("optional: variant",),
    ("has_value: bool",),
    {},
    scalar,
    traits=NOT_DIFFERENTIABLE,
    doc="Whether an optional value is there.",
)
register_op(
    "OptionalGetValue",
    ("optional: variant",),
    ("components: output_types",),
    _FORM,
    _component_shapes,
    traits=NOT_DIFFERENTIABLE,
    doc="An optional value, which must be there.",
)
register_op(
    "IteratorGetNextAsOptional",
    ("iterator: resource",),
    ("optional: variant",),
    _FORM,
    scalar,
    traits=WAITS,
    doc="The next element, which may not be there.",
)
