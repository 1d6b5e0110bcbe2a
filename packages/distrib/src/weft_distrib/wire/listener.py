"""Accepting and opening of connections; their first call identifies the caller."""

from __future__ import annotations

import logging
import socket
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Final

from weft_distrib.security.rate_limits import Rate
from weft_distrib.security.roles import Role
from weft_distrib.wire.channel import Call, Channel, Serve
from weft_distrib.wire.future import Reply
from weft_distrib.wire.handshake import HELLO, ConnectionOptions, Hello
from weft_distrib.wire.inproc import InprocStream, close_door, open_door, reach as reach_inproc
from weft_distrib.wire.reception import Admission, Admit, Open, Reception
from weft_distrib.wire.same_machine import (
    OFFER,
    Invitation,
    Tickets,
    is_own_user,
    listen,
    process_of,
    reach,
)
from weft_distrib.wire.streams import LocalStream, SocketStreams, Stream, stream_of
from weft_distrib.wire.traffic import Traffic
from weft_exec.resources.cancellation import Timer, call_at
from weft_tensor import errors

_log = logging.getLogger("weft")

_BACKLOG = 512
_PINGS_PER_LEASE = 4
"""Number of pings during a lease."""

_MAX_CONNECTIONS = 8192
LEASE_SECONDS: Final = 120.0
"""Seconds without a sign of life after which a connection is closed."""

_CONNECTIONS_A_SECOND = 1000.0
_CONNECTIONS_AT_ONCE = 4096


class Listener:
    """Accepts the connections of a task, as long as its process runs.

    Args:
      host: the address on which to listen.
      opening: the handshake options, which decide who is admitted.
      incarnation: the incarnation of this task; callers that expect another incarnation are
        rejected.
      serve: handles all calls of a connection after the first.
      lease: the seconds without a sign of life after which a connection is closed.
      port: the port on which to listen; 0 for a free one.
    Attributes:
      port: the port it listens on.
    """

    def __init__(
        self,
        host: str,
        opening: ConnectionOptions,
        incarnation: int,
        serve: Serve,
        lease: float = LEASE_SECONDS,
        port: int = 0,
    ) -> None:
        self._lease = lease
        self._accepted = Rate("new connections", _CONNECTIONS_A_SECOND, _CONNECTIONS_AT_ONCE)
        self._opening, self._incarnation, self._serve = opening, incarnation, serve
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._socket = socket.create_server((host, port), family=family, backlog=_BACKLOG)
        self.port: int = self._socket.getsockname()[1]
        self._channels: set[Channel] = set()
        self._lock = threading.Lock()
        self._closed = False
        self._tickets = Tickets()
        self._name = b""
        self._doors: dict[socket.socket, Open] = {self._socket: self._open_tcp}
        if opening.local:
            door, self._name = listen()
            self._doors[door] = self._open_local
        if opening.inproc:
            open_door(incarnation, self._welcome_inproc)
        reception = Reception(self._doors, self._enter, self._is_closed)
        self._reception = threading.Thread(target=reception.run, name="weft-accept", daemon=True)
        self._reception.start()

    def _open_tcp(self, sock: socket.socket) -> tuple[SocketStreams, str, Admit]:
        """Set up an accepted network connection, with TLS if configured; see `reception.Open`."""
        self._check_room()
        credentials = self._opening.credentials
        context = credentials.contexts()[0] if credentials.secure else None
        try:
            host, port = sock.getpeername()[:2]
        except OSError as error:
            raise errors.UnavailableError(f"the caller disconnected: {error}") from error
        caller = f"{host}:{port}"
        return stream_of(sock, context, caller), caller, self._admit

    def _open_local(self, sock: socket.socket) -> tuple[SocketStreams, str, Admit]:
        """Open a connection within this machine; see `reception.Open`."""
        self._check_room()
        caller = f"process {process_of(sock)} of this machine"
        if not is_own_user(sock):
            raise errors.PermissionDeniedError(f"{caller} belongs to another user")
        return LocalStream(sock), caller, self._admit_invited

    def _check_room(self) -> None:
        """Count a new connection.

        Raises: ResourceExhaustedError: there are too many connections.
        """
        self._accepted.take()
        with self._lock:
            self._channels = {c for c in self._channels if c.lost is None}
            if len(self._channels) >= _MAX_CONNECTIONS:
                raise errors.ResourceExhaustedError(
                    f"{_MAX_CONNECTIONS} connections are already open"
                )

    def _enter(self, stream: SocketStreams, caller: str, call: int, admission: Admission) -> None:
        """Serve a connection after its handshake; see `reception.Enter`."""
        try:
            channel = Channel(stream, caller, self._serve, caller=admission.role)
        except RuntimeError as error:  # the system has no more threads
            stream.close()
            _log.warning("closing the connection of %s: %s", caller, error)
            return
        if admission.ticket:
            self._keep_ticket(channel, admission.ticket)
        channel.answer_hello(call, admission.meta)
        self._keep(channel)

    def _welcome_inproc(self, stream: InprocStream) -> None:
        """Serve a connection within this process; it begins with a hello, too."""
        greeting = _Handshake(self._serve, lambda hello: self._admit(hello, Role.PEER))
        self._keep(Channel(stream, "another server of this process", greeting.serve))

    def _keep(self, channel: Channel) -> None:
        _Lease(channel, self._lease).begin()
        with self._lock:
            self._channels.add(channel)
        if self._is_closed():
            channel.close()

    def _is_closed(self) -> bool:
        with self._lock:
            return self._closed

    def _admit(self, hello: Hello, certified: Role) -> Admission:
        """Admit a caller; invite it to use shared memory if it may be on this machine."""
        role = self._opening.admit(hello, self._incarnation, certified)
        if not self._name or hello.offer != OFFER:
            return Admission(role)
        ticket = self._tickets.give(role)
        return Admission(role, Invitation(ticket, self._name).pack(), ticket)

    def _admit_invited(self, hello: Hello, certified: Role) -> Admission:
        """Admit a caller that presents the ticket of an invitation."""
        role = self._tickets.take(hello.offer)
        return Admission(min(role, self._opening.admit(hello, self._incarnation, role)))

    def _keep_ticket(self, channel: Channel, ticket: bytes) -> None:
        channel.when_lost(self._tickets, lambda _: self._tickets.take_back(ticket))

    def traffic(self) -> list[Traffic]:
        """Return the traffic of the open connections."""
        with self._lock:
            return [channel.traffic for channel in self._channels if channel.lost is None]

    def close(self) -> None:
        """Stop accepting connections, and end all that exist."""
        with self._lock:
            self._closed = True
            channels = list(self._channels)
        close_door(self._incarnation)
        for door in self._doors:
            with suppress(OSError):  # it was closed before
                door.shutdown(socket.SHUT_RDWR)
        self._reception.join()
        for channel in channels:
            channel.close()


