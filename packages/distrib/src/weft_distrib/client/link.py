"""Connections of sessions to their master, in the same process or at a server's ports."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Protocol

import numpy as np

from weft_distrib.cluster.connections import dial_peer
from weft_distrib.master.master import Master
from weft_distrib.master.sessions import StartedStep
from weft_distrib.protocol import messages, service
from weft_distrib.protocol.tables import decode, encode
from weft_distrib.security.credentials import Credentials
from weft_distrib.security.roles import Role
from weft_distrib.wire import methods
from weft_distrib.wire.address import address_of
from weft_distrib.wire.channel import Answer, Channel
from weft_distrib.wire.handshake import ConnectionOptions, check_version
from weft_distrib.wire.listener import ask
from weft_distrib.wire.methods import Record, RunStep, StepKey
from weft_distrib.wire.values import Pieces
from weft_tensor import errors

CONNECT_SECONDS: Final = 30.0
_CALL_SECONDS: Final = 600.0


GRACE_SECONDS: Final = 5.0
"""Seconds after a deadline within which the master must report that the deadline has passed."""


def _seconds(timeout: int) -> float:
    """Return the seconds to wait for a master whose timeout is in milliseconds.

    0 for no timeout.
    """
    return timeout / 1000 + GRACE_SECONDS if timeout else _CALL_SECONDS


class MasterLink(Protocol):
    """Interface of the connection from a session to its master.

    All methods raise the master's errors.
    """

    def create_session(self, request: messages.OpenSession, limit: float) -> messages.Session:
        """Open a session; `limit` is the number of seconds that it may wait for tasks."""
        ...

    def extend(self, request: messages.SessionRequest, segment: Pieces) -> None:
        """Add a segment of nodes to the graph of a session."""
        ...

    def plan(self, request: messages.Signature) -> messages.Planned:
        """Plan a signature."""
        ...

    def explain(self, request: messages.Signature) -> Sequence[Any]:
        """Return the explanation of a step, as `StepReport.to_arrays` encodes it."""
        ...

    def begin_partial(self, request: RunStep) -> StepKey:
        """Start a partial run."""
        ...

    def advance(self, request: messages.Advance, values: Sequence[Any], answer: Answer) -> None:
        """Continue a partial run; `answer` receives the fetched values."""
        ...

    def run(self, request: RunStep, values: Sequence[Any], answer: Answer) -> StartedStep:
        """Run a step."""
        ...

    def close_session(self, session: int) -> None:
        """Close a session."""
        ...

    def reset(self, request: messages.Reset, seconds: float = 0) -> None:
        """Drop the state of all tasks; `seconds` is the time limit, 0 for the default."""
        ...

    def record(self, request: Record) -> bytes:
        """Return a trace of all tasks as the bytes of a file."""
        ...

    def close(self) -> None:
        """Release the connection."""
        ...


class LocalLink:
    """Link to a master in this process."""

    def __init__(self, master: Master) -> None:
        self._master = master

    def create_session(self, request: messages.OpenSession, limit: float) -> messages.Session:
        """See `MasterLink`."""
        return self._master.create_session(request)

    def extend(self, request: messages.SessionRequest, segment: Pieces) -> None:
        """See `MasterLink`."""
        session = self._master.session(request.session)
        session.extend(segment.joined(), request.timeout)

    def plan(self, request: messages.Signature) -> messages.Planned:
        """See `MasterLink`."""
        return self._master.plan(request)

    def explain(self, request: messages.Signature) -> Sequence[Any]:
        """See `MasterLink`."""
        return self._master.explain(request)

    def begin_partial(self, request: RunStep) -> StepKey:
        """See `MasterLink`."""
        return self._master.begin_partial(request)

    def advance(self, request: messages.Advance, values: Sequence[Any], answer: Answer) -> None:
        """See `MasterLink`."""
        self._master.advance(request, values, lambda actual: answer(actual, b""), answer.fail)

    def run(self, request: RunStep, values: Sequence[Any], answer: Answer) -> StartedStep:
        """See `MasterLink`."""
        return self._master.run(request, values, answer, answer.fail, may_run_part=True)

    def close_session(self, session: int) -> None:
        """See `MasterLink`."""
        self._master.close_session(session)

    def reset(self, request: messages.Reset, seconds: float = 0) -> None:
        """See `MasterLink`."""
        self._master.reset(request)

    def record(self, request: Record) -> bytes:
        """See `MasterLink`."""
        return self._master.record(request).tobytes()

    def close(self) -> None:
        """See `MasterLink`."""


class RemoteLink:
    """Link to a master in another process.

    Args:
      address: "host:port" of its server.
      credentials: the credentials of this process.
      seconds: the time limit for connecting.
    Raises:
      UnavailableError: no server answers at the address.
      UnauthenticatedError: one end rejects the credentials of the other.
    """

    def __init__(self, address: str, credentials: Credentials, seconds: float) -> None:
        opening = ConnectionOptions(messages.VERSION, credentials, Role.CLIENT)
        self._control = service.ControlClient(address, "the server", opening)
        try:
            status = self._control.call(service.STATUS, messages.Empty(), seconds, wait=True)
        except errors.DeadlineExceededError as error:  # sessions are made anew where it is away
            raise errors.UnavailableError(
                f"no server answered at {address} within {seconds:g} s: check that it is running "
                "and reachable from this machine"
            ) from error
        check_version(messages.VERSION, status.version)
        host, peer = address_of(address).host, f"{status.task} at {address}"
        self._channel: Channel = dial_peer(host, peer, status, opening)

    def create_session(self, request: messages.OpenSession, limit: float) -> messages.Session:
        """See `MasterLink`."""
        seconds = limit + CONNECT_SECONDS  # the master tells, and knows who is absent
        return decode(messages.Session, self._call_master(methods.CREATE_SESSION, request, seconds))

    def extend(self, request: messages.SessionRequest, segment: Pieces) -> None:
        """See `MasterLink`."""
        ask(self._channel, methods.EXTEND, encode(request), [segment], _seconds(request.timeout))

    def plan(self, request: messages.Signature) -> messages.Planned:
        """See `MasterLink`."""
        seconds = _seconds(request.timeout)
        return decode(messages.Planned, self._call_master(methods.PLAN, request, seconds))

    def explain(self, request: messages.Signature) -> Sequence[Any]:
        """See `MasterLink`."""
        seconds = _seconds(request.timeout)
        return ask(self._channel, methods.EXPLAIN, encode(request), [], seconds)[0]

    def begin_partial(self, request: RunStep) -> StepKey:
        """See `MasterLink`."""
        method, meta = methods.BEGIN_PARTIAL, request.pack()
        return StepKey.unpack(ask(self._channel, method, meta, [], _CALL_SECONDS)[1])[0]

    def advance(self, request: messages.Advance, values: Sequence[Any], answer: Answer) -> None:
        """See `MasterLink`."""
        self._channel.call(methods.ADVANCE, encode(request), values, answer)

    def run(self, request: RunStep, values: Sequence[Any], answer: Answer) -> StartedStep:
        """See `MasterLink`."""
        channel = self._channel
        number = channel.call(methods.RUN_STEP, request.pack(), values, answer)

        def cancel(error: errors.OpError) -> None:
            if channel.cancel(number):
                answer.fail(error)

        return StartedStep(cancel)

    def close_session(self, session: int) -> None:
        """See `MasterLink`."""
        self._call_master(methods.CLOSE_SESSION, messages.SessionRequest(session), CONNECT_SECONDS)

    def _call_master(self, method: int, request: Any, seconds: float = _CALL_SECONDS) -> bytes:
        """Call the master with a message; returns the meta of its reply."""
        return ask(self._channel, method, encode(request), [], seconds)[1]

    def reset(self, request: messages.Reset, seconds: float = 0) -> None:
        """See `MasterLink`."""
        self._control.call(service.RESET, request, seconds or _CALL_SECONDS)

    def record(self, request: Record) -> bytes:
        """See `MasterLink`."""
        seconds = request.milliseconds / 1000 + _CALL_SECONDS
        (content,), _ = ask(self._channel, methods.RECORD, request.pack(), [], seconds)
        return np.asarray(content, np.uint8).tobytes()

    def close(self) -> None:
        """See `MasterLink`."""
        self._channel.close()
        self._control.close()
