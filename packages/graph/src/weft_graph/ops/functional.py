"""Ops that call functions of the graph's library."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft_graph.ir.default_graph import get_default_graph
from weft_graph.ir.op_def import NodeSpec, register_op
from weft_graph.ir.traits import Role, State, Traits
from weft_tensor import errors
from weft_tensor.shape import Dims


def _result_shapes(node: NodeSpec) -> Sequence[Dims]:
    """Return the result shapes of the body; they are unknown if it is undefined or being read."""
    library = node.inputs[0].graph.functions if node.inputs else _default_library()
    name = node.attrs["f"].name
    types = node.attrs["Tout"]
    if name not in library or library.is_reading(name):
        return [None] * len(types)
    function = library[name]
    function.check_call([source.dtype for source in node.inputs], types)
    if node.inputs and any(
        source.dtype.base_dtype is not kind
        for source, kind in zip(node.inputs, node.attrs["Tin"], strict=True)
    ):
        raise errors.InvalidTypeError("the inputs do not have the types Tin")
    return [dims for dims, _ in zip(function.output_dims, types, strict=True)]


def _default_library() -> Any:
    return get_default_graph().functions


for _prefix, _state, _what in (
    ("", State.NONE, "has no state"),
    ("Stateful", State.WRITES, "may have state and effects"),
):
    register_op(
        f"{_prefix}PartitionedCall",
        ("args: Tin",),
        ("output: Tout",),
        {
            "Tin": "list(type) >= 0",
            "Tout": "list(type) >= 0",
            "f": "func",
            "config": "string = ''",
            "config_proto": "string = ''",
            "executor_type": "string = ''",
        },
        _result_shapes,
        traits=Traits(state=_state, role=Role.CALL),
        doc=f"The results of the function `f`, which {_what}.",
    )
