"""The master of a task, which opens sessions for clients and plans and runs their steps."""

from __future__ import annotations

import json
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
from weft_distrib.master.graph_calls import GRAPH_CALLS, CallResult
from weft_distrib.master.links import OwnWorker, RemoteWorker, WorkerLink
from weft_distrib.master.sessions import MasterSession, StartedStep
from weft_distrib.protocol import messages
from weft_distrib.protocol.service import CLEAR, KERNELS
from weft_distrib.protocol.tables import decode, encode
from weft_distrib.security.rate_limits import Rate
from weft_distrib.wire import methods
from weft_distrib.wire.channel import Call, Channel
from weft_distrib.wire.listener import ask
from weft_distrib.wire.methods import Record, RunStep, StepKey, TraceState, TraceTask
from weft_distrib.worker.threads import WaitingThreads
from weft_distrib.worker.worker import Done, Worker
from weft_exec.config import SessionConfig
from weft_exec.devices.description import DeviceDescription
from weft_graph import proto
from weft_graph.ir.device_spec import DeviceParts, DeviceSpec
from weft_tensor import errors

START_SECONDS: Final = 600.0
"""Default number of seconds that a new session waits for tasks that have not started."""

MAX_SESSIONS: Final = 4096
"""Maximum number of open sessions of a master."""

_CLEAR_SECONDS = 60.0
_SESSIONS_A_SECOND = 100.0
_MAX_CALLS = 1024
"""Limit on concurrent calls that may wait for other tasks, such as planning."""


