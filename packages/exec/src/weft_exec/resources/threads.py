"""Threads that run kernels in parallel with the thread that drives a step."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from queue import SimpleQueue

import numpy as np


class Task:
    """A call that runs once: on a thread of the pool, or on the thread that reclaims it.

    An idle driver reclaims tasks that no thread has started. Otherwise a step inside a kernel of
    another step could deadlock, because it waits for threads that wait for it.
    """

    __slots__ = ("_call", "_claims", "finished")

    def __init__(self, call: Callable[[], None]) -> None:
        self._call = call
        self._claims = itertools.count()
        self.finished = threading.Event()

    def claim(self) -> bool:
        """Claim the right to run the call; return True only for the first caller."""
        # `next` of this iterator is one call into C, which the interpreter lock makes atomic: a
        # test-and-set without a lock of its own.
        return next(self._claims) == 0

    def __call__(self) -> None:
        """Run the call, unless it was claimed."""
        if self.claim():
            try:
                self._call()
            finally:
                self.finished.set()


class ThreadPool:
    """A fixed number of daemon threads, started when first used."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._tasks: SimpleQueue[Task] = SimpleQueue()
        self._started = False
        self._unfinished = 0
        self._lock = threading.Lock()

    @property
    def has_room(self) -> bool:
        """True if each submitted task has a thread, so that all of them can start."""
        return self._unfinished <= self.size

    def submit(self, task: Task) -> None:
        """Run `task`, which must not raise, on some thread."""
        # The flag is only ever set, and `_start` tests it again with the lock.
        if not self._started:
            self._start()
        with self._lock:
            # Unlike the queue's methods, `+=` is not atomic.
            self._unfinished += 1
        self._tasks.put(task)

    def _start(self) -> None:
        with self._lock:
            if self._started:
                return
            for i in range(self.size):
                threading.Thread(target=self._loop, name=f"weft-kernel-{i}", daemon=True).start()
            self._started = True

    def _loop(self) -> None:
        # A new thread begins with NumPy's default error state, which prints warnings.
        np.seterr(all="ignore")
        while True:
            self._tasks.get()()
            with self._lock:
                self._unfinished -= 1


_pools: dict[int, ThreadPool] = {}
_lock = threading.Lock()


def shared_pool(size: int) -> ThreadPool:
    """Return the thread pool of the process with a size."""
    with _lock:
        return _pools.setdefault(size, ThreadPool(size))
