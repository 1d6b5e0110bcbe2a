"""Two tasks on the public extension points; parts, feeds and values travel as bytes.

`Hub` is the master, in the process that opens sessions; task 0 is there as well, task 1 is another
process (`python -m weft_testing.cluster`). A message is a JSON header and blobs.
"""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
import tempfile
import threading
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from multiprocessing.connection import Client, Connection, Listener
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from weft import errors
from weft_exec.config import SessionConfig
from weft_exec.costs import CostModel
from weft_exec.devices.description import DeviceDescription
from weft_exec.devices.device import DeviceAttributes, make_devices
from weft_exec.executor.executable import Executable
from weft_exec.executor.overlap import Overlap
from weft_exec.executor.partitioned_step import derive_part
from weft_exec.executor.runner import Runner, closed_error
from weft_exec.resources.cancellation import Cancellation
from weft_exec.resources.rendezvous import DEAD, Rendezvous, ends_of
from weft_exec.resources.resources import ResourceManager
from weft_exec.resources.threads import shared_pool
from weft_exec.session.planning import PartPlanner
from weft_exec.session.target import Backend
from weft_graph.ir.device_spec import DeviceParts, DeviceSpec
from weft_graph.ir.node import Node, Output
from weft_graph.serialize import (
    part_from_bytes,
    part_to_bytes,
    value_from_bytes,
    value_to_bytes,
)

Send = Callable[[bytes], None]
HERE: Any = "master"


def pack(header: Mapping[str, Any], blobs: Sequence[bytes] = ()) -> bytes:
    head = json.dumps({**header, "sizes": [len(blob) for blob in blobs]}).encode()
    return b"".join([len(head).to_bytes(4, "little"), head, *blobs])


def unpack(message: bytes) -> tuple[dict[str, Any], list[bytes]]:
    start = 4 + int.from_bytes(message[:4], "little")
    header = json.loads(message[4:start])
    ends = [*itertools.accumulate(header["sizes"], initial=start)]
    return header, [message[a:b] for a, b in itertools.pairwise(ends)]


def task_of(device: str) -> int:
    task = DeviceSpec.from_string(device).task
    assert task is not None
    return task


class Mail(Rendezvous):
    """The rendezvous of one task's part of a step with those of other tasks."""

    def __init__(self, step: int, task: int, say: Send) -> None:
        super().__init__()
        self._step, self._task, self._say = step, task, say

    def send(self, key: str, value: Any) -> None:
        to = task_of(ends_of(key)[1])
        if to == self._task:
            super().send(key, value)
            return
        dead = value is DEAD
        header = {"to": to, "do": "value", "step": self._step, "key": key, "dead": dead}
        self._say(pack(header, [] if dead else [value_to_bytes(value)]))


class Step:
    def __init__(self, step: int, task: int, say: Send) -> None:
        self.mail = Mail(step, task, say)
        self.cancellation = Cancellation()


