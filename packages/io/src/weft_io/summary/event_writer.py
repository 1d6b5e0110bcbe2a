"""Event files written by a background thread, so that training does not wait for the disk."""

from __future__ import annotations

import atexit
import logging
import os
import threading
import time
import weakref
from typing import TYPE_CHECKING

from weft_io.files.systems import PathLike, as_path
from weft_io.records.tfrecord import frame
from weft_io.summary.event_file import EventFile, create_event_file, version_event
from weft_io.summary.event_queue import EventQueue, Work
from weft_tensor import errors
from weft_tensor.finalizers import call_when_gone
from weft_tensor.os_errors import convert_os_errors

if TYPE_CHECKING:
    from weft_graph import proto

_log = logging.getLogger("weft")

_HOW_TO_GO_ON = "what was not flushed is lost; to go on in a new file, close() and reopen()"


class EventFileWriter:
    """Appends events to a new event file; thread-safe.

    A writer that is garbage-collected is closed in the background; open writers are closed at the
    exit of the process.

    Args:
      logdir: a directory, created if necessary, or a URL that fsspec supports.
      max_queue: number of queued events at which `add_event` waits; no limit if not positive.
      flush_secs: maximum number of seconds until an event is on the disk.
      filename_suffix: appended to the file's name.
    Raises: OpError: the file cannot be created.
    """

    def __init__(
        self,
        logdir: PathLike,
        max_queue: int = 10,
        flush_secs: float = 120,
        filename_suffix: str | None = None,
    ) -> None:
        self._logdir = as_path(logdir)
        if not isinstance(max_queue, int):
            raise errors.InvalidTypeError(f"max_queue must be an integer, got {max_queue!r}")
        if not isinstance(flush_secs, int | float) or not flush_secs >= 0:
            raise errors.InvalidTypeError(
                f"flush_secs must be at least 0 seconds, got {flush_secs!r}"
            )
        if filename_suffix is not None and not isinstance(filename_suffix, str):
            raise errors.InvalidTypeError(f"filename_suffix must be text, got {filename_suffix!r}")
        self._max_queue = max_queue
        self._flush_secs = flush_secs
        self._suffix = filename_suffix or ""
        self._closed = False
        self._open()

    def _open(self) -> None:
        with convert_os_errors("making an event file in", self._logdir):
            file = create_event_file(self._logdir, self._suffix)
        self._worker = _Worker(file, EventQueue(self._max_queue, self._flush_secs))
        self._worker.add(version_event().SerializeToString())
        call_when_gone(self, self._worker.abandon)

    @property
    def path(self) -> str:
        """The path of the event file."""
        return self._worker.path

    @property
    def closed(self) -> bool:
        """True if the writer was closed and not reopened."""
        return self._closed

    @property
    def ours(self) -> bool:
        """True if this process writes the file; False in a forked child."""
        return self._worker.ours

    def get_logdir(self) -> str:
        """Return the directory."""
        return self._logdir

    def add_event(self, event: proto.Event) -> None:
        """Append an event; do nothing if the writer is closed.

        Raises: OpError: this event or an earlier one could not be written.
        """
        self.add_serialized(event.SerializeToString())

    def add_serialized(self, event: bytes) -> None:
        """Append a serialized `Event`, as `add_event` does."""
        if not self._closed:
            self._worker.add(event)

    def flush(self) -> None:
        """Wait until all added events are on the disk.

        Raises: OpError: an event could not be written.
        """
        if not self._closed:
            self._worker.flush()

    def close(self) -> None:
        """Write all added events and close the file; after an interrupt it may be called again.

        Raises: OpError: a write failed, which no call has reported yet.
        """
        if not self._closed:
            self._worker.close()
            self._closed = True
            self._worker.report()

    def reopen(self) -> None:
        """Continue in a new file after `close`; do nothing if the writer is open."""
        if self._closed:
            self._open()
            self._closed = False


