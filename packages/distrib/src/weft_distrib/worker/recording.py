"""Recording of the steps of a task, for a trace of the whole cluster."""

from __future__ import annotations

import json
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np

from weft_distrib.wire.methods import StepKey
from weft_distrib.worker.tracing import Transfer
from weft_exec.tracing.step_trace import EPOCH, StepTrace
from weft_tensor import errors

MAX_STEPS: Final = 10_000
"""Maximum number of steps of a recording."""
_MAX_SECONDS: Final = 900.0
"""Seconds after which a recording is taken to be abandoned: its master was lost."""
_MAX_READINGS: Final = 1 << 23
"""Number of readings of the clock after which a task records no further steps."""


class _MasterStep(NamedTuple):
    """A step as its master saw it; times in nanoseconds since the epoch."""

    key: StepKey
    label: str
    start: int
    end: int
    failed: bool


class TaskRecording:
    """Collects the activity of a task in its next steps. Its methods are thread-safe.

    Args:
      task: name of the task.
      steps: maximum number of steps; later ones are not recorded.
    Raises: InvalidArgumentError: `steps` is out of range.
    """

    def __init__(self, task: str, steps: int) -> None:
        if not 0 < steps <= MAX_STEPS:
            raise errors.InvalidArgumentError(
                f"a recording must have from 1 to {MAX_STEPS} steps, got {steps}"
            )
        self._task = task
        self._limit = steps
        self._end = time.monotonic() + _MAX_SECONDS
        self._parts: list[tuple[StepKey, StepTrace, Sequence[Transfer]]] = []
        self._wholes: list[_MasterStep] = []
        self._num_readings = 0
        self._lock = threading.Lock()

    @property
    def is_full(self) -> bool:
        """True if no further steps are recorded."""
        is_full = len(self._parts) >= self._limit or self._num_readings >= _MAX_READINGS
        return is_full or self.is_abandoned

    @property
    def is_abandoned(self) -> bool:
        """True if the master that began the recording has had time enough to end it."""
        return time.monotonic() > self._end

    @property
    def steps(self) -> int:
        """Number of recorded steps that have ended."""
        return self._limit if self.is_full else max(len(self._parts), len(self._wholes))

    def add(self, key: StepKey, trace: StepTrace, passages: Sequence[Transfer]) -> None:
        """Add the parts of a step that this task ran."""
        num_readings = sum([len(run[3]) for log in trace.logs.values() for run in log.runs])
        with self._lock:
            if not self.is_full:
                self._parts.append((key, trace, passages))
                self._num_readings += num_readings

    def add_whole(self, key: StepKey, label: str, start: int, end: int, failed: bool) -> None:
        """Add a step as its master, in this task, saw it.

        Args:
          start, end: readings of the clock.
        """
        with self._lock:
            if len(self._wholes) < self._limit:
                self._wholes.append(_MasterStep(key, label, start + EPOCH, end + EPOCH, failed))

    def encode(self) -> list[Any]:
        """Return the records as two uint8 arrays: a trace file, and JSON.

        The step labels in the file come from `step_name`. The JSON has a list of transfers (the
        step, then the fields of a `Transfer`), and a list of steps.
        """
        from weft_exec.tracing.collector import Batch, Collector
        from weft_exec.tracing.recording import this_process
        from weft_trace.writer import Writer

        with self._lock:
            parts, wholes = list(self._parts), list(self._wholes)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "task.weft-trace"
            with Writer(path) as writer:
                collector = Collector(writer, this_process(self._task))
                for key, trace, _ in parts:
                    trace.label = step_name(key)
                    logs = list(trace.logs.values())
                    collector.add([Batch.of_log(trace, log, log.runs, log.spans) for log in logs])
            content = path.read_bytes()
        document = {
            "transfers": [[step_name(key), *item] for key, _, items in parts for item in items],
            "steps": [
                [step_name(recorded_step.key), *recorded_step[1:]] for recorded_step in wholes
            ],
        }
        return [np.frombuffer(data, np.uint8) for data in (content, json.dumps(document).encode())]


def step_name(key: StepKey) -> str:
    """Return the cluster-wide name of a step."""
    return f"{key.session:x}/{key.step}"
