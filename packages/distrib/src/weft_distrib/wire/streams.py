"""Bidirectional byte streams under a channel: a socket, or TLS over a socket."""

from __future__ import annotations

import os
import select
import selectors
import socket
import ssl
import struct
import threading
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from typing import Final, Protocol

from weft_distrib.security.refusals import refusal
from weft_distrib.security.roles import Role, role_of
from weft_distrib.wire.frames import BUFFER_BYTES
from weft_tensor import errors

HANDSHAKE_SECONDS: Final = 10.0
"""Maximum number of seconds that the other end may take for the TLS handshake."""

LINGER_SECONDS: Final = 1.0
"""Seconds that a rejected connection stays open for the other end to read the error."""

_MAX_FILES = 64
_MAX_WAITING = 1024
_RECORD_BYTES = 1 << 14
"""Maximum size of a TLS record, in bytes."""

_MAX_COALESCED_BYTES = 1 << 16
"""Number of bytes that a reader waits for if they are certain to arrive."""

_ANCILLARY_BYTES = socket.CMSG_SPACE(4 * _MAX_FILES)

_READS: Final = selectors.EVENT_READ


class Stream(Protocol):
    """Interface of a connection.

    One thread reads, another thread writes, and any thread may shut it down.
    """

    def begin(self) -> Role:
        """Authenticate the other end, before any other call; may be called repeatedly.

        Returns: the role in its certificate; without certificates, the role of a peer.
        Raises: UnauthenticatedError: one end rejects the credentials of the other.
        """
        ...

    def recv_into(self, buffer: memoryview) -> int:
        """Wait for bytes and write them to `buffer`; return their number, which is 0 at the end.

        Args:
          buffer: a buffer of at most `BUFFER_BYTES`, unless that many bytes are certain to arrive.
        Raises: OSError: the connection is lost.
        """
        ...

    def send(self, buffers: Sequence[memoryview], wait: bool) -> int:
        """Send some of the bytes of `buffers`; return their number.

        Args:
          wait: True to wait until some can be sent; False to return 0 if none can.
        Raises: OSError: the connection is lost.
        """
        ...

    def shutdown(self) -> None:
        """End the stream at both ends, waking blocked readers and writers."""
        ...

    @property
    def transport(self) -> str:
        """The transport of large values: "socket", "tls", "shared memory" or "inproc"."""
        ...

    def close(self) -> None:
        """Release the stream; the reader calls this last."""
        ...


class _NonBlockingSocket:
    """Non-blocking calls of a stream, for callers that are not authenticated yet."""

    _sock: socket.socket

    def fileno(self) -> int:
        """Return the socket's descriptor, for selectors."""
        return self._sock.fileno()

    def begin(self) -> Role:
        """See `Stream`."""
        return Role.PEER

    def try_begin(self) -> tuple[Role | None, int]:
        """Like `begin`, without waiting.

        Returns: the role, or None while it is not known; and the events of `selectors` to wait
          for before the next attempt.
        Raises: UnauthenticatedError: one end rejects the credentials of the other.
        """
        return self.begin(), _READS

    def try_receive(self, size: int) -> bytes | None:
        """Receive up to `size` bytes; return None if there are none.

        Raises: OSError: the connection is lost, or has ended.
        """
        try:
            return _limit_piece(self._receive(size))
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return None

    def _receive(self, size: int) -> bytes:
        return self._sock.recv(size, socket.MSG_DONTWAIT)

    def discard(self, size: int) -> None:
        """Drop up to `size` bytes that have arrived.

        Raises: OSError: the connection is lost, or has ended.
        """
        with suppress(BlockingIOError):
            _limit_piece(socket.socket.recv(self._sock, size, socket.MSG_DONTWAIT))

    def end_sending(self) -> None:
        """Signal to the other end that no more bytes follow."""
        socket.socket.shutdown(self._sock, socket.SHUT_WR)


def _limit_piece(data: bytes) -> bytes:
    if not data:
        raise ConnectionResetError("the peer closed the connection")
    return data


class SocketStream(_NonBlockingSocket):
    """A stream over a plain socket.

    Args:
      sock: a connected, blocking socket; the stream closes it.
    """

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self.recv_into = sock.recv_into
        self.close = sock.close

    transport = "socket"

    def send(self, buffers: Sequence[memoryview], wait: bool) -> int:
        """See `Stream`."""
        try:
            return self._sock.sendmsg(buffers, (), 0 if wait else socket.MSG_DONTWAIT)
        except BlockingIOError:
            return 0

    def shutdown(self) -> None:
        """See `Stream`."""
        self._sock.shutdown(socket.SHUT_RDWR)


