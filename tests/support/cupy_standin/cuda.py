"""Devices, streams, events and memory of the stand-in, with detection of races between streams."""

from __future__ import annotations

import itertools
import threading
import time
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import numpy as np


class RaceError(AssertionError):
    """Error for a stream that touches memory that another stream may still be using."""


class CUDARuntimeError(RuntimeError):
    """CuPy's CUDARuntimeError."""


class OutOfMemoryError(MemoryError):
    """CuPy's OutOfMemoryError."""


class Machine:
    """The simulated GPUs, with a log of their operations.

    Attributes:
      count: how many there are.
      memory: bytes that each has.
      log: what was enqueued: (stream, what).
      gate: waiting for an event lasts until it is set.
      syncs: how often the host has looked at an array's elements.
      nccl: whether CuPy finds NCCL.
    """

    def __init__(
        self, count: int = 1, memory: int = 1 << 30, fault: str = "", nccl: bool = True
    ) -> None:
        self.nccl = nccl
        self.count = count
        self.memory = memory
        self.fault = fault
        self.used = [0] * count
        self.log: list[tuple[str, str]] = []
        self.gate = threading.Event()
        self.gate.set()
        self.syncs = 0


_machine = Machine()
_local = threading.local()
_serial = itertools.count()
streams: weakref.WeakValueDictionary[int, Stream] = weakref.WeakValueDictionary()
"""The streams by their `ptr`."""
_seen: dict[int, int] = {}
"""The progress of each stream at the host's last wait for it."""


def machine() -> Machine:
    """Return the current machine."""
    return _machine


def plug_in(found: Machine) -> None:
    """Replace the machine."""
    global _machine
    _machine = found


# --------------------------------------------------------------------------- current state


def _stack(name: str) -> list[Any]:
    stack: list[Any] | None = getattr(_local, name, None)
    if stack is None:
        stack = []
        setattr(_local, name, stack)
    return stack


def current_device() -> int:
    """Return the current device of this thread."""
    stack = _stack("devices")
    return stack[-1] if stack else 0


def current_stream() -> Stream:
    """Return the current stream of this thread; the default one orders all others."""
    for stream in reversed(_stack("streams")):
        if stream.device == current_device():
            return stream
    return _default


class Device:
    """Like `cupy.cuda.Device`."""

    def __init__(self, index: int) -> None:
        if not 0 <= index < _machine.count:
            raise CUDARuntimeError("cudaErrorInvalidDevice: invalid device ordinal")
        self.id = index

    @property
    def attributes(self) -> dict[str, int]:
        return {"ClockRate": 1_500_000, "MemoryClockRate": 1_000_000}

    def __enter__(self) -> Device:
        _stack("devices").append(self.id)
        return self

    def __exit__(self, *_: object) -> None:
        _stack("devices").pop()


class Event:
    """Like `cupy.cuda.Event`: what was enqueued before it was recorded."""

    def __init__(
        self, block: bool = False, disable_timing: bool = False, interprocess: bool = False
    ) -> None:
        self.knows: dict[Any, int] | None = None
        self.stream: Stream | None = None
        self.timed = not disable_timing
        self.at = 0.0

    @property
    def done(self) -> bool:
        return _machine.gate.is_set()

    def record(self, stream: Stream | None = None) -> None:
        (stream or current_stream()).record(self)

    def synchronize(self) -> None:
        assert self.knows is not None, "an event was waited for that nobody has recorded"
        if not _machine.gate.wait(60):
            raise CUDARuntimeError("the gate was never opened")
        for number, seq in self.knows.items():
            _seen[number] = max(_seen.get(number, 0), seq)


def get_elapsed_time(start_event: Event, end_event: Event) -> float:
    """Return the time between events in milliseconds; here kernels end when they are enqueued."""
    if not (start_event.timed and end_event.timed and end_event.knows is not None):
        raise CUDARuntimeError("cudaErrorInvalidResourceHandle")
    return (end_event.at - start_event.at) * 1e3


