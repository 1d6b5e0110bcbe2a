"""Every kind of queue against a simple model: completed and waiting operations."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import pytest
from hypothesis import settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from weft_testing.waiting import Recorder, empty

from weft_exec.resources.cancellation import Cancellation
from weft_io.resources.chunks import ChunkStore, PaddingStore
from weft_io.resources.element_order import PriorityStore, ShufflingStore
from weft_io.resources.queue import Queue, Store
from weft_tensor import dtypes, errors

Row = tuple[int, int]
"""Priority and number of an element; the number says everything else about it."""


def rows_of(values: Any) -> list[Row]:
    """Return the elements of a single or batched dequeue."""
    priorities, numbers = np.atleast_1d(values[0]), np.atleast_1d(values[2])
    return list(zip(priorities.tolist(), map(int, numbers), strict=True))


class Operation:
    """One call, with the results of the queue and of the model."""

    def __init__(self) -> None:
        self.done = Recorder()
        self.cancellation = Cancellation()
        self.outcome: Any = None
        self.rows: list[Row] = []
        self.count = 0
        self.many = False
        self.up_to = False
        self.closes = False


class Model:
    """A model of lists and loops. The first waiting `dequeue_many` reserves available elements.

    It reserves each element that arrives, but the elements are only chosen when all are there.
    """

    def __init__(self, kind: str, capacity: int, least: int) -> None:
        self.kind, self.capacity, self.least = kind, capacity, least
        self.inside: list[Row] = []
        self.held = 0
        self.closed = False
        self.enqueues: list[Operation] = []
        self.dequeues: list[Operation] = []

    def settle(self) -> None:
        while self._put() + self._take():
            pass

    def _put(self) -> int:
        finished = 0
        while self.enqueues:
            head = self.enqueues[0]
            if self.closed:
                head.outcome = errors.CancelledError
            elif head.closes:
                self.closed, head.outcome = True, None
            else:
                while head.rows and len(self.inside) - self.held < self.capacity:
                    self.inside.append(head.rows.pop(0))
                    if self.dequeues and self.dequeues[0].many:
                        self._grab(self.dequeues[0])
                if head.rows:
                    return finished
                head.outcome = None
            self.enqueues.pop(0)
            finished += 1
        return finished

    def _take(self) -> int:
        finished = 0
        while self.dequeues:
            head = self.dequeues[0]
            before = self.held
            self._grab(head)
            if self.held < head.count and not self.closed:
                return finished + self.held - before
            enough = self.held == head.count or (head.up_to and self.inside)
            head.outcome = self._pick(head) if enough else errors.OutOfRangeError
            self.held = 0
            self.dequeues.pop(0)
            finished += 1
        return finished

    def _grab(self, head: Operation) -> None:
        free = len(self.inside) - self.held - (0 if self.closed else self.least)
        self.held += max(0, min(free, head.count - self.held))

    def _pick(self, head: Operation) -> list[Row]:
        count = self.held
        if self.kind == "shuffling":
            rows = rows_of(head.done.value)  # it may choose, but only among those inside
            assert len(rows) == count
        else:
            rows = sorted(self.inside) if self.kind == "priority" else list(self.inside)
        for row in rows[:count]:
            self.inside.remove(row)
        return rows[:count]

    def drop(self, operation: Operation) -> None:
        if operation in self.enqueues:
            self.enqueues.remove(operation)
        else:
            if self.dequeues[0] is operation:
                self.held = 0
            self.dequeues.remove(operation)
        operation.outcome = errors.CancelledError


class QueueMachine(RuleBasedStateMachine):
    """Calls in any order, and after each the comparison."""

    kind: ClassVar[str] = "fifo"
    width: ClassVar[int] = 2
    """Numbers in the second component of an element; many make the stores keep it by itself."""

    def __init__(self) -> None:
        super().__init__()
        self.queue: Queue | None = None
        self.running: list[Operation] = []
        self.entered: set[Row] = set()
        self.left: set[Row] = set()
        self.number = 0

    # ------------------------------------------------------------------ making it

    @precondition(lambda self: self.queue is None)
    @rule(capacity=st.sampled_from([0, 1, 2, 3, 5, 8, -1]), least=st.integers(0, 3))
    def make(self, capacity: int, least: int) -> None:
        if self.kind != "shuffling" or 0 <= capacity <= least:
            least = 0
        types = (dtypes.int64, dtypes.float32, dtypes.string)
        size = None if self.kind == "padding" else self.width
        shapes = ((), (size,), ())
        stores: dict[str, Store] = {
            "fifo": ChunkStore(types, shapes),
            "padding": PaddingStore(types, shapes),
            "priority": PriorityStore(types, shapes),
            "shuffling": ShufflingStore(types, shapes, (7, 1)),
        }
        self.queue = Queue("q", "Queue", types, shapes, capacity, stores[self.kind], least)
        self.model = Model(self.kind, self.queue.capacity, least)

    def values(self, rows: list[Row], sizes: list[int]) -> tuple[Any, ...]:
        """The components of elements as a batch."""
        wide = np.zeros((len(rows), max(sizes, default=self.width)), np.float32)
        for line, row, size in zip(wide, rows, sizes, strict=True):
            line[:size] = row[1] + 0.5
        texts = np.array([str(row[1]).encode() for row in rows], object)
        return np.array([row[0] for row in rows], np.int64), wide, texts

    def size_of(self, row: Row) -> int:
        return row[1] % 4 if self.kind == "padding" else self.width

    def new_rows(self, count: int, priority: int) -> list[Row]:
        """Elements of one batch; the number, which grows, decides among equal priorities."""
        rows = []
        for i in range(count):
            self.number += 1
            rows.append(((priority + 3 * i) % 5, self.number))
        return rows

    # ------------------------------------------------------------------ calls

    def started(self, operation: Operation, line: list[Operation]) -> None:
        line.append(operation)
        self.running.append(operation)

    @precondition(lambda self: self.queue is not None)
    @rule(priority=st.integers(0, 4))
    def enqueue(self, priority: int) -> None:
        assert self.queue is not None
        operation = Operation()
        (row,) = operation.rows = self.new_rows(1, priority)
        self.entered.add(row)
        batch = self.values([row], [self.size_of(row)])
        self.started(operation, self.model.enqueues)
        element = (batch[0][0], batch[1][0], np.array(batch[2][0], object))
        self.queue.enqueue(element, operation.done, operation.cancellation)

    @precondition(lambda self: self.queue is not None)
    @rule(count=st.integers(0, 7), priority=st.integers(0, 4))
    def enqueue_many(self, count: int, priority: int) -> None:
        assert self.queue is not None
        operation = Operation()
        rows = operation.rows = self.new_rows(count, priority)
        self.entered.update(rows)
        size = self.size_of(rows[0]) if rows else self.width
        values = self.values(rows, [size] * count)
        if count:
            self.started(operation, self.model.enqueues)
        self.queue.enqueue_many(values, operation.done, operation.cancellation)
        if not count:
            assert operation.done.value is None

    @precondition(lambda self: self.queue is not None)
    @rule()
    def dequeue(self) -> None:
        assert self.queue is not None
        operation = Operation()
        operation.count = 1
        self.started(operation, self.model.dequeues)
        self.queue.dequeue(operation.done, operation.cancellation)

    @precondition(lambda self: self.queue is not None)
    @rule(count=st.integers(0, 9), up_to=st.booleans())
    def dequeue_many(self, count: int, up_to: bool) -> None:
        assert self.queue is not None
        operation = Operation()
        operation.count, operation.many, operation.up_to = count, True, up_to
        if count:
            self.started(operation, self.model.dequeues)
        self.queue.dequeue_many(count, empty, operation.done, operation.cancellation, up_to=up_to)
        if not count:
            assert [len(part) for part in operation.done.value] == [0, 0, 0]

    @precondition(lambda self: self.queue is not None and len(self.entered) > 6)
    @rule(cancel=st.booleans())
    def close(self, cancel: bool) -> None:
        assert self.queue is not None
        operation = Operation()
        operation.closes = True
        if cancel:
            for pending in list(self.model.enqueues):
                self.model.drop(pending)
            self.model.closed = True
        else:
            self.started(operation, self.model.enqueues)
        self.queue.close_queue(cancel, operation.done, operation.cancellation)
        assert not cancel or operation.done.value is None

    @precondition(lambda self: self.running)
    @rule(data=st.data(), late=st.booleans())
    def give_up(self, data: st.DataObject, late: bool) -> None:
        operation = data.draw(st.sampled_from(self.running))
        self.model.drop(operation)
        error = errors.DeadlineExceededError if late else errors.CancelledError
        operation.outcome = error
        operation.cancellation.cancel(error("the step ended"))

    # ------------------------------------------------------------------ what must hold

    @invariant()
    def agrees(self) -> None:
        if self.queue is None:
            return
        model = self.model
        model.settle()
        waiting = [*model.enqueues, *model.dequeues]
        for operation in list(self.running):
            if operation not in waiting:
                self.running.remove(operation)
                self.finished(operation)
            assert operation.done.waits == (operation in waiting)
        assert self.queue.pending() == (len(model.enqueues), len(model.dequeues))
        assert self.queue.is_closed == model.closed
        assert self.queue.size() == len(model.inside) - model.held

    def finished(self, operation: Operation) -> None:
        wanted = operation.outcome
        if isinstance(wanted, type):
            with pytest.raises(wanted):
                raise operation.done.told[0]
            # Rows of a batch that was cut short stay outside.
            self.entered.difference_update(operation.rows)
        elif wanted is None:
            assert operation.done.value is None
        else:
            self.compare(operation, wanted)

    def compare(self, operation: Operation, wanted: list[Row]) -> None:
        values = operation.done.value
        rows = rows_of(values)
        assert rows == wanted
        assert self.left.isdisjoint(rows)
        self.left.update(rows)
        for row, line in zip(rows, values[1].reshape(len(rows), -1), strict=True):
            wide = line[line != 0]
            assert set(wide.tolist()) <= {row[1] + 0.5}
            assert self.kind == "padding" or len(wide) == self.width

    def teardown(self) -> None:
        if self.queue is None:
            return
        self.close(True)
        self.agrees()
        assert not self.running and self.queue.pending() == (0, 0)
        rest = Operation()
        rest.count, rest.many, rest.up_to = 10**6, True, True
        if self.queue.size():
            self.started(rest, self.model.dequeues)
            self.queue.dequeue_many(rest.count, empty, rest.done, up_to=True)
            self.agrees()
        assert self.left == self.entered


class PaddingMachine(QueueMachine):
    kind = "padding"


class PriorityMachine(QueueMachine):
    kind = "priority"


class ShufflingMachine(QueueMachine):
    kind = "shuffling"


class LargePriorityMachine(PriorityMachine):
    width = 2000


class LargeShufflingMachine(ShufflingMachine):
    width = 2000


MACHINES = (
    QueueMachine,
    PaddingMachine,
    PriorityMachine,
    ShufflingMachine,
    LargePriorityMachine,
    LargeShufflingMachine,
)
for machine in MACHINES:
    machine.TestCase.settings = settings(stateful_step_count=40)

TestFifo = QueueMachine.TestCase
TestPadding = PaddingMachine.TestCase
TestPriority = PriorityMachine.TestCase
TestShuffling = ShufflingMachine.TestCase
TestLargePriority = LargePriorityMachine.TestCase
TestLargeShuffling = LargeShufflingMachine.TestCase


@pytest.mark.long
@pytest.mark.parametrize("machine", MACHINES)
def test_many_more_programs(machine: type[QueueMachine]) -> None:
    from hypothesis.stateful import run_state_machine_as_test

    many = settings(max_examples=1000, stateful_step_count=50)
    run_state_machine_as_test(machine, settings=many)
