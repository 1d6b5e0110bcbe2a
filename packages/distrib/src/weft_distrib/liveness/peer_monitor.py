"""Polling of peers from one thread, which ends the connections to lost peers."""

from __future__ import annotations

import selectors
import socket
import ssl
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from typing import Final

from weft_distrib.liveness.peer_liveness import LIMIT_SECONDS, LivenessState, Verdict
from weft_distrib.liveness.probe_process import ANSWER, VERSION
from weft_distrib.security.credentials import Credentials
from weft_tensor import errors

ASK_SECONDS: Final = 0.5


class Watched:
    """A watched peer; the watch ends with `stop`.

    Attributes:
      heard: the number of answers received.
    """

    def __init__(
        self,
        address: tuple[str, int],
        peer: str,
        on_lost: Callable[[errors.OpError], None],
        limit: float,
        credentials: Credentials | None,
        host: str,
    ) -> None:
        self.peer = peer
        self.on_lost = on_lost
        self.limit = limit
        self.pulse = LivenessState(time.monotonic(), limit)
        self.received = b""
        self.heard = 0
        self.address = address
        self.credentials = credentials
        self.host = host
        self.socket: socket.socket | None = None
        self.stopped = False

    def stop(self) -> None:
        """Stop watching the peer."""
        self.stopped = True


class Watch:
    """Watches peers by polling their probe processes."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._new: list[Watched] = []
        self._selector = selectors.DefaultSelector()
        self._watched_set: set[Watched] = set()
        threading.Thread(target=self._loop, name="weft-watch", daemon=True).start()

    def add(
        self,
        address: tuple[str, int],
        peer: str,
        on_lost: Callable[[errors.OpError], None],
        limit: float = LIMIT_SECONDS,
        credentials: Credentials | None = None,
        host: str = "",
    ) -> Watched:
        """Start watching a peer.

        Args:
          address: the address of its probe process.
          peer: the name of the peer, for messages.
          on_lost: called once if the peer is lost, on the thread of the watch.
          limit: seconds without a sign of life after which the peer counts as lost.
          credentials: the credentials of this process.
          host: the host name that its certificate must have.
        """
        watched = Watched(address, peer, on_lost, limit, credentials, host)
        with self._lock:
            self._new.append(watched)
        return watched

    def _loop(self) -> None:
        while True:
            end = time.monotonic() + ASK_SECONDS
            self._begin()
            self._send_probes()
            while (remaining_seconds := end - time.monotonic()) > 0:
                if not self._watched_set:
                    time.sleep(remaining_seconds)
                    break
                for key, _ in self._selector.select(remaining_seconds):
                    self._receive_answer(key.data)
            self._judge(late=time.monotonic() - end)

    def _begin(self) -> None:
        with self._lock:
            new, self._new = self._new, []
        for watched in new:
            family = socket.AF_INET6 if ":" in watched.address[0] else socket.AF_INET
            try:
                sock = _wrap_socket(socket.socket(family), watched)
            except OSError:  # too many open files: the next round may find fewer
                with self._lock:
                    self._new.append(watched)
                continue
            sock.setblocking(False)
            sock.connect_ex(watched.address)
            watched.socket = sock
            self._selector.register(sock, selectors.EVENT_READ, watched)
            self._watched_set.add(watched)

    def _send_probes(self) -> None:
        for watched in self._watched_set:
            assert watched.socket is not None
            with suppress(OSError):  # not connected yet, or no more: its silence will tell
                watched.socket.send(b"?")

    def _receive_answer(self, watched: Watched) -> None:
        assert watched.socket is not None
        try:
            data = watched.socket.recv(4096)
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return
        except OSError:
            data = b""
        if not data:
            self._unregister(watched)
            with self._lock:
                self._new.append(watched)  # connect again; only silence is held against it
            return
        watched.received += data
        while len(watched.received) >= ANSWER.size:
            version, *answer = ANSWER.unpack_from(watched.received)
            watched.received = watched.received[ANSWER.size :]
            if version != VERSION:
                self._lose(watched, _version_error(watched.peer, version))
                return
            watched.pulse.answered(time.monotonic(), *answer)
            watched.heard += 1

    def _judge(self, late: float) -> None:
        """Report the peers that are lost.

        Args:
          late: seconds in which this thread could not run and receive answers, for example because
            a kernel held the GIL.
        """
        now = time.monotonic()
        for watched in [*self._watched_set, *self._new]:
            watched.pulse.pardon(now, late)
            verdict = watched.pulse.verdict(now)
            if watched.stopped:
                self._unregister(watched)
            elif verdict is not Verdict.ALIVE:
                reason = f"{watched.peer} is lost: for {watched.limit:g} s {verdict.value}"
                self._lose(watched, errors.UnavailableError(reason))

    def _lose(self, watched: Watched, error: errors.OpError) -> None:
        self._unregister(watched)
        watched.stopped = True
        watched.on_lost(error)

    def _unregister(self, watched: Watched) -> None:
        with self._lock:
            if watched in self._new:
                self._new.remove(watched)
        if watched in self._watched_set:
            self._watched_set.remove(watched)
            assert watched.socket is not None
            self._selector.unregister(watched.socket)
            watched.socket.close()


def _version_error(peer: str, version: int) -> errors.OpError:
    return errors.FailedPreconditionError(
        f"{peer} answers heartbeats in version {version}, but this process reads version "
        f"{VERSION}: "
        "install the same release of weftml-distrib on both"
    )


def _wrap_socket(sock: socket.socket, watched: Watched) -> socket.socket:
    """Wrap a socket in TLS if the peer requires certificates."""
    if watched.credentials is None or not watched.credentials.secure:
        return sock
    context = watched.credentials.contexts()[1]
    return context.wrap_socket(sock, server_hostname=watched.host, do_handshake_on_connect=False)


@cache
def shared_watch() -> Watch:
    """Return the watch that all connections of this process share."""
    return Watch()
