"""What ends a compiled function that runs: Ctrl-C, and whatever ends its step.

Handlers of signals run in the main thread between instructions of Python, and one call of a
compiled function is one instruction. So what runs long there is told to stop as soon as the signal
comes, by a thread that Python's own handler wakes up through a pipe. The call then ends, the
handler runs, and if it raises nothing, the function runs again: it has changed nothing. A deadline,
or what cancels the step, stops it in the same way.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache
from typing import Any, Final

from weft_exec.executor.step_check import raise_if_ended, running
from weft_graph.ir.code_generators import Generated
from weft_tensor import errors

_lock: Final = threading.Lock()
_calls: Final[dict[Generated, list[_Call]]] = {}
"""Those that run and may be stopped, by their functions."""


class _Call:
    """One call of a function. To stop it stops others of the function, which then begin anew."""

    def __init__(self, generated: Generated, closed: Callable[[], bool]) -> None:
        self._generated = generated
        self._closed = closed
        self._thread = threading.get_ident()
        self._stopped = False
        with _lock:
            calls = _calls.setdefault(generated, [])
            for call in [call for call in calls if call._thread == self._thread]:
                call._leave(calls)  # a second Ctrl-C kept it from saying that it had ended
            calls.append(self)

    def stop(self) -> None:
        """Make it end, unless it has."""
        with _lock:
            if self in _calls.get(self._generated, ()):
                self._stopped = True
                self._generated.interrupt()

    def end(self) -> None:
        """Note that it has ended."""
        with _lock:
            calls = _calls[self._generated]
            self._leave(calls)
            if not calls:
                del _calls[self._generated]

    def _leave(self, calls: list[_Call]) -> None:
        calls.remove(self)
        if self._stopped and not any(call._stopped for call in calls):
            self._generated.resume()
            if self._closed():  # for good, maybe right now
                self._generated.interrupt()


class _Watcher:
    """The thread that stops what runs, and how it is woken up."""

    def __init__(self) -> None:
        self._running: _Call | None = None
        self._others = -1
        self._read, self._write = os.pipe()
        os.set_blocking(self._write, False)
        threading.Thread(target=self._watch, name="weft-interrupts", daemon=True).start()

    def begin(self, call: _Call) -> None:
        """Let signals stop a call of the main thread."""
        self._others = signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
        self._running = call

    def end(self) -> None:
        """Leave signals to others again."""
        self._running = None
        signal.set_wakeup_fd(self._others, warn_on_full_buffer=False)

    def _watch(self) -> None:
        while numbers := os.read(self._read, 4096):
            call = self._running
            if call is not None and signal.SIGINT in numbers:
                call.stop()
            if self._others >= 0:  # somebody else waits for signals, such as an event loop
                with suppress(OSError):
                    os.write(self._others, numbers)


@cache
def _watcher() -> _Watcher:
    return _Watcher()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_watcher.cache_clear)  # threads are not forked


def run(generated: Generated, arrays: Sequence[Any], closed: Callable[[], bool]) -> None:
    """Run a function that can be interrupted: when its step is to end, and by Ctrl-C.

    Args:
      closed: whether it was interrupted for good.
    Raises: CancelledError: it was; what the step ends with; what a handler of signals raises.
    """
    main = os.name != "nt" and threading.current_thread() is threading.main_thread()
    while True:
        try:
            if main or running.check is not None:
                _run_watched(generated, arrays, closed, _watcher() if main else None)
            else:
                generated(*arrays)
            return
        except errors.CancelledError:
            if closed():
                raise
            raise_if_ended()


def _run_watched(
    generated: Generated,
    arrays: Sequence[Any],
    closed: Callable[[], bool],
    signals: _Watcher | None,
) -> None:
    call = _Call(generated, closed)
    try:
        if signals is not None:
            signals.begin(call)
        try:
            if running.check is None:
                generated(*arrays)
            else:
                with running.check.calling(call.stop):
                    generated(*arrays)
        finally:
            if signals is not None:
                signals.end()
    finally:
        call.end()
