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

_FEWEST = 16
_MOST_IDLE = 1024
"""Capacity that an empty store retains."""


class _Table:
    """Columns with spare capacity, up to four times the number of elements."""

    def __init__(self, types: Sequence[DType], shapes: Sequence[Dims]) -> None:
        self._types = tuple(types)
        self._shapes = tuple(shapes) or (None,) * len(types)
        self._columns = [column_for(t, s) for t, s in zip(types, self._shapes, strict=True)]
        self._places = 0

    def _reserve(self, needed: int) -> None:
        if needed > self._places:
            self._resize(max(needed, 2 * self._places, _FEWEST))

    def _resize(self, places: int) -> None:
        for column in self._columns:
            column.resize(places)
        self._places = places

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
        philox_seeds = philox.entropy() if seeds == (0, 0) else seeds
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
        place, last = int(self._random.random() * self._size), self._size - 1
        values = tuple([column.get(place) for column in self._columns])
        for column in self._columns:
            if place != last:
                column.move(place, last)
            column.forget(last)
        self._shrink(last)
        return values

    def take_many(self, count: int, empty: Empty) -> Finish:
        """Remove `count` elements in random order; they must exist.

        Returns: a function that returns the elements as a batch.
        """
        selected = self._random.choice(self._size, count, replace=False)
        values = tuple(self._gather(selected, empty))
        left = self._size - count
        stay = np.ones(count, bool)
        stay[selected[selected >= left] - left] = False
        holes, movers = selected[selected < left], left + np.flatnonzero(stay)
        for column in self._columns:
            column.move(holes, movers)
            column.forget(slice(left, self._size))
        self._shrink(left)
        return lambda: values

    def clear(self) -> None:
        """Remove all elements."""
        self._resize(0)
        self._size = 0

    def _shrink(self, size: int) -> None:
        self._size = size
        if self._places > 4 * max(size, _FEWEST):
            self._resize(2 * max(size, _FEWEST))


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
        (place,) = self._claim(1)
        for column, value in zip(self._columns, values[1:], strict=True):
            column.put(place, value)
        self._push([int(values[0])], [place])

    def add_many(self, values: Values, start: int, stop: int) -> None:
        """Store the rows from `start` to `stop` as elements."""
        places = self._claim(stop - start)
        rows = np.array(places)
        for column, batch in zip(self._columns, values[1:], strict=True):
            column.put_many(rows, batch, start, stop)
        self._push(values[0][start:stop].tolist(), places)

    def take(self) -> Values:
        """Remove the first element."""
        priority, _, place = heapq.heappop(self._heap)
        values = [column.get(place) for column in self._columns]
        self._release([place])
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
        places = np.array([place for _, _, place in first], np.intp)
        values = (priorities, *self._gather(places, empty))
        priorities[:] = [priority for priority, _, _ in first]
        if limit:
            del heap[:count]
        else:
            for _ in first:
                heapq.heappop(heap)
        self._release(places.tolist())
        return lambda: values

    def clear(self) -> None:
        """Remove all elements."""
        self._heap.clear()
        self._free.clear()
        self._resize(0)

    def _claim(self, count: int) -> list[int]:
        missing = count - len(self._free)
        if missing > 0:
            before = self._places
            self._reserve(before + missing)
            self._free.extend(range(self._places - 1, before - 1, -1))
        places = self._free[len(self._free) - count :]
        del self._free[len(self._free) - count :]
        return places

    def _push(self, priorities: Sequence[int], places: Sequence[int]) -> None:
        new = zip(
            priorities, range(self._arrivals, self._arrivals + len(places)), places, strict=True
        )
        self._arrivals += len(places)
        if len(places) > len(self._heap):
            self._heap.extend(new)
            heapq.heapify(self._heap)
        else:
            for item in new:
                heapq.heappush(self._heap, item)

    def _release(self, places: Sequence[int]) -> None:
        if not self._heap and self._places > _MOST_IDLE:
            self._resize(0)
            self._free.clear()
            return
        for column in self._columns:
            column.forget(np.asarray(places, np.intp))
        self._free.extend(places)