class Stream:
    """Like `cupy.cuda.Stream`, with the progress of other streams known to it."""

    def __init__(
        self, null: bool = False, non_blocking: bool = False, ptds: bool = False,
        priority: int | None = None,
    ) -> None:  # fmt: skip
        self.number = next(_serial)
        self.null = null
        self.device = current_device()
        self.seq = 0
        self.knows: dict[int, int] = {}
        self.captured: list[Any] | None = None
        self.invalid = False
        self.allocated: dict[int, _Place] = {}
        self.ptr = self.number
        streams[self.ptr] = self

    @property
    def name(self) -> str:
        return "null" if self.null else f"stream {self.number}"

    def __enter__(self) -> Stream:
        if not self.null and self.device != current_device():
            raise CUDARuntimeError("a stream of another device was made current")
        _stack("streams").append(self)
        return self

    def __exit__(self, *_: object) -> None:
        _stack("streams").pop()

    def record(self, event: Event | None = None) -> Event:
        event = event or Event()
        event.knows = {**self.knows, self.number: self.seq}
        event.stream = self
        event.at = time.perf_counter()
        _machine.log.append((self.name, f"record {id(event)}"))
        return event

    def wait_event(self, event: Event) -> None:
        assert event.knows is not None, "a stream waits for an event that nobody has recorded"
        for number, seq in event.knows.items():
            self.knows[number] = max(self.knows.get(number, 0), seq)
        _machine.log.append((self.name, f"wait {id(event)}"))

    def synchronize(self) -> None:
        if self.captured is not None:
            raise CUDARuntimeError("cudaErrorStreamCaptureUnsupported: synchronize")
        _seen[self.number] = max(_seen.get(self.number, 0), self.seq)

    def begin_capture(self, mode: int | None = None) -> None:
        assert not self.null and self.captured is None
        self.captured, self.invalid, self.allocated = [], False, {}

    def end_capture(self) -> Graph:
        assert self.captured is not None, "nothing is captured"
        captured, self.captured = self.captured, None
        if self.invalid:
            raise CUDARuntimeError("cudaErrorStreamCaptureInvalidated")
        return Graph(captured, self.allocated)

    def capture(self, run: Any, buffers: Any) -> None:
        """Record a launch in the captured graph, with the memory that it touches."""
        assert self.captured is not None
        self.allocated.update((id(b.place), b.place) for b in buffers if b.place is not None)
        self.captured.append(run)

    def begin(self, what: str) -> int:
        """Enqueue an operation; return its number."""
        if self.captured is not None:
            self.invalid = True
            raise CUDARuntimeError(f"cudaErrorStreamCaptureUnsupported: {what}")
        self.seq += 1
        _machine.log.append((self.name, what))
        return self.seq


_default = Stream(null=True)


class _Place:
    """Memory that a graph touches, which may have been freed."""

    def __init__(self, pointer: MemoryPointer) -> None:
        self._held = weakref.ref(pointer)
        self._pool = weakref.ref(pointer.pool) if pointer.pool is not None else lambda: None

    def given(self) -> int:
        """Return how often the pool has handed out this memory; 0 if it no longer exists."""
        pool = self._pool()
        return 0 if pool is None else pool.given

    def is_held(self) -> bool:
        return self._held() is not None


class Graph:
    """Like `cupy.cuda.Graph`: captured launches, with the addresses at capture."""

    def __init__(self, launches: list[Any], places: dict[int, _Place]) -> None:
        self._launches = launches
        self._places = [(place, place.given()) for place in places.values()]

    def launch(self, stream: Stream | None = None) -> None:
        stream = stream or current_stream()
        if not all(place.is_held() or 0 < given == place.given() for place, given in self._places):
            raise RaceError("a graph touches memory that may be of others by now")
        _machine.log.append((stream.name, f"graph of {len(self._launches)}"))
        with stream:
            for launch in self._launches:
                launch()


class Buffer:
    """The memory of an array, with its last writer and later readers.

    Only arrays own it: a captured graph refers to buffers without keeping their memory.
    """

    def __init__(self, pointer: Any) -> None:
        self.place = None if pointer is None else _Place(pointer)
        self.device = current_device()
        self.writer: tuple[Stream, int] | None = None
        self.readers: dict[Stream, int] = {}

    def read(self, stream: Stream, seq: int) -> None:
        if self.writer is not None:
            _ordered(stream, *self.writer, "reads what")
        self.readers[stream] = seq

    def write(self, stream: Stream, seq: int) -> None:
        if self.writer is not None:
            _ordered(stream, *self.writer, "overwrites what")
        for reader, at in self.readers.items():
            _ordered(stream, reader, at, "overwrites what is read by what")
        self.writer, self.readers = (stream, seq), {}


def _ordered(stream: Stream, other: Stream, seq: int, what: str) -> None:
    if stream is other or stream.null or other.null:
        return
    if max(stream.knows.get(other.number, 0), _seen.get(other.number, 0)) < seq:
        raise RaceError(f"{stream.name} {what} {other.name} does, without waiting for it")


# --------------------------------------------------------------------------------- memory


