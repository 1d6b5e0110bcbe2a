"""Ctrl-C while a compiled function runs.

Handlers of signals run in the main thread between instructions of Python, and one call of a
compiled function is one instruction. So what runs long there is told to stop as soon as the signal
comes, by a thread that Python's own handler wakes up through a pipe. The call then ends, the
handler runs, and if it raises nothing, the function runs again: it has changed nothing.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache
from typing import Any

from weft_graph.ir.code_generators import Generated
from weft_tensor import errors


class _Watcher:
    """The thread that stops what runs, and how it is woken up."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: Generated | None = None
        self._others = -1
        self._read, self._write = os.pipe()
        os.set_blocking(self._write, False)
        threading.Thread(target=self._watch, name="weft-interrupts", daemon=True).start()

    def run(self, generated: Generated, arrays: Sequence[Any]) -> None:
        """Run a function in the main thread, which signals wake this one up for."""
        self._others = signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
        self._running = generated
        try:
            generated(*arrays)
        finally:
            with self._lock:
                self._running = None
                generated.resume()
            signal.set_wakeup_fd(self._others, warn_on_full_buffer=False)

    def _watch(self) -> None:
        while numbers := os.read(self._read, 4096):
            with self._lock:
                if self._running is not None and signal.SIGINT in numbers:
                    self._running.interrupt()
            if self._others >= 0:  # somebody else waits for signals, such as an event loop
                with suppress(OSError):
                    os.write(self._others, numbers)


@cache
def _watcher() -> _Watcher:
    return _Watcher()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_watcher.cache_clear)  # threads are not forked


def run(generated: Generated, arrays: Sequence[Any], closed: Callable[[], bool]) -> None:
    """Run a function that can be interrupted, by Ctrl-C if this is the main thread.

    Args:
      closed: whether it was interrupted for good.
    Raises: CancelledError: it was; what a handler of signals raises.
    """
    main = os.name != "nt" and threading.current_thread() is threading.main_thread()
    while True:
        try:
            if main:
                _watcher().run(generated, arrays)
            else:
                generated(*arrays)
            return
        except errors.CancelledError:
            if closed():
                raise
