"""Swapping: values with a distant next use are stored on the host (paper, section 4.1).

An Identity on the host receives a value as soon as its early uses have finished. Shortly before its
late uses, the value is swapped in: a second Identity on the host waits for a device node some nodes
before these uses, and a third one on the device receives its value. Partitioning adds the
transfers. The original is freed when it has been sent.

Kernels may be faster than copies, and could then allocate memory that a copy has not freed yet.
Therefore, if the limit would be exceeded at some index without certain copies, the nodes from there
on wait for these copies by control inputs. Copies end in the order in which they begin.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from heapq import heappop, heappush
from itertools import pairwise
from typing import NamedTuple

from weft_graph.ir.node import Node, Output
from weft_graph.ir.step_graph import RunOrder, StepGraph, reorder_nodes
from weft_graph.ir.traits import Role
from weft_graph.passes.deadlock_analysis import BlockingOrder
from weft_graph.passes.flow import ALWAYS, Flow, dependencies_of
from weft_graph.passes.max_tree import MaxTree
from weft_graph.passes.memory import (
    BytesOf,
    MemoryLimits,
    Values,
    aliased_value,
    occupies_memory,
    static_bytes,
)
from weft_graph.passes.partition import Assignment

_SMALL = 4096
"""Values up to this many bytes are not swapped."""

_MAX_DISTANCE = 64
"""Largest number of nodes examined to find the start of a swap-in."""


def swap_to_host(
    step: StepGraph,
    memory: MemoryLimits,
    host: str,
    *,
    ahead: int = 8,
    bytes_of: BytesOf | None = None,
    run_order: RunOrder = list,
) -> int:
    """Swap values out to the host if a device would exceed its memory limit.

    Of the values alive when the limit is exceeded, those with the largest product of size and idle
    time are swapped first, until the rest fits. A value that exists on the host, such as a feed, is
    only copied back. Values that are fetched, or used in a branch or a loop, stay on the device.

    Args:
      memory: the limits of devices other than the host, and the devices of nodes.
      host: name of the host device.
      ahead: number of nodes between the start of a swap-in and the next use of the value.
      bytes_of: sizes of values; default to those of static shapes.
      run_order: sorts live nodes into execution order; they are in that order by default.
    Returns: the number of swapped values.
    """
    nodes = list(run_order(step.live_nodes()))
    if not nodes or memory.device_of is None:
        return 0
    waiting = BlockingOrder(nodes)
    swapping = _SwapRewriter(step, nodes, memory, host, bytes_of or static_bytes, ahead, waiting)
    count = 0
    for device, limit in memory.limits.items():
        if device != host and device in swapping.devices:
            count += swapping.fit(device, limit)
    if count:
        reorder_nodes(step, nodes, swapping.insertions)
        step.changes["swap"] += count
    return count


class _Wait(NamedTuple):
    """A swapped value between two uses.

    Attributes:
      output: the value.
      copied: True if it must be copied to the host; False if the host has it already.
      begin: index of its last early use.
      call: index of the node after which it is swapped in.
      end: index of its first late use.
      nbytes: size in bytes.
    """

    output: Output
    copied: bool
    begin: int
    call: int
    end: int
    nbytes: int


class _SwapRewriter:
    """Selects the values to swap, and edits the step."""

    def __init__(
        self,
        step: StepGraph,
        nodes: Sequence[Node],
        memory: MemoryLimits,
        host: str,
        bytes_of: BytesOf,
        ahead: int,
        waiting: BlockingOrder,
    ) -> None:
        self._step = step
        self._nodes = nodes
        self._ahead = max(1, ahead)
        self._waiting = waiting
        self._bytes_of = bytes_of
        self._position = {node: i for i, node in enumerate(nodes)}
        self._flow = Flow(nodes)
        assert memory.device_of is not None
        devices = Assignment(nodes, self._flow, memory.device_of, host)
        self._device = [devices.of(node) for node in nodes]
        self._values = Values(nodes, step.fetches, bytes_of)
        placed = MemoryLimits(memory.limits, devices.of, memory.spaces)
        self.devices, self._limits = placed.spread(nodes, self._values)
        self._depth = self._depths()
        self._host = host
        self.insertions: dict[Node, list[Node]] = {}

    def _depths(self) -> list[int]:
        """Return the length of the longest path to each node."""
        depths: list[int] = []
        for i, node in enumerate(self._nodes):
            input_depths = [
                depths[j] for n in dependencies_of(node) if (j := self._position.get(n, i)) < i
            ]
            depths.append(1 + max(input_depths, default=-1))
        return depths

    def _is_plain(self, node: Node) -> bool:
        if node.traits.routes or node.role is Role.LOOP_COND:
            return False
        flow = self._flow
        return flow.frame[node] is flow.root and flow.guard(node) == ALWAYS

    def fit(self, device: str, limit: int) -> int:
        """Swap values until a device meets its limit, or no candidates remain.

        Returns: the number of swapped values.
        """
        live = self._limits.live(self.devices[device])
        copies_by_end: dict[int, list[Node]] = {}
        waits = self._choose(device, live, limit)
        ends = self._ends_of_copies(waits, live, limit)
        for wait, end in ends:
            copy = self._carry_out(wait, device)
            if copy is not None:
                copies_by_end.setdefault(end, []).append(copy)
        for begin, end in pairwise([*sorted(copies_by_end), len(self._nodes)]):
            self._delay_copies(device, begin, end, copies_by_end[begin])
        return len(ends)

    # ------------------------------------------------------------------ choice

    def _choose(self, device: str, live: Sequence[int], limit: int) -> list[_Wait]:
        """Select, among the values live at the peak, those with the largest size times duration."""
        tree = MaxTree(live)
        if tree.largest(0, len(live)) <= limit:
            return []
        waits = [w for i in range(len(self._nodes)) for w in self._waits_of(i, device)]
        waits.sort(key=lambda w: (-w.nbytes * (w.end - w.begin), w.begin))
        selected: list[_Wait] = []
        for wait in waits:
            if tree.largest(wait.begin + 1, wait.call + 1) > limit:
                tree.add(wait.begin + 1, wait.call + 1, -wait.nbytes)
                selected.append(wait)
        return selected

    def _ends_of_copies(
        self, controls: Sequence[_Wait], live: Sequence[int], limit: int
    ) -> list[tuple[_Wait, int]]:
        """Return, for each copy, the index before which it must end to meet the limit.

        Copies end in the order in which they begin. If a copy need not end before the swap-in, its
        value stays on the device.
        """
        begins = deque(sorted(controls, key=lambda wait: wait.begin))
        going: deque[_Wait] = deque()
        copy_ends: list[tuple[int, int]] = []
        ends: list[tuple[_Wait, int]] = []
        bytes_away = 0
        for index, live_bytes in enumerate(live):
            while begins and begins[0].begin < index:
                going.append(begins.popleft())
            for wait in [wait for wait in going if not wait.copied]:
                going.remove(wait)
                ends.append((wait, index))
                bytes_away += wait.nbytes
                heappush(copy_ends, (wait.call, wait.nbytes))
            while copy_ends and copy_ends[0][0] < index:
                bytes_away -= heappop(copy_ends)[1]
            while going and (going[0].call < index or live_bytes - bytes_away > limit):
                wait = going.popleft()
                if index <= wait.call:
                    bytes_away += wait.nbytes
                    heappush(copy_ends, (wait.call, wait.nbytes))
                    ends.append((wait, index))
        return ends

    def _waits_of(self, i: int, device: str) -> list[_Wait]:
        """Return the longest wait on a device of each value that a node produces."""
        node = self._nodes[i]
        is_on_device = self._device[i] == device
        if not is_on_device and (self._device[i] != self._host or node.role is Role.CONSTANT):
            return []
        if not self._is_plain(node):
            return []
        waits = [self._longest_wait(i, output, device) for output in node.outputs]
        return [wait for wait in waits if wait is not None]

    def _longest_wait(self, i: int, output: Output, device: str) -> _Wait | None:
        is_on_device = self._device[i] == device
        values, number = self._values, self._values.numbers[output]
        nbytes = values.sizes[number] if is_on_device else values.moved[number]
        if (
            nbytes <= _SMALL
            or aliased_value(output) is not output
            or (is_on_device and number in values.kept)
        ):
            return None
        uses = self._uses(output, device)
        users = sorted(
            [key for key, user_device in uses.items() if is_on_device or user_device == device]
        )
        points = [i, *users] if is_on_device else users
        if len(points) < 2:
            return None
        _, begin, end = max([(b - a, a, b) for a, b in pairwise(points)])
        if not all([self._is_plain(self._nodes[j]) for j in uses]):
            return None
        if not all([output in self._nodes[j].inputs for j in users if j >= end]):
            return None  # what they use is a view that was made early, and holds the value
        call = self._call(begin, end, device)
        late = [self._nodes[j] for j in uses if j >= end]
        if call is not None and not self._can_follow(late, [self._nodes[call]]):
            return None
        return None if call is None else _Wait(output, is_on_device, begin, call, end, nbytes)

    def _uses(self, output: Output, device: str) -> dict[int, str]:
        """Return the indices and devices of the nodes that use a device's value, or a view of it.

        For other memory spaces, only the first node is returned, which receives a copy for all of
        them.
        """
        number, home = self._values.numbers[output], self._device[self._position[output.node]]
        device_of: dict[int, str] = {}
        stack = [output]
        while stack:
            for user in stack.pop().consumers():
                j = self._position.get(user)
                if j is not None:
                    device_of[j] = self._device[j]
                    stack.extend([o for o in user.outputs if self._values.numbers[o] == number])
        copied: set[str] = set()
        for j in sorted(device_of):
            user_device = device_of[j]
            if user_device not in (home, device):
                if user_device in copied:
                    del device_of[j]
                copied.add(user_device)
        return device_of

    def _call(self, begin: int, end: int, device: str) -> int | None:
        """Return the index of a device node some nodes before one use, and well after another.

        Among the candidates it selects the deepest one, with the longest path of nodes before it: a
        node with few predecessors may run much earlier than its index, and would start the swap-in
        too
        early.
        """
        last = end - self._ahead
        candidates = [
            i
            for i in range(last, max(begin, last - _MAX_DISTANCE), -1)
            if self._device[i] == device and self._is_plain(self._nodes[i])
        ]
        deepest = max(candidates, key=self._depth.__getitem__, default=begin)
        return deepest if self._depth[deepest] > self._depth[begin] else None

    # ------------------------------------------------------------------ the edit

    def _carry_out(self, wait: _Wait, device: str) -> Node | None:
        """Swap a value.

        Returns: the node that runs when its copy is complete, if there is a copy.
        """
        name = wait.output.node.name
        uses = self._uses(wait.output, device)
        controls = [self._nodes[wait.call]]
        out, copy = wait.output, None
        if wait.copied:
            early = [self._nodes[j] for j in sorted(uses) if j <= wait.begin]
            out = self._identity(out, f"{name}/swapped_out", self._host, early)
            copy = out.node
            self.insertions.setdefault(self._nodes[wait.begin + 1], []).append(copy)
        swapped = self._identity(out, f"{name}/swap_in", self._host, controls)
        identity = self._identity(swapped, f"{name}/swapped_in", device, controls)
        self.insertions.setdefault(self._nodes[wait.call + 1], []).extend(
            [swapped.node, identity.node]
        )
        for j, user_device in uses.items():
            if j >= wait.end and (wait.copied or user_device == device):
                self._replace(
                    self._nodes[j], wait.output, identity if user_device == device else swapped
                )
        return copy

    def _replace(self, user: Node, old: Output, new: Output) -> None:
        for position, source in enumerate(user.inputs):
            if source is old:
                self._step.graph.replace_input(user, position, new, reason="swap")

    def _can_follow(self, nodes: Sequence[Node], predecessors: Sequence[Node]) -> bool:
        """Return True if nodes can wait for `predecessors` without a deadlock."""
        mask = 0
        for predecessor in predecessors:
            mask |= self._waiting.blocking_predecessors(predecessor)
        return all([self._waiting.may_follow(node, mask) for node in nodes])

    def _delay_copies(self, device: str, begin: int, end: int, copies: Sequence[Node]) -> None:
        """Make the allocating nodes of a device at [begin, end) run after some copies."""
        later_nodes: set[Node] = set()
        earlier_nodes = [control for copy in copies for control in copy.controls]
        earlier_nodes += [copy.inputs[0].node for copy in copies]
        for i in range(begin, end):
            node = self._nodes[i]
            if not later_nodes.isdisjoint(dependencies_of(node)):
                later_nodes.add(node)
            elif (
                self._device[i] == device
                and self._is_candidate(node)
                and self._is_plain(node)
                and self._can_follow([node], earlier_nodes)
            ):
                controls = dict.fromkeys([*node.controls, *copies])
                self._step.graph.set_control_inputs(node, list(controls), reason="swap")
                later_nodes.add(node)

    def _is_candidate(self, node: Node) -> bool:
        new_outputs = [output for output in node.outputs if aliased_value(output) is output]
        return any([occupies_memory(output) and self._bytes_of(output) for output in new_outputs])

    def _identity(self, value: Output, name: str, device: str, controls: Sequence[Node]) -> Output:
        return self._step.identity(value, name, device, controls, reason="swap")
