"""Counters of the traffic of connections."""

from __future__ import annotations

import threading
from typing import Final, NamedTuple


class Traffic(NamedTuple):
    """The traffic of one connection between two tasks, or a client and a task.

    Attributes:
      peer: the name of the other end.
      transport: the transport of large values: "socket", "tls" or "shared memory".
      messages_sent, messages_received: calls and replies.
      bytes_sent, bytes_received: the bytes of their values.
      bytes_shared: the sent bytes that were copied to shared memory.
      bytes_copied: the sent bytes that were copied before they were written to a socket: strings,
        and large non-contiguous values.
    """

    peer: str
    transport: str
    messages_sent: int
    messages_received: int
    bytes_sent: int
    bytes_received: int
    bytes_shared: int
    bytes_copied: int


class Counters:
    """Counters of a connection; senders update them under its lock, and one thread receives."""

    __slots__ = ("copied", "received", "received_bytes", "sent", "sent_bytes", "shared")

    def __init__(self) -> None:
        self.sent = self.sent_bytes = self.shared = self.copied = 0
        self.received = self.received_bytes = 0

    def traffic(self, peer: str, transport: str) -> Traffic:
        """Return the current counts."""
        return Traffic(
            peer,
            transport,
            self.sent,
            self.received,
            self.sent_bytes,
            self.received_bytes,
            self.shared,
            self.copied,
        )


class TrafficTotals:
    """Totals over all connections of this process, including closed ones."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open: set[Counters] = set()
        self._received = self._sent = 0

    def begin(self, counters: Counters) -> None:
        """Count a connection."""
        with self._lock:
            self._open.add(counters)

    def end(self, counters: Counters) -> None:
        """Keep the counts of a connection that has ended."""
        with self._lock:
            self._open.discard(counters)
            self._received += counters.received_bytes
            self._sent += counters.sent_bytes

    def bytes(self) -> tuple[int, int]:
        """Return the numbers of bytes of received and of sent values."""
        with self._lock:
            received = self._received + sum(item.received_bytes for item in self._open)
            return received, self._sent + sum(item.sent_bytes for item in self._open)


carried: Final = TrafficTotals()
