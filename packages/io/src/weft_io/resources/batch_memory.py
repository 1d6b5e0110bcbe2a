"""Memory of batches in which kernels compute elements in place.

Normally a batch is a copy of its elements. If a map precedes the batching, its calls are numbered,
so each call has a row in the array of its batch. A kernel that allocates its result by `lend_row`
may use that row. If all elements of a batch are in their rows, the array is the batch; otherwise
the elements are copied.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from math import prod
from typing import Any, Final, TypeVar

import numpy as np

from weft_io.resources.values import Array, Empty

T = TypeVar("T")

_MIN_BYTES: Final = 1 << 16
"""Minimum size in bytes of elements for which lending rows is faster than copying."""
_MAX_FAILURES: Final = 2
"""Number of consecutive batches with unused rows after which rows are no longer lent."""
_MAX_ROWS_AHEAD: Final = 64
"""Maximum number of elements that calls may be ahead of their batches."""


class _RowOwner:
    """The owner of a row's memory, for NumPy; it shows that the memory has no other user."""

    __slots__ = ("__array_interface__", "_array")

    def __init__(self, array: Array, address: int) -> None:
        self._array = array  # keeps it
        self.__array_interface__ = {
            "version": 3,
            "shape": array.shape[1:],
            "typestr": array.dtype.str,
            "data": (address, False),
        }


class _Block:
    """The array of a batch, with its rows."""

    def __init__(self, array: Array) -> None:
        self.array = array
        self._address: int = array.__array_interface__["data"][0]
        self._row_bytes = array.nbytes // len(array)

    def row(self, index: int) -> Array:
        """Return one row."""
        return np.asarray(_RowOwner(self.array, self._address + index * self._row_bytes))

    def starts_with(self, values: Sequence[Any]) -> bool:
        """Return True if the values are the first rows, in order."""
        shape, dtype = self.array.shape[1:], self.array.dtype
        for index, value in enumerate(values):
            if type(value) is not np.ndarray or value.shape != shape or value.dtype != dtype:
                return False
            address = value.__array_interface__["data"][0]
            if address != self._address + index * self._row_bytes or not value.flags.c_contiguous:
                return False
        return True


class Row:
    """Return the row as an array; None if it is in use or has another shape or type."""

    __slots__ = ("_batch", "_index", "_is_taken", "_memory")

    def __init__(self, memory: BatchMemory, batch: int, index: int) -> None:
        self._memory = memory
        self._batch = batch
        self._index = index
        self._is_taken = False

    def take(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array | None:
        """Return the row as an array; None if it is taken, or has another shape or dtype."""
        if self._is_taken:
            return None
        self._is_taken = True
        return self._memory.take(self._batch, self._index, shape, dtype)


class BatchMemory:
    """The arrays of the batches whose elements are being computed.

    Args:
      size: number of elements of a batch.
      empty: allocates arrays.
    """

    def __init__(self, size: int, empty: Empty) -> None:
        self._size = size
        self._empty = empty
        self._lock = threading.Lock()
        self._blocks: dict[int, _Block] = {}
        self._num_started = 0
        self._batches = 0
        self._failures = 0

    def next_row(self) -> Row | None:
        """Return the row of the next call; None if rows are no longer lent."""
        if self._failures >= _MAX_FAILURES:
            return None
        batch, index = divmod(self._num_started, self._size)
        self._num_started += 1
        return Row(self, batch, index)

    def take(
        self, batch: int, index: int, shape: tuple[int, ...], dtype: np.dtype[Any]
    ) -> Array | None:
        """Return a row of a batch as an array; None if its elements have another shape or type."""
        with self._lock:
            if self._failures >= _MAX_FAILURES:
                return None
            block = self._blocks.get(batch)
            if block is None:
                if (
                    len(self._blocks) > 1 + _MAX_ROWS_AHEAD // self._size
                ):  # elements were lost by errors
                    del self._blocks[min(self._blocks)]
                block = _Block(self._empty((self._size, *shape), dtype))
                self._blocks[batch] = block
        array = block.array
        return block.row(index) if (array.shape[1:], array.dtype) == (shape, dtype) else None

    def adopt(self, columns: Sequence[Sequence[Any]]) -> tuple[int, Array] | None:
        """Return the index and array of the component whose rows were computed in the next batch.

        Args:
          columns: the values of each component.
        Returns: None if the values have to be copied.
        """
        with self._lock:
            block = self._blocks.pop(self._batches, None)
            self._batches += 1
        if block is None:
            return None
        for index, values in enumerate(columns):
            if block.starts_with(values):
                self._failures = 0
                full = len(values) == self._size
                return index, block.array if full else block.array[: len(values)]
        self._failures += 1
        return None


class _ThreadRow(threading.local):
    row: Row | None = None


_here: Final = _ThreadRow()


def compute_in_row(row: Row | None, call: Callable[[Any], T], argument: Any) -> T:
    """Return `call(argument)`, whose kernels may use a row as their result."""
    saved_row, _here.row = _here.row, row
    try:
        return call(argument)
    finally:
        _here.row = saved_row


def lend_row(empty: Empty) -> Empty:
    """Return an allocator that uses the row of the current element if it fits, else `empty`."""

    def allocate(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
        row = _here.row
        if row is not None and prod(shape) * dtype.itemsize >= _MIN_BYTES:
            buffer = row.take(shape, dtype)
            if buffer is not None:
                return buffer
        return empty(shape, dtype)

    return allocate
