"""One GPU of the process: a pool, a stream for kernels, and a stream for copies in each direction.

Kernels run on `compute`. The host never waits for a stream; streams wait for each other's events.

- A copy to the GPU goes from pinned memory to a staging buffer of the copy-in stream. The compute
stream waits for it, and copies the data to its own block. So copies never wait for kernels,
and only the compute stream writes its blocks. The copy within the device is fast compared with the
one over the bus.
- A copy to the host waits for an event of the compute stream, and goes to pinned memory; a thread
  waits for its end.

A buffer that a stream uses is held until the event of its use has passed. The streams are blocking,
so they are ordered with work on CUDA's default stream.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from weft_exec.gpu.allocator import GpuAllocator
from weft_exec.gpu.capture import current, forbid
from weft_exec.gpu.copy_threads import Worker
from weft_exec.resources.resources import CompletionCallback


class _StreamReferences:
    """Objects that streams use, each with the event that ends its use."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._items: deque[tuple[Any, tuple[Any, ...]]] = deque()

    def __len__(self) -> int:
        return len(self._items)

    def hold(self, event: Any, *values: Any) -> None:
        """Hold values until `event` has passed, and release those whose events have passed."""
        with self._lock:
            self._items.append((event, values))
            while self._items and self._items[0][0].done:
                self._items.popleft()


class Gpu:
    """One GPU, shared by the devices of all sessions.

    Attributes:
      index: CUDA's number.
      allocator: its memory.
      compute, copy_in, copy_out: its streams.
    """

    def __init__(self, cupy: Any, cupyx: Any, index: int, limit: int) -> None:
        self.cupy = cupy
        self.index = index
        self.name = f"GPU {index}"
        self._pinned = cupyx.empty_pinned
        self.allocator = GpuAllocator(cupy, index, limit)
        with cupy.cuda.Device(index):
            self.compute = cupy.cuda.Stream()
            self.copy_in = cupy.cuda.Stream()
            self.copy_out = cupy.cuda.Stream()
        self._arriving = _StreamReferences()
        self._sender = Worker(f"{self.name} out")
        self._receiver = Worker(f"{self.name} in")

    @contextmanager
    def active(self, stream: Any = None) -> Iterator[None]:
        """Return a context that makes CuPy use this GPU, its pool and a stream.

        The default is the kernels' stream, or the stream that this thread captures.
        """
        cuda = self.cupy.cuda
        if stream is None:
            stream = self.compute if current.capture is None else current.capture.stream
        with (
            cuda.Device(self.index),
            stream,
            cuda.using_allocator(self.allocator.malloc),
        ):
            yield

    def _event(self, blocking: bool = False) -> Any:
        return self.cupy.cuda.Event(block=blocking, disable_timing=True)

    # ------------------------------------------------------------------ copies in

    def copy_from_host(self, value: Any) -> Any:
        """Copy a value of the host to the GPU; the value may be changed after the return.

        Raises: ResourceExhaustedError: the value does not fit.
        """
        if not value.size:
            return self._empty(value)
        if current.capture is not None:
            return current.capture.constant(value)
        staged = self._pinned(value.shape, value.dtype)
        np.copyto(staged, value)

        def fill(landing: Any) -> None:
            landing.set(staged, stream=self.copy_in)

        return self._land(value, fill, staged)

    def copy_from_gpu(self, value: Any, source: Gpu) -> Any:
        """Copy an array of another GPU to this GPU.

        Raises: ResourceExhaustedError: the array does not fit.
        """
        forbid("a value of another GPU")
        if not value.size:
            return self._empty(value)
        with source.active():
            contiguous = self.cupy.ascontiguousarray(value).reshape(value.shape)
            ready = source.compute.record(self._event())
        self.copy_in.wait_event(ready)

        def fill(landing: Any) -> None:
            landing.data.copy_from_device_async(
                contiguous.data, contiguous.nbytes, stream=self.copy_in
            )

        return self._land(contiguous, fill, contiguous)

    def _empty(self, value: Any) -> Any:
        with self.active():
            return self.cupy.empty(value.shape, value.dtype)

    def _land(self, value: Any, fill: Callable[[Any], None], *references: Any) -> Any:
        with self.active(self.copy_in):
            landing = self.cupy.empty(value.shape, value.dtype)
            fill(landing)
            landed = self.copy_in.record(self._event())
        with self.active():
            result = self.cupy.empty(value.shape, value.dtype)
            self.compute.wait_event(landed)
            self.cupy.copyto(result, landing)
            event = self.compute.record(self._event())
        self._arriving.hold(event, landing, *references)
        return result

    def copy_in_async(self, value: Any, done: CompletionCallback) -> None:
        """Copy a value of the host to the GPU, and call `done` with it from a thread of the GPU."""

        def bring() -> None:
            try:
                result = self.copy_from_host(value)
            except Exception as error:  # because the receiver must be notified
                done.fail(error)
            else:
                done(result)

        self._receiver.submit(bring)

    # ------------------------------------------------------------------ copies out

    def take_out(self, value: Any) -> Any:
        """Wait for a value of the GPU, and return a copy in the host's memory."""
        return self._begin(value)()

    def take_out_aside(self, value: Any, done: CompletionCallback) -> None:
        """Copy a value to the host's memory, and call `done` with it from a thread of the GPU."""
        finish = self._begin(value)

        def wait() -> None:
            try:
                result = finish()
            except Exception as error:  # because the receiver must be notified
                done.fail(error)
            else:
                done(result)

        self._sender.submit(wait)

    def _begin(self, value: Any) -> Callable[[], Any]:
        """Enqueue a copy to the host; return a function that waits for it and returns it."""
        forbid("a value that the host looks at")
        if not value.size:
            return lambda: np.empty(value.shape, value.dtype)
        with self.active():
            contiguous = self.cupy.ascontiguousarray(value).reshape(value.shape)
            ready = self.compute.record(self._event())
        self.copy_out.wait_event(ready)
        staged = self._pinned(contiguous.shape, contiguous.dtype)
        with self.active(self.copy_out):
            contiguous.get(stream=self.copy_out, out=staged, blocking=False)
            copied = self.copy_out.record(self._event(blocking=True))

        def finish() -> Any:
            copied.synchronize()  # until then, `contiguous` prevents in-place changes of the array
            # Pinned memory is scarce, so fetches receive a copy.
            return np.array(staged)[()] if contiguous.shape == () else np.array(staged)

        return finish

    def __repr__(self) -> str:
        return f"<Gpu {self.index}>"
