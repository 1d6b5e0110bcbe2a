"""Synthetic traces of clusters whose critical path, straggler and clocks are known.

A cluster has parameter servers and workers. In each step the servers send parameters to all
workers, each worker runs a random graph with a loop in it, and the servers apply the gradients.
The steps are simulated by a scheduler that remembers which event each event waited for.

As a program, it writes a trace: `python -m weft_testing.synthetic_trace FILE --events 1000000`.
"""

from __future__ import annotations

import argparse
import heapq
import os
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple

import numpy as np

from weft_trace import (
    EVENT,
    NO_STEP,
    SAMPLE,
    Crossing,
    Flag,
    Iteration,
    Kind,
    Lane,
    LaneKind,
    Node,
    Process,
    Step,
    Writer,
)

_EPOCH: Final = 1_700_000_000_000_000_000
_OPS: Final = ("Conv2D", "MatMul", "AddV2", "Relu", "Mul", "FusedBatchNormV3", "MaxPool", "Sum")
_DISPATCH: Final = 300
"""Nanoseconds between the end of an event and the start of the next one on its thread."""
_LATENCY: Final = 40_000
"""Nanoseconds that the smallest message needs."""

Key = tuple[int, int]
"""An iteration and a node."""


@dataclass(frozen=True)
class Settings:
    """The shape of a cluster; everything else is random.

    Attributes:
      servers, workers, threads: number of tasks, and of threads of each.
      nodes: per worker, outside of the loop.
      iterations: the largest trip count of the loop.
      bandwidth: of each link, in bytes per second.
      straggler: by which factor one worker is slower than the others.
      clock_offset: the largest distance of a clock from that of the first worker, in nanoseconds.
      scales: factors of the durations of kernels and transfers by op.
    """

    servers: int = 1
    workers: int = 3
    threads: int = 2
    nodes: int = 30
    iterations: int = 4
    bandwidth: float = 1.25e9
    straggler: float = 2.0
    clock_offset: int = 0
    scales: dict[str, float] = field(default_factory=dict)


def random_settings(seed: int) -> Settings:
    """Return the settings of a random cluster."""
    rng = np.random.default_rng(seed)
    return Settings(
        servers=int(rng.integers(1, 4)),
        workers=int(rng.integers(3, 6)),
        threads=int(rng.integers(1, 4)),
        nodes=int(rng.integers(10, 60)),
        iterations=int(rng.integers(1, 8)),
        bandwidth=float(10 ** rng.uniform(8.5, 10)),
        straggler=float(rng.uniform(1.6, 3.0)),
        clock_offset=int(10 ** rng.uniform(3, 9)),
    )


class Truth(NamedTuple):
    """Known properties of a trace.

    Attributes:
      paths: for each step, the iterations and nodes of its critical path, from its first event.
      straggler: id of the process that is slower.
      offsets: for each process, the difference between its clock and that of process 0.
      step_ns: the duration of each step.
    """

    paths: Sequence[Sequence[Key]]
    straggler: int
    offsets: Sequence[int]
    step_ns: Sequence[int]


@dataclass(eq=False)
class _Event:
    """An execution of a node before and after the simulation.

    Attributes:
      group: the threads or the link that run it; None if it occupies none of them.
      inputs: events that it waits for.
      ends_after: events that it waits for after its start (the transfer of a Receive).
    """

    node: int
    iteration: int
    task: int
    kind: Kind
    duration: int
    inputs: list[_Event]
    group: tuple[str, int] | None
    ends_after: list[_Event] = field(default_factory=list)
    bytes: int = -1
    ready: int = -1
    start: int = -1
    end: int = -1
    lane: int = 0
    cause: _Event | None = None
    end_cause: _Event | None = None


