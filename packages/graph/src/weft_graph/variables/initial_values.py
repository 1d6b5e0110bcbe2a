"""Initial values that depend on other variables.

Initializers run in an arbitrary order. An initial value that reads another variable must therefore
use that variable's initial value if the variable is still uninitialized.
"""

from __future__ import annotations

from typing import Any

from weft_graph.ir.collections_keys import GraphKeys
from weft_graph.ir.graph import Graph
from weft_graph.ir.node import Node, Output
from weft_graph.ir.traits import Role
from weft_graph.variables.base import Variable
from weft_tensor import dtypes


def guard_initial_value(graph: Graph, variable_node: Node, value: Output) -> Output:
    """Return `value` with reads of other variables replaced by their `initialized_value`.

    A value that is computed with conditionals or loops is returned unchanged, because it is guarded
    explicitly or cannot be copied.
    """
    ancestors = _ancestors(value.node)
    if not any(node.role is Role.VARIABLE for node in ancestors):
        return value
    if any(node.traits.routes for node in ancestors):
        return value
    variables = {
        variable.op: variable
        for key in (GraphKeys.GLOBAL_VARIABLES, GraphKeys.LOCAL_VARIABLES)
        for variable in graph.get_collection(key)
        if isinstance(getattr(variable, "op", None), Node)
    }
    suffix = variable_node.name.replace("/", "_")
    copies: dict[Output, Output] = {}
    for node in sorted(ancestors, key=lambda node: node.index):
        _guard_node(graph, node, variables, copies, suffix)
    return copies.get(value, value)


def _ancestors(node: Node) -> set[Node]:
    ancestors = {node}
    pending = [node]
    while pending:
        current = pending.pop()
        if current.traits.allows_uninitialized:
            continue
        for source in current.inputs:
            if source.node not in ancestors:
                ancestors.add(source.node)
                pending.append(source.node)
    return ancestors


def _guard_node(
    graph: Graph,
    node: Node,
    variables: dict[Any, Variable],
    copies: dict[Output, Output],
    suffix: str,
) -> None:
    """Record replacements of the outputs of `node` in `copies`, if any."""
    if node.traits.allows_uninitialized:
        return
    holder = node.inputs[0].node if node.role is Role.READ else node
    if holder.role is Role.VARIABLE:
        variable = variables.get(holder)
        readable = node.outputs[0].dtype is not dtypes.resource
        if variable is not None and readable:
            copies[node.outputs[0]] = variable.initialized_value()
        return
    if not any(source in copies for source in node.inputs):
        return
    counterpart = graph.add_copy(
        node,
        graph.unique_name(f"{node.name.replace('/', '_')}_{suffix}"),
        tuple([copies.get(source, source) for source in node.inputs]),
        {key: item for key, item in node.attrs.items() if key != "_class"},
    )
    copies.update(zip(node.outputs, counterpart.outputs, strict=True))
