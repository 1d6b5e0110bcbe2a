"""Steps over several tasks in a simulated network: invariants over ten thousand schedules.

Coordinator, steps and rendezvous are those of the servers. The network keeps the order of each
connection and nothing else; tasks crash, parts fail, clients cancel. Nothing here waits or sleeps.
"""

from __future__ import annotations

import random
from collections import defaultdict, deque
from collections.abc import Callable
from typing import Any

import pytest

from weft_distrib.master.step import Abort, StepCoordinator
from weft_distrib.wire.methods import StepKey
from weft_distrib.worker.rendezvous import StepRendezvous
from weft_distrib.worker.steps import Steps
from weft_exec.devices.description import HOST
from weft_graph.ir.device_spec import DeviceParts
from weft_tensor import errors

SESSION = 9
MASTER = "master"


def device(task: int) -> str:
    return f"/job:w/replica:0/task:{task}/device:CPU:0"


class Device:
    memory_space = HOST


class World:
    """The messages in flight, and the ends of their connections."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.links: dict[Any, deque[Callable[[], None]]] = defaultdict(deque)
        self.tasks = [Task(self, i) for i in range(self.rng.randint(2, 4))]
        self.master = Master(self)
        self.story: list[str] = []

    def send(self, link: Any, deliver: Callable[[], None]) -> None:
        self.links[link].append(deliver)

    def deliver_one(self) -> bool:
        ready = sorted([link for link, queue in self.links.items() if queue], key=str)
        if not ready:
            return False
        self.links[self.rng.choice(ready)].popleft()()
        return True

    def crash(self, task: Task) -> None:
        """End a task's connections: messages in flight are lost, and calls of its peers fail."""
        for link in [link for link in self.links if task.name in link]:
            del self.links[link]
        old, task.channels = task.channels, {}
        task.life += 1
        task.begin()
        for other in self.tasks:
            if task.number in other.channels:
                other.channels[task.number].lose()  # it stays until somebody connects again
        for channel in old.values():
            channel.lose()
        self.master.lost(task)


class Channel:
    """A connection from one task to another, as `StepRendezvous` calls it."""

    def __init__(self, world: World, source: Task, target: Task) -> None:
        self.world, self.source, self.target = world, source, target
        self.waiting: dict[int, Any] = {}
        self.lost = False
        self.numbers = 0

    def call(self, method: int, meta: bytes, values: Any, answer: Any) -> int:
        if self.lost:
            answer.fail(errors.UnavailableError("lost"))
            return 0
        self.numbers += 1
        number = self.numbers
        self.waiting[number] = answer
        call = Call(self, number)
        self.world.send(
            (self.source.name, self.target.name), lambda: self.target.pulled(meta, call)
        )
        return number

    def cancel(self, number: int) -> bool:
        return self.waiting.pop(number, None) is not None

    def answer(self, number: int, deliver: Callable[[Any], None]) -> None:
        def arrive() -> None:
            answer = self.waiting.pop(number, None)
            if answer is not None:
                deliver(answer)

        if not self.lost:
            self.world.send((self.target.name, self.source.name), arrive)

    def lose(self) -> None:
        self.lost = True
        waiting, self.waiting = self.waiting, {}
        for answer in waiting.values():
            answer.fail(errors.UnavailableError("lost"))


class Call:
    """A pull that has come in."""

    def __init__(self, channel: Channel, number: int) -> None:
        self.channel, self.number, self.answered = channel, number, 0

    def reply(self, values: Any) -> None:
        self.answered += 1
        assert self.answered == 1, "a pull was answered twice"
        self.channel.answer(self.number, lambda answer: answer(values, b""))

    def fail(self, error: errors.OpError) -> None:
        self.answered += 1
        assert self.answered == 1, "a pull was answered twice"
        self.channel.answer(self.number, lambda answer: answer.fail(error.copy()))


