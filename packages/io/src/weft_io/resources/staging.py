"""Staging areas: tuples of prefetched tensors, in order or by key."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from weft_exec.resources.cancellation import Cancellation
from weft_exec.resources.resources import NOT_READY, CompletionCallback, Resource, Waiters
from weft_io.resources.values import Values
from weft_tensor import errors


def bytes_of(values: Sequence[Any]) -> int:
    """Return the memory of tensors in bytes, including the contents of strings."""
    total = 0
    for value in values:
        if isinstance(value, np.ndarray) and value.dtype.hasobject:
            total += sum([len(item) for item in value.flat if isinstance(item, bytes)])
        total += getattr(value, "nbytes", 0)
    return total


class _Area(Resource):
    """Base class of staging areas, with their limits and queues of waiters.

    There is a queue for puts, one for gets of the next tuple, and one for each key or index that an
    operation waits for.

    Args:
      name: name in messages.
      capacity: maximum number of tuples; 0 for no limit.
      memory_limit: maximum number of bytes; 0 for no limit.
    """

    kind = "staging area"

    def __init__(self, name: str, capacity: int, memory_limit: int) -> None:
        super().__init__(name)
        self.capacity = capacity
        self.memory_limit = memory_limit
        self._bytes = 0
        self._puts = Waiters()
        self._get_waiters = Waiters(self._puts.lock)
        self._lock = self._puts.lock
        self._lines: dict[int, _Line] = {}
        self._arrived_keys: set[int] = set()

    def pending(self) -> tuple[int, int]:
        """Return the number of waiting puts, and of waiting reads and gets."""
        with self._lock:
            particular = sum([len(line.waiters) for line in self._lines.values()])
            return len(self._puts), len(self._get_waiters) + particular

    def _check_size(self, size: int) -> None:
        if self.memory_limit and size > self.memory_limit:
            raise errors.ResourceExhaustedError(
                f"Attempted to insert tensors with combined size of '{size}' bytes into Staging "
                f"Area with a memory limit of '{self.memory_limit}'."
            )

    def _has_memory(self, size: int) -> bool:
        return not self.memory_limit or self._bytes + size <= self.memory_limit

    def _wait(
        self,
        line: Waiters,
        attempt: Callable[[], Any],
        completion: CompletionCallback,
        cancellation: Cancellation | None,
    ) -> None:
        line.wait(attempt, _Waiting(self, completion), cancellation)
        self.wake()

    def _wait_for(
        self,
        key: int,
        attempt: Callable[[], Any],
        completion: CompletionCallback,
        cancellation: Cancellation | None,
    ) -> None:
        """Wait for the tuple with a certain key or index."""
        with self._lock:
            line = self._lines.get(key)
            if line is None:
                line = self._lines[key] = _Line(Waiters(self._lock))
                if self.closed:
                    line.waiters.close(self._deleted_error())
            line.users += 1
        line.waiters.wait(attempt, _Waiting(self, completion, key), cancellation)
        self.wake()

    def leave(self, key: int) -> None:
        """Record the end of an operation that waited for a certain tuple."""
        with self._lock:
            line = self._lines[key]
            line.users -= 1
            if not line.users:
                del self._lines[key]

    def wake(self) -> None:
        """Wake all waiters that can proceed."""
        while True:
            Waiters.wake_all(self._puts, self._get_waiters)
            with self._lock:
                lines = [self._lines[key] for key in self._arrived_keys if key in self._lines]
                self._arrived_keys.clear()
            if not sum([line.waiters.wake() for line in lines]):
                return

    def _drop(self) -> None:
        """Drop all tuples; requires the lock."""
        raise NotImplementedError

    def clear(self) -> None:
        """Remove all tuples."""
        with self._lock:
            self._drop()
            self._bytes = 0
        self.wake()

    def _deleted_error(self) -> errors.CancelledError:
        return errors.CancelledError(f"the staging area {self.name!r} was deleted")

    def close(self) -> None:
        """Fail all waiters and drop the tuples, because the area was deleted."""
        super().close()
        with self._lock:
            lines = [line.waiters for line in self._lines.values()]
            self._drop()
        for line in (self._puts, self._get_waiters, *lines):
            line.close(self._deleted_error())


class _Line:
    """The waiters for one tuple, and the number of operations that use this queue."""

    __slots__ = ("users", "waiters")

    def __init__(self, waiters: Waiters) -> None:
        self.waiters = waiters
        self.users = 0


class _Waiting:
    """The completion of an operation on an area, which wakes other waiters if it fails."""

    __slots__ = ("_area", "_done", "_key")

    def __init__(self, area: _Area, completion: CompletionCallback, key: int | None = None) -> None:
        self._area = area
        self._done = completion
        self._key = key

    def __call__(self, value: Any = None) -> None:
        if self._key is not None:
            self._area.leave(self._key)
        self._done(value)

    def fail(self, error: BaseException) -> None:
        """Report the failure; other waiters may then proceed."""
        if self._key is not None:
            self._area.leave(self._key)
        self._done.fail(error)
        self._area.wake()


class StagingArea(_Area):
    """A FIFO of tuples."""

    def __init__(self, name: str, capacity: int = 0, memory_limit: int = 0) -> None:
        super().__init__(name, capacity, memory_limit)
        self._tuples: deque[tuple[Values, int]] = deque()

    def size(self) -> int:
        """Return the number of tuples."""
        return len(self._tuples)

    def put(
        self,
        values: Values,
        completion: CompletionCallback,
        cancellation: Cancellation | None = None,
    ) -> None:
        """Add a tuple as soon as there is space.

        Raises: ResourceExhaustedError: the tuple is larger than the memory limit.
        """
        size = bytes_of(values)
        self._check_size(size)

        def attempt() -> Any:
            full = bool(self.capacity) and len(self._tuples) >= self.capacity
            if full or not self._has_memory(size):
                return NOT_READY
            self._arrived_keys.add(len(self._tuples))
            self._tuples.append((values, size))
            self._bytes += size
            return None

        self._wait(self._puts, attempt, completion, cancellation)

    def get(self, completion: CompletionCallback, cancellation: Cancellation | None = None) -> None:
        """Remove and return the first tuple as soon as one is available."""

        def attempt() -> Any:
            if not self._tuples:
                return NOT_READY
            values, size = self._tuples.popleft()
            self._bytes -= size
            return values

        self._wait(self._get_waiters, attempt, completion, cancellation)

    def peek(
        self, index: int, completion: CompletionCallback, cancellation: Cancellation | None = None
    ) -> None:
        """Read the tuple at an index as soon as it is available.

        Raises: InvalidArgumentError: the index is negative.
        """
        if index < 0:
            raise errors.InvalidArgumentError(f"the index must not be negative, got {index}")

        def attempt() -> Any:
            if index >= len(self._tuples):
                return NOT_READY
            return self._tuples[index][0]

        self._wait_for(index, attempt, completion, cancellation)

    def _drop(self) -> None:
        self._tuples.clear()


Parts = dict[int, Any]
"""Components by their index."""


class MapStagingArea(_Area):
    """Tuples by key, whose components can be added and removed individually.

    Args:
      name: name in messages.
      ordered: True if `pop` removes the smallest key, False for the key completed first.
      capacity, memory_limit: as for `StagingArea`; incomplete tuples count only towards the memory
        limit.
    Attributes:
      components: number of components of a complete tuple; None before the first put.
    """

    kind = "map staging area"

    def __init__(
        self,
        name: str,
        ordered: bool,
        capacity: int = 0,
        memory_limit: int = 0,
    ) -> None:
        super().__init__(name, capacity, memory_limit)
        self.components: int | None = None
        self.ordered = ordered
        self._complete: dict[int, Parts] = {}
        self._incomplete: dict[int, Parts] = {}
        self._keys: list[int] = []  # a heap, when ordered; taken keys stay until they come up

    def size(self) -> int:
        """Return the number of complete tuples."""
        return len(self._complete)

    def incomplete_size(self) -> int:
        """Return the number of tuples that lack a component."""
        return len(self._incomplete)

    def put(
        self,
        key: int,
        indices: Sequence[int],
        values: Values,
        components: int,
        completion: CompletionCallback,
        cancellation: Cancellation | None = None,
    ) -> None:
        """Add components as soon as there is space.

        Args:
          indices: indices of the components.
          components: number of components of a complete tuple, the same in each call.
        Raises:
          InvalidArgumentError: indices are out of range or occur twice.
          ResourceExhaustedError: the components exceed the memory limit.
        Fails with: InvalidArgumentError: the key already has one of them, or is complete.
        """
        with self._lock:
            if self.components is None:
                self.components = components
        if self.components != components:
            raise errors.InvalidArgumentError(
                f"a tuple of the staging area {self.name!r} has {self.components} components, "
                f"got one of {components}"
            )
        self._check_indices(indices)
        if len(indices) != len(values):
            raise errors.InvalidArgumentError(
                f"requires a value per index, got {len(values)} values for {len(indices)} indices"
            )
        size = bytes_of(values)
        self._check_size(size)

        def attempt() -> Any:
            self._check_new(key, indices)
            missing = components - len(self._incomplete.get(key, ()))
            completes = missing == len(indices)
            full = completes and self.capacity and len(self._complete) >= self.capacity
            if full or not self._has_memory(size):
                return NOT_READY
            parts = self._incomplete.setdefault(key, {})
            parts.update(zip(indices, values, strict=True))
            self._bytes += size
            if completes:
                self._complete[key] = self._incomplete.pop(key)
                self._arrived_keys.add(key)
                if self.ordered:
                    heapq.heappush(self._keys, key)
            return None

        self._wait(self._puts, attempt, completion, cancellation)

    def get(
        self,
        key: int,
        indices: Sequence[int],
        completion: CompletionCallback,
        cancellation: Cancellation | None = None,
        *,
        remove: bool = True,
    ) -> None:
        """Remove or read components of a tuple as soon as it is complete.

        The tuple is removed with its last component.

        Fails with: InvalidArgumentError: a component was already removed.
        """
        self._check_indices(indices)

        def attempt() -> Any:
            parts = self._complete.get(key)
            return NOT_READY if parts is None else self._pick(key, parts, indices, remove)

        self._wait_for(key, attempt, completion, cancellation)

    def pop(
        self,
        indices: Sequence[int],
        completion: CompletionCallback,
        cancellation: Cancellation | None = None,
    ) -> None:
        """Remove components of the first tuple, once there is one; return the key first."""
        self._check_indices(indices)

        def attempt() -> Any:
            key = self._first_key()
            if key is None:
                return NOT_READY
            return np.int64(key), *self._pick(key, self._complete[key], indices, True)

        self._wait(self._get_waiters, attempt, completion, cancellation)

    def _first_key(self) -> int | None:
        if not self.ordered:
            return next(iter(self._complete), None)
        while self._keys and self._keys[0] not in self._complete:
            heapq.heappop(self._keys)
        return self._keys[0] if self._keys else None

    def _pick(self, key: int, parts: Parts, indices: Sequence[int], remove: bool) -> Values:
        missing = [index for index in indices if index not in parts]
        if missing:
            raise errors.InvalidArgumentError(
                f"the tensor at index {missing[0]} of key {key} has been taken already"
            )
        values = tuple([parts[index] for index in indices])
        if remove:
            for index in indices:
                del parts[index]
            self._bytes -= bytes_of(values)
            if not parts:
                del self._complete[key]
        return values

    def _check_indices(self, indices: Sequence[int]) -> None:
        if not indices or len(set(indices)) != len(indices):
            raise errors.InvalidArgumentError(
                f"indices must name at least one component, and each once, got {list(indices)}"
            )
        limit = self.components
        if min(indices) < 0 or (limit is not None and max(indices) >= limit):
            raise errors.InvalidArgumentError(
                f"indices must be in [0, {limit}), got {list(indices)}"
            )

    def _check_new(self, key: int, indices: Sequence[int]) -> None:
        if key in self._complete:
            raise errors.InvalidArgumentError(f"the key {key} is in the staging area already")
        parts = self._incomplete.get(key, {})
        for index in indices:
            if index in parts:
                raise errors.InvalidArgumentError(
                    f"The tensor for index '{index}' for key '{key}' was already initialized."
                )

    def _drop(self) -> None:
        self._complete.clear()
        self._incomplete.clear()
        self._keys.clear()
