"""Derivation of executables with conditionals and loops."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from weft_exec.executor.blocks import value_of
from weft_exec.executor.compilers import LoopClaim
from weft_exec.executor.derivation import Derivation, Placement
from weft_exec.executor.executable import NOT_COMPUTED, ConditionalFetch, Executable, Fetch
from weft_exec.executor.frames import StepPlan
from weft_exec.executor.layout import Layout, Located
from weft_exec.executor.linear import Slots, gather
from weft_exec.executor.linear_loops import LinearLoops
from weft_exec.executor.overlap import Overlap
from weft_exec.executor.priority import is_update
from weft_exec.executor.queue_entries import (
    ENTER,
    EXIT,
    MERGE,
    NEXT,
    SWITCH,
    TRIGGER,
    WHOLE,
    WORK,
    Item,
    Need,
    group,
    sort_items,
    touched_slots,
)
from weft_exec.kernels.registry import Kernel
from weft_graph.ir.node import Node, Output
from weft_graph.ir.step_graph import StepGraph, is_back_edge
from weft_graph.ir.traits import Role
from weft_graph.passes.flow import Flow, Frame, exclusive
from weft_graph.passes.functional_form import Structurer
from weft_tensor import errors


class FlowDerivation(Derivation):
    """A derivation with conditionals and loops.

    There are two ways to run a loop. If iterations or kernels may run in parallel, it is scheduled:
    it has its own slots and entries, and the ready queue distinguishes its frames. Any other loop
    is linear: it is a single item of the enclosing frame, uses the slots of that frame, and runs
    its iterations in sequence. The needs and the work of the nodes inside are added to the loop's
    item. Of nested linear loops only the outermost one is scheduled.

    In a linear loop, routing costs nothing: a Switch, an Enter, an Exit and a NextIteration share
      the slot of their input (`_share_slot`), and a Merge selects one of two slots by the
      predicate. In the ready queue each of them is an item, and dead inputs are counted.

    Attributes:
      templates: for each scheduled frame, the slots before an iteration.
      variables: the contiguous slots of the variables of each linear loop.
      owners: the items of the linear loops, by frame.
      copies: the slots of constants in frames other than their node's.
    """

    def __init__(
        self,
        step: StepGraph,
        placement: Placement,
        overlap: Overlap,
        flow: Flow,
        bring_in: Callable[[Any], Any] | None = None,
        compiled: Mapping[Node, LoopClaim] = MappingProxyType({}),
    ) -> None:
        super().__init__(step, placement, overlap, bring_in)
        self.flow = flow
        self._compiled = compiled
        self.templates: dict[Frame, Slots] = {flow.root: self.template}
        self.variables: dict[Frame, slice] = {}
        self.owners: dict[Frame, Item] = {}
        self.copies: dict[tuple[Output, Frame], int] = {}

    def derive(self, nodes: Sequence[Node]) -> Executable:
        """Derive the executable of nodes, which are in execution order."""
        self.linear_loops = LinearLoops(
            nodes, self.flow, self._kernel_of, self.overlap, self._compiled
        )
        for frame in self.flow.frames[1:]:
            # Outer frames come first, so the slots of the frame around a linear loop exist.
            if self._slot_frame(frame) is frame:
                self.templates[frame] = [None]
            elif self._slot_frame(frame) is frame.parent and not self.linear_loops.linear:
                self.owners[frame] = _linear_loop(frame)
            if self._is_flat(frame):
                self._place_variables(frame)
        self._visit(nodes)
        return self._finish(nodes)

    def _kernel_of(self, node: Node) -> Kernel | None:
        if node.traits.routes or node.role in (Role.CONSTANT, Role.ARGUMENT, Role.LOOP_COND):
            return None
        return self.place(node)[1]

    # ------------------------------------------------------------------ frames and slots

    def _slot_frame(self, frame: Frame) -> Frame:
        """Return the frame whose slots a frame uses."""
        return self.linear_loops.home(frame)

    def _is_flat(self, frame: Frame) -> bool:
        """Return True if the nodes of a frame run in a fixed order."""
        return self.linear_loops.linear or self._slot_frame(frame) is not frame

    def _frame_of(self, node: Node) -> Frame:
        """Return the frame in which a node runs: for an Enter, the frame around the loop."""
        if node.role is Role.ENTER:
            parent = self.flow.frame[node].parent
            assert parent is not None
            return parent
        if node.role is Role.EXIT:
            return self.flow.frame[node.inputs[0].node]
        return self.flow.frame[node]

    def slot(self, node: Node, value: Any = None) -> int:
        """Return a new slot for an output of `node`, in the frame of its outputs."""
        return self._slot_of_frame(self.flow.frame.get(node, self.flow.root), value)

    def _slot_of_frame(self, frame: Frame, value: Any = None) -> int:
        template = self.templates[self._slot_frame(frame)]
        template.append(value)
        return len(template) - 1

    def _place_variables(self, frame: Frame) -> None:
        """Assign contiguous slots to the variables of a linear loop."""
        slots = [self._slot_of_frame(frame) for _ in frame.merges]
        for merge, slot in zip(frame.merges, slots, strict=True):
            self.slots[merge.outputs[0]] = slot
            self.anchors[merge] = set()
        self.variables[frame] = slice(slots[0], slots[-1] + 1)

    def _owner(self, frame: Frame) -> Item | None:
        """Return the linear loop of a frame, or the outermost linear loop around it."""
        parent: Frame | None = frame
        owner = None
        while parent is not None:
            owner = self.owners.get(parent, owner)
            parent = parent.parent
        return owner

    def _item(self, node: Node, device: str, heavy: bool, asynchronous: bool) -> Item:
        kind = TRIGGER if node.role is Role.TRIGGER else WORK
        return self._new_item(node, kind, device, heavy, asynchronous)

    def _new_item(
        self, node: Node, kind: int, device: str = "", heavy: bool = False, async_: bool = False
    ) -> Item:
        frame = self._frame_of(node)
        guard = self.flow.guard(node)
        item = Item(node, len(self.items), device, heavy, async_, frame, guard, kind)
        item.owner = self._owner(frame)
        self.items.append(item)
        self.anchors[node] = {(item, WHOLE)}
        return item

    def _source(self, output: Output) -> set[Need]:
        anchors = self._anchors(output.node)
        if output.node.role is Role.SWITCH and not self._is_flat(self.flow.frame[output.node]):
            return {(item, output.index) for item, _ in anchors}
        return anchors

    def _slot_in(self, source: Output, item: Item) -> int:
        """Return the slot that holds an output for an item."""
        assert item.frame is not None
        return self._slot_at(source, self._slot_frame(item.frame))

    def _slot_at(self, source: Output, frame: Frame) -> int:
        """Return the slot of an output in a frame; each frame has its own copies of constants."""
        if (
            source.node.role is not Role.CONSTANT
            or self._slot_frame(self.flow.frame[source.node]) is frame
        ):
            return self.slots[source]
        slot = self.copies.get((source, frame))
        if slot is None:
            value = self.template[self.slots[source]]
            slot = self.copies[source, frame] = self._slot_of_frame(frame, value)
        return slot

    def _state(self, source: Output) -> Any:
        home = self._slot_frame(self.flow.frame[source.node])
        return self.templates[home][self.slots[source]]

    def _earlier_accesses(self, variable: Node, item: Item) -> Iterable[Item]:
        """Return possible earlier accesses in the same frame; other frames run in order anyway."""
        return [
            read
            for read in self.readers.get(variable, ())
            if read.frame is item.frame and not exclusive(read.guard, item.guard)
        ]

    # ------------------------------------------------------------------ routing nodes

    def _node(self, node: Node) -> None:
        flat = self._is_flat(self._frame_of(node))
        if node.role is Role.ENTER:
            self._enter(node)
        elif node.role is Role.EXIT:
            self._exit(node, flat)
        elif node.role is Role.SWITCH:
            self._switch(node, flat)
        elif node.role is Role.MERGE:
            self._merge(node, flat)
        elif node.role is Role.NEXT_ITERATION:
            self._next(node, flat)
        elif node.role is Role.LOOP_COND:
            self._share_slot(node, node.inputs[0])
        elif node.role is Role.TRIGGER and flat:
            self._bypass(node)
        else:
            super()._node(node)

    def _share_slot(self, node: Node, source: Output) -> None:
        """Make a node's outputs share the slot of `source`."""
        slot = self._slot_at(source, self._slot_frame(self._frame_of(node)))
        for output in node.outputs:
            self.slots[output] = slot
            if source in self.shared:
                self.shared.add(output)
        self._bypass(node)
        for needed in node.inputs:
            self.anchors[node] |= self._source(needed)

    def _enter(self, node: Node) -> None:
        frame = self.flow.frame[node]
        source = node.inputs[0]
        self.shared.add(node.outputs[0])
        if self._is_flat(frame):
            self._share_slot(node, source)
            loop = self._owner(frame)
            if loop is not None:
                # The linear loop as a whole waits for this input, instead of each user.
                loop.needs |= {n for n in self.anchors[node] if n[0].owner is not loop}
                self.anchors[node] = set()
            return
        item = self._new_item(node, ENTER)
        item.source = self._slot_in(source, item)
        item.slot = self.slots[node.outputs[0]] = self.slot(node)
        self._wait_for_inputs(node, item)

    def _exit(self, node: Node, flat: bool) -> None:
        source = node.inputs[0]
        self.shared.add(node.outputs[0])
        if flat:
            self._share_slot(node, source)
            loop = self.owners.get(self._frame_of(node))
            if loop is not None:
                self.anchors[node] = {(loop, WHOLE)}
            return
        item = self._new_item(node, EXIT)
        item.source = self._slot_in(source, item)
        item.slot = self.slots[node.outputs[0]] = self.slot(node)
        self._wait_for_inputs(node, item)

    def _next(self, node: Node, flat: bool) -> None:
        if flat:
            self._share_slot(node, node.inputs[0])
            return
        item = self._new_item(node, NEXT)
        item.source = self._slot_in(node.inputs[0], item)
        self._wait_for_inputs(node, item)

    def _switch(self, node: Node, flat: bool) -> None:
        source = node.inputs[0]
        if flat:
            self._share_slot(node, source)
            return
        item = self._new_item(node, SWITCH)
        item.source = self._slot_in(source, item)
        item.pred = self._slot_in(node.inputs[1], item)
        for output in node.outputs:
            self.slots[output] = item.source
            if source in self.shared:
                self.shared.add(output)
        self._wait_for_inputs(node, item)

    def _merge(self, node: Node, flat: bool) -> None:
        self.shared.update(node.outputs)
        if node.outputs[0] in self.slots:
            return  # a loop variable that has a slot already
        if flat:
            self._select(node)
            return
        item = self._new_item(node, MERGE)
        first = self.slots[node.outputs[0]] = self.slot(node)
        self.slots[node.outputs[1]] = self.slot(node)
        item.slot = first
        for control in node.controls:
            item.needs |= self._anchors(control)

    def _select(self, node: Node) -> None:
        """Add an item for a Merge that selects a side by the predicate."""
        item = self._item(node, "", False, False)
        self._wait_for_inputs(node, item)
        pred, side = self._merge_predicate(node)
        lower, upper = (
            (node.inputs[0], node.inputs[1]) if side else (node.inputs[1], node.inputs[0])
        )
        arguments = [self._slot_in(source, item) for source in (pred, lower, upper)]
        for output in node.outputs:
            self.slots[output] = self.slot(node)
        item.add(value_of, gather(arguments), arguments, self.slots[node.outputs[0]], node)
        if node.outputs[1].consumers() or node.outputs[1] in self.step.fetches:
            index = (np.int32(not side), np.int32(side))
            item.add(
                lambda pred: index[1 if pred else 0],
                gather(arguments[:1]),
                arguments[:1],
                self.slots[node.outputs[1]],
                node,
            )

    def _merge_predicate(self, node: Node) -> tuple[Output, int]:
        """Return the predicate of a structured Merge, and the value of it that selects input 1."""
        lower, upper = [self.flow.output_guard(source) for source in node.inputs]
        ((pred, side),) = upper - lower
        return pred, side

    # ------------------------------------------------------------------ putting together

    def _fetch(self, slot: int, shared: bool, output: Output) -> Fetch:
        # If the branch is not taken, the slot keeps its initial value, which marks it as not
        # computed.
        if self.template[slot] is None and output not in self.step.feeds:
            self.template[slot] = NOT_COMPUTED
        return ConditionalFetch(slot, shared, self.step.isolated.get(output, output))

    def _finish(self, nodes: Sequence[Node]) -> Executable:
        fetches = self._fetches()
        fetched_slots = frozenset(fetch.slot for fetch in fetches)
        structurer = Structurer(nodes, self.flow, is_update)
        work: dict[Node, list[Located]] = {}
        for item in self.items:
            work.setdefault(item.node, []).extend((element, item.device) for element in item.work)
        if self.linear_loops.linear:
            layout = self._layout(self.flow.root, work, fetched_slots)
            linear = layout.segment(structurer.block(self.flow.root))
            return self._executable(fetches, linear, None)
        items = self._schedule_items()
        for frame in self.templates:
            self._lay_out_linear_loops(frame, structurer, work, items, fetched_slots)
        entries, uses = group(sort_items(items), fetched_slots)
        entered = {e: self.flow.frame[e.node] for e in entries if e.kind == ENTER and e.node}
        frames = self.flow.frames
        plan = StepPlan.for_frames(frames, entries, uses, self.templates, entered)
        return self._executable(fetches, None, plan)

    def _schedule_items(self) -> list[Item]:
        """Return the items outside linear loops, and linear loops with the needs of their items."""
        items = [item for item in self.items if item.owner is None]
        # Merges first: their inputs may need new items that pass values on.
        entering: dict[Frame, list[Item]] = {}
        for item in list(items):
            if item.kind == MERGE:
                self._choices(item, items)
            elif item.kind == ENTER:
                entering.setdefault(self.flow.frame[item.node], []).append(item)
        for item in items:
            if item.kind == EXIT:
                assert item.frame is not None
                item.after = entering[item.frame]
        for item in self.items:
            loop = item.owner
            if loop is None:
                item.needs = {_outermost(need) for need in item.needs}
                item.choices = [(_outermost(need), slot) for need, slot in item.choices]
            else:
                loop.needs |= {need for need in item.needs if need[0].owner is not loop}
                loop.position = max(loop.position, item.position)
                loop.heavy |= item.heavy
        for frame, loop in self.owners.items():
            if self._owner(frame) is loop:
                loop.needs = {_outermost(need) for need in loop.needs} - {(loop, WHOLE)}
                items.append(loop)
        return items

    def _layout(
        self, frame: Frame, work: dict[Node, list[Located]], kept_slots: Collection[int]
    ) -> Layout:
        """Return the layout of work that uses the slots of a frame."""
        outlive = kept_slots if frame is self.flow.root else ()
        wholes = {
            cond: (claim.make(), claim.whole)
            for cond, claim in self._compiled.items()
            if self._slot_frame(self.flow.frame[cond]) is frame
        }
        return Layout(
            work, lambda source: self._slot_at(source, frame), self.variables, outlive, wholes
        )

    def _lay_out_linear_loops(
        self,
        home: Frame,
        structurer: Structurer,
        work: dict[Node, list[Located]],
        items: Sequence[Item],
        kept_slots: Collection[int],
    ) -> None:
        """Lay out the work of the linear loops that use the slots of a frame."""
        frame_list = [frame for frame, item in self.owners.items() if item.frame is home]
        loops = [structurer.loop(frame) for frame in frame_list]
        layout = self._layout(home, work, kept_slots)
        layout.count(list(loops))
        for item in items:
            if item.frame is home:
                layout.count_others(touched_slots(item))
        for frame, loop in zip(frame_list, loops, strict=True):
            self.owners[frame].work.append(layout.loop(loop))

    def _choices(self, item: Item, items: list[Item]) -> None:
        """Record the sources of a Merge's inputs."""
        for source in item.node.inputs:
            anchors = self._source(source)
            if is_back_edge(item.node, source) or source.node.role is Role.ENTER:
                (need,) = anchors
                item.choices.append((need, need[0].source))
            elif len(anchors) == 1 and source.node.role is not Role.CONSTANT:
                (need,) = anchors
                item.choices.append((need, self.slots[source]))
            else:
                passing = self._forwarding_item(source, item)
                items.append(passing)
                item.choices.append(((passing, WHOLE), passing.slot))

    def _forwarding_item(self, source: Output, item: Item) -> Item:
        """Return an item that forwards an output once all that the output depends on has ended."""
        guard = frozenset({(source.node, -1)})
        passing = Item(source.node, item.position, "", False, False, item.frame, guard)
        slot = self._slot_in(source, passing)
        assert item.frame is not None
        passing.slot = self._slot_of_frame(item.frame)
        passing.needs |= self._source(source)
        passing.add(_same_value, gather((slot,)), [slot], passing.slot, source.node)
        return passing


def _linear_loop(frame: Frame) -> Item:
    """Return the item of a linear loop, without its work."""
    assert frame.cond is not None
    return Item(frame.cond, -1, "", False, False, frame.parent, frame.guard)


def _outermost(need: Need) -> Need:
    """Replace a dependency on an item inside a linear loop by one on the loop."""
    item = need[0]
    return need if item.owner is None else (item.owner, WHOLE)


def _same_value(value: Any) -> Any:
    return value


def isolate_fetches(step: StepGraph, flow: Flow) -> bool:
    """Add nodes for fetches that may not be computed; return True if any were added.

    Raises: InvalidArgumentError: a fetch is inside a loop.
    """
    changed = False
    for position, output in enumerate(step.fetches):
        node = output.node
        if flow.frame[node] is not flow.root:
            raise errors.InvalidArgumentError(
                f"{output.name!r} cannot be fetched: it is inside the loop "
                f"{flow.frame[node].name!r}, and has a value for each iteration",
                op=node.type,
                node=node.name,
                line=node.line or None,
            )
        if flow.output_guard(output):
            step.isolate_fetch(position)
            changed = True
    return changed
