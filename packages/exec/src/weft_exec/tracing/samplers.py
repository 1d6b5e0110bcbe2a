"""Samples of counters: the time that threads spent on a CPU, and the memory of allocators."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray

from weft_exec.tracing.collector import Collector
from weft_exec.tracing.consumers import memory_in_use
from weft_exec.tracing.step_trace import EPOCH, StepTrace, clock
from weft_trace.schema import SAMPLE, SERIES

_IN_USE: Final = SERIES.index("bytes in use")
_CACHED: Final = SERIES.index("bytes cached")
_RUNNING: Final = SERIES.index("nanoseconds on a CPU")
_RUNNABLE: Final = SERIES.index("nanoseconds runnable but not running")

_TASKS: Final = Path("/proc/self/task")


class SampleSink(Protocol):
    """Receives samples; `weft_trace.writer.Writer` is one."""

    def samples(self, samples: NDArray[Any]) -> None:
        """Add counter samples."""
        ...


class Sampler:
    """Samples the counters of the threads that run steps, and of the devices' allocators."""

    def __init__(self, sink: SampleSink, collector: Collector) -> None:
        self._sink = sink
        self._collector = collector
        self._threads: dict[int, int] = {}

    def add_threads(self, trace: StepTrace) -> None:
        """Sample the threads of a step from now on."""
        for log in list(trace.logs.values()):
            if log.native_id not in self._threads:
                lane = self._collector.thread_lane(log.ident, log.native_id, log.name)
                self._threads[log.native_id] = lane

    def sample(self) -> None:
        """Add one sample of each counter."""
        now = clock() + EPOCH
        rows: list[tuple[int, int, int, int]] = []
        for native_id, lane in list(self._threads.items()):
            times = _schedule_times(native_id)
            if times is None:
                del self._threads[native_id]
            else:
                rows += [(lane, _RUNNING, now, times[0]), (lane, _RUNNABLE, now, times[1])]
        for device, (in_use, cached) in memory_in_use().items():
            lane = self._collector.memory_lane(device)
            rows += [(lane, _IN_USE, now, in_use), (lane, _CACHED, now, cached)]
        if rows:
            self._sink.samples(np.array(rows, SAMPLE))


def _schedule_times(native_id: int) -> tuple[int, int] | None:
    """Return the nanoseconds that a thread ran and waited for a CPU; None if it has ended."""
    try:
        text = (_TASKS / str(native_id) / "schedstat").read_text()
    except OSError:
        return None
    running, runnable, _ = text.split()
    return int(running), int(runnable)
