"""Memory pools of the CPU devices of this machine, which all sessions share."""

from __future__ import annotations

from collections.abc import Sequence

from weft_tensor.allocator import CpuAllocator, cpu_allocator

_pools: list[tuple[int | None, CpuAllocator]] = []
"""Limit and pool of each virtual device; empty if the CPU is one device without a limit."""


def split_cpu(limits: Sequence[int | None]) -> None:
    """Split the CPU of new sessions into one device with a memory pool for each limit.

    Args:
      limits: the bytes that each pool may hold, None for no limit. An empty sequence restores a
        single device without a limit.
    """
    _pools[:] = [(limit, _new_pool(limit, i)) for i, limit in enumerate(limits)]


def cpu_limits() -> list[int | None]:
    """Return the limits passed to `split_cpu`."""
    return [limit for limit, _ in _pools]


def cpu_allocators(count: int | None) -> list[CpuAllocator]:
    """Return the pools of a session's CPU devices.

    Args:
      count: number of devices; None for the configured number.
    """
    pools = [pool for _, pool in _pools]
    num_pools = max(1, len(pools)) if count is None else count
    return [*pools[:num_pools], *[cpu_allocator()] * (num_pools - len(pools))]


def _new_pool(limit: int | None, number: int) -> CpuAllocator:
    return cpu_allocator() if limit is None else CpuAllocator(limit, f"CPU:{number}")
