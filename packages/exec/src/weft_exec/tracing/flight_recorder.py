"""The flight recorder: the last seconds of all steps in memory, written when something happens."""

from __future__ import annotations

import logging
import os
import signal
import threading
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import Any, Final, NamedTuple, Self

from weft_exec.tracing.consumers import Consumer, add_consumer, remove_consumer
from weft_exec.tracing.step_trace import Span, StepTrace, ThreadLog, clock
from weft_tensor import errors

MAX_READINGS: Final = 500_000
"""Maximum number of readings of the clock in memory, of about 40 bytes each."""
_MAX_FILES: Final = 10
"""Number of files after which no more are written."""

_log: Final = logging.getLogger("weft")


class _Item(NamedTuple):
    """Records in the ring.

    Attributes:
      time: when they were added, as a reading of the clock.
      num_readings: their number of readings.
      step: the step that they belong to; None outside of steps.
      ident: identifier of the thread that called the step, if all of its events are in `step`; else
        0.
      log: log of the thread that made `runs` and `spans`; None for a whole step.
    """

    time: int
    num_readings: int
    step: StepTrace | None
    ident: int
    log: ThreadLog | None = None
    runs: Sequence[Any] = ()
    spans: Sequence[Span] = ()


class FlightRecorder(Consumer):
    """Keeps the last seconds of all steps, and writes them to a file on request.

    It writes when a step fails, when one takes longer than `slow_seconds`, and on SIGUSR2. Each
    file has a number before the suffix: "run-1.weft-trace". At most 10 files are written. The
    records need up to 20 MB of memory.

    Args:
      path: the files, without the number.
      seconds: how much to keep.
      slow_seconds: minimum duration of a slow step; None for no limit.
    Raises: InvalidArgumentError: a number is not positive.

    Examples:
      >>> from weft_exec.tracing.flight_recorder import FlightRecorder
      >>> with FlightRecorder("run.weft-trace", seconds=5.0) as recorder:
      ...     with wf.Session() as session:
      ...         result = session.run(wf.random_uniform([3]))
      ...     path = recorder.write("on request")
      >>> len(wf.trace.load(path).steps)
      1
    """

    def __init__(
        self, path: str | os.PathLike[str], seconds: float = 10.0, slow_seconds: float | None = None
    ) -> None:
        if not seconds > 0 or (slow_seconds is not None and not slow_seconds > 0):
            raise errors.InvalidArgumentError(
                "seconds and slow_seconds of a flight recorder must be positive, got "
                f"{seconds} and {slow_seconds}"
            )
        self._path = Path(path)
        self._kept_nanoseconds = int(seconds * 1e9)
        self._slow = None if slow_seconds is None else int(slow_seconds * 1e9)
        self._ring: deque[_Item] = deque()
        self._num_readings = 0
        self._num_files = 0
        self._lock = threading.Lock()
        self._writing = threading.Lock()
        self._previous_handler: Any = None
        self._handles_signal = False
        add_consumer(self)
        self._handle_signal()

    def _handle_signal(self) -> None:
        is_main = threading.current_thread() is threading.main_thread()
        if is_main and hasattr(signal, "SIGUSR2"):
            self._previous_handler = signal.signal(signal.SIGUSR2, self._on_signal)
            self._handles_signal = True

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self._write_later("SIGUSR2")
        if callable(self._previous_handler):
            self._previous_handler(number, frame)

    def step_ended(self, trace: StepTrace) -> None:
        """See the base class."""
        readings = sum([len(run[3]) for log in list(trace.logs.values()) for run in log.runs])
        self._add(_Item(clock(), readings, trace, threading.get_ident()))
        if trace.failed:
            self._write_later(f"the step {trace.label!r} failed")
        elif self._slow is not None and trace.end - trace.start >= self._slow:
            seconds = (trace.end - trace.start) / 1e9
            self._write_later(f"the step {trace.label!r} took {seconds:.3f} s")

    def step_spilled(
        self, trace: StepTrace, log: ThreadLog, runs: Sequence[Any], spans: Sequence[Span]
    ) -> None:
        """See the base class."""
        self._add(_Item(clock(), sum([len(run[3]) for run in runs]), trace, 0, log, runs, spans))

    def outside_steps(self, log: ThreadLog, spans: Sequence[Span]) -> None:
        """See the base class."""
        self._add(_Item(clock(), 0, None, 0, log, (), spans))

    def _add(self, item: _Item) -> None:
        ring = self._ring
        with self._lock:
            ring.append(item)
            self._num_readings += item.num_readings
            oldest = item.time - self._kept_nanoseconds
            while len(ring) > 1 and (ring[0].time < oldest or self._num_readings > MAX_READINGS):
                self._num_readings -= ring.popleft().num_readings

    def _write_later(self, reason: str) -> None:
        """Write a file on another thread, unless one is being written."""
        if self._writing.locked() or self._num_files >= _MAX_FILES:
            return
        threading.Thread(target=self._write_logged, args=(reason,), name="weft flight").start()

    def _write_logged(self, reason: str) -> None:
        try:
            self.write(reason)
        except OSError as error:
            _log.warning("The flight recorder cannot write %s: %s", self._path, error)

    def write(self, reason: str) -> Path:
        """Write the recorded history to the next file, and return its path.

        Args:
          reason: for the log.
        Raises: OSError: the file cannot be written.
        """
        from weft_exec.tracing.collector import Batch, Collector
        from weft_exec.tracing.recording import this_process
        from weft_trace.writer import Writer

        with self._writing:
            with self._lock:
                items = list(self._ring)
                self._num_files += 1
                name = f"{self._path.stem}-{self._num_files}{self._path.suffix}"
            path = self._path.with_name(name)
            with Writer(path) as writer:
                collector = Collector(writer, this_process("/job:localhost/task:0"))
                for item in items:
                    if item.log is not None:
                        log = item.log
                        collector.add([Batch.of_log(item.step, log, item.runs, item.spans)])
                    elif item.step is not None:
                        logs = list(item.step.logs.values())
                        collector.add(
                            [Batch.of_log(item.step, log, log.runs, log.spans) for log in logs]
                        )
                        collector.end_step(item.step, item.ident)
        _log.warning("The flight recorder wrote %s, because %s", path, reason)
        return path

    def close(self) -> None:
        """Stop recording."""
        remove_consumer(self)
        if self._handles_signal and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGUSR2, self._previous_handler)
            self._handles_signal = False
        with self._writing:
            self._ring.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
