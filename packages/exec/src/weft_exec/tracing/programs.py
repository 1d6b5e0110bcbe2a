"""The meaning of the readings that traced code records.

A program describes the readings of one execution of some code: which events they bound, and what is
known of these in advance. Readings of many executions are decoded together, as the rows of an
array.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from itertools import accumulate
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from weft_exec.tracing.step_trace import FAILED
from weft_graph.ir.traits import Role
from weft_tensor import dtypes

if TYPE_CHECKING:
    from weft_graph.ir.node import Node, Output

Readings = NDArray[np.int64]
"""Readings of executions of one program, one row each."""

STATIC, DYNAMIC, NESTED = range(3)
"""Kinds of traced instructions: results of static size, measured results, or segments."""

_LEAST_BUFFER = 4096
"""Minimum number of bytes of a result for which its buffer is recorded."""


class Event(NamedTuple):
    """The static properties of an event.

    Attributes:
      kind: a `weft_trace.schema.Kind`.
      node: the node that runs; None for a generated kernel or a compiled loop.
      device: name of its device.
      members: the nodes that it computes if it is not a single node.
      name, op: name and op of a generated kernel or a compiled loop.
      estimated: True if its times are shares of a measured time.
      lane: name of the device whose lane shows it; "" for the thread's lane.
    """

    kind: int
    node: Node | None
    device: str
    members: tuple[Node, ...] = ()
    name: str = ""
    op: str = ""
    estimated: bool = False
    lane: str = ""


class Decoded(NamedTuple):
    """The events of executions of a program; each array has one row for each execution.

    Attributes:
      start, end, ready: readings of the clock, one column for each event.
      input_bytes, output_bytes: likewise; -1 if unknown.
    """

    start: Readings
    end: Readings
    ready: Readings
    input_bytes: Readings
    output_bytes: Readings


class Buffers(NamedTuple):
    """The buffers of the results of a program.

    Attributes:
      events: positions of the events that allocate them.
      start, end: readings of the clock at allocation and release, one column per buffer.
      sizes: sizes in bytes, one column per buffer.
    """

    events: Sequence[int]
    start: Readings
    end: Readings
    sizes: Readings


class Program(ABC):
    """The meaning of the readings of one execution.

    Attributes:
      events: in the order of the columns of `Decoded`.
      width: number of readings of the clock of a complete execution.
      num_sizes: number of sizes of results of a complete execution, which follow the readings.
    """

    events: Sequence[Event]
    width: int
    num_sizes = 0

    @abstractmethod
    def decode(self, readings: Readings, ready: Readings) -> Decoded:
        """Return the events of some executions.

        Args:
          readings: int64 [executions, width + num_sizes].
          ready: int64 [executions]: when each could have started.
        """

    def buffers(self, readings: Readings, decoded: Decoded) -> Buffers | None:
        """Return the buffers of the results, or None if they are unknown."""
        return None

    def member_times(self, readings: Readings) -> list[tuple[Node, int, int]]:
        """Return estimated times of nodes without separate events, in one execution."""
        return []

    def sizes(self, readings: Readings, position: int) -> tuple[int, ...]:
        """Return the bytes of each output of an event of one execution; empty if unknown."""
        return ()

    def row(self, readings: NDArray[np.int64], sizes: Sequence[int]) -> tuple[Readings, int, bool]:
        """Return the readings and sizes of one execution as a row.

        An execution that was interrupted has fewer; its row is filled up.

        Returns: the row, how many of the events have ended, and whether the last one failed.
        """
        failed = len(readings) > 1 and readings[-1] == FAILED
        readings = readings[:-1] if failed else readings
        num_events = self.num_ended(len(readings))
        row = np.zeros((1, self.width + self.num_sizes), np.int64)
        row[0, : self.width] = readings[-1]
        row[0, : len(readings)] = readings[: self.width]
        row[0, self.width : self.width + len(sizes)] = sizes
        return row, num_events, bool(failed)

    def num_ended(self, num_readings: int) -> int:
        """Return the number of events that have ended after so many readings."""
        return len(self.events) if num_readings >= self.width else 0


class SegmentProgram(Program):
    """Instructions that run one after the other, with a reading before each and after the last.

    An instruction whose results have no static sizes adds the bytes of each of its outputs to the
    sizes. The times at which others have released its results follow, 0 if they are unknown. If a
    device's kernels end after their functions have returned, the times of marks in its
    stream follow, one for each reading: a kernel begins when it was launched and the kernels before
    it have ended.

    Args:
      instructions, nodes, devices: contents of the segment.
      nested: the traced function of each instruction that has segments, else None.
      marked_device: the device with marks; "" for none.
    Attributes:
      lines: the instructions with their kind; the list is emptied to cancel them.
      is_static: True if all instructions are of the kind STATIC.
      escaping: the slots of results that other segments use.
    """

    def __init__(
        self,
        instructions: Sequence[tuple[Callable[..., Any], Any, Any, tuple[int, ...]]],
        nodes: Sequence[Node],
        devices: Sequence[str],
        nested: Sequence[Callable[..., Any] | None],
        marked_device: str = "",
    ) -> None:
        self.lines: list[tuple[Callable[..., Any], Any, Any, tuple[int, ...], int]] = []
        events: list[Event] = []
        columns: list[tuple[int, int, tuple[int, ...]]] = []
        slots: dict[int, tuple[int, int]] = {}  # from slot to its event and the index in `sizes`
        freed: dict[int, int] = {}  # from slot to the column in which it is cleared
        self.width = len(instructions) + 1
        column = 0
        for (function, take, slot, dead), node, device, compound in zip(
            instructions, nodes, devices, nested, strict=True
        ):
            previous, column = column, column + 1
            sizes: tuple[int, ...] = ()
            if compound is not None:
                self.lines.append((compound, take, slot, dead, NESTED))
            else:
                kind = _size_kind(node, slot)
                if kind is DYNAMIC:
                    count = slot.stop - slot.start if isinstance(slot, slice) else 1
                    first = self.width + self.num_sizes
                    sizes = tuple(range(first, first + count))
                    self.num_sizes += count
                for output_slot in _slots(slot):
                    slots[output_slot] = len(events), column
                columns.append((previous, column, sizes))
                lane = device if device == marked_device else ""
                events.append(Event(_KERNEL, node, device, lane=lane))
                self.lines.append((function, take, slot, dead, kind))
            for cleared in dead:
                if cleared in slots:
                    freed[cleared] = column
        self.events = tuple(events)
        self.is_static = not marked_device and all(line[4] == STATIC for line in self.lines)
        self._starts = np.array([start for start, _, _ in columns], np.intp)
        self._ends = np.array([end for _, end, _ in columns], np.intp)
        self._size_columns = [sizes for _, _, sizes in columns]
        self._prepare_inputs()
        self._prepare_outputs()
        self._prepare_lifetimes({slot: index for slot, (index, _) in slots.items()}, freed)
        self._marked = np.flatnonzero([event.lane != "" for event in events])
        self._first_mark = self.width + self.num_sizes
        self.num_sizes += self.width if marked_device else 0

    def _prepare_inputs(self) -> None:
        """Find the events that each event waits for, and the sizes of its inputs."""
        position: dict[Node, int] = {}
        flat: list[int] = []
        self._offsets = np.zeros(len(self.events), np.intp)
        self._static_inputs = np.zeros(len(self.events), np.int64)
        self._dynamic_inputs: list[tuple[int, int]] = []
        for index, event in enumerate(self.events):
            assert event.node is not None
            self._offsets[index] = len(flat)
            flat.append(-1)  # the time at which the whole could have started
            for source in sources_of(event.node):
                if source in position:
                    flat.append(int(self._ends[position[source]]))
            for output in event.node.inputs:
                self._add_input(index, output, position)
            position[event.node] = index
        self._waits = np.array(flat, np.intp)

    def _add_input(self, index: int, output: Output, position: dict[Node, int]) -> None:
        size = static_bytes(output)
        if size < 0:
            source = position.get(output.node, -1)
            columns = self._size_columns[source] if source >= 0 else ()
            if output.index >= len(columns):
                self._static_inputs[index] = _UNKNOWN
            else:
                self._dynamic_inputs.append((index, columns[output.index]))
        else:
            self._static_inputs[index] += size

    def _prepare_outputs(self) -> None:
        nodes = [event.node for event in self.events]
        self._static_outputs = np.array(
            [
                0 if columns or node is None else sum(map(static_bytes, node.outputs))
                for node, columns in zip(nodes, self._size_columns, strict=True)
            ],
            np.int64,
        )
        self._owners = [
            index
            for index, node in enumerate(nodes)
            if node is not None and node.outputs and node.traits.view is None and _owns_memory(node)
        ]

    def _prepare_lifetimes(self, slots: Mapping[int, int], freed: Mapping[int, int]) -> None:
        """Find the columns with the release times of each event's results.

        Args:
          slots: the event of each slot.
          freed: the column of slots that an instruction clears.
        """
        owners = set(self._owners)
        self.escaping = [slot for slot in slots if slots[slot] in owners and slot not in freed]
        columns: dict[int, list[int]] = {}
        for slot, index in slots.items():
            columns.setdefault(index, []).append(freed.get(slot, self.width - 1))
        for column, slot in enumerate(self.escaping, self.width + self.num_sizes):
            columns[slots[slot]].append(column)
        self.num_sizes += len(self.escaping)
        self._releases = [columns.get(index, [self.width - 1]) for index in self._owners]

    def decode(self, readings: Readings, ready: Readings) -> Decoded:
        """See the base class."""
        start, end = readings[:, self._starts], readings[:, self._ends]
        if not len(self.events):
            return Decoded(start, end, start, start, start)
        if len(self._marked):
            start, end = start.copy(), end.copy()
            self._take_marks(readings[:, self._first_mark :], start, end)
        waits = np.where(self._waits < 0, ready[:, None], readings[:, self._waits])
        begin_times = np.maximum.reduceat(waits, self._offsets, axis=1)
        outputs = np.broadcast_to(self._static_outputs, start.shape)
        inputs = np.broadcast_to(self._static_inputs, start.shape)
        if any(self._size_columns):
            outputs = outputs.copy()
            for index, columns in enumerate(self._size_columns):
                for column in columns:
                    outputs[:, index] += readings[:, column]
        if self._dynamic_inputs:
            inputs = inputs.copy()
            for index, column in self._dynamic_inputs:
                inputs[:, index] += readings[:, column]
        return Decoded(start, end, np.minimum(begin_times, start), np.maximum(inputs, -1), outputs)

    def _take_marks(self, marks: Readings, start: Readings, end: Readings) -> None:
        """Replace the times of a device's kernels by the times of its marks, where known."""
        columns = self._marked
        begun = np.maximum(start[:, columns], marks[:, self._starts[columns]])
        ended = np.maximum(begun, marks[:, self._ends[columns]])
        is_known = marks[:, -1:] > 0
        start[:, columns] = np.where(is_known, begun, start[:, columns])
        end[:, columns] = np.where(is_known, ended, end[:, columns])

    def buffers(self, readings: Readings, decoded: Decoded) -> Buffers | None:
        """See the base class."""
        if not self._owners:
            return None
        sizes = decoded.output_bytes[:, self._owners]
        large = np.flatnonzero((sizes >= _LEAST_BUFFER).any(axis=0))
        if not len(large):
            return None
        events = [self._owners[index] for index in large]
        ends = np.stack([readings[:, self._releases[i]].max(axis=1) for i in large], axis=1)
        return Buffers(events, decoded.end[:, events], ends, sizes[:, large])

    def sizes(self, readings: Readings, position: int) -> tuple[int, ...]:
        """See the base class."""
        columns = self._size_columns[position]
        if columns:
            return tuple([int(readings[0, column]) for column in columns])
        node = self.events[position].node
        return () if node is None else tuple(map(static_bytes, node.outputs))

    def num_ended(self, num_readings: int) -> int:
        """See the base class."""
        return int(np.searchsorted(self._ends, num_readings))


