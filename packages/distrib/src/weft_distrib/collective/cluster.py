"""Groups over the tasks of a cluster: one task forms them; members pull from each other."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from weft_distrib.cluster.spec import ClusterSpec
from weft_distrib.collective.groups import Member, Outcome
from weft_distrib.collective.runtime import CollectiveRuntime, Leader
from weft_distrib.protocol import messages
from weft_distrib.protocol.tables import decode, encode
from weft_distrib.wire import methods
from weft_distrib.wire.channel import Call
from weft_distrib.wire.future import Reply
from weft_distrib.wire.methods import StepKey
from weft_distrib.worker.rendezvous import task_of
from weft_distrib.worker.worker import Peers, Worker
from weft_exec.resources.rendezvous import Rendezvous
from weft_graph.ir.device_spec import DeviceParts, DeviceSpec
from weft_tensor import errors

_KEYS: Final = 2**64
_RETENTION_SECONDS = 60.0
"""Seconds for which the data and the error of a member that has left remain available to others."""

_POLL_SECONDS = 0.005


def leader_of(cluster: ClusterSpec, requested: str = "") -> DeviceParts:
    """Return the task that forms groups: the requested one, or else the first chief or worker.

    Args:
      requested: the name of a device, as for `ConfigProto.experimental.collective_group_leader`.
    Raises: InvalidArgumentError: the cluster has no such task.
    """
    if requested:
        job, _, task = DeviceSpec.from_string(requested).parts[:3]
        cluster.task_address(job or "", task or 0)
        return DeviceParts(job, 0, task or 0)
    job = next((job for job in ("chief", "worker") if job in cluster.jobs), cluster.jobs[0])
    return DeviceParts(job, 0, min(cluster.task_indices(job)))


class _DepartedMember(NamedTuple):
    """A member that has left, whose sent data is available until some time."""

    rendezvous: Rendezvous
    error: errors.OpError
    drained: bool
    expires_at: float


class ClusterTransport:
    """Transport between devices of several tasks.

    Args:
      worker: the worker of this task.
      peers: the connections to the other tasks.
      leader: the task that forms groups.
    """

    def __init__(self, worker: Worker, peers: Peers, leader: DeviceParts) -> None:
        self._worker, self._peers, self._leading = worker, peers, leader
        self.leader = Leader()
        self._lock = threading.Lock()
        self._departed: dict[int, _DepartedMember] = {}

    def join(
        self, key: int, size: int, member: Member, seconds: float, wait: Reply
    ) -> Callable[[], None]:
        """See `Transport`."""
        if self._leading == self._worker.task:
            return self.leader.join(key, size, member, seconds, _Answer(wait).outcome)
        milliseconds = int(seconds * 1000) + 1
        request = messages.Join(key % _KEYS, size, member.device, member.number, milliseconds)
        channel = self._peers.connect(self._leading)
        number = channel.call(methods.JOIN, encode(request), (), _Answer(wait))
        return lambda: _ignore_result(channel.cancel(number))

    def begin(self, number: int) -> Rendezvous:
        """See `Transport`."""
        self._drop_old()
        return self._worker.open_rendezvous(StepKey(number, 0))

    def end(self, number: int, error: errors.OpError, drained: bool) -> None:
        """See `Transport`; sent data remains available for a while."""
        rendezvous = self._worker.find_rendezvous(StepKey(number, 0))
        rendezvous.finish(error)
        with self._lock:
            self._departed[number] = _DepartedMember(
                rendezvous, error, drained, time.monotonic() + _RETENTION_SECONDS
            )
        self._drop_old()

    def _drop_old(self) -> None:
        now = time.monotonic()
        with self._lock:
            expired = {
                n: member.error for n, member in self._departed.items() if now > member.expires_at
            }
            for number in expired:
                del self._departed[number]
        for number, error in expired.items():
            self._worker.close_rendezvous(StepKey(number, 0), error)

    def source(self, member: Member) -> Rendezvous:
        """See `Transport`."""
        task, key = task_of(member.device), StepKey(member.number, 0)
        if task == self._worker.task:
            return self._worker.find_rendezvous(key)
        self._peers.connect(task)
        return self._worker.rendezvous_of(key)

    def drain(self, seconds: float) -> None:
        """Wait until the peers have read the messages of members that left."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            with self._lock:
                if not any(
                    member.drained and member.rendezvous.unread
                    for member in self._departed.values()
                ):
                    return
            time.sleep(_POLL_SECONDS)


def _ignore_result(value: object) -> None:
    """Ignore the result of a call."""


class _Answer:
    """Answers requests to join a group, from this task or another task."""

    def __init__(self, wait: Reply) -> None:
        self._wait = wait
        self.fail = wait.fail

    def __call__(self, values: Sequence[Any], meta: bytes) -> None:
        try:
            group = decode(messages.Group, meta)
            pairs = zip(group.devices, group.numbers, strict=True)
            self._wait(tuple(Member(*pair) for pair in pairs))
        except (ValueError, errors.OpError) as error:
            self._wait.fail(errors.DataLossError(f"the members of a group cannot be read: {error}"))

    def outcome(self, outcome: Outcome) -> None:
        if isinstance(outcome, errors.OpError):
            self._wait.fail(outcome)
        else:
            self._wait(outcome)


class Collectives:
    """The part of one task in collective operations.

    Args:
      worker: the worker of the task.
      peers: the connections to the other tasks.
      leader: the task that forms groups.
    """

    def __init__(self, worker: Worker, peers: Peers, leader: DeviceParts) -> None:
        self._transport = ClusterTransport(worker, peers, leader)
        self._runtime = CollectiveRuntime(self._transport)
        worker.collectives = self._runtime
        worker.when_forgotten.append(self._runtime.forget)

    def serve(self, call: Call) -> bool:
        """Handle a call of another task; return False if it is not a collective call."""
        if call.method != methods.JOIN:
            return False
        request = decode(messages.Join, call.meta)
        if not 1 <= request.size <= _KEYS >> 32:
            raise errors.InvalidArgumentError(
                f"a group must have 1 to {_KEYS >> 32} members, got {request.size}"
            )
        task_of(request.device)

        def answer(outcome: Outcome) -> None:
            if isinstance(outcome, errors.OpError):
                call.fail(outcome)
            else:
                devices, numbers = zip(*outcome, strict=True)
                call.reply(meta=encode(messages.Group(list(devices), list(numbers))))

        member = Member(request.device, request.number)
        call.on_cancel = self._transport.leader.join(
            request.key, request.size, member, request.milliseconds / 1000, answer
        )
        return True

    def close(self, seconds: float) -> None:
        """Wait, up to a time limit, until the peers have read what this task has sent."""
        self._transport.drain(seconds)
