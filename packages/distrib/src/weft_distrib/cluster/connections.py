"""Connections of a task to the other tasks of its cluster."""

from __future__ import annotations

import logging
import socket
import threading
import time
from collections.abc import Callable
from typing import Final

from weft_distrib.cluster.spec import ClusterSpec
from weft_distrib.liveness.peer_monitor import Watched, shared_watch
from weft_distrib.liveness.probe import probe
from weft_distrib.protocol import messages
from weft_distrib.protocol.service import REPORT, STATUS, ControlClient
from weft_distrib.wire.address import address_of
from weft_distrib.wire.channel import Channel
from weft_distrib.wire.handshake import ConnectionOptions
from weft_distrib.wire.inproc import INPROC
from weft_distrib.wire.listener import dial
from weft_distrib.wire.traffic import Traffic
from weft_graph.ir.device_spec import DeviceParts
from weft_tensor import errors

_log = logging.getLogger("weft")

CONNECT_SECONDS: Final = 30.0
"""Seconds to connect to an existing task."""

_ASK_SECONDS = 5.0
_TELL_SECONDS = 10.0


class Connections:
    """Control and value connections to the tasks of a cluster, created on demand.

    Args:
      cluster: the addresses of the tasks.
      opening: the handshake options of this process.
    """

    def __init__(self, cluster: ClusterSpec, opening: ConnectionOptions) -> None:
        self._cluster = cluster
        self._opening = opening
        self._lock = threading.Lock()
        self._tasks: dict[DeviceParts, _Task] = {}

    def _task(self, task: DeviceParts) -> _Task:
        with self._lock:
            result = self._tasks.get(task)
            if result is None:
                assert task.job is not None and task.task is not None
                address = self._cluster.task_address(task.job, task.task)
                result = self._tasks[task] = _Task(task, address, self._opening)
            return result

    def control(self, task: DeviceParts) -> ControlClient:
        """Return the client for control calls to a task.

        Raises: InvalidArgumentError: the cluster has no such task.
        """
        return self._task(task).control

    def status(
        self, task: DeviceParts, deadline: float, expected: Callable[[], bool] = lambda: True
    ) -> messages.Status:
        """Return the status of a task; waits for one that has not started.

        Args:
          deadline: in `time.monotonic()`.
          expected: returns False when the answer is no longer needed.
        Raises: UnavailableError: the task did not answer. Errors of the task are raised too.
        """
        return self._task(task).ask(deadline, expected)

    def report(self, task: DeviceParts, seconds: float) -> messages.Report:
        """Return the report of a task.

        If the task does not answer, its state according to its probe process.
        """
        return self._task(task).report(seconds)

    def connect(self, task: DeviceParts) -> Channel:
        """Return the value connection to a task, which is opened if necessary.

        Raises:
          UnavailableError: the task does not answer.
          InvalidArgumentError: the cluster has no such task.
        """
        return self._task(task).connect()

    def channel(self, task: DeviceParts) -> Channel:
        """Return the value connection that `connect` has opened; it may have been lost since.

        Raises: UnavailableError: `connect` has not opened one.
        """
        channel = self._task(task).channel
        if channel is None:
            raise errors.UnavailableError(f"not connected to {task.to_string()}")
        return channel

    def traffic(self) -> list[Traffic]:
        """Return the traffic of the open value connections."""
        with self._lock:
            channels = [task.channel for task in self._tasks.values()]
        return [c.traffic for c in channels if c is not None and c.lost is None]

    def close(self) -> None:
        """Close all connections."""
        with self._lock:
            tasks = list(self._tasks.values())
        for task in tasks:
            task.close()


