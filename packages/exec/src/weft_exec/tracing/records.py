"""Executions of nodes in a step, one object each: for the cost model and for step statistics."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from weft_exec.tracing.step_trace import EPOCH, Run, Span, SpanSubject, StepTrace, ThreadLog
from weft_graph.ir.node import Node
from weft_graph.ir.traits import Role


class NodeRecord:
    """One execution of a node; times in nanoseconds since the epoch.

    Attributes:
      output_bytes: total bytes of all outputs.
      sizes: bytes of each output; empty if unknown.
      waited: True if most of the time was spent waiting for something other than the device.
      iteration: tag of the iteration that the node ran in; see `weft_exec.step_labels.NodeLabel`.
      estimated: True if the time is a share of the time of a compiled region.
      asked: time at which a Receive requested its value, if that was before `start`; else 0.
    """

    __slots__ = (
        "asked", "device", "end", "estimated", "iteration", "node", "output_bytes", "sizes",
        "start", "thread", "waited",
    )  # fmt: skip

    def __init__(
        self,
        node: Node,
        device: str,
        start: int,
        end: int,
        thread: int,
        output_bytes: int,
        sizes: tuple[int, ...] = (),
        waited: bool = False,
        iteration: int = 0,
        estimated: bool = False,
        requested_at: int = 0,
    ) -> None:
        self.node = node
        self.device = device
        self.start = start
        self.end = end
        self.thread = thread
        self.output_bytes = output_bytes
        self.sizes = sizes
        self.waited = waited
        self.iteration = iteration
        self.estimated = estimated
        self.asked = requested_at


def records_of(trace: StepTrace) -> list[NodeRecord]:
    """Return the executions of nodes that a step recorded in this process."""
    records: list[NodeRecord] = []
    for log in list(trace.logs.values()):
        spans = log.spans  # first, since this completes the runs
        for run in log.runs:
            records += _run_records(Run(*run), log)
        for span in spans:
            records += _span_records(span, log)
    return records


def _run_records(run: Run, log: ThreadLog) -> Iterator[NodeRecord]:
    program = run.program
    row, num_events, _ = program.row(np.frombuffer(run.readings, np.int64), run.sizes)
    decoded = program.decode(row, row[:, 0])
    tag = 0 if run.iteration is None else run.iteration.tag
    for node, begin, finish in program.member_times(row):
        yield NodeRecord(
            node, program.events[0].device, begin + EPOCH, finish + EPOCH, log.ident, 0,
            iteration=tag, estimated=True,
        )  # fmt: skip
    times = zip((decoded.start[0] + EPOCH).tolist(), (decoded.end[0] + EPOCH).tolist(), strict=True)
    for position, (event, (start, end)) in enumerate(zip(program.events, times, strict=True)):
        if position >= num_events:
            break
        if event.node is None or event.members:  # its members have records
            continue
        sizes = program.sizes(row, position)
        yield NodeRecord(
            event.node,
            event.device,
            start,
            end,
            log.ident,
            max(int(decoded.output_bytes[0, position]), 0),
            () if -1 in sizes else sizes,
            iteration=tag,
            estimated=event.estimated,
        )


def _span_records(span: Span, log: ThreadLog) -> Iterator[NodeRecord]:
    node = span.subject
    if isinstance(node, SpanSubject) or node.role is Role.SEND:
        return
    start = span.start if node.role is not Role.RECEIVE else max(span.start, span.sent)
    start = min(start, span.end)
    yield NodeRecord(
        node,
        span.device,
        start + EPOCH,
        span.end + EPOCH,
        log.ident,
        sum(span.sizes),
        span.sizes,
        waited=span.waited,
        iteration=0 if span.iteration is None else span.iteration.tag,
        requested_at=span.start + EPOCH if span.sent and span.start < start else 0,
    )
