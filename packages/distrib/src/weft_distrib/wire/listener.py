"""Accepting and making connections; the first call on each says who calls."""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final

from weft_distrib.wire.channel import Call, Channel, Serve
from weft_tensor import errors

HELLO: Final = 0
"""The first call. Meta: u64 version, u64 the incarnation that the caller expects."""

_HELLO = struct.Struct("<QQ")
_BACKLOG = 512
_RETRY_SECONDS = 0.1


class Listener:
    """Accepts connections for as long as the process lives.

    Args:
      host: to listen on.
      version: of the protocol.
      incarnation: of this task; who expects another one is refused.
      serve: takes the calls that come after a connection's first.
    Attributes:
      port: the one it listens on.
    """

    def __init__(self, host: str, version: int, incarnation: int, serve: Serve) -> None:
        self._version, self._incarnation, self._serve = version, incarnation, serve
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._socket = socket.create_server((host, 0), family=family, backlog=_BACKLOG)
        self.port: int = self._socket.getsockname()[1]
        self._channels: set[Channel] = set()
        self._lock = threading.Lock()
        self._closed = False
        threading.Thread(target=self._accept, name="weft-accept", daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                sock, address = self._socket.accept()
            except OSError:
                if self._closed:
                    return
                time.sleep(_RETRY_SECONDS)  # such as too many open files, for a while
                continue
            greeting = _Greeting(self)
            channel = Channel(prepared(sock), f"{address[0]}:{address[1]}", greeting.serve)
            with self._lock:
                self._channels = {c for c in self._channels if c.lost is None}
                self._channels.add(channel)
                closed = self._closed
            if closed:
                channel.close()

    def close(self) -> None:
        """Accept no more, and end all connections."""
        with self._lock:
            self._closed = True
            channels = list(self._channels)
        with suppress(OSError):  # some systems want it connected for this
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        for channel in channels:
            channel.close()


class _Greeting:
    """One connection's calls: the first must be a HELLO that fits."""

    def __init__(self, listener: Listener) -> None:
        self._listener = listener
        self._greeted = False

    def serve(self, call: Call) -> None:
        if self._greeted:
            self._listener._serve(call)
            return
        if call.method != HELLO or len(call.meta) < _HELLO.size:
            raise errors.PermissionDeniedError("a connection begins by saying who calls")
        version, incarnation = _HELLO.unpack_from(call.meta)
        if version != self._listener._version:
            raise errors.FailedPreconditionError(
                f"this task speaks version {self._listener._version} of the protocol, and the "
                f"caller version {version}: install the same release of weftml-distrib on both"
            )
        if incarnation != self._listener._incarnation:
            raise errors.AbortedError("the task was started again since it was last seen")
        self._greeted = True
        call.reply()


def prepared(sock: socket.socket) -> socket.socket:
    """A socket with the options that small messages want."""
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sock


class Reply:
    """Waits for the reply to one call."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lock.acquire()
        self._values: Sequence[Any] = ()
        self._meta = b""
        self._error: errors.OpError | None = None

    def __call__(self, values: Sequence[Any], meta: bytes) -> None:
        """Take what the reply holds."""
        self._values, self._meta = values, meta
        self._lock.release()

    def fail(self, error: errors.OpError) -> None:
        """Take the reason why there is none."""
        self._error = error
        self._lock.release()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until it is there; returns whether it is."""
        return self._lock.acquire(timeout=-1 if timeout is None else timeout)

    def result(self) -> tuple[Sequence[Any], bytes]:
        """The values and the meta; after `wait` only.

        Raises: OpError: why there are none.
        """
        if self._error is not None:
            raise self._error
        return self._values, self._meta


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
    version: int,
    incarnation: int,
    timeout: float,
) -> Channel:
    """Connect to a task.

    Args:
      incarnation: of the task as it was last seen.
    Raises:
      UnavailableError: nobody answers there.
      AbortedError: the task is another one by now.
    """
    try:
        sock = socket.create_connection(address, timeout)
    except OSError as error:
        raise errors.UnavailableError(
            f"{peer} cannot be reached at {address[0]}:{address[1]}: {error}"
        ) from error
    sock.settimeout(None)
    channel = Channel(prepared(sock), peer)
    try:
        ask(channel, HELLO, _HELLO.pack(version, incarnation), (), timeout)
    except errors.OpError as error:
        channel.close(error)
        raise
    return channel
