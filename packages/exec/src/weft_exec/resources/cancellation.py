"""Cancellation of asynchronous work, and deadlines that do not need a thread each."""

from __future__ import annotations

import heapq
import itertools
import threading
import time
from collections.abc import Callable

from weft_tensor import errors

OnCancel = Callable[[errors.OpError], None]


class Cancellation:
    """The cancellation token of a step, which notifies each waiter inside the step once.

    The driver of a step cancels it when the caller cancels, when the session closes, when another
    node fails, and when the step's deadline has passed (with a `DeadlineExceededError`).

    Attributes:
      error: the reason for the cancellation, or None.
    """

    __slots__ = ("_callbacks", "_lock", "_next", "error")

    def __init__(self) -> None:
        self.error: errors.OpError | None = None
        self._callbacks: dict[int, OnCancel] = {}
        self._next = itertools.count()
        self._lock = threading.Lock()

    @property
    def cancelled(self) -> bool:
        """True if the step was canceled."""
        return self.error is not None

    def register(self, callback: OnCancel) -> int:
        """Call `callback(error)` on cancellation; immediately, on this thread, if already canceled.

        Returns: a token for `deregister`.
        """
        with self._lock:
            token = next(self._next)
            error = self.error
            if error is None:
                self._callbacks[token] = callback
        if error is not None:
            callback(error)
        return token

    def deregister(self, token: int) -> bool:
        """Remove a callback; return False if it was called or is about to be."""
        with self._lock:
            return self._callbacks.pop(token, None) is not None

    def cancel(self, error: errors.OpError | None = None) -> bool:
        """Cancel the step; return False if it was already canceled.

        The callbacks run once each on the calling thread, in the order of registration.
        """
        with self._lock:
            if self.error is not None:
                return False
            self.error = error or errors.CancelledError("the step was cancelled")
            callbacks = list(self._callbacks.values())
            self._callbacks.clear()
        for callback in callbacks:
            callback(self.error)
        return True


class Timer:
    """A call scheduled by `call_at`.

    Attributes:
      callback: the function to call; None after it was called or canceled.
    """

    __slots__ = ("callback",)

    def __init__(self, callback: Callable[[], None]) -> None:
        self.callback: Callable[[], None] | None = callback

    def cancel(self) -> None:
        """Cancel the callback, unless it has been called or is about to be."""
        _timers.cancel(self)


class _Timers:
    """Callbacks at times of `time.monotonic`, run by one daemon thread that ends when idle."""

    _IDLE_SECONDS = 5.0

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Timer]] = []
        self._cancelled = 0
        self._next = itertools.count()
        self._condition = threading.Condition()
        self._running = False

    def call_at(self, deadline: float, callback: Callable[[], None]) -> Timer:
        """Call `callback` once `time.monotonic()` reaches `deadline`."""
        timer = Timer(callback)
        with self._condition:
            heapq.heappush(self._heap, (deadline, next(self._next), timer))
            if not self._running:
                self._running = True
                threading.Thread(target=self._loop, name="weft-deadlines", daemon=True).start()
            self._condition.notify()
        return timer

    def cancel(self, timer: Timer) -> None:
        """Cancel a callback; canceled entries never make up more than half of the heap."""
        with self._condition:
            if timer.callback is None:
                return
            timer.callback = None
            self._cancelled += 1
            if 2 * self._cancelled > len(self._heap):
                self._heap = [entry for entry in self._heap if entry[2].callback is not None]
                heapq.heapify(self._heap)
                self._cancelled = 0
                self._condition.notify()

    def _loop(self) -> None:
        while True:
            with self._condition:
                due = self._next_due()
            if due is None:
                return
            due()
            del due  # else it would stay alive until the next one

    def _next_due(self) -> Callable[[], None] | None:
        while True:
            if not self._heap:
                if not self._condition.wait(self._IDLE_SECONDS) and not self._heap:
                    self._running = False
                    return None
                continue
            wait = self._heap[0][0] - time.monotonic()
            if wait > 0:
                self._condition.wait(min(wait, threading.TIMEOUT_MAX))
                continue
            timer = heapq.heappop(self._heap)[2]
            callback, timer.callback = timer.callback, None
            if callback is not None:
                return callback
            self._cancelled -= 1


_timers = _Timers()


def call_at(deadline: float, callback: Callable[[], None]) -> Timer:
    """Call `callback` from a shared thread once `time.monotonic()` reaches `deadline`."""
    return _timers.call_at(deadline, callback)
