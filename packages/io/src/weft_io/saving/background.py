"""Background jobs that finish before the program ends.

A job is a thread. Its failure is logged at once, and raised to the first caller that asks for its
result. At exit, unfinished jobs are named in the log and waited for; a second Ctrl-C ends the wait.
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
      label: for messages: "the checkpoint /tmp/model-5".
      work: the function to run.
      failed: called in the thread with `take_error` if `work` fails.
    """

    def __init__(
        self,
        label: str,
        work: Callable[[], Any],
        failed: Callable[[Callable[[], BaseException | None]], None] | None = None,
    ) -> None:
        self.what = label
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
            _log.info("%s is done at once: %s", label, cause)
        self._run()

    def _run(self) -> None:
        work, self._work = self._work, None
        assert work is not None
        try:
            work()
        except BaseException as error:  # because it is raised to callers of `result`
            self._error = error
            _release(error)
            _log.error("%s failed: %s", self.what, error)
            if self._failed is not None:
                self._failed(self.take_error)
        finally:
            self._failed = None
            del work  # with the tensors that it holds
            _unfinished.pop(self, None)
            self._finished.set()

    @property
    def finished(self) -> bool:
        """True if the job has ended or failed."""
        return self._finished.is_set()

    def wait(self) -> None:
        """Wait until it is done, or failed."""
        self._finished.wait()

    def result(self) -> None:
        """Wait until the job has ended; raise its error, once."""
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
    """See to it that the end of the program waits, and that a forked child does not."""
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
        _log.warning("the program ends when %s is finished", job.what)
        job.wait()


def _forget_job() -> None:
    for job in list(_unfinished):
        job._forget()
    _unfinished.clear()
