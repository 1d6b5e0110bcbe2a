"""A task of a cluster: one process with a worker, a master and the servers for them."""

from __future__ import annotations

from weft_graph import proto

__all__ = ["Server"]

import atexit
import json
import logging
import os
import signal
import tempfile
import threading
import time
from collections.abc import Sequence
from functools import partial
from importlib.metadata import entry_points
from typing import Any, Final

from weft_distrib.cluster.connections import Connections
from weft_distrib.cluster.reports import gather
from weft_distrib.cluster.spec import ClusterSpec
from weft_distrib.collective.cluster import Collectives, leader_of
from weft_distrib.liveness.heartbeat_server import Heartbeat
from weft_distrib.master.master import Master
from weft_distrib.protocol import messages, service
from weft_distrib.protocol.tables import decode, encode
from weft_distrib.security.credentials import Credentials
from weft_distrib.security.loopback import LOOPBACK, PublishedToken
from weft_distrib.security.machine import machine
from weft_distrib.security.roles import Role, require
from weft_distrib.wire import methods
from weft_distrib.wire.address import address_of
from weft_distrib.wire.channel import Call
from weft_distrib.wire.handshake import ConnectionOptions
from weft_distrib.wire.inproc import INPROC
from weft_distrib.wire.listener import LEASE_SECONDS, Listener
from weft_distrib.wire.traffic import Traffic, carried
from weft_distrib.worker.worker import Worker
from weft_exec.config import SessionConfig
from weft_exec.kernels.description import describe_kernels
from weft_exec.resources.file_access import FileRoots
from weft_graph.ir.device_spec import DeviceParts
from weft_tensor import errors

_log = logging.getLogger("weft")

_GROUP_SECONDS: Final = 2.0
"""Seconds that an ending task waits for others to read its values for a group."""

DRAIN_SECONDS: Final = 20.0
"""Maximum seconds for steps to end when a server is drained."""

_LOOK_SECONDS = 0.02
_SIGNAL_SECONDS: Final = 1.0
"""Maximum delay in seconds of the handling of a signal in a program that waits in `join`."""

_ROOTS = "WEFT_FILE_ROOTS"
TCP_ONLY: Final = "grpc+tcp"

_servers: dict[str, Server] = {}
_lock = threading.Lock()


def find_server(target: str) -> Server | None:
    """Return the server of this process that has a target; None if it is in another process."""
    return _servers.get(target)


if hasattr(os, "register_at_fork"):  # a child has none of the threads of its parent's servers
    os.register_at_fork(after_in_child=_servers.clear)


