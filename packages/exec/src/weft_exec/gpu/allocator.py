"""The memory of one GPU: CuPy's pool with the interface of `weft_tensor.allocator`."""

from __future__ import annotations

import threading
from typing import Any, Final

from weft_exec.gpu.capture import current
from weft_tensor import errors
from weft_tensor.allocator import AllocatorStatistics
from weft_tensor.buffer import Buffer

_OBSERVED: Final = 1 << 20
"""Minimum size of an allocation that updates the peak, because querying the pool takes time."""


class GpuAllocator:
    """A memory pool of CuPy for one GPU, with a limit and counters.

    CuPy keeps the blocks of each stream separately, so a freed block is reused only by later work
    on the same stream.

    Args:
      cupy: the module.
      index: CUDA's number of the GPU.
      limit: bytes that the pool may hold; 0 for no limit.
    """

    def __init__(self, cupy: Any, index: int, limit: int) -> None:
        self.name = f"GPU {index}"
        self._cupy = cupy
        self._index = index
        self._limit = limit
        self._pool = cupy.cuda.MemoryPool()
        self._lock = threading.Lock()
        self._count = self._largest = self._peak = 0
        with cupy.cuda.Device(index):
            self._pool.set_limit(size=limit)

    def malloc(self, size: int) -> Any:
        """Allocate memory for CuPy's arrays; CuPy calls this while kernels of the device run.

        The allocations of a thread that captures a graph belong to the graph.

        Raises: ResourceExhaustedError: the limit is reached, or the GPU has no more memory.
        """
        return self.chunk(size) if current.capture is None else current.capture.pool.malloc(size)

    def chunk(self, size: int) -> Any:
        """Allocate memory of this pool, even during a capture.

        Raises: ResourceExhaustedError: as `malloc`.
        """
        try:
            result = self._pool.malloc(size)
        except MemoryError as cause:
            raise self._exhausted_error(size) from cause
        with self._lock:
            self._count += 1
            self._largest = max(self._largest, size)
        if size >= _OBSERVED:
            self._observe()
        return result

    def empty(self, shape: tuple[int, ...], dtype: Any, label: str | None = None) -> Any:
        """Return an uninitialized array on the GPU, for work on the current stream.

        Raises: ResourceExhaustedError: it does not fit.
        """
        cupy = self._cupy
        with cupy.cuda.Device(self._index), cupy.cuda.using_allocator(self.malloc):
            return cupy.empty(shape, dtype)

    def allocate(self, nbytes: int, label: str | None = None) -> Buffer:
        """Raise an error: a buffer is memory that the host can read.

        Raises: UnimplementedError: always.
        """
        raise errors.UnimplementedError(f"{self.name} has no buffers that the host can read")

    def reserve(self) -> None:
        """Allocate all memory up to the limit from the system, as one block of the pool.

        Raises: ResourceExhaustedError: the GPU has less free memory.
        """
        free = self._limit - self.statistics().bytes_reserved
        if self._limit and free > 0:
            with self._cupy.cuda.Device(self._index):
                self.chunk(free // 512 * 512)  # freed at once, and kept by the pool

    def statistics(self) -> AllocatorStatistics:
        """Return the current counters; the peak counts only allocations of at least 1 MiB."""
        used = self._observe()
        with self._cupy.cuda.Device(self._index):
            reserved, free = self._pool.total_bytes(), self._pool.free_bytes()
        with self._lock:
            return AllocatorStatistics(
                used, self._peak, reserved, self._limit or None, free, self._count, self._largest
            )

    def reset_peak(self) -> None:
        """Reset the peak to the current use."""
        with self._lock:
            self._peak = 0
        self._observe()

    def trim(self) -> int:
        """Return unused blocks to the system, and return their number of bytes."""
        with self._cupy.cuda.Device(self._index):
            bytes_before = self._pool.total_bytes()
            self._pool.free_all_blocks()
            return int(bytes_before - self._pool.total_bytes())

    def _observe(self) -> int:
        with self._cupy.cuda.Device(self._index):
            used = int(self._pool.used_bytes())
        with self._lock:
            self._peak = max(self._peak, used)
        return used

    def _exhausted_error(self, size: int) -> errors.ResourceExhaustedError:
        stats = self.statistics()
        limit = f"the limit is {stats.bytes_limit} bytes" if stats.bytes_limit else "it has no more"
        return errors.ResourceExhaustedError(
            f"{self.name} has not enough memory for {size} bytes: {limit}, {stats.bytes_in_use} "
            "in use, "
            f"{stats.bytes_reserved} reserved, {stats.num_allocs} allocations so far",
            details={"allocator": self.name, "requested": size, "statistics": stats._asdict()},
        )
