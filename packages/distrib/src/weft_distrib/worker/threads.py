"""Threads for blocking calls, one for each call; idle threads are kept for a while."""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Final

from weft_tensor import errors

MAX_THREADS: Final = 8192

_IDLE_SECONDS = 10.0


class WaitingThreads:
    """Pool that runs each call immediately, on an idle thread or a new one.

    A pool of fixed size could deadlock, because steps may wait for other steps.

    Args:
      name: name of the threads.
      most: the maximum number of threads.
    """

    def __init__(self, name: str, limit: int = MAX_THREADS) -> None:
        self._name = name
        self._limit = limit
        self._count = 0
        self._lock = threading.Lock()
        self._idle: list[SimpleQueue[Callable[[], None]]] = []

    def submit(self, call: Callable[[], None]) -> None:
        """Run `call`, which must not raise, on a thread.

        Raises: ResourceExhaustedError: the maximum number of calls is running.
        """
        with self._lock:
            idle = self._idle.pop() if self._idle else None
            if idle is None:
                self._check_count()
                self._count += 1
        queue: SimpleQueue[Callable[[], None]] = idle or SimpleQueue()
        queue.put(call)
        if idle is not None:
            return
        # The call is passed by the queue, because a thread keeps its arguments alive.
        thread = threading.Thread(target=self._loop, args=(queue,), name=self._name, daemon=True)
        try:
            thread.start()
        except RuntimeError as error:  # the system has no more
            with self._lock:
                self._count -= 1
            raise errors.ResourceExhaustedError(f"{self._name}: {error}") from error

    def _check_count(self) -> None:
        if self._count >= self._limit:
            raise errors.ResourceExhaustedError(
                f"{self._name}: {self._limit} threads are already waiting for steps"
            )

    def _loop(self, queue: SimpleQueue[Callable[[], None]]) -> None:
        while True:
            try:
                call = queue.get(timeout=_IDLE_SECONDS)
            except Empty:
                with self._lock:
                    if queue in self._idle:
                        self._idle.remove(queue)
                        self._count -= 1
                        return
                call = queue.get()  # another thread took the queue just now
            call()
            del call  # else it lives, with all that it refers to, until the next one
            with self._lock:
                self._idle.append(queue)
