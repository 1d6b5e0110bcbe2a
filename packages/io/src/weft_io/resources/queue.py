"""Bounded queues, with waiting, reservation and closing.

Enqueues and dequeues wait in two queues of waiters with one lock. A `dequeue_many` at the head
removes nothing before all its elements are available, so a canceled one has nothing to return. It
*reserves* the available elements, which then no longer count against the capacity. A queue can
therefore accept a batch larger than its capacity.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from weft_exec.resources.cancellation import Cancellation
from weft_exec.resources.resources import (
    DEFAULT_CONTAINER,
    NOT_READY,
    CompletionCallback,
    Resource,
    Waiters,
)
from weft_io.resources.chunks import Finish
from weft_io.resources.values import Empty, Values, shape_of
from weft_tensor import errors
from weft_tensor.dtypes import DType
from weft_tensor.shape import Dims, compatible_dims, format_dims

UNBOUNDED = 2**31 - 1
"""The capacity of an unbounded queue."""


class Store(Protocol):
    """The elements of a queue; the class determines their order."""

    def __len__(self) -> int:
        """Return the number of elements."""

    def add(self, values: Values) -> None:
        """Store one element."""

    def add_many(self, values: Values, start: int, stop: int) -> None:
        """Store the rows from `start` to `stop` as elements."""

    def take(self) -> Values:
        """Remove one element, which must exist."""
        ...

    def take_many(self, count: int, empty: Empty) -> Finish:
        """Remove `count` existing elements."""
        ...

    def clear(self) -> None:
        """Remove everything."""


class _Waiting:
    """The completion of an operation, which wakes other waiters if the operation fails."""

    __slots__ = ("_done", "_queue")

    def __init__(self, queue: Queue, completion: CompletionCallback) -> None:
        self._queue = queue
        self._done = completion

    def __call__(self, value: Any = None) -> None:
        self._done(value)

    def fail(self, error: BaseException) -> None:
        """Report the error; other waiters may then proceed."""
        self._queue.gave_up(self)
        self._done.fail(error)


class _BatchDequeue(_Waiting):
    """The completion of a `dequeue_many`, which joins the values after the lock is released."""

    __slots__ = ()

    def __call__(self, value: Any = None) -> None:
        try:
            values = value()
        except Exception as error:  # because the step needs an answer in any case
            self._done.fail(error)
            return
        self._done(values)


class Queue(Resource):
    """A queue of elements with several components, enqueued and dequeued by steps that may wait.

    Operations complete through `done`, immediately or later, with a tuple of values or None.

    Args:
      name: name in messages.
      flavour: the kind of queue in messages, such as "FIFOQueue".
      types: element type of each component.
      shapes: static shape of each component, at least partly known; empty for any.
      capacity: maximum number of elements; unbounded if negative.
      store: the elements.
      minimum: number of elements that stay in an open queue after a `dequeue`.
      seeds: the initial seeds of a random order, which all users of the queue must share.
    Attributes:
      is_closed: True if the queue rejects new elements.
    """

    kind = "queue"

    def __init__(
        self,
        name: str,
        flavour: str,
        types: Sequence[DType],
        shapes: Sequence[Dims],
        capacity: int,
        store: Store,
        minimum: int = 0,
        seeds: tuple[int, int] = (0, 0),
        container: str = DEFAULT_CONTAINER,
    ) -> None:
        super().__init__(name, container)
        self.flavour = flavour
        self.types = tuple(types)
        self.shapes = tuple(shapes)
        self.capacity = UNBOUNDED if capacity < 0 else capacity
        self.min_after_dequeue = minimum
        self.seeds = seeds
        self.is_closed = False
        self._store = store
        self._enqueues = Waiters()
        self._dequeues = Waiters(self._enqueues.lock)
        self._lock = self._enqueues.lock
        self._reserving: _Waiting | None = None
        self._num_wanted = 0
        self._stalled: set[_Waiting] = set()

    # ------------------------------------------------------------------ looking

    def size(self) -> int:
        """Return the number of elements, except those reserved by a waiting `dequeue_many`."""
        with self._lock:
            return len(self._store) - self._num_reserved()

    def pending(self) -> tuple[int, int]:
        """Return the numbers of waiting enqueues and dequeues."""
        return len(self._enqueues), len(self._dequeues)

    # ------------------------------------------------------------------ putting in

    def enqueue(
        self,
        values: Values,
        completion: CompletionCallback,
        cancellation: Cancellation | None = None,
        deadline: float | None = None,
    ) -> None:
        """Enqueue one element as soon as there is space.

        Args:
          values: one value per component; the queue keeps them.
        Raises: InvalidArgumentError: a shape is incompatible.
        Fails with: CancelledError: the queue is closed.
        """
        for i, (value, dims) in enumerate(zip(values, self.shapes, strict=False)):
            shape = shape_of(value)
            if shape != dims and not compatible_dims(dims, shape):
                raise self._mismatch(i, dims, shape)

        waiting = _Waiting(self, completion)

        def attempt() -> Any:
            self._check_open()
            if self._room() <= 0:
                return self._stall(waiting)
            self._store.add(values)
            self._stalled.discard(waiting)
            return None

        self._enqueues.wait(attempt, waiting, cancellation, deadline)
        self._wake()

    def enqueue_many(
        self,
        values: Values,
        completion: CompletionCallback,
        cancellation: Cancellation | None = None,
        deadline: float | None = None,
    ) -> None:
        """Enqueue the rows of a batch, in groups that fit.

        If it is canceled, the rows enqueued so far remain.

        Args:
          values: one value per component,
            with equal sizes of the first axis; the queue keeps them.
        Raises: InvalidArgumentError: a shape is incompatible.
        Fails with: CancelledError: the queue is closed.
        """
        stop = self._batch_size(values)
        if not stop:
            completion(None)
            return
        start = 0
        waiting = _Waiting(self, completion)

        def attempt() -> Any:
            nonlocal start
            self._check_open()
            while (count := min(self._room(), stop - start)) > 0:
                self._store.add_many(values, start, start + count)
                start += count
            if start < stop:
                return self._stall(waiting)
            self._stalled.discard(waiting)
            return None

        self._enqueues.wait(attempt, waiting, cancellation, deadline)
        self._wake()

    def close_queue(
        self,
        cancel_pending: bool,
        completion: CompletionCallback,
        cancellation: Cancellation | None = None,
    ) -> None:
        """Close the queue: reject new elements.

        Without `cancel_pending`, it first waits for the waiting enqueues.

        Fails with: CancelledError: the queue is closed already, and `cancel_pending` is false.
        """

        def attempt() -> Any:
            if self.is_closed:
                raise errors.CancelledError(f"{self.flavour} {self.name!r} is already closed.")
            self.is_closed = True
            return None

        if cancel_pending:
            with self._lock:
                self.is_closed = True
            self._enqueues.fail_all(
                errors.CancelledError(
                    f"Enqueue operation was cancelled: {self.flavour} {self.name!r} was closed"
                )
            )
            completion(None)
        else:
            self._enqueues.wait(attempt, _Waiting(self, completion), cancellation)
        self._wake()

    # ------------------------------------------------------------------ taking out

    def dequeue(
        self,
        completion: CompletionCallback,
        cancellation: Cancellation | None = None,
        deadline: float | None = None,
    ) -> None:
        """Dequeue one element as soon as one is available.

        Fails with: OutOfRangeError: the queue is closed and empty.
        """
        waiting = _Waiting(self, completion)

        def attempt() -> Any:
            self._reserving = None
            if self._available() > 0:
                self._stalled.discard(waiting)
                return self._store.take()
            if self.is_closed:
                raise self._exhausted_error(1)
            return self._stall(waiting)

        self._dequeues.wait(attempt, waiting, cancellation, deadline)
        self._wake()

    def dequeue_many(
        self,
        count: int,
        empty: Empty,
        completion: CompletionCallback,
        cancellation: Cancellation | None = None,
        deadline: float | None = None,
        *,
        up_to: bool = False,
    ) -> None:
        """Dequeue `count` elements as a batch as soon as that many are available.

        Args:
          count: number of elements; for 0, an empty batch is returned immediately.
          empty: allocator of the batches.
          up_to: True if a closed queue may return fewer elements, but at least one.
        Raises: InvalidArgumentError: `count` is negative, or the components have no shapes.
        Fails with: OutOfRangeError: the queue is closed and has too few elements, which remain.
        """
        self._check_batches(count)
        waiting = _BatchDequeue(self, completion)

        def attempt() -> Any:
            self._reserving = None
            if self._available() >= count:
                self._stalled.discard(waiting)
                return self._store.take_many(count, empty)
            if self.is_closed:
                num_remaining = len(self._store)
                if not up_to or not num_remaining:
                    raise self._exhausted_error(count)
                self._stalled.discard(waiting)
                return self._store.take_many(num_remaining, empty)
            self._reserving, self._num_wanted = waiting, count
            return self._stall(waiting)

        if not count:
            with self._lock:
                values = self._store.take_many(0, empty)
            waiting(values)
            return
        self._dequeues.wait(attempt, waiting, cancellation, deadline)
        self._wake()

    # ------------------------------------------------------------------ the end

    def gave_up(self, waiting: _Waiting) -> None:
        """Handle the failure of a waiting operation, which may let others proceed."""
        with self._lock:
            self._stalled.discard(waiting)
            if self._reserving is waiting:
                self._reserving = None
        Waiters.wake_all(self._enqueues, self._dequeues)

    def close(self) -> None:
        """Fail all waiters and drop the elements, because the queue was deleted."""
        super().close()
        cancelled_error = errors.CancelledError(f"{self.flavour} {self.name!r} was deleted")
        self._enqueues.close(cancelled_error)
        self._dequeues.close(cancelled_error)
        with self._lock:
            self._store.clear()

    # ------------------------------------------------------------------ with the lock held

    def _stall(self, waiting: _Waiting) -> Any:
        """Handle a waiting operation at the head that cannot proceed."""
        self._stalled.add(waiting)
        return NOT_READY

    def _available(self) -> int:
        return len(self._store) - (0 if self.is_closed else self.min_after_dequeue)

    def _num_reserved(self) -> int:
        return 0 if self._reserving is None else max(0, min(self._num_wanted, self._available()))

    def _room(self) -> int:
        return self.capacity + self._num_reserved() - len(self._store)

    def _check_open(self) -> None:
        if self.is_closed:
            raise errors.CancelledError(f"{self.flavour} {self.name!r} is closed.")

    def _exhausted_error(self, count: int) -> errors.OutOfRangeError:
        return errors.OutOfRangeError(
            f"{self.flavour} {self.name!r} is closed and has insufficient elements "
            f"(requested {count}, current size {len(self._store)})"
        )

    # ------------------------------------------------------------------ without it

    def _wake(self) -> None:
        """Wake the waiters that can proceed after a change; usually there are none."""
        if self._stalled:
            Waiters.wake_all(self._enqueues, self._dequeues)

    def _batch_size(self, values: Values) -> int:
        shapes = [shape_of(value) for value in values]
        if not all(shapes):
            raise errors.InvalidArgumentError(
                f"{self.flavour} {self.name!r}: enqueue_many requires a first axis, got shapes "
                + ", ".join([format_dims(shape) for shape in shapes])
            )
        size = shapes[0][0]
        for i, shape in enumerate(shapes):
            dims = self.shapes[i] if self.shapes else None
            if shape[0] != size or (dims != shape[1:] and not compatible_dims(dims, shape[1:])):
                expected = None if dims is None else (size, *dims)
                raise self._mismatch(i, expected, shape, size)
        return size

    def _check_batches(self, count: int) -> None:
        if count < 0:
            raise errors.InvalidArgumentError(
                f"{self.flavour} {self.name!r}: the number of elements must not be negative, "
                f"got {count}"
            )
        if not self.shapes or None in self.shapes:
            raise errors.InvalidArgumentError(
                f"{self.flavour} {self.name!r}: DequeueMany and DequeueUpTo require the components "
                "to have specified shapes."
            )

    def _mismatch(
        self, component: int, dims: Dims, shape: tuple[int, ...], size: int | None = None
    ) -> errors.InvalidArgumentError:
        expected = format_dims(dims)
        if dims is None and size is not None:
            expected = f"a first size of {size}, that of component 0"
        return errors.InvalidArgumentError(
            f"{self.flavour} {self.name!r}: Shape mismatch in tuple component {component}. "
            f"Expected {expected}, got {format_dims(shape)}"
        )
