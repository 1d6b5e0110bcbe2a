"""Detection of idle cores, where compilation does not slow the program down."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Final

_LEAST_SECONDS: Final = 0.1
"""Shortest interval over which utilization is measured: Linux counts in hundredths of a second."""
_LEAST_IDLE: Final = 0.75
"""Cores that must have been idle over the interval."""


class IdleCores:
    """Detector of idle cores: True if a core of this process was idle since the last query.

    Args:
      clock: seconds of wall time.
      used_seconds: processor seconds of this process.
      idle_seconds: total idle seconds of the process's cores since a fixed time;
        None if the system does not report it.
    """

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        used_seconds: Callable[[], float] = time.process_time,
        idle_seconds: Callable[[], float | None] | None = None,
    ) -> None:
        self._clock = clock
        self._used_seconds = used_seconds
        self._idle_seconds = idle_seconds or _idle_seconds
        self._quota = _quota()
        self._last = clock(), used_seconds(), self._idle_seconds()
        self._answer = False

    def __call__(self) -> bool:
        """Return True if a core was idle; False where this cannot be known."""
        (last_time, used_then, idle_then), current_time = self._last, self._clock()
        seconds = current_time - last_time
        if seconds < _LEAST_SECONDS:
            return self._answer
        used, idle = self._used_seconds(), self._idle_seconds()
        self._last = current_time, used, idle
        if idle is None or idle_then is None:
            return False
        # A control group may allow fewer cores than are idle.
        free = self._quota - (used - used_then) / seconds
        self._answer = min((idle - idle_then) / seconds, free) >= _LEAST_IDLE
        return self._answer


def _quota() -> float:
    """Return the number of cores that the process's control group (version 2) may use at once."""
    try:
        with open("/sys/fs/cgroup/cpu.max", encoding="ascii") as file:
            quota, period = file.read().split()
        return float(quota) / float(period)
    except (OSError, ValueError):  # none, or "max"
        return float("inf")


def _idle_seconds() -> float | None:
    """Return the idle time of the cores that this process may run on, by `/proc/stat`."""
    try:
        cores = {f"cpu{number}" for number in os.sched_getaffinity(0)}
        with open("/proc/stat", encoding="ascii") as file:
            rows = [line.split() for line in file if line.startswith("cpu")]
    except (AttributeError, OSError):  # not Linux
        return None
    ticks = sum(int(row[4]) for row in rows if row[0] in cores)
    return ticks / os.sysconf("SC_CLK_TCK")
