"""The step protocol in virtual time: the runtime's own state machines, with measured service times.

A task is a processor that does one thing at a time, as the interpreter's lock has it, and a network
card each way. What a step costs them is in `Costs`, which `measure.py` takes from the real runtime.
"""

from __future__ import annotations

import heapq
import itertools
import random
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from weft_distrib.master.step import Finish, StepCoordinator
from weft_distrib.wire.methods import StepKey
from weft_distrib.worker.steps import Steps
from weft_tensor import errors

Then = Callable[[], None]


class Costs(NamedTuple):
    """The costs of the parts of a step, in processor seconds unless stated otherwise.

    Attributes:
      client: what a step takes at the client, its master and its own worker, whatever it touches.
      client_task: what it takes there for each other task that it touches.
      client_byte: for each byte that comes.
      server: what a step takes at a task that it touches.
      server_byte: for each byte that the task sends.
      master_task: what a step takes at a master for each worker that it drives.
      answer: what one question of a watch takes at who asks.
      answerer: what it takes at the process beside the server that is asked.
      delay: time that passes with each message, beside the processors.
      bandwidth: of a network card each way, bytes a second.
    """

    client: float
    client_task: float
    client_byte: float
    server: float
    server_byte: float
    master_task: float
    answer: float
    answerer: float
    delay: float
    bandwidth: float


class Clock:
    """Virtual time, with the pending events."""

    def __init__(self) -> None:
        self.now = 0.0
        self._events: list[tuple[float, int, Then]] = []
        self._numbers = itertools.count()

    def after(self, seconds: float, then: Then) -> None:
        """Schedule an event."""
        heapq.heappush(self._events, (self.now + seconds, next(self._numbers), then))

    def run(self, until: Callable[[], bool]) -> None:
        """Advance the time until a condition holds."""
        while not until():
            self.now, _, then = heapq.heappop(self._events)
            then()


class Resource:
    """A resource with a limited number of concurrent users, who are served in order.

    Attributes:
      busy: seconds of work that it has done.
    """

    def __init__(self, clock: Clock, count: int = 1) -> None:
        self._clock = clock
        self._free = [0.0] * count
        self.busy = 0.0

    def use(self, seconds: float, then: Then) -> None:
        """Occupy the resource for some time, as soon as it has room."""
        start = max(self._clock.now, heapq.heappop(self._free))
        heapq.heappush(self._free, start + seconds)
        self.busy += seconds
        self._clock.after(start + seconds - self._clock.now, then)


class _Part:
    """A step in a simulated task."""

    def abort(self, error: errors.OpError) -> None:
        """Do nothing; nobody waits for a simulated step."""


class Task:
    """A task: a processor, a network card for each direction, and its steps."""

    def __init__(self, clock: Clock, processor: Resource | None = None) -> None:
        self.processor = processor or Resource(clock)
        self.sends, self.receives = Resource(clock), Resource(clock)
        self.steps: Steps[_Part] = Steps(lambda key: _Part())


@dataclass
class Load:
    """The work of each step of a worker.

    Attributes:
      pulled: bytes that it pulls from the parameter servers together.
      pushed: bytes that it sends them.
      compute: seconds between the two, as a function of a random generator.
    """

    pulled: float = 0.0
    pushed: float = 0.0
    compute: Callable[[random.Random], float] = lambda generator: 0.0


class Replica:
    """A worker with its own client and master, which runs steps one after the other."""

    def __init__(self, cluster: Cluster, number: int, load: Load) -> None:
        self._cluster, self._load = cluster, load
        self._session = number + 1
        self.task = Task(cluster.clock, cluster.shared)
        self._step = 0
        self._began = 0.0
        self.times: list[float] = []
        for server in cluster.servers:
            server.steps.add_session(self._session)

    def begin(self, then: Then) -> None:
        """Run a step, and call `then` at its end."""
        cluster, costs = self._cluster, self._cluster.costs
        self._began, self._step = cluster.clock.now, self._step + 1
        key = StepKey(self._session, self._step)
        coordinator = StepCoordinator(range(len(cluster.servers)))
        own = costs.client + costs.client_task * len(cluster.servers)

        def replied(server: int) -> None:
            if any(isinstance(told, Finish) for told in coordinator.replied(server)):
                computing = self._load.compute(cluster.random)
                cluster.clock.after(computing, lambda: self._push(then))

        def ask() -> None:
            share = self._load.pulled / len(cluster.servers)
            for i in range(len(cluster.servers)):
                cluster.serve(i, self.task, key, share, lambda i=i: replied(i))

        self.task.processor.use(own, ask)

    def _push(self, then: Then) -> None:
        cluster, costs = self._cluster, self._cluster.costs
        left = [len(cluster.servers)]

        def arrived() -> None:
            left[0] -= 1
            if not left[0]:
                self.times.append(cluster.clock.now - self._began)
                then()

        if not self._load.pushed:
            left[0] = 1
            arrived()
            return
        share = self._load.pushed / len(cluster.servers)
        for server in cluster.servers:
            cluster.send(self.task, server, share, costs.server_byte, costs.client_byte, arrived)


