"""Which nodes of a step may be made to wait for which others, without a deadlock.

A dequeue waits for an enqueue, which nothing in the graph orders before it.  What leads up to the
enqueue, in the same step, must not be held back until the dequeue has given something.
"""

from __future__ import annotations

from collections.abc import Sequence

from weft_graph.functions.state import has_effect, origin
from weft_graph.ir.node import Node
from weft_graph.ir.traits import Role
from weft_graph.passes.flow import needs_of
from weft_tensor import dtypes


class Waiting:
    """The nodes of a step, in the order in which they should run.

    Args:
      nodes: inputs before users, back edges of loops left out.
    """

    def __init__(self, nodes: Sequence[Node]) -> None:
        self._behind: dict[Node, int] = {}
        self._leads: set[Node] = set()
        asynchronous = [node for node in nodes if node.traits.asynchronous]
        waiting = {node: 1 << i for i, node in enumerate(asynchronous)}
        if not waiting:
            return
        for node in nodes:
            behind = waiting.get(node, 0)
            for need in needs_of(node):
                behind |= self._behind.get(need, 0)
            self._behind[node] = behind
        for node in reversed(nodes):
            if node in self._leads or _can_help(node):
                self._leads.add(node)
                self._leads.update(needs_of(node))

    def first(self, nodes: Sequence[Node]) -> list[Node]:
        """The nodes with those in front that lead up to help for others, and wait for none."""
        leads = [node for node in nodes if node in self._leads and not self.behind(node)]
        node_set = set(nodes).difference(leads)
        return [*leads, *[node for node in nodes if node in node_set]] if leads else list(nodes)

    def behind(self, node: Node) -> int:
        """The nodes that wait for others and that a node comes after, itself included: as bits."""
        return self._behind.get(node, 0)

    def may_follow(self, node: Node, behind: int) -> bool:
        """Return True if a node may wait for others that run after the leads in `behind`."""
        return not behind & ~self.behind(node) or node not in self._leads


def _can_help(node: Node) -> bool:
    """Return True if other nodes may wait for a node's side effect, beyond variable updates."""
    if not has_effect(node) or any([arg.is_ref for arg in node.op_def.inputs]):
        return False
    handles = [source for source in node.inputs if source.dtype is dtypes.resource]
    return not any([origin(handle).node.role is Role.VARIABLE for handle in handles])
