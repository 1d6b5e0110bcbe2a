"""Time limits of planning, which waits for tasks and other threads."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from weft_tensor import errors

LONGEST_SECONDS: Final = 300.0
"""Time limit in seconds if neither the call nor the session has a timeout."""

_LOOK_SECONDS: Final = 0.5


class WaitLimit:
    """The time limit of all waits of one planning call.

    Args:
      timeout: milliseconds from now; 0 for `LONGEST_SECONDS`.
      is_wanted: returns False when the result is no longer needed, because the client has given up
        or the session is closed.
    """

    def __init__(self, timeout: int, is_wanted: Callable[[], bool] = lambda: True) -> None:
        self._seconds = timeout / 1000 if timeout else LONGEST_SECONDS
        self._deadline = time.monotonic() + self._seconds
        self._is_wanted = is_wanted

    def next_wait(self, purpose: str) -> float:
        """Return the seconds, more than 0, to wait before calling this again.

        Args:
          purpose: the event that is waited for, for the error message.
        Raises:
          DeadlineExceededError: the limit has passed.
          CancelledError: the result is no longer needed.
        """
        if not self._is_wanted():
            raise errors.CancelledError(
                "planning was canceled: the session was closed, or the client stopped waiting"
            )
        remaining_seconds = self._deadline - time.monotonic()
        if remaining_seconds <= 0:
            raise errors.DeadlineExceededError(f"{purpose} within {self._seconds:g} s")
        return min(remaining_seconds, _LOOK_SECONDS)

    @contextmanager
    def hold_lock(self, lock: threading.RLock) -> Iterator[None]:
        """Hold the lock for planning a session inside the block.

        Raises: DeadlineExceededError, CancelledError: see `next_wait`.
        """
        while not lock.acquire(timeout=self.next_wait("another call was still planning")):
            pass
        try:
            yield
        finally:
            lock.release()