class SharedProgram(Program):
    """Nodes that were computed together: two readings around them.

    The call is an event of the kind REGION. The nodes have estimated shares of its time, one after
    the other.

    Args:
      whole: the event of the whole.
      shares: the estimated fraction of the time of each member, 1 in total.
      outputs: outputs of its members that are stored in memory.
    """

    def __init__(
        self, event: Event, shares: Iterable[float], outputs: Sequence[Output] = ()
    ) -> None:
        members, device = event.members, event.device
        self.events = (
            event,
            *[
                Event(_KERNEL, member, device, estimated=True, lane=event.lane)
                for member in members
            ],
        )
        self.width = 2
        self._bounds = np.concatenate([[0.0, 1.0], np.cumsum([*shares])])
        stored = set(outputs)
        sizes = [
            sum([max(static_bytes(output), 0) for output in member.outputs if output in stored])
            for member in members
        ]
        self._sizes = np.array([sum(sizes), *sizes], np.int64)
        self._stored = stored

    def decode(self, readings: Readings, ready: Readings) -> Decoded:
        """See the base class."""
        begin, duration = readings[:, :1], readings[:, 1:] - readings[:, :1]
        bounds = begin + np.rint(duration * self._bounds).astype(np.int64)
        start = np.concatenate([begin, bounds[:, :1], bounds[:, 2:-1]], axis=1)
        end = bounds[:, 1:]
        unknown = np.full(start.shape, -1, np.int64)
        first = start.copy()
        first[:, 0] = np.minimum(ready, start[:, 0])
        return Decoded(start, end, first, unknown, np.broadcast_to(self._sizes, start.shape))

    def sizes(self, readings: Readings, position: int) -> tuple[int, ...]:
        """See the base class."""
        node = self.events[position].node
        if node is None or not all(output in self._stored for output in node.outputs):
            return ()  # never stored in memory
        return tuple(map(static_bytes, node.outputs))


