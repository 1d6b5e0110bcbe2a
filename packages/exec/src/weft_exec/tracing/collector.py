"""Conversion of the records of steps to the tables and rows of `weft_trace`.

Executions of the same program are converted together, regardless of step and thread.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from weft_exec.tracing.programs import Decoded, Event, Program, static_bytes
from weft_exec.tracing.step_trace import (
    EPOCH,
    FAILED,
    LoopIteration,
    Span,
    SpanSubject,
    StepTrace,
    ThreadLog,
    transfer_subject,
)
from weft_graph.ir.node import Node
from weft_graph.ir.traits import Role
from weft_graph.ops.step import REGION
from weft_trace.schema import (
    EVENT,
    NO_STEP,
    Crossing,
    Flag,
    Iteration,
    Kind,
    Lane,
    LaneKind,
    Node as TraceNode,
    Process,
    Step,
)


class Sink(Protocol):
    """Receives tables and rows; `weft_trace.writer.Writer` is one."""

    def process(self, process: Process) -> int:
        """Add a process; returns its id."""
        ...

    def lane(self, lane: Lane) -> int:
        """Add a lane; returns its id."""
        ...

    def node(self, node: TraceNode) -> int:
        """Add a node; returns its id."""
        ...

    def inputs(self, node: int, inputs: Sequence[int]) -> None:
        """Replace the inputs of a node."""
        ...

    def iteration(self, iteration: Iteration) -> int:
        """Add an iteration; returns its id."""
        ...

    def step(self, step: Step) -> int:
        """Add a step; returns its id."""
        ...

    def events(self, events: NDArray[Any]) -> None:
        """Add events."""
        ...


class Batch(NamedTuple):
    """Records of one thread.

    Attributes:
      step: the step that they belong to; None outside of steps.
      ident, native_id, name: identifiers and name of the thread.
      runs, spans: its records.
    """

    step: StepTrace | None
    ident: int
    native_id: int
    name: str
    runs: Sequence[Any]
    spans: Sequence[Span]

    @classmethod
    def of_log(
        cls, step: StepTrace | None, log: ThreadLog, runs: Sequence[Any], spans: Sequence[Span]
    ) -> Batch:
        """Return records of the thread of a log."""
        return cls(step, log.ident, log.native_id, log.name, runs, spans)


class Collector:
    """Converts records, and assigns the ids of lanes, nodes, iterations and steps.

    Args:
      sink: receives the tables and rows; nothing else adds to it.
      process: this process.
    """

    def __init__(self, sink: Sink, process: Process) -> None:
        self._sink = sink
        self._process = sink.process(process)
        self._lanes: dict[tuple[LaneKind, Any], int] = {}
        self._nodes: dict[Any, int] = {}
        self._num_nodes = 0
        self._iterations: dict[tuple[str, int, int], int] = {}
        self._events: dict[Program, list[int]] = {}
        self._labels: dict[str, int] = {}
        self._steps: dict[StepTrace, int] = {}

    def add(self, batches: Sequence[Batch]) -> None:
        """Convert some records, in bulk."""
        groups: dict[Program, list[tuple[Any, int, int]]] = {}
        spans: list[tuple[Span, int, int]] = []
        for batch in batches:
            step = NO_STEP if batch.step is None else self._step(batch.step)
            lane = self.thread_lane(batch.ident, batch.native_id, batch.name)
            for run in batch.runs:
                groups.setdefault(run[0], []).append((run, lane, step))
            spans += [(span, lane, step) for span in batch.spans]
        for program, runs in groups.items():
            self._add_runs(program, runs)
        if spans:
            self._add_spans(spans)

    def end_step(self, trace: StepTrace, ident: int) -> int:
        """Add the event of a step, in the lane of the thread that called it.

        Returns: the id of the step.
        """
        log = trace.logs[ident]
        kind = Kind.STEP
        span = Span(
            kind, SpanSubject(trace.label, "_Step"), trace.start, trace.start, trace.end,
            failed=trace.failed,
        )  # fmt: skip
        lane = self.thread_lane(ident, log.native_id, log.name)
        self._add_spans([(span, lane, self._step(trace))])
        return self._steps.pop(trace)

    def thread_lane(self, ident: int, native_id: int, name: str) -> int:
        """Return the lane of a thread."""
        return self._lane(LaneKind.THREAD, name, (ident, native_id))

    def memory_lane(self, device: str) -> int:
        """Return the lane of the memory of a device."""
        return self._lane(LaneKind.MEMORY, device, device)

    def _lane(self, kind: LaneKind, name: str, key: Any) -> int:
        lane = self._lanes.get((kind, key))
        if lane is None:
            lane = self._sink.lane(Lane(self._process, kind, name))
            self._lanes[kind, key] = lane
        return lane

    def _step(self, trace: StepTrace) -> int:
        step = self._steps.get(trace)
        if step is None:
            number = self._labels.get(trace.label, 0)
            self._labels[trace.label] = number + 1
            step = self._steps[trace] = self._sink.step(Step(self._process, trace.label, number))
        return step

    def _iteration(self, iteration: LoopIteration | None) -> int:
        if iteration is None:
            return 0
        key = (iteration.frame, iteration.number, self._iteration(iteration.parent))
        number = self._iterations.get(key)
        if number is None:
            number = self._iterations[key] = self._sink.iteration(Iteration(*key))
        return number

    # ------------------------------------------------------------------------ nodes

    def _node(self, subject: Node | SpanSubject, device: str = "") -> int:
        number = self._nodes.get(subject)
        if number is not None:
            return number
        if isinstance(subject, SpanSubject):
            return self._add_node(subject, TraceNode(*subject))
        self._add_nodes(subject, device)
        return self._nodes[subject]

    def _add_node(self, key: Any, node: TraceNode) -> int:
        number = self._nodes[key] = self._sink.node(node)
        self._num_nodes += 1
        return number

    def _add_nodes(self, node: Node, device: str) -> None:
        """Add a node and all that it depends on."""
        new: dict[Node | SpanSubject, int] = {}
        stack: list[Node | SpanSubject] = [node]
        while stack:
            item = stack.pop()
            if item in self._nodes or item in new:
                continue
            new[item] = self._num_nodes + len(new)
            if isinstance(item, Node):
                stack += [*dependencies_of(item), *members_of(item)]
        self._nodes.update(new)
        for item in new:
            if isinstance(item, SpanSubject):
                self._add_node(item, TraceNode(*item))
                continue
            record = trace_node(item, device if item is node else "")
            inputs = dict.fromkeys([self._nodes[source] for source in dependencies_of(item)])
            members = tuple([self._nodes[member] for member in members_of(item)])
            self._add_node(item, record._replace(inputs=tuple(inputs), members=members))
        for item in new:
            if isinstance(item, Node) and item.role is Role.SEND:
                self._sink.inputs(self._node(transfer_of(item)), (self._nodes[item],))

    def _program_nodes(self, program: Program) -> list[int]:
        """Return the id of the node of each event of a program."""
        numbers = self._events.get(program)
        if numbers is None:
            numbers = self._events[program] = [self._event_node(event) for event in program.events]
        return numbers

    def _event_node(self, event: Event) -> int:
        if event.node is not None:
            return self._node(event.node, event.device)
        members = tuple([self._node(member, event.device) for member in event.members])
        line = next((line_of(member) for member in reversed(event.members)), "")
        node = TraceNode(event.name, event.op, event.device, line, (), origins_of(event.members))
        return self._add_node(event, node._replace(members=members))

    # ------------------------------------------------------------------------ events

    def _add_runs(self, program: Program, runs: Sequence[tuple[Any, int, int]]) -> None:
        """Add the events of some executions of a program, with their lanes and steps."""
        width, num_sizes = program.width, program.num_sizes
        complete_runs: list[tuple[Any, int, int]] = []
        parts: list[tuple[Any, int, int]] = []
        for item in runs:
            _, _, _, readings, sizes = item[0]
            is_whole = len(readings) == width and len(sizes) == num_sizes
            (complete_runs if is_whole else parts).append(item)
        if complete_runs:
            flat = np.frombuffer(b"".join([run[3] for run, _, _ in complete_runs]), np.int64)
            rows = flat.reshape(len(complete_runs), width)
            has_failed = rows[:, -1] == FAILED  # with as many readings as a complete execution
            if has_failed.any():
                parts += [complete_runs[i] for i in np.flatnonzero(has_failed)]
                complete_runs = [complete_runs[i] for i in np.flatnonzero(~has_failed)]
                rows = rows[~has_failed]
            if num_sizes:
                flat_sizes = chain.from_iterable([run[4] for run, _, _ in complete_runs])
                count = num_sizes * len(complete_runs)
                columns = np.fromiter(flat_sizes, np.int64, count).reshape(
                    len(complete_runs), num_sizes
                )
                rows = np.concatenate([rows, columns], axis=1)
            self._add_rows(program, rows, complete_runs, len(program.events))
        for item in parts:
            readings = np.frombuffer(item[0][3], np.int64)
            row, num_events, failed = program.row(readings, item[0][4])
            self._add_rows(program, row, [item], num_events, failed)

    def _add_rows(
        self,
        program: Program,
        readings: NDArray[np.int64],
        runs: Sequence[tuple[Any, int, int]],
        num_events: int,
        failed: bool = False,
    ) -> None:
        nodes = self._program_nodes(program)
        if not (num_events and runs):
            return
        begin_times = np.fromiter([run[2] for run, _, _ in runs], np.int64, len(runs))
        ready = np.where(begin_times > 0, begin_times, readings[:, 0])
        decoded = program.decode(readings, ready)
        rows = np.zeros((len(runs), len(nodes)), EVENT)
        rows["kind"] = [event.kind for event in program.events]
        rows["flags"] = [Flag.ESTIMATED * event.estimated for event in program.events]
        if failed:
            rows["flags"][:, num_events - 1] |= np.uint8(Flag.FAILED)
        rows["node"] = nodes
        _set_column(rows, "lane", [lane for _, lane, _ in runs])
        for column, event in enumerate(program.events):
            if event.lane:
                rows["lane"][:, column] = self._lane(LaneKind.DEVICE, event.lane, event.lane)
        _set_column(rows, "step", [step for _, _, step in runs])
        _set_column(rows, "iteration", [self._iteration(run[1]) for run, _, _ in runs])
        _set_times(rows, decoded)
        self._sink.events(rows[:, :num_events].ravel())
        if num_events == len(nodes):
            self._add_buffers(program, readings, decoded, rows)

    def _add_buffers(
        self, program: Program, readings: NDArray[np.int64], decoded: Decoded, rows: NDArray[Any]
    ) -> None:
        buffers = program.buffers(readings, decoded)
        if buffers is None:
            return
        result = rows[:, buffers.events].copy()
        result["kind"] = Kind.BUFFER
        result["lane"] = [
            self.memory_lane(program.events[position].device) for position in buffers.events
        ]
        result["ready"] = result["start"] = buffers.start + EPOCH
        result["end"] = np.maximum(buffers.end, buffers.start) + EPOCH
        result["input_bytes"], result["output_bytes"] = -1, buffers.sizes
        self._sink.events(result.ravel())

    def _add_spans(self, spans: Iterable[tuple[Span, int, int]]) -> None:
        rows = [
            (
                span.kind,
                Flag.FAILED if span.failed else 0,
                self._span_lane(span, lane),
                self._node(span.subject, span.device),
                step,
                self._iteration(span.iteration),
                span.ready + EPOCH,
                span.start + EPOCH,
                span.end + EPOCH,
                span.input_bytes,
                sum(span.sizes) if span.sizes else -1,
            )
            for span, lane, step in spans
        ]
        self._sink.events(np.array(rows, EVENT))

    def _span_lane(self, span: Span, lane: int) -> int:
        if not span.lane:
            return lane
        kind = LaneKind.LINK if span.kind == Kind.TRANSFER else LaneKind.DEVICE
        return self._lane(kind, span.lane, span.lane)


def _set_column(rows: NDArray[Any], name: str, values: Sequence[int]) -> None:
    rows[name] = np.array(values, np.int64)[:, None]


def _set_times(rows: NDArray[Any], decoded: Decoded) -> None:
    rows["ready"] = decoded.ready + EPOCH
    rows["start"] = decoded.start + EPOCH
    rows["end"] = decoded.end + EPOCH
    rows["input_bytes"] = decoded.input_bytes
    rows["output_bytes"] = decoded.output_bytes


def dependencies_of(node: Node) -> list[Node | SpanSubject]:
    """Return a node's dependencies: outputs, control edges, and the transfer of a Receive."""
    result: list[Node | SpanSubject] = [output.node for output in node.inputs]
    result += node.controls
    if node.role is Role.RECEIVE:
        result.append(transfer_of(node))
    return result


