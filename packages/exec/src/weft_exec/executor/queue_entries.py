"""Entries of the ready queue: heavy, asynchronous and routing nodes, and groups of the rest.

Scheduling an entry costs microseconds, more than most kernels. Therefore connected cheap nodes
share an entry, which runs them in a fixed order. They must have in common:

- the heavy nodes before and after them;
- the frame, and the guard under which they run in it;
- the preceding nodes that may block, such as queue operations, because an input of an enqueue must
not wait for a dequeue.

Grouping never closes a cycle. Each item has a level, and levels never decrease along edges. They
increase along an edge if its source has a separate entry, or if the frame or the guard changes.
Only cheap
items of one level share an entry.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Any

from weft_exec.executor.linear import Gather, Instruction, Segment, Slots, slot_range
from weft_graph.ir.node import Node
from weft_graph.ops.step import DEPTH
from weft_graph.passes.flow import ALWAYS, Frame, Guard
from weft_tensor import errors

if TYPE_CHECKING:
    from weft_exec.resources.resources import CompletionCallback

Work = tuple[Callable[..., Any], Gather, "int | slice", Sequence[int], Sequence[int], Node]
"""A function, its argument getter, its result slot, the slots that it reads and writes, and the
node.
"""

Need = tuple["Item", int]
"""An item and the side of a Switch that is needed; WHOLE or ORDER if the item is not a Switch."""

WHOLE, ORDER = -1, -2
"""Kinds of dependencies on an item: on its value, or only on its end, even if it is dead."""

WORK, TRIGGER, SWITCH, MERGE, ENTER, EXIT, NEXT, SEND, RECEIVE = range(9)
"""Kinds of entries: computing, computing even with dead inputs, routing values, and transfers."""


class Item:
    """The work of one node: reads of the variables that it uses as values, then its kernel.

    Attributes:
      kind: WORK, or how the node routes values.
      frame, guard: its frame, and the condition under which it runs.
      needs: the items that it waits for, with the part needed.
      choices: for a Merge, its inputs' sources.
      after: for an Exit, all inputs of its frame, because it may depend on them through back edges.
      source, slot: for a routed value, its source slot and its destination slot.
      owner: the item that contains this one, or None.
      level: a number that never decreases along edges; see the module docstring.
      blocking_bits: a bit set of potentially blocking items, among its predecessors and itself.
    """

    __slots__ = (
        "after",
        "asynchronous",
        "blocking_bits",
        "choices",
        "device",
        "frame",
        "group",
        "guard",
        "heavy",
        "kind",
        "level",
        "needs",
        "node",
        "owner",
        "position",
        "pred",
        "slot",
        "source",
        "work",
    )

    def __init__(
        self,
        node: Node,
        position: int,
        device: str,
        heavy: bool,
        asynchronous: bool,
        frame: Frame | None = None,
        guard: Guard = ALWAYS,
        kind: int = WORK,
    ) -> None:
        self.node = node
        self.position = position
        self.device = device
        self.heavy = heavy
        self.asynchronous = asynchronous
        self.frame = frame
        self.guard = guard
        self.kind = kind
        self.needs: set[Need] = set()
        self.choices: list[tuple[Need, int]] = []
        self.after: Collection[Item] = ()
        self.work: list[Work] = []
        self.source = self.slot = self.pred = 0
        self.owner: Item | None = None
        self.level = 0
        self.blocking_bits = 0
        self.group = self

    @property
    def is_separate(self) -> bool:
        """True if the item has a separate entry."""
        return self.heavy or self.asynchronous or self.kind != WORK

    @property
    def sources(self) -> set[Item]:
        """The items that it may wait for, including those of a Merge's inputs."""
        result = {item for item, _ in self.needs} | {item for (item, _), _ in self.choices}
        result.update(self.after)
        return result

    def add(
        self,
        function: Callable[..., Any],
        take: Gather,
        uses: Sequence[int],
        slot: int | slice,
        node: Node,
    ) -> None:
        """Append a call: its function, argument getter, argument slots, result slot and node."""
        self.work.append((function, take, slot, uses, slot_range(slot), node))

    def find(self) -> Item:
        """Return the item that represents its group (union-find)."""
        item = self
        while item.group is not item:
            # Path halving (Tarjan and van Leeuwen, 1984).
            item.group = item.group.group
            item = item.group
        return item