class Cluster:
    """A random cluster, its graph, and the steps that it runs.

    Args:
      settings: its shape.
      seed: of all random choices.
    """

    def __init__(self, settings: Settings, seed: int = 0) -> None:
        self.settings = settings
        self._rng = np.random.default_rng(seed)
        self._durations = np.random.default_rng(seed + 1)
        workers = [f"/job:worker/task:{i}" for i in range(settings.workers)]
        self.tasks = workers + [f"/job:ps/task:{i}" for i in range(settings.servers)]
        self.straggler = int(self._rng.integers(settings.workers))
        limit = settings.clock_offset
        self.offsets = [0] + [
            int(o) for o in self._rng.integers(-limit, limit + 1, len(self.tasks) - 1)
        ]
        self.nodes: list[Node] = []
        self.iterations: dict[Iteration, int] = {Iteration("", 0): 0}
        self.lanes: dict[tuple[str, int, int], int] = {}
        self.lane_records: list[Lane] = []
        self.names: dict[str, int] = {}
        self._pick = self._rng.integers(0, 1 << 30, 1 << 12)
        self._main = [self._lane("main", task, 0) for task in range(len(self.tasks))]
        for task in range(len(self.tasks)):
            for i in range(settings.threads):
                self._lane("pool", task, i)
            self._lane("memory", task, 0)

    def run_step(self, begin: int) -> tuple[list[_Event], int, list[Key]]:
        """Simulate one step that starts at a time; returns its events, its end and its path."""
        events = self._make_events()
        end = _Simulation(events, self).run(begin)
        last = max(events, key=lambda event: event.end)
        return events, end + 2_000, _path_to(last)

    # The graph

    def _node(self, name: str, op: str, task: int, inputs: Sequence[int], **more: Any) -> int:
        """Return the id of the node with a name and a task; adds it at the first call."""
        key = f"{self.tasks[task]} {name}"
        if key not in self.names:
            self.names[key] = len(self.nodes)
            line = f"model.py:{10 + len(self.nodes) % 90}"
            device = f"{self.tasks[task]}/device:CPU:0"
            self.nodes.append(Node(name, op, device, line, tuple(inputs), **more))
        return self.names[key]

    def _iteration(self, frame: str, number: int, parent: int) -> int:
        return self.iterations.setdefault(Iteration(frame, number, parent), len(self.iterations))

    def _lane(self, kind: str, task: int, number: int) -> int:
        key = (kind, task, number)
        if key not in self.lanes:
            self.lanes[key] = len(self.lane_records)
            kinds = {"memory": LaneKind.MEMORY, "link": LaneKind.LINK}
            names = {
                "main": "MainThread",
                "pool": f"weft-pool-{number}",
                "memory": "CPU:0 memory",
                "link": f"{self.tasks[number]} → {self.tasks[task]} (socket)",
            }
            self.lane_records.append(Lane(task, kinds.get(kind, LaneKind.THREAD), names[kind]))
        return self.lanes[key]

    def lane_of(self, event: _Event, number: int) -> int:
        """Return the lane of an event on a thread of its group."""
        if event.group is None:
            return self._main[event.task]
        kind, task = event.group
        return self._lane(kind, task, number)

    def _choose(self, name: str, count: int) -> int:
        """Return a number below `count` that depends on nothing but the name."""
        return int(self._pick[sum(map(ord, name)) * 31 % len(self._pick)]) % count

    # The events of a step

    def _make_events(self) -> list[_Event]:
        settings = self.settings
        self._events: list[_Event] = []
        plan = self._phase("plan", 8_000, [])
        feed = self._phase("feed", 15_000, [plan])
        servers = range(settings.workers, len(self.tasks))
        variables = {
            s: self._kernel("params/read", "ReadVariableOp", s, [feed], 3e4) for s in servers
        }
        gradients: dict[int, list[_Event]] = {s: [] for s in servers}
        losses = []
        for worker in range(settings.workers):
            params = [self._send(variables[s], s, worker, "params") for s in servers]
            loss, parts = self._worker(worker, feed, params)
            losses.append(loss if worker == 0 else self._send(loss, worker, 0, "loss", 4))
            for server in servers:
                part = parts[server % len(parts)]
                gradients[server].append(self._send(part, worker, server, "gradient"))
        self._kernel("loss/mean", "Mean", 0, losses, 2e4)
        for server in servers:
            total = self._kernel("train/AddN", "AddN", server, gradients[server], 1e5)
            self._kernel("train/apply", "ResourceApplyMomentum", server, [total], 1e5)
        self._phase("fetch", 10_000, list(self._events))
        return self._events

    def _worker(self, task: int, feed: _Event, params: list[_Event]) -> tuple[_Event, list[_Event]]:
        node = self._node("input/dequeue", "QueueDequeueV2", task, ())
        queue = self._add(node, 0, task, Kind.WAIT, 5e4, [feed], None)
        layers = [queue, *params]
        count = self.settings.nodes
        for i in range(count):
            name = f"tower/layer{i // 4}/{_OPS[i % len(_OPS)]}_{i}"
            picks = {self._choose(f"{name}:{k}", len(layers)) for k in range(1 + i % 3)}
            kind = Kind.REGION if i % 9 == 4 else Kind.KERNEL
            op = "_Region" if kind is Kind.REGION else _OPS[i % len(_OPS)]
            inputs = [layers[p] for p in sorted(picks)]
            layers.append(self._kernel(name, op, task, inputs, 4e5, kind))
            if i == count // 2:
                layers.append(self._loop("rnn", task, layers[-1], 0, 1))
        loss = self._kernel("tower/loss", "Sum", task, layers[-4:], 3e4)
        parts = [
            self._kernel(f"gradients/layer{i}", "MatMul", task, [loss, layers[-1 - i]], 6e5)
            for i in range(4)
        ]
        return loss, parts

    def _loop(self, frame: str, task: int, source: _Event, parent: int, depth: int) -> _Event:
        def run(
            name: str, op: str, inputs: list[_Event], at: int, mean: float = 4e3,
            crossing: Crossing = Crossing.SAME, ids: tuple[int, ...] = (),
        ) -> _Event:  # fmt: skip
            node = self._node(
                f"{frame}/{name}", op, task, ids or [e.node for e in inputs], crossing=crossing
            )
            return self._add(node, at, task, Kind.KERNEL, mean, inputs, ("pool", task))

        enter = run("Enter", "Enter", [source], parent)
        weights = run("weights/Enter", "Enter", [source], parent)
        following = f"{self.tasks[task]} {frame}/NextIteration"
        if following not in self.names:
            merge_node = self._node(
                f"{frame}/Merge", "Merge", task, (enter.node,), crossing=Crossing.PREVIOUS
            )
            next_node = self._node(f"{frame}/NextIteration", "NextIteration", task, ())
            self.nodes[merge_node] = self.nodes[merge_node]._replace(inputs=(enter.node, next_node))
        trips = int(self._durations.integers(1, self.settings.iterations + 1))
        value = enter
        for number in range(trips + 1):
            at = self._iteration(frame, number, parent)
            merge = run("Merge", "Merge", [value], at, ids=(0,))
            condition = run("LoopCond", "LoopCond", [merge], at)
            switch = run("Switch", "Switch", [merge, condition], at)
            if number == trips:
                break
            body = run("cell/MatMul", "MatMul", [switch, weights], at, 1e5)
            if depth and number % 2:
                body = self._loop(f"{frame}/inner", task, body, at, depth - 1)
            if depth:  # its input is the inner loop in odd iterations, the cell in even ones
                node = self._node(f"{frame}/cell/Tanh", "Tanh", task, ())
                self._link(node, body.node)
                body = run("cell/Tanh", "Tanh", [body], at, 2e4)
            else:
                body = run("cell/Tanh", "Tanh", [body], at, 2e4)
            self._link(self.names[following], body.node)
            value = run("NextIteration", "NextIteration", [body], at)
        return run("Exit", "Exit", [switch], parent, crossing=Crossing.INNER)

    def _link(self, node: int, source: int) -> None:
        """Add an input to a node."""
        old = self.nodes[node]
        if source not in old.inputs:
            self.nodes[node] = old._replace(inputs=(*old.inputs, source))

    def _kernel(
        self, name: str, op: str, task: int, inputs: list[_Event], mean: float,
        kind: Kind = Kind.KERNEL,
    ) -> _Event:  # fmt: skip
        ids = [e.node for e in inputs if e.kind is not Kind.PHASE]
        size = 1 << 8 + self._choose(name, 14)
        members = ()
        if kind is Kind.REGION:
            members = tuple([self._node(f"{name}/{m}", m, task, ()) for m in _OPS[:3]])
        node = self._node(name, op, task, ids, output_bytes=size, members=members)
        event = self._add(node, 0, task, kind, mean, inputs, ("pool", task))
        event.bytes = size
        return event

    def _phase(self, name: str, mean: float, inputs: list[_Event]) -> _Event:
        node = self._node(name, "_Phase", 0, ())
        return self._add(node, 0, 0, Kind.PHASE, mean, inputs, ("main", 0))

    def _send(
        self, source: _Event, sender: int, receiver: int, label: str, size: int = 0
    ) -> _Event:
        """Add the Send, the transfer and the Receive of a value; returns the Receive."""
        name = f"{self.nodes[source.node].name}/{label}/{sender}_{receiver}"
        node = self._node(f"{name}/_Send", "_Send", sender, [source.node])
        send = self._add(node, 0, sender, Kind.KERNEL, 5e3, [source], ("pool", sender))
        size = size or 1 << 12 + self._choose(name, 9)
        key = self._node(f"{name};0:0", "_Transfer", receiver, [node])
        wire = _LATENCY + size / self.settings.bandwidth * 1e9
        wire *= self.settings.scales.get("_Transfer", 1.0)
        receive_node = self._node(f"{name}/_Recv", "_Recv", receiver, [key])
        receive = self._add(receive_node, 0, receiver, Kind.RECEIVE, 1e3, [self._events[1]], None)
        transfer = self._add(
            key, 0, receiver, Kind.TRANSFER, 0, [send, receive], ("link", receiver)
        )
        transfer.duration = int(wire * self._durations.uniform(1.0, 1.1))
        transfer.bytes = size
        transfer.lane = self._lane("link", receiver, sender)
        receive.ends_after = [transfer]
        return receive

    def scales_of(self, node: int) -> list[float]:
        """Return the factor of a node's duration; of a region, those of its members."""
        members = self.nodes[node].members or (node,)
        return [self.settings.scales.get(self.nodes[m].op, 1.0) for m in members]

    def _add(
        self, node: int, iteration: int, task: int, kind: Kind, mean: float,
        inputs: list[_Event], group: tuple[str, int] | None,
    ) -> _Event:  # fmt: skip
        slow = self.settings.straggler if task == self.straggler and group is not None else 1.0
        slow *= np.mean(self.scales_of(node))
        weight = 0.5 + self._choose(self.nodes[node].name, 100) / 50
        duration = round(mean * slow * weight * self._durations.uniform(0.9, 1.1))
        event = _Event(node, iteration, task, kind, duration, inputs, group)
        self._events.append(event)
        return event


