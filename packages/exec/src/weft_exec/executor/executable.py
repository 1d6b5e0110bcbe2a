"""Deriving an executable: kernels, slots, instructions and entries, once per signature."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from sys import getrefcount
from typing import Any, Protocol

import numpy as np

from weft_exec.device import Device
from weft_exec.executor.entries import Entry, Item, group
from weft_exec.executor.linear import Instruction, Segment, Slots, gather
from weft_exec.kernel_errors import located
from weft_exec.kernels.registry import Kernel
from weft_graph.node import Node, Output
from weft_graph.passes.step_graph import StepGraph
from weft_tensor import errors

Placement = Callable[[Node], tuple[Device, Kernel]]


class Executable:
    """What runs one signature.

    Attributes:
      template: the slots before a step: constants and variables in place, None elsewhere.
      feed_slots: where fed values go; None for values that nothing uses.
      fetches: how to take each result.
      linear: all instructions in one fixed order, when nothing can overlap; else None.
      entries: what the ready queue schedules, when `linear` is None.
      shared_uses: for slots that several entries use, how many.
    """

    __slots__ = ("entries", "feed_slots", "fetches", "linear", "shared_uses", "template")

    def __init__(
        self,
        template: Slots,
        feed_slots: Sequence[int],
        fetches: Sequence[Fetch],
        items: Sequence[Item],
        parallel: bool,
    ) -> None:
        self.template = template
        self.feed_slots = tuple(feed_slots)
        self.fetches = tuple(fetches)
        kept = frozenset(fetch.slot for fetch in fetches)
        self.linear: Segment | None = None
        self.entries: tuple[Entry, ...] = ()
        self.shared_uses: dict[int, int] = {}
        overlap = any(item.asynchronous for item in items) or (
            parallel and sum(item.heavy for item in items) > 1
        )
        if overlap:
            self.entries, self.shared_uses = group(items, kept)
        else:
            self.linear = _in_order(items, kept)

    def results(self, slots: Slots) -> list[Any]:
        """The fetched values, which belong to the caller from now on."""
        return [fetch.take(slots) for fetch in self.fetches]


class Fetch:
    """How to take one result out of the slots so that the caller owns it."""

    __slots__ = ("is_ref", "node", "shared", "slot")

    def __init__(self, slot: int, shared: bool, output: Output) -> None:
        self.slot = slot
        self.shared = shared
        self.is_ref = output.dtype.is_ref
        self.node = output.node

    def take(self, slots: Slots) -> Any:
        """The value; copied where anybody else could hold its memory."""
        value = slots[self.slot]
        if self.is_ref:
            try:
                value = value.read()
            except errors.OpError as error:
                raise located(error, self.node, "", ()) from None
        if type(value) is not np.ndarray:
            return value.get() if hasattr(value, "__cuda_array_interface__") else value
        if value.ndim == 0:
            return value[()]
        # The slot, this frame and getrefcount's argument hold an array that nobody else does.
        if self.shared or self.is_ref or type(value.base) is np.ndarray or getrefcount(value) > 3:
            return value.copy()
        return value


class _Deriver:
    """The state of one derivation."""

    def __init__(self, step: StepGraph, place: Placement) -> None:
        self.step = step
        self.place = place
        self.template: Slots = [None]
        self.slots: dict[Output, int] = {}
        self.shared: set[Output] = set()
        self.items: dict[Node, Item] = {}

    def slot(self, value: Any = None) -> int:
        self.template.append(value)
        return len(self.template) - 1

    def derive(self, parallel: bool) -> Executable:
        for arg in self.step.feeds:
            self.slots[arg] = self.slot()
            self.shared.add(arg)
        nodes = by_priority(self.step.live_nodes())
        for position, node in enumerate(nodes):
            if node.type != "_Arg":
                self._add(node, position)
        fetches = [Fetch(self.slots[out], out in self.shared, out) for out in self.step.fetches]
        feed_slots = [self.slots[arg] for arg in self.step.feeds]
        return Executable(self.template, feed_slots, fetches, list(self.items.values()), parallel)

    def _add(self, node: Node, position: int) -> None:
        if node.type == "Const":
            out = node.outputs[0]
            self.slots[out] = self.slot(_value(node))
            self.shared.add(out)
            return
        device, kernel = self.place(node)
        try:
            function = kernel.make(node, device)
        except Exception as error:  # because a factory may raise anything; it is located
            found = located(error, node, device.name, ())
            raise found from found.__cause__
        if node.outputs and node.outputs[0].dtype.is_ref and not node.inputs:
            self.slots[node.outputs[0]] = self.slot(function())
            return
        item = Item(node, position, device.name, kernel.heavy, kernel.asynchronous)
        self.items[node] = item
        arguments = [self._argument(node, i, item) for i in range(len(node.inputs))]
        first = len(self.template)
        for out in node.outputs:
            self.slots[out] = self.slot()
            if kernel.alias:
                self.shared.add(out)
        target = first if len(node.outputs) == 1 else slice(first, len(self.template))
        if not node.outputs:
            target = 0
        if len(node.outputs) > 1 and not kernel.asynchronous:
            function = _several(function, len(node.outputs))
        item.add(function, gather(arguments), arguments, target)
        for before in node.control_inputs:
            if before in self.items:
                item.needs.add(self.items[before])

    def _argument(self, node: Node, position: int, item: Item) -> int:
        source = node.inputs[position]
        producer = self.items.get(source.node)
        if producer is not None:
            item.needs.add(producer)
        slot = self.slots[source]
        if not source.dtype.is_ref or _takes_reference(node, position):
            return slot
        state = self.template[slot]
        read = self.slot()
        if state is not None:
            item.add_read(state.read, gather(()), [], read, source.node)
        else:
            item.add_read(_read, gather((slot,)), [slot], read, source.node)
        return read


class _Readable(Protocol):
    def read(self) -> Any: ...


def _read(state: _Readable) -> Any:
    return state.read()


def _takes_reference(node: Node, position: int) -> bool:
    args = node.op_def.inputs
    if len(args) == len(node.inputs):
        return args[position].is_ref
    return False


def _value(node: Node) -> Any:
    value = node.attrs["value"]
    return value[()] if value.ndim == 0 and not value.dtype.hasobject else value


def _several(function: Callable[..., Any], count: int) -> Callable[..., Any]:
    def checked(*inputs: Any) -> Any:
        values = function(*inputs)
        if type(values) not in (tuple, list) or len(values) != count:
            raise errors.InternalError(f"the kernel must return {count} values, got {values!r}")
        return values

    return checked


def _in_order(items: Sequence[Item], kept: frozenset[int]) -> Segment:
    instructions: list[Instruction] = []
    last: dict[int, int] = {}
    for item in items:
        for function, take, slot, uses, _ in item.work:
            for used in uses:
                last[used] = len(instructions)
            for made in _range(slot):
                last[made] = len(instructions)
            instructions.append((function, take, slot, ()))
    dead: dict[int, list[int]] = {}
    for slot_index, position in last.items():
        if slot_index not in kept and slot_index:
            dead.setdefault(position, []).append(slot_index)
    made_here = {made for item in items for work in item.work for made in _range(work[2])}
    finished = [
        (function, take, slot, tuple(s for s in dead.get(i, ()) if s in made_here))
        for i, (function, take, slot, _) in enumerate(instructions)
    ]
    nodes = [node for item in items for *_, node in item.work]
    devices = [item.device for item in items for _ in item.work]
    return Segment(finished, nodes, devices)


def _range(slot: int | slice) -> range:
    return range(slot.start, slot.stop) if isinstance(slot, slice) else range(slot, slot + 1)


def by_priority(nodes: Sequence[Node]) -> list[Node]:
    """`nodes` in an order that keeps dependencies and lets updates of state wait for the rest.

    Among equals the order of construction decides.  With updates last, a read that nothing orders
    against an update sees the value before the step.
    """
    if not any(_updates(node) for node in nodes):
        return list(nodes)
    inside = set(nodes)
    users: dict[Node, list[Node]] = {node: [] for node in nodes}
    pending: dict[Node, int] = {}
    position = {node: i for i, node in enumerate(nodes)}
    for node in nodes:
        needs = {s.node for s in node.inputs} | set(node.control_inputs)
        needs &= inside
        pending[node] = len(needs)
        for need in needs:
            users[need].append(node)
    ready = [(_updates(node), position[node]) for node in nodes if not pending[node]]
    heapq.heapify(ready)
    result: list[Node] = []
    while ready:
        node = nodes[heapq.heappop(ready)[1]]
        result.append(node)
        for user in users[node]:
            pending[user] -= 1
            if not pending[user]:
                heapq.heappush(ready, (_updates(user), position[user]))
    return result


def _updates(node: Node) -> bool:
    if not node.inputs or not node.op_def.stateful:
        return any(arg.is_ref for arg in node.op_def.inputs) if node.inputs else False
    return not node.outputs or any(arg.is_ref for arg in node.op_def.inputs)


def derive(step: StepGraph, place: Placement, parallel: bool) -> Executable:
    """The executable of a step graph.

    Args:
      step: pruned and optimised.
      place: node to device and kernel.
      parallel: whether kernels may run side by side.
    Raises: OpError: a node has no place, or its kernel refuses its attributes.
    """
    return _Deriver(step, place).derive(parallel)
