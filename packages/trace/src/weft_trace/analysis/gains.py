"""The changes of a program with the largest predicted gain."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final, NamedTuple

from weft_trace.analysis.changes import Change, link_names, short_task
from weft_trace.analysis.critical_path import CriticalPath
from weft_trace.analysis.replay import Replay
from weft_trace.analysis.steps import StepIndex
from weft_trace.analysis.stragglers import TaskSpeed
from weft_trace.schema import Kind, LaneKind

_CANDIDATES: Final = 12
"""Changes of each target that are tried: those with the most time on the critical path."""
_EVENTS: Final = 500_000
"""Events that are replayed for all changes together, which bounds the time."""
_MIN_SHARE: Final = 0.002
"""Smallest gain that is reported, as a share of the step."""


class Gain(NamedTuple):
    """A change and its predicted effect on a step.

    Attributes:
      text: the change, such as "Conv2D twice as fast".
      option: the option of `weft trace whatif` that predicts it.
      saved: nanoseconds of the step.
    """

    text: str
    option: str
    saved: int


def rank_gains(
    index: StepIndex,
    replay: Replay,
    path: CriticalPath,
    speeds: Sequence[TaskSpeed] = (),
    limit: int = 10,
) -> list[Gain]:
    """Return the changes with the largest predicted gain, largest first.

    Tried are ops, nodes and links on the critical path at twice their speed, waits and
    phases on it without duration, stragglers at the speed of other tasks, and twice the threads.
    """
    gains = []
    most_tried = max(5, _EVENTS // max(1, replay.num_events))
    for text, change in _candidates(index, path, speeds)[:most_tried]:
        prediction = replay.predict([change])
        gains.append(Gain(text, str(change), prediction.recorded - prediction.predicted))
    threads = 2 * _pool_size(index)
    if threads > 2:
        prediction = replay.predict([], threads)
        saved = prediction.recorded - prediction.predicted
        gains.append(Gain(f"{threads} threads in each pool", f"--threads {threads}", saved))
    min_saved = _MIN_SHARE * path.span.duration
    gains = [gain for gain in gains if gain.saved >= max(min_saved, 1)]
    return sorted(gains, key=lambda gain: -gain.saved)[:limit]


def _candidates(
    index: StepIndex, path: CriticalPath, speeds: Sequence[TaskSpeed]
) -> list[tuple[str, Change]]:
    times: dict[str, Counter[str]] = {t: Counter() for t in ("op", "node", "link", "wait", "phase")}
    for event in path.events:
        node = index.trace.nodes[index.nodes[event]]
        duration = int(index.ends[event] - index.starts[event])
        kind = index.kinds[event]
        if kind == Kind.TRANSFER:
            times["link"][link_names(index, int(index.lanes[event]))[0]] += duration
        elif kind == Kind.WAIT:
            times["wait"][node.name] += duration
        elif kind == Kind.PHASE:
            times["phase"][node.name] += duration
        elif kind in (Kind.KERNEL, Kind.REGION, Kind.COPY):
            times["node"][node.name] += duration
            members = [index.trace.nodes[m].op for m in node.members] or [node.op]
            for op in set(members):
                times["op"][op] += duration // len(set(members))
    result = []
    for speed in speeds:
        if speed.is_straggler:
            name = short_task(index.trace.processes[speed.process].name)
            change = Change("task", escape_pattern(name), round(1 / speed.ratio, 3))
            result.append((speed.duration, f"task {name} as fast as its peers", change))
    for target, totals in times.items():
        factor = 0.0 if target in ("wait", "phase") else 0.5
        suffix = "without duration" if factor == 0.0 else "twice as fast"
        for name, time in totals.most_common(_CANDIDATES):
            change = Change(target, escape_pattern(name), factor)
            result.append((time, f"{target} {name} {suffix}", change))
    result.sort(key=lambda row: -row[0])
    return [(text, change) for _, text, change in result]


def escape_pattern(name: str) -> str:
    """Return a pattern that matches just a name."""
    return "".join([f"[{c}]" if c in "*?[" else c for c in name])


def _pool_size(index: StepIndex) -> int:
    """Return the largest number of pool threads of a process."""
    pools = Counter(
        lane.process
        for lane in index.trace.lanes
        if lane.kind == LaneKind.THREAD and lane.name[-1:].isdigit()
    )
    return max(pools.values(), default=0)
