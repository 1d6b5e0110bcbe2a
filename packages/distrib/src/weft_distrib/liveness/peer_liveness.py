"""Evaluation of a peer's liveness: a plain object driven by answers and the time."""

from __future__ import annotations

from enum import Enum
from typing import Final

LIMIT_SECONDS: Final = 4.0
"""Seconds without a sign of life after which a peer counts as lost."""


class Verdict(Enum):
    """The state of a peer according to its answers."""

    ALIVE = "alive"
    STOPPED = "it is stopped"
    STUCK = "it makes no progress"
    SILENT = "it does not answer"


class LivenessState:
    """The liveness of one peer.

    Args:
      now: the time in seconds, by a monotonic clock.
      limit: maximum seconds without a sign of life.
    """

    def __init__(self, now: float, limit: float = LIMIT_SECONDS) -> None:
        self._limit = limit
        self._answered = self._last_progress = self._running = now
        self._last_progress_mark: tuple[int, int] | None = None

    def answered(self, now: float, beats: int, ticks: int, stopped: bool) -> None:
        """Record an answer about the peer: counter, processor time, and whether it is stopped."""
        self._answered = now
        if not stopped:
            self._running = now
        if (beats, ticks) != self._last_progress_mark:
            self._last_progress_mark = (beats, ticks)
            self._last_progress = now

    def pardon(self, now: float, seconds: float) -> None:
        """Extend the limits by the time when the polling process itself did not run."""
        self._answered = min(now, self._answered + seconds)
        self._last_progress = min(now, self._last_progress + seconds)
        self._running = min(now, self._running + seconds)

    @property
    def reported_state(self) -> str | None:
        """The state of an unresponsive peer according to the last answer.

        None without an answer.
        """
        if self._last_progress_mark is None:
            return None
        if self._running < self._answered:
            return "stopped"
        return "busy" if self._last_progress == self._answered else "stuck"

    def verdict(self, now: float) -> Verdict:
        """Return the verdict on the peer."""
        if now - self._answered > self._limit:
            return Verdict.SILENT
        if now - self._running > self._limit:
            return Verdict.STOPPED
        if now - self._last_progress > self._limit:
            return Verdict.STUCK
        return Verdict.ALIVE
