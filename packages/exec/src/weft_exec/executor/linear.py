"""Execution of instructions one after the other.

An instruction is `(function, gather, slot, dead)`. Call the function with the arguments that
`gather` reads from the slots, store the result (a slice stores several), then clear the slots in
`dead`, which have no more users. This loop is the hot path of the dynamic executor: add only what
every node of every step needs.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from weft_exec.executor.kernel_errors import raise_located, to_op_error
from weft_exec.kernels.random_counters import needs_counters
from weft_exec.tracing.clock_readings import begin_readings, end_readings, load_native_reader
from weft_exec.tracing.step_trace import bytes_of, clock
from weft_tensor import errors

if TYPE_CHECKING:
    from weft_exec.devices.device import StreamMarks
    from weft_exec.tracing.programs import SegmentProgram
    from weft_exec.tracing.step_trace import ThreadLog
    from weft_graph.ir.node import Node

Slots = list[Any]
Gather = Callable[[Slots], Sequence[Any]]
Instruction = tuple[Callable[..., Any], Gather, "int | slice", "tuple[int, ...]"]
Check = Callable[[], None]

# Argument getters are all `itemgetter`s: they run in C, without a Python frame for each node.
_NONE = itemgetter(slice(0, 0))


def gather(slots: Sequence[int]) -> Gather:
    """Return a function that reads the values of `slots` as a sequence of arguments."""
    if not slots:
        return _NONE
    # An `itemgetter` of one index returns the bare value; of a slice it returns a sequence.
    if len(slots) == 1:
        return itemgetter(slice(slots[0], slots[0] + 1))
    return itemgetter(*slots)


def all_slots(slots: Slots) -> tuple[Slots]:
    """Return the slots as the only argument, for instructions that work on them directly."""
    return (slots,)


def slot_range(slot: int | slice) -> range:
    """Return the slots that an instruction writes; slot 0 is for nodes without results."""
    if isinstance(slot, slice):
        return range(slot.start, slot.stop)
    return range(slot, slot + 1) if slot else range(0)


class Compound(ABC):
    """The function of an instruction with nested segments: a conditional, a loop, a call.

    Its segments add locations to the errors of their kernels and trace their nodes, so the
    instruction as a whole does neither.
    """

    __slots__ = ()

    @abstractmethod
    def __call__(self, *inputs: Any) -> Any:
        """Run the segments."""

    @property
    @abstractmethod
    def segments(self) -> Sequence[Segment]:
        """The nested segments derived so far, so that closing a session can cancel them."""

    def lay(self, inputs: Sequence[int], results: Sequence[int], new: Callable[[], int]) -> bool:
        """Return True to be called with the slots, reading inputs and writing results in place.

        Args:
          inputs, results: the slots of its node.
          new: returns a slot that nothing else uses.
        """
        return False

    def forgets(self, slots: Sequence[int]) -> None:
        """Receive the slots to clear after this instruction."""
        return

    def stop(self) -> None:
        """Stop work outside the segments, which are canceled separately."""
        return

    @abstractmethod
    def call_checked(self, check: Check, *inputs: Any) -> Any:
        """Run with `check` around each node."""

    @abstractmethod
    def call_traced(self, log: ThreadLog, check: Check | None, *inputs: Any) -> Any:
        """Run, record each node in `log`, and call `check` after each, if it is not None."""


class Segment:
    """Instructions in a fixed order, and their nodes.

    The instructions are a list so that `cancel` can end running loops over it without a check for
    each node.

    Attributes:
      instructions: the instructions.
      nodes: the node of each instruction.
      devices: the name of the device of each.
      uses_rng: True if some of them may draw random numbers.
    """

    __slots__ = (
        "_compounds", "_count", "_marked_device", "_new_marks", "_program", "devices",
        "instructions", "nodes", "uses_rng",
    )  # fmt: skip

    def __init__(
        self, instructions: Sequence[Instruction], nodes: Sequence[Node], devices: Sequence[str]
    ) -> None:
        self.instructions = list(instructions)
        self._count = len(self.instructions)
        self._program: SegmentProgram | None = None
        self._marked_device = ""
        self._new_marks: Callable[[], StreamMarks | None] = _no_marks
        # Computed once: a check for an abstract class takes longer than a call.
        self._compounds: Sequence[Compound | None] = tuple(
            [_as_compound(function) for function, *_ in instructions]
        )
        for compound, (_, _, _, dead) in zip(self._compounds, instructions, strict=True):
            if compound is not None:
                compound.forgets(dead)
        self.nodes = tuple(nodes)
        self.devices = tuple(devices)
        self.uses_rng: bool = any(map(needs_counters, nodes)) or any(
            [inner.uses_rng for inner in self._segments()]
        )

    def replace_with(self, whole_segment: Compound) -> None:
        """Replace the instructions by a single one that contains them and their nodes."""
        self.instructions[:] = [(whole_segment, all_slots, 0, ())]
        self._count = 1
        self._program = None
        self._compounds = (whole_segment,)
        self.nodes, self.devices = self.nodes[-1:], self.devices[-1:]

    def copy(self) -> Segment:
        """Return a copy with the same instructions."""
        segment = Segment(self.instructions, self.nodes, self.devices)
        segment._marked_device, segment._new_marks = self._marked_device, self._new_marks
        return segment

    def mark_stream(self, device: str, new_marks: Callable[[], StreamMarks | None]) -> None:
        """Take the times of a device's kernels from marks in its stream in traced runs.

        Args:
          device: the name of a device whose kernels end after their functions have returned.
          new_marks: returns an empty sequence of marks.
        """
        self._marked_device, self._new_marks = device, new_marks
        for inner in self._segments():
            inner.mark_stream(device, new_marks)

    def cancel(self) -> None:
        """End running loops at their next node, and later ones immediately."""
        self.instructions.clear()
        if self._program is not None:
            self._program.lines.clear()
        segments = self._segments()
        compounds = self._compounds
        self._compounds = ()  # first, since segments of recursive functions lead back here
        for inner in segments:
            inner.cancel()
        for compound in compounds:
            if compound is not None:
                compound.stop()

    def run(self, slots: Slots) -> None:
        """Run all instructions.

        Raises:
          CancelledError: `cancel` was called.
          OpError: a kernel failed; the error names it.
        """
        # The handler is outside the loop. It finds the failed instruction as the last one that the
        # loop has read.
        instruction: Instruction | None = None
        try:
            for instruction in self.instructions:
                function, take, slot, dead = instruction
                slots[slot] = function(*take(slots))
                if dead:
                    for i in dead:
                        slots[i] = None
        except Exception as error:  # because a kernel may raise anything; the location is added
            assert instruction is not None
            raise_located(self._to_op_error(error, instruction, slots))
        # `cancel` clears the list, which ends the loop as if all instructions had run. Only the
        # length tells the two apart.
        if len(self.instructions) != self._count:
            raise _closed_error()

    def run_checked(self, slots: Slots, check: Check) -> None:
        """Run all instructions; call `check` before the first and after each.

        Raises: OpError: a kernel failed, or what `check` raised.
        """
        check()
        for instruction, compound in zip(self.instructions, self._compounds, strict=False):
            function, take, slot, dead = instruction
            try:
                if compound is None:
                    slots[slot] = function(*take(slots))
                else:
                    slots[slot] = compound.call_checked(check, *take(slots))
                check()
            except Exception as error:  # because a kernel may raise anything; the location is added
                raise_located(self._to_op_error(error, instruction, slots))
            for i in dead:
                slots[i] = None
        if len(self.instructions) != self._count:
            raise _closed_error()

    def run_traced(
        self, slots: Slots, log: ThreadLog, check: Check | None = None, ready: int = 0
    ) -> tuple[Sequence[int], list[int]]:
        """Run all instructions, and record a reading of the clock before and after each.

        Args:
          log: log of the current thread.
          check: called before the first instruction and after each, if it is not None.
          ready: when the segment could have started, as a reading of the clock; 0 for now.
        Returns: the slots of results that others use, and a list whose last elements are the times
          at which they are released; 0 for now.
        Raises: OpError: a kernel failed, or what `check` raised.
        """
        if check is not None:
            check()
        program = self._program or self._prepare()
        iteration, sizes = log.iteration, list[int]()
        has_only_static = program.is_static and check is None
        marks = self._new_marks()
        readings: Any = []
        if marks is None:
            readings = begin_readings(self.instructions if has_only_static else program.lines)
        is_native = type(readings) is not list
        try:
            # The native reader reads the clock whenever the loop asks for the next instruction, so
            # this loop can be the one of `run`.
            if has_only_static and is_native:
                for function, take, slot, dead in readings:
                    slots[slot] = function(*take(slots))
                    if dead:
                        for i in dead:
                            slots[i] = None
            elif is_native:
                _run_lines(readings, slots, sizes, log, check)
            else:
                _run_lines(program.lines, slots, sizes, log, check, readings.append, marks)
                readings.append(clock())
        except Exception as error:  # because a kernel may raise anything; the location is added
            # Each instruction reads the clock when it begins, so the last reading belongs to the
            # failed one.
            position = len(readings) - 1
            times = end_readings(readings, failed=True)
            log.runs.append((program, iteration, ready, times, sizes))
            if position >= len(self.instructions):
                raise _closed_error() from error
            raise_located(self._to_op_error(error, self.instructions[position], slots))
        log.runs.append((program, iteration, ready, end_readings(readings), sizes))
        sizes += [0] * len(program.escaping)
        if marks is not None:
            marks.add()
            log.deferred.append(lambda: sizes.extend(marks.times()))
        if len(self.instructions) != self._count:
            raise _closed_error()
        return program.escaping, sizes

    def _prepare(self) -> SegmentProgram:
        """Return the meaning of the readings of a traced run."""
        from weft_exec.tracing.programs import SegmentProgram

        load_native_reader(only_if_imported=True)
        nested = [None if part is None else part.call_traced for part in self._compounds]
        program = SegmentProgram(
            self.instructions, self.nodes, self.devices, nested, self._marked_device
        )
        self._program = program
        return program

    def all_nodes(self) -> list[Node]:
        """Return the nodes that have kernels, including those in loops and branches."""
        nodes: list[Node] = []
        for node, compound in zip(self.nodes, self._compounds, strict=True):
            if compound is None:
                nodes.append(node)
            else:
                for inner in compound.segments:
                    nodes += inner.all_nodes()
        return nodes

    def _segments(self) -> list[Segment]:
        """Return the nested segments of all instructions."""
        return [
            inner
            for compound in self._compounds
            if compound is not None
            for inner in compound.segments
        ]

    def _to_op_error(
        self, error: Exception, instruction: Instruction, slots: Slots
    ) -> errors.OpError:
        if isinstance(instruction[0], Compound):
            assert isinstance(error, errors.OpError), "a segment locates the errors of its kernels"
            return error
        # The loop of `run` counts no positions, so the instruction is found by identity. A canceled
        # segment has none left.
        for position, other in enumerate(self.instructions):
            if other is instruction:
                inputs = instruction[1](slots)
                return to_op_error(error, self.nodes[position], self.devices[position], inputs)
        return _closed_error()


def _run_lines(
    lines: Iterable[Any],
    slots: Slots,
    sizes: list[int],
    log: ThreadLog,
    check: Check | None,
    append: Callable[[int], None] | None = None,
    marks: StreamMarks | None = None,
) -> None:
    """Run the lines of a `SegmentProgram`.

    Args:
      sizes: receives the bytes of results without static sizes.
      append: receives a reading of the clock before each line, unless iterating over them reads it.
      marks: receives a mark before each line.
    """
    for function, take, slot, dead, kind in lines:
        if append is not None:
            append(clock())
        if marks is not None:
            marks.add()
        if kind == 0:  # the sizes of the results are known
            slots[slot] = function(*take(slots))
        elif kind == 1:
            slots[slot] = function(*take(slots))
            if type(slot) is slice:
                sizes += map(bytes_of, slots[slot])
            else:
                sizes.append(bytes_of(slots[slot]))
        else:
            slots[slot] = function(log, check, *take(slots))
        if check is not None:
            check()
        if dead:
            for i in dead:
                slots[i] = None


def _no_marks() -> None:
    """Return None, because kernels have ended when their functions return."""


def _as_compound(function: Callable[..., Any]) -> Compound | None:
    return function if isinstance(function, Compound) else None


def _closed_error() -> errors.CancelledError:
    return errors.CancelledError("the session was closed while the step ran")


def check_predicate(pred: Any, node: Node) -> None:
    """Raise InvalidArgumentError unless the predicate computed by `node` is a single bool."""
    if pred.shape:
        raise errors.InvalidArgumentError(
            f"a predicate must have rank 0, got shape {tuple(pred.shape)}",
            op=node.type,
            node=node.name,
            line=node.line or None,
        )
