"""Deriving an executable: kernels, slots, instructions and entries, once per signature."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from sys import getrefcount
from typing import Any

import numpy as np

from weft_exec.device import Device
from weft_exec.executor.entries import Entry, Item, group
from weft_exec.executor.linear import Instruction, Segment, Slots, gather, slot_range
from weft_exec.kernel_errors import located
from weft_exec.kernels.registry import Kernel
from weft_graph.node import Node, Output
from weft_graph.passes.step_graph import StepGraph
from weft_tensor import errors

Placement = Callable[[Node], tuple[Device, Kernel]]

_VARIABLES = frozenset({"Variable", "VariableV2", "VarHandleOp"})
_ONLY_LOOKS = frozenset(
    {
        "InitializedValue",
        "IsVariableInitialized",
        "ReadVariableOp",
        "RefIdentity",
        "ResourceGather",
        "ResourceGatherNd",
        "ResourceInitializedValue",
        "VarIsInitializedOp",
        "VariableShape",
    }
)
"""Ops that take a variable's reference or handle and leave its value alone."""


class Executable:
    """What runs one signature.

    Attributes:
      template: the slots before a step: constants and variables in place, None elsewhere.
      feed_slots: where fed values go.
      fetches: how to take each result.
      linear: all instructions in one fixed order, when nothing can overlap; else None.
      entries: what the ready queue schedules, when `linear` is None.
      shared_uses: for slots that several entries use, how many.
    """

    __slots__ = (
        "__weakref__",
        "entries",
        "feed_slots",
        "fetches",
        "linear",
        "shared_uses",
        "template",
    )

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

    def cancel(self) -> None:
        """Let running steps end at the next node, with a CancelledError, and later ones at once."""
        if self.linear is not None:
            self.linear.cancel()
        for entry in self.entries:
            entry.segment.cancel()


def _sole_count() -> int:
    """What `Fetch.take` sees of an array that only a slot holds; it differs between Pythons."""
    slots: Slots = [np.empty(1)]
    value = slots[0]
    return getrefcount(value)


_SOLE = _sole_count()


class Fetch:
    """How to take one result out of the slots so that the caller owns it."""

    __slots__ = ("shared", "slot")

    def __init__(self, slot: int, shared: bool) -> None:
        self.slot = slot
        self.shared = shared

    def take(self, slots: Slots) -> Any:
        """The value; copied where anybody else could hold its memory."""
        value = slots[self.slot]
        if type(value) is not np.ndarray:
            if isinstance(value, np.ndarray):
                return np.array(value)
            return value.get() if hasattr(value, "__cuda_array_interface__") else value
        if value.ndim == 0:
            return value[()]
        if self.shared or type(value.base) is np.ndarray or getrefcount(value) > _SOLE:
            return value.copy()
        return value


class _Deriver:
    """The state of one derivation.

    Constants, fed values and variables are in the template and need no work; what waits for them
    waits for what they wait for (`anchors`).
    """

    def __init__(self, step: StepGraph, place: Placement) -> None:
        self.step = step
        self.place = place
        self.template: Slots = [None]
        self.slots: dict[Output, int] = {}
        self.shared: set[Output] = set()
        self.items: list[Item] = []
        self.devices: dict[Node, str] = {}
        self.anchors: dict[Node, set[Item]] = {}
        self.lookers: dict[Node, list[Item]] = {}
        self.fetched_refs = {output for output in step.fetches if output.dtype.is_ref}
        self.fetched: dict[Output, int] = {}

    def slot(self, value: Any = None) -> int:
        self.template.append(value)
        return len(self.template) - 1

    def derive(self, parallel: bool) -> Executable:
        for arg in self.step.feeds:
            self.slots[arg] = self.slot()
            self.shared.add(arg)
        for node in by_priority(self.step.live_nodes()):
            if node.type == "Const":
                self._constant(node)
            elif node.type != "_Arg":
                self._kernel(node)
            for output in node.outputs:
                if output in self.fetched_refs:
                    self._read_for_fetch(output)
        fetches = [
            Fetch(self.fetched[out], True)
            if out in self.fetched
            else Fetch(self.slots[out], out in self.shared)
            for out in self.step.fetches
        ]
        feed_slots = [self.slots[arg] for arg in self.step.feeds]
        return Executable(self.template, feed_slots, fetches, self.items, parallel)

    # ------------------------------------------------------------------ kinds of nodes

    def _constant(self, node: Node) -> None:
        if node.device:
            self.place(node)
        value = node.attrs["value"]
        scalar = value.ndim == 0 and not value.dtype.hasobject
        self.slots[node.outputs[0]] = self.slot(value[()] if scalar else value)
        self.shared.add(node.outputs[0])
        self._stand_for(node)

    def _kernel(self, node: Node) -> None:
        device, kernel = self.place(node)
        self.devices[node] = device.name
        try:
            function = kernel.make(node, device)
            if node.type in ("Variable", "VariableV2"):
                self.slots[node.outputs[0]] = self.slot(function())
                self._stand_for(node)
                return
        except Exception as error:  # because a factory may raise anything; it is located
            found = located(error, node, device.name, ())
            raise found from found.__cause__
        item = Item(node, len(self.items), device.name, kernel.heavy, kernel.asynchronous)
        arguments = [self._argument(node, i, item) for i in range(len(node.inputs))]
        self._order(node, item)
        first = len(self.template)
        for out in node.outputs:
            self.slots[out] = self.slot()
            if kernel.alias:
                self.shared.add(out)
        target: int | slice = first if len(node.outputs) == 1 else slice(first, len(self.template))
        if not node.outputs:
            target = 0
        if len(node.outputs) > 1 and not kernel.asynchronous:
            function = _several(function, len(node.outputs))
        item.add(function, gather(arguments), arguments, target, node)
        self.items.append(item)
        self.anchors[node] = {item}

    def _stand_for(self, node: Node) -> None:
        """Let a node without work stand for what it waits for."""
        self.anchors[node] = set().union(*[self._anchors(c) for c in node.control_inputs])

    def _anchors(self, node: Node) -> set[Item]:
        return self.anchors.get(node, set())

    # ------------------------------------------------------------------ order and arguments

    def _order(self, node: Node, item: Item) -> None:
        """Make `item` wait for its inputs, and an update for the looks at the old value."""
        for source in node.inputs:
            item.needs |= self._anchors(source.node)
        for control in node.control_inputs:
            item.needs |= self._anchors(control)
        variables = {v for v in map(_variable_of, node.inputs) if v is not None}
        for variable in variables:
            if updates(node):
                item.needs.update(self.lookers.get(variable, ()))
            else:
                self.lookers.setdefault(variable, []).append(item)

    def _argument(self, node: Node, position: int, item: Item) -> int:
        source = node.inputs[position]
        if _takes_reference(node, position):
            if not source.dtype.is_ref:
                raise errors.InvalidArgumentError(
                    f"{node.type} changes the variable at input {position}, which is fed a value",
                    op=node.type,
                    node=node.name,
                    line=node.line or None,
                )
            return self.slots[source]
        if source.dtype.is_ref:
            return self._read(source, item)
        return self.slots[source]

    def _read(self, source: Output, item: Item) -> int:
        """Let `item` begin with a read of the variable behind a reference."""
        slot = self.slots[source]
        read = self.slot()
        state = self.template[slot]
        if state is not None:
            item.add(state.read, gather(()), [], read, source.node)
        else:
            item.add(_read, gather((slot,)), [slot], read, source.node)
        return read

    def _read_for_fetch(self, source: Output) -> None:
        """Read a fetched reference as soon as it is there, before what may change it."""
        item = Item(source.node, len(self.items), self.devices[source.node], False, False)
        item.needs |= self._anchors(source.node)
        self.fetched[source] = self._read(source, item)
        self.items.append(item)
        variable = _variable_of(source)
        if variable is not None:
            self.lookers.setdefault(variable, []).append(item)


