"""Coordinated threads: any can request a stop; `join` waits for all and raises their error."""

from __future__ import annotations

__all__ = ["Coordinator", "LooperThread"]

import logging
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Any

from weft_io.arguments import to_list
from weft_tensor import errors
from weft_tensor.arguments import check_function, check_number

_log = logging.getLogger("weft")

ExcInfo = tuple[type[BaseException], BaseException, TracebackType | None]

_FIRST_PAUSE, _LONGEST_PAUSE = 0.001, 0.1
"""Shortest and longest pause, in seconds, between checks of running threads."""


class Coordinator:
    """Stops a group of threads together.

    A thread runs `while not coord.should_stop()`. Any of them, or the main program, calls
    `request_stop`. `join` waits for all and raises the first reported exception. Thread-safe.

    Args:
      clean_stop_exception_types: exceptions that end the work as planned and are not reported;
        `OutOfRangeError`, the end of the data, by default.
    Raises: InvalidTypeError: `clean_stop_exception_types` is not a list of exception types.

    Examples:
      >>> coordinator = wf.train.Coordinator()
      >>> coordinator.request_stop()
      >>> coordinator.should_stop()
      True
    """

    def __init__(
        self, clean_stop_exception_types: Iterable[type[BaseException]] | None = None
    ) -> None:
        if clean_stop_exception_types is None:
            clean_stop_exception_types = (errors.OutOfRangeError,)
        self._clean = tuple(to_list(clean_stop_exception_types, "clean_stop_exception_types"))
        for kind in self._clean:
            if not (isinstance(kind, type) and issubclass(kind, BaseException)):
                raise errors.InvalidTypeError(
                    f"clean_stop_exception_types must be exception types, got {kind!r}"
                )
        self._lock = threading.RLock()
        self._stop = threading.Event()
        self._reported: ExcInfo | None = None
        self._joined = False
        self._registered: set[threading.Thread] = set()

    @property
    def joined(self) -> bool:
        """True if `join` has ended."""
        return self._joined

    def should_stop(self) -> bool:
        """Return True if a stop was requested."""
        return self._stop.is_set()

    def wait_for_stop(self, timeout: float | None = None) -> bool:
        """Wait until a stop is requested, at most `timeout` seconds; return True if it was."""
        return self._stop.wait(None if timeout is None else check_number(timeout, "timeout"))

    def request_stop(self, ex: BaseException | ExcInfo | None = None) -> None:
        """Request all threads to stop.

        Args:
          ex: the reason, if it is an error: an exception, or a result of `sys.exc_info`. `join`
            raises the first one. After `join` it is raised immediately, since no other call would
            report it.
        Raises: InvalidTypeError: `ex` is not an exception or such a result.
        """
        _check_exception(ex)
        with self._lock:
            info = self._unclean(ex)
            if self._joined:
                if info is not None:
                    raise info[1].with_traceback(info[2])
                return
            if not self._stop.is_set():
                if info is not None and self._reported is None:
                    _log.info("Error reported to Coordinator: %s, %s", info[0], info[1])
                    self._reported = info
                self._stop.set()

    def _unclean(self, ex: BaseException | ExcInfo | None) -> ExcInfo | None:
        error = ex[1] if isinstance(ex, tuple) else ex
        if ex is None or error is None or isinstance(error, self._clean):
            return None
        return ex if isinstance(ex, tuple) else (type(ex), ex, ex.__traceback__)

    def clear_stop(self) -> None:
        """Clear the request and the reported error, so that threads can run again."""
        with self._lock:
            self._joined = False
            self._reported = None
            self._stop.clear()

    @contextmanager
    def stop_on_exception(self) -> Iterator[None]:
        """Request a stop if the block raises, and report the error instead of raising it."""
        try:
            yield
        except BaseException:  # because the joining thread must receive any error
            self.request_stop(sys.exc_info())  # type: ignore[arg-type]

    def register_thread(self, thread: threading.Thread) -> None:
        """Register a thread that `join` waits for."""
        _check_thread(thread)
        with self._lock:
            self._registered.add(thread)

    def join(
        self,
        threads: Iterable[threading.Thread] | None = None,
        stop_grace_period_secs: float = 120,
        ignore_live_threads: bool = False,
    ) -> None:
        """Wait until all threads have ended.

        There is no time limit until a stop is requested; after that, threads have the grace period.

        Args:
          threads: further threads besides the registered ones.
          stop_grace_period_secs: seconds that threads may continue after a stop is requested.
          ignore_live_threads: log threads that take longer, instead of raising.
        Raises:
          the exception that was reported first.
          FailedPreconditionError: threads still run after the grace period.
          InvalidTypeError: something in `threads` is not a thread.
        """
        threads_to_join = [] if threads is None else to_list(threads, "threads")
        for thread in threads_to_join:
            _check_thread(thread)
        if stop_grace_period_secs is not None:
            check_number(stop_grace_period_secs, "stop_grace_period_secs")
        with self._lock:
            waited = [*self._registered, *threads_to_join]
        _wait(waited, lambda pause: self._stop.wait(pause), None)
        _wait(waited, _slept, stop_grace_period_secs)
        stragglers = sorted({thread.name for thread in waited if thread.is_alive()})
        with self._lock:
            self._joined = True
            self._registered = set()
            reported = self._reported
        if reported is not None:
            raise reported[1].with_traceback(reported[2])
        if stragglers:
            message = f"Coordinator stopped with threads still running: {' '.join(stragglers)}"
            if not ignore_live_threads:
                raise errors.FailedPreconditionError(message)
            _log.info("%s", message)

    def raise_requested_exception(self) -> None:
        """Raise the exception that was reported first, if any was."""
        with self._lock:
            if self._reported is not None:
                raise self._reported[1].with_traceback(self._reported[2])


