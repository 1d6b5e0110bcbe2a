"""The queue of records for an event file; its owner provides the lock.

The owner's thread calls `take` for work, does it, and calls `complete` or `failed`.
"""

from __future__ import annotations

from weft_tensor import errors


class Work:
    """Work on the file, to be done in the order of the attributes.

    Attributes:
      records: records to write.
      flush: True if written data must reach the disk.
      close: True to close the file, after which there is no more work.
    """

    __slots__ = ("close", "flush", "records", "ticket")

    def __init__(self, records: list[bytes], flush: bool, close: bool, ticket: int) -> None:
        self.records = records
        self.flush = flush
        self.close = close
        self.ticket = ticket


class EventQueue:
    """A bounded queue of records with requests to flush and close.

    Args:
      limit: maximum number of waiting records; no limit if not positive.
      flush_secs: maximum number of seconds between flushes; the first record is flushed
        immediately.
    """

    def __init__(self, limit: int, flush_secs: float) -> None:
        self.finished = False
        self._limit = limit
        self._flush_secs = flush_secs
        self._next_flush: float | None = None
        self._records: list[bytes] = []
        self._dirty = False
        self._num_requested = 0
        self._flushed = 0
        self._closing = False
        self._error: errors.OpError | None = None
        self._has_reported = False

    @property
    def full(self) -> bool:
        """Return True if the queue is full."""
        return 0 < self._limit <= len(self._records) and self._accepting

    @property
    def _accepting(self) -> bool:
        return self._error is None and not self._closing

    def check(self) -> None:
        """Raise the error that stopped writing, if any."""
        if self._error is not None:
            self._has_reported = True
            raise self._error.copy()

    def add(self, record: bytes) -> None:
        """Append a record.

        Raises: OpError: writing has failed, or the queue is being closed.
        """
        self.check()
        if self._closing:
            raise errors.FailedPreconditionError("the event file is being closed")
        self._records.append(record)

    def request_flush(self) -> int:
        """Request a flush of everything that was added; return a ticket for `is_flushed`.

        Raises: OpError: a write has failed.
        """
        self.check()
        self._num_requested += 1
        return self._num_requested

    def is_flushed(self, ticket: int) -> bool:
        """Return True if the flush of a ticket is complete.

        Raises: OpError: the flush has failed.
        """
        if self._flushed >= ticket:
            return True
        self.check()
        return self.finished

    def close(self) -> None:
        """Request that everything be written and flushed, and the file closed."""
        self._closing = True

    def untold_error(self) -> errors.OpError | None:
        """Return the error that stopped writing, unless it was already reported."""
        error = None if self._has_reported or self._error is None else self._error.copy()
        self._has_reported = True
        return error

    # ------------------------------------------------------------------ the owner's thread

    def take(self, now: float) -> Work | None:
        """Return the work to do now; None if there is none."""
        if self.finished:
            return None
        if self._error is not None:
            return Work([], False, True, self._num_requested) if self._closing else None
        dirty = self._dirty or bool(self._records)
        due = dirty and (self._next_flush is None or now >= self._next_flush)
        flush = due or self._num_requested > self._flushed or self._closing
        if not (self._records or flush):
            return None
        records, self._records = self._records, []
        return Work(records, flush, self._closing, self._num_requested)

    def patience(self, now: float) -> float | None:
        """Return the seconds until the next work if nothing changes; None for no limit."""
        if not self._dirty or self._next_flush is None or self._error is not None:
            return None
        return max(0.0, self._next_flush - now)

    def complete(self, work: Work, now: float) -> None:
        """Record that work is done."""
        self._dirty = not work.flush
        if work.flush:
            self._flushed = work.ticket
            self._next_flush = now + self._flush_secs
        self.finished = work.close

    def failed(self, work: Work, error: errors.OpError) -> None:
        """Record that work has failed; drop the remaining records and wake all waiters."""
        self._records = []
        self._error = self._error or error
        self.finished = work.close
