"""Threads for work that may wait: as many as there is of it, kept for a while."""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import Empty, SimpleQueue

_IDLE_SECONDS = 10.0


class WaitingThreads:
    """Runs each call at once, on an idle thread or a new one.

    A pool of fixed size will not do: steps may wait for other steps.

    Args:
      name: of the threads.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._lock = threading.Lock()
        self._idle: list[SimpleQueue[Callable[[], None]]] = []

    def submit(self, call: Callable[[], None]) -> None:
        """Run `call`, which must not raise."""
        with self._lock:
            queue = self._idle.pop() if self._idle else None
        if queue is not None:
            queue.put(call)
            return
        threading.Thread(target=self._loop, args=(call,), name=self._name, daemon=True).start()

    def _loop(self, call: Callable[[], None]) -> None:
        queue: SimpleQueue[Callable[[], None]] = SimpleQueue()
        while True:
            call()
            del call  # else it lives, with all that it refers to, until the next one
            with self._lock:
                self._idle.append(queue)
            try:
                call = queue.get(timeout=_IDLE_SECONDS)
            except Empty:
                with self._lock:
                    if queue in self._idle:
                        self._idle.remove(queue)
                        return
                call = queue.get()  # somebody took the queue just now