def _read(state: Any) -> Any:
    return state.read()


def _variable_of(output: Output) -> Node | None:
    """The node of the variable whose reference or handle an output is, or None."""
    while output.dtype.is_ref or output.dtype.name == "resource":
        node = output.node
        if node.type in _VARIABLES:
            return node
        through = [i for i in node.inputs if i.dtype.is_ref or i.dtype.name == "resource"]
        if not through:
            return None
        output = through[0]
    return None


def _takes_reference(node: Node, position: int) -> bool:
    args = node.op_def.inputs
    return len(args) == len(node.inputs) and args[position].is_ref


def _several(function: Callable[..., Any], count: int) -> Callable[..., Any]:
    def checked(*inputs: Any) -> Any:
        values = function(*inputs)
        if type(values) not in (tuple, list) or len(values) != count:
            raise errors.InternalError(f"the kernel must return {count} values, got {values!r}")
        return values

    return checked


def _in_order(items: Sequence[Item], kept: frozenset[int]) -> Segment:
    work = [(each, item.device) for item in items for each in item.work]
    last: dict[int, int] = {}
    made: set[int] = set()
    for i, ((_, _, slot, uses, _), _) in enumerate(work):
        last.update(dict.fromkeys(uses, i))
        for produced in slot_range(slot):
            last[produced] = i
            made.add(produced)
    dead: dict[int, list[int]] = {}
    for slot_index, i in last.items():
        if slot_index in made and slot_index not in kept:
            dead.setdefault(i, []).append(slot_index)
    instructions: list[Instruction] = [
        (function, take, slot, tuple(dead.get(i, ())))
        for i, ((function, take, slot, _, _), _) in enumerate(work)
    ]
    return Segment(instructions, [w[4] for w, _ in work], [device for _, device in work])


def by_priority(nodes: Sequence[Node]) -> list[Node]:
    """`nodes` in an order that keeps dependencies and lets updates of state wait for the rest.

    Among equals the order of construction decides.  With updates last, a read that nothing orders
    against an update sees the value before the step.
    """
    if not any(updates(node) for node in nodes):
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
    ready = [(updates(node), position[node]) for node in nodes if not pending[node]]
    heapq.heapify(ready)
    result: list[Node] = []
    while ready:
        node = nodes[heapq.heappop(ready)[1]]
        result.append(node)
        for user in users[node]:
            pending[user] -= 1
            if not pending[user]:
                heapq.heappush(ready, (updates(user), position[user]))
    return result


def updates(node: Node) -> bool:
    """Whether a node changes a variable it is given, or has only effects."""
    if not node.inputs or node.type in _ONLY_LOOKS:
        return False
    if any(arg.is_ref for arg in node.op_def.inputs):
        return True
    return node.op_def.stateful and (
        not node.outputs or any(_variable_of(source) is not None for source in node.inputs)
    )


def derive(step: StepGraph, place: Placement, parallel: bool) -> Executable:
    """The executable of a step graph.

    Args:
      step: pruned and optimised.
      place: node to device and kernel.
      parallel: whether kernels may run side by side.
    Raises: OpError: a node has no place, or its kernel refuses its attributes.
    """
    return _Deriver(step, place).derive(parallel)