class Edges:
    """The entries that wait for an entry, or for one side of a Switch.

    Attributes:
      successors: entries that wait for it, and are dead if it is.
      followers: entries that run after it, whether it is dead or not.
      choices: Merges, each with the position of this input.
    """

    __slots__ = ("choices", "followers", "successors")

    def __init__(self) -> None:
        self.followers: list[Entry] = []
        self.successors: list[Entry] = []
        self.choices: list[tuple[Entry, int]] = []


class Entry:
    """One unit of scheduling.

    Attributes:
      index: its position among the entries, which is also the priority of ready ones.
      kind: WORK, or how it routes values.
      frame: the frame that counts its pending inputs; for an Enter, the frame around the loop.
      local: its index among the entries of its frame.
      segment: its instructions.
      node, device: its first node, the only one of a heavy or asynchronous entry, and its device.
      kernel: for an asynchronous node, the function that starts it; `segment` has the reads of its
        inputs.
      key: for a Send or Receive, the rendezvous key; "" until it is first needed.
      move: for a Receive from another memory space, the function that copies the value.
      take, slot: the asynchronous node's argument getter and result; for a routed value, `slot` is
        its destination and `source` its source.
      pred: for a Switch, the slot of the predicate.
      sources, ahead, back: for a Merge, the slots of its inputs, the number of inputs from the same
        iteration, and the number of those from the previous one.
      heavy: True if it is worth a thread of the pool.
      part: the partition of the step that it belongs to.
      pending: the number of entries or routed values that it waits for.
      edges, sides: the entries that wait for it, and for a Switch those that wait for each side.
      shared: the slots that it uses together with other entries.
      cost: measured running time in seconds, smoothed; 0 until known.
    """

    __slots__ = (
        "ahead",
        "back",
        "cost",
        "device",
        "edges",
        "frame",
        "heavy",
        "index",
        "kernel",
        "key",
        "kind",
        "local",
        "move",
        "node",
        "part",
        "pending",
        "pred",
        "segment",
        "shared",
        "sides",
        "slot",
        "source",
        "sources",
        "take",
    )

    def __init__(self, index: int, segment: Segment, first: Item | None = None) -> None:
        self.index = index
        self.segment = segment
        self.node = None if first is None else first.node
        self.device = "" if first is None else first.device
        self.heavy = first is not None and first.heavy
        self.kind = WORK if first is None else first.kind
        self.frame = None if first is None else first.frame
        self.local = index
        self.kernel: Callable[..., Any] | None = None
        self.key = ""
        self.move: Callable[[Any, CompletionCallback], None] | None = None
        self.take: Gather | None = None
        self.slot: int | slice = 0 if first is None else first.slot
        self.source = 0 if first is None else first.source
        self.pred = 0 if first is None else first.pred
        self.sources: tuple[int, ...] = ()
        self.ahead = self.back = 0
        self.part = 0
        self.pending = 0
        self.edges = Edges()
        self.sides = (Edges(), Edges()) if self.kind == SWITCH else ()
        self.shared: tuple[int, ...] = ()
        self.cost = 0.0

    def arguments(self, slots: Slots) -> Sequence[Any]:
        """Return the inputs of the asynchronous node."""
        assert self.take is not None
        return self.take(slots)