class Task:
    """A task, which derives and runs the parts that it receives."""

    def __init__(self, number: int, say: Send) -> None:
        self.number, self._say = number, say
        self._resources = ResourceManager()
        task = DeviceParts("worker", 0, number)
        config = SessionConfig(device_count={"CPU": 2, "GPU": 0})
        self._devices = {d.name: d for d in make_devices(self._resources, config, task)}
        self._runner = Runner(self._resources.default_container, shared_pool(2))
        self._parts: dict[str, Executable] = {}
        self._steps: dict[int, Step] = {}
        self._lock = threading.Lock()

    def handle(self, message: bytes) -> None:
        header, blobs = unpack(message)
        if header["do"] == "value":
            value = DEAD if header["dead"] else value_from_bytes(blobs[0])
            Rendezvous.send(self._step(header["step"]).mail, header["key"], value)
        elif header["do"] == "abort":
            error = errors.OpError.from_dict(header["error"])
            self._step(header["step"]).cancellation.cancel(error)
        elif header["do"] == "end":
            self._steps.pop(header["step"], None)
        else:
            threading.Thread(target=self._reply, args=(header, blobs), daemon=True).start()

    def _step(self, step: int) -> Step:
        with self._lock:
            if step not in self._steps:
                self._steps[step] = Step(step, self.number, self._say)
            return self._steps[step]

    def _reply(self, header: dict[str, Any], blobs: list[bytes]) -> None:
        answer: dict[str, Any] = {"to": HERE, "call": header["call"], "error": None}
        found: list[bytes] = []
        try:
            found = getattr(self, f"do_{header['do']}")(header, blobs)
        except errors.OpError as error:
            answer["error"] = error.to_dict()
        self._say(pack(answer, found))

    def do_describe(self, header: dict[str, Any], blobs: list[bytes]) -> list[bytes]:
        devices = list(self._devices.values())
        return [json.dumps(d.describe(devices).to_dict()).encode() for d in devices]

    def do_derive(self, header: dict[str, Any], blobs: list[bytes]) -> list[bytes]:
        part = part_from_bytes(blobs[0])
        device = self._devices[header["device"]]
        self._parts[header["part"]] = derive_part(
            part, device, Overlap.EVERYTHING, neighbours=self._devices
        )
        return []

    def do_run(self, header: dict[str, Any], blobs: list[bytes]) -> list[bytes]:
        executable, step = self._parts[header["part"]], self._step(header["step"])
        slots = executable.slots([value_from_bytes(blob) for blob in blobs])
        given = step.mail, step.cancellation
        results = self._runner.run_watched(executable, slots, None, None, *given)
        return [value_to_bytes(value) for value in results]

    def do_reset(self, header: dict[str, Any], blobs: list[bytes]) -> list[bytes]:
        self._resources.clear(header["containers"])
        self._parts.clear()
        return []

    def do_forget(self, header: dict[str, Any], blobs: list[bytes]) -> list[bytes]:
        for name in header["parts"]:
            self._parts.pop(name, None)
        return []


class Planned(Executable):
    """A planned signature: task, name, feeds and fetches of each part."""

    __slots__ = ("fetched", "sent")

    def __init__(self, feeds: int, fetched: int, sent: Sequence[tuple[int, str, Any, Any]]) -> None:
        super().__init__([None] * feeds, range(feeds), (), None, None)
        self.fetched, self.sent = fetched, sent


class Hub:
    """The master, which carries messages and waits for answers; the target `pair://`."""

    def __init__(self) -> None:
        self._calls: dict[int, SimpleQueue[Any]] = {}
        self._numbers = itertools.count(1)
        self.own = Task(0, self.carry)
        self._process, self._wire = _started()
        self._lock = threading.Lock()
        threading.Thread(target=self._read, daemon=True).start()
        told = [data for task in (0, 1) for data in self.call(task, {"do": "describe"})]
        self.devices = [DeviceDescription.from_dict(json.loads(data)) for data in told]
        self.resources: list[ResourceManager] = []
        self.parts: dict[str, int] = defaultdict(int)

    def close(self) -> None:
        with self._lock:
            self._wire.send_bytes(b"")
        self._process.wait(10)
        self._wire.close()

    def _read(self) -> None:
        while True:
            try:
                self.carry(self._wire.recv_bytes())
            except (EOFError, OSError):
                return

    def carry(self, message: bytes) -> None:
        header, blobs = unpack(message)
        if header["to"] == 0:
            self.own.handle(message)
        elif header["to"] == 1:
            with self._lock:
                self._wire.send_bytes(message)
        else:
            self._calls[header["call"]].put((header, blobs))

    def number(self) -> int:
        return next(self._numbers)

    def call(self, task: int, header: dict[str, Any], blobs: Sequence[bytes] = ()) -> list[bytes]:
        call, answers = self.number(), SimpleQueue[Any]()
        self.start(task, header, blobs, call, answers)
        answer, found = answers.get(timeout=30)
        if answer["error"] is not None:
            raise errors.OpError.from_dict(answer["error"])
        return list(found)

    def start(
        self, task: int, header: dict[str, Any], blobs: Any, call: int, answers: SimpleQueue[Any]
    ) -> None:
        self._calls[call] = answers
        self.carry(pack({**header, "to": task, "call": call}, blobs))

    def connect(self, target: str, config: SessionConfig) -> Backend:
        return Master(self, config)

    def reset(self, target: str, containers: Sequence[str] | None, config: Any) -> None:
        for task in (0, 1):
            self.call(task, {"do": "reset", "containers": containers})
        for each in self.resources:
            each.advance_epoch()


