"""The master of a task: it opens sessions for clients, and plans and runs their steps."""

from __future__ import annotations

import json
import logging
import secrets
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Final

import numpy as np
from google.protobuf.message import DecodeError

from weft_distrib.cluster.connections import Connections
from weft_distrib.cluster.spec import ClusterSpec
from weft_distrib.master.links import OwnWorker, RemoteWorker, WorkerLink
from weft_distrib.master.sessions import Begun, MasterSession
from weft_distrib.protocol import messages
from weft_distrib.protocol.service import CLEAR, KERNELS
from weft_distrib.protocol.tables import decode
from weft_distrib.security.rates import Rate
from weft_distrib.wire import methods
from weft_distrib.wire.channel import Call
from weft_distrib.wire.listener import LEASE_SECONDS
from weft_distrib.wire.methods import RunStep, StepKey
from weft_distrib.worker.worker import Done, Worker
from weft_exec.config import SessionConfig
from weft_exec.devices.description import DeviceDescription
from weft_exec.resources.cancellation import Timer, call_at
from weft_graph import proto
from weft_graph.ir.device_spec import DeviceParts, DeviceSpec
from weft_tensor import errors

_log = logging.getLogger("weft")

START_SECONDS: Final = 600.0
"""How long a new session waits for tasks that are not there yet, unless its config says."""

MAX_SESSIONS: Final = 4096
"""How many a master keeps at a time."""

_CLEAR_SECONDS = 60.0
_SESSIONS_A_SECOND = 100.0


