"""Allocators: pooled memory for arrays, with a limit and statistics.

Life of a block: the pool maps regions of address space. A request is cut from the smallest free
range that fits and handed out as an ordinary array whose `base` is a `_Block`, a thin array
with a finalizer. NumPy keeps the chain view -> array -> block for any view of a view, because the
types along it differ, so the block's finalizer runs when the last array over it dies. This can
happen in any thread and at any moment, even while that thread is inside the allocator. The
finalizer therefore only appends to a deque, which is atomic; the next request drains the deque.

A freed block is first kept unsplit, in a list of blocks of its exact size: a training step requests
the same sizes repeatedly and gets them back in a microsecond. If no block fits, free neighbors are
merged before a new region is mapped.
"""

from __future__ import annotations

import contextlib
import gc
import math
import mmap
import os
import threading
import weakref
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol, TypeVar, cast

import numpy as np

from weft_tensor.buffer import Buffer
from weft_tensor.dtypes import as_dtype
from weft_tensor.errors import InternalError, InvalidArgumentError, ResourceExhaustedError
from weft_tensor.ranges import FreeRanges
from weft_tensor.shape import as_dims, format_dims

ALIGNMENT = 64

_FIRST_REGION = 1 << 20
_LARGEST_REGION = 1 << 28
_HUGE = 1 << 25
_HUGE_PAGE = 1 << 21
_PAGE = mmap.PAGESIZE
_BYTE = np.dtype(np.uint8)
_REPORTED_HOLDERS = 8

# Not shared: a forked child must not write into its parent's arrays.
_PRIVATE: dict[str, int] = {"flags": mmap.MAP_PRIVATE} if hasattr(mmap, "MAP_PRIVATE") else {}
_ADVISE_HUGE: int | None = getattr(mmap, "MADV_HUGEPAGE", None)
_ADVISE_DROP: int | None = getattr(mmap, "MADV_DONTNEED", None)

_T = TypeVar("_T")


class AllocatorStatistics(NamedTuple):
    """Counters of an allocator; sizes in bytes, rounded up to the alignment."""

    bytes_in_use: int
    """Bytes in blocks that some array refers to."""
    peak_bytes_in_use: int
    """Highest value of `bytes_in_use` so far."""
    bytes_reserved: int
    """Mapped address space; a page uses memory from its first access on."""
    bytes_limit: int | None
    """Limit of `bytes_reserved`; None if there is none."""
    largest_free_block: int
    """The largest request that can be served without merging or mapping."""
    num_allocs: int
    """Requests served from the pool so far."""
    largest_alloc: int
    """Size of the largest request served so far."""


class Holder(NamedTuple):
    """A block in use."""

    nbytes: int
    shape: tuple[int, ...]
    dtype: str
    label: str | None


class Allocator(Protocol):
    """Interface of the allocators of a device."""

    def empty(
        self, shape: tuple[int, ...], dtype: np.dtype[Any], label: str | None = None
    ) -> np.ndarray[Any, Any]:
        """Return an uninitialized array; its memory is freed with the last view of it."""
        ...

    def allocate(self, nbytes: int, label: str | None = None) -> Buffer:
        """Return an uninitialized buffer."""
        ...

    def statistics(self) -> AllocatorStatistics:
        """Return the current counters."""
        ...

    def trim(self) -> int:
        """Return unused memory to the system; return the number of bytes."""
        ...


class _Region(np.ndarray[Any, Any]):
    """A mapped region as bytes. Its type keeps NumPy from making it the base of users' arrays."""

    __slots__ = ("memory",)

    memory: mmap.mmap


class _Span:
    """A range cut from a region, with its current or last holder."""

    __slots__ = ("end", "index", "offset", "region", "size", "use")

    def __init__(self, region: _Region, index: int, offset: int, size: int) -> None:
        self.region = region
        self.index = index
        self.offset = offset
        self.size = size
        self.end: _End | None = None
        self.use: tuple[tuple[int, ...], np.dtype[Any], str | None] = ((), _BYTE, None)


class _Block(np.ndarray[Any, Any]):
    """A span in use: the base of the array that was handed out."""


class _End(weakref.ref[_Block]):
    """A weak reference that records the end of a block through its callback.

    The callback is a method of a deque, not a Python function. Python handles signals when a
    function begins, and discards exceptions raised in a finalizer. With `__del__`, a Ctrl-C that
    arrives just before a finalizer runs would be lost, and the span with it.
    """

    __slots__ = ("span",)

    span: _Span


