"""The steps of a task: a plain object driven by events in any order."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection
from typing import Generic, Protocol, TypeVar

from weft_distrib.wire.methods import StepKey
from weft_tensor import errors


class Abortable(Protocol):
    """Interface of a step that can be aborted."""

    def abort(self, error: errors.OpError) -> None:
        """Abort the step, unless it has ended."""
        ...


S = TypeVar("S", bound=Abortable)


class Steps(Generic[S]):
    """The steps of all sessions that have partitions here.

    A step begins with its first event: a request to run, a request for a value by another task, or
      a request to abort. Events after its end are rejected, so a step never begins twice.

    Args:
      make: creates the object for a step.
    """

    def __init__(self, make: Callable[[StepKey], S]) -> None:
        self._make = make
        self._lock = threading.Lock()
        self._sessions: dict[int, _Session[S]] = {}

    def add_session(self, session: int) -> None:
        """Allow steps of a session; may be called repeatedly."""
        with self._lock:
            self._sessions.setdefault(session, _Session())

    def has_session(self, session: int) -> bool:
        """Return True if a session was added and not removed."""
        with self._lock:
            return session in self._sessions

    def open(self, key: StepKey) -> S:
        """Return the step with a key, which begins if it is new.

        Raises: AbortedError: the session has no partitions here, or the step has ended.
        """
        with self._lock:
            session = self._sessions.get(key.session)
            if session is None:
                raise errors.AbortedError(
                    f"session {key.session:x} has no partitions in this task: they were dropped, "
                    "or the task was restarted"
                )
            # A late message for an ended step would otherwise create it again, and nothing would
            # remove it before the session ends.
            if key.step < session.ended and key.step not in session.running:
                raise errors.AbortedError(f"step {key.step} of session {key.session:x} has ended")
            step = session.steps.get(key.step)
            if step is None:
                step = session.steps[key.step] = self._make(key)
            return step

    def abort(self, key: StepKey, error: errors.OpError) -> None:
        """Abort a step, even before it has begun; does nothing if it has ended."""
        try:
            # Opening the step even if it has not begun records the abort, so that a request to run
            # it that arrives later fails.
            step = self.open(key)
        except errors.AbortedError:
            return
        step.abort(error)

    def end_before(self, session: int, number: int, running: Collection[int] = ()) -> None:
        """Remove the steps of a session with smaller numbers, which have ended in all tasks.

        Args:
          running: the numbers of steps that still run; without these exceptions, one long step
            would keep all later ones.
        """
        with self._lock:
            result = self._sessions.get(session)
            if result is None or number <= result.ended:
                return
            result.ended, result.running = number, frozenset(running)
            old_steps = [s for s in result.steps if s < number and s not in result.running]
            ended_steps = [result.steps.pop(step) for step in old_steps]
        for step in ended_steps:
            step.abort(errors.CancelledError("the step has ended"))

    def remove_session(self, session: int, error: errors.OpError) -> None:
        """Abort the steps of a session and remove it; does nothing if it is unknown."""
        with self._lock:
            result = self._sessions.pop(session, None)
        for step in result.steps.values() if result is not None else ():
            step.abort(error.copy())

    @property
    def count(self) -> int:
        """The number of known steps."""
        with self._lock:
            return sum(len(session.steps) for session in self._sessions.values())


class _Session(Generic[S]):
    def __init__(self) -> None:
        self.ended = 0
        self.running: frozenset[int] = frozenset()
        self.steps: dict[int, S] = {}