class Master:
    """Sessions on the tasks of a cluster.

    Args:
      cluster: the tasks.
      worker: of the master's own task.
      connections: to the other tasks.
      packages: as of `messages.Status`: those of this process.
      config: the ConfigProto of what sessions leave open in theirs; None for the defaults.
      lease: seconds after which a session is closed that no client has claimed.
    """

    def __init__(
        self,
        cluster: ClusterSpec,
        worker: Worker,
        connections: Connections,
        packages: Sequence[str],
        lease: float = LEASE_SECONDS,
        config: Any = None,
    ) -> None:
        self._lease = lease
        self._config = proto.ConfigProto() if config is None else config
        self._created = Rate("new sessions", _SESSIONS_A_SECOND, MAX_SESSIONS)
        self._leaving = False
        self._cluster = cluster
        self._worker = worker
        self._connections = connections
        self._packages = list(packages)
        self._sessions: dict[int, MasterSession] = {}
        self._unclaimed: dict[int, Timer] = {}
        self._lock = threading.Lock()

    # ----------------------------------------------------------------------- sessions

    @property
    def open_sessions(self) -> list[int]:
        """The numbers of the sessions that are open."""
        with self._lock:
            return list(self._sessions)

    @property
    def running_steps(self) -> int:
        """How many steps run, of all sessions."""
        with self._lock:
            return sum(session.running for session in self._sessions.values())

    def create_session(
        self,
        request: messages.OpenSession,
        wanted: Callable[[], bool] = lambda: True,
        trusted: bool = False,
    ) -> messages.Session:
        """Open a session, once all tasks that it may use have answered.

        Args:
          wanted: whether the client still waits for it.
          trusted: the client is in this process; else the session is closed unless the client
            claims it within the lease, by the connection that it ends with.
        Raises:
          UnavailableError: a task did not answer in time; the message names all such tasks. Or this
            one is about to end.
          ResourceExhaustedError: there are too many sessions.
          UnimplementedError: its config describes another cluster than this one.
          CancelledError: the client is gone.
        """
        self._check_staying()
        self._created.take()
        if len(self.open_sessions) >= MAX_SESSIONS:
            raise errors.ResourceExhaustedError(
                f"{self._worker.task.to_string()} has {MAX_SESSIONS} sessions, and no more"
            )
        config = proto.ConfigProto()
        config.CopyFrom(self._config)
        config.MergeFrom(_config_of(request.config))
        self._check_cluster(config)
        isolated = config.isolate_session_state
        seconds = config.operation_timeout_in_ms / 1000 or START_SECONDS
        tasks = self._visible(config.device_filters)
        answers = self._ask(tasks, time.monotonic() + seconds, wanted)
        own = self._worker
        devices = self._describe(own.task, own.describe(), self._packages)
        links: dict[DeviceParts, WorkerLink] = {own.task: OwnWorker(own, isolated, trusted)}
        incarnations = [own.incarnation] * len(devices)
        for task, status in answers.items():
            described = self._describe(task, status.devices, status.packages)
            devices += described
            incarnations += [status.incarnation] * len(described)
            links[task] = RemoteWorker(self._connections.connect(task), isolated)
        number = secrets.randbits(63) | 1
        session = MasterSession(
            number,
            devices,
            links,
            own.host(trusted),
            SessionConfig.from_proto(config),
        )
        with self._lock:
            self._sessions[number] = session
            if not trusted:
                self._expire_unclaimed(number)
        if not wanted():
            self._close(number)
            raise errors.CancelledError("the client does not wait for its session any more")
        told = [json.dumps({**device.to_dict(), "kernels": None}) for device in devices]
        return messages.Session(number, told, incarnations)

    def _check_cluster(self, config: Any) -> None:
        told = config.cluster_def
        if told.job and ClusterSpec(told) != self._cluster:
            raise errors.UnimplementedError(
                "cluster_def of a session's config must be the cluster of its servers, got "
                f"{ClusterSpec(told)!r} on a server of {self._cluster!r}: servers are not told of "
                "others than the cluster that they were started with"
            )

    def _expire_unclaimed(self, number: int) -> None:
        expired = partial(self._expire, number)
        self._unclaimed[number] = call_at(time.monotonic() + self._lease, expired)

    def _expire(self, number: int) -> None:
        with self._lock:
            expired = self._unclaimed.pop(number, None) is not None
        if expired:
            _log.warning("session %x is closed: no client has claimed it", number)
            self._close(number)

    def _claim(self, number: int) -> None:
        with self._lock:
            timer = self._unclaimed.pop(number, None)
        if timer is not None:
            timer.cancel()

    def leave(self) -> None:
        """Take no new sessions and steps; those that run go on."""
        self._leaving = True

    def _check_staying(self) -> None:
        if self._leaving:
            raise errors.UnavailableError(
                f"{self._worker.task.to_string()} is draining: it was told to end, and takes no "
                "new sessions and steps"
            )

    def _visible(self, filters: Sequence[str]) -> list[DeviceParts]:
        """The other tasks that a session may use: all, or those that a device filter matches."""
        wanted = [DeviceSpec.from_string(text) for text in filters]
        return [
            task
            for task in self._cluster.tasks()
            if task != self._worker.task
            and (not wanted or any(_matches(spec, task) for spec in wanted))
        ]

    def _ask(
        self, tasks: Sequence[DeviceParts], deadline: float, wanted: Callable[[], bool]
    ) -> dict[DeviceParts, messages.Status]:
        if not tasks:
            return {}
        absent: list[str] = []
        found: dict[DeviceParts, messages.Status] = {}

        def ask(task: DeviceParts) -> None:
            try:
                found[task] = self._connections.status(task, deadline, wanted)
            except errors.UnavailableError as error:
                absent.append(error.message)

        with ThreadPoolExecutor(len(tasks), "weft-greet") as pool:
            list(pool.map(ask, tasks))
        if absent:
            raise errors.UnavailableError("; ".join(sorted(absent)))
        return {task: found[task] for task in tasks}

    def _describe(
        self, task: DeviceParts, devices: Sequence[str], packages: Sequence[str]
    ) -> list[DeviceDescription]:
        """What placement has to know of the devices of a task."""
        found = []
        for text in devices:
            data = json.loads(text)
            if list(packages) != self._packages:
                request = messages.KernelsOf(data["type"])
                reply = self._connections.control(task).call(KERNELS, request, _CLEAR_SECONDS)
                data["kernels"] = json.loads(reply.kernels)
            found.append(DeviceDescription.from_dict(data))
        return found

    def session(self, number: int) -> MasterSession:
        """An open session.

        Raises: AbortedError: there is none of that number, or none any more.
        """
        found = self._sessions.get(number)
        if found is None:
            raise errors.AbortedError(
                f"the master has no session {number:x}: it was closed, or the master was started "
                "again since"
            )
        return found

    def plan(self, request: messages.Signature) -> messages.Planned:
        """Plan a signature of a session."""
        return self.session(request.session).plan(request)

    def close_session(self, request: messages.SessionRequest) -> messages.Empty:
        """Close a session; nothing where there is none."""
        self._close(request.session)
        return messages.Empty()

    def _close(self, number: int) -> None:
        with self._lock:
            session = self._sessions.pop(number, None)
        self._claim(number)
        if session is not None:
            session.close()

    def reset(self, request: messages.Reset) -> messages.Empty:
        """Close all sessions, and drop the state of all tasks, in some containers or all.

        Raises: UnavailableError: a task cannot be reached.
        """
        with self._lock:
            sessions, self._sessions = list(self._sessions.values()), {}
        for session in sessions:
            session.close(errors.AbortedError("the target was reset"))
        self.clear(request)
        for task in self._visible(()):
            self._connections.control(task).call(CLEAR, request, _CLEAR_SECONDS)
        return messages.Empty()

    def clear(self, request: messages.Reset) -> messages.Empty:
        """Drop the state of this task, in some containers or all."""
        self._worker.resources.clear(None if request.every else request.containers)
        return messages.Empty()

    # ------------------------------------------------------------------------ service

    def run(
        self,
        request: RunStep,
        values: Sequence[Any],
        done: Done,
        fail: Callable[[errors.OpError], None],
        mine: bool = False,
    ) -> Begun:
        """Run a step; as of `MasterSession.run`."""
        self._check_staying()
        return self.session(request.session).run(request, values, done, fail, mine)

    def serve(self, call: Call) -> bool:
        """Carry out a client's call; False where it is none of a master's."""
        if call.method == methods.RUN_STEP:
            step = RunStep.unpack(call.meta)
            begun = self.run(step, call.values, call.reply, call.fail)
            error = errors.CancelledError("the client does not want the step any more")
            call.on_cancel = lambda: begun.cancel(error)
        elif call.method == methods.EXTEND:
            request = decode(messages.SessionRequest, call.meta)
            session = self.session(request.session)
            self._claim(request.session)
            call.channel.when_lost((self, request.session), lambda _: self._close(request.session))
            threading.Thread(target=_extend, args=(session, call), daemon=True).start()
        elif call.method == methods.EXPLAIN:
            explained = decode(messages.Signature, call.meta)
            threading.Thread(target=_explain, args=(self, explained, call), daemon=True).start()
        elif call.method == methods.BEGIN_PARTIAL:
            call.reply(meta=self.begin_partial(RunStep.unpack(call.meta)).pack())
        elif call.method == methods.ADVANCE:
            self.advance(decode(messages.Advance, call.meta), call.values, call.reply, call.fail)
        else:
            return False
        return True

    def explain(self, request: messages.Signature) -> list[np.ndarray]:
        """What becomes of a step; as of `MasterSession.explain`."""
        return self.session(request.session).explain(request)

    def begin_partial(self, request: RunStep) -> StepKey:
        """Begin a partial run; as of `MasterSession.begin_partial`."""
        return self.session(request.session).begin_partial(request)

    def advance(
        self,
        request: messages.Advance,
        values: Sequence[Any],
        reply: Callable[[Sequence[Any]], None],
        fail: Callable[[errors.OpError], None],
    ) -> None:
        """Go on with a partial run; as of `MasterSession.advance`."""
        self.session(request.session).advance(request, values, reply, fail)

    def close(self) -> None:
        """Close all sessions."""
        with self._lock:
            sessions, self._sessions = list(self._sessions.values()), {}
        for session in sessions:
            session.close()


def _config_of(data: bytes) -> Any:
    try:
        return proto.ConfigProto.FromString(data)
    except DecodeError as error:
        raise errors.DataLossError(f"the config of a session is no ConfigProto: {error}") from error


def _explain(master: Master, request: messages.Signature, call: Call) -> None:
    try:
        call.reply(master.explain(request))
    except errors.OpError as error:
        call.fail(error)
    except Exception as error:  # because a bug here must not leave the client waiting
        call.fail(errors.InternalError(f"the step could not be explained: {error!r}"))


def _extend(session: MasterSession, call: Call) -> None:
    try:
        for segment in call.values:
            session.extend(segment)
    except errors.OpError as error:
        call.fail(error)
    except Exception as error:  # because a bug here must not leave the client waiting
        call.fail(errors.InternalError(f"the graph could not be extended: {error!r}"))
    else:
        call.reply()


def _matches(spec: DeviceSpec, task: DeviceParts) -> bool:
    """Whether a device filter lets a task be seen."""
    return all(
        want is None or want == have for want, have in zip(spec.parts[:3], task[:3], strict=True)
    )