class LocalStream(_NonBlockingSocket):
    """A stream between processes of one machine, which also carries file descriptors.

    An attached file is sent with the next bytes, so it arrives before them.

    Args:
      sock: a connected, blocking socket of the family AF_UNIX; the stream closes it.
    """

    transport = "shared memory"

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._attached: deque[int] = deque()
        self._arrived: deque[int] = deque()
        self._closed = False

    def attach(self, file: int) -> None:
        """Send a file descriptor with the next bytes, and close it here."""
        self._attached.append(file)

    def next_file(self) -> int | None:
        """Return the next received file descriptor; the caller closes it."""
        return self._arrived.popleft() if self._arrived else None

    def recv_into(self, buffer: memoryview) -> int:
        """See `Stream`."""
        count, ancillary, flags, _ = self._sock.recvmsg_into(
            [buffer], _ANCILLARY_BYTES, socket.MSG_CMSG_CLOEXEC
        )
        for level, kind, data in ancillary:
            if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                self._arrived.extend(memoryview(data[: len(data) // 4 * 4]).cast("i"))
        if flags & socket.MSG_CTRUNC or len(self._arrived) > _MAX_WAITING:
            raise OSError("it sent too many file descriptors")
        return count

    def send(self, buffers: Sequence[memoryview], wait: bool) -> int:
        """See `Stream`."""
        files = [self._attached.popleft() for _ in range(min(len(self._attached), _MAX_FILES))]
        rights = struct.pack(f"{len(files)}i", *files)
        ancillary = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)] if files else []
        try:
            count = self._sock.sendmsg(buffers, ancillary, 0 if wait else socket.MSG_DONTWAIT)
        except BlockingIOError:
            # Nothing was sent, so the descriptors return to the front in their order.
            self._attached.extendleft(reversed(files))
            files.clear()
            # `close` may have run meanwhile, when these were not in the queue.
            if self._closed:
                _close_all(self._attached)
            return 0
        finally:
            # The kernel duplicates descriptors that it sends, so ours are closed in any case.
            for file in files:
                os.close(file)
        return count

    def shutdown(self) -> None:
        """See `Stream`."""
        self._sock.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """See `Stream`."""
        self._closed = True
        self._sock.close()
        _close_all(self._attached)
        _close_all(self._arrived)


def _close_all(files: deque[int]) -> None:
    while files:
        os.close(files.popleft())


class TlsStream(_NonBlockingSocket):
    """A stream with TLS over a socket.

    OpenSSL permits only one thread at a time to use a connection. So the socket is non-blocking,
    and threads wait outside of OpenSSL.

    Args:
      sock: a connected socket; the stream closes it.
      context: the TLS context of this end.
      peer: the name of the other end, for messages.
      host: for clients, the host name that the server's certificate must have; None at the server's
        end.
    """

    _sock: ssl.SSLSocket

    def __init__(
        self, sock: socket.socket, context: ssl.SSLContext, peer: str, host: str | None = None
    ) -> None:
        self._peer = peer
        self._role: Role | None = None
        self._dry = False  # whether all that came was read
        self._batch_bytes = 1
        self._lock = threading.Lock()
        self._sock = context.wrap_socket(
            sock,
            server_side=host is None,
            server_hostname=host,
            do_handshake_on_connect=False,
        )

    transport = "tls"

    def begin(self) -> Role:
        """See `Stream`."""
        if self._role is not None:
            return self._role
        self._sock.settimeout(HANDSHAKE_SECONDS)
        try:
            self._sock.do_handshake()
        except ssl.SSLError as error:
            self._wait_for_close()
            raise refusal(error, self._peer) from error
        return self._ensure_handshake()

    def _ensure_handshake(self) -> Role:
        self._sock.setblocking(False)
        names = (self._sock.getpeercert() or {}).get("subjectAltName", ())
        self._role = role_of({str(name[1]) for name in names if name[0] == "URI"})
        return self._role

    def try_begin(self) -> tuple[Role | None, int]:
        """See `SocketStream`."""
        self._sock.setblocking(False)
        try:
            self._sock.do_handshake()
        except ssl.SSLWantReadError:
            return None, _READS
        except ssl.SSLWantWriteError:
            return None, selectors.EVENT_WRITE
        except ssl.SSLError as error:
            raise refusal(error, self._peer) from error
        return self._ensure_handshake(), _READS

    def _receive(self, size: int) -> bytes:
        try:
            return self._sock.recv(size)
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise
        except ssl.SSLError as error:
            raise refusal(error, self._peer) from error

    def _wait_for_close(self) -> None:
        """Wait until the other end closes: closing first could discard the error for it."""
        with suppress(OSError):
            self.end_sending()
            self._sock.settimeout(LINGER_SECONDS)
            while socket.socket.recv(self._sock, 1 << 16):
                pass

    def recv_into(self, buffer: memoryview) -> int:
        """See `Stream`; reads as many small TLS records as are available."""
        size = len(buffer)
        certain = size > BUFFER_BYTES
        target_bytes = _MAX_COALESCED_BYTES if certain else 1
        count = 0
        while count < size:
            if self._dry:
                if count >= target_bytes:
                    return count
                self._wait_for(size - count if certain else 1)
                self._dry = False
            try:
                with self._lock:
                    recv = self._sock.recv_into(buffer[count:])
            except ssl.SSLWantReadError:
                # OpenSSL has no complete record left; only the socket can tell when there is more.
                self._dry = True
            except ssl.SSLWantWriteError:
                # A TLS key update may have to write before it can read.
                self._wait(select.POLLOUT)
            except ssl.SSLError as error:
                raise refusal(error, self._peer) from error
            else:
                if not recv:
                    return count
                count += recv
        return count

    def send(self, buffers: Sequence[memoryview], wait: bool) -> int:
        """See `Stream`."""
        total = 0
        for buffer in _merge_into_records(buffers):
            count = 0
            while count < len(buffer):
                sent = self._send_some(buffer[count:], wait and not total + count)
                if not sent:
                    return total + count
                count += sent
            total += count
        return total

    def _send_some(self, buffer: memoryview, wait: bool) -> int:
        while True:
            try:
                with self._lock:
                    return self._sock.send(buffer)
            except ssl.SSLWantReadError:
                events = select.POLLIN
            except ssl.SSLWantWriteError:
                events = select.POLLOUT
            except (ssl.SSLError, ConnectionError):
                return len(buffer)  # the reader finds out why, and ends the connection
            if not wait:
                return 0
            self._wait(events)

    def _wait_for(self, certain: int) -> None:
        """Wait for bytes; if many are certain to arrive, wait for many together.

        OpenSSL may already have buffered a part of the record.
        """
        batch_bytes = max(min(certain - 2 * _RECORD_BYTES, _MAX_COALESCED_BYTES), 1)
        if batch_bytes != self._batch_bytes:
            self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, batch_bytes)
            self._batch_bytes = batch_bytes
        self._wait(select.POLLIN)

    def _wait(self, events: int) -> None:
        waiter = select.poll()
        waiter.register(self._sock.fileno(), events)
        waiter.poll()

    def shutdown(self) -> None:
        """See `Stream`."""
        # TLS's own shutdown would continue in plain text.
        socket.socket.shutdown(self._sock, socket.SHUT_RDWR)

    def close(self) -> None:
        """See `Stream`."""
        self._sock.close()


