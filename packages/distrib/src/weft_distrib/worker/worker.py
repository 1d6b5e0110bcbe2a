"""The worker of a task, which stores partitions and runs them for masters."""

from __future__ import annotations

import itertools
import json
import secrets
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Protocol

from weft_distrib.protocol import messages
from weft_distrib.protocol.tables import decode, encode
from weft_distrib.wire import methods
from weft_distrib.wire.channel import Call, Channel
from weft_distrib.wire.methods import (
    BEGIN,
    END,
    POLL,
    RunParts,
    StepKey,
    TraceState,
    TraceTask,
)
from weft_distrib.worker.recording import TaskRecording
from weft_distrib.worker.rendezvous import StepRendezvous, task_of
from weft_distrib.worker.scopes import Scope, Scopes
from weft_distrib.worker.steps import Steps
from weft_distrib.worker.threads import WaitingThreads
from weft_distrib.worker.tracing import Transfer, pack
from weft_exec.config import SessionConfig
from weft_exec.devices.device import Device, make_devices
from weft_exec.executor.executable import Executable
from weft_exec.executor.overlap import Overlap
from weft_exec.executor.partitioned_step import derive_part, derive_parts
from weft_exec.executor.runner import Runner
from weft_exec.resources.cancellation import Cancellation
from weft_exec.resources.file_access import FileRoots
from weft_exec.resources.resources import ResourceManager
from weft_exec.resources.threads import shared_pool
from weft_exec.session import blas_threads
from weft_exec.tracing.step_trace import StepTrace, trace_time
from weft_graph.ir.device_spec import DeviceParts
from weft_graph.ir.gc_pause import pause_gc
from weft_graph.ir.step_graph import Part
from weft_graph.ir.traits import Role
from weft_graph.passes.caller_exchange import CALLER
from weft_graph.serialize import part_from_bytes
from weft_tensor import errors

Done = Callable[[list[Any], bytes], None]


class Peers(Protocol):
    """Interface of the connections to other workers; `connect` may wait, `channel` does not."""

    def connect(self, task: DeviceParts) -> Channel:
        """Return the connection to a task, which is opened if necessary.

        Raises: UnavailableError: the task does not answer.
        """
        ...

    def channel(self, task: DeviceParts) -> Channel:
        """Return the connection that `connect` has opened.

        Raises: UnavailableError: the connection is lost.
        """
        ...


class WorkerStep:
    """A step as one task sees it."""

    def __init__(self, rendezvous: StepRendezvous) -> None:
        self.rendezvous = rendezvous
        self.cancellation = Cancellation()
        self.cancellation.register(rendezvous.abort)

    def abort(self, error: errors.OpError) -> None:
        """See `Abortable`."""
        self.cancellation.cancel(error)


class _Signature:
    """A task's partitions of a signature.

    Attributes:
      graphs: the serialized partitions by device.
      executable: the executable of the partitions.
      scope: the scope of the session in the task.
      host_code: True if a partition calls Python functions, which may take any time.
      epoch: the epoch of the state when the executable was derived.
    """

    __slots__ = ("epoch", "executable", "graphs", "host_code", "scope")

    def __init__(
        self, graphs: dict[str, Any], executable: Executable, scope: Scope, host_code: bool
    ) -> None:
        self.graphs, self.executable, self.scope = graphs, executable, scope
        self.host_code = host_code
        self.epoch = scope.resources.epoch


