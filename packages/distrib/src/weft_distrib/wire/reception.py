"""Reception of new connections until their callers are authenticated, on a single thread."""

from __future__ import annotations

import json
import logging
import selectors
import socket
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Final, NamedTuple

from weft_distrib.security.roles import Role
from weft_distrib.wire.frames import FRAME_BYTES, HEAD, Inbox, Message, Outbox, call_bytes
from weft_distrib.wire.handshake import HELLO, MAX_HELLO_BYTES, Hello
from weft_distrib.wire.streams import HANDSHAKE_SECONDS, LINGER_SECONDS, SocketStreams
from weft_tensor import errors

_log = logging.getLogger("weft")

MAX_NEWCOMERS: Final = 256
"""Maximum number of unauthenticated connections; when there is one more, the oldest is closed."""

HELLO_SECONDS: Final = 2 * HANDSHAKE_SECONDS
"""Maximum number of seconds from the connection to the end of the hello."""

_SWEEP_SECONDS: Final = 0.2
_RETRY_SECONDS: Final = 0.1
_DISCARD_BYTES: Final = 1 << 16


class Admission(NamedTuple):
    """The answer to an accepted hello.

    Attributes:
      role: the role of the caller.
      meta: the metadata of the reply.
      ticket: the ticket of the invitation in the reply, or b"".
    """

    role: Role
    meta: bytes = b""
    ticket: bytes = b""


Admit = Callable[[Hello, Role], Admission]
"""Rule of admission: receives a hello and the role in the caller's certificate; raises to reject
the caller.
"""

Open = Callable[[socket.socket], "tuple[SocketStreams, str, Admit]"]
"""Receives an accepted socket; returns its stream, the caller's name, and the rule of admission.
Raises OpError if the connection is rejected immediately; the caller of the function then closes the
socket.

Raises OpError where the connection is refused at once; the socket is closed by the caller then.
"""

Enter = Callable[[SocketStreams, str, int, Admission], None]
"""Takes over an admitted connection; the number identifies the call to reply to."""


class Reception:
    """Accepts connections and reads the hello of each, without a thread for each.

    Until its hello is accepted, a connection uses at most `MAX_HELLO_BYTES`. There are at most
    `MAX_NEWCOMERS` such connections, and each has `HELLO_SECONDS` to send its hello.

    Args:
      doors: listening sockets, with the function that opens the connections they accept; `run`
        closes the sockets.
      enter: takes over the connections whose hello was accepted.
      is_closed: returns True once no more connections should be accepted. Shutting down a listening
        socket makes `run` check it.
    """

    def __init__(
        self, doors: Mapping[Any, Open], enter: Enter, is_closed: Callable[[], bool]
    ) -> None:
        self._enter, self._is_closed = enter, is_closed
        self._selector = selectors.DefaultSelector()
        self._doors = doors
        self._newcomers: dict[_Newcomer, None] = {}  # oldest first
        for key, open_ in doors.items():
            key.setblocking(False)
            self._selector.register(key, selectors.EVENT_READ, open_)

    def run(self) -> None:
        """Accept connections until `is_closed` returns True."""
        sweep_at = 0.0
        while not self._is_closed():
            for key, _ in self._selector.select(_SWEEP_SECONDS if self._newcomers else None):
                if isinstance(key.data, _Newcomer):
                    self._advance(key.data)
                else:
                    self._accept(key.fileobj, key.data)
            if time.monotonic() >= sweep_at:
                sweep_at = time.monotonic() + _SWEEP_SECONDS
                self._sweep()
        for newcomer in list(self._newcomers):
            self._drop(newcomer)
        self._selector.close()
        for listening in self._doors:
            listening.close()

    def _accept(self, listening: Any, open_: Open) -> None:
        try:
            sock, _ = listening.accept()
        except BlockingIOError:
            return  # the caller is gone
        except OSError:  # such as too many open files
            if self._newcomers:
                self._drop(next(iter(self._newcomers)))
            elif not self._is_closed():
                time.sleep(_RETRY_SECONDS)
            return
        try:
            newcomer = _Newcomer(*open_(sock))
        except errors.OpError as error:
            sock.close()
            _log.warning("a connection was not accepted: %s", error.message)
            return
        if len(self._newcomers) >= MAX_NEWCOMERS:
            self._drop(next(iter(self._newcomers)))
        self._newcomers[newcomer] = None
        self._selector.register(newcomer.stream, selectors.EVENT_READ, newcomer)
        self._advance(newcomer)

    def _advance(self, newcomer: _Newcomer) -> None:
        """Read available bytes; admit the caller, reject it, or wait for more bytes."""
        if newcomer not in self._newcomers:
            return  # dropped for a newer one in this round
        try:
            admission = newcomer.advance()
        except OSError:
            self._drop(newcomer)
            return
        except Exception:  # because a bug must not keep all others out
            _log.exception("closing the connection of %s", newcomer.peer)
            self._drop(newcomer)
            return
        if newcomer.events != self._selector.get_key(newcomer.stream).events:
            self._selector.modify(newcomer.stream, newcomer.events, newcomer)
        if admission is not None:
            self._selector.unregister(newcomer.stream)
            del self._newcomers[newcomer]
            self._enter(newcomer.stream, newcomer.peer, newcomer.call, admission)

    def _sweep(self) -> None:
        now = time.monotonic()
        for newcomer in [candidate for candidate in self._newcomers if candidate.deadline < now]:
            self._drop(newcomer)

    def _drop(self, newcomer: _Newcomer) -> None:
        del self._newcomers[newcomer]
        self._selector.unregister(newcomer.stream)
        newcomer.stream.close()