class Master:
    """Sessions on the tasks of a cluster.

    Args:
      cluster: the tasks of the cluster.
      worker: the worker of the master's own task.
      connections: the connections to the other tasks.
      packages: the packages of this process, as in `messages.Status`.
      config: a ConfigProto with the defaults of sessions; None for weft's defaults.
    """

    def __init__(
        self,
        cluster: ClusterSpec,
        worker: Worker,
        connections: Connections,
        packages: Sequence[str],
        config: Any = None,
    ) -> None:
        self._config = proto.ConfigProto() if config is None else config
        self._created = Rate("new sessions", _SESSIONS_A_SECOND, MAX_SESSIONS)
        self._leaving = False
        self._recording_changed = threading.Condition()
        self._recording_end: threading.Event | None = None
        self._cluster = cluster
        self._worker = worker
        self._connections = connections
        self._packages = list(packages)
        self._sessions: dict[int, MasterSession] = {}
        self._threads = WaitingThreads(f"weft-master-{worker.task.to_string()}", _MAX_CALLS)
        self._lock = threading.Lock()

    # ----------------------------------------------------------------------- sessions

    @property
    def open_sessions(self) -> list[int]:
        """The numbers of the open sessions."""
        with self._lock:
            return list(self._sessions)

    @property
    def running_steps(self) -> int:
        """The number of running steps of all sessions."""
        with self._lock:
            return sum(session.running for session in self._sessions.values())

    def create_session(
        self,
        request: messages.OpenSession,
        is_wanted: Callable[[], bool] = lambda: True,
        owner: Channel | None = None,
    ) -> messages.Session:
        """Open a session once all tasks that it may use have answered.

        Args:
          is_wanted: returns True while the client waits for the session.
          owner: the connection of the client; None if the client is in this process, and so has its
            permissions.
        Raises:
          UnavailableError: a task did not answer in time; the message names all such tasks. Or this
            task is draining.
          ResourceExhaustedError: there are too many sessions.
          UnimplementedError: the config of the session describes another cluster.
          CancelledError: the client has disconnected.
        """
        self._check_staying()
        self._created.take()
        if len(self.open_sessions) >= MAX_SESSIONS:
            raise errors.ResourceExhaustedError(
                f"{self._worker.task.to_string()} already has {MAX_SESSIONS} open "
                "sessions, which is the maximum"
            )
        config = proto.ConfigProto()
        config.CopyFrom(self._config)
        config.MergeFrom(_config_of(request.config))
        self._check_cluster(config)
        isolated = config.isolate_session_state
        seconds = config.operation_timeout_in_ms / 1000 or START_SECONDS
        tasks = self._visible(config.device_filters)
        answers = self._request_statuses(tasks, time.monotonic() + seconds, is_wanted)
        own_worker, trusted = self._worker, owner is None
        devices = self._describe(own_worker.task, own_worker.describe(), self._packages)
        links: dict[DeviceParts, WorkerLink] = {
            own_worker.task: OwnWorker(own_worker, isolated, trusted)
        }
        incarnations = [own_worker.incarnation] * len(devices)
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
            own_worker.host(trusted),
            SessionConfig.from_proto(config),
            owner,
        )
        with self._lock:
            self._sessions[number] = session
        if not is_wanted():
            self.close_session(number, owner)
            raise errors.CancelledError("the client no longer waits for its session")
        descriptions = [json.dumps({**device.to_dict(), "kernels": None}) for device in devices]
        return messages.Session(number, descriptions, incarnations)

    def _check_cluster(self, config: Any) -> None:
        cluster_def = config.cluster_def
        if cluster_def.job and ClusterSpec(cluster_def) != self._cluster:
            raise errors.UnimplementedError(
                "cluster_def of a session's config must be the cluster of its servers, got "
                f"{ClusterSpec(cluster_def)!r} on a server of {self._cluster!r}; a server only "
                "supports the cluster that it was started with"
            )

    def leave(self) -> None:
        """Reject new sessions and steps; running steps continue."""
        self._leaving = True

    def _check_staying(self) -> None:
        if self._leaving:
            raise errors.UnavailableError(
                f"{self._worker.task.to_string()} is shutting down and accepts no new sessions "
                "or steps"
            )

    def _visible(self, filters: Sequence[str]) -> list[DeviceParts]:
        """Return the other tasks that a session may use, which its device filters select."""
        expected = [DeviceSpec.from_string(text) for text in filters]
        return [
            task
            for task in self._cluster.tasks()
            if task != self._worker.task
            and (not expected or any(_matches(spec, task) for spec in expected))
        ]

    def _request_statuses(
        self, tasks: Sequence[DeviceParts], deadline: float, expected: Callable[[], bool]
    ) -> dict[DeviceParts, messages.Status]:
        if not tasks:
            return {}
        absent: list[str] = []
        status: dict[DeviceParts, messages.Status] = {}

        def ask(task: DeviceParts) -> None:
            try:
                status[task] = self._connections.status(task, deadline, expected)
            except errors.UnavailableError as error:
                absent.append(error.message)

        with ThreadPoolExecutor(len(tasks), "weft-greet") as pool:
            list(pool.map(ask, tasks))
        if absent:
            raise errors.UnavailableError("; ".join(sorted(absent)))
        return {task: status[task] for task in tasks}

    def _describe(
        self, task: DeviceParts, devices: Sequence[str], packages: Sequence[str]
    ) -> list[DeviceDescription]:
        """Return the descriptions of a task's devices for placement."""
        result = []
        for text in devices:
            data = json.loads(text)
            if list(packages) != self._packages:
                request = messages.KernelsOf(data["type"])
                reply = self._connections.control(task).call(KERNELS, request, _CLEAR_SECONDS)
                data["kernels"] = json.loads(reply.kernels)
            result.append(DeviceDescription.from_dict(data))
        return result

    def session(self, number: int, owner: Channel | None = None) -> MasterSession:
        """Return an open session, if the connection has opened it.

        Args:
          owner: the connection of the caller; None for this process.
        Raises: AbortedError: `owner` has not opened such a session. Sessions of other connections
          are treated as nonexistent.
        """
        session = self._sessions.get(number)
        if session is None or session.owner is not owner:
            raise errors.AbortedError(
                f"this connection has no session {number:x}: it was closed, belongs to another "
                "connection, or the master was restarted; open a new session"
            )
        return session

    def plan(
        self,
        request: messages.Signature,
        is_wanted: Callable[[], bool] = lambda: True,
        owner: Channel | None = None,
    ) -> messages.Planned:
        """Plan a signature; see `MasterSession.plan`, with `owner` as for `session`."""
        return self.session(request.session, owner).plan(request, is_wanted)

    def close_session(self, number: int, owner: Channel | None = None) -> None:
        """Close a session if it exists; `owner` as for `session`."""
        with self._lock:
            session = self._sessions.get(number)
            if session is None or session.owner is not owner:
                return
            del self._sessions[number]
        if owner is not None:
            owner.forget_listener((self, number))
        session.close()

    def reset(self, request: messages.Reset) -> messages.Empty:
        """Close all sessions and drop the state of all tasks, in some containers or in all.

        Raises: UnavailableError: a task cannot be reached.
        """
        with self._lock:
            sessions, self._sessions = list(self._sessions.values()), {}
        for session in sessions:
            session.close(
                errors.AbortedError("the session was closed, because its target was reset")
            )
        self.clear(request)
        for task in self._visible(()):
            self._connections.control(task).call(CLEAR, request, _CLEAR_SECONDS)
        return messages.Empty()

    def clear(self, request: messages.Reset) -> messages.Empty:
        """Drop the state of this task, in some containers or in all."""
        self._worker.resources.clear(None if request.every else request.containers)
        return messages.Empty()

    # ------------------------------------------------------------------------ service

    def run(
        self,
        request: RunStep,
        values: Sequence[Any],
        done: Done,
        fail: Callable[[errors.OpError], None],
        may_run_part: bool = False,
        owner: Channel | None = None,
    ) -> StartedStep:
        """Run a step; see `MasterSession.run`, with `owner` as for `session`."""
        self._check_staying()
        return self.session(request.session, owner).run(request, values, done, fail, may_run_part)

    def serve(self, call: Call) -> bool:
        """Handle a call of a client; return False if it is not a method of masters."""
        owner = call.channel
        if call.method == methods.RUN_STEP:
            step = RunStep.unpack(call.meta)
            started = self.run(step, call.values, call.reply, call.fail, owner=owner)
            error = errors.CancelledError("the client canceled the step")
            call.on_cancel = lambda: started.cancel(error)
        elif call.method == methods.BEGIN_PARTIAL:
            call.reply(meta=self.begin_partial(RunStep.unpack(call.meta), owner).pack())
        elif call.method == methods.ADVANCE:
            request = decode(messages.Advance, call.meta)
            self.advance(request, call.values, call.reply, call.fail, owner)
        elif call.method in _WAITING:
            self._threads.submit(partial(_answer, call, partial(_WAITING[call.method], self)))
        elif call.method in GRAPH_CALLS:
            self._threads.submit(partial(_answer, call, self._serve_graph_call))
        else:
            return False
        return True

    def _serve_create(self, call: Call) -> CallResult:
        request, owner = decode(messages.OpenSession, call.meta), call.channel
        session = self.create_session(request, _is_wanted(call), owner)
        number = session.session
        owner.when_lost((self, number), lambda _: self.close_session(number, owner))
        return (), encode(session)

    def _serve_extend(self, call: Call) -> CallResult:
        request = decode(messages.SessionRequest, call.meta)
        session = self.session(request.session, call.channel)
        is_wanted = _is_wanted(call)
        for segment in call.values:
            session.extend(segment, request.timeout, is_wanted)
        return (), b""

    def _serve_plan(self, call: Call) -> CallResult:
        request = decode(messages.Signature, call.meta)
        return (), encode(self.plan(request, _is_wanted(call), call.channel))

    def _serve_graph_call(self, call: Call) -> CallResult:
        def find(number: int) -> MasterSession:
            return self.session(number, call.channel)

        return GRAPH_CALLS[call.method](find, call.meta, call.values, _is_wanted(call))

    def record(
        self, request: Record, is_wanted: Callable[[], bool] = lambda: True
    ) -> np.ndarray[Any, Any]:
        """Record a trace of all tasks; see `weft_distrib.master.recording.record`.

        Requests without steps are about the current recording; see `Record`.

        Raises: DeadlineExceededError: there was no recording in time.
        """
        if not request.steps:
            return self._control_recording(request.milliseconds)
        from weft_distrib.master.recording import record

        remote = [partial(self._trace_task, task) for task in self._visible(())]
        ended = threading.Event()

        def begun() -> None:
            with self._recording_changed:
                self._recording_end = ended
                self._recording_changed.notify_all()

        try:
            return record(
                request,
                [self._worker.trace_task, *remote],
                lambda: is_wanted() and not ended.is_set(),
                begun,
            )
        finally:
            with self._recording_changed:
                if self._recording_end is ended:
                    self._recording_end = None

    def _control_recording(self, milliseconds: int) -> np.ndarray[Any, Any]:
        """End the current recording, or wait until there is one."""
        with self._recording_changed:
            if milliseconds:
                if not self._recording_changed.wait_for(
                    lambda: self._recording_end is not None, min(milliseconds, 60_000) / 1000
                ):
                    raise errors.DeadlineExceededError(
                        f"no trace was being recorded within {milliseconds} ms"
                    )
            elif self._recording_end is not None:
                self._recording_end.set()
        return np.zeros(0, np.uint8)

    def _trace_task(
        self, task: DeviceParts, request: TraceTask
    ) -> tuple[Sequence[Any], TraceState]:
        channel = self._connections.connect(task)
        values, meta = ask(channel, methods.TRACE_TASK, request.pack(), (), _CLEAR_SECONDS)
        return values, TraceState.unpack(meta)

    def _serve_record(self, call: Call) -> CallResult:
        return [self.record(Record.unpack(call.meta), _is_wanted(call))], b""

    def _serve_reset(self, call: Call) -> CallResult:
        return (), encode(self.reset(decode(messages.Reset, call.meta)))

    def _serve_explain(self, call: Call) -> CallResult:
        return self.explain(decode(messages.Signature, call.meta), call.channel), b""

    def _serve_close(self, call: Call) -> CallResult:
        self.close_session(decode(messages.SessionRequest, call.meta).session, call.channel)
        return (), b""

    def explain(
        self, request: messages.Signature, owner: Channel | None = None
    ) -> list[np.ndarray]:
        """Explain the plan of a step; see `MasterSession.explain`."""
        return self.session(request.session, owner).explain(request)

    def begin_partial(self, request: RunStep, owner: Channel | None = None) -> StepKey:
        """Start a partial run; see `MasterSession.begin_partial`."""
        return self.session(request.session, owner).begin_partial(request)

    def advance(
        self,
        request: messages.Advance,
        values: Sequence[Any],
        reply: Callable[[Sequence[Any]], None],
        fail: Callable[[errors.OpError], None],
        owner: Channel | None = None,
    ) -> None:
        """Continue a partial run; see `MasterSession.advance`."""
        self.session(request.session, owner).advance(request, values, reply, fail)

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
        raise errors.DataLossError(
            f"the config of a session is not a ConfigProto: {error}"
        ) from error


