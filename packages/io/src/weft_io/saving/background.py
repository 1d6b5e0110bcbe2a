"""Background jobs that are completed before the program ends.

Each job has a thread. Its failure is logged immediately, and raised to the first caller that
requests the result. At exit, the program logs the unfinished jobs and waits for them; a second
Ctrl-C ends the wait.
"""

from __future__ import annotations

import atexit
import logging
import os
import threading
import traceback
from collections.abc import Callable
from typing import Any, Final

_log = logging.getLogger("weft")

_unfinished: Final[dict[Job, None]] = {}
_prepared = False
_ending = False
"""True if the program no longer waits for threads."""


class Job:
    """Work done in a thread.

    Args:
      label: name in messages: "the checkpoint /tmp/model-5".
      work: the function to run.
      failed: called in the thread with `take_error` if `work` fails.
    """

    def __init__(
        self,
        label: str,
        work: Callable[[], Any],
        failed: Callable[[Callable[[], BaseException | None]], None] | None = None,
    ) -> None:
        self.label = label
        self._failed = failed
        self._work: Callable[[], Any] | None = work
        self._error: BaseException | None = None
        self._finished = threading.Event()
        _prepare()
        _unfinished[self] = None
        thread = threading.Thread(target=self._run, name=f"weft: {label}", daemon=True)
        try:
            if not _ending:
                thread.start()
                return
        except RuntimeError as cause:  # the program has all the threads it may have
            _log.info("%s is written in the foreground: %s", label, cause)
        self._run()

    def _run(self) -> None:
        work, self._work = self._work, None
        assert work is not None
        try:
            work()
        except BaseException as error:  # because it is raised to callers of `result`
            self._error = error
            _release(error)
            _log.error("%s failed: %s", self.label, error)
            if self._failed is not None:
                self._failed(self.take_error)
        finally:
            self._failed = None
            del work  # with the tensors that it holds
            _unfinished.pop(self, None)
            self._finished.set()

    @property
    def finished(self) -> bool:
        """Return True if the job has ended, successfully or not."""
        return self._finished.is_set()

    def wait(self) -> None:
        """Wait until the job has ended, successfully or not."""
        self._finished.wait()

    def result(self) -> None:
        """Wait until the job has ended; raise its error to the first caller."""
        self.wait()
        error = self.take_error()
        if error is not None:
            raise error

    def take_error(self) -> BaseException | None:
        """Return the job's error to the first caller, then None."""
        error, self._error = self._error, None
        return error

    def _forget(self) -> None:
        self._finished = threading.Event()  # a dead thread may hold the old one's lock
        self._finished.set()


def _release(error: BaseException | None) -> None:
    """Clear the stack frames of an error, which may be kept for a long time before it is raised."""
    while error is not None:
        traceback.clear_frames(error.__traceback__)
        error = error.__cause__ or error.__context__


def _prepare() -> None:
    """Register handlers, so that exit waits for jobs and forked children do not."""
    global _prepared
    if _prepared:
        return
    _prepared = True
    # Register before the thread pools of libraries shut down, since writers may need them; atexit
    # functions run later.
    register: Callable[[Callable[[], None]], Any]
    register = getattr(threading, "_register_atexit", atexit.register)
    try:
        register(_finish)
    except RuntimeError:  # it ends already
        _finish()
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=_forget_job)


def _finish() -> None:
    global _ending
    _ending = True
    for job in list(_unfinished):
        _log.warning("waiting at exit until %s is finished", job.label)
        job.wait()


def _forget_job() -> None:
    for job in list(_unfinished):
        job._forget()
    _unfinished.clear()