class MemoryPointer:
    """Like `cupy.cuda.MemoryPointer`."""

    def __init__(self, pool: MemoryPool | None, size: int, device: int) -> None:
        self.pool, self.size, self.device = pool, size, device
        self.ptr = 0

    def __del__(self) -> None:
        if self.pool is not None:
            self.pool.free(self.size, self.device)
        else:
            _machine.used[self.device] -= self.size


class MemoryPool:
    """Like `cupy.cuda.MemoryPool`, which retains freed memory."""

    def __init__(self, allocator: Any = None) -> None:
        self._used = [0] * _machine.count
        self._total = [0] * _machine.count
        self._limit = [0] * _machine.count
        self._allocator = allocator
        self._chunks: list[Any] = []
        self.given = 0

    def malloc(self, size: int) -> MemoryPointer:
        device = current_device()
        self.given += 1
        size = -(-size // 512) * 512
        grown = max(0, self._used[device] + size - self._total[device])
        limit = self._limit[device]
        if limit and self._total[device] + grown > limit:
            raise OutOfMemoryError(f"Out of memory allocating {size} bytes (limit {limit})")
        if self._allocator is not None and grown:
            self._chunks.append(self._allocator(grown))
        elif _machine.used[device] + grown > _machine.memory:
            raise OutOfMemoryError(f"Out of memory allocating {size} bytes")
        else:
            _machine.used[device] += grown
        self._total[device] += grown
        self._used[device] += size
        return MemoryPointer(self, size, device)

    def free(self, size: int, device: int) -> None:
        self._used[device] -= size

    def set_limit(self, size: int | None = None, fraction: float | None = None) -> None:
        self._limit[current_device()] = size or 0

    def get_limit(self) -> int:
        return self._limit[current_device()]

    def used_bytes(self) -> int:
        return self._used[current_device()]

    def total_bytes(self) -> int:
        return self._total[current_device()]

    def free_bytes(self) -> int:
        return self.total_bytes() - self.used_bytes()

    def free_all_blocks(self, stream: Stream | None = None) -> None:
        device = current_device()
        _machine.used[device] -= self._total[device] - self._used[device]
        self._total[device] = self._used[device]


@contextmanager
def using_allocator(allocator: Any = None) -> Iterator[None]:
    """Like `cupy.cuda.using_allocator`."""
    _stack("allocators").append(allocator)
    try:
        yield
    finally:
        _stack("allocators").pop()


def allocate(size: int) -> Any:
    """Allocate memory with this thread's allocator."""
    stack = _stack("allocators")
    if stack and stack[-1] is not None:
        return stack[-1](size)
    _machine.used[current_device()] += size
    return MemoryPointer(None, size, current_device())


class Pinned(np.ndarray[Any, Any]):
    """A NumPy array in pinned memory."""


def empty_pinned(shape: Any, dtype: Any = float, order: str = "C") -> Any:
    """Like `cupyx.empty_pinned`."""
    return np.empty(shape, dtype).view(Pinned)


# --------------------------------------------------------------------------------- runtime


def _count() -> int:
    if _machine.fault:
        raise CUDARuntimeError(_machine.fault)
    return _machine.count


def _properties(index: int) -> dict[str, Any]:
    return {
        "name": b"Stand-in", "major": 8, "minor": 0, "totalGlobalMem": _machine.memory,
        "multiProcessorCount": 100, "memoryBusWidth": 5120, "uuid": b"16 of each GPU's",
        "pciDomainID": 0, "pciBusID": index, "pciDeviceID": 0,
    }  # fmt: skip


def _memory() -> tuple[int, int]:
    return _machine.memory - _machine.used[current_device()], _machine.memory


def _module_class() -> Any:
    from cupy_standin.modules import Module

    return Module


def namespace() -> SimpleNamespace:
    """Return the contents of `cupy.cuda`."""
    runtime = SimpleNamespace(
        CUDARuntimeError=CUDARuntimeError,
        getDeviceCount=_count,
        getDeviceProperties=_properties,
        memGetInfo=_memory,
        deviceCanAccessPeer=lambda device, peer: 1,
        runtimeGetVersion=lambda: 12090,
        driverGetVersion=lambda: 12020,
    )
    return SimpleNamespace(
        Device=Device,
        Event=Event,
        MemoryPool=MemoryPool,
        Stream=Stream,
        get_elapsed_time=get_elapsed_time,
        function=SimpleNamespace(Module=_module_class()),
        memory=SimpleNamespace(OutOfMemoryError=OutOfMemoryError),
        runtime=runtime,
        using_allocator=using_allocator,
    )
