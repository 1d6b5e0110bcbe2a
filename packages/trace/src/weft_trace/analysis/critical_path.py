"""The critical path of a step: the chain of events that determined when it ended.

The path is followed backwards from the end of the step. Each event started when the last of its
inputs was there and a thread was free; the last of these is its cause. Every nanosecond of the
step belongs to one segment of the path.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from weft_trace.analysis.categories import Category, category_of
from weft_trace.analysis.dependencies import Dependencies, resolve_dependencies
from weft_trace.analysis.steps import StepIndex, StepSpan, find_producers, find_sequences
from weft_trace.schema import Kind


class Segment(NamedTuple):
    """A part of a critical path.

    Attributes:
      start, end: its interval.
      category: category of the time.
      event: index of the event that it is a part of, or that it delayed; -1 if there is none.
    """

    start: int
    end: int
    category: Category
    event: int


class CriticalPath(NamedTuple):
    """The critical path of a step.

    Attributes:
      span: the step.
      events: indices of the events on the path, from its first.
      segments: parts that follow each other and cover the step.
    """

    span: StepSpan
    events: Sequence[int]
    segments: Sequence[Segment]

    def by_category(self) -> dict[Category, int]:
        """Return the nanoseconds of each category; together they are the step's duration."""
        totals = dict.fromkeys(Category, 0)
        for segment in self.segments:
            totals[segment.category] += segment.end - segment.start
        return totals


def find_critical_path(
    index: StepIndex,
    span: StepSpan,
    dependencies: Dependencies | None = None,
    predecessors: NDArray[np.intp] | None = None,
) -> CriticalPath:
    """Find the critical path of a step.

    Args:
      index: index of the trace.
      span: the step.
      dependencies: at least of the events of the step; by default they are resolved here.
      predecessors: `index.lane_predecessors()`, if it is known already.
    """
    events = index.executions_of(span.step)
    if dependencies is None:
        dependencies = resolve_dependencies(index.trace, events)
    if predecessors is None:
        predecessors = index.lane_predecessors()
    return _Walk(index, span, events, dependencies, predecessors).run()


