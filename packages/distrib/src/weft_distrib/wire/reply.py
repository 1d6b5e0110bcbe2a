"""Waiting in one thread for what another one tells."""

from __future__ import annotations

from queue import Empty, SimpleQueue
from typing import Any

from weft_graph.ir.interrupts import taken


class Reply:
    """What a call is answered, or the value that a rendezvous hands over; of several, the first."""

    __slots__ = ("_queue", "_told")

    def __init__(self) -> None:
        self._queue: SimpleQueue[tuple[Any, bytes, BaseException | None]] = SimpleQueue()
        self._told: tuple[Any, bytes, BaseException | None] | None = None

    def __call__(self, value: Any = None, meta: bytes = b"") -> None:
        """Take it."""
        self._queue.put((value, meta, None))

    def fail(self, error: BaseException) -> None:
        """Take the reason why there is none."""
        self._queue.put((None, b"", error))

    def wait(self, seconds: float | None = None) -> bool:
        """Wait until it is there, in one thread; returns whether it is."""
        if self._told is None:
            try:
                self._told = taken(self._queue, seconds)
            except Empty:
                return False
        return True

    def result(self) -> tuple[Any, bytes]:
        """The values, or the value, and the meta; waits until they are there.

        Raises: OpError: why there are none.
        """
        self.wait()
        assert self._told is not None
        value, meta, error = self._told
        if error is not None:
            raise error
        return value, meta
