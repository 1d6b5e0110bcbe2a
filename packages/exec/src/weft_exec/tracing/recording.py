"""Recordings: traces of everything that the sessions of this process do, written to a file."""

from __future__ import annotations

import logging
import os
import socket
import threading
from collections.abc import Sequence
from typing import Any, Final

from weft_exec.tracing.collector import Batch, Collector
from weft_exec.tracing.consumers import (
    Consumer,
    TasksRecording,
    add_consumer,
    remove_consumer,
)
from weft_exec.tracing.remote_tasks import WholeStep, add_tasks
from weft_exec.tracing.samplers import Sampler
from weft_exec.tracing.step_trace import EPOCH, Span, StepTrace, ThreadLog, clock
from weft_tensor import errors
from weft_trace.schema import Process
from weft_trace.writer import Writer

_log: Final = logging.getLogger("weft")

_BULK: Final = 1 << 16
"""Number of readings that are converted together."""
_MAX_PENDING: Final = 1 << 20
"""Number of readings that wait for their conversion above which steps wait, too."""
_PERIOD: Final = 0.2
"""Seconds after which even fewer executions are converted, and counters are sampled."""


_open_paths: Final[set[str]] = set()
_open_paths_lock: Final = threading.Lock()


class Recording(Consumer):
    """Writes the records of all steps to a file, from its own thread.

    Tasks of other processes that run steps of this process's sessions are recorded, too; the file
    has their records when it is closed.

    Args:
      path: the file; it is replaced if it exists.
      task: name of this process.
    Raises:
      OSError: the file cannot be written.
      AlreadyExistsError: another recording of this process writes the file.
    """

    def __init__(self, path: str | os.PathLike[str], task: str = "/job:localhost/task:0") -> None:
        self._path = _reserve(path)
        try:
            self._writer = Writer(path)
        except OSError:
            _open_paths.discard(self._path)
            raise
        self._process = this_process(task)
        self._collector = Collector(self._writer, self._process)
        self._sampler = Sampler(self._writer, self._collector)
        self._pending: list[Batch | tuple[StepTrace, int]] = []
        self._num_readings = 0  # of those that are not converted yet
        self._is_closed = False
        self._error: BaseException | None = None
        self._tasks: list[tuple[TasksRecording, int]] = []
        self._steps: list[WholeStep] = []
        self._wake = threading.Condition()
        self._thread = threading.Thread(target=self._run, name="weft trace writer", daemon=True)
        add_consumer(self)
        self._thread.start()

    def step_ended(self, trace: StepTrace) -> None:
        """See the base class."""
        readings = sum([_num_readings(log.runs) for log in list(trace.logs.values())])
        self._put((trace, threading.get_ident()), readings)

    def step_spilled(
        self, trace: StepTrace, log: ThreadLog, runs: Sequence[Any], spans: Sequence[Span]
    ) -> None:
        """See the base class."""
        self._put(Batch.of_log(trace, log, runs, spans), _num_readings(runs))

    def outside_steps(self, log: ThreadLog, spans: Sequence[Span]) -> None:
        """See the base class."""
        self._put(Batch.of_log(None, log, (), spans), 0)

    def session_found(self, session: Any) -> None:
        """Record the tasks of a session in a cluster, too."""
        try:
            tasks = session.record_tasks()
        except errors.FailedPreconditionError as error:
            if not self._tasks:  # else they are recorded for another session
                _log.warning("A trace lacks the tasks of a session: %s", error)
            return
        except errors.OpError as error:
            _log.warning("A trace lacks the tasks of a session: %s", error)
            return
        if tasks is not None:
            self._tasks.append((tasks, clock() + EPOCH))

    def _put(self, item: Batch | tuple[StepTrace, int], num_readings: int) -> None:
        """Add records; the writer is not woken for each of them, which would delay this thread."""
        with self._wake:
            self._pending.append(item)
            self._num_readings += num_readings
            if self._num_readings >= _BULK:
                self._wake.notify_all()
            while self._num_readings >= _MAX_PENDING and self._error is None:
                self._wake.wait(_PERIOD)  # until some are converted

    def close(self) -> None:
        """Write the recorded events, and close the file.

        Raises: OSError: the file could not be written.
        """
        remove_consumer(self)
        with self._wake:
            self._is_closed = True
            self._wake.notify_all()
        self._thread.join()
        _open_paths.discard(self._path)
        if isinstance(self._error, OSError):
            raise OSError(self._error.errno, self._error.strerror, self._path) from self._error
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        try:
            with self._writer:
                is_closed = False
                while not is_closed:
                    with self._wake:
                        if not self._is_closed and self._num_readings < _BULK:
                            self._wake.wait(_PERIOD)
                        items, self._pending = self._pending, []
                        num_read, is_closed = self._num_readings, self._is_closed
                    self._convert(items)
                    with self._wake:
                        self._num_readings -= num_read
                        self._wake.notify_all()
                    self._sampler.sample()
                for tasks, begun in self._tasks:
                    self._add_tasks(tasks, begun)
        except BaseException as error:  # because `close` raises it
            remove_consumer(self)
            _log.warning("The trace %s ends here: it cannot be written: %s", self._path, error)
            with self._wake:
                self._error = error
                self._wake.notify_all()

    def _convert(self, items: Sequence[Batch | tuple[StepTrace, int]]) -> None:
        """Convert records in bulk, and write them."""
        batches: list[Batch] = []
        for item in items:
            if isinstance(item, Batch):
                batches.append(item)
            else:
                step, _ = item
                logs = list(step.logs.values())
                batches += [Batch.of_log(step, log, log.runs, log.spans) for log in logs]
        self._collector.add(batches)
        for item in items:
            if not isinstance(item, Batch):
                number = self._collector.end_step(*item)
                if self._tasks:
                    step = item[0]
                    times = step.start + EPOCH, step.end + EPOCH
                    self._steps.append(WholeStep(number, step.label, *times))
                self._sampler.add_threads(item[0])
        self._writer.flush()

    def _add_tasks(self, tasks: TasksRecording, begun: int) -> None:
        """Add the records of the tasks of a session.

        Args:
          begun: when their recording started, in nanoseconds since the epoch.
        """
        try:
            content = tasks.end()
        except errors.OpError as error:
            _log.warning("A trace lacks the tasks of a session: %s", error)
            return
        steps = [step for step in self._steps if step.start >= begun]
        add_tasks(self._writer, content, steps, self._process)


def _reserve(path: str | os.PathLike[str]) -> str:
    """Return the absolute path of a file that no other recording writes.

    Raises: AlreadyExistsError: another recording uses the path.
    """
    real = os.path.realpath(path)
    with _open_paths_lock:
        if real in _open_paths:
            raise errors.AlreadyExistsError(
                f"a recording of this process writes {os.fspath(path)!r} already: "
                "choose another file"
            )
        _open_paths.add(real)
    return real


def _num_readings(runs: Sequence[Any]) -> int:
    return sum([len(run[3]) for run in runs])


def this_process(task: str) -> Process:
    """Return the record of this process."""
    return Process(task, os.getpid(), socket.gethostname())
