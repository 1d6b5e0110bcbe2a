"""A traced step as a picture: the trace format that Chrome and Perfetto show."""

from __future__ import annotations

__all__ = ["Timeline"]

import json
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

from weft_exec.step_labels import NodeLabel

_TRANSFER: Final = "/to/job:"
"""The separator of tensor and receiver in the name of a transfer; see `step_stats.send_name`."""


class NodeTime(NamedTuple):
    """One execution of a node; times in nanoseconds, `start` since the epoch.

    Attributes:
      label: known facts about the node, its inputs and its iteration.
      nbytes: bytes of its outputs.
    """

    device: str
    label: NodeLabel
    thread: int
    start: int
    duration: int
    nbytes: int

    @property
    def name(self) -> str:
        """The node's name."""
        return self.label.name

    @property
    def end(self) -> int:
        """When it had ended."""
        return self.start + self.duration


class _Edge(NamedTuple):
    """An output of one execution that another execution uses, by the name of its input."""

    name: str
    source: NodeTime
    user: NodeTime

    @property
    def ends(self) -> tuple[int, int]:
        """Times of departure and use of a value; a transfer is drawn next to its Receive."""
        leaves = self.source.start if _TRANSFER in self.source.name else self.source.end
        return leaves, self.user.start


def node_times(step_stats: Any) -> Iterator[NodeTime]:
    """Yield the executions in a `StepStats` message, device by device."""
    for device in step_stats.dev_stats:
        for stats in device.node_stats:
            nanoseconds = stats.all_start_nanos or 1000 * stats.all_start_micros
            yield NodeTime(
                device.device,
                NodeLabel.parse(stats.timeline_label, stats.node_name),
                stats.thread_id,
                nanoseconds,
                stats.all_end_rel_nanos or 1000 * stats.all_end_rel_micros,
                sum(memory.total_bytes for memory in stats.memory),
            )


def _edges(times: Sequence[NodeTime]) -> list[_Edge]:
    """Return the values that executions read from others.

    If a source has several executions, the one of the same iteration counts. Otherwise, as for a
    node outside of the loop, the last one that ended before counts.
    """
    executions: dict[str, list[NodeTime]] = {}
    for time in times:
        executions.setdefault(time.name, []).append(time)
    result = []
    for user in times:
        for name in user.label.inputs:
            sources = executions.get(name) or executions.get(_producer(name), [])
            edges = [_Edge(name, source, user) for source in sources]
            edges = [edge for edge in edges if edge.ends[0] <= edge.ends[1]]
            same_iteration = [e for e in edges if e.source.label.iteration == user.label.iteration]
            if same_iteration or edges:
                result.append(max(same_iteration or edges, key=lambda edge: edge.ends[0]))
    return result


def _producer(name: str) -> str:
    """Return the node whose output a transfer carries, from the name of the transfer."""
    return name.partition(_TRANSFER)[0].partition(":")[0]