class Step:
    """A step as one task sees it: its rendezvous, and its part once it was told to run it."""

    def __init__(self, task: Task, key: StepKey) -> None:
        self.key, self.task = key, task
        parts = DeviceParts("w", 0, task.number)
        devices: Any = {device(task.number): Device()}
        to: Any = lambda other: task.channel(other.task)  # noqa: E731 - as short as it can be
        self.rendezvous = StepRendezvous(key, parts, devices, to)
        self.error: errors.OpError | None = None
        self.done: Callable[[errors.OpError | None], None] | None = None
        self.missing: set[str] = set()
        self.arrivals: list[Arrival] = []

    def run(self, how: str, done: Callable[[errors.OpError | None], None]) -> None:
        assert self.done is None, "a part ran twice"
        self.done = done
        if self.error is not None:
            self.end(self.error)
            return
        me, others = self.task.number, [t.number for t in self.task.world.tasks]
        for other in others:
            key = f"{device(other)};{device(me)};x"
            self.missing.add(key)
            self.arrivals.append(Arrival(self, key))
            self.rendezvous.receive(key, self.arrivals[-1])
        if how == "waits":  # as for a queue: only an abort ends it
            self.missing.add("never")
        if how == "fails":
            self.abort(errors.InternalError("the kernel failed"))
            return
        for other in others:
            self.rendezvous.send(f"{device(me)};{device(other)};x", (self.key.step, me))

    def arrived(self, key: str, value: Any) -> None:
        sender = int(key.split("task:")[1].split("/")[0])
        assert value == (self.key.step, sender), "a value of another step"
        assert key in self.missing, "a key was delivered twice"
        self.missing.discard(key)
        if not self.missing:
            self.end(None)

    def abort(self, error: errors.OpError) -> None:
        if self.error is None:
            self.error = error
            self.rendezvous.abort(error)
            assert self.rendezvous.pending == 0, "something waits in an aborted step"
            self.end(error)

    def end(self, error: errors.OpError | None) -> None:
        done, self.done = self.done, lambda error: None
        if done is not None:
            done(error)
        else:
            self.done = None


class Arrival:
    def __init__(self, step: Step, key: str) -> None:
        self.step, self.key, self.told = step, key, 0

    def __call__(self, value: Any = None) -> None:
        self.told += 1
        self.step.arrived(self.key, value)

    def fail(self, error: errors.OpError) -> None:
        self.told += 1
        self.step.abort(error)


class Task:
    """A worker."""

    def __init__(self, world: World, number: int) -> None:
        self.world, self.number, self.name = world, number, f"task {number}"
        self.life = 0
        self.channels: dict[int, Channel] = {}
        self.begin()

    def begin(self) -> None:
        self.made: list[Step] = []
        self.steps: Steps[Step] = Steps(self.make)

    def make(self, key: StepKey) -> Step:
        assert key not in [step.key for step in self.made], "a step was begun again"
        self.made.append(Step(self, key))
        return self.made[-1]

    def channel(self, number: int) -> Channel:
        found = self.channels.get(number)
        if found is None:
            made = Channel(self.world, self, self.world.tasks[number])
            found = self.channels[number] = made
        return found

    def pulled(self, meta: bytes, call: Call) -> None:
        key, name = StepKey.unpack(meta)
        try:
            self.steps.open(key).rendezvous.serve(name.decode(), call)  # type: ignore[arg-type]
        except errors.AbortedError as error:
            call.fail(error)