class _Worker:
    """The thread of a writer, with its queue and file; it lives until it is closed."""

    def __init__(self, file: EventFile, queue: EventQueue) -> None:
        self.path = file.path
        self._file = file
        self._queue = queue
        self._changed = threading.Condition()
        self._process = os.getpid()
        self._forks = _forks
        self._abandoned = False
        _close_at_exit(self)
        threading.Thread(target=self._run, name="weft-events", daemon=True).start()

    @property
    def ours(self) -> bool:
        """True if the thread runs in this process; False in a forked child."""
        return self._forks == _forks

    # In a forked child, locks may be held by threads that do not exist there. So each of these
    # methods checks the process before it takes a lock.

    def _check_process(self) -> None:
        if not self.ours:
            raise errors.FailedPreconditionError(
                f"the event file {self.path} belongs to process {self._process}, but this is "
                f"process {os.getpid()}: create a writer after the fork, or close and reopen this "
                "one"
            )

    def add(self, record: bytes) -> None:
        self._check_process()
        with self._changed:
            while self._queue.full:
                self._changed.wait()
            self._queue.add(record)
            self._changed.notify_all()

    def flush(self) -> None:
        self._check_process()
        with self._changed:
            ticket = self._queue.request_flush()
            self._changed.notify_all()
            while not self._queue.is_flushed(ticket):
                self._changed.wait()

    def request_close(self) -> None:
        if self.ours:
            with self._changed:
                self._queue.close()
                self._changed.notify_all()

    def abandon(self) -> None:
        """Close without reporting errors to a caller; they are logged."""
        self._abandoned = True
        self.request_close()

    def close(self) -> None:
        self.request_close()
        if self.ours:
            with self._changed:
                while not self._queue.finished:
                    self._changed.wait()

    def report(self) -> None:
        """Raise the unreported error, if any."""
        if self.ours:
            with self._changed:
                error = self._queue.untold_error()
            if error is not None:
                raise error

    def log(self) -> None:
        """Log the unreported error, if any."""
        try:
            self.report()
        except errors.OpError as error:
            _log.error("events were lost: %s", error)

    # --------------------------------------------------------------------------- the thread

    def _run(self) -> None:
        while not self._queue.finished:
            with self._changed:
                work = self._next_work()
                self._changed.notify_all()
            error = self._attempt(work)
            with self._changed:
                if error is None:
                    self._queue.complete(work, time.monotonic())
                else:
                    self._queue.failed(work, error)
                self._changed.notify_all()
        if self._abandoned:
            self.log()

    def _next_work(self) -> Work:
        while True:
            now = time.monotonic()
            work = self._queue.take(now)
            if work is not None:
                return work
            patience = self._queue.patience(now)
            self._changed.wait(None if patience is None else min(patience, threading.TIMEOUT_MAX))

    def _attempt(self, work: Work) -> errors.OpError | None:
        try:
            with convert_os_errors("writing events to", self.path):
                self._carry_out(work)
        except errors.OpError as error:
            raised = type(error)(f"{error.message}; {_HOW_TO_GO_ON}")
            raised.__cause__ = error.__cause__
            return raised
        except Exception as cause:  # because remote storage may raise anything
            unknown = errors.UnknownError(
                f"writing events to {self.path} failed: {cause!r}; {_HOW_TO_GO_ON}"
            )
            unknown.__cause__ = cause
            return unknown
        return None

    def _carry_out(self, work: Work) -> None:
        try:
            if work.records:
                self._file.write(_frame(work.records))
            if work.flush:
                self._file.flush()
        finally:
            if work.close:
                self._file.close()


def _frame(records: list[bytes]) -> bytes:
    parts: list[bytes] = []
    for record in records:
        header, footer = frame(record)
        parts += (header, record, footer)
    return b"".join(parts)


# -------------------------------------------------------------- forks, and the process's end

_forks = 0


def _handle_fork() -> None:
    global _forks
    _forks += 1


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_handle_fork)

_open: weakref.WeakSet[_Worker] = weakref.WeakSet()
_registered = False


def _close_at_exit(worker: _Worker) -> None:
    global _registered
    _open.add(worker)
    if not _registered:
        _registered = True
        atexit.register(_close_all)


def _close_all() -> None:
    for worker in list(_open):
        worker.close()
        worker.log()
