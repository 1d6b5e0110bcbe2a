"""The session target `grpc://host:port`, whose steps a server's master plans and runs."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from weft_distrib.client.link import (
    CONNECT_SECONDS,
    GRACE_SECONDS,
    LocalLink,
    MasterLink,
    RemoteLink,
)
from weft_distrib.client.partial import RemotePartialStep
from weft_distrib.client.tensor_handles import RemoteTensors
from weft_distrib.master.master import START_SECONDS
from weft_distrib.protocol import messages
from weft_distrib.security.credentials import credentials_of_query
from weft_distrib.server import find_server
from weft_distrib.wire.address import address_of
from weft_distrib.wire.future import Reply
from weft_distrib.wire.methods import RunStep
from weft_distrib.wire.values import Pieces
from weft_exec.config import SessionConfig
from weft_exec.costs import CostModel
from weft_exec.devices.description import DeviceDescription
from weft_exec.devices.device import DeviceAttributes
from weft_exec.executor.executable import Executable
from weft_exec.executor.runner import closed_error
from weft_exec.resources.resources import ResourceManager
from weft_exec.session.partial import PartialPlan, PartialRun
from weft_exec.session.target import Backend, register_target
from weft_graph import proto
from weft_graph.ir.interrupts import defer_interrupts
from weft_graph.ir.node import Node, Output
from weft_graph.serialize import graph_pieces, segment_ends
from weft_tensor import errors

if TYPE_CHECKING:
    from weft_exec.session.base import BaseSession
    from weft_exec.session.explain import StepReport
    from weft_exec.session.partial import PartialRun, PartialSignature
    from weft_exec.tracing.consumers import TasksRecording
    from weft_exec.tracing.records import NodeRecord
    from weft_exec.tracing.step_trace import StepTrace

SCHEME: Final = "grpc"

SEGMENT_BYTES: Final = 1 << 26
"""Maximum size of the constants in one message that extends the graph; a larger constant has a
separate message.
"""


class Planned(Executable):
    """A signature that a master has planned.

    Attributes:
      number: the number of the signature in its session.
    """

    __slots__ = ("number",)

    def __init__(self, number: int, feeds: int) -> None:
        super().__init__([None] * feeds, range(feeds), (), None, None)
        self.number = number


class ClusterBackend(Backend):
    """The backend of one session on a server.

    Args:
      link: the link to the master.
      config: the options of the session.
      open_link: opens another link to the master, for recording its tasks.
      target: the session's target.
    """

    def __init__(
        self,
        link: MasterLink,
        config: SessionConfig,
        open_link: Callable[[], MasterLink] | None = None,
        target: str = "",
    ) -> None:
        self._link = link
        self._open_link = open_link
        self._target = target
        self._process = os.getpid()
        self._config = config
        config_bytes = b"" if config.proto is None else _without_credentials(config.proto)
        limit = config.timeout_ms / 1000 or START_SECONDS
        session = link.create_session(messages.OpenSession(config=config_bytes), limit)
        self._session = session.session
        self._described = [DeviceDescription.from_dict(json.loads(t)) for t in session.devices]
        self._incarnations = session.incarnations
        self._timeout = config.timeout_ms
        self._num_sent_nodes = 0
        self._functions: frozenset[str] = frozenset()
        self._closed = False
        self._is_extending = False
        self._remote_tensors: RemoteTensors | None = None
        self.resources = ResourceManager()
        self.runner = self
        self.limited = False
        self._costs = CostModel()

    @property
    def devices(self) -> list[DeviceAttributes]:
        """See the base class."""
        pairs = zip(self._described, self._incarnations, strict=True)
        return [DeviceAttributes(device, incarnation) for device, incarnation in pairs]

    @property
    def costs(self) -> CostModel:
        """The cost model of the client; the master has its own."""
        return self._costs

    def extend(self, nodes: Sequence[Node]) -> None:
        """See the base class."""
        if not nodes:
            return
        if self._is_extending:
            raise errors.AbortedError(
                "the session is unusable: its master did not confirm the graph's newest nodes "
                "within the timeout; create a new session"
            )
        graph, end = nodes[0].graph, self._num_sent_nodes + len(nodes)
        for cut in segment_ends(graph, self._num_sent_nodes, end, SEGMENT_BYTES):
            functions = frozenset(graph.functions)
            pieces = graph_pieces(graph, self._num_sent_nodes, cut, self._functions)
            request = messages.SessionRequest(self._session, self._milliseconds())
            with self._convert_call_errors(), self._handle_unconfirmed():
                self._link.extend(request, Pieces(pieces))
            self._num_sent_nodes, self._functions = cut, functions

    @contextmanager
    def _handle_unconfirmed(self) -> Iterator[None]:
        """Handle an extension that the master neither confirmed nor rejected in time."""
        self._is_extending = True
        try:
            yield
        except errors.DeadlineExceededError:
            late = self.planning_deadline
            if late is not None and time.monotonic() < late + GRACE_SECONDS:
                self._is_extending = False  # the master says so, and its graph is as before
            raise
        except errors.OpError:
            self._is_extending = False
            raise
        self._is_extending = False

    def _milliseconds(self) -> int:
        """Return the milliseconds until the deadline of planning; 0 for no limit."""
        deadline = self.planning_deadline
        return 0 if deadline is None else max(int((deadline - time.monotonic()) * 1000), 0) + 1

    def plan(
        self, feeds: Sequence[Output], outputs: Sequence[Output], targets: Sequence[Node], size: int
    ) -> Executable:
        """See the base class."""
        request = self._signature(feeds, outputs, targets, size)
        with self._convert_call_errors():
            return Planned(self._link.plan(request).signature, len(feeds))

    def begin_partial(self, signature: PartialSignature) -> PartialRun:
        """See the base class; updates wait for fetches that must precede them."""
        with self._convert_call_errors():
            if not hasattr(signature, "plan"):
                outputs, targets = signature.outputs, signature.targets
                planned = self._link.plan(
                    self._signature(signature.feeds, outputs, targets, partial=True)
                )
                requirements = [
                    frozenset(map(int, filter(None, n.split(",")))) for n in planned.needs
                ]
                result = Planned(planned.signature, 0)
                signature.plan = PartialPlan(result, planned.home, requirements)
            executable = signature.plan.executable
            assert isinstance(executable, Planned)
            key = self._link.begin_partial(RunStep(self._session, executable.number))
        step = RemotePartialStep(self._session, key.step, self._advance, self._end_partial)
        return PartialRun(signature, step)

    def kept_tensors(self, session: BaseSession) -> RemoteTensors:
        """See the base class; the tensors stay on the tasks that computed them."""
        if self._remote_tensors is None:
            self._remote_tensors = RemoteTensors(session)
        self._remote_tensors.drop_discarded()
        return self._remote_tensors

    def _end_partial(self, request: messages.Advance) -> None:
        # It has ended, or the session, or the master is gone, or this is a fork.
        with suppress(errors.OpError), self._convert_call_errors():
            self._link.advance(request, (), Reply())

    def _advance(
        self, request: messages.Advance, values: Sequence[Any], timeout: float | None
    ) -> Sequence[Any]:
        reply = Reply()
        with self._convert_call_errors():
            self._link.advance(request, values, reply)
            if not reply.wait(timeout):
                raise errors.DeadlineExceededError(f"the partial run took more than {timeout:g} s")
            fetched: Sequence[Any] = reply.result()[0]
            return fetched

    def explain(
        self, feeds: Sequence[Output], outputs: Sequence[Output], targets: Sequence[Node], size: int
    ) -> StepReport:
        """See the base class; the master explains its plan."""
        from weft_exec.session.explain import StepReport

        request = self._signature(feeds, outputs, targets, size)
        with self._convert_call_errors():
            return StepReport.from_arrays(self._link.explain(request))

    def _signature(
        self,
        feeds: Sequence[Output],
        outputs: Sequence[Output],
        targets: Sequence[Node],
        size: int = 0,
        partial: bool = False,
    ) -> messages.Signature:
        return messages.Signature(
            self._session,
            [feed.name for feed in feeds],
            [output.name for output in outputs],
            [target.name for target in targets],
            size,
            partial,
            self._milliseconds(),
        )

    def observe(self, records: Sequence[NodeRecord], run_metadata: Any) -> None:
        """See the base class."""

    def run(self, executable: Executable, slots: list[Any]) -> list[Any]:
        """Run a step and return its fetched values."""
        return self.run_watched(executable, slots)

    def run_watched(
        self,
        executable: Executable,
        slots: list[Any],
        deadline: float | None = None,
        trace: StepTrace | None = None,
    ) -> list[Any]:
        """Run a step with a deadline and a trace; return its fetched values.

        Raises:
          OpError: see `Session.run`.
          UnavailableError: a task was lost; the message names it.
          AbortedError: the master has dropped the session, or a task was restarted.
        """
        assert isinstance(executable, Planned)
        if self._closed:
            raise closed_error()
        remaining_seconds = None if deadline is None else max(deadline - time.monotonic(), 0.001)
        milliseconds = 0 if remaining_seconds is None else int(remaining_seconds * 1000) + 1
        traced = trace is not None and trace.is_kept
        request = RunStep(self._session, executable.number, milliseconds, traced)
        reply = Reply()
        with self._convert_call_errors():
            self._carry_out(request, slots, reply, remaining_seconds)
            values, meta = reply.result()
        if trace is not None and traced:
            trace.other.append(proto.StepStats.FromString(meta))
        return [_to_python_value(value) for value in values]

    @contextmanager
    def _convert_call_errors(self) -> Iterator[None]:
        """Convert errors of a call to CancelledError if the session was closed during the call.

        Raises: FailedPreconditionError: this process was forked from the process of the session.
        """
        if self._process != os.getpid():
            raise errors.FailedPreconditionError(
                f"the session belongs to process {self._process}: "
                f"process {os.getpid()}, a fork of it, must create its own session (or use "
                "spawned processes instead of forks)"
            )
        try:
            yield
        except errors.OpError as error:
            if not self._closed or isinstance(error, errors.CancelledError):
                raise
            raise errors.CancelledError("the session was closed during the call") from error

    def _carry_out(
        self, request: RunStep, slots: list[Any], reply: Reply, remaining_seconds: float | None
    ) -> None:
        """Run a step and wait for `reply`."""
        started = local_part = None
        try:
            with defer_interrupts():  # else the step could not be cancelled
                started = self._link.run(request, slots, reply)
                local_part = started.local_part
            if local_part is not None:
                run, local_part = local_part, None
                run()
            if not reply.wait(
                None if remaining_seconds is None else remaining_seconds + GRACE_SECONDS
            ):
                started.cancel(errors.DeadlineExceededError("the master did not answer in time"))
                reply.wait()
        except BaseException:  # because Ctrl-C must end the step as well
            if started is not None:
                with defer_interrupts():
                    started.cancel(errors.CancelledError("the step was interrupted"))
                    if local_part is not None:
                        local_part()  # it ends at once, and the step, which would wait for it
            raise

    def stop_planning(self) -> None:
        """See the base class: the master ends the steps of a closed session."""
        if self._process == os.getpid():
            self._closed = True
            with suppress(errors.OpError):
                self._link.close_session(self._session)

    def record_tasks(self) -> TasksRecording | None:
        """See the base class."""
        if self._open_link is None:
            return None
        from weft_distrib.client.recording import SessionTasksRecording

        return SessionTasksRecording(self._target, self._open_link)

    def close(self) -> None:
        """See the base class."""
        self._closed = True
        if self._process != os.getpid():
            return  # the session belongs to the parent process
        # The master is gone, and the session with it; or it ends it when the connection is lost.
        with suppress(errors.UnavailableError, errors.DeadlineExceededError):
            self._link.close_session(self._session)
        self._link.close()


def _to_python_value(value: Any) -> Any:
    """Convert a value to the form that programs get: a rank-0 string becomes bytes."""
    return value[()] if isinstance(value, np.ndarray) and not value.ndim else value


class GrpcTarget:
    """The target `grpc://host:port`, which is the master of a server."""

    def connect(self, target: str, config: SessionConfig) -> Backend:
        """See `Target`."""
        seconds = config.timeout_ms / 1000 or CONNECT_SECONDS
        open_link = partial(link_to, target, seconds, config.proto)
        return ClusterBackend(open_link(), config, open_link, target)

    def reset(self, target: str, containers: Sequence[str] | None, config: Any) -> None:
        """See `Target`."""
        seconds = getattr(config, "operation_timeout_in_ms", 0) / 1000
        link = link_to(target, seconds or CONNECT_SECONDS, config)
        try:
            link.reset(messages.Reset(not containers, list(containers or ())), seconds)
        finally:
            link.close()


def _without_credentials(config: Any) -> bytes:
    """Serialize a ConfigProto without its credentials, which name files of this process."""
    copy = type(config)()
    copy.CopyFrom(config)
    copy.experimental.ClearField("credentials")
    return bytes(copy.SerializeToString())


def link_to(target: str, seconds: float = CONNECT_SECONDS, config: Any = None) -> MasterLink:
    """Return a connection to the master of a task.

    Args:
      seconds: time limit for connecting.
      config: a ConfigProto with credentials.
    """
    server = find_server(target.partition("?")[0])
    if server is not None:
        return LocalLink(server.master)
    address, _, query = target.removeprefix(f"{SCHEME}://").partition("?")
    if not address_of(address, "the address in a target").port:
        raise errors.InvalidArgumentError(
            "a target must include the port of its server, such as grpc://host:2222, got "
            f"{target!r}"
        )
    return RemoteLink(address, credentials_of_query(query, config), seconds)


register_target(SCHEME, GrpcTarget())