class Timeline:
    """The times of a traced step.

    Args:
      step_stats: the field of the RunMetadata of a step with `trace_level=RunOptions.FULL_TRACE`.
      graph: accepted for compatibility: the statistics name the inputs.

    Examples:
      >>> y = wf.matmul(wf.ones([2, 2]), wf.random_uniform([2, 2]))
      >>> metadata = wf.RunMetadata()
      >>> options = wf.RunOptions(trace_level=wf.RunOptions.FULL_TRACE)
      >>> result = wf.Session().run(y, options=options, run_metadata=metadata)
      >>> trace = wf.timeline.Timeline(metadata.step_stats).generate_chrome_trace_format()
      >>> "MatMul" in trace
      True
    """

    def __init__(self, step_stats: Any, graph: Any = None) -> None:
        self._times = sorted(node_times(step_stats), key=lambda time: (time.device, time.start))
        self._origin = min((time.start - time.label.waited for time in self._times), default=0)

    def generate_chrome_trace_format(
        self, show_dataflow: bool = True, show_memory: bool = False
    ) -> str:
        """Return the step in JSON, for `chrome://tracing` or ui.perfetto.dev.

        Times are in microseconds since the step's first event, with fractions; "otherData" has that
        event's time in nanoseconds since the epoch. A Receive begins when its value was sent; the
        wait before it has the category "Wait". Members of compiled regions, whose times are
        estimated shares of the region's, have the category "Estimate" and the argument "estimated".

        Args:
          show_dataflow: draw arrows from each node to those that use its outputs.
          show_memory: draw the bytes of live outputs over time.
        """
        devices = dict.fromkeys(time.device for time in self._times)
        processes = {device: number for number, device in enumerate(devices)}
        events = [
            _event("M", "process_name", pid, args={"name": f"{device} Compute"})
            for device, pid in processes.items()
        ]
        threads = self._threads()
        for time in self._times:
            events += self._bars(time, processes[time.device], threads[time.device, time.thread])
        if show_dataflow:
            events += self._arrows(processes, threads)
        if show_memory:
            events += self._memory(processes)
        metadata = {"otherData": {"start_nanos": self._origin}} if self._times else {}
        return json.dumps({"traceEvents": events, **metadata}, indent=1)

    def _micros(self, nanoseconds: int) -> float:
        """Return a time as microseconds since the first event."""
        return (nanoseconds - self._origin) / 1000

    def _bars(self, time: NodeTime, pid: int, thread: int) -> Iterator[dict[str, Any]]:
        """Yield an execution and the wait before it."""
        label = time.label
        args: dict[str, Any]
        if label.waited:
            micros = self._micros(time.start - label.waited)
            args = {"name": f"{label.name} (wait)", "op": label.op}
            position = {"tid": thread, "ts": micros, "dur": label.waited / 1000}
            yield _event("X", "Wait", pid, cat="Wait", **position, args=args)
        args = {"name": label.name, "op": label.op}
        args |= {f"input{i}": name for i, name in enumerate(label.inputs)}
        if label.iteration:
            args["iteration"] = str(label.iteration)  # too wide for numbers of JSON
        if label.estimated:
            args["estimated"] = "a share of the time of a compiled region"
        if label.note:
            args |= {"transfer": label.note, "bytes": time.nbytes}
        position = {"tid": thread, "ts": self._micros(time.start), "dur": time.duration / 1000}
        category = "Estimate" if label.estimated else "Op"
        yield _event("X", label.op, pid, cat=category, **position, args=args)

    def _threads(self) -> dict[tuple[str, int], int]:
        """Return a small number for each thread of each device."""
        numbers: dict[tuple[str, int], int] = {}
        count: dict[str, int] = {}
        for time in self._times:
            key = time.device, time.thread
            if key not in numbers:
                numbers[key] = count.get(time.device, 0)
                count[time.device] = numbers[key] + 1
        return numbers

    def _arrows(
        self, processes: dict[str, int], threads: dict[tuple[str, int], int]
    ) -> Iterator[dict[str, Any]]:
        for number, edge in enumerate(_edges(self._times)):
            ends = zip("st", (edge.source, edge.user), edge.ends, strict=True)
            for phase, node, index in ends:
                tid = threads[node.device, node.thread]
                position = {"tid": tid, "ts": self._micros(index), "id": number}
                yield _event(phase, edge.name, processes[node.device], cat="DataFlow", **position)

    def _memory(self, processes: dict[str, int]) -> Iterator[dict[str, Any]]:
        """Yield the bytes of outputs that some later node still uses."""
        last: dict[NodeTime, int] = {}
        for edge in _edges(self._times):
            last[edge.source] = max(last.get(edge.source, 0), edge.user.end)
        changes = []
        for time in self._times:
            if time.nbytes and time in last:
                changes.append((time.end, time.device, time.nbytes))
                changes.append((last[time], time.device, -time.nbytes))
        current = dict.fromkeys(processes, 0)
        for index, device, change in sorted(changes):
            current[device] += change
            args, ts = {"bytes": current[device]}, self._micros(index)
            yield _event("C", "Memory", processes[device], cat="Memory", ts=ts, args=args)


def _event(phase: str, name: str, pid: int, **fields: Any) -> dict[str, Any]:
    return {"ph": phase, "name": name, "pid": pid, **fields}
