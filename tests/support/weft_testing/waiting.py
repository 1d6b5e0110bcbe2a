"""Helpers for tests of resources that steps wait for."""

from __future__ import annotations

import faulthandler
import gc
import itertools
import mmap
import sys
import threading
import time
import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

_LIMIT = 30.0  # seconds that a condition may take to come true


class Recorder:
    """A completion that records its result, which must arrive only once.

    Attributes:
      told: the result or the failure as a list of one; empty while it waits.
    """

    def __init__(self) -> None:
        self.told: list[Any] = []

    def __call__(self, value: Any = None) -> None:
        assert not self.told, f"completed again with {value!r} after {self.told}"
        self.told.append(value)

    def fail(self, error: BaseException) -> None:
        assert not self.told, f"failed with {error!r} after {self.told}"
        self.told.append(error)

    @property
    def waits(self) -> bool:
        """Return True if there is no result yet."""
        return not self.told

    @property
    def value(self) -> Any:
        """Return the result, or raise the failure."""
        assert self.told, "still waiting"
        if isinstance(self.told[0], BaseException):
            raise self.told[0]
        return self.told[0]


def empty(shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    """Allocate the memory of a batch."""
    return np.empty(shape, dtype)


def wait_until(condition: Callable[[], Any]) -> None:
    """Wait until the condition is true; fail after a generous timeout."""
    end = time.monotonic() + _LIMIT
    while not condition():
        assert time.monotonic() < end, "the condition did not come true"
        time.sleep(0.0005)


def rounds(limit: int = 100_000, seconds: float = 120.0) -> Iterator[int]:
    """Yield the rounds of a loop that something inside ends; fail if there are too many."""
    end = time.monotonic() + seconds
    for index in range(limit):
        assert time.monotonic() < end, f"the loop did not end within {seconds:g} s"
        yield index
    raise AssertionError(f"the loop did not end within {limit} rounds")


def new_threads() -> Callable[[], list[threading.Thread]]:
    """Return a function that lists the live threads started since this call.

    The thread of finalizers, which begins once in a process and stays, is left out.
    """
    before = set(threading.enumerate())
    return lambda: [
        thread
        for thread in threading.enumerate()
        if thread not in before and thread.name != "weft-finalizers"
    ]


def least_growth(work: Callable[[], Any]) -> int:
    """Return the smallest memory growth of four repetitions, after a first one.

    A leak is in each of them; what else the process does with its memory is not.
    """

    def resident() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * mmap.PAGESIZE

    sizes = []
    for _ in range(5):
        work()
        gc.collect()
        sizes.append(resident())
    return min(after - before for before, after in itertools.pairwise(sizes))


class Traced:
    """The memory measured by `traced`.

    Attributes:
      current, peak: bytes allocated inside the block and still there, and the most there were.
    """

    current = peak = 0


@contextmanager
def traced() -> Iterator[Traced]:
    """Trace the allocations of Python and NumPy inside the block."""
    found = Traced()
    tracemalloc.start()
    try:
        yield found
        found.current, found.peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()


class _Thread(threading.Thread):
    def __init__(self, work: Callable[[], Any]) -> None:
        super().__init__(daemon=True)
        self._work = work
        self.outcome: Any = None

    def run(self) -> None:
        try:
            self.outcome = self._work()
        except Exception as error:  # because the test looks at whatever it is
            self.outcome = error


@contextmanager
def in_threads(*works: Callable[[], Any], start: bool = True) -> Iterator[Sequence[_Thread]]:
    """Run the functions in separate threads, which have ended at the end of the block.

    Each thread has its function's result or error as `outcome`. With `start=False` the block starts
    them. If one does not end, the stacks of all threads are written to stderr.
    """
    threads = [_Thread(work) for work in works]
    if start:
        for thread in threads:
            thread.start()
    yield threads
    for thread in threads:
        thread.join(_LIMIT)
        if thread.is_alive():
            faulthandler.dump_traceback(sys.__stderr__)
        assert not thread.is_alive(), "a thread still waits"
