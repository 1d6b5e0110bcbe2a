"""Handling of Ctrl-C: deferred in critical sections, delivered in waits."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from queue import Empty, SimpleQueue
from types import FrameType
from typing import Final, TypeVar

T = TypeVar("T")

_LOOK_SECONDS: Final = 1.0

_held = False  # whether the main thread, the only one in which handlers run, holds it back


@contextmanager
def defer_interrupts() -> Iterator[None]:
    """Defer Ctrl-C until the end of the block, which may run in any thread.

    It costs 8 us in the main thread.

    Raises: KeyboardInterrupt, or another exception of the handler, at the end of the block.
    """
    global _held
    if _held or threading.current_thread() is not threading.main_thread():
        yield
        return
    previous_handler = signal.getsignal(signal.SIGINT)
    if not callable(previous_handler):  # the process ends by it, or does not care
        yield
        return
    signals: list[tuple[int, FrameType | None]] = []
    signal.signal(signal.SIGINT, lambda number, frame: signals.append((number, frame)))
    _held = True
    try:
        yield
    finally:
        _held = False
        signal.signal(signal.SIGINT, previous_handler)
        if signals:
            previous_handler(*signals[0])


def take_item(queue: SimpleQueue[T], seconds: float | None = None) -> T:
    """Return the next item of a queue, with an optional timeout.

    Python checks for signals before and after it waits for a lock. A signal that arrives just after
    the first check would be handled only at the end of the wait, so long waits are split.

    Raises: Empty: no item arrived in time.
    """
    end = None if seconds is None else time.monotonic() + seconds
    while True:
        remaining_seconds = _LOOK_SECONDS if end is None else max(0.0, end - time.monotonic())
        try:
            return queue.get(timeout=min(remaining_seconds, _LOOK_SECONDS))
        except Empty:
            if end is not None and remaining_seconds <= _LOOK_SECONDS:
                raise
