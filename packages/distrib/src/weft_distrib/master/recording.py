"""A trace of all tasks of a cluster: recording them, and merging the records on one clock."""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol

import numpy as np

from weft_distrib.wire.methods import BEGIN, END, POLL, Record, TraceState, TraceTask
from weft_distrib.worker.tracing import Transfer
from weft_exec.resources.rendezvous import ends_of
from weft_exec.tracing.step_trace import trace_time
from weft_tensor import errors
from weft_trace.errors import TraceError
from weft_trace.reader import load
from weft_trace.schema import (
    EVENT,
    NO_STEP,
    Flag,
    Iteration,
    Kind,
    Lane,
    LaneKind,
    Node,
    Process,
    Step,
)
from weft_trace.trace import Trace
from weft_trace.writer import Writer

MAX_MILLISECONDS: Final = 600_000
"""Maximum duration of a recording."""
_POLL_SECONDS: Final = 0.02
_NUM_PINGS: Final = 16
"""Number of round trips for estimating a clock, before and after the recording."""


class TaskLink(Protocol):
    """Sends a request about its recording to a task."""

    def __call__(self, request: TraceTask) -> tuple[Sequence[Any], TraceState]:
        """Return the records, at the end, and the state of the recording."""
        ...


class Clock(NamedTuple):
    """The estimated clock of a task.

    Attributes:
      offset: nanoseconds that it is ahead of the master's.
      error: the true offset differs by at most so many nanoseconds.
    """

    offset: int
    error: int


class TaskRecords(NamedTuple):
    """The records of a task.

    Attributes:
      clock: its clock.
      trace: its trace file; its step labels come from `step_name`.
      transfers: the step, and one end of a transfer.
      steps: steps whose master is in this task: name, label, start, end, failed.
    """

    clock: Clock
    trace: Trace
    transfers: Sequence[tuple[str, Transfer]]
    steps: Sequence[tuple[str, str, int, int, bool]]


def record(
    request: Record,
    links: Sequence[TaskLink],
    is_wanted: Callable[[], bool],
    begun_recording: Callable[[], None] = lambda: None,
) -> np.ndarray[Any, Any]:
    """Record the next steps of all tasks; return the bytes of a trace file.

    Args:
      links: to all tasks, starting with this process.
      is_wanted: returns True while the client waits for the trace.
      begun_recording: called when all tasks record.
    Raises:
      InvalidArgumentError: the request has an invalid number.
      FailedPreconditionError: a task is recording already.
      OpError: a task is lost.
    """
    if not 0 < request.milliseconds <= MAX_MILLISECONDS:
        raise errors.InvalidArgumentError(
            f"a recording must last from 1 to {MAX_MILLISECONDS} ms, got {request.milliseconds}"
        )
    begun: list[TaskLink] = []
    try:
        for link in links:
            link(TraceTask(BEGIN, request.steps))
            begun.append(link)
        clocks = [estimate_clock(link) for link in links]
        begun_recording()
        deadline = time.monotonic() + request.milliseconds / 1000
        while is_wanted() and time.monotonic() < deadline:
            if max([link(TraceTask(POLL))[1].steps for link in links]) >= request.steps:
                break
            time.sleep(_POLL_SECONDS)
        clocks = [
            min(clock, estimate_clock(link), key=lambda clock: clock.error)
            for clock, link in zip(clocks, links, strict=True)
        ]
    finally:
        results = [link(TraceTask(END))[0] for link in begun]
    clocks[0] = Clock(0, 0)
    tasks = _drop_unrecorded_steps(
        [_parse(clock, values) for clock, values in zip(clocks, results, strict=True)]
    )
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "cluster.weft-trace"
        with Writer(path) as writer:
            merge(tasks, writer)
        return np.frombuffer(path.read_bytes(), np.uint8)


def _drop_unrecorded_steps(tasks: Sequence[TaskRecords]) -> list[TaskRecords]:
    """Remove steps that no task recorded: they ran when the recording began."""
    recorded = {step.label for task in tasks for step in task.trace.steps}
    return [
        task._replace(steps=[step for step in task.steps if step[0] in recorded]) for task in tasks
    ]


