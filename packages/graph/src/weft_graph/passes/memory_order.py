"""Reordering of nodes to reduce peak memory (paper, section 4.1).

Two alternatives to the current order are tried: list scheduling that prefers nodes that free the
most memory, and computing each value right before its first use. Nodes that access state keep their
order, so that every read sees the same value.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Sequence

from weft_graph.ir.node import Node, Output
from weft_graph.passes.flow import dependencies_of, has_control_flow
from weft_graph.passes.memory import BytesOf, MemoryEstimate, Values, estimate_memory, static_bytes


def order_for_memory(
    nodes: Sequence[Node],
    fetches: Iterable[Output] = (),
    bytes_of: BytesOf | None = None,
    device_of: Callable[[Node], str] | None = None,
) -> list[Node]:
    """Return `nodes` in an order with lower peak memory, or unchanged if none is found.

    Args:
      nodes: a step's live nodes in a topological order; steps with branches or loops are returned
        unchanged.
      fetches, bytes_of, device_of: as for `estimate_memory`.
    Returns: the same nodes in a topological order. Nodes that access state keep their order.
    """
    original = list(nodes)
    if has_control_flow(original):
        return original
    outputs = list(fetches)
    sizes = bytes_of or static_bytes

    def cost(order: Sequence[Node]) -> tuple[int, int]:
        estimate: MemoryEstimate = estimate_memory(order, outputs, sizes, device_of)
        return estimate.largest, estimate.total

    needs = _predecessor_positions(original)
    candidates = [
        original,
        _schedule_most_freed(original, needs, outputs, sizes),
        _delay_nodes(original, needs),
    ]
    return min(candidates, key=cost)


def _predecessor_positions(nodes: Sequence[Node]) -> list[list[int]]:
    """Return the indices of each node's predecessors."""
    position = {node: i for i, node in enumerate(nodes)}
    all_needs: list[list[int]] = []
    last_position = -1
    for i, node in enumerate(nodes):
        needs = {position[need] for need in dependencies_of(node) if need in position}
        if _touches_state(node):
            if last_position >= 0:
                needs.add(last_position)
            last_position = i
        all_needs.append(sorted(needs))
    return all_needs


def _touches_state(node: Node) -> bool:
    return node.op_def.stateful or any([o.dtype.is_ref for o in (*node.inputs, *node.outputs)])


def _schedule_most_freed(
    nodes: Sequence[Node], needs: Sequence[Sequence[int]], fetches: Sequence[Output], sizes: BytesOf
) -> list[Node]:
    """Return a list schedule that always runs the ready node that frees the most net memory."""
    values = Values(nodes, fetches, sizes)
    users: list[list[int]] = [[] for _ in nodes]
    pending = [len(node_needs) for node_needs in needs]
    for i, node_needs in enumerate(needs):
        for node_need in node_needs:
            users[node_need].append(i)
    readers: dict[int, set[int]] = {}
    for i, reads in enumerate(values.reads):
        for value in reads:
            readers.setdefault(value, set()).add(i)

    def gain(i: int) -> int:
        freed = [v for v in values.reads[i] if len(readers[v]) == 1 and v not in values.kept]
        created = [v for v in values.makes[i] if v in readers or v in values.kept]
        return sum([values.sizes[v] for v in freed]) - sum([values.sizes[v] for v in created])

    ready = [(-gain(i), i) for i, count in enumerate(pending) if not count]
    heapq.heapify(ready)
    placed: set[int] = set()
    result: list[Node] = []
    while ready:
        _, i = heapq.heappop(ready)
        if i in placed:
            continue
        placed.add(i)
        result.append(nodes[i])
        for user in users[i]:
            pending[user] -= 1
            if not pending[user]:
                heapq.heappush(ready, (-gain(user), user))
        for value in values.reads[i]:
            remaining_readers = readers[value]
            remaining_readers.discard(i)
            if len(remaining_readers) == 1:  # the last user frees it now: let it come earlier
                (user,) = remaining_readers
                if not pending[user] and user not in placed:
                    heapq.heappush(ready, (-gain(user), user))
    return result


def _delay_nodes(nodes: Sequence[Node], needs: Sequence[Sequence[int]]) -> list[Node]:
    """Return an order with each node right before the first node that waits for it."""
    used = {node_need for node_needs in needs for node_need in node_needs}
    placed = [False] * len(nodes)
    result: list[Node] = []
    for root in range(len(nodes)):
        if root in used:
            continue
        stack = [(root, False)]
        while stack:
            i, ready = stack.pop()
            if placed[i]:
                continue
            if ready:
                placed[i] = True
                result.append(nodes[i])
                continue
            stack.append((i, True))
            stack.extend([(need, False) for need in reversed(needs[i]) if not placed[need]])
    return result
