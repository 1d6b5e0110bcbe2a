"""Events as tracks of nested intervals, which other viewers need, and arrows between them."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from weft_trace.analysis.dependencies import resolve_dependencies
from weft_trace.schema import NO_STEP, Flag, Kind
from weft_trace.trace import Trace

_CONCURRENT: Final = (Kind.RECEIVE, Kind.TRANSFER, Kind.WAIT)
"""Kinds of events that overlap on a lane; each needs a separate row."""


class Track(NamedTuple):
    """Events of a lane that are nested or follow each other.

    Attributes:
      lane: its id.
      row: its number within the lane.
      events: indices of events, outer ones before inner ones.
    """

    lane: int
    row: int
    events: list[int]


class Boundary(NamedTuple):
    """The start or the end of an event of a track."""

    is_start: bool
    event: int
    time: int


class Arrow(NamedTuple):
    """A dependency between events of different lanes; `start` and `end` are its times."""

    source: int
    target: int
    start: int
    end: int


def make_tracks(trace: Trace) -> list[Track]:
    """Return the tracks of all events except buffers, sorted by lane."""
    events = trace.events
    chosen = np.flatnonzero(events["kind"] != Kind.BUFFER)
    order = np.lexsort((-events["end"][chosen], events["start"][chosen], events["lane"][chosen]))
    chosen = chosen[order]
    lanes = events["lane"][chosen]
    cuts = np.flatnonzero(np.diff(lanes)) + 1
    tracks = []
    for part in np.split(chosen, cuts):
        if len(part):
            tracks += _split_lane(events, part)
    return tracks


def _split_lane(events: NDArray[Any], part: NDArray[np.intp]) -> list[Track]:
    lane = int(events["lane"][part[0]])
    is_concurrent = np.isin(events["kind"][part], _CONCURRENT)
    rows = _nest(events, part[~is_concurrent])
    rows += _spread(events, part[is_concurrent])
    return [Track(lane, i, row) for i, row in enumerate(row for row in rows if row)]


def _nest(events: NDArray[Any], part: NDArray[np.intp]) -> list[list[int]]:
    """Return rows of nested events: usually one; events that overlap without nesting get more."""
    rows: list[list[int]] = []
    stacks: list[list[int]] = []
    starts, ends = events["start"][part].tolist(), events["end"][part].tolist()
    for event, start, end in zip(part.tolist(), starts, ends, strict=True):
        for row, stack in zip(rows, stacks, strict=True):
            while stack and stack[-1] <= start:
                stack.pop()
            if not stack or end <= stack[-1]:
                row.append(event)
                stack.append(end)
                break
        else:
            rows.append([event])
            stacks.append([end])
    return rows


def _spread(events: NDArray[Any], part: NDArray[np.intp]) -> list[list[int]]:
    """Return rows of events that follow each other; each event is in the first free row."""
    rows: list[list[int]] = []
    free: list[int] = []
    busy: list[tuple[int, int]] = []
    starts, ends = events["start"][part].tolist(), events["end"][part].tolist()
    for event, start, end in zip(part.tolist(), starts, ends, strict=True):
        while busy and busy[0][0] <= start:
            heapq.heappush(free, heapq.heappop(busy)[1])
        if not free:
            free.append(len(rows))
            rows.append([])
        row = heapq.heappop(free)
        rows[row].append(event)
        heapq.heappush(busy, (end, row))
    return rows


def boundaries(trace: Trace, track: Track) -> Iterator[Boundary]:
    """Yield the starts and ends of the events of a track, in order and balanced."""
    starts = trace.events["start"][track.events].tolist()
    ends = trace.events["end"][track.events].tolist()
    stack: list[tuple[int, int]] = []
    for event, start, end in zip(track.events, starts, ends, strict=True):
        while stack and stack[-1][1] <= start:
            yield Boundary(False, *stack.pop())
        yield Boundary(True, event, start)
        stack.append((event, end))
    while stack:
        yield Boundary(False, *stack.pop())


def find_arrows(trace: Trace) -> list[Arrow]:
    """Return the dependencies between lanes. No arrow points backwards in time."""
    events = trace.events
    dependencies = resolve_dependencies(trace)
    targets = np.repeat(np.arange(len(events)), np.diff(dependencies.offsets))
    sources = dependencies.producers
    crosses = events["lane"][sources] != events["lane"][targets]
    sources, targets = sources[crosses], targets[crosses]
    starts = np.maximum(events["start"][sources], events["end"][sources] - 1)
    is_receive = events["kind"][targets] == Kind.RECEIVE  # its value comes at its end
    ends = np.where(is_receive, events["end"][targets] - 1, events["start"][targets])
    ends = np.maximum(ends, events["start"][targets])
    is_forward = starts <= ends
    columns = [column[is_forward].tolist() for column in (sources, targets, starts, ends)]
    return [Arrow(*row) for row in zip(*columns, strict=True)]


def lane_name(trace: Trace, track: Track) -> str:
    """Return the name of a track: that of its lane, with the row if it is not the first."""
    name = trace.lanes[track.lane].name
    return f"{name} ({track.row + 1})" if track.row else name


def describe(trace: Trace, index: int) -> dict[str, str | int]:
    """Return the known facts about an event, apart from its name and times."""
    event = trace.events[index]
    node = trace.nodes[event["node"]]
    details: dict[str, str | int] = {"op": node.op}
    if node.line:
        details["line"] = node.line
    if node.origins:
        details["origins"] = ", ".join(node.origins)
    if event["step"] != NO_STEP:
        details["step"] = int(event["step"])
    iteration = trace.iterations[event["iteration"]]
    if event["iteration"]:
        details["frame"], details["iteration"] = iteration.frame, iteration.number
    if event["ready"] < event["start"]:
        details["queueing ns"] = int(event["start"] - event["ready"])
    for name in ("input_bytes", "output_bytes"):
        if event[name] >= 0:
            details[name.replace("_", " ")] = int(event[name])
    if event["flags"] & Flag.ESTIMATED:
        details["time"] = "estimated"
    if event["flags"] & Flag.FAILED:
        details["result"] = "failed"
    return details


def kind_name(kind: int) -> str:
    """Return the name of a kind in small letters."""
    return Kind(kind).name.lower() if kind in set(Kind) else f"kind {kind}"
