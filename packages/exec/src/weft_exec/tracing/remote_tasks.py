"""Traces of the tasks of a cluster in the trace of one of its clients."""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

from weft_trace.append import append_trace
from weft_trace.errors import TraceError
from weft_trace.reader import load
from weft_trace.schema import Kind, Process
from weft_trace.trace import Trace
from weft_trace.writer import Writer

_log: Final = logging.getLogger("weft")

_UNKNOWN_ERROR: Final = 10**9
"""Clock error of tasks whose offset does not follow from steps, in nanoseconds."""


class WholeStep(NamedTuple):
    """A step in a trace; times in nanoseconds since the epoch."""

    number: int
    label: str
    start: int
    end: int


def add_tasks(writer: Writer, content: bytes, steps: Sequence[WholeStep], process: Process) -> None:
    """Add a trace of the tasks of a cluster to the trace of a client.

    The offset of the clocks follows from the steps: the master received each after the client had
    sent it, and ended it before the client had the results.

    Args:
      content: the bytes of the trace file of the tasks.
      steps: the client's steps while the tasks were recorded.
      process: the client.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "tasks.weft-trace"
        path.write_bytes(content)
        try:
            trace = load(path)
        except TraceError as damage:
            _log.warning("A trace lacks the tasks of a session: %s", damage)
            return
    pairs = matching_steps(steps, whole_steps(trace))
    master = trace.processes[0]
    if (master.pid, master.host) == (process.pid, process.host):
        offset, error = 0, 0
    else:
        offset, error = clock_offset(pairs)
    step_numbers = {remote.number: local.number for local, remote in pairs}
    append_trace(writer, trace, offset, error, step_numbers)


def whole_steps(trace: Trace) -> list[WholeStep]:
    """Return the steps of a trace in the order of their start."""
    rows = trace.events[trace.events["kind"] == Kind.STEP]
    result = []
    for row in rows:
        step, start, end = (int(row[column]) for column in ("step", "start", "end"))
        result.append(WholeStep(step, trace.steps[step].label, start, end))
    return result


def matching_steps(
    client: Sequence[WholeStep], tasks: Sequence[WholeStep]
) -> list[tuple[WholeStep, WholeStep]]:
    """Return pairs of the same step as the client and its master recorded it.

    Steps are paired in their order. The tasks may have recorded fewer, since their recording ends
    after a number of steps. If they recorded more, some are of other clients, and none is paired.
    """
    pairs: list[tuple[WholeStep, WholeStep]] = []
    for label in dict.fromkeys([step.label for step in tasks]):
        local = sorted(
            [step for step in client if step.label == label], key=lambda step: step.start
        )
        remote = [step for step in tasks if step.label == label]
        if len(remote) <= len(local):
            pairs += zip(local, remote, strict=False)
    return pairs


def clock_offset(pairs: Sequence[tuple[WholeStep, WholeStep]]) -> tuple[int, int]:
    """Return the offset of the tasks' clock, and its largest error."""
    if not pairs:
        return 0, _UNKNOWN_ERROR
    lowest = max([remote.end - local.end for local, remote in pairs])
    highest = min([remote.start - local.start for local, remote in pairs])
    if lowest > highest:
        return (lowest + highest) // 2, _UNKNOWN_ERROR
    return (lowest + highest) // 2, (highest - lowest + 1) // 2
