"""Clock offsets between processes, estimated from the values that they sent to each other.

A value arrives after it was sent. A message from A to B therefore bounds the offset of B's clock
from above, and one from B to A bounds it from below. All bounds together are a system of difference
constraints; the shortest paths are the intervals of the offsets (Cormen et al., "Introduction to
Algorithms", section 24.4). Clocks are taken to run at the same rate.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from weft_trace.analysis.dependencies import Dependencies, resolve_dependencies
from weft_trace.errors import TraceError
from weft_trace.schema import Kind
from weft_trace.trace import Trace


class ClockOffset(NamedTuple):
    """The offset of a process's clock from process 0's clock, in nanoseconds.

    Attributes:
      estimate: the middle of the interval; the bound, if there is only one.
      low, high: the true offset is between them; None if no message bounds it.
    """

    estimate: int
    low: int | None
    high: int | None

    @property
    def error(self) -> int | None:
        """Half of the width of the interval; None if it is not bounded."""
        if self.low is None or self.high is None:
            return None
        return -(-(self.high - self.low) // 2)


def estimate_offsets(trace: Trace, dependencies: Dependencies | None = None) -> list[ClockOffset]:
    """Estimate the offsets of all processes from process 0.

    Raises: TraceError: the messages contradict each other: clocks run at different rates.
    """
    dependencies = dependencies or resolve_dependencies(trace)
    distances = _shortest_paths(_bounds(trace, dependencies))
    if (np.diag(distances) < 0).any():
        raise TraceError(
            "the offsets between the clocks of the processes change during the trace, so they "
            "cannot be estimated from its transfers; record a shorter one"
        )
    offsets = []
    for process in range(len(trace.processes)):
        high = _finite_or_none(distances[0, process])
        low = _finite_or_none(-distances[process, 0])
        bounds = [bound for bound in (low, high) if bound is not None]
        offsets.append(ClockOffset(sum(bounds) // len(bounds) if bounds else 0, low, high))
    return offsets


def repair_clocks(trace: Trace) -> Trace:
    """Return a trace on one clock: that of process 0.

    Offsets are subtracted from the times of each process, and stored in `Process.clock_offset`.
    If a Receive still ends before its Send, as within the error of the clocks, it is made to end
    with it.
    """
    dependencies = resolve_dependencies(trace)
    offsets = estimate_offsets(trace, dependencies)
    events, samples = trace.events.copy(), trace.samples.copy()
    shifts = np.array([o.estimate for o in offsets] or [0])
    processes = np.array([lane.process for lane in trace.lanes] or [0])
    for name in ("ready", "start", "end"):
        events[name] -= shifts[processes[events["lane"]]]
    samples["time"] -= shifts[processes[samples["lane"]]]
    sends, receives = _messages(trace, dependencies)
    np.maximum.at(events["end"], receives, events["end"][sends])
    records = [
        process._replace(
            clock_offset=process.clock_offset + offset.estimate,
            clock_error=process.clock_error if offset.error is None else offset.error,
        )
        for process, offset in zip(trace.processes, offsets, strict=True)
    ]
    order = np.argsort(events["start"], kind="stable")
    return trace._replace(
        processes=records,
        events=events.take(order),
        samples=samples.take(np.argsort(samples["time"], kind="stable")),
    )


def _finite_or_none(distance: float) -> int | None:
    return int(distance) if np.isfinite(distance) else None


def _messages(
    trace: Trace, dependencies: Dependencies
) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return the Sends and the Receives of values between processes, as indices of events."""
    kinds = trace.events["kind"]
    consumers = np.repeat(np.arange(len(kinds)), np.diff(dependencies.offsets))
    producers = dependencies.producers
    # A Receive follows its transfer, and that its Send; or it follows its Send.
    senders = np.full(len(kinds), -1)
    to_transfer = kinds[consumers] == Kind.TRANSFER
    senders[consumers[to_transfer]] = producers[to_transfer]
    to_receive = kinds[consumers] == Kind.RECEIVE
    sources, receives = producers[to_receive], consumers[to_receive]
    is_transfer = kinds[sources] == Kind.TRANSFER
    sends = np.where(is_transfer, senders[sources], sources)
    processes = np.array([lane.process for lane in trace.lanes] or [0])[trace.events["lane"]]
    is_message = (sends >= 0) & (processes[sends] != processes[receives])
    return sends[is_message], receives[is_message]


def _bounds(trace: Trace, dependencies: Dependencies) -> NDArray[np.float64]:
    """Return the matrix of the least times from a Send in A to the Receive's end in B.

    The start of the Send counts: its value may arrive before its end is recorded.
    """
    count = len(trace.processes)
    bounds = np.full((count, count), np.inf)
    np.fill_diagonal(bounds, 0)
    sends, receives = _messages(trace, dependencies)
    if len(sends):
        processes = np.array([lane.process for lane in trace.lanes])[trace.events["lane"]]
        waits = trace.events["end"][receives] - trace.events["start"][sends]
        np.minimum.at(bounds, (processes[sends], processes[receives]), waits)
    return bounds


def _shortest_paths(distances: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return all shortest paths (Floyd and Warshall)."""
    for via in range(len(distances)):
        distances = np.minimum(distances, distances[:, via : via + 1] + distances[via : via + 1])
    return distances
