"""Appending of a complete trace to a file that is being written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from weft_trace.schema import NO_STEP, Kind
from weft_trace.trace import Trace
from weft_trace.writer import Writer


def append_trace(
    writer: Writer,
    trace: Trace,
    offset: int = 0,
    error: int = 0,
    steps: Mapping[int, int] | None = None,
) -> None:
    """Add the records and rows of a trace to a file.

    Args:
      writer: writes the file.
      trace: of other processes.
      offset: nanoseconds that its clock is ahead of the clock of the file.
      error: the true offset differs by at most so many nanoseconds.
      steps: for steps of the trace that are in the file already, their ids there. Their events of
        the kind STEP are left out.
    """
    known_steps = steps or {}
    processes = [
        writer.process(
            process._replace(
                clock_offset=process.clock_offset + offset, clock_error=process.clock_error + error
            )
        )
        for process in trace.processes
    ]
    lanes = [writer.lane(lane._replace(process=processes[lane.process])) for lane in trace.lanes]
    nodes = _append_nodes(writer, trace)
    iterations = [0]
    for iteration in trace.iterations[1:]:
        parent = iterations[iteration.parent]
        iterations.append(writer.iteration(iteration._replace(parent=parent)))
    numbers = [
        known_steps[i]
        if i in known_steps
        else writer.step(step._replace(process=processes[step.process]))
        for i, step in enumerate(trace.steps)
    ]
    events = trace.events
    if known_steps:
        is_known = np.isin(events["step"], list(known_steps))
        events = events[~(is_known & (events["kind"] == Kind.STEP))]
    events = events.copy()
    for column, ids in (("lane", lanes), ("node", nodes), ("iteration", iterations)):
        events[column] = _renumbered(events[column], ids)
    in_step = events["step"] != NO_STEP
    events["step"][in_step] = _renumbered(events["step"][in_step], numbers)
    for column in ("ready", "start", "end"):
        events[column] -= offset
    writer.events(events)
    samples = trace.samples.copy()
    samples["lane"] = _renumbered(samples["lane"], lanes)
    samples["time"] -= offset
    writer.samples(samples)


def _append_nodes(writer: Writer, trace: Trace) -> list[int]:
    """Add the nodes of a trace; inputs may refer to later ones, so they are added at the end."""
    numbers: list[int] = []
    for node in trace.nodes:
        members = tuple([numbers[i] for i in node.members if i < len(numbers)])
        numbers.append(writer.node(node._replace(inputs=(), members=members)))
    for node, number in zip(trace.nodes, numbers, strict=True):
        if node.inputs:
            writer.inputs(number, [numbers[i] for i in node.inputs])
    return numbers


def _renumbered(ids: NDArray[Any], numbers: Sequence[int]) -> NDArray[Any]:
    return np.array(numbers, ids.dtype)[ids] if len(ids) else ids