class GeneratedProgram(Program):
    """A region whose generated kernels were recorded.

    Its readings are one before the region, one before the first kernel, one after each kernel, and
    one after the region.

    Args:
      whole: the event of the region.
      num_kernels: number of its generated kernels.
      kernels: returns the nodes of each; called when they are first needed, since this may take
        long. If it returns another number of kernels, the kernels have no members.
      shares: returns the estimated fraction of the time of each of some nodes, 1 in total.
    """

    def __init__(
        self,
        event: Event,
        num_kernels: int,
        kernels: Callable[[], Sequence[Sequence[Node]]],
        shares: Callable[[Sequence[Node]], Mapping[Node, float]],
    ) -> None:
        self.width = num_kernels + 3
        self._event = event
        self._num_kernels = num_kernels
        self._kernels = kernels
        self._shares = shares

    @cached_property
    def events(self) -> Sequence[Event]:  # type: ignore[override]
        """See the base class."""
        kernels = self._kernels()
        if len(kernels) != self._num_kernels:
            kernels = [()] * self._num_kernels
        name, device = self._event.members[-1].name, self._event.device
        return (
            self._event,
            *[
                Event(
                    _GENERATED, None, device, tuple(nodes),
                    f"{nodes[-1].name if nodes else name}/kernel{index}", "_Generated",
                )
                for index, nodes in enumerate(kernels)
            ],
        )  # fmt: skip

    def decode(self, readings: Readings, ready: Readings) -> Decoded:
        """See the base class."""
        start = np.concatenate([readings[:, :1], readings[:, 1:-2]], axis=1)
        end = np.concatenate([readings[:, -1:], readings[:, 2:-1]], axis=1)
        first = start.copy()
        first[:, 0] = np.minimum(ready, start[:, 0])
        unknown = np.full(start.shape, -1, np.int64)
        return Decoded(start, end, first, unknown, unknown)

    def member_times(self, readings: Readings) -> list[tuple[Node, int, int]]:
        """See the base class."""
        seconds = dict.fromkeys(self._event.members, 0.0)
        kernels = zip(self.events[1:], np.diff(readings[0, 1:-1]).tolist(), strict=True)
        for event, duration in kernels:
            for node, share in self._shares(event.members or self._event.members).items():
                seconds[node] += share * duration
        total = sum(seconds.values()) or 1.0
        duration = int(readings[0, -1] - readings[0, 0])
        shares = [second / total for second in seconds.values()]
        return lay_out_members(self._event.members, shares, int(readings[0, 0]), duration)


