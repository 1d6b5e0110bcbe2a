"""Threads that run kernels beside the one that drives a step."""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import SimpleQueue

import numpy as np


class ThreadPool:
    """A fixed number of daemon threads, started when first used."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._tasks: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._started = False
        self._lock = threading.Lock()

    def submit(self, task: Callable[[], None]) -> None:
        """Run `task`, which must not raise, on some thread."""
        if not self._started:
            self._start()
        self._tasks.put(task)

    def _start(self) -> None:
        with self._lock:
            if self._started:
                return
            for i in range(self.size):
                threading.Thread(target=self._loop, name=f"weft-kernel-{i}", daemon=True).start()
            self._started = True

    def _loop(self) -> None:
        np.seterr(all="ignore")
        while True:
            self._tasks.get()()


_pools: dict[int, ThreadPool] = {}
_lock = threading.Lock()


def shared_pool(size: int) -> ThreadPool:
    """The process's pool of that many threads."""
    with _lock:
        return _pools.setdefault(size, ThreadPool(size))
