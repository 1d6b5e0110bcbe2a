"""Analysis for rematerialization: uses by gradients, copyable nodes, and costs of plans."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from weft_graph.ir.node import Node, Output
from weft_graph.ir.step_graph import RunOrder, StepGraph
from weft_graph.ir.traits import Role
from weft_graph.passes.flow import ALWAYS, Flow, dependencies_of, has_control_flow
from weft_graph.passes.memory import BytesOf, MemoryLimits, Values, on_devices, peaks, sizes_of

HINT = "_recompute_hint"
"""Attribute of nodes that the program requests to be recomputed."""

_SMALL = 4096
"""Values up to this many bytes are never recomputed to save memory."""

_MAX_DISTANCE = 256
"""Largest number of nodes between the trigger of a group and its first gradient node."""


class Group(NamedTuple):
    """Nodes that are recomputed together.

    Attributes:
      members: indices of nodes, inputs first.
      start: the index of the first gradient node that needs them.
      trigger: the index of the node that they wait for.
    """

    members: tuple[int, ...]
    start: int
    trigger: int


class Plan(NamedTuple):
    """A plan: groups of nodes to recompute, and its costs.

    Attributes:
      excess: the largest excess over a device's limit at the peak, in bytes.
      work: cost in multiplications.
    """

    groups: list[Group]
    excess: int
    work: int


class Analysis:
    """The nodes of a step in execution order, with facts by index.

    Attributes:
      nodes: the nodes in execution order.
      place: the index of each node.
      backward: True for each node that computes gradients or depends on gradients.
      latest: for each node, the largest index of a forward node that it depends on, or its own
        index.
      movable: True for each node that may be copied, because its device exceeds the limit or it
        has a hint.
      saved: for each node, the bytes that are freed if gradients do not use its values.
      readers: for each node, the indices of the nodes that read its outputs.
      values: the numbered values.
    """

    def __init__(
        self,
        step: StepGraph,
        scope: str,
        bytes_of: BytesOf,
        memory: MemoryLimits,
        run_order: RunOrder,
    ) -> None:
        self.nodes = list(run_order(step.live_nodes()))
        self._find_devices(memory)
        self.fetches = step.fetches
        self.position = {node: i for i, node in enumerate(self.nodes)}
        self.values = Values(self.nodes, self.fetches, bytes_of)
        self.backward: list[bool] = []
        self.latest: list[int] = []
        self._find_backward(scope)
        self.has_gradients = any(self.backward)
        self.flow = Flow(self.nodes) if has_control_flow(self.nodes) else None
        peaks = self._peaks(())
        self._tight = {
            self._numbers[name]
            for name, peak in peaks.items()
            if peak > memory.limits.get(name, peak)
        }
        targets = set(step.targets)
        self.movable = [node not in targets and self._is_movable(node) for node in self.nodes]
        self.readers: list[list[int]] = [[] for _ in self.nodes]
        for i, node in enumerate(self.nodes):
            for source in dict.fromkeys([s.node for s in node.inputs]):
                self.readers[self.position[source]].append(i)
        self.last_forward, self.used_backward = self._uses_of_values()
        self.saved = self._savings()

    def _find_devices(self, memory: MemoryLimits) -> None:
        """Find the devices of nodes, and the facts about devices."""
        device_of = memory.device_of
        names = ["" if device_of is None else device_of(node) for node in self.nodes]
        self._numbers = {name: i for i, name in enumerate(dict.fromkeys(names))}
        self._spaces = [memory.spaces.get(name, name) for name in self._numbers]
        self._device_numbers = [self._numbers[name] for name in names]
        self._memory = memory

    def _find_backward(self, scope: str) -> None:
        for i, node in enumerate(self.nodes):
            needs = [j for need in dependencies_of(node) if (j := self.position[need]) < i]
            is_backward = node.forward is not None or _is_in(node.name, scope)
            is_backward = is_backward or any([self.backward[j] for j in needs])
            self.backward.append(is_backward)
            latest_input = max([self.latest[j] for j in needs], default=-1)
            self.latest.append(latest_input if is_backward or _is_given(node) else i)

    def _is_movable(self, node: Node) -> bool:
        position = self.position[node]
        if self._device_numbers[position] not in self._tight and not is_hinted(node):
            return False
        if self.backward[position] or _is_given(node) or node.traits.routes:
            return False
        if node.op_def.stateful or not node.outputs or not self.is_plain(node):
            return False
        if any([o.dtype.is_ref for o in (*node.inputs, *node.outputs)]):
            return False
        numbers, kept_values = self.values.numbers, self.values.kept
        return not any([numbers[output] in kept_values for output in node.outputs])

    def is_plain(self, node: Node) -> bool:
        """Return True if a node runs exactly once per step, outside branches and loops."""
        flow = self.flow
        if flow is None:
            return True
        return (
            not node.traits.routes
            and node.role is not Role.LOOP_COND
            and flow.frame[node] is flow.root
            and flow.guard(node) == ALWAYS
        )

    def _uses_of_values(self) -> tuple[list[int], list[bool]]:
        """Return, for each value, its last use by a forward node, and True if gradients use it."""
        last = [-1] * len(self.values.sizes)
        used_backward = [False] * len(self.values.sizes)
        for i, reads in enumerate(self.values.reads):
            for value in reads:
                if self.backward[i]:
                    used_backward[value] = True
                else:
                    last[value] = i
        return last, used_backward

    def _savings(self) -> list[int]:
        sizes, used_backward = self.values.sizes, self.used_backward
        interval = [
            sum([sizes[v] for v in created if used_backward[v]]) if movable else 0
            for created, movable in zip(self.values.makes, self.movable, strict=True)
        ]
        minimum = min(_SMALL, sum(interval) // 256)
        return [size if size > minimum else 0 for size in interval]

    # ------------------------------------------------------------------ groups and plans

    def group(self, allowed: Sequence[int], first: Iterable[int] | None = None) -> Group | None:
        """Return the group of allowed nodes that gradients need again, or None if it saves nothing.

        Args:
          allowed: indices of nodes, in order.
          first: the allowed nodes whose copies gradients read; by default all that save memory.
        """
        start = len(self.nodes)
        while True:
            allowed_set = set(allowed)
            roots = [i for i in (allowed if first is None else first) if i in allowed_set]
            roots = [i for i in roots if first is not None or self.saved[i]]
            members = sorted(self._reachable(roots, allowed_set))
            users = [j for i in members for j in self.readers[i] if self.backward[j]]
            if not users:
                return None
            start = min(users)
            if members[-1] < start:
                break
            allowed = [i for i in allowed if i < start]
        trigger = self._trigger(start, members[-1])
        return None if trigger is None else Group(tuple(members), start, trigger)

    def _reachable(self, roots: Iterable[int], allowed: set[int]) -> set[int]:
        members: set[int] = set()
        stack = list(roots)
        while stack:
            i = stack.pop()
            if i in members:
                continue
            members.add(i)
            for source in self.nodes[i].inputs:
                j = self.position[source.node]
                if j in allowed and j not in members:
                    stack.append(j)
        return members

    def _trigger(self, start: int, last: int) -> int | None:
        """Return a backward node before `start` that can trigger the recomputation, or None."""
        candidates: list[int] = [self.position[need] for need in dependencies_of(self.nodes[start])]
        candidates.sort(reverse=True)
        candidates.extend(range(start - 1, max(last, start - _MAX_DISTANCE), -1))
        for i in candidates:
            node = self.nodes[i]
            if self.backward[i] and self.latest[i] > last and self.is_plain(node):
                return i
        return None

    def plan(self, groups: Sequence[Group]) -> Plan:
        """Return the plan of recomputing groups."""
        work = sum([work_of(self.nodes[i]) for group in groups for i in group.members])
        return Plan(list(groups), self._excess(groups), work)

    def _excess(self, groups: Sequence[Group]) -> int:
        return self._memory.excess(self._peaks(groups))

    def _peaks(self, groups: Sequence[Group]) -> dict[str, int]:
        """Return the peak bytes by device."""
        numbers, num_values = self.values.numbers, len(self.values.sizes)
        group_of = {i: group for group in groups for i in group.members}
        starts: dict[int, list[Group]] = {}
        for group in groups:
            starts.setdefault(group.start, []).append(group)
        reads: list[Sequence[int]] = []
        produced: list[Sequence[int]] = []
        positions: list[int] = []

        def number(source: Output, group: Group | None) -> int:
            group_found = group_of.get(self.position[source.node])
            new = group_found is not None and (group is None or group_found is group)
            return numbers[source] + num_values if new else numbers[source]

        for i, node in enumerate(self.nodes):
            for group in starts.get(i, ()):
                for j in group.members:
                    reads.append([number(s, group) for s in self.nodes[j].inputs])
                    produced.append([value + num_values for value in self.values.makes[j]])
                    positions.append(self._device_numbers[j])
            if self.backward[i]:
                reads.append([number(source, None) for source in node.inputs])
            else:
                reads.append(self.values.reads[i])
            produced.append(self.values.makes[i])
            positions.append(self._device_numbers[i])
        sizes, moved_bytes = self.values.sizes * 2, self.values.moved * 2
        limits = on_devices(reads, produced, sizes, moved_bytes, positions, self._spaces)
        limit = peaks(*limits[:3], self.values.kept, limits[3])
        return {name: peak for name, (peak, _) in zip(self._numbers, limit, strict=False)}


def is_hinted(node: Node) -> bool:
    """Return True if the program requests recomputing a node."""
    return bool(node.attrs.get(HINT))


def _is_in(name: str, scope: str) -> bool:
    return bool(scope) and (name.startswith(scope) or f"/{scope}" in name)


def _is_given(node: Node) -> bool:
    """Return True if the value of a node exists independently of the step."""
    return node.role in (Role.CONSTANT, Role.ARGUMENT, Role.PLACEHOLDER)


def work_of(node: Node) -> int:
    """Estimate the work of a node in multiply-adds; unknown sizes count as 1.

    The least work is one pass over the node's values.
    """
    sizes = sizes_of(node)
    num_elements = sum(map(math.prod, sizes.outputs))
    return max(num_elements, sizes.elements_in, round(node.traits.cost_rule(sizes).flops / 2))
