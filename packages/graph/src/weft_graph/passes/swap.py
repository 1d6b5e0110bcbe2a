"""Swapping: values that wait long for their next use wait on the host (paper, section 4.1).

A value goes there as soon as its early uses are over, by an Identity on the host, and comes back
shortly before the late ones: a second Identity on the host waits for a node of the device that runs
some steps ahead of them, and a third one on the device takes its value.  Partitioning makes the
transfers of that.  The original dies when it has been sent.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

from weft_graph.node import Node, Output
from weft_graph.op_def import lookup_op
from weft_graph.ops.control_flow import ROUTING
from weft_graph.passes.flow import ALWAYS, Flow, needs_of
from weft_graph.passes.memory import BytesOf, Values, sizes_of, takes_memory
from weft_graph.passes.partition import Assignment
from weft_graph.passes.step_graph import RunOrder, StepGraph, place_new_nodes

_SMALL = 4096
"""Bytes that are not worth two transfers."""

_FARTHEST = 64
"""Nodes that are looked at to find one that a value may come back after."""


def swap_to_host(
    step: StepGraph,
    device_of: Callable[[Node], str],
    host: str,
    limit: int,
    *,
    ahead: int = 8,
    bytes_of: BytesOf | None = None,
    run_order: RunOrder = list,
) -> int:
    """Let values wait on the host where a device would need more than a limit.

    Of the values that are there when too much is, those with the largest product of size and time
    go first, until enough have gone.  What is fed, fetched, or in a branch or a loop stays.

    Args:
      device_of: the device of a node that has a kernel.
      host: the name of the device that values wait on.
      limit: bytes, for each other device.
      ahead: how many nodes before its next use a value is called back.
      bytes_of: sizes of values; those of static shapes by default.
      run_order: puts live nodes into the order in which they will run; as they are by default.
    Returns: the number of values that wait on the host.
    """
    nodes = list(run_order(step.live_nodes()))
    if not nodes:
        return 0
    swapping = _Swapping(step, nodes, device_of, host, bytes_of or sizes_of(), ahead)
    chosen: list[_Wait] = []
    for device in swapping.devices:
        if device != host:
            chosen += swapping.choose(device, limit)
    for wait in chosen:
        swapping.carry_out(wait, host)
    if chosen:
        place_new_nodes(step, nodes, swapping.before)
        step.changes["swap"] += len(chosen)
    return len(chosen)


class _Wait(NamedTuple):
    """A value between two uses.

    Attributes:
      output: the value.
      begin: the place of its last early use.
      call: the place of the node after which it comes back.
      end: the place of its first late use.
      nbytes: its size.
    """

    output: Output
    begin: int
    call: int
    end: int
    nbytes: int


class _Swapping:
    """Finds what may wait, and edits the step."""

    def __init__(
        self,
        step: StepGraph,
        nodes: Sequence[Node],
        device_of: Callable[[Node], str],
        host: str,
        bytes_of: BytesOf,
        ahead: int,
    ) -> None:
        self._step = step
        self._nodes = nodes
        self._ahead = max(1, ahead)
        self._bytes_of = bytes_of
        self._place = {node: i for i, node in enumerate(nodes)}
        self._flow = Flow(nodes)
        devices = Assignment(nodes, self._flow, device_of, host)
        self._device = [devices.of(node) for node in nodes]
        self._values = Values(nodes, step.fetches, bytes_of)
        self._depth = self._depths()
        self.devices = list(dict.fromkeys(self._device))
        self.before: dict[Node, list[Node]] = {}

    def _depths(self) -> list[int]:
        """How many nodes run one after the other before each."""
        found: list[int] = []
        for i, node in enumerate(self._nodes):
            before = [found[j] for n in needs_of(node) if (j := self._place.get(n, i)) < i]
            found.append(1 + max(before, default=-1))
        return found

    def _is_plain(self, node: Node) -> bool:
        if node.type in ROUTING or node.type == "LoopCond":
            return False
        flow = self._flow
        return flow.frame[node] is flow.root and flow.guard(node) == ALWAYS

    # ------------------------------------------------------------------ choice

    def choose(self, device: str, limit: int) -> list[_Wait]:
        """What waits so that a device needs no more than a limit, as far as that can be had."""
        live = _MaxTree(self._live(device))
        if live.largest(0, len(self._nodes)) <= limit:
            return []
        waits = [w for i in range(len(self._nodes)) for w in self._waits_of(i, device)]
        waits.sort(key=lambda w: (-w.nbytes * (w.end - w.begin), w.begin))
        chosen: list[_Wait] = []
        for wait in waits:
            if live.largest(wait.begin + 1, wait.call + 1) > limit:
                live.add(wait.begin + 1, wait.call + 1, -wait.nbytes)
                chosen.append(wait)
        return chosen

    def _live(self, device: str) -> list[int]:
        """The bytes that live on a device while each node runs."""
        numbers = {name: i for i, name in enumerate(self.devices)}
        places = [numbers[name] for name in self._device]
        return self._values.on_devices(places).live(numbers[device])

    def _waits_of(self, i: int, device: str) -> list[_Wait]:
        """The longest wait of each value that a node makes on a device."""
        node = self._nodes[i]
        if self._device[i] != device or not self._is_plain(node):
            return []
        found = [self._longest_wait(i, output) for output in node.outputs]
        return [wait for wait in found if wait is not None]

    def _longest_wait(self, i: int, output: Output) -> _Wait | None:
        numbers, kept = self._values.numbers, self._values.kept
        nbytes = self._bytes_of(output)
        if nbytes <= _SMALL or not takes_memory(output) or numbers[output] in kept:
            return None
        users = sorted(self._uses(i, output))
        points = [i, *users]
        gaps = [(b - a, a, b) for a, b in zip(points, users, strict=False)]
        if not gaps:
            return None
        _, begin, end = max(gaps)
        late = [self._nodes[j] for j in users if j >= end]
        if not all([output in user.inputs and self._is_plain(user) for user in late]):
            return None  # what they use is a view that was made early, and holds the value
        call = self._call(begin, end, self._device[i])
        return None if call is None else _Wait(output, begin, call, end, nbytes)

    def _uses(self, i: int, output: Output) -> set[int]:
        """The places of nodes of its device that use a value or a view of it."""
        found: set[int] = set()
        stack = [output]
        while stack:
            here = stack.pop()
            for user in here.consumers():
                j = self._place.get(user)
                if j is None or self._device[j] != self._device[i]:
                    continue
                found.add(j)
                number = self._values.numbers[output]
                stack.extend([o for o in user.outputs if self._values.numbers[o] == number])
        return found

    def _call(self, begin: int, end: int, device: str) -> int | None:
        """The place of a node of a device some steps ahead of a use, and well after another."""
        last = end - self._ahead
        for i in range(last, max(begin, last - _FARTHEST), -1):
            node = self._nodes[i]
            if (
                self._device[i] == device
                and self._depth[i] > self._depth[begin]
                and node.inputs
                and self._is_plain(node)
            ):
                return i
        return None

    # ------------------------------------------------------------------ the edit

    def carry_out(self, wait: _Wait, host: str) -> None:
        """Let a value wait."""
        node = wait.output.node
        device = self._device[self._place[node]]
        uses = sorted(self._uses(self._place[node], wait.output))
        early = [self._nodes[j] for j in uses if j <= wait.begin]
        out = self._identity(wait.output, f"{node.name}/swapped_out", host, early)
        called = [self._nodes[wait.call]]
        held = self._identity(out, f"{node.name}/swap_in", host, called)
        back = self._identity(held, f"{node.name}/swapped_in", device, called)
        for j in uses:
            if j >= wait.end:
                user = self._nodes[j]
                for position, source in enumerate(user.inputs):
                    if source is wait.output:
                        self._step.graph.replace_input(user, position, back, reason="swap")
        self.before.setdefault(self._nodes[wait.begin + 1], []).append(out.node)
        self.before.setdefault(self._nodes[wait.call + 1], []).extend([held.node, back.node])

    def _identity(self, value: Output, name: str, device: str, controls: Sequence[Node]) -> Output:
        graph = self._step.graph
        like = value.node
        made = graph.add_node(
            lookup_op("Identity"),
            graph.unique_name(name),
            (value,),
            {"T": value.dtype},
            [value.dtype],
            [value.dims],
            like._code,
            like._line,
        )
        made.device = device
        graph.set_control_inputs(made, controls, reason="swap")
        return made.outputs[0]


class _MaxTree:
    """Numbers in a row: the largest of some, and additions to some, in logarithmic time."""

    def __init__(self, numbers: Sequence[int]) -> None:
        self._size = 1 << max(0, len(numbers) - 1).bit_length()
        self._most = [0] * (2 * self._size)
        self._more = [0] * (2 * self._size)
        self._most[self._size : self._size + len(numbers)] = numbers
        for i in range(self._size - 1, 0, -1):
            self._most[i] = max(self._most[2 * i], self._most[2 * i + 1])

    def add(self, begin: int, end: int, number: int) -> None:
        """Add a number to those at [begin, end)."""
        self._add(1, 0, self._size, begin, end, number)

    def _add(self, i: int, low: int, high: int, begin: int, end: int, number: int) -> None:
        if end <= low or high <= begin:
            return
        if begin <= low and high <= end:
            self._most[i] += number
            self._more[i] += number
            return
        middle = (low + high) // 2
        self._add(2 * i, low, middle, begin, end, number)
        self._add(2 * i + 1, middle, high, begin, end, number)
        self._most[i] = self._more[i] + max(self._most[2 * i], self._most[2 * i + 1])

    def largest(self, begin: int, end: int) -> int:
        """The largest number at [begin, end); 0 if all are less, or there is none."""
        return int(max(0, self._largest(1, 0, self._size, begin, end)))

    def _largest(self, i: int, low: int, high: int, begin: int, end: int) -> float:
        if end <= low or high <= begin:
            return -math.inf
        if begin <= low and high <= end:
            return self._most[i]
        middle = (low + high) // 2
        left = self._largest(2 * i, low, middle, begin, end)
        right = self._largest(2 * i + 1, middle, high, begin, end)
        return self._more[i] + max(left, right)
