"""Storage of elements that are taken at random or by priority."""

from __future__ import annotations

import heapq
from collections.abc import Sequence

import numpy as np

from weft_exec.kernels import philox
from weft_io.resources.chunks import Finish
from weft_io.resources.columns import column_for
from weft_io.resources.values import Empty, Values
from weft_tensor.dtypes import DType
from weft_tensor.shape import Dims

_MIN_SLOTS = 16
_MAX_IDLE = 1024
"""Capacity that an empty store retains."""


class _Table:
    """Columns with spare capacity, up to four times the number of elements."""

    def __init__(self, types: Sequence[DType], shapes: Sequence[Dims]) -> None:
        self._types = tuple(types)
        self._shapes = tuple(shapes) or (None,) * len(types)
        self._columns = [column_for(t, s) for t, s in zip(types, self._shapes, strict=True)]
        self._num_slots = 0

    def _reserve(self, needed: int) -> None:
        if needed > self._num_slots:
            self._resize(max(needed, 2 * self._num_slots, _MIN_SLOTS))

    def _resize(self, slots: int) -> None:
        for column in self._columns:
            column.resize(slots)
        self._num_slots = slots

    def _gather(self, array: np.ndarray, empty: Empty) -> list[np.ndarray]:
        targets = []
        for column, dtype, dims in zip(self._columns, self._types, self._shapes, strict=True):
            row = tuple([size or 0 for size in dims or ()])
            target = empty((len(array), *row), dtype.numpy)
            column.get_many(array, target)
            targets.append(target)
        return targets


class ShufflingStore(_Table):
    """A store whose elements are taken at random with equal probability.

    Args:
      types, shapes: element type and static shape of each component.
      seeds: seeds of the random choices; (0, 0) for different choices in each run.
    """

    def __init__(
        self, types: Sequence[DType], shapes: Sequence[Dims], seeds: tuple[int, int] = (0, 0)
    ) -> None:
        super().__init__(types, shapes)
        philox_seeds = philox.random_key() if seeds == (0, 0) else seeds
        entropy = [seed & 0xFFFFFFFFFFFFFFFF for seed in philox_seeds]
        self._random = np.random.Generator(np.random.Philox(np.random.SeedSequence(entropy)))
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def add(self, values: Values) -> None:
        """Store one element."""
        self._reserve(self._size + 1)
        for column, value in zip(self._columns, values, strict=True):
            column.put(self._size, value)
        self._size += 1

    def add_many(self, values: Values, start: int, stop: int) -> None:
        """Store the rows from `start` to `stop` as elements."""
        end = self._size + stop - start
        self._reserve(end)
        for column, batch in zip(self._columns, values, strict=True):
            column.put_many(slice(self._size, end), batch, start, stop)
        self._size = end

    def take(self) -> Values:
        """Remove one element."""
        slot, last = int(self._random.random() * self._size), self._size - 1
        values = tuple([column.get(slot) for column in self._columns])
        for column in self._columns:
            if slot != last:
                column.move(slot, last)
            column.forget(last)
        self._shrink(last)
        return values

    def take_many(self, count: int, empty: Empty) -> Finish:
        """Remove `count` elements in random order; they must exist.

        Returns: a function that returns the elements as a batch.
        """
        selected = self._random.choice(self._size, count, replace=False)
        values = tuple(self._gather(selected, empty))
        num_remaining = self._size - count
        stay = np.ones(count, bool)
        stay[selected[selected >= num_remaining] - num_remaining] = False
        holes, movers = selected[selected < num_remaining], num_remaining + np.flatnonzero(stay)
        for column in self._columns:
            column.move(holes, movers)
            column.forget(slice(num_remaining, self._size))
        self._shrink(num_remaining)
        return lambda: values

    def clear(self) -> None:
        """Remove all elements."""
        self._resize(0)
        self._size = 0

    def _shrink(self, size: int) -> None:
        self._size = size
        if self._num_slots > 4 * max(size, _MIN_SLOTS):
            self._resize(2 * max(size, _MIN_SLOTS))


class PriorityStore(_Table):
    """A store of elements by ascending first component; equal ones keep their order of arrival.

    The first component is int64 of rank 0 and is stored only in the heap.
    """

    def __init__(self, types: Sequence[DType], shapes: Sequence[Dims]) -> None:
        super().__init__(types[1:], shapes[1:])
        self._priority = types[0].numpy
        self._heap: list[tuple[int, int, int]] = []
        self._free: list[int] = []
        self._arrivals = 0

    def __len__(self) -> int:
        return len(self._heap)

    def add(self, values: Values) -> None:
        """Store one element."""
        (slot,) = self._claim(1)
        for column, value in zip(self._columns, values[1:], strict=True):
            column.put(slot, value)
        self._push([int(values[0])], [slot])

    def add_many(self, values: Values, start: int, stop: int) -> None:
        """Store the rows from `start` to `stop` as elements."""
        slots = self._claim(stop - start)
        rows = np.array(slots)
        for column, batch in zip(self._columns, values[1:], strict=True):
            column.put_many(rows, batch, start, stop)
        self._push(values[0][start:stop].tolist(), slots)

    def take(self) -> Values:
        """Remove the first element."""
        priority, _, slot = heapq.heappop(self._heap)
        values = [column.get(slot) for column in self._columns]
        self._release([slot])
        return (self._priority.type(priority), *values)

    def take_many(self, count: int, empty: Empty) -> Finish:
        """Remove the first `count` elements, which must exist.

        Returns: a function that returns the elements as a batch.
        """
        priorities = empty((count,), self._priority)
        heap = self._heap
        limit = 2 * count > len(heap)
        if limit:
            heap.sort()  # which is a heap, too
        first = heap[:count] if limit else heapq.nsmallest(count, heap)
        slots = np.array([slot for _, _, slot in first], np.intp)
        values = (priorities, *self._gather(slots, empty))
        priorities[:] = [priority for priority, _, _ in first]
        if limit:
            del heap[:count]
        else:
            for _ in first:
                heapq.heappop(heap)
        self._release(slots.tolist())
        return lambda: values

    def clear(self) -> None:
        """Remove all elements."""
        self._heap.clear()
        self._free.clear()
        self._resize(0)

    def _claim(self, count: int) -> list[int]:
        missing = count - len(self._free)
        if missing > 0:
            num_before = self._num_slots
            self._reserve(num_before + missing)
            self._free.extend(range(self._num_slots - 1, num_before - 1, -1))
        slots = self._free[len(self._free) - count :]
        del self._free[len(self._free) - count :]
        return slots

    def _push(self, priorities: Sequence[int], slots: Sequence[int]) -> None:
        new = zip(
            priorities, range(self._arrivals, self._arrivals + len(slots)), slots, strict=True
        )
        self._arrivals += len(slots)
        if len(slots) > len(self._heap):
            self._heap.extend(new)
            heapq.heapify(self._heap)
        else:
            for item in new:
                heapq.heappush(self._heap, item)

    def _release(self, slots: Sequence[int]) -> None:
        if not self._heap and self._num_slots > _MAX_IDLE:
            self._resize(0)
            self._free.clear()
            return
        for column in self._columns:
            column.forget(np.asarray(slots, np.intp))
        self._free.extend(slots)