class Master:
    """Plans nothing: every step has a part on every task."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.begun = 0
        self.running: dict[int, StepCoordinator[str]] = {}
        self.ended: dict[int, errors.OpError | None] = {}
        for task in world.tasks:
            task.steps.add_session(SESSION)

    def begin(self) -> None:
        self.begun += 1
        step = self.begun
        for task in self.world.tasks:
            task.channels = {n: c for n, c in task.channels.items() if not c.lost}
        self.running[step] = StepCoordinator([task.name for task in self.world.tasks])
        floor = min(self.running)
        for task in self.world.tasks:
            how = self.world.rng.choices(["ends", "fails", "waits"], (85, 10, 5))[0]
            self.world.send((MASTER, task.name), self.order(task, step, floor, how))

    def order(self, task: Task, step: int, floor: int, how: str) -> Callable[[], None]:
        def run() -> None:
            task.steps.end_before(SESSION, floor)
            try:
                part = task.steps.open(StepKey(SESSION, step))
            except errors.AbortedError as error:
                self.answer(task, step, error)
                return
            part.run(how, lambda error: self.answer(task, step, error))

        return run

    def answer(self, task: Task, step: int, error: errors.OpError | None) -> None:
        life = task.life

        def arrive() -> None:
            assert task.life == life, "a message of a former life"
            found = self.running.get(step)
            if found is not None:
                replied = found.replied(task.name) if error is None else None
                self.carry_out(step, found.failed(task.name, error) if error else replied)

        self.world.send((task.name, MASTER), arrive)

    def carry_out(self, step: int, instructions: Any) -> None:
        for each in instructions:
            if isinstance(each, Abort):
                task = next(t for t in self.world.tasks if t.name == each.task)
                self.world.send((MASTER, task.name), self.abort(task, step, each.error))
            else:
                assert step not in self.ended, "a client was told twice"
                self.ended[step] = each.error
                del self.running[step]

    def abort(self, task: Task, step: int, error: errors.OpError) -> Callable[[], None]:
        return lambda: task.steps.abort(StepKey(SESSION, step), error)

    def cancel(self) -> None:
        wanted = [step for step, found in self.running.items() if found.error is None]
        if wanted:
            step = self.world.rng.choice(wanted)
            error = errors.CancelledError("the client does not want it")
            self.carry_out(step, self.running[step].cancel(error))

    def waits(self) -> bool:
        """Cancel a step that only its client can end; false where there is none."""
        wanted = any(found.error is None for found in self.running.values())
        self.cancel()
        return wanted

    def lost(self, task: Task) -> None:
        error = errors.UnavailableError(f"{task.name} is lost")
        for step, found in list(self.running.items()):
            self.carry_out(step, found.failed(task.name, error))


def check(world: World) -> None:
    """Check the invariants that hold when no message is in flight."""
    master = world.master
    assert not master.running, "a step hangs"
    assert len(master.ended) == master.begun
    for task in world.tasks:
        assert not any(channel.waiting for channel in task.channels.values()), "a pull hangs"
        for step in task.made:
            error = master.ended[step.key.step]
            assert all(arrival.told == 1 for arrival in step.arrivals), "a receiver was not told"
            if error is None and task.life == 0:
                assert not step.missing, "a step succeeded of which a part did not end"
                assert step.rendezvous.pending == 0, "a value or a waiter is left"
        task.steps.end_before(SESSION, master.begun + 1)
        assert task.steps.count == 0
        assert all(step.rendezvous.pending == 0 for step in task.made)


def simulate(seed: int) -> World:
    world = World(seed)
    rng = world.rng
    for _ in range(rng.randint(10, 60)):
        event = rng.random()
        if event < 0.10 and world.master.begun < 6:
            world.master.begin()
        elif event < 0.13:
            world.master.cancel()
        elif event < 0.15:
            world.crash(rng.choice(world.tasks))
        else:
            world.deliver_one()
    while world.deliver_one() or world.master.waits():
        pass
    check(world)
    return world


@pytest.mark.parametrize("part", range(2))
def test_schedules(part: int) -> None:
    worlds = [simulate(seed) for seed in range(500 * part, 500 * (part + 1))]
    outcomes = [error for world in worlds for error in world.master.ended.values()]
    assert sum(error is None for error in outcomes) > len(outcomes) // 5
    kinds = {type(error) for error in outcomes}
    assert {errors.InternalError, errors.CancelledError, errors.UnavailableError} <= kinds


@pytest.mark.long
@pytest.mark.parametrize("part", range(10))
def test_ten_thousand_schedules(part: int) -> None:
    for seed in range(1000 * part, 1000 * (part + 1)):
        simulate(seed)