class Master(Backend):
    """The backend of a session, which plans with device descriptions and runs parts on tasks."""

    def __init__(self, hub: Hub, config: SessionConfig) -> None:
        self._hub = hub
        self.resources, self.runner = ResourceManager(), self
        hub.resources.append(self.resources)
        host = make_devices(self.resources, SessionConfig(device_count={"CPU": 1, "GPU": 0}))[0]
        self.planner = PartPlanner(hub.devices, host, config, Overlap.EVERYTHING)
        self.limited = self.planner.limited
        self._running: set[int] = set()
        self._names: list[tuple[int, str]] = []
        self._closed = False

    @property
    def devices(self) -> list[DeviceAttributes]:
        return [DeviceAttributes(device, task_of(device.name)) for device in self._hub.devices]

    @property
    def costs(self) -> CostModel:
        return self.planner.costs

    def extend(self, nodes: Sequence[Node]) -> None:
        self.planner.extend(nodes)

    def plan(
        self, feeds: Sequence[Output], outputs: Sequence[Output], targets: Sequence[Node], size: int
    ) -> Executable:
        sent = []
        for device, part in self.planner.parts(feeds, outputs, targets, size).items():
            task, name = task_of(device), f"part {self._hub.number()}"
            header = {"do": "derive", "part": name, "device": device}
            self._hub.call(task, header, [part_to_bytes(part)])
            self._hub.parts[device] += 1
            self._names.append((task, name))
            sent.append((task, name, part.feeds, part.fetches))
        return Planned(len(feeds), len(outputs), sent)

    def explain(self, feeds: Any, outputs: Any, targets: Any, size: int) -> Any:
        return self.planner.explain(feeds, outputs, targets, size)

    def observe(self, trace: Any, run_metadata: Any) -> None:
        pass

    def run(self, executable: Executable, slots: list[Any]) -> list[Any]:
        return self.run_watched(executable, slots)

    def run_watched(
        self, executable: Executable, slots: list[Any], deadline: Any = None, trace: Any = None
    ) -> list[Any]:
        assert isinstance(executable, Planned)
        if self._closed:
            raise closed_error()
        hub, step, answers = self._hub, self._hub.number(), SimpleQueue[Any]()
        self._running.add(step)
        by_call = {}
        for task, name, feeds, fetches in executable.sent:
            blobs = [value_to_bytes(slots[i]) for i in feeds]
            call = hub.number()
            by_call[call] = fetches
            hub.start(task, {"do": "run", "part": name, "step": step}, blobs, call, answers)
        found: list[Any] = [None] * executable.fetched
        first: errors.OpError | None = None
        for _ in by_call:
            header, blobs = answers.get(timeout=30)
            if header["error"] is not None and first is None:
                first = errors.OpError.from_dict(header["error"])
                self.abort(step, first)
            for place, blob in zip(by_call[header["call"]], blobs, strict=header["error"] is None):
                found[place] = value_from_bytes(blob)[()]
        self._running.discard(step)
        for task in (0, 1):
            hub.carry(pack({"to": task, "do": "end", "step": step}))
        if first is not None:
            raise first
        return found

    def abort(self, step: int, error: errors.OpError) -> None:
        for task in (0, 1):
            header = {"to": task, "do": "abort", "step": step, "error": error.to_dict()}
            self._hub.carry(pack(header))

    def close(self) -> None:
        self._closed = True
        for step in list(self._running):
            self.abort(step, errors.CancelledError("the session was closed"))
        for task in (0, 1):
            names = [name for of, name in self._names if of == task]
            self._hub.call(task, {"do": "forget", "parts": names})


def _started() -> tuple[subprocess.Popen[bytes], Connection]:
    with tempfile.TemporaryDirectory() as folder:
        address = str(Path(folder) / "task")
        with Listener(address, "AF_UNIX") as listener:
            path = os.pathsep.join([str(Path(__file__).parents[1]), *sys.path])
            command = [sys.executable, "-m", "weft_testing.cluster", address]
            process = subprocess.Popen(command, env={**os.environ, "PYTHONPATH": path})
            return process, listener.accept()


def main(address: str) -> None:
    with Client(address, "AF_UNIX") as wire:
        lock = threading.Lock()

        def say(message: bytes) -> None:
            with lock:
                wire.send_bytes(message)

        task = Task(1, say)
        while True:
            try:
                message = wire.recv_bytes()
            except EOFError:
                return
            if not message:
                return
            task.handle(message)


if __name__ == "__main__":
    main(sys.argv[1])
