"""Layout of blocks as segments: ordered instructions, and when to clear each slot.

A slot is cleared after the last instruction that uses it, in the innermost block that contains all
such instructions. So the values of an iteration are released before the next iteration begins.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from weft_exec.executor.blocks import ConditionalSegment, LoopCall, WhileLoop
from weft_exec.executor.linear import Gather, Instruction, Segment, all_slots, gather
from weft_exec.executor.queue_entries import Item, Work
from weft_graph.ir.node import Node, Output
from weft_graph.ir.step_graph import is_back_edge
from weft_graph.passes.flow import Frame
from weft_graph.passes.functional_form import Block, Branch, Loop, Step, nodes_in
from weft_graph.passes.whole_loops import WholeLoop

Located = tuple[Work, str]
"""The work of a node, with the name of its device."""

Touches = Counter[int]


class Layout:
    """Lays out blocks of nodes as segments.

    Args:
      work: the work of each node; nodes without work are left out.
      slot_of: returns the slot of an output.
      variables: the loop variables of each frame, in the order of its Merges.
      kept: slots that are never cleared.
      wholes: the functions of compiled loops and their inputs, by the node that computes the
        predicate.
    """

    def __init__(
        self,
        work: Mapping[Node, Sequence[Located]],
        slot_of: Callable[[Output], int],
        variables: Mapping[Frame, slice],
        kept_slots: Collection[int],
        wholes: Mapping[Node, tuple[Callable[..., Any], WholeLoop]] = MappingProxyType({}),
    ) -> None:
        self._wholes = wholes
        self._work = work
        self._slot_of = slot_of
        self._variables = variables
        self._kept_slots = kept_slots
        self._total: Touches = Counter()
        self._produced_slots: set[int] = set()

    def segment(self, block: Block) -> Segment:
        """Return the segment of a block whose slots are used only by the block."""
        self.count(block)
        return self._lay_out_block(block)[0]

    def loop(self, loop: Loop) -> Work:
        """Return the work of a loop; all uses of its slots must have been counted."""
        return self._lay_out_loop(loop)[0][0]

    # ------------------------------------------------------------------ counting

    def count_others(self, slots: Iterable[int]) -> None:
        """Count the uses of slots by work outside the blocks."""
        self._total.update(slots)

    def count(self, block: Block) -> None:
        """Count the uses of slots in a block; call it before the layout."""
        for step in block:
            if isinstance(step, Branch):
                self._total[self._slot_of(step.pred)] += 1
                for side in step.sides:
                    self.count(side)
            elif isinstance(step, Loop):
                self.count(step.test)
                self.count(step.body)
                self._total.update(self._loop_slots(step))
                self._produced_slots.update(_range(self._variables[step.frame]))
            else:
                for (_, _, _, uses, result, _), _ in self._work.get(step, ()):
                    self._total.update(uses)
                    self._total.update(result)
                    self._produced_slots.update(result)

    def _loop_slots(self, loop: Loop) -> list[int]:
        """Return the slots of a loop itself: predicate, variables, initial and next values."""
        frame = loop.frame
        assert frame.cond is not None
        return [
            self._slot_of(frame.cond.outputs[0]),
            *_range(self._variables[frame]),
            *self._initial(frame),
            *self._next_slots(frame),
        ]

    def _initial(self, frame: Frame) -> list[int]:
        return [
            self._slot_of(_source(merge, wants_back_edge=False).node.inputs[0])
            for merge in frame.merges
        ]

    def _next_slots(self, frame: Frame) -> list[int]:
        return [
            self._slot_of(_source(merge, wants_back_edge=True).node.inputs[0])
            for merge in frame.merges
        ]

    # ------------------------------------------------------------------ laying out

    def _lay_out_block(self, block: Block) -> tuple[Segment, Touches]:
        """Return the segment of a block, and the number of uses of slots that outlive it."""
        instructions: list[tuple[Callable[..., Any], Gather, int | slice]] = []
        nodes: list[Node] = []
        devices: list[str] = []
        counts: Touches = Counter()
        last: dict[int, int] = {}
        for step in block:
            for ((function, take, slot, _, _, node), device), touches in self._steps(step):
                for accesses in touches:
                    last[accesses] = len(instructions)
                counts.update(touches)
                instructions.append((function, take, slot))
                nodes.append(node)
                devices.append(device)
        dead: dict[int, list[int]] = {}
        for slot_index, position in last.items():
            if counts[slot_index] == self._total[slot_index] and slot_index in self._produced_slots:
                if slot_index not in self._kept_slots:
                    dead.setdefault(position, []).append(slot_index)
                del counts[slot_index]
        laid: list[Instruction] = [
            (function, take, slot, tuple(dead.get(i, ())))
            for i, (function, take, slot) in enumerate(instructions)
        ]
        return Segment(laid, nodes, devices), counts

    def _steps(self, step: Step) -> list[tuple[Located, Touches]]:
        if isinstance(step, Node):
            return [
                (located, Counter([*located[0][3], *located[0][4]]))
                for located in self._work.get(step, ())
            ]
        located, touches = self._instruction(step)
        return [(located, touches)]

    def _instruction(self, step: Branch | Loop) -> tuple[Located, Touches]:
        if isinstance(step, Branch):
            return self._choice(step)
        return self._lay_out_loop(step)

    def _choice(self, branch: Branch) -> tuple[Located, Touches]:
        (lower, touches), (upper, upper_touches) = map(self._lay_out_block, branch.sides)
        touches.update(upper_touches)
        pred = self._slot_of(branch.pred)
        touches[pred] += 1
        node = branch.pred.node
        choice = ConditionalSegment(pred, node, (lower, upper))
        return ((choice, all_slots, 0, tuple(touches), (), node), ""), touches

    def _lay_out_loop(self, loop: Loop) -> tuple[Located, Touches]:
        frame = loop.frame
        assert frame.cond is not None
        test, touches = self._lay_out_block(loop.test)
        body, body_touches = self._lay_out_block(loop.body)
        following = self._next_slots(frame)
        variables = self._variables[frame]
        body_slots = {
            slot
            for node in nodes_in(loop.body)
            for (_, _, _, _, slots, _), _ in self._work.get(node, ())
            for slot in slots
        }
        dead_slots = {slot for slot in following if slot in body_slots} - set(self._kept_slots)
        touches.update(body_touches)
        touches.update(self._loop_slots(loop))
        node = frame.cond
        run = WhileLoop(
            frame.name,
            test,
            body,
            self._slot_of(node.outputs[0]),
            node,
            gather(self._initial(frame)),
            gather(following),
            variables,
            sorted(dead_slots),
        )
        result = tuple(_range(variables))
        if node in self._wholes:
            function, loop_as_taken = self._wholes[node]
            entered_slots = [self._slot_of(enter.outputs[0]) for enter in loop_as_taken.enters]
            order = [loop_as_taken.variables.index(merge) for merge in frame.merges]
            called = LoopCall(run, function, gather(entered_slots), order)
            return ((called, all_slots, 0, tuple(touches), result, node), ""), touches
        return ((run, all_slots, 0, tuple(touches), result, node), ""), touches


def _range(slots: slice) -> range:
    return range(slots.start, slots.stop)


def _source(merge: Node, wants_back_edge: bool) -> Output:
    """Return the source of a loop variable: the Enter or the NextIteration."""
    return next(source for source in merge.inputs if is_back_edge(merge, source) is wants_back_edge)


def make_linear_segment(items: Sequence[Item], kept_slots: Collection[int]) -> Segment:
    """Return the items of a step without control flow as one segment."""
    work = [(element, item.device) for item in items for element in item.work]
    last: dict[int, int] = {}
    produced: set[int] = set()
    for i, ((_, _, _, uses, result, _), _) in enumerate(work):
        last.update(dict.fromkeys(uses, i))
        last.update(dict.fromkeys(result, i))
        produced.update(result)
    dead: dict[int, list[int]] = {}
    for slot_index, i in last.items():
        if slot_index in produced and slot_index not in kept_slots:
            dead.setdefault(i, []).append(slot_index)
    instructions: list[Instruction] = [
        (function, take, slot, tuple(dead.get(i, ())))
        for i, ((function, take, slot, *_), _) in enumerate(work)
    ]
    return Segment(instructions, [w[5] for w, _ in work], [device for _, device in work])
