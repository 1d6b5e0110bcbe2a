"""A future: a result that is set once, by another thread."""

from __future__ import annotations

from queue import Empty, SimpleQueue
from typing import Any

from weft_graph.ir.interrupts import take_item


class Reply:
    """The reply to a call, or a value of a rendezvous; only the first result is kept."""

    __slots__ = ("_outcome", "_queue")

    def __init__(self) -> None:
        self._queue: SimpleQueue[tuple[Any, bytes, BaseException | None]] = SimpleQueue()
        self._outcome: tuple[Any, bytes, BaseException | None] | None = None

    def __call__(self, value: Any = None, meta: bytes = b"") -> None:
        """Set the result."""
        self._queue.put((value, meta, None))

    def fail(self, error: BaseException) -> None:
        """Set the error."""
        self._queue.put((None, b"", error))

    def wait(self, seconds: float | None = None) -> bool:
        """Wait for the result; return False if it did not arrive in time.

        Only one thread may wait.
        """
        if self._outcome is None:
            try:
                self._outcome = take_item(self._queue, seconds)
            except Empty:
                return False
        return True

    def result(self) -> tuple[Any, bytes]:
        """Wait for the result; return the values, or the value, and the metadata.

        Raises: OpError: the error that was set.
        """
        self.wait()
        assert self._outcome is not None
        value, meta, error = self._outcome
        if error is not None:
            raise error
        return value, meta