def _merge_into_records(buffers: Sequence[memoryview]) -> Sequence[memoryview]:
    """Merge short buffers with the following ones to fill TLS records."""
    if len(buffers) < 2 or len(buffers[0]) >= _RECORD_BYTES:
        return buffers
    first, *remaining = buffers
    record = bytearray(first)
    while remaining and len(record) < _RECORD_BYTES:
        piece = remaining[0][: _RECORD_BYTES - len(record)]
        record += piece
        remaining[0] = remaining[0][len(piece) :]
        if not remaining[0]:
            del remaining[0]
    return [memoryview(record), *remaining]


SocketStreams = SocketStream | LocalStream | TlsStream


def stream_of(
    sock: socket.socket, context: ssl.SSLContext | None, peer: str, host: str | None = None
) -> SocketStream | TlsStream:
    """Return the stream for a channel: over the socket, or with a context by TLS over the socket.

    Args:
      host: see `TlsStream`.
    Raises: UnavailableError: the socket is no longer connected.
    """
    if sock.family != socket.AF_UNIX:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if context is None:
        return SocketStream(sock)
    try:
        return TlsStream(sock, context, peer, host)
    except (OSError, ValueError) as error:
        sock.close()
        raise errors.UnavailableError(f"{peer} is lost: {error}") from error
