"""Execution order of nodes: updates of state run after nodes that do not depend on them."""

from __future__ import annotations

from collections.abc import Sequence

from weft_graph.ir.node import Node, Output
from weft_graph.ir.traits import Role, State
from weft_graph.ops.step import REGION
from weft_graph.passes.flow import sort_topologically


def sort_by_priority(nodes: Sequence[Node]) -> list[Node]:
    """Return `nodes` in a topological order in which updates of state come as late as possible.

    Independent nodes keep the order of construction. Since updates come last, a read that is not
    ordered against an update by an edge returns the value from before the step. Back edges of loops
    are ignored.
    """
    if not any(is_update(node) for node in nodes):
        return list(nodes)
    return sort_topologically(nodes, is_update)


def is_update(node: Node) -> bool:
    """Return True if a node changes a variable, or has only side effects."""
    traits = node.traits
    if not node.inputs or traits.routes or traits.identity or traits.role is Role.SEND:
        return False
    if traits.state is State.READS:
        return False
    if any(arg.is_ref for arg in node.op_def.inputs):
        return True
    if node.attrs.get("_reads_only"):
        return False
    return traits.stateful and (
        not node.outputs or any(variable_of(source) is not None for source in node.inputs)
    )


def changed_variables(node: Node) -> Sequence[Output]:
    """Return the references and handles of the variables that a node changes."""
    if node.type == REGION:
        return [node.inputs[index] for index in node.attrs["updates"]]
    if not is_update(node):
        return ()
    return [
        source
        for index, source in enumerate(node.inputs)
        if not source.dtype.is_ref or takes_reference(node, index)
    ]


def takes_reference(node: Node, position: int) -> bool:
    """Return True if a node uses the reference at an input itself, not the value behind it."""
    if node.type == REGION:
        return position in node.attrs["updates"] and node.inputs[position].dtype.is_ref
    args = node.op_def.inputs
    return len(args) == len(node.inputs) and args[position].is_ref


def variable_of(output: Output) -> Node | None:
    """Return the variable that an output refers to, as a reference or handle.

    None if it is neither.
    """
    while output.dtype.is_ref or output.dtype.name == "resource":
        node = output.node
        if node.role is Role.VARIABLE:
            return node
        references = [i for i in node.inputs if i.dtype.is_ref or i.dtype.name == "resource"]
        if not references:
            return None
        output = references[0]
    return None
