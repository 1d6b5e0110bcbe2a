"""In which order nodes read and change variables: what no edge of the graph says."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from weft_exec.executor.priority import changed_by, variable_of
from weft_graph.ir.node import Node


class Touch(NamedTuple):
    """That a node reads a variable, or changes it."""

    node: Node
    changes: bool


def touches(nodes: Sequence[Node]) -> dict[Node, list[Touch]]:
    """What nodes do to variables that some of them change, by the variable's node.

    Args:
      nodes: in the order in which they run.
    """
    found: dict[Node, list[Touch]] = {}
    for node in nodes:
        variables = {variable_of(source) for source in node.inputs} - {None}
        if variables:
            changed = {variable_of(source) for source in changed_by(node)}
            for variable in variables:
                if variable is not None:
                    found.setdefault(variable, []).append(Touch(node, variable in changed))
    return {variable: order for variable, order in found.items() if any(t.changes for t in order)}


def in_order(order: Sequence[Touch]) -> list[tuple[Node, Node]]:
    """Pairs of nodes that touch one variable, of which the first has to be first."""
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
