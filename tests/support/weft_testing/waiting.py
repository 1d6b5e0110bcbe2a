"""What the tests of resources that steps wait for share."""

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
    """A completion that remembers what it was told, and that it was told once.

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
        """Whether nothing was told yet."""
        return not self.told

    @property
    def value(self) -> Any:
        """The result; the failure is raised."""
        assert self.told, "still waiting"
        if isinstance(self.told[0], BaseException):
            raise self.told[0]
        return self.told[0]


def empty(shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    """An allocator for what is taken out as a batch."""
    return np.empty(shape, dtype)


def wait_until(condition: Callable[[], Any]) -> None:
    """Return as soon as the condition holds; fail after a generous time."""
    end = time.monotonic() + _LIMIT
    while not condition():
        assert time.monotonic() < end, "the condition did not come true"
        time.sleep(0.0005)


def rounds(limit: int = 100_000, seconds: float = 120.0) -> Iterator[int]:
    """Count the rounds of a loop that something inside ends; fail when there are too many."""
    end = time.monotonic() + seconds
    for index in range(limit):
        assert time.monotonic() < end, f"the loop did not end within {seconds:g} s"
        yield index
    raise AssertionError(f"the loop did not end within {limit} rounds")


def new_threads() -> Callable[[], list[threading.Thread]]:
    """What gives the threads that began after this call and live; those of other tests may end.

    The thread of finalizers, which begins once in a process and stays, is left out.
    """
    before = set(threading.enumerate())
    return lambda: [
        thread
        for thread in threading.enumerate()
        if thread not in before and thread.name != "weft-finalizers"
    ]


def least_growth(work: Callable[[], Any]) -> int:
    """The bytes that the process grows by in one of four rounds, after a first one.

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
    """What `traced` has found.

    Attributes:
      current, peak: bytes allocated inside the block and still there, and the most there were.
    """

    current = peak = 0


@contextmanager
def traced() -> Iterator[Traced]:
    """Trace Python's and NumPy's allocations inside the block; the device's pool is apart."""
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
    """Run the functions in threads of their own; at the end of the block all have ended.

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
