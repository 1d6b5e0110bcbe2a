"""What was added to an event file and is not in it yet: a plain object that its owner locks.

The owner's thread asks `take` what to do, does it, and answers with `did` or `failed`.
"""

from __future__ import annotations

from weft_tensor import errors


class Work:
    """What is to be done with the file, in this order.

    Attributes:
      records: to be written.
      flush: whether what was written has to reach the disk.
      close: whether to close the file, after which there is no more work.
    """

    __slots__ = ("close", "flush", "records", "ticket")

    def __init__(self, records: list[bytes], flush: bool, close: bool, ticket: int) -> None:
        self.records = records
        self.flush = flush
        self.close = close
        self.ticket = ticket


class EventQueue:
    """A bounded line of records with requests to flush and to close.

    Args:
      limit: records that may wait; no limit where it is not positive.
      flush_secs: what was written is flushed after so many seconds at the latest, the first record
        at once.
    """

    def __init__(self, limit: int, flush_secs: float) -> None:
        self.finished = False
        self._limit = limit
        self._flush_secs = flush_secs
        self._next_flush: float | None = None
        self._records: list[bytes] = []
        self._dirty = False
        self._asked = 0
        self._flushed = 0
        self._closing = False
        self._error: errors.OpError | None = None
        self._told = False

    @property
    def full(self) -> bool:
        """Whether the queue is full."""
        return 0 < self._limit <= len(self._records) and self._accepting

    @property
    def _accepting(self) -> bool:
        return self._error is None and not self._closing

    def check(self) -> None:
        """Raise the error that stopped the writing, if there is one."""
        if self._error is not None:
            self._told = True
            raise self._error.copy()

    def add(self, record: bytes) -> None:
        """Put a record at the end.

        Raises: OpError: writing failed, now or before, or is being finished.
        """
        self.check()
        if self._closing:
            raise errors.FailedPreconditionError("the event file is being closed")
        self._records.append(record)

    def ask_flush(self) -> int:
        """Ask for a flush of all that was added; returns what to ask `flushed` about.

        Raises: OpError: writing failed, now or before.
        """
        self.check()
        self._asked += 1
        return self._asked

    def flushed(self, ticket: int) -> bool:
        """Whether that flush is done.

        Raises: OpError: it never will be.
        """
        if self._flushed >= ticket:
            return True
        self.check()
        return self.finished

    def close(self) -> None:
        """Ask for everything to be written and flushed, and the file closed."""
        self._closing = True

    def untold_error(self) -> errors.OpError | None:
        """The error that stopped the writing, unless it was taken before."""
        error = None if self._told or self._error is None else self._error.copy()
        self._told = True
        return error

    # ------------------------------------------------------------------ the owner's thread

    def take(self, now: float) -> Work | None:
        """What to do now; None: nothing, for `patience` or until something changes."""
        if self.finished:
            return None
        if self._error is not None:
            return Work([], False, True, self._asked) if self._closing else None
        dirty = self._dirty or bool(self._records)
        due = dirty and (self._next_flush is None or now >= self._next_flush)
        flush = due or self._asked > self._flushed or self._closing
        if not (self._records or flush):
            return None
        records, self._records = self._records, []
        return Work(records, flush, self._closing, self._asked)

    def patience(self, now: float) -> float | None:
        """Seconds until there is something to do if nothing changes; None: nothing ever."""
        if not self._dirty or self._next_flush is None or self._error is not None:
            return None
        return max(0.0, self._next_flush - now)

    def did(self, work: Work, now: float) -> None:
        """Note that this was done."""
        self._dirty = not work.flush
        if work.flush:
            self._flushed = work.ticket
            self._next_flush = now + self._flush_secs
        self.finished = work.close

    def failed(self, work: Work, error: errors.OpError) -> None:
        """Note that this could not be done; what waits is dropped, and all who wait are woken."""
        self._records = []
        self._error = self._error or error
        self.finished = work.close
