"""Control inputs that limit how far nodes run ahead of their order, to bound a device's memory.

Peak memory is estimated for sequential execution. With threads and transfers, nodes may run ahead,
and their results are then live together with values that the estimate assumes to be freed. A node
therefore gets control inputs that make it wait for all nodes before some index of the order. In the
worst case, the values live at that index and the results of all nodes from there to the node are in
memory together. The index is the earliest one for which this is within the limit.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate
from operator import or_

from weft_graph.ir.node import Node
from weft_graph.ir.op_def import lookup_op
from weft_graph.ir.step_graph import RunOrder, StepGraph, reorder_nodes
from weft_graph.ir.traits import Role
from weft_graph.passes.deadlock_analysis import BlockingOrder
from weft_graph.passes.flow import ALWAYS, Flow, dependencies_of
from weft_graph.passes.memory import BytesOf, MemoryLimits, Values, static_bytes
from weft_graph.passes.partition import Assignment


def limit_run_ahead(
    step: StepGraph,
    memory: MemoryLimits,
    host: str = "",
    *,
    bytes_of: BytesOf | None = None,
    run_order: RunOrder = list,
) -> int:
    """Make nodes wait for earlier ones if too many values could be live otherwise.

    Args:
      memory: the limits and the devices of nodes; None if there is one device.
      host: the device of nodes without a source.
      bytes_of: sizes of values; default to those of static shapes.
      run_order: sorts live nodes into execution order.
    Returns: the number of nodes that wait for earlier ones.
    """
    nodes = list(run_order(step.live_nodes()))
    waiting = BlockingOrder(nodes)
    nodes = waiting.first(nodes)
    flow = Flow(nodes)
    if memory.device_of is not None:
        memory = MemoryLimits(
            memory.limits, Assignment(nodes, flow, memory.device_of, host).of, memory.spaces
        )
    numbers, values = memory.spread(nodes, Values(nodes, step.fetches, bytes_of or static_bytes))
    count = 0
    insertions: dict[Node, list[Node]] = {}
    for name, limit in memory.limits.items():
        if name in numbers:
            is_on_device = [
                memory.device_of is None or memory.device_of(node) == name for node in nodes
            ]
            live, new = values.live(numbers[name]), values.made_on(numbers[name])
            queue = _Queue(step, nodes, is_on_device, flow, name, insertions, waiting)
            queue.hold(_earliest_indices(live, new, limit), new)
            count += queue.num_held
    if count:
        reorder_nodes(step, nodes, insertions)
        step.changes["run ahead"] += count
    return count


def _earliest_indices(live: Sequence[int], created: Sequence[int], limit: int) -> list[int]:
    """Return, per node, the earliest index before which all nodes must have finished.

    If a node starts when all nodes before index `q` have finished, the values live at `q` and the
    results of all nodes from `q` to the node may be in memory.
    """
    totals = list(accumulate(created))
    negated_excess: list[
        int
    ] = []  # less what was made before: falls from one candidate to the next
    stack: list[int] = []
    first_places: list[int] = []
    for index, total in enumerate(totals):
        i = bisect_left(
            negated_excess, total - limit
        )  # `negated_excess` has the negatives, which rise
        first_places.append(stack[i - 1] + 1 if i else 0)
        value = total - live[index]
        while negated_excess and negated_excess[-1] >= value:
            negated_excess.pop()
            stack.pop()
        negated_excess.append(value)
        stack.append(index)
    return first_places


class _Queue:
    """The ordered nodes of one device, some of which wait for all nodes before an index.

    A rank is the number of nodes of the device before an index.
    """

    def __init__(
        self,
        step: StepGraph,
        nodes: Sequence[Node],
        is_on_device: Sequence[bool],
        flow: Flow,
        device: str,
        insertions: dict[Node, list[Node]],
        waiting: BlockingOrder,
    ) -> None:
        self._step = step
        self._nodes = nodes
        self._positions = is_on_device
        self._flow = flow
        self._device = device
        self._insertions = insertions
        self._waiting = waiting
        self._position = {node: i for i, node in enumerate(nodes)}
        self._rank = [0, *accumulate(map(int, is_on_device))]
        self._own_positions = [i for i, is_mine in enumerate(is_on_device) if is_mine]
        masks = [waiting.blocking_predecessors(nodes[i]) for i in self._own_positions]
        self._masks = [0, *accumulate(masks, or_)]  # the nodes below a rank
        self._finished_ranks = [0] * len(
            nodes
        )  # all nodes below that rank have finished when a node begins
        self._barrier: Node | None = None
        self._barred = 0
        self.num_held = 0

    def hold(self, first: Sequence[int], created: Sequence[int]) -> None:
        """Make each node that produces values wait for all nodes before its first index."""
        for i, node in enumerate(self._nodes):
            earlier_nodes = [
                j for n in dependencies_of(node) if (j := self._position.get(n, i)) < i
            ]
            finished_rank = max(map(self._rank_after, earlier_nodes), default=0)
            target_rank = self._rank[first[i]]
            if (
                self._positions[i]
                and created[i]
                and finished_rank < target_rank
                and self._can_wait(node, target_rank)
            ):
                self._wait(node, target_rank)
                finished_rank = target_rank
            self._finished_ranks[i] = finished_rank

    def _can_wait(self, node: Node, rank: int) -> bool:
        return self._is_plain(node) and self._waiting.may_follow(node, self._masks[rank])

    def _rank_after(self, i: int) -> int:
        """Return the rank below which all nodes have finished when a node has finished."""
        finished_rank = self._finished_ranks[i]
        return (
            self._rank[i] + 1
            if self._positions[i] and finished_rank >= self._rank[i]
            else finished_rank
        )

    def _is_plain(self, node: Node) -> bool:
        return not node.traits.routes and node.role is not Role.LOOP_COND and self._is_there(node)

    def _is_there(self, node: Node) -> bool:
        """Return True if a node runs exactly once per step and is alive."""
        flow = self._flow
        return flow.frame[node] is flow.root and flow.guard(node) == ALWAYS

    def _wait(self, node: Node, rank: int) -> None:
        last = self._own_positions[rank - 1]
        if self._rank_after(last) == rank and self._is_plain(self._nodes[last]):
            control: Node | None = self._nodes[last]
        else:
            control = self._bar(rank)
        if control is not None and control not in dependencies_of(node):
            controls = [*node.controls, control]
            self._step.graph.set_control_inputs(node, controls, reason="run ahead")
            self.num_held += 1

    def _bar(self, rank: int) -> Node | None:
        """Return a node that runs after all nodes below a rank have finished."""
        barred_nodes = self._own_positions[self._barred : rank]
        if not barred_nodes:
            return self._barrier
        self._barred = rank
        controls = [self._nodes[i] for i in barred_nodes if self._is_end(i, barred_nodes[-1])]
        if self._barrier is not None:
            controls.insert(0, self._barrier)
        template = self._nodes[barred_nodes[-1]]
        graph = self._step.graph
        name = graph.unique_name(f"{template.name}/over")
        barrier = graph.add_derived(template, lookup_op("NoOp"), name)
        barrier.device = self._device
        graph.set_control_inputs(barrier, controls, reason="run ahead")
        self._insertions.setdefault(self._nodes[barred_nodes[-1] + 1], []).append(barrier)
        self._barrier = barrier
        return barrier

    def _is_end(self, i: int, last: int) -> bool:
        """Return True if no other node of the device up to `last` follows a node."""
        node = self._nodes[i]
        if not self._is_there(node):
            return False
        users = [j for user in node.consumers if (j := self._position.get(user, i)) > i]
        return not any(
            [j <= last and self._positions[j] and self._is_there(self._nodes[j]) for j in users]
        )
