"""Measurement of times by a GPU's clock, and of its limits."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from weft_exec.gpu.base_device import BaseGpuDevice
from weft_exec.gpu.properties import peak
from weft_graph.ir.compiled_function import Roofline

_SECONDS: Final = 0.1
"""Minimum total duration of repeated runs, of which the fastest counts."""
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
    cuda, least = device.xp.cuda, [float("inf")] * len(launches)
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
            least[launch_index] = min(least[launch_index], milliseconds)
    return least


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


class Clock:
    """Clock of the GPU time of the work that is enqueued after its creation."""

    def __init__(self, device: BaseGpuDevice) -> None:
        self._device = device
        with device.active():
            self._begun = device.xp.cuda.Event()
            self._begun.record()

    def nanoseconds(self) -> int:
        """Wait for the enqueued work, and return its time by the GPU's clock."""
        cuda = self._device.xp.cuda
        with self._device.active():
            ended = cuda.Event()
            ended.record()
            ended.synchronize()
            milliseconds: float = cuda.get_elapsed_time(self._begun, ended)
            return round(milliseconds * 1e6)
