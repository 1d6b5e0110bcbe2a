"""Whether a peer is there, by what it answers: a plain object, told of answers and of the time."""

from __future__ import annotations

from enum import Enum
from typing import Final

LIMIT_SECONDS: Final = 4.0
"""How long a peer may give no sign of life."""


class Verdict(Enum):
    """What the answers of a peer say."""

    ALIVE = "alive"
    STOPPED = "it is stopped"
    STUCK = "it neither computes nor comes round"
    SILENT = "it does not answer"


class Pulse:
    """One peer.

    Args:
      now: in seconds, of any clock that goes on.
      limit: how long there may be no sign of life.
    """

    def __init__(self, now: float, limit: float = LIMIT_SECONDS) -> None:
        self._limit = limit
        self._answered = self._moved = self._running = now
        self._seen: tuple[int, int] | None = None

    def answered(self, now: float, beats: int, ticks: int, stopped: bool) -> None:
        """The peer has said how often it came round, its processor time, and if it is stopped."""
        self._answered = now
        if not stopped:
            self._running = now
        if (beats, ticks) != self._seen:
            self._seen = (beats, ticks)
            self._moved = now

    def pardon(self, now: float, seconds: float) -> None:
        """Who asks was away for so long itself, and that is not held against the peer."""
        self._answered = min(now, self._answered + seconds)
        self._moved = min(now, self._moved + seconds)
        self._running = min(now, self._running + seconds)

    @property
    def said(self) -> str | None:
        """What the last answer says of a peer that does not answer calls; None without one."""
        if self._seen is None:
            return None
        if self._running < self._answered:
            return "stopped"
        return "busy" if self._moved == self._answered else "stuck"

    def verdict(self, now: float) -> Verdict:
        """What is to be thought of the peer."""
        if now - self._answered > self._limit:
            return Verdict.SILENT
        if now - self._running > self._limit:
            return Verdict.STOPPED
        if now - self._moved > self._limit:
            return Verdict.STUCK
        return Verdict.ALIVE
