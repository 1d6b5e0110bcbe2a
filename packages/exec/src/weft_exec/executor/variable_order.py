"""Order of reads and changes of variables, which edges of the graph do not express."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from weft_exec.executor.priority import changed_variables, variable_of
from weft_graph.ir.node import Node


class VariableAccess(NamedTuple):
    """An access of a node to a variable: a read or a change."""

    node: Node
    changes: bool


def variable_accesses(nodes: Sequence[Node]) -> dict[Node, list[VariableAccess]]:
    """Return the accesses to variables that some node changes, by the variable's node.

    Args:
      nodes: in execution order.
    """
    touches: dict[Node, list[VariableAccess]] = {}
    for node in nodes:
        variables = {variable_of(source) for source in node.inputs} - {None}
        if variables:
            changed = {variable_of(source) for source in changed_variables(node)}
            for variable in variables:
                if variable is not None:
                    touches.setdefault(variable, []).append(
                        VariableAccess(node, variable in changed)
                    )
    return {variable: order for variable, order in touches.items() if any(t.changes for t in order)}


def access_order(order: Sequence[VariableAccess]) -> list[tuple[Node, Node]]:
    """Return pairs of nodes that access one variable; the first must run before the second."""
    pairs: list[tuple[Node, Node]] = []
    update: Node | None = None
    readers: list[Node] = []
    for node, changes in order:
        if not changes:
            readers.append(node)
            pairs += [] if update is None else [(update, node)]
            continue
        pairs += [(reader, node) for reader in readers]
        pairs += [] if update is None or readers else [(update, node)]
        update, readers = node, []
    return pairs
