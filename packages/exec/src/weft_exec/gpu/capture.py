"""What a thread captures into a CUDA graph, and how kernels that run meanwhile learn of it.

While a stream is captured its kernels are noted down and not run.  CUDA forbids to wait for the
stream, and CuPy to call cuBLAS.  A graph that is launched later uses the addresses that it was
captured with, so all memory of it comes from a pool of its own, which it keeps.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np


class NotCaptured(Exception):  # noqa: N818 - it is no error of a program
    """Something that cannot be part of a graph, and why.

    Args:
      at: the position of the instruction that is to blame; None for the one that runs.
    """

    def __init__(self, why: str, at: int | None = None) -> None:
        super().__init__(why)
        self.at = at


class Capture:
    """One capture, which its thread makes.

    Args:
      hardware: the GPU, a `Gpu`.
    Attributes:
      stream: what is captured.
      draws: arrays that the states of random streams have to be in before each launch, and these
        streams.
      checks: flags that have to be 0 after each launch.
      position: of the instruction that runs.
      changes: whether a variable was changed.
      kept: what the graph needs to be alive.
      at_end: what is called when the capture has ended.
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
        self.kept: list[Any] = []
        self.at_end: list[Callable[[], None]] = []
        self.position = 0
        self.changes = False
        self._checked_at: int | None = None

    def _chunk(self, size: int) -> Any:
        """Memory of the device's own pool, where that has blocks: its stream's of kernels."""
        with self._hardware.compute:
            return self._hardware.allocator.chunk(size)

    @contextmanager
    def under_way(self) -> Iterator[None]:
        """Let what this thread allocates be the graph's, and kernels of nodes go to the stream."""
        assert current.capture is None, "captures do not nest"
        hardware = self._hardware
        current.capture = self
        try:
            with hardware.active(hardware.compute):
                yield
        finally:
            current.capture = None

    def constant(self, value: Any) -> Any:
        """A value of the host on the GPU, once for all launches; it is not copied in a launch."""
        with self._side:
            landing = self._cupy.empty(value.shape, value.dtype)
            if value.size:
                landing.set(np.ascontiguousarray(value), stream=self._side)
                self._side.synchronize()
        self.kept.append(landing)
        return landing

    def drawn(self, states: Any, streams: Sequence[Any]) -> Any:
        """An array that the states of streams are in when the graph runs."""
        self.draws.append((self._cupy.empty(states.shape, states.dtype), streams))
        return self.draws[-1][0]

    def check(self) -> Any:
        """A flag for a kernel that checks something, 0 when the graph begins.

        Raises: NotCaptured: a variable was changed, which cannot be undone where the check fails.
        """
        if self.changes:
            raise NotCaptured("it checks something after a variable was changed")
        if self._checked_at is None:
            self._checked_at = self.position
        self.checks.append(self._cupy.zeros(1, np.int32))
        return self.checks[-1]

    def note_change(self) -> None:
        """Note that a variable is changed.

        Raises: NotCaptured: something before was to be checked, which nobody has looked at yet.
        """
        if self.checks:
            raise NotCaptured("what it checks decides over variables", self._checked_at)
        self.changes = True


class _Current(threading.local):
    """What this thread captures, and how many products of matrices it has asked CuPy for."""

    capture: Capture | None = None
    products = 0


current = _Current()


def forbid(what: str) -> None:
    """Refuse something that a graph cannot have.

    Raises: NotCaptured: this thread captures one.
    """
    if current.capture is not None:
        raise NotCaptured(what)
