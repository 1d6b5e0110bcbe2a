"""Predictions of the duration of a step with changed durations, by replaying the recording.

The replay starts each event when its inputs have ended and a thread of its pool is free, as the
program did, with the delays between them as recorded. Threads take waiting events first come,
first served, or in the recorded order if that explains the step better. A Receive ends after its
transfer; a transfer starts after its Send and its Receive. Links have no queue, unless a change
limits their bandwidth.
"""

from __future__ import annotations

import heapq
import re
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from weft_trace.analysis.changes import Change, link_names, match_events
from weft_trace.analysis.dependencies import Dependencies, resolve_dependencies
from weft_trace.analysis.steps import OCCUPYING, StepIndex, StepSpan, find_producers, find_sequences
from weft_trace.errors import TraceError
from weft_trace.schema import Flag, Kind

_NUMBER: Final = re.compile(r"[-_ .:]*\d+$")
_READY, _END = 0, 1


class Prediction(NamedTuple):
    """The predicted duration of a step.

    Attributes:
      recorded: the duration of the recorded step, in nanoseconds.
      replayed: the duration of the replay without changes; it shows how well the model fits.
      predicted: the recorded one, multiplied by the ratio of the replays with and without changes.
    """

    recorded: int
    replayed: int
    predicted: int


class Replay:
    """The recorded dependency graph of a step.

    Args:
      index: index of the trace.
      span: the step.
      dependencies: at least of the events of the step; by default they are resolved here.
      predecessors: `index.lane_predecessors()`, if it is known already.
    """

    def __init__(
        self,
        index: StepIndex,
        span: StepSpan,
        dependencies: Dependencies | None = None,
        predecessors: NDArray[np.intp] | None = None,
    ) -> None:
        self._index = index
        self._span = span
        events = index.executions_of(span.step)
        if dependencies is None:
            dependencies = resolve_dependencies(index.trace, events)
        if predecessors is None:
            predecessors = index.lane_predecessors()
        heads = find_sequences(index, events)
        producers = find_producers(index, span, heads, dependencies)
        self._members: dict[int, list[int]] = {}
        for event, head in heads.items():
            self._members.setdefault(head, []).append(event)
        # A sequence of nodes is replayed as one event.
        events = np.array(list(self._members), np.intp)
        self._events = events
        self._positions = {
            event: i for i, members in enumerate(self._members.values()) for event in members
        }
        # Times are relative to the step: floats have no nanoseconds since the epoch.
        self._starts: list[int] = (index.starts[events] - span.start).tolist()
        lasts = np.array([members[-1] for members in self._members.values()], np.intp)
        self._ends: list[int] = (index.ends[lasts] - span.start).tolist()
        self._ready: list[int] = (index.trace.events["ready"][events] - span.start).tolist()
        self._kinds: list[int] = index.kinds[events].tolist()
        self._link_inputs(producers)
        self._group_lanes()
        self._measure_lags(predecessors)
        self._find_components()
        self._is_fifo = True
        self._replayed = self._simulate(self._durations(()), ())
        if self._replayed != span.duration:
            self._try_recorded_order()

    @property
    def num_events(self) -> int:
        """Number of events of the step."""
        return len(self._events)

    def predict(self, changes: Sequence[Change], threads: int | None = None) -> Prediction:
        """Predict the duration of the step after some changes.

        Args:
          threads: of each pool of a task; by default, the recorded number.
        Raises: TraceError: the recorded dependencies contradict each other.
        """
        limits = tuple([change for change in changes if change.bandwidth is not None])
        changed = self._simulate(self._durations(changes), limits, threads)
        recorded = self._span.duration
        predicted = round(recorded * changed / max(1, self._replayed))
        return Prediction(recorded, self._replayed, predicted)

    def _try_recorded_order(self) -> None:
        """Let threads take events in the recorded order, if that explains the step better."""
        self._is_fifo = False
        replayed = self._simulate(self._durations(()), ())
        recorded = self._span.duration
        if abs(replayed - recorded) < abs(self._replayed - recorded):
            self._replayed = replayed
        else:
            self._is_fifo = True

    # The graph

    def _link_inputs(self, producers: dict[int, list[int]]) -> None:
        """Find the events that the start and, for a Receive, the end of each event waits for."""
        count = len(self._events)
        self._start_inputs: list[list[int]] = [[] for _ in range(count)]
        self._end_inputs: list[list[int]] = [[] for _ in range(count)]
        self._receive_of: dict[int, int] = {}
        for i, event in enumerate(self._events.tolist()):
            sources = [self._positions.get(p, -1) for p in producers[event]]
            sources = [s for s in sources if s >= 0 and self._starts[s] <= self._ends[i]]
            if self._kinds[i] == Kind.RECEIVE:
                self._end_inputs[i] = [s for s in sources if self._ends[s] > self._starts[i]]
                for source in sources:
                    if self._kinds[source] == Kind.TRANSFER:
                        self._receive_of[source] = i
                        if source not in self._end_inputs[i]:
                            self._end_inputs[i].append(source)
                sources = [s for s in sources if s not in self._end_inputs[i]]
            self._start_inputs[i] = [s for s in sources if s < i]
        self._link_phases()

    def _link_phases(self) -> None:
        """Let phases wait for all events before them, and events without inputs for a phase."""
        phases = [i for i, kind in enumerate(self._kinds) if kind == Kind.PHASE]
        for i in phases:
            self._start_inputs[i] = [
                j for j, end in enumerate(self._ends[:i]) if end <= self._starts[i]
            ]
        for i, inputs in enumerate(self._start_inputs):
            if not inputs and self._kinds[i] != Kind.TRANSFER:
                earlier_phases = [p for p in phases if p < i and self._ends[p] <= self._ready[i]]
                if earlier_phases:
                    inputs.append(max(earlier_phases, key=lambda p: self._ends[p]))

    def _group_lanes(self) -> None:
        """Find the pool of threads of each event; None if it occupies no thread."""
        lanes = self._index.trace.lanes
        names = [(lane.process, _NUMBER.sub("", lane.name)) for lane in lanes]
        busy = np.isin(self._index.kinds, list(OCCUPYING))
        used = np.unique(self._index.lanes[busy])
        self._sizes: dict[tuple[int, str], int] = {}
        for lane in used:
            self._sizes[names[lane]] = self._sizes.get(names[lane], 0) + 1
        self._groups = [
            names[lane] if kind in OCCUPYING else None
            for lane, kind in zip(self._index.lanes[self._events], self._kinds, strict=True)
        ]

    def _measure_lags(self, predecessors: NDArray[np.intp]) -> None:
        """Measure the delays of each event: to be ready, to start, and of a Receive to end."""
        self._ready_lags, self._start_lags, self._own_durations = [], [], []
        for i, event in enumerate(self._events):
            input_ends = [self._ends[s] for s in self._start_inputs[i]]
            receive = self._receive_of.get(i)
            if receive is not None:
                input_ends.append(self._starts[receive])
            base = max(input_ends, default=0)
            if self._kinds[i] == Kind.TRANSFER:
                self._ready_lags.append(self._starts[i] - base)
                self._start_lags.append(0)
            else:
                self._ready_lags.append(self._ready[i] - base)
                previous = self._positions.get(int(predecessors[event]), -1)
                free = self._ends[previous] if previous >= 0 else self._ready[i]
                self._start_lags.append(self._starts[i] - max(self._ready[i], free))
            begin = max([self._starts[i], *[self._ends[s] for s in self._end_inputs[i]]])
            self._own_durations.append(self._ends[i] - begin)

    def _find_components(self) -> None:
        """Find the measured times that a change may scale, each with the event it is a part of.

        These are the events themselves, those of a sequence, and the kernels of a region.
        """
        index = self._index
        step = index.events_of(self._span.step)
        estimated = (index.trace.events["flags"][step] & Flag.ESTIMATED) != 0
        parts = step[(index.kinds[step] == Kind.GENERATED) | estimated]
        rows: list[tuple[int, int, float]] = []
        for i, members in enumerate(self._members.values()):
            for event in members:
                start, end = int(index.starts[event]), int(index.ends[event])
                part_indices = []
                if index.kinds[event] == Kind.REGION:
                    first, last = np.searchsorted(index.starts[parts], [start, end])
                    part_indices = [
                        part
                        for part in parts[first:last].tolist()
                        if index.lanes[part] == index.lanes[event] and index.ends[part] <= end
                    ]
                rows += [(p, i, float(index.ends[p] - index.starts[p])) for p in part_indices]
                if not part_indices:
                    time = end - start if len(members) > 1 else self._own_durations[i]
                    rows.append((event, i, float(time)))
        events, positions, times = zip(*rows, strict=True) if rows else ((), (), ())
        self._component_events = np.array(events, np.intp)
        self._component_positions = np.array(positions, np.intp)
        self._component_times = np.array(times, np.float64)

    def _durations(self, changes: Sequence[Change]) -> list[float]:
        """Return the changed duration of each event."""
        durations = np.array(self._own_durations, np.float64)
        for change in changes:
            if change.bandwidth is not None:
                is_matched = match_events(self._index, change, self._events)
                durations = np.where(is_matched, self._latency(change), durations)
                continue
            assert change.factor is not None
            is_matched = match_events(self._index, change, self._component_events)
            saved = self._component_times * (change.factor - 1) * is_matched
            durations += np.bincount(self._component_positions, saved, len(durations))
        return [max(0.0, duration) for duration in durations.tolist()]

    def _latency(self, change: Change) -> float:
        """Return the part of the duration of a transfer that does not depend on its size."""
        index = self._index
        transfers = np.flatnonzero(index.kinds == Kind.TRANSFER)
        matched = transfers[match_events(index, change, transfers)]
        sizes = index.trace.events["output_bytes"][matched].astype(np.float64)
        times = (index.ends[matched] - index.starts[matched]).astype(np.float64)
        latency = float(times.min(initial=0)) if len(times) else 0.0
        if len(np.unique(sizes)) > 1:
            slope, offset = np.polyfit(sizes, times, 1)
            if slope > 0:
                latency = min(max(float(offset), 0.0), latency)
        return latency

    # The simulation

    def _simulate(
        self,
        durations: Sequence[float],
        limits: Sequence[Change],
        threads: int | None = None,
    ) -> int:
        run = _Run(self, durations, self._wire_times(limits), threads)
        ends = run.run()
        in_step = [i for i, end in enumerate(self._ends) if end <= self._span.duration]
        last = max([ends[i] for i in in_step], default=0)
        recorded_last = max([self._ends[i] for i in in_step], default=0)
        return round(last) + self._span.duration - recorded_last

    def _wire_times(self, limits: Sequence[Change]) -> dict[int, tuple[Any, float]]:
        """Return, for each transfer of limited bandwidth, its interface and time on the wire."""
        result: dict[int, tuple[Any, float]] = {}
        sizes = self._index.trace.events["output_bytes"][self._events].tolist()
        for change in limits:
            assert change.bandwidth is not None
            matched = match_events(self._index, change, self._events)
            for i in np.flatnonzero(matched).tolist():
                names = link_names(self._index, int(self._index.lanes[self._events[i]]))
                is_sender = change.pattern == names[1]  # an interface sends and receives at once
                time = max(0, sizes[i]) / change.bandwidth * 1e9
                result[i] = ((change, is_sender), time)
        return result


