"""The accelerators of the process."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from weft_accelerator.memory import DeviceMemory
from weft_accelerator.worker import Worker
from weft_exec.resources.resources import CompletionCallback


@dataclass(frozen=True)
class Limits:
    """The limits of an accelerator.

    Attributes:
      memory: bytes.
      latency: seconds that a transfer takes at least.
      bandwidth: bytes a second of one direction of the link.
      kernel_seconds: what each kernel takes beside its work on the host's processor.
    """

    memory: int = 1 << 28
    latency: float = 0.0
    bandwidth: float = math.inf
    kernel_seconds: float = 0.0


class Link:
    """One direction of a link to other accelerators; only the latencies of transfers overlap."""

    def __init__(self, name: str, limits: Limits, check: Callable[[], None]) -> None:
        self.worker = Worker(name)
        self.transfers = 0
        self.bytes = 0
        self._limits = limits
        self._check = check
        self._free_at = 0.0
        self._lock = threading.Lock()

    def transfer(self, value: Any, convert: Callable[[Any], Any], done: CompletionCallback) -> None:
        """Call `done(convert(value))` from the link's thread after the simulated transfer time."""
        due = self._due(value)

        def carry() -> None:
            nonlocal value
            time.sleep(max(0.0, due - time.monotonic()))
            try:
                self._check()
                moved = convert(value)
            except Exception as error:  # because the step that waits must be told
                done.fail(error)
            else:
                done(moved)
            value = None

        self.worker.submit(carry)

    def at_once(self, value: Any, convert: Callable[[Any], Any]) -> Any:
        """Return `convert(value)` after the simulated transfer time."""
        time.sleep(max(0.0, self._due(value) - time.monotonic()))
        return convert(value)

    def _due(self, value: Any) -> float:
        size = getattr(value, "nbytes", 0)
        with self._lock:
            self.transfers += 1
            self.bytes += size
            self._free_at = max(self._free_at, time.monotonic()) + size / self._limits.bandwidth
            return self._free_at + self._limits.latency


class Accelerator:
    """One accelerator.

    Attributes:
      memory: where its values are.
      compute: its one stream of kernels.
      inward, outward: its link.
      kernels: the number of kernels that it has run.
      seconds: what a kernel takes beside its work, from the node.
    """

    def __init__(self, index: int, limits: Limits) -> None:
        self.name = f"accelerator {index}"
        self.limits = limits
        self.memory = DeviceMemory(self.name, limits.memory)
        self.compute = Worker(f"{self.name} compute")
        self.inward = Link(f"{self.name} in", limits, self.check)
        self.outward = Link(f"{self.name} out", limits, self.check)
        self.kernels = 0
        self.seconds: Callable[[Any], float] = lambda node: limits.kernel_seconds
        self._faults: list[BaseException] = []
        self._lock = threading.Lock()

    def fail_next(self, *faults: BaseException) -> None:
        """Make the next kernels and transfers raise."""
        with self._lock:
            self._faults.extend(faults)

    def check(self) -> None:
        """Raise the next planned fault, if any."""
        with self._lock:
            fault = self._faults.pop(0) if self._faults else None
        if fault is not None:
            raise fault

    def run(self, node: Any, work: Callable[..., Any], inputs: Sequence[Any]) -> Any:
        """Run the work of a kernel; called in the stream's thread."""
        self.kernels += 1
        seconds = self.seconds(node)
        if seconds:
            time.sleep(seconds)
        self.check()
        return work(*inputs)


_board: list[Accelerator] = []
_limits = Limits()
_lock = threading.Lock()


def accelerator(index: int = 0) -> Accelerator:
    """Return the accelerator with a number, created at the first call."""
    with _lock:
        while len(_board) <= index:
            _board.append(Accelerator(len(_board), _limits))
        return _board[index]


def plug_in(count: int = 1, limits: Limits | None = None) -> list[Accelerator]:
    """Replace the accelerators by new ones; running sessions keep the old ones.

    Args:
      count: how many at once; more come when they are asked for.
      limits: of all of them.
    """
    global _limits
    with _lock:
        _limits = limits or Limits()
        _board.clear()
    return [accelerator(i) for i in range(count)]