class Cluster:
    """Parameter servers and replicas.

    Args:
      cores: processors that all tasks share, as on one machine; each has its own with 0.
    """

    def __init__(
        self, costs: Costs, servers: int, workers: int, load: Load, cores: int = 0, seed: int = 0
    ) -> None:
        self.costs, self.clock, self.random = costs, Clock(), random.Random(seed)
        self.shared = Resource(self.clock, cores) if cores else None
        self.servers = [Task(self.clock, self.shared) for _ in range(servers)]
        self.replicas = [Replica(self, i, load) for i in range(workers)]

    def send(
        self, sender: Task, receiver: Task, size: float, sent: float, got: float, then: Then
    ) -> None:
        """Transfer bytes between tasks; a card carries one transfer at a time."""
        wire = size / self.costs.bandwidth

        def arrive() -> None:
            receiver.receives.use(wire, lambda: receiver.processor.use(size * got, then))

        def leave() -> None:
            sender.sends.use(wire, lambda: self.clock.after(self.costs.delay, arrive))

        sender.processor.use(size * sent, leave)

    def serve(self, number: int, client: Task, key: StepKey, size: float, then: Then) -> None:
        """Run a parameter server's part of a step: receive the call, run it, answer the pulls."""
        server, costs = self.servers[number], self.costs

        def run() -> None:
            server.steps.end_before(key.session, key.step)
            server.steps.open(key)
            server.processor.use(
                costs.server,
                lambda: self.send(server, client, size, costs.server_byte, costs.client_byte, then),
            )

        self.clock.after(costs.delay, run)

    def asynchronous(self, steps: int) -> float:
        """Run the replicas asynchronously, with a mean number of steps; return steps per second."""
        done = [0]
        wanted = steps * len(self.replicas)
        warm = wanted // 4
        began = [0.0]

        def again(replica: Replica) -> None:
            done[0] += 1
            if done[0] == warm:
                began[0] = self.clock.now
            replica.begin(lambda: again(replica))

        for replica in self.replicas:
            self.clock.after(
                self.random.random() * 1e-3, lambda r=replica: r.begin(lambda: again(r))
            )
        self.clock.run(lambda: done[0] >= wanted)
        return (wanted - warm) / (self.clock.now - began[0])

    def synchronous(self, steps: int, needed: int) -> list[float]:
        """Run steps that end with a number of replicas; return the seconds of each."""
        found = []
        for _ in range(steps):
            began, done = self.clock.now, [0]

            def over(done: list[int] = done) -> None:
                done[0] += 1

            for replica in self.replicas:
                replica.begin(over)
            self.clock.run(lambda done=done: done[0] >= needed)
            found.append(self.clock.now - began)
            self.clock = self._emptied()
        return found

    def _emptied(self) -> Clock:
        """Drop the work of late replicas, which delays nothing."""
        now = self.clock.now
        self.clock._events.clear()
        self.clock.now = now
        for task in [*self.servers, *[replica.task for replica in self.replicas]]:
            for resource in (task.processor, task.sends, task.receives):
                resource._free = [now] * len(resource._free)
        return self.clock

    def medians(self) -> float:
        """Return the median of all step times, in seconds."""
        return statistics.median([t for replica in self.replicas for t in replica.times])

    def saturated(self, seconds: float) -> str:
        """Return the resource that was busy for the largest part of the time."""
        parts = {
            "the servers' processors": max(s.processor.busy for s in self.servers),
            "the servers' network": max(max(s.sends.busy, s.receives.busy) for s in self.servers),
            "the workers' processors": max(r.task.processor.busy for r in self.replicas),
            "the workers' network": max(r.task.receives.busy for r in self.replicas),
        }
        name = max(parts, key=lambda n: parts[n])
        share = min(parts[name] / seconds, 1.0)  # what is queued at the end counts as well
        return f"{name} ({share:.0%})" if share > 0.5 else "nothing"


def percentile(values: Sequence[float], share: float) -> float:
    """Return the quantile of some values."""
    ordered = sorted(values)
    return ordered[min(int(share * len(ordered)), len(ordered) - 1)]
