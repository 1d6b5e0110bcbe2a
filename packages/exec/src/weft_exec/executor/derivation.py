"""Derivation of an executable: slots, kernels, and the work items of the step."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial
from typing import Any

from weft_exec.devices.device import Device
from weft_exec.executor.executable import Executable, Fetch, ReferenceFetch
from weft_exec.executor.frames import StepPlan
from weft_exec.executor.kernel_errors import raise_located, to_op_error
from weft_exec.executor.layout import make_linear_segment
from weft_exec.executor.linear import Compound, Segment, Slots, all_slots, gather
from weft_exec.executor.overlap import Overlap
from weft_exec.executor.priority import changed_variables, takes_reference, variable_of
from weft_exec.executor.queue_entries import ORDER, RECEIVE, SEND, WHOLE, Item, Need, group
from weft_exec.kernels.registry import Kernel
from weft_graph.ir.node import Node, Output
from weft_graph.ir.step_graph import StepGraph
from weft_graph.ir.traits import Role
from weft_tensor import errors

Placement = Callable[[Node], tuple[Device, Kernel]]

_TRANSFERS = {Role.SEND: SEND, Role.RECEIVE: RECEIVE}


class Derivation:
    """The state of one derivation.

    Constants, fed values and variables are in the template and need no work. Their users wait
    instead for the control inputs of these nodes (`anchors`).

    Attributes:
      template: the slots before a step.
      slots: the slot of each output.
      shared: outputs whose memory may have other owners, so that fetching them copies.
      items: the work of each node, in execution order.
      devices: the name of the device of each node that has a kernel.
      anchors: for each node, the items that must end before it counts as ended.
      readers: for each variable, the items that read it and must precede a later update.
    """

    def __init__(
        self,
        step: StepGraph,
        placement: Placement,
        overlap: Overlap,
        bring_in: Callable[[Any], Any] | None = None,
        merges_segments: bool = False,
    ) -> None:
        self._merges_segments = merges_segments
        self.step = step
        self.place = placement
        self.overlap = overlap
        self.bring_in = bring_in
        self.template: Slots = [None]
        self.slots: dict[Output, int] = {}
        self.shared: set[Output] = set()
        self.items: list[Item] = []
        self.devices: dict[Node, str] = {}
        self.anchors: dict[Node, set[Need]] = {}
        self.readers: dict[Node, list[Item]] = {}

    def derive(self, nodes: Sequence[Node]) -> Executable:
        """Derive the executable of nodes, which are in execution order."""
        self._visit(nodes)
        fetches = self._fetches()
        fetched_slots = frozenset(fetch.slot for fetch in fetches)
        linear, plan = None, None
        if self._overlaps(self.items):
            entries, uses = group(self.items, fetched_slots, self._merges_segments)
            plan = StepPlan.for_root(entries, uses.get(None, {}))
        else:
            linear = make_linear_segment(self.items, fetched_slots)
        return self._executable(fetches, linear, plan)

    def _visit(self, nodes: Sequence[Node]) -> None:
        """Assign slots and an item to every node."""
        for arg in self.step.feeds:
            self.slots[arg] = self.slot(arg.node)
            self.shared.add(arg)
        for node in nodes:
            self._node(node)

    def _fetches(self) -> list[Fetch]:
        feeds = self.step.feeds
        return [
            ReferenceFetch(self.slots[out], out, self.devices.get(out.node, ""))
            if out.dtype.is_ref and out not in feeds
            else self._fetch(self.slots[out], out in self.shared, out)
            for out in self.step.fetches
        ]

    def _executable(
        self, fetches: Sequence[Fetch], linear: Segment | None, plan: StepPlan | None
    ) -> Executable:
        feed_slots = [self.slots[arg] for arg in self.step.feeds]
        return Executable(self.template, feed_slots, fetches, linear, plan)

    def slot(self, node: Node, value: Any = None) -> int:
        """Return a new slot for an output of `node`."""
        self.template.append(value)
        return len(self.template) - 1

    def _node(self, node: Node) -> None:
        if node.role is Role.CONSTANT:
            self._constant(node)
        elif node.role is not Role.ARGUMENT:
            self._kernel(node)

    def _fetch(self, slot: int, shared: bool, output: Output) -> Fetch:
        return Fetch(slot, shared)

    def _overlaps(self, items: Collection[Item]) -> bool:
        """Return True if some items could run in parallel with others."""
        if self.overlap is Overlap.EVERYTHING or any(item.asynchronous for item in items):
            return True
        return self.overlap is Overlap.HEAVY and sum(item.heavy for item in items) > 1

    # ------------------------------------------------------------------ kinds of nodes

    def _constant(self, node: Node) -> None:
        if node.device:
            self.place(node)
        value = node.attrs["value"]
        if value.ndim == 0 and not value.dtype.hasobject:
            value = value[()]
        if self.bring_in is not None:
            value = self._brought_in(node, value, self.bring_in)
        self.slots[node.outputs[0]] = self.slot(node, value)
        self.shared.add(node.outputs[0])
        self._bypass(node)

    def _brought_in(self, node: Node, value: Any, bring_in: Callable[[Any], Any]) -> Any:
        try:
            return bring_in(value)
        except Exception as error:  # because a device may raise anything; the location is added
            raise_located(to_op_error(error, node, self.place(node)[0].name, (value,)))

    def _kernel(self, node: Node) -> None:
        device, kernel = self.place(node)
        self.devices[node] = device.name
        try:
            function = kernel.make(node, device)
            if node.role is Role.VARIABLE and node.outputs[0].dtype.is_ref:
                self.slots[node.outputs[0]] = self.slot(node, function())
                self._bypass(node)
                return
        except Exception as error:  # because a factory may raise anything; the location is added
            raise_located(to_op_error(error, node, device.name, ()))
        item = self._item(node, device.name, kernel.heavy, kernel.asynchronous)
        item.kind = item.kind if node.role is None else _TRANSFERS.get(node.role, item.kind)
        arguments = [self._argument(node, i, item) for i in range(len(node.inputs))]
        self._order(node, item)
        results = [self.slot(node) for _ in node.outputs]
        self.slots.update(zip(node.outputs, results, strict=True))
        if kernel.may_share(node):
            self.shared.update(
                o for index, o in enumerate(node.outputs) if index not in kernel.fresh
            )
        target: int | slice = results[0] if results else 0
        if len(results) > 1:
            target = slice(results[0], results[-1] + 1)
            if not kernel.asynchronous and not isinstance(function, Compound):
                function = _map_calls(function, len(results))
        compound = function if isinstance(function, Compound) else None
        if compound and compound.lay(arguments, results, partial(self.slot, node)):
            item.work.append((function, all_slots, 0, arguments, results, node))
        else:
            item.add(function, gather(arguments), arguments, target, node)

    def _item(self, node: Node, device: str, heavy: bool, asynchronous: bool) -> Item:
        """Add a new item for `node`."""
        item = Item(node, len(self.items), device, heavy, asynchronous)
        self.items.append(item)
        self.anchors[node] = {(item, WHOLE)}
        return item

    def _bypass(self, node: Node) -> None:
        """Replace waits for a node without work by waits for its control inputs."""
        self.anchors[node] = set().union(*[self._anchors(c) for c in node.controls])

    def _anchors(self, node: Node) -> set[Need]:
        return self.anchors.get(node, set())

    # ------------------------------------------------------------------ order and arguments

    def _order(self, node: Node, item: Item) -> None:
        """Make `item` wait for its inputs; an update also waits for reads of the old value."""
        self._wait_for_inputs(node, item)
        variables = {v for v in map(variable_of, node.inputs) if v is not None}
        changed = {variable_of(source) for source in changed_variables(node)} if variables else ()
        for variable in variables:
            if variable in changed:
                item.needs.update(
                    (reader, ORDER) for reader in self._earlier_accesses(variable, item)
                )
            else:
                self.readers.setdefault(variable, []).append(item)

    def _wait_for_inputs(self, node: Node, item: Item) -> None:
        for source in node.inputs:
            item.needs |= self._source(source)
        for control in node.controls:
            item.needs |= self._anchors(control)

    def _earlier_accesses(self, variable: Node, item: Item) -> Iterable[Item]:
        """Return the reads of a variable that an update waits for."""
        return self.readers.get(variable, ())

    def _source(self, output: Output) -> set[Need]:
        """Return the items that users of an output must wait for."""
        return self._anchors(output.node)

    def _argument(self, node: Node, position: int, item: Item) -> int:
        source = node.inputs[position]
        if takes_reference(node, position):
            if not source.dtype.is_ref:
                raise errors.InvalidArgumentError(
                    f"{node.type} changes the variable at input {position}, so that input cannot "
                    "be fed",
                    op=node.type,
                    node=node.name,
                    line=node.line or None,
                )
            return self.slots[source]
        if source.dtype.is_ref:
            return self._read(source, item)
        return self._slot_in(source, item)

    def _slot_in(self, source: Output, item: Item) -> int:
        """Return the slot that holds an output for an item."""
        return self.slots[source]

    def _read(self, source: Output, item: Item) -> int:
        """Add a read of the variable behind a reference in front of the work of `item`."""
        slot = self.slots[source]
        read = self.slot(item.node)
        state = self._state(source)
        if state is not None:
            item.add(state.read, gather(()), [], read, source.node)
        else:
            item.add(_read, gather((slot,)), [slot], read, source.node)
        return read

    def _state(self, source: Output) -> Any:
        """Return the variable behind a reference if it is known before the step runs."""
        return self.template[self.slots[source]]


def _read(state: Any) -> Any:
    return state.read()


def _map_calls(function: Callable[..., Any], count: int) -> Callable[..., Any]:
    def checked(*inputs: Any) -> Any:
        values = function(*inputs)
        if type(values) not in (tuple, list) or len(values) != count:
            raise errors.InternalError(f"the kernel must return {count} values, got {values!r}")
        return values

    return checked