def _check_thread(thread: Any) -> None:
    if not (hasattr(thread, "is_alive") and hasattr(thread, "name")):
        raise errors.InvalidTypeError(f"thread must be a Thread, got {thread!r}")


def _check_exception(ex: Any) -> None:
    error = ex[1] if isinstance(ex, tuple) and len(ex) == 3 else ex
    if not (error is None or isinstance(error, BaseException)):
        raise errors.InvalidTypeError(
            f"ex must be an exception, or a result of sys.exc_info, got {ex!r}"
        )


def _slept(seconds: float) -> bool:
    time.sleep(seconds)
    return False


def _wait(
    threads: Sequence[threading.Thread],
    pause: Callable[[float], bool],
    limit: float | None,
) -> None:
    """Wait until all threads have ended, `pause` returns True, or `limit` seconds have passed."""
    end = None if limit is None else time.monotonic() + limit
    seconds = _FIRST_PAUSE
    while any([thread.is_alive() for thread in threads]):
        remaining_seconds = seconds if end is None else min(seconds, end - time.monotonic())
        if remaining_seconds <= 0 or pause(remaining_seconds):
            return
        seconds = min(2 * seconds, _LONGEST_PAUSE)


class LooperThread(threading.Thread):
    """A thread that repeats a function until its coordinator stops; its errors stop all.

    It registers itself with the coordinator.

    Args:
      coord: the coordinator.
      timer_interval_secs: seconds from one start to the next; None for no pause.
      target: called as `target(*args, **kwargs)`; without one, override `run_loop`.
      args, kwargs: for the target.
    Raises: InvalidArgumentError: the coordinator is missing, or there are arguments without a
      target; InvalidTypeError: the interval is not a number, or the target cannot be called.

    Examples:
      >>> coordinator = wf.train.Coordinator()
      >>> rounds = []
      >>> def count():
      ...     rounds.append(len(rounds))
      ...     if len(rounds) == 3:
      ...         coordinator.request_stop()
      >>> thread = wf.train.LooperThread.loop(coordinator, None, count)
      >>> coordinator.join()
      >>> rounds
      [0, 1, 2]
    """

    def __init__(
        self,
        coord: Coordinator,
        timer_interval_secs: float | None,
        target: Callable[..., Any] | None = None,
        args: Sequence[Any] | None = None,
        kwargs: Mapping[str, Any] | None = None,
    ) -> None:
        if not isinstance(coord, Coordinator):
            raise errors.InvalidArgumentError(f"'coord' argument must be a Coordinator: {coord!r}")
        if target is None and (args or kwargs):
            raise errors.InvalidArgumentError("'args' and 'kwargs' need a 'target'")
        if timer_interval_secs is not None:
            check_number(timer_interval_secs, "timer_interval_secs")
        if target is not None:
            check_function(target, "target")
        super().__init__(daemon=True)
        self._coord = coord
        self._interval = timer_interval_secs
        self._work = target
        self._work_args = tuple(args or ())
        self._work_kwargs = dict(kwargs or {})
        coord.register_thread(self)

    @staticmethod
    def loop(
        coord: Coordinator,
        timer_interval_secs: float | None,
        target: Callable[..., Any],
        args: Sequence[Any] | None = None,
        kwargs: Mapping[str, Any] | None = None,
    ) -> LooperThread:
        """Start a thread that repeats `target`; arguments as for the class."""
        looper = LooperThread(coord, timer_interval_secs, target, args, kwargs)
        looper.start()
        return looper

    def run(self) -> None:
        """Call `run_loop` until the coordinator requests a stop."""
        with self._coord.stop_on_exception():
            self.start_loop()
            if self._interval is None:
                while not self._coord.should_stop():
                    self.run_loop()
            else:
                due = time.monotonic()
                while not self._coord.wait_for_stop(max(0.0, due - time.monotonic())):
                    due += self._interval
                    self.run_loop()
            self.stop_loop()

    def start_loop(self) -> None:
        """Prepare the thread; called once before the first iteration."""

    def stop_loop(self) -> None:
        """Clean up; called once after the last iteration."""

    def run_loop(self) -> None:
        """Run one iteration."""
        if self._work is not None:
            self._work(*self._work_args, **self._work_kwargs)