def lay_out_members(
    nodes: Sequence[Node], shares: Iterable[float], start: int, duration: int
) -> list[tuple[Node, int, int]]:
    """Return the start and the end of each node, one after the other, by its share of a time."""
    bounds = [start + round(share * duration) for share in accumulate(shares, initial=0.0)]
    return list(zip(nodes, bounds, bounds[1:], strict=False))


class _LastReadings(threading.local):
    """The readings of the last traced call of the current thread.

    Attributes:
      program: their meaning; None if there are none.
    """

    program: GeneratedProgram | None = None
    readings: Any = ()


_recorded = _LastReadings()


def note_readings(program: GeneratedProgram, readings: Any) -> None:
    """Record the readings of a traced call in this thread.

    The first and the last are those around the region, which the caller sets.
    """
    _recorded.program, _recorded.readings = program, readings


def take_readings() -> tuple[GeneratedProgram, Any] | None:
    """Return the readings of the last traced call in this thread, once."""
    program = _recorded.program
    if program is None:
        return None
    _recorded.program = None
    return program, _recorded.readings


# Values of `weft_trace.schema.Kind`, which is imported with the first trace.
_KERNEL, _REGION, _GENERATED = 2, 3, 4


def region_event(node: Node, members: Sequence[Node], device: str, lane: str = "") -> Event:
    """Return the event of a region."""
    return Event(_REGION, node, device, tuple(members), lane=lane)