class _Run:
    """One simulation of a step."""

    def __init__(
        self,
        replay: Replay,
        durations: Sequence[float],
        wire: dict[int, tuple[Any, float]],
        threads: int | None,
    ) -> None:
        self._replay = replay
        self._durations = durations
        self._wire = wire
        self._interfaces: dict[Any, float] = {}
        self._free = {
            group: threads if threads is not None and size > 1 else size
            for group, size in replay._sizes.items()
        }
        self._waiting: dict[tuple[int, str], list[tuple[float, int]]] = {}
        self._heap: list[tuple[float, int, int]] = []
        count = len(durations)
        self._ends: list[float | None] = [None] * count
        self._base = [float("-inf") if inputs else 0.0 for inputs in replay._start_inputs]
        self._begin = [float("-inf")] * count
        self._missing = [len(inputs) for inputs in replay._start_inputs]
        self._end_missing = [1 + len(inputs) for inputs in replay._end_inputs]
        self._consumers: list[list[int]] = [[] for _ in range(count)]
        self._enders: list[list[int]] = [[] for _ in range(count)]
        for i, inputs in enumerate(replay._start_inputs):
            for source in inputs:
                self._consumers[source].append(i)
        for i, inputs in enumerate(replay._end_inputs):
            for source in inputs:
                self._enders[source].append(i)
        self._transfers: dict[int, list[int]] = {}
        for transfer, receive in replay._receive_of.items():
            self._transfers.setdefault(receive, []).append(transfer)
            self._missing[transfer] += 1

    def run(self) -> list[float]:
        """Run all events; returns their ends."""
        for i, missing in enumerate(self._missing):
            if not missing:
                self._make_ready(i)
        while self._heap:
            time, i, event_kind = heapq.heappop(self._heap)
            if event_kind == _END:
                self._finish(i, time)
            else:
                self._request_thread(i, time)
        ends = [end for end in self._ends if end is not None]
        if len(ends) < len(self._ends):
            raise TraceError("the recorded dependencies of a step contradict each other")
        return ends

    def _make_ready(self, i: int) -> None:
        time = self._base[i] + self._replay._ready_lags[i]
        heapq.heappush(self._heap, (time, i, _READY))

    def _request_thread(self, i: int, time: float) -> None:
        group = self._replay._groups[i]
        if group is None:
            self._start(i, time)
        elif self._free[group] > 0:
            self._free[group] -= 1
            self._start(i, time)
        else:
            priority = time if self._replay._is_fifo else 0.0
            heapq.heappush(self._waiting.setdefault(group, []), (priority, i))

    def _start(self, i: int, time: float) -> None:
        begin = time + self._replay._start_lags[i]
        if i in self._wire:
            interface, wire_time = self._wire[i]
            begin = max(begin, self._interfaces.get(interface, 0.0)) + wire_time
            self._interfaces[interface] = begin
        for transfer in self._transfers.get(i, ()):
            self._arrive(transfer, begin)
        self._arrive_end(i, begin)

    def _arrive(self, i: int, time: float) -> None:
        self._base[i] = max(self._base[i], time)
        self._missing[i] -= 1
        if not self._missing[i]:
            self._make_ready(i)

    def _arrive_end(self, i: int, time: float) -> None:
        """Resolve one dependency of the end of an event: its start, or its transfer."""
        self._begin[i] = max(self._begin[i], time)
        self._end_missing[i] -= 1
        if not self._end_missing[i]:
            heapq.heappush(self._heap, (self._begin[i] + self._durations[i], i, _END))

    def _finish(self, i: int, time: float) -> None:
        self._ends[i] = time
        group = self._replay._groups[i]
        if group is not None:
            waiting = self._waiting.get(group)
            if waiting:
                self._start(heapq.heappop(waiting)[1], time)
            else:
                self._free[group] += 1
        for consumer in self._consumers[i]:
            self._arrive(consumer, time)
        for receive in self._enders[i]:
            self._arrive_end(receive, time)
