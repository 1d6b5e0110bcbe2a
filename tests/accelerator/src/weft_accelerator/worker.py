"""Threads of an accelerator: each runs tasks one after the other, and ends when idle."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable

import numpy as np

IDLE_SECONDS = 0.5

Task = Callable[[], None]


class Worker:
    """Runs tasks in order, on a thread that exists while there are any.

    Args:
      name: of the thread.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self._tasks: deque[Task] = deque()
        self._condition = threading.Condition()
        self._running = False
        self._held = False

    def submit(self, task: Task) -> None:
        """Run a task after the earlier ones; it must not raise."""
        with self._condition:
            self._tasks.append(task)
            if not self._running:
                self._running = True
                threading.Thread(target=self._loop, name=self.name, daemon=True).start()
            self._condition.notify()

    def hold(self) -> None:
        """Start no further task until `release`."""
        with self._condition:
            self._held = True

    def release(self) -> None:
        """Continue after `hold`."""
        with self._condition:
            self._held = False
            self._condition.notify()

    @property
    def pending(self) -> int:
        """Return the number of tasks that have not started."""
        with self._condition:
            return len(self._tasks)

    def _loop(self) -> None:
        with np.errstate(all="ignore"):
            while True:
                task = self._next()
                if task is None:
                    return
                task()
                del task  # else what it holds lives until the next one

    def _next(self) -> Task | None:
        with self._condition:
            while self._held or not self._tasks:
                woken = self._condition.wait(None if self._held else IDLE_SECONDS)
                if not woken and not self._tasks and not self._held:
                    self._running = False
                    return None
            return self._tasks.popleft()
