"""Map from values to the nodes that they are computed for; it shows what was fused."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from weft_compiler.lower.analysis import facts_of
from weft_compiler.lower.values import Value
from weft_graph.ir.node import Node

Fused = dict[str, set[Value]]
"""The values that are computed for each buffer of a program, by the name of the buffer."""


def origins(
    result: Iterable[tuple[Node, Sequence[Value]]], boundary: Collection[Value]
) -> dict[Value, Node]:
    """Return the first node that needs each value.

    Args:
      result: the results of nodes, sources before users.
      boundary: values that are computed elsewhere.
    """
    nodes: dict[Value, Node] = {}
    for node, values in result:
        waiting = list(values)
        while waiting:
            value = waiting.pop()
            if value in nodes or value in boundary:
                continue
            nodes[value] = node
            facts = facts_of(value)
            waiting += [*facts.takes, *facts.written]
    return nodes


def nodes_of(fused: Fused, origin: Mapping[Value, Node]) -> dict[str, list[Node]]:
    """Return the nodes that are computed for each buffer, by the name of the buffer."""
    position = {node: index for index, node in enumerate(dict.fromkeys(origin.values()))}
    return {
        name: sorted({origin[v] for v in values if v in origin}, key=position.__getitem__)
        for name, values in fused.items()
    }