class _Walk:
    """The walk from the end of a step to its start."""

    def __init__(
        self,
        index: StepIndex,
        span: StepSpan,
        events: NDArray[np.intp],
        dependencies: Dependencies,
        predecessors: NDArray[np.intp],
    ) -> None:
        self._index = index
        self._span = span
        self._heads = find_sequences(index, events)
        self._producers = find_producers(index, span, self._heads, dependencies)
        self._predecessors = predecessors
        self._by_end = events[np.argsort(index.ends[events], kind="stable")]
        self._sorted_ends = index.ends[self._by_end]
        self._members = set(events.tolist())
        self._receives = {
            int(p): int(e)
            for e in events[index.kinds[events] == Kind.RECEIVE]
            for p in self._producers[int(e)]
            if index.kinds[p] == Kind.TRANSFER
        }
        self._time = span.end
        self._path: list[int] = []
        self._segments: list[Segment] = []

    def run(self) -> CriticalPath:
        """Follow the path, and return it."""
        event = self._find_last_before(self._span.end, -1)
        category = Category.PYTHON
        visited: set[int] = set()
        while event >= 0 and event not in visited and self._time > self._span.start:
            visited.add(event)
            self._path.append(event)
            self._cut(int(self._index.ends[event]), category, self._path[-2:][0])
            event, category = self._leave(event)
        self._cut(self._span.start, self._root_category(), self._path[-1] if self._path else -1)
        return CriticalPath(self._span, self._path[::-1], self._segments[::-1])

    def _cut(self, start: int, category: Category, event: int) -> None:
        """Add the segment from a time to the time of the walk, and move the walk to its start."""
        start = max(start, self._span.start)
        if start < self._time:
            self._segments.append(Segment(start, self._time, category, event))
            self._time = start

    def _root_category(self) -> Category:
        """Return the category of the time between the start of the step and the first event."""
        if not self._path:
            return Category.PYTHON
        index, first = self._index, self._path[-1]
        is_caller = index.processes[first] == index.processes[self._span.event]
        return Category.PYTHON if is_caller else Category.WIRE

    def _leave(self, event: int) -> tuple[int, Category]:
        """Add the segment of an event.

        Returns: its cause, or -1, and the category of the time between both.
        """
        kind = self._index.kinds[event]
        if kind == Kind.RECEIVE:
            return self._leave_receive(event)
        node = self._index.trace.nodes[self._index.nodes[event]]
        self._cut(int(self._index.starts[event]), category_of(int(kind), node), event)
        if kind == Kind.TRANSFER:
            return self._leave_transfer(event)
        return self._cause_of_start(event)

    def _leave_receive(self, event: int) -> tuple[int, Category]:
        source = self._latest(event, int(self._index.ends[event]))
        if source >= 0 and self._index.ends[source] > self._index.starts[event]:
            return source, Category.WIRE
        self._cut(int(self._index.starts[event]), Category.PEER, event)
        return self._cause_of_start(event)

    def _leave_transfer(self, event: int) -> tuple[int, Category]:
        index = self._index
        send = self._latest(event, int(index.starts[event]))
        requested = int(index.trace.events["ready"][event])
        receive = self._receives.get(event, -1)
        if receive >= 0 and (send < 0 or index.ends[send] < requested):
            self._path.append(receive)
            self._cut(int(index.starts[receive]), Category.WIRE, event)
            return self._cause_of_start(receive)
        return send, Category.WIRE

    def _cause_of_start(self, event: int) -> tuple[int, Category]:
        index = self._index
        start = int(index.starts[event])
        if index.kinds[event] == Kind.PHASE:
            return self._find_last_before(start, event), Category.PYTHON
        ready = int(index.trace.events["ready"][event])
        predecessor = int(self._predecessors[event])
        if self._heads[event] != event:
            return predecessor, Category.QUEUEING
        producer = self._latest(event, start)
        if predecessor >= 0 and index.ends[predecessor] > ready and predecessor in self._members:
            return predecessor, Category.QUEUEING
        if producer >= 0:
            return producer, Category.QUEUEING
        # A root: it waits for the phases before it, or for the request to run this task's part.
        phase = self._find_last_before(ready, event, (Kind.PHASE,))
        is_local = phase >= 0 and index.processes[phase] == index.processes[event]
        return phase, Category.PYTHON if is_local else Category.WIRE

    def _latest(self, event: int, limit: int) -> int:
        """Return the producer that ended last, but not after a time; -1 if there is none."""
        producers = np.array(self._producers[event], np.intp)
        if self._index.kinds[event] == Kind.RECEIVE and limit < self._index.ends[event]:
            kinds = self._index.kinds[producers]  # transfers come after its start
            producers = producers[kinds != Kind.TRANSFER]
        if not len(producers):
            return -1
        ends = np.minimum(self._index.ends[producers], limit + self._tolerance(event))
        ends = np.where(ends == self._index.ends[producers], ends, -1)
        best = int(np.argmax(ends))
        return int(producers[best]) if ends[best] >= 0 else -1

    def _tolerance(self, event: int) -> int:
        """Return the maximum disagreement of clocks with the clock of an event, in nanoseconds."""
        process = self._index.trace.processes[int(self._index.processes[event])]
        return 2 * process.clock_error

    def _find_last_before(self, time: int, event: int, kinds: tuple[Kind, ...] = ()) -> int:
        """Return the event of the step that ended last before a time; -1 if there is none."""
        i = int(np.searchsorted(self._sorted_ends, time, "right")) - 1
        while i >= 0:
            candidate = int(self._by_end[i])
            if candidate != event and (not kinds or self._index.kinds[candidate] in kinds):
                return candidate
            i -= 1
        return -1
