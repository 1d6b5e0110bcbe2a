"""Which nodes come first: updates of state wait for whatever does not need them."""

from __future__ import annotations

from collections.abc import Sequence

from weft_graph.ir.node import Node, Output
from weft_graph.ops.control_flow import ROUTING
from weft_graph.passes.flow import ordered_by

_VARIABLES = frozenset({"Variable", "VariableV2", "VarHandleOp"})
_ONLY_LOOKS = frozenset(
    {
        "InitializedValue",
        "IsVariableInitialized",
        "ReadVariableOp",
        "RefIdentity",
        "ResourceGather",
        "ResourceGatherNd",
        "ResourceInitializedValue",
        "VarIsInitializedOp",
        "VariableShape",
        "_Send",
    }
)
"""Ops that take a variable's reference or handle and leave its value alone."""


def by_priority(nodes: Sequence[Node]) -> list[Node]:
    """`nodes` in an order that keeps dependencies and lets updates of state wait for the rest.

    Among equals the order of construction decides.  With updates last, a read that nothing orders
    against an update sees the value before the step.  Back edges of loops do not count.
    """
    if not any(updates(node) for node in nodes):
        return list(nodes)
    return ordered_by(nodes, updates)


def updates(node: Node) -> bool:
    """Whether a node changes a variable it is given, or has only effects."""
    if not node.inputs or node.type in _ONLY_LOOKS or node.type in ROUTING:
        return False
    if any(arg.is_ref for arg in node.op_def.inputs):
        return True
    if node.attrs.get("_only_looks"):
        return False
    return node.op_def.stateful and (
        not node.outputs or any(variable_of(source) is not None for source in node.inputs)
    )


def variable_of(output: Output) -> Node | None:
    """The node of the variable whose reference or handle an output is, or None."""
    while output.dtype.is_ref or output.dtype.name == "resource":
        node = output.node
        if node.type in _VARIABLES:
            return node
        through = [i for i in node.inputs if i.dtype.is_ref or i.dtype.name == "resource"]
        if not through:
            return None
        output = through[0]
    return None
