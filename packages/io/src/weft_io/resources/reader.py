"""Readers shared by steps: waiting reads are served in order, with file names from queues."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, TypeVar

from weft_exec.resources.cancellation import Cancellation
from weft_exec.resources.file_access import file_roots, restrict_files
from weft_exec.resources.resources import NOT_READY, CompletionCallback, Resource, Waiters
from weft_io.records.reader import Reader
from weft_io.resources.queue import Queue
from weft_tensor import dtypes, errors

T = TypeVar("T")


class _Read:
    """A waiting read, and the queue of its file names."""

    __slots__ = ("cancellation", "error", "limit", "queue", "roots")

    def __init__(self, queue: Queue, limit: int, cancellation: Cancellation | None) -> None:
        self.queue = queue
        self.limit = limit
        self.cancellation = cancellation
        self.error: BaseException | None = None
        self.roots = file_roots()


class _Name:
    """The completion of a dequeue of a file name.

    Attributes:
      asking: the thread that is executing `dequeue`; 0 when it has returned.
      came: True once the dequeue has completed.
    """

    __slots__ = ("_reader", "asking", "has_completed", "read")

    def __init__(self, reader: ReaderResource, read: _Read) -> None:
        self._reader = reader
        self.read = read
        self.asking = threading.get_ident()
        self.has_completed = False

    def __call__(self, value: Any = None) -> None:
        self._reader.named(self, value[0].item())

    def fail(self, error: BaseException) -> None:
        self.read.error = error
        self._reader.named(self, None)


class ReaderResource(Resource):
    """A reader and its waiting requests, which are served in order.

    A read that waits for a file name blocks no thread, because the queue calls back. Files are read
    on the thread of a requesting step, or on a thread started for that call.

    Args:
      reader: the
        state, guarded by the lock of the waiters.
    """

    kind = "reader"

    def __init__(self, name: str, reader: Reader) -> None:
        super().__init__(name)
        self.reader = reader
        self._line = Waiters()
        self._wanting: _Read | None = None
        self._asking = False

    def read(
        self,
        queue: Queue,
        limit: int,
        completion: CompletionCallback,
        cancellation: Cancellation | None = None,
    ) -> None:
        """Complete with up to `limit` records of one file, as (keys, values).

        Args:
          queue: queue of file names; one is dequeued when no file is being read.
          limit: 1 or more.
        Raises: InvalidArgumentError: the queue has other components than one string.
        Fails with: OutOfRangeError: the queue is closed and empty; or the error of reading a file.
        """
        if queue.types != (dtypes.string,):
            types = ", ".join([dtype.name for dtype in queue.types])
            raise errors.InvalidArgumentError(
                f"a reader requires a queue of one string, the name of a file; {queue.flavour} "
                f"{queue.name!r} has components of types {types}"
            )
        read = _Read(queue, limit, cancellation)
        self._line.wait(lambda: self._attempt(read), completion, cancellation)
        if self._request_name():
            self._serve_reads()

    def _attempt(self, read: _Read) -> Any:
        """Return records, or NOT_READY while a name is missing; runs with the lock held."""
        if read.error is not None:
            raise read.error
        with restrict_files(read.roots):
            while not self.reader.needs_work:
                records = self.reader.read(read.limit)
                if records[0]:
                    return records
        self._wanting = read
        return NOT_READY

    def _request_name(self) -> bool:
        """Dequeue a name for the first read; return True if one was available immediately."""
        with self._line.lock:
            read, self._wanting = self._wanting, None
            if read is None or self._asking:
                return False
            self._asking = True
        name = _Name(self, read)
        read.queue.dequeue(name, read.cancellation)
        with self._line.lock:
            name.asking = 0
            return name.has_completed

    def named(self, answer: _Name, name: bytes | None) -> None:
        """Open the file of the dequeued name; `name` is None if the dequeue failed."""
        with self._line.lock:
            self._asking = False
            answer.has_completed = True
            if name is not None:
                # Also when the read was cancelled meanwhile: the next one gets it.
                self.reader.start(name)
            at_once = answer.asking == threading.get_ident()
        if not at_once:  # the step that filled the queue must not wait until files are read
            threading.Thread(
                target=self._serve_reads, name=f"weft-{self.name}", daemon=True
            ).start()

    def _serve_reads(self) -> None:
        """Serve the waiting reads while names are available."""
        while True:
            self._line.wake()
            if not self._request_name():
                return

    def locked(self, function: Callable[[Reader], T]) -> T:
        """Return `function(reader)`, called while no read runs."""
        with self._line.lock:
            result = function(self.reader)
        self._serve_reads()
        return result

    def close(self) -> None:
        """Fail all waiting requests and close the file."""
        super().close()
        self._line.close(errors.CancelledError(f"the reader {self.name!r} was deleted"))
        with self._line.lock:
            self.reader.close()
