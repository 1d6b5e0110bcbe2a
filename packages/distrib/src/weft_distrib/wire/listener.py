"""Accepting and making connections; the first call on each says who calls."""

from __future__ import annotations

import logging
import socket
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Final

from weft_distrib.security.rates import Rate
from weft_distrib.security.roles import Role
from weft_distrib.wire.channel import Call, Channel, Serve
from weft_distrib.wire.hello import HELLO, MAX_HELLO_BYTES, Hello, Opening
from weft_distrib.wire.inproc import InprocStream, close_door, open_door, reach as reach_inproc
from weft_distrib.wire.local import (
    OFFER,
    Invitation,
    Tickets,
    is_own_user,
    listen,
    process_of,
    reach,
)
from weft_distrib.wire.reply import Reply
from weft_distrib.wire.streams import HANDSHAKE_SECONDS, LocalStream, Stream, stream_of
from weft_distrib.wire.traffic import Traffic
from weft_exec.resources.cancellation import Timer, call_at
from weft_tensor import errors

_log = logging.getLogger("weft")

_BACKLOG = 512
_ASKED = 4
"""How often somebody is asked for a sign of life within the lease."""

_RETRY_SECONDS = 0.1
_MAX_CONNECTIONS = 8192
LEASE_SECONDS: Final = 120.0
"""How long who has connected may give no sign of life."""

_CONNECTIONS_A_SECOND = 1000.0
_CONNECTIONS_AT_ONCE = 4096
_HELLO_SECONDS = 2 * HANDSHAKE_SECONDS
"""How long a connection may take to say who calls."""


Admit = Callable[[Hello, Channel], tuple[Role, bytes]]
"""Says what a caller may do, and what it is told; raises why it may nothing."""


class Listener:
    """Accepts connections for as long as the process lives.

    Args:
      host: to listen on.
      opening: says who may connect.
      incarnation: of this task; who expects another one is refused.
      serve: takes the calls that come after a connection's first.
      lease: seconds without a sign of life after which a connection is given up.
    Attributes:
      port: the one it listens on.
    """

    def __init__(
        self,
        host: str,
        opening: Opening,
        incarnation: int,
        serve: Serve,
        lease: float = LEASE_SECONDS,
    ) -> None:
        self._lease = lease
        self._accepted = Rate("new connections", _CONNECTIONS_A_SECOND, _CONNECTIONS_AT_ONCE)
        self._opening, self._incarnation, self._serve = opening, incarnation, serve
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._socket = socket.create_server((host, 0), family=family, backlog=_BACKLOG)
        self.port: int = self._socket.getsockname()[1]
        self._channels: set[Channel] = set()
        self._lock = threading.Lock()
        self._closed = False
        self._tickets = Tickets()
        self._name = b""
        doors = [self._socket]
        if opening.local:
            door, self._name = listen()
            doors.append(door)
        self._doors = doors
        if opening.inproc:
            open_door(incarnation, self._welcome_inproc)
        for door in doors:
            threading.Thread(
                target=self._accept, args=(door,), name="weft-accept", daemon=True
            ).start()

    def _accept(self, door: socket.socket) -> None:
        while True:
            try:
                sock, address = door.accept()
            except OSError:
                if self._closed:
                    return
                time.sleep(_RETRY_SECONDS)  # such as too many open files, for a while
                continue
            try:
                self._accepted.take()
                if door is self._socket:
                    self._welcome(sock, f"{address[0]}:{address[1]}")
                else:
                    self._welcome_local(sock)
            except errors.OpError as error:
                sock.close()
                _log.warning("a connection was not accepted: %s", error.message)

    def _welcome(self, sock: socket.socket, caller: str) -> None:
        """Begin to read what comes of a new connection."""
        with self._lock:
            self._channels = {c for c in self._channels if c.lost is None}
            if self._closed or len(self._channels) >= _MAX_CONNECTIONS:
                sock.close()
                return
        credentials = self._opening.credentials
        context = credentials.contexts()[0] if credentials.secure else None
        self._begin(stream_of(sock, context, caller), caller, self._admitted)

    def _welcome_local(self, sock: socket.socket) -> None:
        """The same, of one of this machine."""
        with self._lock:
            full = self._closed or len(self._channels) >= _MAX_CONNECTIONS
        if full or not is_own_user(sock):
            sock.close()
            return
        self._begin(LocalStream(sock), f"process {process_of(sock)} of this machine", self._invited)

    def _welcome_inproc(self, stream: InprocStream) -> None:
        """The same, of one of this process."""
        self._begin(stream, "another server of this process", self._admitted)

    def _begin(self, stream: Stream, caller: str, admit: Admit) -> None:
        greeting = _Greeting(self._serve, admit)
        channel = Channel(stream, caller, greeting.serve, MAX_HELLO_BYTES, MAX_HELLO_BYTES)
        greeting.limit(channel)
        _Lease(channel, self._lease).begin()
        with self._lock:
            self._channels.add(channel)
        if not self._open():
            channel.close()

    def _open(self) -> bool:
        with self._lock:
            return not self._closed

    def _admitted(self, hello: Hello, channel: Channel) -> tuple[Role, bytes]:
        """What a caller may do, and an invitation if it could be on this machine."""
        role = self._opening.admit(hello, self._incarnation, channel.caller)
        if not self._name or hello.offer != OFFER:
            return role, b""
        ticket = self._tickets.give(role)
        channel.when_lost(self._tickets, lambda _: self._tickets.take_back(ticket))
        return role, Invitation(ticket, self._name).pack()

    def _invited(self, hello: Hello, channel: Channel) -> tuple[Role, bytes]:
        """What a caller may do that was invited."""
        role = self._tickets.take(hello.offer)
        return min(role, self._opening.admit(hello, self._incarnation, role)), b""

    def traffic(self) -> list[Traffic]:
        """What has gone by the connections that are open."""
        with self._lock:
            return [channel.traffic for channel in self._channels if channel.lost is None]

    def close(self) -> None:
        """Accept no more, and end all connections."""
        with self._lock:
            self._closed = True
            channels = list(self._channels)
        close_door(self._incarnation)
        for door in self._doors:
            with suppress(OSError):  # some systems want it connected for this
                door.shutdown(socket.SHUT_RDWR)
            door.close()
        for channel in channels:
            channel.close()


