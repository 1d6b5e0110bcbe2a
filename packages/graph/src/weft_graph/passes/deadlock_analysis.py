"""Deadlock analysis: the nodes that may be made to wait for other nodes.

A dequeue waits for an enqueue without an edge between them in the graph. The nodes that lead to the
enqueue in the same step must not wait for the dequeue.
"""

from __future__ import annotations

from collections.abc import Sequence

from weft_graph.functions.state import has_effect, origin
from weft_graph.ir.node import Node
from weft_graph.ir.traits import Role
from weft_graph.passes.flow import dependencies_of
from weft_tensor import dtypes


class BlockingOrder:
    """The nodes of a step in execution order.

    Args:
      nodes: nodes with inputs before users, ignoring back edges.
    """

    def __init__(self, nodes: Sequence[Node]) -> None:
        self._masks: dict[Node, int] = {}
        self._leads: set[Node] = set()
        asynchronous = [node for node in nodes if node.traits.asynchronous]
        waiting = {node: 1 << i for i, node in enumerate(asynchronous)}
        if not waiting:
            return
        for node in nodes:
            mask = waiting.get(node, 0)
            for need in dependencies_of(node):
                mask |= self._masks.get(need, 0)
            self._masks[node] = mask
        for node in reversed(nodes):
            if node in self._leads or _can_help(node):
                self._leads.add(node)
                self._leads.update(dependencies_of(node))

    def first(self, nodes: Sequence[Node]) -> list[Node]:
        """Return the nodes with those first that can unblock others and do not wait."""
        leads = [
            node for node in nodes if node in self._leads and not self.blocking_predecessors(node)
        ]
        node_set = set(nodes).difference(leads)
        return [*leads, *[node for node in nodes if node in node_set]] if leads else list(nodes)

    def blocking_predecessors(self, node: Node) -> int:
        """Return the blocking nodes that a node runs after, including itself, as a bit set."""
        return self._masks.get(node, 0)

    def may_follow(self, node: Node, mask: int) -> bool:
        """Return True if a node may wait for nodes that run after those in `mask`."""
        return not mask & ~self.blocking_predecessors(node) or node not in self._leads


def _can_help(node: Node) -> bool:
    """Return True if a node's side effect may unblock others; variable updates do not count."""
    if not has_effect(node) or any([arg.is_ref for arg in node.op_def.inputs]):
        return False
    handles = [source for source in node.inputs if source.dtype is dtypes.resource]
    return not any([origin(handle).node.role is Role.VARIABLE for handle in handles])