class Server:
    """A task of a cluster.

    Its master plans the steps of the sessions that connect to it, on the devices of all tasks.

    Args:
      server_or_cluster_def: the cluster: an argument of `ClusterSpec`, or a ServerDef.
      job_name: the job of this task; optional if the cluster has a single job.
      task_index: the number of this task in the job; optional if the job has a single task.
      protocol: "grpc"; "grpc+tcp", which never uses shared memory between tasks of one machine; or
        "inproc", which transfers values without sockets between servers of one process, if both use
        it.
      config: a ConfigProto for the devices and threads of this task, which is also the default of
        its sessions.
      start: True to start the server immediately.
      credentials: its credentials for other tasks and clients; by default those of the environment
        variables. Without credentials, a server on loopback admits processes of its own user. They
        read its token from a private directory.
      insecure: True to admit every caller on any address, without tokens and certificates.
      file_roots: the directories and URL prefixes below which sessions of other processes may read
        and write files; by default `WEFT_FILE_ROOTS`, or else the directory for temporary files.
      lease: the seconds without a sign of life after which clients and tasks are treated as lost
        and their sessions are closed.
      value_port: the port for sessions and values, to which clients in other languages connect; by
        default a free one.
    Raises:
      InvalidArgumentError: the cluster has no such job or task, or the protocol is unknown.
      PermissionDeniedError: the server would be reachable from other machines without certificates;
        or there is no private directory for its token.
      UnavailableError: the port is in use.

    Examples:
      >>> server = wf.train.Server.create_local_server()
      >>> with wf.Session(server.target) as session:
      ...     session.run(wf.constant(2.0) * 3.0)
      np.float32(6.0)
      >>> server.close()
    """

    def __init__(
        self,
        server_or_cluster_def: Any,
        job_name: str | None = None,
        task_index: int | None = None,
        protocol: str | None = None,
        config: Any = None,
        start: bool = True,
        *,
        credentials: Credentials | None = None,
        insecure: bool = False,
        file_roots: Sequence[str] | None = None,
        lease: float = LEASE_SECONDS,
        value_port: int = 0,
    ) -> None:
        result = _parse_arguments(server_or_cluster_def, job_name, task_index, protocol, config)
        self._cluster, self._task, self._protocol, self._config = result
        assert self._task.job is not None and self._task.task is not None
        self._address = self._cluster.task_address(self._task.job, self._task.task)
        host, port = address_of(self._address)
        credentials = Credentials.from_environment() if credentials is None else credentials
        if host not in LOOPBACK and not credentials.secure and not insecure:
            raise errors.PermissionDeniedError(
                f"{self._address} can be reached from other machines, but this server has no "
                f"credentials: without them it may only listen on {', '.join(LOOPBACK)}. Give it "
                "certificates (weft certificates creates some), or pass insecure=True, on the "
                "command line --insecure --insecure"
            )
        local = self._protocol != TCP_ONLY
        inproc = self._protocol == INPROC
        opening = ConnectionOptions(messages.VERSION, credentials, local=local, inproc=inproc)
        self._connections = Connections(self._cluster, opening)
        draws_token = not (insecure or credentials.secure or credentials.token)
        if draws_token:
            opening = ConnectionOptions(
                messages.VERSION, Credentials.random(), local=local, inproc=inproc
            )
        roots = FileRoots(default_roots() if file_roots is None else file_roots)
        options = SessionConfig.from_proto(self._config)
        self._worker = Worker(
            self._task, options, self._connections, roots, machine() if opening.local else ""
        )
        leader = leader_of(self._cluster, _leader_asked(self._config))
        self._collectives = Collectives(self._worker, self._connections, leader)
        self._packages = _packages()
        self._master = Master(
            self._cluster, self._worker, self._connections, self._packages, self._config
        )
        host = "127.0.0.1" if host == "localhost" else host  # not on only one of its addresses
        self._control = service.ControlServer(
            f"{f'[{host}]' if ':' in host else host}:{port}",
            {
                service.STATUS: self._status,
                service.KERNELS: _kernels,
                service.RESET: self._master.reset,
                service.CLEAR: self._master.clear,
                service.REPORT: self._report,
                service.REPORTS: self._reports,
            },
            opening,
        )
        self._listener = self._listen(host, value_port, opening, lease)
        self._published = self._publish(host, opening.credentials) if draws_token else None
        self._heart = Heartbeat(host, credentials)
        self._stopped = threading.Event()
        self._draining = False
        self._started = False
        self._start = time.monotonic()
        if start:
            self.start()

    def _listen(self, host: str, port: int, opening: ConnectionOptions, lease: float) -> Listener:
        incarnation = self._worker.incarnation
        try:
            return Listener(host, opening, incarnation, self._serve, lease, port)
        except (OSError, OverflowError) as error:
            self._control.stop()
            raise errors.UnavailableError(
                f"the value port {port} of {host} cannot be used: {error}"
            ) from error

    def _publish(self, host: str, credentials: Credentials) -> PublishedToken:
        try:
            return PublishedToken(
                host, (self._control.port, self._listener.port), credentials.token
            )
        except errors.PermissionDeniedError:
            self._control.stop()
            self._listener.close()
            raise

    @property
    def server_def(self) -> Any:
        """The definition of the server as a ServerDef."""
        return proto.ServerDef(
            cluster=self._cluster.as_cluster_def(),
            job_name=self._task.job,
            task_index=self._task.task,
            protocol=self._protocol,
            default_session_config=self._config,
        )

    @property
    def target(self) -> str:
        """The target for sessions on the server: "grpc://localhost:2222"."""
        return f"grpc://{self._address.rpartition(':')[0]}:{self._control.port}"

    @property
    def value_target(self) -> str:
        """The address for clients in other languages: "weft://localhost:40123"."""
        return f"weft://{self._address.rpartition(':')[0]}:{self._listener.port}"

    @property
    def incarnation(self) -> int:
        """The incarnation: a number that differs after each restart of the task."""
        return self._worker.incarnation

    @property
    def master(self) -> Master:
        """The master of the task, for sessions in this process."""
        return self._master

    @property
    def resources(self) -> Any:
        """The state of this task."""
        return self._worker.resources

    def traffic(self) -> list[Traffic]:
        """Return the traffic of this task's open connections.

        Returns: a `Traffic` for each, outgoing connections first.

        Examples:
          >>> server = wf.train.Server.create_local_server()
          >>> session = wf.Session(server.target)
          >>> server.traffic()  # the session is in the same process, and needs no connection
          []
          >>> server.close()
        """
        return [*self._connections.traffic(), *self._listener.traffic()]

    def start(self) -> None:
        """Start to answer; may be called repeatedly."""
        if self._stopped.is_set():
            raise errors.FailedPreconditionError("the server was closed; create a new one")
        if not self._started:
            self._started = True
            self._control.start()
            with _lock:
                _servers[self.target] = self
            atexit.register(self._collectives.close, _GROUP_SECONDS)
            _log.info("%s listens on %s", self._task.to_string(), self.target)

    def join(self) -> None:
        """Wait until the server is closed, possibly forever.

        Unless the program handles SIGTERM, the signal drains the server and then ends the program.
        In TensorFlow `join` never returns, so code after it is often meant for other tasks.

        Raises: SystemExit: after SIGTERM.
        """
        has_announced = False

        def drain(*_: object) -> None:
            nonlocal has_announced
            has_announced = True
            self.begin_drain()

        main = threading.current_thread() is threading.main_thread()
        if not main or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
            self._wait_for_end()
            return
        signal.signal(signal.SIGTERM, drain)
        try:
            self._wait_for_end()
        finally:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
        if has_announced:
            raise SystemExit(0)

    def _wait_for_end(self) -> None:
        # Python looks for signals before a wait and after it. One that comes between, or to another
        # thread, is seen at the end of the wait, so a long wait is several.
        while not self._stopped.wait(_SIGNAL_SECONDS):
            pass

    def begin_drain(self, seconds: float = DRAIN_SECONDS) -> None:
        """Drain the server on another thread; if it is already draining, close it immediately."""
        was_draining, self._draining = self._draining, True
        end = self.close if was_draining else partial(self.drain, seconds)
        threading.Thread(target=end, name="weft-drain").start()

    def drain(self, seconds: float = DRAIN_SECONDS) -> None:
        """Wait for running steps to end while rejecting new ones, then close the server.

        Args:
          seconds: the time limit, after which running steps are aborted.
        """
        name = self._task.to_string()
        _log.info("%s is shutting down after its running steps", name)
        self._control.health.stop()
        self._master.leave()
        self._worker.leave()
        deadline = time.monotonic() + seconds
        while self._master.running_steps or self._worker.running_steps:
            if time.monotonic() > deadline:
                _log.warning("%s: aborting steps that are still running after %g s", name, seconds)
                break
            time.sleep(_LOOK_SECONDS)
        self.close()

    def close(self) -> None:
        """End all sessions and steps, and stop answering."""
        if self._stopped.is_set():
            return
        self._stopped.set()
        with _lock:
            _servers.pop(self.target, None)
        atexit.unregister(self._collectives.close)
        self._master.close()
        self._collectives.close(_GROUP_SECONDS)
        if self._published is not None:
            self._published.withdraw()
        self._control.stop()
        self._listener.close()
        self._connections.close()
        self._worker.close()
        self._heart.close()

    @staticmethod
    def create_local_server(config: Any = None, start: bool = True) -> Server:
        """Start a cluster of one task in this process, `/job:local/task:0`, on a free port.

        Args:
          config: as for `Server`.
          start: as for `Server`.

        Examples:
          >>> server = wf.train.Server.create_local_server()
          >>> server.target.startswith("grpc://localhost:")
          True
          >>> server.close()
        """
        return Server({"local": ["localhost:0"]}, protocol="grpc", config=config, start=start)

    def _status(self, request: messages.Empty) -> messages.Status:
        worker = self._worker
        return messages.Status(
            messages.VERSION,
            worker.incarnation,
            self._task.to_string(),
            worker.describe(),
            self._listener.port,
            self._packages,
            self._heart.port,
        )

    def _report(self, request: messages.Empty) -> messages.Report:
        steps, running = self._worker.steps
        bytes_in, bytes_out = carried.bytes()
        return messages.Report(
            incarnation=self._worker.incarnation,
            task=self._task.to_string(),
            state="running" if running else "idle",
            steps=steps,
            running=running,
            sessions=len(self._master.open_sessions),
            bytes_in=bytes_in,
            bytes_out=bytes_out,
            milliseconds=int((time.monotonic() - self._start) * 1000),
        )

    def _reports(self, request: messages.Empty) -> messages.Reports:
        return gather(self._cluster.tasks(), self._connections, self._report(request))

    def _serve(self, call: Call) -> None:
        if call.method not in methods.OF_MASTERS:
            require(call.channel.caller, Role.PEER, f"method {call.method}", call.channel.peer)
        if call.method == methods.STATUS:
            call.reply(meta=encode(self._status(decode(messages.Empty, call.meta))))
            return
        if not any(part.serve(call) for part in (self._worker, self._collectives, self._master)):
            raise errors.UnimplementedError(f"unknown method {call.method}")


