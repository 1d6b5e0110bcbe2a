"""weft's pooled allocator against fresh memory from NumPy, for a buffer of 16 MB."""

from __future__ import annotations

import time

import numpy as np
import timing
from timing import Timer

from weft_tensor import CpuAllocator

SHAPE = (4 << 20,)
FLOAT32 = np.dtype(np.float32)
PAGE = 4096
ALIVE = 8


def touch(array: np.ndarray) -> None:
    array.view(np.uint8)[::PAGE] = 1


def fresh(timer: Timer) -> None:
    """Keep earlier arrays alive, so that the C library cannot reuse their pages."""
    samples: list[float] = []
    end = time.perf_counter() + timer.budget
    while not samples or time.perf_counter() < end:
        alive = []
        for _ in range(ALIVE):
            started = time.perf_counter()
            array = np.empty(SHAPE, FLOAT32)
            touch(array)
            samples.append(time.perf_counter() - started)
            alive.append(array)
    timer.report("memory_fresh_16MB", samples)


def allocators(timer: Timer) -> None:
    allocator = CpuAllocator()
    timer.time("memory_reuse_16MB", lambda: allocator.empty(SHAPE, FLOAT32))
    timer.time("memory_reuse_touched_16MB", lambda: touch(allocator.empty(SHAPE, FLOAT32)))
    fresh(timer)


if __name__ == "__main__":
    timing.main({"memory": allocators}, timing.parser().parse_args())