class _Simulation:
    """Runs the events of a step on threads and links, and sets their times, lanes and causes.

    An event starts when its inputs have ended and a thread of its group is free; threads take
    waiting events in the order in which they became ready. Links have no queue.
    """

    def __init__(self, events: list[_Event], cluster: Cluster) -> None:
        self._events = events
        self._cluster = cluster
        self._pending = {id(event): len(event.inputs) for event in events}
        self._order = {id(event): i for i, event in enumerate(events)}
        self._consumers: dict[int, list[_Event]] = {}
        for event in events:
            for source in event.inputs:
                self._consumers.setdefault(id(source), []).append(event)
        self._receives = {id(event.ends_after[0]): event for event in events if event.ends_after}
        self._free: dict[tuple[str, int], list[int]] = {}
        self._waiting: dict[tuple[str, int], deque[_Event]] = {}
        self._threads: dict[int, int] = {}
        self._heap: list[tuple[int, int, bool, _Event]] = []  # time, order, is an end, event

    def run(self, begin: int) -> int:
        """Run all events from a time; returns the end of the last one."""
        for event in self._events:
            if not event.inputs:
                self._arrive(event, begin + _DISPATCH, None)
        last = begin
        while self._heap:
            time, _, is_end, event = heapq.heappop(self._heap)
            if is_end:
                last = time
                self._finish(event, time)
            else:
                self._request_thread(event, time)
        return last

    def _push(self, time: int, is_end: bool, event: _Event) -> None:
        heapq.heappush(self._heap, (time, self._order[id(event)], is_end, event))

    def _arrive(self, event: _Event, time: int, cause: _Event | None) -> None:
        """Count down the inputs that an event waits for."""
        self._pending[id(event)] -= cause is not None
        if self._pending[id(event)] <= 0:
            event.ready, event.cause = time, cause
            self._push(time, False, event)

    def _request_thread(self, event: _Event, time: int) -> None:
        if event.group is None or event.kind is Kind.TRANSFER:
            self._start(event, time, 0)
            return
        group = event.group
        number = self._cluster.settings.threads if group[0] == "pool" else 1
        free = self._free.setdefault(group, list(range(number)))
        if free:
            self._start(event, time, heapq.heappop(free))
        else:
            self._waiting.setdefault(group, deque()).append(event)

    def _start(self, event: _Event, time: int, thread: int) -> None:
        self._threads[id(event)] = thread
        if event.kind is Kind.TRANSFER:
            event.start = time
            event.ready = event.inputs[-1].start  # when its Receive requested it
        else:
            event.start = time + _DISPATCH
            event.lane = self._cluster.lane_of(event, thread)
        if event.ends_after:  # a Receive ends after its transfer
            self._arrive(event.ends_after[0], event.start, event)
            return
        event.end = event.start + event.duration
        self._push(event.end, True, event)

    def _finish(self, event: _Event, time: int) -> None:
        group = event.group
        if group is not None and event.kind is not Kind.TRANSFER:
            thread = self._threads[id(event)]
            if self._waiting.get(group):
                following = self._waiting[group].popleft()
                following.cause = event
                self._start(following, time, thread)
            else:
                heapq.heappush(self._free[group], thread)
        receive = self._receives.get(id(event))
        if receive is not None:
            receive.end, receive.end_cause = time + receive.duration, event
            self._push(receive.end, True, receive)
        for consumer in self._consumers.get(id(event), ()):
            if consumer not in event.ends_after:
                self._arrive(consumer, time, event)


