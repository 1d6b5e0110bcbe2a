"""Scheduling of Receives: as late as the simulated run allows (paper, section 5.2).

A value that is received long before its use occupies memory. A Receive into another memory
therefore gets a control edge from a node that ends just in time for the value to arrive before its
first user starts.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Collection, Mapping, Sequence
from typing import Final

from weft_exec.placement.simulation import Transfer
from weft_graph.ir.node import Node, Output
from weft_graph.ir.traits import Role
from weft_graph.passes.deadlock_analysis import BlockingOrder
from weft_graph.passes.flow import Flow

_AHEAD: Final = 3
"""Maximum number of nodes between a Receive's start and its first user if memory is short."""
_LEAST_BYTES: Final = 1 << 16
"""Size in bytes below which Receives are not delayed."""
_SLACK: Final = 2
"""A Receive begins this multiple of its estimated duration before its value is needed."""


def delays(
    crossings: Sequence[Transfer],
    nodes: Sequence[Node],
    placement: Mapping[Node, str],
    times: Mapping[Node, tuple[float, float]],
) -> dict[tuple[Output, str], Node]:
    """Return the nodes that Receives should wait for.

    In the simulated run, every such node ends before the first user of the value starts, so no
    cycle can arise. Inputs of loops are not delayed, because a loop begins only when all of its
    inputs have arrived.

    Args:
      crossings: the transfers of a simulated run.
      nodes: the nodes of the step, in topological order.
      placement: the device of each placed node.
      times: start and end of each node.
    Returns: for each value and device, the node whose end starts the Receive.
    """
    expected = [c for c in crossings if c.nbytes >= _LEAST_BYTES]
    if not expected:
        return {}
    flow = Flow(nodes)
    plain = {node for node in nodes if flow.frame[node] is flow.root and not flow.guard(node)}
    ends: dict[str, list[tuple[float, int, Node]]] = {}
    for i, node in enumerate(nodes):
        if node in placement and node in plain and _has_end(node):
            ends.setdefault(placement[node], []).append((times[node][1], i, node))
    for end in ends.values():
        end.sort(key=lambda end: end[:2])
    uses = _first_uses(nodes, placement, times)
    result: dict[tuple[Output, str], Node] = {}
    for crossing in expected:
        key = (crossing.value, crossing.target)
        use = uses.get(key)
        if use is None or not _can_be_late(crossing.value, flow, placement):
            continue
        latest = use - _SLACK * (crossing.arrival - crossing.start)
        transfers = ends.get(crossing.target, [])
        position = bisect_right(transfers, (latest, len(nodes))) - 1
        if position >= 0 and transfers[position][0] > crossing.start:
            result[key] = transfers[position][2]
    return result


def memory_delays(
    nodes: Sequence[Node],
    placement: Mapping[Node, str],
    devices: Collection[str],
) -> dict[tuple[Output, str], Node]:
    """Return the nodes that Receives should wait for on devices that are short of memory.

    The choice does not depend on times: it is a node a few positions before the first user of the
      value, so no cycle can arise.

    Args:
      nodes: the nodes of the step, in execution order.
      placement: the device of each placed node.
      devices: the names of the devices that are short of memory.
    Returns: see `delays`.
    """
    flow, waiting = Flow(nodes), BlockingOrder(nodes)
    recent: dict[str, deque[Node]] = {name: deque(maxlen=_AHEAD) for name in devices}
    result: dict[tuple[Output, str], Node] = {}
    visited: set[tuple[Output, str]] = set()
    for node in nodes:
        device = placement.get(node, "")
        if device not in recent:
            continue
        if flow.frame[node] is not flow.root or flow.guard(node):
            visited.update([(source, device) for source in node.inputs])
            continue
        recent_nodes = recent[device]
        for source in node.inputs:
            key = (source, device)
            if key in visited or placement.get(source.node) == device:
                continue
            visited.add(key)
            if len(recent_nodes) == _AHEAD and _can_be_late(source, flow, placement):
                followers = waiting.blocking_predecessors(recent_nodes[0])
                if all([waiting.may_follow(user, followers) for user in source.consumers()]):
                    result[key] = recent_nodes[0]
        if _has_end(node):
            recent_nodes.append(node)
    return result


def _has_end(node: Node) -> bool:
    """Return True if a node is placed, and so belongs to a single partition."""
    return not node.traits.routes and node.role is not Role.CONSTANT


def _can_be_late(value: Output, flow: Flow, placement: Mapping[Node, str]) -> bool:
    """Return True if a value is used only by placed nodes outside loops."""
    if flow.frame[value.node] is not flow.root:
        return False
    users = [user for user in value.consumers() if user in flow.frame]
    return all([user in placement and not user.traits.routes for user in users])


def _first_uses(
    nodes: Sequence[Node],
    placement: Mapping[Node, str],
    times: Mapping[Node, tuple[float, float]],
) -> dict[tuple[Output, str], float]:
    result: dict[tuple[Output, str], float] = {}
    for node in nodes:
        if node in placement:
            for source in node.inputs:
                key = (source, placement[node])
                start = times[node][0]
                result[key] = min(result.get(key, start), start)
    return result
