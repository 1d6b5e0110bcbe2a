"""The line in front of an event file: an object without threads, in any order of events."""

from __future__ import annotations

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from weft_io.summary.event_queue import EventQueue, Work
from weft_tensor import errors

FULL_DISK = errors.ResourceExhaustedError("the disk is full")


def test_the_first_record_is_flushed_at_once_and_others_in_time() -> None:
    queue = EventQueue(10, 60)
    assert queue.take(0.0) is None and queue.patience(0.0) is None
    queue.add(b"a")
    work = queue.take(1.0)
    assert work is not None and (work.records, work.flush, work.close) == ([b"a"], True, False)
    queue.complete(work, 2.0)
    queue.add(b"b")
    queue.add(b"c")
    work = queue.take(3.0)
    assert work is not None and (work.records, work.flush) == ([b"b", b"c"], False)
    queue.complete(work, 3.0)
    assert queue.take(61.0) is None and queue.patience(61.0) == 1.0
    work = queue.take(62.0)
    assert work is not None and (work.records, work.flush) == ([], True)
    queue.complete(work, 62.0)
    assert queue.take(1e9) is None and queue.patience(1e9) is None


def test_a_flush_covers_what_was_added_before_it() -> None:
    queue = EventQueue(10, 60)
    queue.add(b"a")
    first = queue.request_flush()
    work = queue.take(0.0)
    assert work is not None
    second = queue.request_flush()
    assert not queue.is_flushed(first)
    queue.complete(work, 0.0)
    assert queue.is_flushed(first) and not queue.is_flushed(second)
    work = queue.take(0.0)
    assert work is not None and (work.records, work.flush) == ([], True)
    queue.complete(work, 0.0)
    assert queue.is_flushed(second)


def test_a_full_line() -> None:
    queue = EventQueue(2, 60)
    queue.add(b"a")
    assert not queue.full
    queue.add(b"b")
    assert queue.full
    assert queue.take(0.0) is not None
    assert not queue.full


@pytest.mark.parametrize("limit", [0, -1])
def test_a_line_without_limit(limit: int) -> None:
    queue = EventQueue(limit, 60)
    for _ in range(1000):
        queue.add(b"a")
    assert not queue.full


def test_failures_are_told_to_everybody_until_it_is_closed() -> None:
    queue = EventQueue(1, 60)
    queue.add(b"a")
    ticket = queue.request_flush()
    work = queue.take(0.0)
    assert work is not None
    queue.add(b"lost")
    queue.failed(work, FULL_DISK)
    assert not queue.full
    for ask in (lambda: queue.add(b"b"), queue.request_flush, lambda: queue.is_flushed(ticket)):
        with pytest.raises(errors.ResourceExhaustedError, match="full"):
            ask()
    assert queue.take(0.0) is None and queue.patience(0.0) is None
    queue.close()
    work = queue.take(0.0)
    assert work is not None and (work.records, work.flush, work.close) == ([], False, True)
    queue.complete(work, 0.0)
    assert queue.finished and queue.untold_error() is None


def test_a_failure_that_nobody_heard_of_is_told_once() -> None:
    queue = EventQueue(1, 60)
    queue.add(b"a")
    queue.close()
    work = queue.take(0.0)
    assert work is not None and work.flush and work.close
    queue.failed(work, FULL_DISK)
    assert queue.finished
    assert isinstance(queue.untold_error(), errors.ResourceExhaustedError)
    assert queue.untold_error() is None


def test_nothing_is_dropped_in_silence_while_it_closes() -> None:
    queue = EventQueue(1, 60)
    queue.close()
    with pytest.raises(errors.FailedPreconditionError, match="being closed"):
        queue.add(b"a")


class Machine(RuleBasedStateMachine):
    """Everything that is added is written once and in order, and flushed when it was promised."""

    def __init__(self) -> None:
        super().__init__()
        self.queue = EventQueue(3, 10)
        self.now = 0.0
        self.added = 0
        self.written: list[bytes] = []
        self.durable = 0
        self.oldest: float | None = None
        self.tickets: list[tuple[int, int]] = []
        self.work: Work | None = None
        self.closing = self.failed = False

    @precondition(lambda self: not self.closing and not self.failed and not self.queue.full)
    @rule()
    def add(self) -> None:
        self.queue.add(b"%d" % self.added)
        self.added += 1

    @precondition(lambda self: not self.failed)
    @rule()
    def ask_flush(self) -> None:
        self.tickets.append((self.queue.request_flush(), self.added))

    @rule()
    def close(self) -> None:
        self.queue.close()
        self.closing = True

    @rule(seconds=st.floats(0, 20))
    def wait(self, seconds: float) -> None:
        if self.oldest is not None and not self.failed:
            # The owner wakes up in time, and what it is at ends in time.
            patience = self.queue.patience(self.now)
            assert patience is not None
            seconds = min(seconds, patience)
        self.now += seconds

    @precondition(lambda self: self.work is None)
    @rule()
    def take(self) -> None:
        self.work = self.queue.take(self.now)

    @precondition(lambda self: self.work is not None)
    @rule()
    def carry_out(self) -> None:
        work, self.work = self.work, None
        assert work is not None
        self.written += work.records
        if work.records and self.oldest is None:
            self.oldest = self.now
        if work.flush:
            self.durable, self.oldest = len(self.written), None
        self.queue.complete(work, self.now)

    @precondition(lambda self: self.work is not None)
    @rule()
    def fail(self) -> None:
        work, self.work = self.work, None
        assert work is not None
        self.queue.failed(work, FULL_DISK)
        self.failed = True

    @invariant()
    def written_in_order(self) -> None:
        assert self.written == [b"%d" % i for i in range(len(self.written))]

    @invariant()
    def promises(self) -> None:
        if not self.failed:
            for ticket, added in self.tickets:
                assert not self.queue.is_flushed(ticket) or self.durable >= added
            if self.oldest is not None:
                assert self.now - self.oldest <= 10
            if self.queue.finished:
                assert self.durable == self.added
        assert not (self.queue.finished and self.queue.take(self.now))


TestMachine = Machine.TestCase