class _Task:
    """The connections to one other task."""

    def __init__(self, task: DeviceParts, address: str, opening: ConnectionOptions) -> None:
        self._opening = opening
        self._name = task.to_string()
        self._address = address
        self._lock = threading.Lock()
        self.control = ControlClient(address, self._name, opening)
        self.channel: Channel | None = None
        self._status: messages.Status | None = None

    @property
    def _host(self) -> str:
        return address_of(self._address).host

    def ask(self, deadline: float, expected: Callable[[], bool] = lambda: True) -> messages.Status:
        start = last_reply = time.monotonic()
        while True:
            now = time.monotonic()
            remaining_seconds = deadline - now
            if not expected():
                raise errors.CancelledError(
                    f"the request to {self._name} was canceled: its caller stopped waiting"
                )
            if remaining_seconds <= 0:
                raise errors.UnavailableError(
                    f"{self._name} at {self._address} did not answer within {now - start:.0f} s: "
                    "check that its server is running and reachable from this machine"
                )
            try:
                status: messages.Status = self.control.call(
                    STATUS, messages.Empty(), min(remaining_seconds, _ASK_SECONDS), wait=True
                )
            except (errors.UnavailableError, errors.DeadlineExceededError):
                if now - last_reply > _TELL_SECONDS:
                    last_reply = now
                    _log.warning("still waiting for %s at %s", self._name, self._address)
                continue
            self._check(status)
            self._status = status
            return status

    def report(self, seconds: float) -> messages.Report:
        try:
            report: messages.Report = self.control.call(REPORT, messages.Empty(), seconds)
        except errors.UnavailableError:
            return messages.Report(task=self._name, state="unreachable")
        except errors.DeadlineExceededError:
            return messages.Report(task=self._name, state=self._probe_state(seconds))
        return report

    def _probe_state(self, seconds: float) -> str:
        """Return the state of a server according to its probe process."""
        if self._status is None:
            return "unreachable"
        return probe(
            watch_peer(self._host, self._name, self._status, self._opening, _ignore), seconds
        )

    def _check(self, status: messages.Status) -> None:
        if status.version != messages.VERSION:
            raise errors.FailedPreconditionError(
                f"{self._name} speaks version {status.version} of the protocol, and this task "
                f"version {messages.VERSION}: install the same release of weftml-distrib on both"
            )
        if status.task != self._name:
            raise errors.FailedPreconditionError(
                f"{self._address} should be {self._name}, but the server there is {status.task}: "
                "check that all tasks have the same cluster specification"
            )

    def connect(self) -> Channel:
        with self._lock:
            channel = self.channel
            if channel is not None and channel.lost is None:
                return channel
            status = self.ask(time.monotonic() + CONNECT_SECONDS)
            self.channel = dial_peer(self._host, self._name, status, self._opening)
            return self.channel

    def close(self) -> None:
        self.control.close()
        if self.channel is not None:
            self.channel.close()


def dial_peer(host: str, peer: str, status: messages.Status, opening: ConnectionOptions) -> Channel:
    """Open a value connection to a task whose status is known; it ends if the task is lost.

    Args:
      opening: the handshake options of this process.
    Raises:
      UnavailableError: the task does not answer.
      UnauthenticatedError: one end rejects the credentials of the other.
    """
    address = (host, status.wire_port)
    channel = dial(address, peer, opening, status.incarnation, CONNECT_SECONDS)
    if channel.traffic.transport == INPROC:
        return channel  # this process cannot be lost to itself
    try:
        watched = watch_peer(host, peer, status, opening, channel.close)
    except errors.OpError:
        channel.close()
        raise
    channel.when_lost(watched, lambda _: watched.stop())
    return channel


def watch_peer(
    host: str,
    peer: str,
    status: messages.Status,
    opening: ConnectionOptions,
    on_lost: Callable[[errors.OpError], None],
) -> Watched:
    """Start watching the liveness of a task whose status is known.

    Raises: UnavailableError: the name of its host cannot be resolved.
    """
    try:
        result = host if ":" in host else socket.gethostbyname(host)
    except OSError as error:
        raise errors.UnavailableError(f"{peer}: {host} cannot be resolved: {error}") from error
    address = (result, status.heart_port)
    return shared_watch().add(address, peer, on_lost, credentials=opening.credentials, host=host)


def _ignore(error: errors.OpError) -> None:
    """Ignore an error."""
