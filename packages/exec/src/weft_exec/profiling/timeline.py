"""A traced step as a picture: the trace format that Chrome and Perfetto show."""

from __future__ import annotations

__all__ = ["Timeline"]

import json
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

_LABEL = re.compile(r"^(?P<name>\S+) = (?P<op>\w+)\((?P<inputs>[^)]*)\)(?: (?P<note>.*))?$")


class NodeTime(NamedTuple):
    """One execution of a node; times in microseconds since the epoch.

    Attributes:
      nbytes: of its outputs.
      note: what more is to be said, as of a value's way between two tasks.
    """

    device: str
    name: str
    op: str
    inputs: tuple[str, ...]
    thread: int
    start: int
    micros: int
    nbytes: int
    note: str = ""


def node_times(step_stats: Any) -> Iterator[NodeTime]:
    """The executions that a `StepStats` message tells of, device by device."""
    for device in step_stats.dev_stats:
        for stats in device.node_stats:
            found = _LABEL.match(stats.timeline_label)
            op, inputs = (found["op"], found["inputs"]) if found else (stats.node_name, "")
            note = (found["note"] if found else "") or ""
            yield NodeTime(
                device.device,
                stats.node_name,
                op,
                tuple([name for name in inputs.split(", ") if name]),
                stats.thread_id,
                stats.all_start_micros,
                stats.all_end_rel_micros,
                sum(memory.total_bytes for memory in stats.memory),
                note,
            )


class Timeline:
    """The times of a traced step.

    Args:
      step_stats: of a RunMetadata that a step with `trace_level=RunOptions.FULL_TRACE` has filled.
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

    def generate_chrome_trace_format(
        self, show_dataflow: bool = True, show_memory: bool = False
    ) -> str:
        """The step in JSON, for `chrome://tracing` or ui.perfetto.dev.

        Args:
          show_dataflow: draw arrows from each node to those that use its outputs.
          show_memory: draw how many bytes of outputs are there, at each time.
        """
        devices = dict.fromkeys(time.device for time in self._times)
        processes = {device: number for number, device in enumerate(devices)}
        events = [
            _event("M", "process_name", pid, args={"name": f"{device} Compute"})
            for device, pid in processes.items()
        ]
        threads = self._threads()
        for time in self._times:
            args: dict[str, Any] = {"name": time.name, "op": time.op}
            args |= {f"input{i}": name for i, name in enumerate(time.inputs)}
            if time.note:
                args |= {"transfer": time.note, "bytes": time.nbytes}
            where = {"tid": threads[time.device, time.thread], "ts": time.start}
            pid = processes[time.device]
            events.append(_event("X", time.op, pid, cat="Op", **where, dur=time.micros, args=args))
        if show_dataflow:
            events += self._arrows(processes, threads)
        if show_memory:
            events += self._memory(processes)
        return json.dumps({"traceEvents": events}, indent=1)

    def _threads(self) -> dict[tuple[str, int], int]:
        """A small number for each thread of each device."""
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
        made = {time.name: time for time in self._times}
        edges = [(user, name) for user in self._times for name in user.inputs if name in made]
        for number, (time, name) in enumerate(edges):
            source = made[name]
            ends = (("s", source, source.start + source.micros), ("t", time, time.start))
            for phase, node, at in ends:
                where = {"tid": threads[node.device, node.thread], "ts": at, "id": number}
                yield _event(phase, name, processes[node.device], cat="DataFlow", **where)

    def _memory(self, processes: dict[str, int]) -> Iterator[dict[str, Any]]:
        """The bytes of outputs that some later node still uses."""
        last = {name: time for time in self._times for name in time.inputs}
        changes = []
        for time in self._times:
            user = last.get(time.name)
            if time.nbytes and user is not None:
                changes.append((time.start + time.micros, time.device, time.nbytes))
                changes.append((user.start + user.micros, time.device, -time.nbytes))
        now = dict.fromkeys(processes, 0)
        for at, device, change in sorted(changes):
            now[device] += change
            args = {"bytes": now[device]}
            yield _event("C", "Memory", processes[device], cat="Memory", ts=at, args=args)


def _event(phase: str, name: str, pid: int, **more: Any) -> dict[str, Any]:
    return {"ph": phase, "name": name, "pid": pid, **more}