_WAITING: Final[dict[int, Callable[[Master, Call], CallResult]]] = {
    methods.CREATE_SESSION: Master._serve_create,
    methods.EXTEND: Master._serve_extend,
    methods.PLAN: Master._serve_plan,
    methods.EXPLAIN: Master._serve_explain,
    methods.CLOSE_SESSION: Master._serve_close,
    methods.RESET: Master._serve_reset,
    methods.RECORD: Master._serve_record,
}
"""Handlers that run on separate threads, because they may wait."""


def _is_wanted(call: Call) -> Callable[[], bool]:
    """Return a function that returns True while the client waits for the result of a call."""
    cancelled = threading.Event()
    call.on_cancel = cancelled.set
    return lambda: not cancelled.is_set() and call.channel.lost is None


def _answer(call: Call, handler: Callable[[Call], CallResult]) -> None:
    """Reply to a call with the result or error of its handler."""
    try:
        values, meta = handler(call)
    except errors.OpError as error:
        call.fail(error)
    except Exception as error:  # because a bug here must not leave the client waiting
        call.fail(errors.InternalError(f"the call {call.method} failed: {error!r}"))
    else:
        call.reply(values, meta)


def _matches(spec: DeviceSpec, task: DeviceParts) -> bool:
    """Return True if a task matches a device filter."""
    return all(
        part is None or part == actual
        for part, actual in zip(spec.parts[:3], task[:3], strict=True)
    )
