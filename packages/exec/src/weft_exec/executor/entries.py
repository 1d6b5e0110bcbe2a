"""What the ready queue schedules: single heavy or asynchronous nodes, and groups of cheap ones.

Scheduling costs microseconds and most kernels take less, so connected cheap nodes between the same
heavy ones become one entry that runs in a fixed order.  Grouping never closes a cycle: a node's
level is the number of heavy nodes on the longest path to it, levels never fall along an edge, and
only cheap nodes of one level are put together.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from weft_exec.executor.linear import Gather, Instruction, Segment, Slots, slot_range
from weft_graph.node import Node

Work = tuple[Callable[..., Any], Gather, "int | slice", Sequence[int], Node]


class Item:
    """One node's work: reads of the variables it takes as values, then its kernel."""

    __slots__ = (
        "asynchronous",
        "device",
        "group",
        "heavy",
        "level",
        "needs",
        "node",
        "position",
        "work",
    )

    def __init__(
        self, node: Node, position: int, device: str, heavy: bool, asynchronous: bool
    ) -> None:
        self.node = node
        self.position = position
        self.device = device
        self.heavy = heavy
        self.asynchronous = asynchronous
        self.needs: set[Item] = set()
        self.work: list[Work] = []
        self.level = 0
        self.group = self

    @property
    def alone(self) -> bool:
        """Whether it is an entry of its own."""
        return self.heavy or self.asynchronous

    def add(
        self,
        function: Callable[..., Any],
        take: Gather,
        uses: Sequence[int],
        slot: int | slice,
        node: Node,
    ) -> None:
        """Append a call: its arguments, the slots they are in, the slot of its result."""
        self.work.append((function, take, slot, uses, node))

    def find(self) -> Item:
        """The representative of its group."""
        item = self
        while item.group is not item:
            item.group = item.group.group
            item = item.group
        return item


class Entry:
    """One unit of scheduling.

    Attributes:
      index: its place among the entries, in the order in which ready ones are preferred.
      segment: its instructions.
      node, device: its first node, the only one of a heavy or asynchronous entry, and where.
      kernel: for an asynchronous node, the function that starts it; its reads are in `segment`.
      take, slot: the asynchronous node's arguments and result.
      heavy: worth a thread of the pool.
      pending: number of entries it waits for.
      successors: entries that wait for it.
      shared: slots it uses that other entries make or use.
      cost: measured running time in seconds, smoothed; 0 until known.
    """

    __slots__ = (
        "cost",
        "device",
        "heavy",
        "index",
        "kernel",
        "node",
        "pending",
        "segment",
        "shared",
        "slot",
        "successors",
        "take",
    )

    def __init__(self, index: int, segment: Segment, first: Item | None = None) -> None:
        self.index = index
        self.segment = segment
        self.node = None if first is None else first.node
        self.device = "" if first is None else first.device
        self.heavy = first is not None and first.heavy
        self.kernel: Callable[..., Any] | None = None
        self.take: Gather | None = None
        self.slot: int | slice = 0
        self.pending = 0
        self.successors: list[int] = []
        self.shared: tuple[int, ...] = ()
        self.cost = 0.0

    def arguments(self, slots: Slots) -> Sequence[Any]:
        """The asynchronous node's inputs."""
        assert self.take is not None
        return self.take(slots)


def group(items: Sequence[Item], kept: frozenset[int]) -> tuple[tuple[Entry, ...], dict[int, int]]:
    """Entries for `items`, which are in an order that keeps dependencies.

    Args:
      kept: slots that are fetched and must not be forgotten.
    Returns: the entries, and for each slot that crosses entries the number of entries using it.
    """
    _assign_levels(items)
    members: dict[Item, list[Item]] = {}
    for item in items:
        members.setdefault(item.find(), []).append(item)
    users = _users(items)
    entries: list[Entry] = []
    index_of: dict[Item, int] = {}
    for leader, parts in members.items():
        index_of[leader] = len(entries)
        entries.append(_entry(len(entries), parts, users, kept))
    for leader, parts in members.items():
        entry = entries[index_of[leader]]
        needs = {index_of[n.find()] for part in parts for n in part.needs} - {entry.index}
        entry.pending = len(needs)
        for need in needs:
            entries[need].successors.append(entry.index)
    uses: dict[int, int] = {}
    for entry in entries:
        for slot in entry.shared:
            uses[slot] = uses.get(slot, 0) + 1
    return tuple(entries), uses


def _assign_levels(items: Sequence[Item]) -> None:
    for item in items:
        item.level = max((n.level + n.alone for n in item.needs), default=0)
        if item.alone:
            continue
        for need in item.needs:
            if not need.alone and need.level == item.level:
                mine, other = item.find(), need.find()
                if mine is not other:
                    late, early = sorted((mine, other), key=lambda i: -i.position)
                    late.group = early


def _users(items: Sequence[Item]) -> dict[int, set[Item]]:
    """The groups that make or use each slot that some item makes."""
    users: dict[int, set[Item]] = {}
    for item in items:
        leader = item.find()
        for _, _, slot, _, _ in item.work:
            for made in slot_range(slot):
                users.setdefault(made, set()).add(leader)
    for item in items:
        leader = item.find()
        for *_, uses, _ in item.work:
            for used in uses:
                if used in users:
                    users[used].add(leader)
    return users


def _entry(
    index: int, parts: Sequence[Item], users: dict[int, set[Item]], kept: frozenset[int]
) -> Entry:
    work = [(entry, part.device) for part in parts for entry in part.work]
    shared: set[int] = set()
    last: dict[int, int] = {}
    for i, ((_, _, slot, uses, _), _) in enumerate(work):
        for touched in (*uses, *slot_range(slot)):
            if not touched or touched in kept or touched not in users:
                continue
            if len(users[touched]) > 1:
                shared.add(touched)
            else:
                last[touched] = i
    dead: dict[int, tuple[int, ...]] = {}
    for touched, i in last.items():
        dead[i] = (*dead.get(i, ()), touched)
    instructions: list[Instruction] = [
        (function, take, slot, dead.get(i, ()))
        for i, ((function, take, slot, _, _), _) in enumerate(work)
    ]
    lone = parts[0]
    count = len(work) - lone.asynchronous
    nodes = [w[4] for w, _ in work[:count]]
    segment = Segment(instructions[:count], nodes, [device for _, device in work[:count]])
    entry = Entry(index, segment, lone)
    entry.shared = tuple(sorted(shared))
    if lone.asynchronous:
        entry.kernel, entry.take, entry.slot, _ = instructions[-1]
    return entry
