"""Interruption of running compiled functions, by Ctrl-C or by the end of their step.

Signal handlers run in the main thread between Python instructions, and one call of a compiled
function is one instruction. Python's own handler therefore wakes a thread through a pipe; this
thread stops a long function as soon as the signal arrives. The call then ends, the handler runs,
and if it raises nothing, the function runs again: it has changed nothing. A deadline or a
cancellation of the step stops it in the same way.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from typing import Any, Final

from weft_exec.executor.step_check import raise_if_ended, running
from weft_graph.ir.code_generators import Generated
from weft_tensor import errors

_MOST_FREE: Final = os.cpu_count() or 1
"""Maximum number of copies kept for concurrent calls: more than processors rarely run."""

_SHORT: Final = 2e-4
"""Maximum seconds of a call that is tried unwatched: some hundred times the cost of watching."""

_BRIEF: Final = 1e-3
"""Maximum duration, in seconds, of a call with bounded time after which the next call is not
watched: a tenth of the delay that Ctrl-C may have."""

_MOST_FAILURES: Final = 8
"""Number of calls that failed the short try after which no further call is tried."""


class StoppableFunction:
    """Function whose calls can be stopped separately: each call runs its own copy.

    Watching a call takes some microseconds. So a call that may end before it first checks its flag
    is tried unwatched: it then either stops at the flag, having changed nothing, or is done before.
    A function of bounded time is not watched either, once it has proved to be short.

    Args:
      tried: True if short calls are worth a try.
      bounded: True if the time of a call follows from shapes.
    """

    def __init__(self, generated: Generated, tried: bool = False, bounded: bool = False) -> None:
        self._first = generated
        self._bounded = bounded
        self._unwatched: Generated | None = None  # set if the last call was brief
        self._enter_briefly = generated.enter_briefly if tried else generated
        self._free = [generated]
        self._short = tried
        self._failures = 0 if tried else _MOST_FAILURES
        self._running: set[_Call] = set()
        self._closed = False
        self._lock = threading.Lock()

    def __call__(self, *arrays: Any) -> None:
        """Run the function.

        Raises:
          CancelledError: it was closed.
          Exception: the error that ends the step, or an error that a signal handler raises.
        """
        if (unwatched := self._unwatched) is not None:
            started = time.perf_counter()
            unwatched(*arrays)
            self._note(started)
            return
        if self._short:
            if self._enter_briefly(*arrays) is None:
                return
            self._failures += 1
        main = os.name != "nt" and threading.current_thread() is threading.main_thread()
        while True:
            try:
                started = time.perf_counter()
                self._run(arrays, _watcher() if main else None)
                took = time.perf_counter() - started
                self._short = took < _SHORT and self._failures < _MOST_FAILURES
                self._note(started)
                return
            except errors.CancelledError:
                if self._closed:
                    raise
                raise_if_ended()

    def _note(self, started: float) -> None:
        """Decide from the time of the last call whether the next one is watched."""
        took = time.perf_counter() - started
        if not (self._bounded and took < _BRIEF) or self._closed:
            self._unwatched = None
        elif self._unwatched is None:
            self._unwatched = self._first.copy()  # its flag is never set

    def close(self) -> None:
        """Make calls end, including running ones."""
        with self._lock:
            self._closed = True
            self._unwatched = None
            for call in self._running:
                call.generated.interrupt()

    def stop(self, call: _Call) -> None:
        """Make a call end if it has not."""
        with self._lock:
            if call in self._running:
                call.generated.interrupt()

    def _take(self) -> Generated:
        try:
            return self._free.pop()
        except IndexError:  # all copies are in use
            return self._first.copy()

    def _release(self, generated: Generated) -> None:
        generated.resume()
        if len(self._free) < _MOST_FREE:
            self._free.append(generated)

    def _run(self, arrays: Sequence[Any], signals: _Watcher | None) -> None:
        call = self._begin()
        try:
            if signals is not None:
                signals.begin(call)
            try:
                if running.check is None:
                    call.generated(*arrays)
                else:
                    with running.check.on_stop(call.stop):
                        call.generated(*arrays)
            finally:
                if signals is not None:
                    signals.end()
        finally:
            self._end(call)

    def _begin(self) -> _Call:
        call = _Call(self, self._take())
        with self._lock:
            # A second Ctrl-C may have kept a call of this thread from removing itself.
            self._running -= {running for running in self._running if running.thread == call.thread}
            self._running.add(call)
            if self._closed:
                call.generated.interrupt()
        return call

    def _end(self, call: _Call) -> None:
        with self._lock:
            self._running.discard(call)
            self._release(call.generated)


class _Call:
    """A call of a function.

    Attributes:
      generated: the copy that it runs.
    """

    def __init__(self, function: StoppableFunction, generated: Generated) -> None:
        self._function = function
        self.generated = generated
        self.thread = threading.get_ident()

    def stop(self) -> None:
        """Make it end if it has not."""
        self._function.stop(self)


class _Watcher:
    """Thread that stops running calls, and its wake-up pipe."""

    def __init__(self) -> None:
        self._running: _Call | None = None
        self._previous_descriptor = -1
        self._read, self._write = os.pipe()
        os.set_blocking(self._write, False)
        threading.Thread(target=self._watch, name="weft-interrupts", daemon=True).start()

    def begin(self, call: _Call) -> None:
        """Let signals stop a call of the main thread."""
        self._previous_descriptor = signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
        self._running = call

    def end(self) -> None:
        """Restore the previous handling of signals."""
        self._running = None
        signal.set_wakeup_fd(self._previous_descriptor, warn_on_full_buffer=False)

    def _watch(self) -> None:
        while numbers := os.read(self._read, 4096):
            # Read once, because the main thread may end this call and begin another one. Stopping a
            # call that has ended does nothing.
            call = self._running
            if call is not None and signal.SIGINT in numbers:
                call.stop()
            if (
                self._previous_descriptor >= 0
            ):  # a wake-up descriptor of others, such as an event loop
                with suppress(OSError):
                    os.write(self._previous_descriptor, numbers)


@cache
def _watcher() -> _Watcher:
    return _Watcher()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_watcher.cache_clear)  # threads do not survive a fork