def _leader_asked(config: Any) -> str:
    """Return the group leader that a ConfigProto requests; "" if it requests none."""
    return "" if config is None else str(config.experimental.collective_group_leader)


def default_roots() -> list[str]:
    """Return the default file roots for sessions of other processes."""
    roots = os.environ.get(_ROOTS)
    if roots is not None:
        return [root for root in roots.split(os.pathsep) if root]
    return [tempfile.gettempdir()]


def _kernels(request: messages.KernelsOf) -> messages.KernelsOf:
    kernels_by_op = {
        op: [
            {"dtypes": dict(kernel.dtypes), "asynchronous": kernel.asynchronous}
            for kernel in kernels
        ]
        for op, kernels in describe_kernels(request.device_type).items()
    }
    return messages.KernelsOf(request.device_type, json.dumps(kernels_by_op, default=list))


def _packages() -> list[str]:
    """Return the packages that may add kernels or devices, with their versions."""
    result = {
        f"{entry.dist.name} {entry.dist.version}"
        for group in ("weft_exec.kernels", "weft_exec.devices")
        for entry in entry_points(group=group)
        if entry.dist is not None
    }
    return sorted(result)


def _parse_arguments(
    document: Any, job: str | None, task: int | None, protocol: str | None, config: Any
) -> tuple[ClusterSpec, DeviceParts, str, Any]:
    """Return the cluster, task, protocol and options that the arguments of a server specify."""
    if getattr(getattr(document, "DESCRIPTOR", None), "name", "") == "ServerDef":
        cluster = ClusterSpec(document.cluster)
        job, task = job or document.job_name or None, document.task_index if task is None else task
        protocol = protocol or document.protocol or None
        config = document.default_session_config if config is None else config
    else:
        cluster = ClusterSpec(document)
    if not cluster:
        raise errors.InvalidArgumentError("a server needs a cluster with at least one task")
    if job is None:
        if len(cluster.jobs) > 1:
            raise errors.InvalidArgumentError(f"job_name must be one of {cluster.jobs}")
        (job,) = cluster.jobs
    if task is None:
        if cluster.num_tasks(job) != 1:
            raise errors.InvalidArgumentError(
                f"task_index must be one of {cluster.task_indices(job)}, the tasks of job {job!r}"
            )
        (task,) = cluster.task_indices(job)
    cluster.task_address(job, task)
    if protocol not in (None, "grpc", TCP_ONLY, INPROC):
        raise errors.InvalidArgumentError(
            f"protocol must be 'grpc', {TCP_ONLY!r} or {INPROC!r}, got {protocol!r}"
        )
    return cluster, DeviceParts(job, 0, task), protocol or "grpc", config