class _Newcomer:
    """An unauthenticated connection.

    Attributes:
      stream, peer: the connection, and the name of the caller for messages.
      deadline: in `time.monotonic()`.
      events: the events that the next step waits for.
      call: the number of the call that contains the hello.
    """

    def __init__(self, stream: SocketStreams, peer: str, admit: Admit) -> None:
        self.stream, self.peer, self._admit = stream, peer, admit
        self.deadline = time.monotonic() + HELLO_SECONDS
        self.events = selectors.EVENT_READ
        self.call = 0
        self._certified: Role | None = None
        self._frame = bytearray()
        self._is_refused = False

    def advance(self) -> Admission | None:
        """Read available bytes; return the caller's admission, or None if more are needed.

        Raises: OSError: the connection has ended, or violates the protocol.
        """
        if self._is_refused:
            self.stream.discard(_DISCARD_BYTES)
            return None
        try:
            if self._certified is None:
                self._certified, self.events = self.stream.try_begin()
            if self._certified is None or not self._read_frame():
                return None
            return self._admit_hello(self._certified)
        except errors.OpError as error:
            self._refuse(error)
            return None

    def _read_frame(self) -> bool:
        """Read at most the first frame; return True once it is complete."""
        while True:
            size = FRAME_BYTES
            if len(self._frame) >= FRAME_BYTES:
                size += call_bytes(self._frame, MAX_HELLO_BYTES)
                if len(self._frame) == size:
                    return True
            data = self.stream.try_receive(size - len(self._frame))
            if data is None:
                return False
            self._frame += data

    def _admit_hello(self, certified: Role) -> Admission:
        message = _only_message(self._frame)
        self.call = message.call
        if message.code != HELLO:
            raise errors.PermissionDeniedError("a connection must begin with a handshake")
        return self._admit(Hello.unpack(message.meta), certified)

    def _refuse(self, error: errors.OpError) -> None:
        """Send the error, and let the caller read it before the connection is closed."""
        if self.call:  # else the caller's protocol is unknown
            box = Outbox()
            meta = json.dumps(error.to_dict(), default=str).encode()
            box.add(Message(HEAD, True, self.call, error.code or errors.UNKNOWN, meta))
            self.stream.send(box.next(), wait=False)
        self._is_refused = True
        self.deadline = time.monotonic() + LINGER_SECONDS
        self.events = selectors.EVENT_READ
        with suppress(OSError):
            self.stream.end_sending()


def _only_message(frame: bytes | bytearray) -> Message:
    inbox = Inbox(MAX_HELLO_BYTES, MAX_HELLO_BYTES)
    inbox.space()[: len(frame)] = frame
    messages = inbox.received(len(frame))
    if len(messages) != 1:
        raise errors.PermissionDeniedError("a connection must begin with a handshake")
    return messages[0]
