"""The events of each step, and the order of events on each lane."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from weft_trace.analysis.dependencies import Dependencies
from weft_trace.schema import NO_STEP, Flag, Kind
from weft_trace.trace import Trace

OCCUPYING: Final = frozenset({
    Kind.PHASE, Kind.KERNEL, Kind.REGION, Kind.COPY, Kind.PYTHON, Kind.CHECKPOINT
})  # fmt: skip
"""Kinds of events that keep their thread busy."""

_PARTS: Final = (Kind.STEP, Kind.GENERATED, Kind.BUFFER)


class StepSpan(NamedTuple):
    """The measured interval of a step.

    Attributes:
      step: its id.
      event: index of its event of the kind STEP.
      start, end: of that event.
    """

    step: int
    event: int
    start: int
    end: int

    @property
    def duration(self) -> int:
        """Nanoseconds."""
        return self.end - self.start


class StepIndex:
    """The events of a trace by step and by lane.

    Args:
      trace: the trace.
    """

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        events = trace.events
        self.kinds = np.ascontiguousarray(events["kind"])
        self.starts = np.ascontiguousarray(events["start"])
        self.ends = np.ascontiguousarray(events["end"])
        self.lanes = np.ascontiguousarray(events["lane"])
        self.nodes = np.ascontiguousarray(events["node"])
        self._steps = np.ascontiguousarray(events["step"])
        self._by_step = np.argsort(self._steps, kind="stable")
        bounds = np.arange(len(trace.steps) + 1, dtype=self._steps.dtype)
        self._offsets = np.searchsorted(self._steps[self._by_step], bounds)
        lanes = np.array([lane.process for lane in trace.lanes] or [0])
        self.processes = lanes[self.lanes] if len(events) else np.zeros(0, np.int64)

    def spans(self) -> list[StepSpan]:
        """Return the steps that ended, in the order in which they started."""
        step_events = np.flatnonzero((self.kinds == Kind.STEP) & (self._steps != NO_STEP))
        return [
            StepSpan(int(self._steps[i]), int(i), int(self.starts[i]), int(self.ends[i]))
            for i in step_events
        ]

    def events_of(self, step: int) -> NDArray[np.intp]:
        """Return the indices of the events of a step, sorted by start."""
        return self._by_step[self._offsets[step] : self._offsets[step + 1]]

    def executions_of(self, step: int) -> NDArray[np.intp]:
        """Return the events of a step that are not parts of others, sorted by start.

        Left out are the step itself, buffers, and the parts of regions.
        """
        events = self.events_of(step)
        kinds = self.kinds[events]
        is_estimate = (self.trace.events["flags"][events] & Flag.ESTIMATED) != 0
        executions = events.compress(~np.isin(kinds, _PARTS) & ~is_estimate)
        return executions.compress(~self._mark_containers(executions))

    def _mark_containers(self, events: NDArray[np.intp]) -> NDArray[np.bool_]:
        """Return which events are phases or checkpoints around other events of their thread."""
        kinds, lanes = self.kinds[events], self.lanes[events]
        starts, ends = self.starts[events], self.ends[events]
        result = np.zeros(len(events), bool)
        is_busy = np.isin(kinds, list(OCCUPYING))
        for i in np.flatnonzero((kinds == Kind.PHASE) | (kinds == Kind.CHECKPOINT)):
            in_container = is_busy & (lanes == lanes[i]) & (starts >= starts[i]) & (ends <= ends[i])
            in_container[i] = False
            result[i] = in_container.any()
        return result

    def lane_predecessors(self) -> NDArray[np.intp]:
        """Return, for each event, the last one that kept its thread busy before it, or -1."""
        occupying = np.zeros(256, bool)
        occupying[list(OCCUPYING)] = True
        is_busy = occupying[self.kinds] & ((self.trace.events["flags"] & Flag.ESTIMATED) == 0)
        busy = np.flatnonzero(is_busy)
        busy = busy[np.argsort(self.lanes[busy], kind="stable")]
        result = np.full(len(self.kinds), -1, np.intp)
        is_same_lane = self.lanes[busy[1:]] == self.lanes[busy[:-1]]
        ends_before = self.ends[busy[:-1]] <= self.starts[busy[1:]]
        result[busy[1:]] = np.where(is_same_lane & ends_before, busy[:-1], -1)
        return result


def find_sequences(index: StepIndex, events: NDArray[np.intp]) -> dict[int, int]:
    """Return, for each event of a step, the first event of its sequence.

    Cheap nodes run as a sequence, which starts when all its nodes have their inputs. Its events
    follow each other without a gap. Their ready time is the ready time of the first one, or their
    own start.

    Args:
      events: the events of the step, sorted by start.
    """
    heads = {event: event for event in events.tolist()}
    latest: dict[int, tuple[int, int]] = {}
    ready = index.trace.events["ready"]
    for event in heads:
        kind = int(index.kinds[event])
        if kind not in OCCUPYING:
            continue
        lane, start = int(index.lanes[event]), int(index.starts[event])
        head, end = latest.get(lane, (event, -1))
        is_member = kind != Kind.PHASE and start == end and ready[event] in (start, ready[head])
        heads[event] = head if is_member else event
        latest[lane] = heads[event], int(index.ends[event])
    return heads


def find_producers(
    index: StepIndex,
    span: StepSpan,
    heads: dict[int, int],
    dependencies: Dependencies,
) -> dict[int, list[int]]:
    """Return, for each event of a step, the events that it waited for.

    These are the producers of its inputs; for the first event of a sequence, those of all events
    in it; and for work without inputs on another thread, the previous event of the calling thread.

    Args:
      heads: `find_sequences` of the events of the step.
    """
    producers = {event: dependencies.of(event).tolist() for event in heads}
    ready = index.trace.events["ready"]
    caller_lane = index.lanes[span.event]
    caller = -1
    for event, head in heads.items():
        if head != event:
            producers[head] += [p for p in producers[event] if index.ends[p] <= ready[head]]
        if index.lanes[event] == caller_lane and index.kinds[event] in OCCUPYING:
            caller = event
        elif (
            caller >= 0
            and not producers[event]
            and index.processes[event] == index.processes[span.event]
            and index.ends[caller] <= ready[event]
        ):
            producers[event].append(caller)
    return {event: list(dict.fromkeys(causes)) for event, causes in producers.items()}


def representative_steps(index: StepIndex, limit: int = 8) -> list[StepSpan]:
    """Return, for each label, the step of median duration; labels of the longest total first.

    The first step of a label, which plans and compiles, is used only if there is no other.
    """
    labels: dict[str, list[StepSpan]] = {}
    for span in index.spans():
        labels.setdefault(index.trace.steps[span.step].label, []).append(span)
    totals = sorted(labels.values(), key=lambda spans: -sum(span.duration for span in spans))
    medians = []
    for spans in totals[:limit]:
        later = [span for span in spans if index.trace.steps[span.step].number > 0] or spans
        later.sort(key=lambda span: span.duration)
        medians.append(later[(len(later) - 1) // 2])
    return medians