def group(
    items: Sequence[Item], kept_slots: Collection[int], merges_segments: bool = False
) -> tuple[tuple[Entry, ...], dict[Frame | None, dict[int, int]]]:
    """Group items into entries.

    Args:
      items: in topological order, without the back edges of loops.
      kept_slots: the slots that are fetched, which must not be cleared.
      merges_segments: True if items that wait for values available at the start of the step may
        wait for all such values.
    Returns: the entries, and for each frame the number of users of each slot that entries share.
    """
    _assign_levels(items, merges_segments)
    members: dict[Item, list[Item]] = {}
    for item in items:
        members.setdefault(item.find(), []).append(item)
    users = _users(items)
    entries: list[Entry] = []
    entry_of: dict[Item, Entry] = {}
    for leader, parts in members.items():
        entry = entry_of[leader] = _entry(len(entries), parts, users, kept_slots)
        entries.append(entry)
    for leader, parts in members.items():
        _connect(entry_of[leader], parts, entry_of)
    uses: dict[Frame | None, dict[int, int]] = {}
    for entry in entries:
        counts = uses.setdefault(entry.frame, {})
        for slot in entry.shared:
            counts[slot] = counts.get(slot, 0) + 1
    return tuple(entries), uses


def sort_items(items: Sequence[Item]) -> list[Item]:
    """Sort items topologically; independent ones keep their order."""
    users: dict[Item, list[Item]] = {item: [] for item in items}
    pending: dict[Item, int] = {}
    for item in items:
        needs = {source for source in item.sources if source.kind != NEXT}
        pending[item] = len(needs)
        for need in needs:
            users[need].append(item)
    ready = [(item.position, i, item) for i, item in enumerate(items) if not pending[item]]
    heapq.heapify(ready)
    result: list[Item] = []
    while ready:
        _, _, item = heapq.heappop(ready)
        result.append(item)
        for user in users[item]:
            pending[user] -= 1
            if not pending[user]:
                heapq.heappush(ready, (user.position, -len(result), user))
    if len(result) < len(items):
        stuck = sorted({item.node.name for item in items} - {item.node.name for item in result})
        raise errors.InvalidArgumentError(
            "these nodes form a cycle, for example because two loops share a frame name:  "
            + ", ".join(stuck[:10])
        )
    return result


def _connect(entry: Entry, parts: Sequence[Item], entry_of: dict[Item, Entry]) -> None:
    """Add an entry to the edges of all items that it needs, and count these."""
    needs = {(entry_of[need.find()], port) for part in parts for need, port in part.needs}
    needs -= {(entry, WHOLE), (entry, ORDER)}
    entry.pending = len(needs)
    for need, port in sorted(needs, key=lambda need: (need[0].index, need[1])):
        edges = need.sides[port] if port >= 0 else need.edges
        (edges.followers if port == ORDER else edges.successors).append(entry)
    choices = parts[0].choices
    if parts[0].kind != MERGE:
        return
    # A Merge waits for a single event of all its inputs: the first live one, or the last dead one.
    entry.pending += 1
    entry.sources = tuple([slot for _, slot in choices])
    for k, ((selected, port), _) in enumerate(choices):
        source = entry_of[selected.find()]
        edges = source.sides[port] if port >= 0 else source.edges
        edges.choices.append((entry, k))
        if source.kind == NEXT:
            entry.back += 1
        else:
            entry.ahead += 1


def _assign_levels(items: Sequence[Item], merges_segments: bool) -> None:
    """Set `level` and `blocking_bits` of each item, and unite the items that share an entry."""
    step = len(items) + 1  # exceeds the number of levels between transfers
    at_once = {item for item in items if merges_segments and _is_sent_at_start(item)}
    minimum = step + 1 if at_once else 0
    bit = 1
    for item in items:
        sources = [source for source in item.sources if source.kind != NEXT]
        item.blocking_bits = _union([source.blocking_bits for source in sources])
        waits = item.kind == RECEIVE or (item.asynchronous and item.node.traits.asynchronous)
        if waits and item not in at_once:
            item.blocking_bits |= bit
            bit <<= 1
        item.level = max(
            [source.level + _needs_new_entry(source, item) for source in sources], default=0
        )
        # The edge from a Send to its Receive is not part of these items. The number of transfers on
        # the way replaces it.
        if item.kind in (RECEIVE, EXIT):
            item.level = max(item.level, item.node.attrs.get(DEPTH, 0) * step)
        if item.is_separate:
            continue
        item.level = max(item.level, minimum)
        for source in sources:
            # Equal levels keep the merged graph acyclic. Equal sets of blocking predecessors keep
            # an item from waiting for an event that it does not depend on.
            if source.level == item.level and source.blocking_bits == item.blocking_bits:
                item_root, source_root = item.find(), source.find()
                if item_root is not source_root:
                    later, earlier = sorted((item_root, source_root), key=lambda i: -i.position)
                    later.group = earlier