class Worker:
    """The devices, the state and the partitions of one task.

    Args:
      task: the name of this task.
      config: the options of the server, whose devices and threads all sessions share.
      peers: the connections to other tasks.
      roots: the file roots of sessions of other processes.
      machine: see `DeviceDescription`.
    Attributes:
      incarnation: a number that changes with each restart of the task.
      collectives: runs collective operations of its steps.
      when_forgotten: called with the number of each removed session, and the reason.
    """

    def __init__(
        self,
        task: DeviceParts,
        config: SessionConfig,
        peers: Peers,
        roots: FileRoots | None = None,
        machine: str = "",
    ) -> None:
        blas_threads.limit_once(config.intra_op_threads)
        self.task, self._machine = task, machine
        self.incarnation = secrets.randbits(63) | 1
        self.resources = ResourceManager()
        self.devices = {d.name: d for d in make_devices(self.resources, config, task)}
        self._scopes = Scopes(
            task.to_string(), self.devices, self.resources, roots or FileRoots(())
        )
        self._peers = peers
        pool = shared_pool(config.inter_op_threads) if config.inter_op_threads > 1 else None
        self._runner = Runner(self.resources.default_container, pool)
        self._overlap = Overlap.of(config.executor_type, config.inter_op_threads)
        self._leaving = False
        self._signatures: dict[tuple[int, int], _Signature] = {}
        self._steps = Steps(self._make_step)
        self._threads = WaitingThreads(f"weft-step-{task.to_string()}")
        self.collectives: Any = None
        self.when_forgotten: list[Callable[[int, errors.OpError], None]] = []
        self.recording: TaskRecording | None = None
        self._counting = threading.Lock()
        self._num_started = self._num_ended = 0

    def host(self, trusted: bool) -> Device:
        """Return a device that folds constants, as a session sees it.

        Args:
          trusted: True if the client of the session is in this process.
        """
        return self._scopes.host(trusted)

    def _make_step(self, key: StepKey) -> WorkerStep:
        rendezvous = StepRendezvous(key, self.task, self.devices, self._peers.channel)
        rendezvous.collectives = self.collectives
        return WorkerStep(rendezvous)

    def describe(self) -> list[str]:
        """Return the descriptions of the devices as JSON."""
        devices = list(self.devices.values())
        described = [replace(device.describe(devices), machine=self._machine) for device in devices]
        return [json.dumps(item.to_dict()) for item in described]

    # -------------------------------------------------------------------------- parts

    def register(
        self, request: messages.Register, graphs: Sequence[Any], trusted: bool = False
    ) -> None:
        """Register the partitions of a signature.

        Args:
          trusted: True if the client of the session is in this process.
        Raises:
          PermissionDeniedError: a partition calls Python functions of another process.
          OpError: a partition is malformed, its device does not belong to this task, or a kernel
            rejects its attributes.
        """
        self._steps.add_session(request.session)
        self._keep(request, graphs, trusted)

    def _keep(self, request: messages.Register, graphs: Sequence[Any], trusted: bool) -> None:
        if request.same_as:
            signature = self._signature(request.session, request.same_as)
            self._signatures[request.session, request.signature] = signature
            return
        parts: dict[str, Part] = {}
        for part in request.parts:
            if part.device not in self.devices:
                raise errors.NotFoundError(
                    f"{self.task.to_string()} does not have the device {part.device}; its "
                    f"devices are {list(self.devices)}"
                )
        named = {part.device: graph for part, graph in zip(request.parts, graphs, strict=True)}
        with pause_gc():
            parts = {device: part_from_bytes(graph) for device, graph in named.items()}
            for task in self._senders(parts.values()):
                self._peers.connect(task)
            scope = self._scopes.of(request.session, request.isolated, trusted)
            host_code = any(n.traits.host_code for part in parts.values() for n in part.nodes)
            result = _Signature(named, self._derive(parts, scope.devices), scope, host_code)
        self._signatures[request.session, request.signature] = result

    def _senders(self, parts: Any) -> set[DeviceParts]:
        """Return the other tasks that send values to a set of partitions."""
        result = {
            task_of(node.attrs["send_device"])
            for part in parts
            for node in part.nodes
            if node.role is Role.RECEIVE and node.attrs["send_device"] != CALLER
        }
        return result - {self.task}

    def _derive(self, parts: dict[str, Part], devices: dict[str, Device]) -> Executable:
        name, part = next(iter(parts.items()))
        if len(parts) == 1 and _is_ascending(part.feeds) and _is_ascending(part.fetches):
            return derive_part(part, devices[name], self._overlap, devices)
        feeds = _renumber(parts.values(), "feeds")
        fetches = _renumber(parts.values(), "fetches")
        return derive_parts(parts, devices, self._overlap, feeds, fetches)

    def forget(self, session: int, error: errors.OpError | None = None) -> None:
        """Remove the partitions of a session, and end its steps."""
        error = error or errors.CancelledError("the session was closed")
        self._steps.remove_session(session, error)
        for key in [key for key in self._signatures if key[0] == session]:
            self._signatures.pop(key, None)
        self._scopes.forget(session)
        for listener in self.when_forgotten:
            listener(session, error)

    def find(self, request: messages.Find) -> messages.Found:
        """Return which of some shared resources the task has.

        Raises: DataLossError: the numbers of containers and names differ.
        """
        if len(request.containers) != len(request.names):
            raise errors.DataLossError(
                f"{len(request.containers)} containers were received for {len(request.names)} names"
            )
        pairs = zip(request.containers, request.names, strict=True)
        return messages.Found([int(self.resources.has(*pair)) for pair in pairs])

    def open_rendezvous(self, key: StepKey) -> StepRendezvous:
        """Open the rendezvous of a step that may never run here; other tasks can pull from it.

        Args:
          key: the key of a step of a session, or one with a number that no session has.
        Raises: AbortedError: the step has ended.
        """
        self._steps.add_session(key.session)
        return self._steps.open(key).rendezvous

    def find_rendezvous(self, key: StepKey) -> StepRendezvous:
        """Return a rendezvous that `open_rendezvous` has created.

        Raises: AbortedError: it does not exist or was closed.
        """
        return self._steps.open(key).rendezvous

    def close_rendezvous(self, key: StepKey, error: errors.OpError) -> None:
        """Abort a rendezvous that `open_rendezvous` has created, if it still exists."""
        self._steps.remove_session(key.session, error)

    def rendezvous_of(self, key: StepKey) -> StepRendezvous:
        """Return a rendezvous for receiving values with this key from another task."""
        return self._make_step(key).rendezvous

    # -------------------------------------------------------------------------- steps

    def run(
        self,
        request: RunParts,
        values: Sequence[Any],
        done: Done,
        fail: Callable[[errors.OpError], None],
        may_run_part: bool = False,
    ) -> Callable[[], None] | None:
        """Run the partitions of a step on a thread that may block; then call `done` or `fail`.

        Args:
          done: receives the fetches, and the result of `tracing.pack` if the step is traced.
          may_run_part: True if this thread only waits for the step. Running the partitions on
            it saves two thread switches; this is not done if a kernel could block it past a
            deadline, or a Python function forever.
        Returns: a function that runs the partitions, which this thread must call; None if another
          thread runs them.
        """
        signature = self._signatures.get((request.session, request.signature))
        run = partial(self._run, request, values, done, fail)
        if (
            may_run_part
            and not request.timeout
            and signature is not None
            and not signature.host_code
        ):
            return run
        self._threads.submit(run)
        return None

    @property
    def steps(self) -> tuple[int, int]:
        """Return the number of ended steps and the number of running steps."""
        with self._counting:
            return self._num_ended, self._num_started - self._num_ended

    def _run(
        self,
        request: RunParts,
        values: Sequence[Any],
        done: Done,
        fail: Callable[[errors.OpError], None],
    ) -> None:
        recording = self.recording
        if recording is not None and recording.is_full:
            recording = None
        trace = StepTrace() if request.traced or recording is not None else None
        start = trace_time()
        with self._counting:
            self._num_started += 1
        try:
            step = self._step_of(request)
            passages: list[Transfer] = []
            if trace is not None:
                step.rendezvous.passages = passages
            results = self._run_step(step, request, values, trace)
            trace_bytes = b""
            if trace is not None and request.traced:
                trace_bytes = pack(trace, start, self.devices, passages)
            if trace is not None and recording is not None:
                recording.add(StepKey(request.session, request.step), trace, passages)
        except errors.OpError as error:
            fail(error)
        except Exception as error:  # because a bug here must not leave the master waiting
            fail(errors.InternalError(f"{self.task.to_string()}: {error!r}"))
        except BaseException:  # because Ctrl-C in the client's thread ends the step of all tasks
            fail(errors.CancelledError("the step was interrupted"))
            raise
        else:
            done(results, trace_bytes)
        finally:
            with self._counting:
                self._num_ended += 1

    def _step_of(self, request: RunParts) -> WorkerStep:
        self._steps.end_before(request.session, request.ended, request.running)
        return self._steps.open(StepKey(request.session, request.step))

    def _run_step(
        self,
        step: WorkerStep,
        request: RunParts,
        values: Sequence[Any],
        trace: StepTrace | None,
    ) -> list[Any]:
        """Run the partitions of a step on this thread, and return the fetches."""
        executable = self._executable(request.session, request.signature)
        deadline = time.monotonic() + request.timeout / 1000 if request.timeout else None
        return self._runner.run_watched(
            executable,
            executable.slots(values),
            deadline,
            trace,
            step.rendezvous,
            step.cancellation,
        )

    def _executable(self, session: int, signature: int) -> Executable:
        """Return the executable of a signature; it is derived again if state was dropped since."""
        result = self._signature(session, signature)
        epoch = result.scope.resources.epoch
        if result.epoch != epoch:
            parts = {device: part_from_bytes(graph) for device, graph in result.graphs.items()}
            result.executable, result.epoch = self._derive(parts, result.scope.devices), epoch
        return result.executable

    def _signature(self, session: int, signature: int) -> _Signature:
        result = self._signatures.get((session, signature))
        if result is None:
            raise errors.AbortedError(
                f"{self.task.to_string()} has no partitions of signature {signature} of session "
                f"{session:x}"
            )
        return result

    def abort(self, key: StepKey, error: errors.OpError) -> None:
        """Abort a step in this task."""
        self._steps.abort(key, error)

    def leave(self) -> None:
        """Reject new steps and partitions; running steps continue."""
        self._leaving = True

    def _check_staying(self) -> None:
        if self._leaving:
            raise errors.UnavailableError(
                f"{self.task.to_string()} is shutting down and accepts no new steps"
            )

    @property
    def running_steps(self) -> int:
        """The number of running steps."""
        return self._runner.running

    def trace_task(self, request: TraceTask) -> tuple[list[Any], TraceState]:
        """Begin, describe or end the recording of this task.

        Returns: at the end the records, as `TaskRecording.encode` does; and the state.
        Raises:
          FailedPreconditionError: another recording has not ended, or there is none.
          InvalidArgumentError: the request is malformed.
        """
        recording = self.recording
        if request.action == BEGIN:
            if recording is not None and not recording.is_abandoned:
                raise errors.FailedPreconditionError(
                    f"{self.task.to_string()} is recording a trace already; wait until it ends"
                )
            self.recording = TaskRecording(self.task.to_string(), request.steps)
            return [], TraceState(trace_time(), 0)
        if request.action not in (POLL, END):
            raise errors.InvalidArgumentError(
                f"the action of a recording must be from 0 to 2, got {request.action}"
            )
        if recording is None:
            raise errors.FailedPreconditionError(f"{self.task.to_string()} records no trace")
        if request.action == POLL:
            return [], TraceState(trace_time(), recording.steps)
        self.recording = None
        return recording.encode(), TraceState(trace_time(), recording.steps)

    # ------------------------------------------------------------------------ service

    def serve(self, call: Call) -> bool:
        """Handle a call of another task; return False if it is not a method of workers."""
        result = _METHODS.get(call.method)
        if result is not None:
            result(self, call)
        return result is not None

    def _serve_pull(self, call: Call) -> None:
        key, remaining = StepKey.unpack(call.meta)
        self._steps.open(key).rendezvous.serve(remaining.decode(errors="replace"), call)

    def _serve_run(self, call: Call) -> None:
        self._check_staying()
        self.run(RunParts.unpack(call.meta), call.values, call.reply, call.fail)

    def _serve_abort(self, call: Call) -> None:
        key, remaining = StepKey.unpack(call.meta)
        try:
            error = errors.OpError.from_dict(json.loads(remaining))
        except (ValueError, RecursionError) as bad:
            raise errors.DataLossError("the error of an aborted step cannot be read") from bad
        self.abort(key, error)
        call.reply()

    def _serve_register(self, call: Call) -> None:
        self._check_staying()
        request = decode(messages.Register, call.meta)
        if len(call.values) != (0 if request.same_as else len(request.parts)):
            raise errors.DataLossError(
                f"{len(request.parts)} partitions were announced, but {len(call.values)} graphs "
                "were received"
            )
        self._steps.add_session(request.session)  # here, in the order of the master's calls
        self._threads.submit(lambda: self._register(call, request))

    def _register(self, call: Call, request: messages.Register) -> None:
        # Steps of a lost master must not continue, for example to take elements from queues.
        session = request.session
        call.channel.when_lost((self, session), lambda error: self.forget(session, error))
        try:
            self._keep(request, call.values, trusted=False)
        except errors.OpError as error:
            call.fail(error)
        except Exception as error:  # because a bug here must not leave the master waiting
            call.fail(errors.InternalError(f"{self.task.to_string()}: {error!r}"))
        else:
            call.reply()
        # Meanwhile, and perhaps before there was anything to forget:
        if call.channel.lost is not None or not self._steps.has_session(session):
            call.channel.forget_listener((self, session))
            self.forget(session, call.channel.lost)

    def _serve_find(self, call: Call) -> None:
        call.reply(meta=encode(self.find(decode(messages.Find, call.meta))))

    def _serve_trace(self, call: Call) -> None:
        values, state = self.trace_task(TraceTask.unpack(call.meta))
        call.reply(values, state.pack())

    def _serve_forget(self, call: Call) -> None:
        session = decode(messages.SessionRequest, call.meta).session
        call.channel.forget_listener((self, session))
        self.forget(session)
        call.reply()

    def close(self) -> None:
        """End all steps, and release all state."""
        self._runner.close()
        self.resources.clear()


_METHODS: dict[int, Callable[[Worker, Call], None]] = {
    methods.PULL: Worker._serve_pull,
    methods.RUN_PARTS: Worker._serve_run,
    methods.ABORT: Worker._serve_abort,
    methods.REGISTER: Worker._serve_register,
    methods.FORGET: Worker._serve_forget,
    methods.FIND: Worker._serve_find,
    methods.TRACE_TASK: Worker._serve_trace,
}


def _is_ascending(indices: Sequence[int]) -> bool:
    return all(a < b for a, b in itertools.pairwise(indices))


def _renumber(parts: Any, attribute: str) -> int:
    """Renumber the feeds or fetches of partitions within this task; return their number.

    The master sends feeds and expects fetches in the order of the complete step.
    """
    indices = sorted({position for part in parts for position in getattr(part, attribute)})
    index = {position: i for i, position in enumerate(indices)}
    for part in parts:
        setattr(part, attribute, tuple(index[position] for position in getattr(part, attribute)))
    return len(indices)
