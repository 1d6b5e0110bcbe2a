"""Measurement of times by a GPU's clock, and of its limits."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from weft_exec.gpu.base_device import BaseGpuDevice
from weft_exec.gpu.properties import peak
from weft_exec.tracing.step_trace import clock
from weft_graph.ir.compiled_function import Roofline

_SECONDS: Final = 0.1
"""Minimum total duration of repeated runs; the fastest run counts."""
_RUNS: Final = 5
_MOST_RUNS: Final = 200
_COPIED: Final = 256 << 20
"""Size in bytes of the array whose copy is timed; less if less memory is free."""

_lock = threading.Lock()
_known: dict[tuple[int, int], Roofline] = {}
"""Cached limits by the number and identity of the GPU, because tests create several objects."""


def fastest_times(device: BaseGpuDevice, launches: Sequence[Callable[[], Any]]) -> list[float]:
    """Return the seconds of each launch in its fastest run, measured by events of the stream.

    The device must be active.
    """
    if not launches:
        return []
    cuda, best = device.xp.cuda, [float("inf")] * len(launches)
    start_seconds = time.perf_counter()
    for run in range(_MOST_RUNS):
        if run >= _RUNS and time.perf_counter() - start_seconds > _SECONDS:
            break
        events = [cuda.Event() for _ in range(len(launches) + 1)]
        events[0].record()
        for launch, event in zip(launches, events[1:], strict=True):
            launch()
            event.record()
        events[-1].synchronize()
        for launch_index in range(len(launches)):
            milliseconds = (
                cuda.get_elapsed_time(events[launch_index], events[launch_index + 1]) * 1e-3
            )
            best[launch_index] = min(best[launch_index], milliseconds)
    return best


def roofline(device: BaseGpuDevice) -> Roofline:
    """Return a GPU's limits: bandwidth from a timed copy, operations from its properties."""
    key = device.hardware.index, id(device.hardware)
    with _lock:
        if key not in _known:
            _known[key] = _roofline(device)
        return _known[key]


def _roofline(device: BaseGpuDevice) -> Roofline:
    xp, result = device.xp, device.properties
    free = int(xp.cuda.runtime.memGetInfo()[0])
    count = max(1, min(_COPIED, free // 8) // 4)
    with device.active():
        source, target = xp.zeros(count, np.float32), xp.empty(count, np.float32)
        (seconds,) = fastest_times(device, [lambda: xp.copyto(target, source)])
    single, double = peak(result)
    source_text = f"{result.name}, bandwidth measured by a copy, operations by its clock"
    return Roofline(2 * source.nbytes / max(seconds, 1e-9), single, double, source_text)


class GpuMarks:
    """Events in the kernels' stream, whose times are read after the step."""

    def __init__(self, device: BaseGpuDevice) -> None:
        self._device = device
        self._events: list[Any] = []

    def add(self) -> None:
        """Add a mark behind all kernels that are enqueued so far."""
        device = self._device
        with device.active():
            event = device.xp.cuda.Event()
            event.record()
        self._events.append(event)

    def times(self) -> list[int]:
        """Wait for the last mark, and return the time of each as a reading of the host's clock.

        The clocks are compared by one more event, whose time is known to some microseconds.
        """
        cuda = self._device.xp.cuda
        with self._device.active():
            self._events[-1].synchronize()
            first_reading, last = clock(), cuda.Event()
            last.record()
            last.synchronize()
            now = (first_reading + clock()) // 2
            return [now - round(cuda.get_elapsed_time(event, last) * 1e6) for event in self._events]