def _is_sent_at_start(item: Item) -> bool:
    """Return True if the item receives a value that is sent at the beginning of the step."""
    return item.kind == RECEIVE and item.node.attrs.get(DEPTH, 0) <= 1 and not item.sources


def _union(sets: Sequence[int]) -> int:
    """Return the union of bit sets.

    Sets may be long, so if the largest one contains all others it is returned without a copy.
    """
    result = max(sets, default=0)
    for set_bits in sets:
        if set_bits & ~result:
            result |= set_bits
    return result


def _needs_new_entry(source: Item, item: Item) -> bool:
    """Return True if two items need different entries even if both are cheap."""
    return source.is_separate or source.frame is not item.frame or source.guard != item.guard


Slot = tuple["Frame | None", int]


def _users(items: Sequence[Item]) -> dict[Slot, set[Item]]:
    """Return the groups that use each slot, for slots that some item writes."""
    users: dict[Slot, set[Item]] = {}
    for item in items:
        leader = item.find()
        for *_, result, _ in item.work:
            for slot in result:
                users.setdefault((item.frame, slot), set()).add(leader)
        if item.kind == MERGE and item.slot:
            users.setdefault((item.frame, item.slot), set()).add(leader)
    for item in items:
        leader = item.find()
        for used in _read_slots(item):
            user = users.get((item.frame, used))
            if user is not None:
                user.add(leader)
    return users


def touched_slots(item: Item) -> list[int]:
    """Return the slots that an item reads or writes, in its own frame."""
    result = [slot for *_, slots, _ in item.work for slot in slots]
    return (
        [*_read_slots(item), *result, item.slot]
        if item.kind == MERGE
        else [*_read_slots(item), *result]
    )


def _read_slots(item: Item) -> list[int]:
    """Return the slots that an item reads, in its own frame."""
    used = [slot for _, _, _, uses, _, _ in item.work for slot in uses]
    used += [slot for (need, _), slot in item.choices if need.kind not in (ENTER, NEXT)]
    return [*used, item.source, item.pred]


def _entry(
    index: int, parts: Sequence[Item], users: dict[Slot, set[Item]], kept_slots: Collection[int]
) -> Entry:
    frame = parts[0].frame
    root = frame is None or frame.parent is None
    work = [(entry, part.device) for part in parts for entry in part.work]
    shared: set[int] = set()
    last: dict[int, int] = {}

    def touch(slot: int, position: int) -> None:
        user = users.get((frame, slot))
        if not slot or user is None or (root and slot in kept_slots):
            return
        # Entries end in any order, so users of a shared slot are counted at run time. Other slots
        # are cleared by their last instruction.
        if len(user) > 1:
            shared.add(slot)
        elif position >= 0:
            last[slot] = position

    for i, ((_, _, _, uses, result, _), _) in enumerate(work):
        for slot in (*uses, *result):
            touch(slot, i)
    lone = parts[0]
    if lone.kind not in (WORK, TRIGGER, SEND, RECEIVE):
        for slot in _read_slots(lone):
            touch(slot, -1)
    if lone.kind == MERGE:
        touch(lone.slot, -1)
    dead: dict[int, tuple[int, ...]] = {}
    for slot, i in last.items():
        dead[i] = (*dead.get(i, ()), slot)
    instructions: list[Instruction] = [
        (function, take, target, dead.get(i, ()))
        for i, ((function, take, target, *_), _) in enumerate(work)
    ]
    count = len(work) - lone.asynchronous
    nodes = [w[5] for w, _ in work[:count]]
    segment = Segment(instructions[:count], nodes, [device for _, device in work[:count]])
    entry = Entry(index, segment, lone)
    entry.shared = tuple(sorted(shared))
    if lone.asynchronous:
        entry.kernel, entry.take, entry.slot, _ = instructions[-1]
    return entry