class _Lease:
    """Pings the other end of a connection, and closes it if there is no sign of life."""

    def __init__(self, channel: Channel, seconds: float) -> None:
        self._channel, self._pause = channel, seconds / _PINGS_PER_LEASE
        self._last_heard = self._silent = 0
        self._timer: Timer | None = None

    def begin(self) -> None:
        self._channel.when_lost(self, lambda _: self._end())
        self._wait()

    def _wait(self) -> None:
        self._timer = call_at(time.monotonic() + self._pause, self._check_idle)

    def _end(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _check_idle(self) -> None:
        channel = self._channel
        self._silent = 0 if channel.heard != self._last_heard else self._silent + 1
        self._last_heard = channel.heard
        if self._silent >= _PINGS_PER_LEASE:
            seconds = _PINGS_PER_LEASE * self._pause
            channel.close(
                errors.UnavailableError(
                    f"{channel.peer} is lost: it sent nothing for {seconds:g} s"
                )
            )
        elif channel.lost is None:
            channel.ping()
            self._wait()


class _Handshake:
    """Handler of the calls of a connection within this process; the first must be a hello."""

    def __init__(self, serve: Serve, admit: Callable[[Hello], Admission]) -> None:
        self._serve, self._admit = serve, admit
        self._do_handshake = False

    def serve(self, call: Call) -> None:
        if self._do_handshake:
            self._serve(call)
            return
        try:
            if call.method != HELLO:
                raise errors.PermissionDeniedError("a connection must begin with a handshake")
            admission = self._admit(Hello.unpack(call.meta))
        except errors.OpError as error:
            call.fail(error)
            call.channel.close(error)
            return
        self._do_handshake = True
        call.channel.caller = admission.role
        call.reply(meta=admission.meta)


def ask(
    channel: Channel, method: int, meta: bytes, values: Sequence[Any], timeout: float
) -> tuple[Sequence[Any], bytes]:
    """Call a method and wait for the reply.

    Raises:
      DeadlineExceededError: the reply did not arrive within `timeout` seconds.
      OpError: the error of the other end.
    """
    reply = Reply()
    number = channel.call(method, meta, values, reply)
    if not reply.wait(timeout) and channel.cancel(number):
        raise errors.DeadlineExceededError(f"{channel.peer} did not answer within {timeout:g} s")
    return reply.result()


def dial(
    address: tuple[str, int],
    peer: str,
    opening: ConnectionOptions,
    incarnation: int,
    timeout: float,
) -> Channel:
    """Connect to a task.

    Args:
      opening: the handshake options of this process.
      incarnation: the last known incarnation of the task.
    Raises:
      UnavailableError: no server answers at the address.
      UnauthenticatedError: one end rejects the credentials of the other.
      AbortedError: the task was restarted since.
    """
    token = opening.token_for(*address)
    inproc_stream = reach_inproc(incarnation) if opening.inproc else None
    if inproc_stream is not None:
        return _do_handshake(inproc_stream, peer, opening.hello(incarnation, token), timeout)[0]
    sock = opening.connect(address, peer, timeout)
    context = opening.credentials.contexts()[1] if opening.credentials.secure else None
    stream = stream_of(sock, context, peer, address[0])
    try:
        stream.begin()
    except OSError as error:
        stream.close()
        raise errors.UnavailableError(f"{peer} is lost: {error}") from error
    except errors.OpError:
        stream.close()
        raise
    offer = OFFER if opening.local else b""
    hello = opening.hello(incarnation, token, offer)
    channel, reply = _do_handshake(stream, peer, hello, timeout)
    local = reach(Invitation.unpack(reply).name) if opening.local and reply else None
    if local is None:
        return channel
    ticket = Invitation.unpack(reply).ticket
    try:
        return _do_handshake(LocalStream(local), peer, hello._replace(offer=ticket), timeout)[0]
    finally:
        channel.close()


def _do_handshake(stream: Stream, peer: str, hello: Hello, timeout: float) -> tuple[Channel, bytes]:
    """Do the handshake on a stream; return the channel, and the reply of the other end."""
    channel = Channel(stream, peer)
    try:
        _, reply = ask(channel, HELLO, hello.pack(), (), timeout)
    except errors.DeadlineExceededError as error:
        lost = errors.UnavailableError(error.message)  # as for a missing listener: try again
        channel.close(lost)
        raise lost from error
    except errors.OpError as error:
        channel.close(error)
        raise
    return channel, reply