def transfer_of(node: Node) -> SpanSubject:
    """Return the transfer that a Send begins, or a Receive ends."""
    attrs = node.attrs
    return transfer_subject(attrs["send_device"], attrs["recv_device"], attrs["tensor_name"])


def members_of(node: Node) -> list[Node]:
    """Return the nodes that a region computes; of another node none."""
    if node.type != REGION:
        return []
    members = [node.graph.find_node(name) for name in node.attrs["members"]]
    return [member for member in members if member is not None]


def trace_node(node: Node, device: str) -> TraceNode:
    """Return the record of a node, without the ids of others.

    Args:
      device: that runs it; "" for the one that it requests.
    """
    crossing = Crossing.SAME
    if node.role is Role.EXIT:
        crossing = Crossing.INNER
    elif node.role is Role.MERGE and any(
        source.node.role is Role.NEXT_ITERATION for source in node.inputs
    ):
        crossing = Crossing.PREVIOUS
    sizes = [static_bytes(output) for output in node.outputs]
    origins = origins_of(members_of(node) or [node])
    return TraceNode(
        node.name,
        node.type,
        device or node.device,
        line_of(node),
        (),
        () if origins == (node.name,) else origins,
        crossing,
        (),
        -1 if -1 in sizes else sum(sizes),
    )


def line_of(node: Node) -> str:
    """Return the user's line that created a node, as "file:line", or ""."""
    return node.line.rpartition(" in ")[0]


def origins_of(nodes: Sequence[Node]) -> tuple[str, ...]:
    """Return the names of the nodes of the user's graph that some nodes compute."""
    names = [name for node in nodes for name in node.graph.origins.of(node.name)]
    return tuple(dict.fromkeys(names))