def loop_event(name: str, members: Sequence[Node], device: str) -> Event:
    """Return the event of a loop that one function computes."""
    return Event(_REGION, None, device, tuple(members), name, "_Loop")


_UNKNOWN = -(1 << 60)
"""Size of the inputs of an event if one of them is unknown."""

_NO_KERNEL = frozenset(
    {Role.SWITCH, Role.MERGE, Role.ENTER, Role.EXIT, Role.NEXT_ITERATION, Role.LOOP_COND}
)


def sources_of(node: Node) -> Iterable[Node]:
    """Yield the nodes that a node waits for in its iteration, skipping nodes without kernels."""
    visited = {node}
    stack = [output.node for output in node.inputs]
    stack += node.controls
    while stack:
        source = stack.pop()
        if source in visited:
            continue
        visited.add(source)
        yield source
        if source.role in _NO_KERNEL and source.role not in (Role.MERGE, Role.EXIT):
            stack += [output.node for output in source.inputs]


def static_bytes(output: Output) -> int:
    """Return the bytes of an output with a static shape, else -1; 0 for handles."""
    dtype, dims = output.dtype, output.dims
    if dtype in (dtypes.resource, dtypes.variant):
        return 0
    if dims is None or None in dims:
        return -1
    return prod(dims) * dtype.size  # type: ignore[arg-type]


def _size_kind(node: Node, slot: int | slice) -> int:
    """Return the kind of an instruction with a kernel."""
    num_slots = slot.stop - slot.start if isinstance(slot, slice) else int(slot != 0)
    if not num_slots:
        return STATIC
    if num_slots != len(node.outputs):  # a read of a variable, say
        return DYNAMIC
    is_static = all(static_bytes(output) >= 0 for output in node.outputs)
    return STATIC if is_static else DYNAMIC


def _slots(slot: int | slice) -> range:
    if isinstance(slot, slice):
        return range(slot.start, slot.stop)
    return range(slot, slot + 1) if slot else range(0)


def _owns_memory(node: Node) -> bool:
    """Return True if the results of a node have their own memory."""
    if node.role in (Role.VARIABLE, Role.READ) or node.role in _NO_KERNEL:
        return False
    return not any(output.dtype.is_ref for output in node.outputs)