class CpuAllocator:
    """Pooled best-fit allocator of CPU memory, with coalescing; safe to use from any thread.

    With a limit, one region of that size is mapped at the first request, so that a request fails
    only when no gap between the blocks in use is large enough. Without one, regions grow by
    powers of two, and a huge request gets its own region; regions that become free are
    returned by `trim`, or when the system refuses another.

    Empty arrays and arrays of Python objects (strings) are ordinary NumPy arrays outside of the
    pool and its counters.
    """

    def __init__(self, limit_bytes: int | None = None, name: str = "cpu") -> None:
        """Make an empty pool; nothing is mapped yet.

        Args:
          limit_bytes: largest number of bytes to reserve, at least 64; None for no limit.
          name: name of the allocator in messages.
        Raises:
          InvalidArgumentError: the limit is below 64.
        """
        if limit_bytes is not None and limit_bytes < ALIGNMENT:
            raise InvalidArgumentError(f"limit_bytes must be at least 64, got {limit_bytes}")
        self.name = name
        self._limit = None if limit_bytes is None else limit_bytes // ALIGNMENT * ALIGNMENT
        # Re-entered when the collector runs finalizers that allocate; _busy marks those calls.
        self._lock = threading.RLock()
        self._busy = False
        self._dead: deque[_End] = deque()
        self._note_end = self._dead.append
        self._recent: dict[int, list[_Span]] = {}
        self._spans: set[_Span] = set()
        self._ranges = FreeRanges()
        self._regions: dict[int, _Region] = {}
        self._next_index = 0
        self._reserved = 0
        self._in_use = 0
        self._peak = 0
        self._num_allocs = 0
        self._largest = 0
        _ALLOCATORS.add(self)

    def empty(
        self, shape: tuple[int, ...], dtype: np.dtype[Any], label: str | None = None
    ) -> np.ndarray[Any, Any]:
        """Return an uninitialized, C-contiguous array, 64-byte aligned.

        Args:
          shape: sizes, each at least 0.
          dtype: NumPy dtype, or anything that `as_dtype` accepts (slower).
          label: name of the holder, for the report of the largest ones.
        Raises:
          ResourceExhaustedError: the limit, or the system's memory, does not allow it.
          InvalidArgumentError: a size is negative.
        """
        try:
            size = (math.prod(shape) * dtype.itemsize + 63) & -64
        except (AttributeError, TypeError):
            return self.empty(_as_shape(shape), as_dtype(dtype).numpy, label)
        if size <= 0 or dtype.hasobject:
            return _allocate_ordinary(shape, dtype)
        span = None
        with self._lock:
            if self._dead:
                self._drain()
            spans = self._recent.get(size)
            if spans:
                span = spans.pop()
                self._in_use = in_use = self._in_use + size
                if in_use > self._peak:
                    self._peak = in_use
                self._num_allocs += 1
        if span is None:
            span = self._cut(size, shape, dtype)
            if span is None:
                return _allocate_unpooled(shape, dtype, size)
        span.use = (shape, dtype, label)
        block = _Block(size, _BYTE, span.region, span.offset)
        span.end = end = _End(block, self._note_end)
        end.span = span
        try:
            return np.ndarray(shape, dtype, block)
        except ValueError as error:
            raise InvalidArgumentError(f"no array has the shape {shape}: {error}") from None

    def allocate(self, nbytes: int, label: str | None = None) -> Buffer:
        """Return an uninitialized buffer of `nbytes` bytes, 64-byte aligned.

        Raises:
          ResourceExhaustedError: the limit, or the system's memory, does not allow it.
          InvalidArgumentError: `nbytes` is negative.
        """
        return Buffer(self.empty((nbytes,), _BYTE, label))

    def statistics(self) -> AllocatorStatistics:
        """Return the current counters."""
        with self._lock:
            largest = self._ranges.largest()
            if not self._busy:
                self._drain()
                cached = sum(size * len(spans) for size, spans in self._recent.items())
                self._in_use = self._reserved - self._ranges.free_bytes - cached
                largest = max([largest, *(size for size, spans in self._recent.items() if spans)])
            return AllocatorStatistics(
                bytes_in_use=self._in_use,
                peak_bytes_in_use=self._peak,
                bytes_reserved=self._reserved,
                bytes_limit=self._limit,
                largest_free_block=largest,
                num_allocs=self._num_allocs,
                largest_alloc=self._largest,
            )

    def reset_peak(self) -> None:
        """Restart `peak_bytes_in_use` from the bytes in use now."""
        with self._lock:
            self._drain()
            self._peak = self._in_use

    def holders(self, count: int | None = None) -> list[Holder]:
        """Return the blocks in use, the largest first; at most `count` of them."""
        with self._lock:
            self._drain()
            free = {span for spans in self._recent.values() for span in spans}
            spans = sorted(self._spans - free, key=_by_size)[:count]
            return [_holder(span) for span in spans]

    def coalesce(self) -> None:
        """Merge recently freed blocks with their free neighbors.

        Requests do this automatically when nothing else fits.
        """
        with self._lock:
            if not self._busy:
                self._run_exclusively(self._merge)

    def trim(self) -> int:
        """Return unused memory to the system.

        Regions that are wholly free are unmapped; whole pages of other free ranges lose their
        content and their memory, but stay reserved.

        Returns: the number of bytes returned.
        """
        with self._lock:
            return 0 if self._busy else self._run_exclusively(self._trim)

    def check_integrity(self) -> None:
        """Recompute the tables from scratch and compare them with the stored ones.

        Raises:
          InternalError: they disagree.
        """
        with self._lock:
            self._drain()
            self._ranges.check_integrity()
            free_ranges = self._ranges.ranges()
            free_ranges += [(span.index, span.offset, span.size) for span in self._spans]
            ends = {index: 0 for index in self._regions}
            for index, offset, size in sorted(free_ranges):
                if ends[index] != offset:
                    raise InternalError(f"region {index} has a gap or overlap at {offset}")
                ends[index] = offset + size
            if ends != {index: region.nbytes for index, region in self._regions.items()}:
                raise InternalError("the ranges of a region do not add up to its size")

    def __repr__(self) -> str:
        used = self.statistics()
        limit = "no limit" if used.bytes_limit is None else f"limit {used.bytes_limit}"
        return f"<CpuAllocator {self.name!r}: {used.bytes_in_use} bytes in use, {limit}>"

    def _drain(self) -> None:
        dead, recent = self._dead, self._recent
        while dead:
            span = dead.popleft().span
            span.end = None
            self._in_use -= span.size
            try:
                recent[span.size].append(span)
            except KeyError:
                recent[span.size] = [span]

    def _run_exclusively(self, work: Callable[[], _T]) -> _T:
        self._busy = True
        try:
            return work()
        finally:
            self._busy = False

    def _cut(self, size: int, shape: tuple[int, ...], dtype: np.dtype[Any]) -> _Span | None:
        """Find a span if no recently freed one has the size; None if called by a finalizer."""
        for attempt in range(2):
            with self._lock:
                if self._busy:
                    return None
                span = self._run_exclusively(lambda: self._carve(size))
                if span is not None:
                    self._in_use += size
                    self._peak = max(self._peak, self._in_use)
                    self._num_allocs += 1
                    return span
            if attempt == 0:
                gc.collect()  # arrays may hang on reference cycles; outside the lock, it runs code
        raise self._exhausted(size, shape, dtype)

    def _carve(self, size: int) -> _Span | None:
        free_range = self._ranges.take(size)
        if free_range is None:
            self._merge()
            free_range = self._ranges.take(size)
        if free_range is None and self._grow(size):
            free_range = self._ranges.take(size)
        if free_range is None:
            return None
        index, offset = free_range
        span = _Span(self._regions[index], index, offset, size)
        self._spans.add(span)
        self._largest = max(self._largest, size)
        return span

    def _merge(self) -> None:
        self._drain()
        while self._recent:
            _, spans = self._recent.popitem()
            for span in spans:
                self._spans.discard(span)
                self._ranges.release_range(span.index, span.offset, span.size)

    def _grow(self, size: int) -> bool:
        """Map a region of at least `size` bytes; return False if that is not possible."""
        free = self._ranges.free_regions()
        if sum(self._regions[index].nbytes for index in free) >= size:
            self._unmap_free()  # enough is free, but in pieces: remap rather than grow
        if self._map(self._region_size(size)):
            return True
        self._unmap_free()
        return self._map(size)

    def _region_size(self, size: int) -> int:
        if self._limit is not None:
            return max(size, self._limit - self._reserved)
        if size >= _HUGE:
            return -(-size // _PAGE) * _PAGE
        min_bytes = max(size, _FIRST_REGION, min(self._reserved, _LARGEST_REGION))
        return 1 << (min_bytes - 1).bit_length()

    def _map(self, size: int) -> bool:
        if self._limit is not None and self._reserved + size > self._limit:
            return False
        try:
            memory = mmap.mmap(-1, size, **_PRIVATE)
        except (OSError, ValueError, OverflowError):
            return False
        if size >= 2 * _HUGE_PAGE and _ADVISE_HUGE is not None:
            with contextlib.suppress(OSError):  # a kernel without huge pages
                memory.madvise(_ADVISE_HUGE)
        region = _Region(size, _BYTE, memory)
        region.memory = memory
        self._regions[self._next_index] = region
        self._ranges.add_region(self._next_index, size)
        self._next_index += 1
        self._reserved += size
        return True

    def _unmap_free(self) -> int:
        released = 0
        for index in self._ranges.free_regions():
            self._ranges.remove_region(index)
            released += self._regions.pop(index).nbytes
        self._reserved -= released
        return released

    def _trim(self) -> int:
        self._merge()
        released = self._unmap_free()
        if _ADVISE_DROP is None:
            return released
        for index, offset, size in self._ranges.ranges():
            start = -(-offset // _PAGE) * _PAGE
            length = (offset + size) // _PAGE * _PAGE - start
            if length > 0:
                self._regions[index].memory.madvise(_ADVISE_DROP, start, length)
                released += length
        return released

    def _exhausted(
        self, size: int, shape: tuple[int, ...], dtype: np.dtype[Any]
    ) -> ResourceExhaustedError:
        stats, holders = self.statistics(), self.holders(_REPORTED_HOLDERS)
        limit = (
            "the system refuses more"
            if stats.bytes_limit is None
            else f"the limit is {_format_size(stats.bytes_limit)}"
        )
        lines = [
            f"the {self.name} allocator has no room for {_format_size(size)} "
            f"({dtype.name}{format_dims(shape)}): {limit}, {_format_size(stats.bytes_in_use)} "
            f"in use in {len(self._spans)} blocks (peak {_format_size(stats.peak_bytes_in_use)}), "
            f"largest free block {_format_size(stats.largest_free_block)}, "
            f"{stats.num_allocs} allocations so far"
        ]
        if holders:
            lines.append("largest holders:")
            lines += ["  " + _describe(holder) for holder in holders]
        return ResourceExhaustedError(
            "\n".join(lines),
            details={
                "allocator": self.name,
                "requested": size,
                "statistics": stats._asdict(),
                "holders": [{**h._asdict(), "shape": list(h.shape)} for h in holders],
            },
        )


def _holder(span: _Span) -> Holder:
    shape, dtype, label = span.use
    return Holder(span.size, tuple(shape), dtype.name, label)


def _by_size(span: _Span) -> tuple[int, int, int]:
    return -span.size, span.index, span.offset


def _describe(holder: Holder) -> str:
    purpose = "" if holder.label is None else f" for {holder.label}"
    return f"{_format_size(holder.nbytes)}: {holder.dtype}{format_dims(holder.shape)}{purpose}"


def _format_size(nbytes: int) -> str:
    """Return a size as people write it: 640 bytes, 1.5 MiB."""
    if nbytes < 1024:
        return f"{nbytes} bytes"
    power = min((nbytes.bit_length() - 1) // 10, 6)
    return f"{nbytes / (1 << 10 * power):.4g} {'KMGTPE'[power - 1]}iB"


def _as_shape(shape: Any) -> tuple[int, ...]:
    sizes = as_dims(shape)
    if sizes is None or None in sizes:
        raise InvalidArgumentError(
            f"allocating memory requires a fully known shape, got {format_dims(sizes)}"
        )
    return cast("tuple[int, ...]", sizes)


def _allocate_ordinary(shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    """Return an array outside of the pool: an empty one, or one of Python objects."""
    try:
        if dtype.kind == "O":
            return np.full(shape, b"", dtype)
        return np.empty(shape, dtype)
    except ValueError as error:
        raise InvalidArgumentError(f"no array has the shape {shape}: {error}") from None


def _allocate_unpooled(
    shape: tuple[int, ...], dtype: np.dtype[Any], size: int
) -> np.ndarray[Any, Any]:
    """Return an aligned array outside the pool, for a finalizer that interrupts the pool."""
    memory = np.empty(size + ALIGNMENT, _BYTE)
    return np.ndarray(shape, dtype, memory, -memory.ctypes.data % ALIGNMENT)


_ALLOCATORS: weakref.WeakSet[CpuAllocator] = weakref.WeakSet()
_HELD: list[CpuAllocator] = []
_DEFAULT_LOCK = threading.Lock()
_default: CpuAllocator | None = None


def cpu_allocator() -> CpuAllocator:
    """Return the allocator that the whole process shares; it has no limit."""
    global _default
    if _default is None:
        with _DEFAULT_LOCK:
            if _default is None:
                _default = CpuAllocator()
    return _default


def _before_fork() -> None:
    _HELD.extend(_ALLOCATORS)
    for allocator in _HELD:
        allocator._lock.acquire()


def _after_fork() -> None:
    while _HELD:
        _HELD.pop()._lock.release()


if hasattr(os, "register_at_fork"):  # a child must not inherit a held lock
    os.register_at_fork(
        before=_before_fork, after_in_parent=_after_fork, after_in_child=_after_fork
    )
