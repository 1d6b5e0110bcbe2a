"""Capture of a thread's work to a CUDA graph, and the state that kernels see during the capture.

While a stream is captured, its kernels are recorded instead of run. CUDA then forbids waiting for
the stream, and CuPy refuses to call cuBLAS. A graph uses the addresses of its capture when it is
launched later, so all of its memory comes from its own pool.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np


class NotCaptured(Exception):  # noqa: N818 - it is not an error of a program
    """Signal that some work cannot be part of a graph, with the reason.

    Args:
      at: the position of the responsible instruction; None for the current one.
    """

    def __init__(self, why: str, position: int | None = None) -> None:
        super().__init__(why)
        self.at = position


class Capture:
    """One capture by its thread.

    Args:
      hardware: the GPU, a `Gpu`.
    Attributes:
      stream: the captured stream.
      draws: pairs of an array, which must hold the states of random streams before each launch, and
        these streams.
      checks: flags that must be 0 after each launch.
      position: the position of the current instruction.
      changes: True if a variable was changed.
      kept_alive: objects that the graph keeps alive.
      at_end: callbacks at the end of the capture.
    """

    def __init__(self, hardware: Any) -> None:
        self._hardware = hardware
        self._cupy = cupy = hardware.cupy
        self.pool = cupy.cuda.MemoryPool(self._chunk)
        with cupy.cuda.Device(hardware.index):
            self.stream = cupy.cuda.Stream(non_blocking=True)
            self._side = cupy.cuda.Stream(non_blocking=True)
        self.draws: list[tuple[Any, Sequence[Any]]] = []
        self.checks: list[Any] = []
        self.kept_alive: list[Any] = []
        self.at_end: list[Callable[[], None]] = []
        self.position = 0
        self.changes = False
        self._checked_at: int | None = None

    def _chunk(self, size: int) -> Any:
        """Return memory of the device's pool, if possible from blocks of the kernels' stream."""
        with self._hardware.compute:
            return self._hardware.allocator.chunk(size)

    @contextmanager
    def capture_context(self) -> Iterator[None]:
        """Return a context whose allocations belong to the graph and whose stream is captured."""
        assert current.capture is None, "captures do not nest"
        hardware = self._hardware
        current.capture = self
        try:
            with hardware.active(hardware.compute):
                yield
        finally:
            current.capture = None

    def constant(self, value: Any) -> Any:
        """Return a value of the host on the GPU; it is copied once, not in each launch."""
        with self._side:
            landing = self._cupy.empty(value.shape, value.dtype)
            if value.size:
                landing.set(np.ascontiguousarray(value), stream=self._side)
                self._side.synchronize()
        self.kept_alive.append(landing)
        return landing

    def rng_state_array(self, states: Any, streams: Sequence[Any]) -> Any:
        """Return an array that will hold the states of random streams when the graph runs."""
        self.draws.append((self._cupy.empty(states.shape, states.dtype), streams))
        return self.draws[-1][0]

    def check(self) -> Any:
        """Return a flag for a kernel with checks; the flag is 0 when the graph begins.

        Raises: NotCaptured: a variable was changed, which could not be undone if the check failed.
        """
        if self.changes:
            raise NotCaptured("it has a check after a change of a variable")
        if self._checked_at is None:
            self._checked_at = self.position
        self.checks.append(self._cupy.zeros(1, np.int32))
        return self.checks[-1]

    def note_change(self) -> None:
        """Record a change of a variable.

        Raises: NotCaptured: an earlier check has not been evaluated yet.
        """
        if self.checks:
            raise NotCaptured(
                "a variable is changed before its check is evaluated", self._checked_at
            )
        self.changes = True


class _CurrentCapture(threading.local):
    """The capture of the current thread, and the number of its calls of CuPy's matrix product."""

    capture: Capture | None = None
    products = 0


current = _CurrentCapture()


def forbid(operation: str) -> None:
    """Raise an error for an operation that a graph cannot contain.

    Raises: NotCaptured: this thread captures a graph.
    """
    if current.capture is not None:
        raise NotCaptured(operation)
