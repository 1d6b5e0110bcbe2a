"""What has gone by a connection."""

from __future__ import annotations

import threading
from typing import Final, NamedTuple


class Traffic(NamedTuple):
    """What has gone by one connection between two tasks, or a client and a task.

    Attributes:
      peer: what is at the other end.
      transport: what carries large values: "socket", "tls" or "shared memory".
      messages_sent, messages_received: calls and replies.
      bytes_sent, bytes_received: of their values.
      bytes_shared: of those sent, what went by shared memory, into which it was copied once.
      bytes_copied: of those sent, what was copied before a socket took it: strings, and large
        values that do not lie in one piece. All else goes from where it is to where it stays.
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
    """What a connection counts: who sends does so under its lock, and one thread receives."""

    __slots__ = ("copied", "received", "received_bytes", "sent", "sent_bytes", "shared")

    def __init__(self) -> None:
        self.sent = self.sent_bytes = self.shared = self.copied = 0
        self.received = self.received_bytes = 0

    def traffic(self, peer: str, transport: str) -> Traffic:
        """The counts now."""
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


class Carried:
    """What the connections of this process have carried, those included that have ended."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open: set[Counters] = set()
        self._came = self._went = 0

    def begin(self, counters: Counters) -> None:
        """Count a connection."""
        with self._lock:
            self._open.add(counters)

    def end(self, counters: Counters) -> None:
        """Keep the count of a connection, and let go of it."""
        with self._lock:
            self._open.discard(counters)
            self._came += counters.received_bytes
            self._went += counters.sent_bytes

    def bytes(self) -> tuple[int, int]:
        """The bytes of the values that have come in, and of those that went out."""
        with self._lock:
            came = self._came + sum(each.received_bytes for each in self._open)
            return came, self._went + sum(each.sent_bytes for each in self._open)


carried: Final = Carried()
