"""Recordings: traces of everything that the sessions of this process do, written to a file."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Sequence
from queue import Empty, SimpleQueue
from typing import Any, Final

from weft_exec.tracing.collector import Batch, Collector
from weft_exec.tracing.consumers import Consumer, add_consumer, remove_consumer
from weft_exec.tracing.samplers import Sampler
from weft_exec.tracing.step_trace import Span, StepTrace, ThreadLog
from weft_trace.schema import Process
from weft_trace.writer import Writer

_BULK: Final = 1 << 16
"""Number of readings that are converted together."""
_PERIOD: Final = 0.2
"""Seconds after which fewer are converted, too, and counters are sampled."""


class Recording(Consumer):
    """Writes the records of all steps to a file, from a thread of its own.

    Args:
      path: the file; it is replaced if it exists.
      task: name of this process.
    Raises: OSError: the file cannot be written.
    """

    def __init__(self, path: str | os.PathLike[str], task: str = "/job:localhost/task:0") -> None:
        self._writer = Writer(path)
        self._collector = Collector(self._writer, this_process(task))
        self._sampler = Sampler(self._writer, self._collector)
        self._queue: SimpleQueue[Any] = SimpleQueue()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="weft trace writer", daemon=True)
        add_consumer(self)
        self._thread.start()

    def step_ended(self, trace: StepTrace) -> None:
        """See the base class."""
        self._queue.put((trace, threading.get_ident()))

    def step_spilled(
        self, trace: StepTrace, log: ThreadLog, runs: Sequence[Any], spans: Sequence[Span]
    ) -> None:
        """See the base class."""
        self._queue.put(Batch.of_log(trace, log, runs, spans))

    def outside_steps(self, log: ThreadLog, spans: Sequence[Span]) -> None:
        """See the base class."""
        self._queue.put(Batch.of_log(None, log, (), spans))

    def close(self) -> None:
        """Write what was recorded, and close the file.

        Raises: OSError: the file could not be written.
        """
        remove_consumer(self)
        self._queue.put(None)
        self._thread.join()
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        try:
            with self._writer:
                while self._convert():
                    self._sampler.sample()
        except BaseException as error:  # because `close` raises it
            remove_consumer(self)
            self._error = error

    def _convert(self) -> bool:
        """Convert the next records in bulk; return False after the last ones."""
        batches: list[Batch] = []
        ended: list[tuple[StepTrace, int]] = []
        num_readings, is_open = 0, True
        while is_open and num_readings < _BULK:
            try:
                item = self._queue.get(timeout=_PERIOD)
            except Empty:
                break
            if item is None:
                is_open = False
            elif isinstance(item, Batch):
                batches.append(item)
                num_readings += _num_readings(item.runs)
            else:
                step, _ = item
                ended.append(item)
                for log in list(step.logs.values()):
                    batches.append(Batch.of_log(step, log, log.runs, log.spans))
                    num_readings += _num_readings(log.runs)
        self._collector.add(batches)
        for step, ident in ended:
            self._collector.end_step(step, ident)
            self._sampler.add_threads(step)
        if not ended and not batches:
            self._writer.flush()
        return is_open


def _num_readings(runs: Sequence[Any]) -> int:
    return sum([len(run[3]) for run in runs])


def this_process(task: str) -> Process:
    """Return the record of this process."""
    return Process(task, os.getpid(), socket.gethostname())