class _Lease:
    """Asks the other end of a connection for signs of life, and ends it where none come."""

    def __init__(self, channel: Channel, seconds: float) -> None:
        self._channel, self._pause = channel, seconds / _ASKED
        self._heard = self._silent = 0
        self._timer: Timer | None = None

    def begin(self) -> None:
        self._channel.when_lost(self, lambda _: self._end())
        self._wait()

    def _wait(self) -> None:
        self._timer = call_at(time.monotonic() + self._pause, self._look)

    def _end(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _look(self) -> None:
        channel = self._channel
        self._silent = 0 if channel.heard != self._heard else self._silent + 1
        self._heard = channel.heard
        if self._silent >= _ASKED:
            seconds = _ASKED * self._pause
            channel.close(
                errors.UnavailableError(
                    f"{channel.peer} is lost: it has given no sign of life for {seconds:g} s"
                )
            )
        elif channel.lost is None:
            channel.ping()
            self._wait()


class _Greeting:
    """One connection's calls: the first must be a HELLO that fits."""

    def __init__(self, serve: Serve, admit: Admit) -> None:
        self._serve, self._admit = serve, admit
        self._greeted = False

    def limit(self, channel: Channel) -> None:
        """End the connection if nobody says who calls."""

        def end() -> None:
            if not self._greeted:
                channel.close(
                    errors.DeadlineExceededError(f"{channel.peer} does not say who it is")
                )

        timer = call_at(time.monotonic() + _HELLO_SECONDS, end)
        channel.when_lost(self, lambda _: timer.cancel())

    def serve(self, call: Call) -> None:
        if self._greeted:
            self._serve(call)
            return
        try:
            if call.method != HELLO:
                raise errors.PermissionDeniedError("a connection begins by saying who calls")
            role, told = self._admit(Hello.unpack(call.meta), call.channel)
        except errors.OpError as error:
            call.fail(error)
            call.channel.close(error)
            return
        self._greeted = True
        call.channel.admit(role)
        call.reply(meta=told)


def ask(
    channel: Channel, method: int, meta: bytes, values: Sequence[Any], timeout: float
) -> tuple[Sequence[Any], bytes]:
    """Call, and wait for the reply.

    Raises:
      DeadlineExceededError: it did not come within `timeout` seconds.
      OpError: what the other end raised.
    """
    reply = Reply()
    number = channel.call(method, meta, values, reply)
    if not reply.wait(timeout) and channel.cancel(number):
        raise errors.DeadlineExceededError(f"{channel.peer} did not answer within {timeout:g} s")
    return reply.result()


def dial(
    address: tuple[str, int],
    peer: str,
    opening: Opening,
    incarnation: int,
    timeout: float,
) -> Channel:
    """Connect to a task.

    Args:
      opening: who this process is.
      incarnation: of the task as it was last seen.
    Raises:
      UnavailableError: nobody answers there.
      UnauthenticatedError: one of the two ends does not believe the other.
      AbortedError: the task is another one by now.
    """
    near = reach_inproc(incarnation) if opening.inproc else None
    if near is not None:
        return _greeted(near, peer, opening, incarnation, b"", timeout)[0]
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
    channel, told = _greeted(stream, peer, opening, incarnation, OFFER, timeout)
    local = reach(Invitation.unpack(told).name) if opening.local and told else None
    if local is None:
        return channel
    ticket = Invitation.unpack(told).ticket
    try:
        return _greeted(LocalStream(local), peer, opening, incarnation, ticket, timeout)[0]
    finally:
        channel.close()


def _greeted(
    stream: Stream, peer: str, opening: Opening, incarnation: int, offer: bytes, timeout: float
) -> tuple[Channel, bytes]:
    """A channel by which the other end knows who calls, and what it has answered."""
    channel = Channel(stream, peer)
    hello = opening.hello(incarnation, offer if opening.local else b"")
    try:
        _, told = ask(channel, HELLO, hello.pack(), (), timeout)
    except errors.DeadlineExceededError as error:
        lost = errors.UnavailableError(error.message)  # as where nobody listens: try again
        channel.close(lost)
        raise lost from error
    except errors.OpError as error:
        channel.close(error)
        raise
    return channel, told