def estimate_clock(link: TaskLink) -> Clock:
    """Estimate the clock of a task from the shortest of some round trips (Cristian 1989)."""
    best = Clock(0, 1 << 62)
    for _ in range(_NUM_PINGS):
        sent = trace_time()
        _, state = link(TraceTask(POLL))
        received = trace_time()
        error = (received - sent + 1) // 2
        if error < best.error:
            best = Clock(state.now - (sent + received) // 2, error)
    return best


def _parse(clock: Clock, values: Sequence[Any]) -> TaskRecords:
    """Return the records of a task. Raises: DataLossError: they are malformed."""
    try:
        content, document = (np.asarray(value, np.uint8).tobytes() for value in values)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "task.weft-trace"
            path.write_bytes(content)
            trace = load(path)
        read = json.loads(document)
        transfers = [
            (
                str(step),
                Transfer(str(key), int(received_at), int(nbytes), str(link), int(requested_at)),
            )
            for step, key, received_at, nbytes, link, requested_at in read["transfers"]
        ]
        steps = [
            (str(name), str(label), int(start), int(end), bool(failed))
            for name, label, start, end, failed in read["steps"]
        ]
        for _, item in transfers:
            ends_of(item.key)
    except (ValueError, TypeError, KeyError, RecursionError, TraceError) as error:
        raise errors.DataLossError(f"the records of a task cannot be read: {error}") from error
    return TaskRecords(clock, trace, transfers, steps)


def merge(tasks: Sequence[TaskRecords], writer: Writer) -> None:
    """Write the records of several tasks on the clock of the first one."""
    clocks = repair_clocks(tasks)
    merger = _Merger(writer, tasks)
    for task, clock in zip(tasks, clocks, strict=True):
        merger.add(task, clock)
    merger.add_transfers(tasks, clocks)


def repair_clocks(tasks: Sequence[TaskRecords]) -> list[Clock]:
    """Return clocks corrected so that no value arrives before it was sent.

    The first clock is unchanged. Offsets move as little as that requires; the errors grow if the
    clocks must leave the estimated intervals.
    """
    offsets = [task.clock.offset for task in tasks]
    limits = _transfer_limits(tasks)
    for _ in range(len(tasks) * len(limits)):
        moved = False
        for (sender, receiver), limit in limits.items():
            excess = offsets[receiver] - offsets[sender] - limit
            if excess > 0:
                moved = True
                if receiver:
                    offsets[receiver] -= excess
                else:
                    offsets[sender] += excess
        if not moved:
            break
    return [
        Clock(offset, max(task.clock.error, abs(offset - task.clock.offset)) if index else 0)
        for index, (task, offset) in enumerate(zip(tasks, offsets, strict=True))
    ]


def _transfer_limits(tasks: Sequence[TaskRecords]) -> dict[tuple[int, int], int]:
    """Return the largest difference of the offsets of receiver and sender, from all transfers."""
    departures = {
        (step, item.key): (task_index, item.at)
        for task_index, task in enumerate(tasks)
        for step, item in task.transfers
        if not item.link
    }
    limits: dict[tuple[int, int], int] = {}
    for receiver, task in enumerate(tasks):
        for step, item in task.transfers:
            if item.link and (step, item.key) in departures:
                sender, leaving = departures[step, item.key]
                if sender != receiver:
                    pair = sender, receiver
                    limits[pair] = min(limits.get(pair, 1 << 62), item.at - leaving)
    return limits


class _Merger:
    """Adds the records of tasks to one file, with new ids."""

    def __init__(self, writer: Writer, tasks: Sequence[TaskRecords]) -> None:
        self._writer = writer
        self._steps: dict[str, int] = {}
        self._iterations: dict[tuple[str, int, int], int] = {}
        self._transfers: dict[str, int] = {}
        self._sends: dict[str, list[int]] = {}
        self._num_nodes = 0
        self._processes: list[int] = []
        self._links: dict[tuple[int, str], int] = {}
        self._labels = {name: label for task in tasks for name, label, *_ in task.steps}
        self._counts: dict[str, int] = {}
        self._first: dict[str, int] = {}
        for task_index, task in enumerate(tasks):
            for name, *_ in task.steps:
                self._first[name] = task_index

    def add(self, task: TaskRecords, clock: Clock) -> None:
        """Add the tables and events of a task."""
        (process, *_) = task.trace.processes
        moved = process._replace(clock_offset=clock.offset, clock_error=clock.error)
        number = self._writer.process(Process(*moved))
        self._processes.append(number)
        lanes = [self._writer.lane(Lane(number, lane.kind, lane.name)) for lane in task.trace.lanes]
        nodes = self._add_nodes(task.trace)
        iterations = self._add_iterations(task.trace)
        steps = [self._step(step.label) for step in task.trace.steps]
        for step in (name for name, *_ in task.steps):
            self._step(step)
        self._add_events(task, clock, lanes, nodes, iterations, steps)
        self._add_wholes(task, clock, number)
        samples = task.trace.samples.copy()
        if len(samples):
            samples["lane"] = np.array(lanes)[samples["lane"]]
            samples["time"] -= clock.offset
            self._writer.samples(samples)

    def _add_nodes(self, trace: Trace) -> list[int]:
        """Add the nodes of a task; transfers have one node in all tasks."""
        numbers: list[int] = []
        new: list[Node] = []
        for node in trace.nodes:
            number = self._transfers.get(node.name) if node.op == "_Transfer" else None
            if number is None:
                number = self._num_nodes + len(new)
                new.append(node)
                if node.op == "_Transfer":
                    self._transfers[node.name] = number
            numbers.append(number)
        count = len(numbers)
        for node in new:
            inputs = tuple([numbers[index] for index in node.inputs if index < count])
            members = tuple([numbers[index] for index in node.members if index < count])
            self._writer.node(node._replace(inputs=inputs, members=members))
        self._num_nodes += len(new)
        for index, node in enumerate(trace.nodes):
            if node.op == "_Transfer" and node.inputs:
                inputs = tuple([numbers[source] for source in node.inputs if source < count])
                self._writer.inputs(numbers[index], inputs)
        return numbers

    def _add_iterations(self, trace: Trace) -> list[int]:
        numbers = [0]
        for iteration in trace.iterations[1:]:
            parent = numbers[iteration.parent] if iteration.parent < len(numbers) else 0
            key = (iteration.frame, iteration.number, parent)
            if key not in self._iterations:
                self._iterations[key] = self._writer.iteration(Iteration(*key))
            numbers.append(self._iterations[key])
        return numbers

    def _step(self, name: str) -> int:
        number = self._steps.get(name)
        if number is None:
            label = self._labels.get(name, name)
            count = self._counts.get(label, 0)
            self._counts[label] = count + 1
            step = Step(self._first.get(name, 0), label, count)
            number = self._steps[name] = self._writer.step(step)
        return number

    def _add_events(
        self,
        task: TaskRecords,
        clock: Clock,
        lanes: Sequence[int],
        nodes: Sequence[int],
        iterations: Sequence[int],
        steps: Sequence[int],
    ) -> None:
        events = task.trace.events.copy()
        if not len(events):
            return
        sizes = {"lane": lanes, "node": nodes, "iteration": iterations}
        for column, numbers in sizes.items():
            if events[column].max() >= len(numbers):
                raise errors.DataLossError(f"an event of a task has an unknown {column}")
            events[column] = np.array(numbers)[events[column]]
        in_step = events["step"] != NO_STEP
        if in_step.any():
            if events["step"][in_step].max() >= len(steps):
                raise errors.DataLossError("an event of a task has an unknown step")
            events["step"][in_step] = np.array(steps)[events["step"][in_step]]
        for column in ("ready", "start", "end"):
            events[column] -= clock.offset
        self._writer.events(events)

    def _add_wholes(self, task: TaskRecords, clock: Clock, process: int) -> None:
        if not task.steps:
            return
        lane = self._writer.lane(Lane(process, LaneKind.THREAD, "master"))
        rows = []
        for name, label, start, end, failed in task.steps:
            node = self._add_node(Node(label, "_Step"))
            start, end = start - clock.offset, end - clock.offset
            flags = Flag.FAILED if failed else 0
            step = self._steps[name]
            rows.append((Kind.STEP, flags, lane, node, step, 0, start, start, end, -1, -1))
        self._writer.events(np.array(rows, EVENT))

    def _add_node(self, node: Node) -> int:
        self._num_nodes += 1
        return self._writer.node(node)

    def add_transfers(self, tasks: Sequence[TaskRecords], clocks: Sequence[Clock]) -> None:
        """Add an event for each transfer between tasks with two known ends."""
        departures = {
            (step, item.key): item.at - clock.offset
            for task, clock in zip(tasks, clocks, strict=True)
            for step, item in task.transfers
            if not item.link
        }
        rows = []
        for task_index, (task, clock) in enumerate(zip(tasks, clocks, strict=True)):
            for step, item in task.transfers:
                if not item.link or step not in self._steps:
                    continue
                requested_at, end = item.asked - clock.offset, item.at - clock.offset
                start = min(max(departures.get((step, item.key), requested_at), requested_at), end)
                lane, node = self._link_lane(task_index, item), self._transfer_node(item.key)
                iteration = self._iteration_of(item.key)
                number = self._steps[step]
                times = (min(requested_at, start), start, end)
                rows.append(
                    (Kind.TRANSFER, 0, lane, node, number, iteration, *times, -1, item.nbytes)
                )
        if rows:
            self._writer.events(np.array(rows, EVENT))

    def _link_lane(self, task_index: int, item: Transfer) -> int:
        sender, receiver = (device.partition("/device:")[0] for device in ends_of(item.key))
        name = f"{sender} → {receiver} ({item.link})"
        lane = self._links.get((task_index, name))
        if lane is None:
            lane = self._writer.lane(Lane(self._processes[task_index], LaneKind.LINK, name))
            self._links[task_index, name] = lane
        return lane

    def _transfer_node(self, key: str) -> int:
        name = ";".join(key.split(";")[:3])
        node = self._transfers.get(name)
        if node is None:
            node = self._transfers[name] = self._add_node(Node(name, "_Transfer", ends_of(key)[0]))
        return node

    def _iteration_of(self, key: str) -> int:
        """Return the iteration that a rendezvous key names."""
        number = 0
        for part in reversed(key.split(";")[3:]):
            frame, _, index = part.rpartition(":")
            iteration = (frame, int(index) if index.isdecimal() else 0, number)
            if iteration not in self._iterations:
                self._iterations[iteration] = self._writer.iteration(Iteration(*iteration))
            number = self._iterations[iteration]
        return number
