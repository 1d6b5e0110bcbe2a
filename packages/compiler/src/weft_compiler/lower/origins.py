"""Which nodes values are computed for, to tell what was fused."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from weft_compiler.lower.analysis import facts_of
from weft_compiler.lower.values import Value
from weft_graph.ir.node import Node

Fused = dict[str, set[Value]]
"""Of names of a program the values that are computed where they are filled."""


def origins(
    made: Iterable[tuple[Node, Sequence[Value]]], given: Collection[Value]
) -> dict[Value, Node]:
    """The first node that needs each value.

    Args:
      made: what nodes give, sources before users.
      given: what is computed elsewhere.
    """
    found: dict[Value, Node] = {}
    for node, values in made:
        waiting = list(values)
        while waiting:
            value = waiting.pop()
            if value in found or value in given:
                continue
            found[value] = node
            facts = facts_of(value)
            waiting += [*facts.takes, *facts.written]
    return found


def nodes_of(fused: Fused, origin: Mapping[Value, Node]) -> dict[str, list[Node]]:
    """Of names of a program the nodes that are computed where they are filled."""
    position = {node: at for at, node in enumerate(dict.fromkeys(origin.values()))}
    return {
        name: sorted({origin[v] for v in values if v in origin}, key=position.__getitem__)
        for name, values in fused.items()
    }