def _path_to(event: _Event) -> list[Key]:
    """Return the chain of causes of the end of an event, from its first event."""
    path: list[Key] = []
    current: _Event | None = event
    at_end = True
    while current is not None:
        path.append((current.iteration, current.node))
        is_receive = at_end and current.end_cause is not None
        cause = current.end_cause if is_receive else current.cause
        # A transfer that its Receive caused waited for the start of that, not for its end.
        at_end = not (
            current.kind is Kind.TRANSFER and cause is not None and cause.kind is Kind.RECEIVE
        )
        current = cause
    return path[::-1]


def write_cluster(
    path: str | os.PathLike[str], cluster: Cluster, steps: int = 4, events: int = 0
) -> Truth:
    """Write the trace of a cluster.

    Args:
      steps: number of simulated steps.
      events: if this number is larger than that of their events, the steps are repeated, with other
        times, until it is reached.
    """
    rows, paths, lengths, begin = [], [], [], _EPOCH
    for i in range(steps):
        made, end, keys = cluster.run_step(begin)
        step = cluster._node("step", "_Step", 0, ())
        python = cluster._node("python", "_Python", 0, ())
        pause = 50_000 + int(cluster._durations.integers(20_000))
        rows.append(_rows(cluster, made, i, (begin, end), (step, python, pause)))
        paths.append(keys)
        lengths.append(end - begin)
        begin = end + pause
    table = np.concatenate(rows)
    for task, offset in enumerate(cluster.offsets):
        tasks = np.array([lane.process for lane in cluster.lane_records])
        mine = tasks[table["lane"]] == task
        for name in ("ready", "start", "end"):
            table[name][mine] += offset
    repeats = max(1, -(-events // len(table)))
    with Writer(path) as writer:
        _write_records(writer, cluster, steps * repeats)
        for k in range(repeats):
            copy = table.copy()
            copy["step"][copy["step"] != NO_STEP] += k * steps
            stretch = cluster._durations.uniform(0.8, 1.0) if k else 1.0
            for name in ("ready", "start", "end"):
                times = ((copy[name] - _EPOCH) * stretch).astype(np.int64)
                copy[name] = _EPOCH + k * (begin - _EPOCH) + times
            writer.events(copy)
            writer.samples(_samples(cluster, copy))
    return Truth(paths, cluster.straggler, cluster.offsets, lengths)


def _write_records(writer: Writer, cluster: Cluster, steps: int) -> None:
    for i, task in enumerate(cluster.tasks):
        writer.process(Process(task, 100 + i, f"host-{i}"))
    for lane in cluster.lane_records:
        writer.lane(lane)
    for node in cluster.nodes:
        writer.node(node)
    for iteration in list(cluster.iterations)[1:]:
        writer.iteration(iteration)
    for i in range(steps):
        writer.step(Step(0, "fetches: loss, train; feeds: images, labels", i))


def _rows(
    cluster: Cluster, made: list[_Event], step: int, times: tuple[int, int],
    others: tuple[int, int, int],
) -> Any:  # fmt: skip
    """Return the events of a step as rows of `EVENT`."""
    begin, end = times
    step_node, python_node, pause = others
    rows: list[tuple[Any, ...]] = [
        (Kind.STEP, 0, cluster._main[0], step_node, step, 0, begin, begin, end, -1, -1),
        (Kind.PYTHON, 0, cluster._main[0], python_node, NO_STEP, 0, end, end, end + pause, -1, -1),
    ]
    releases: dict[int, int] = {}
    for event in made:
        for source in event.inputs:
            releases[id(source)] = max(releases.get(id(source), 0), event.end)
    for event in made:
        rows.append((
            event.kind, 0, event.lane, event.node, step, event.iteration, event.ready, event.start,
            event.end, -1, event.bytes,
        ))  # fmt: skip
        if event.kind is Kind.REGION:
            rows += _generated(cluster, event, step)
        if event.kind in (Kind.KERNEL, Kind.REGION) and event.bytes > 0:
            lane = cluster._lane("memory", event.task, 0)
            release = max(releases.get(id(event), 0), event.end)
            rows.append((
                Kind.BUFFER, 0, lane, event.node, step, event.iteration, event.start, event.start,
                release, -1, event.bytes,
            ))  # fmt: skip
    return np.array(rows, EVENT)


def _generated(cluster: Cluster, event: _Event, step: int) -> Iterator[tuple[Any, ...]]:
    members = cluster.nodes[event.node].members
    shares = np.cumsum([0.0, *cluster.scales_of(event.node)])
    edges = event.start + np.round(shares / shares[-1] * event.duration).astype(int)
    for member, first, last in zip(members, edges[:-1], edges[1:], strict=True):
        node = cluster.nodes[member]
        flags = Flag.ESTIMATED if cluster._choose(node.name, 2) else 0
        yield (
            Kind.GENERATED, flags, event.lane, member, step, event.iteration, first, first, last,
            -1, -1,
        )  # fmt: skip


def _samples(cluster: Cluster, table: Any) -> Any:
    """Return the bytes in use after each allocation and release."""
    parts = []
    for task in range(len(cluster.tasks)):
        lane = cluster._lane("memory", task, 0)
        buffers = table[(table["kind"] == Kind.BUFFER) & (table["lane"] == lane)]
        times = np.concatenate([buffers["start"], buffers["end"]])
        sizes = np.concatenate([buffers["output_bytes"], -buffers["output_bytes"]])
        order = np.argsort(times, kind="stable")
        rows = np.zeros(len(times), SAMPLE)
        rows["lane"], rows["time"], rows["value"] = lane, times[order], np.cumsum(sizes[order])
        parts.append(rows)
    return np.concatenate(parts)


def main() -> None:
    """Write a trace with a number of events."""
    parser = argparse.ArgumentParser(description="Write a synthetic trace.")
    parser.add_argument("file")
    parser.add_argument("--events", type=int, default=10_000)
    parser.add_argument("--steps", type=int, default=8, help="steps that differ (default: 8)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--clock-offset", type=int, default=0, help="nanoseconds (default: 0)")
    arguments = parser.parse_args()
    settings = replace(random_settings(arguments.seed), clock_offset=arguments.clock_offset)
    write_cluster(
        arguments.file, Cluster(settings, arguments.seed), arguments.steps, arguments.events
    )


if __name__ == "__main__":
    main()
