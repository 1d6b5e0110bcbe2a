"""Threads that wait for copies; each runs tasks in order and ends when it is idle."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Final

IDLE_SECONDS: Final = 1.0

Task = Callable[[], None]


class Worker:
    """Runs tasks in order on a thread that exists only while there are tasks.

    Args:
      name: name of the thread.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self._tasks: deque[Task] = deque()
        self._condition = threading.Condition()
        self._running = False

    def submit(self, task: Task) -> None:
        """Add a task, which must not raise, to the end of the queue."""
        with self._condition:
            self._tasks.append(task)
            if self._running:
                self._condition.notify()
                return
            self._running = True
        threading.Thread(target=self._loop, name=self.name, daemon=True).start()

    def _loop(self) -> None:
        while True:
            task = self._next()
            if task is None:
                return
            task()
            del task  # else its references live until the next task

    def _next(self) -> Task | None:
        with self._condition:
            while not self._tasks:
                if not self._condition.wait(IDLE_SECONDS) and not self._tasks:
                    self._running = False
                    return None
            return self._tasks.popleft()
