"""Random-access storage of one component of many elements."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from weft_io.resources.chunks import write_row
from weft_io.resources.values import Array, row_of
from weft_tensor.dtypes import DType
from weft_tensor.shape import Dims

_PACKED_BYTES = 4096
"""Maximum size in bytes of elements that share one array; larger ones have separate arrays."""

Slots = Array | slice


class Column(Protocol):
    """Values by position, starting with 0."""

    def resize(self, size: int) -> None:
        """Resize to `size` positions, dropping the elements beyond."""

    def put(self, slot: int, value: Any) -> None:
        """Store one element."""

    def put_many(self, slots: Slots, batch: Array, start: int, stop: int) -> None:
        """Store the rows of `batch` from `start` to `stop`."""

    def get(self, slot: int) -> Any:
        """Return a copy of one element, owned by the caller."""

    def get_many(self, array: Array, target: Array) -> None:
        """Copy elements into the rows of `target`."""

    def move(self, slots: Any, sources: Any) -> None:
        """Copy elements from `sources` to `slots`, which must not overlap."""

    def forget(self, slots: Any) -> None:
        """Release the elements at `slots`."""


class PackedColumn:
    """Elements of the same shape in the rows of an array."""

    def __init__(self, dtype: DType, shape: tuple[int, ...]) -> None:
        self._rows = np.empty((0, *shape), dtype.numpy)

    def resize(self, size: int) -> None:
        """Resize to `size` positions, dropping the elements beyond."""
        rows = np.empty((size, *self._rows.shape[1:]), self._rows.dtype)
        num_kept = min(size, len(self._rows))
        rows[:num_kept] = self._rows[:num_kept]
        self._rows = rows

    def put(self, slot: int, value: Any) -> None:
        """Store one element."""
        write_row(self._rows, slot, value)

    def put_many(self, slots: Slots, batch: Array, start: int, stop: int) -> None:
        """Store the rows of `batch` from `start` to `stop`."""
        self._rows[slots] = batch[start:stop]

    def get(self, slot: int) -> Any:
        """Return a copy of one element, owned by the caller."""
        row = row_of(self._rows, slot)
        return row.copy() if isinstance(row, np.ndarray) else row

    def get_many(self, array: Array, target: Array) -> None:
        """Copy elements into the rows of `target`."""
        if target.dtype.hasobject:
            target[...] = self._rows[array]
        else:
            np.take(self._rows, array, axis=0, out=target, mode="clip")

    def move(self, slots: Any, sources: Any) -> None:
        """Copy elements from `sources` to `slots`, which must not overlap."""
        self._rows[slots] = self._rows[sources]

    def forget(self, slots: Any) -> None:
        """Release the elements at `slots`."""
        if self._rows.dtype.hasobject:
            self._rows[slots] = None


class ObjectColumn:
    """Elements that are large or differ in shape, each in its own array."""

    def __init__(self) -> None:
        self._rows: list[Any] = []

    def resize(self, size: int) -> None:
        """Resize to `size` positions, dropping the elements beyond."""
        del self._rows[size:]
        self._rows.extend([None] * (size - len(self._rows)))

    def put(self, slot: int, value: Any) -> None:
        """Store one element."""
        self._rows[slot] = value

    def put_many(self, slots: Slots, batch: Array, start: int, stop: int) -> None:
        """Store the rows of `batch` from `start` to `stop` separately.

        The rows are copied, because a view would keep the whole batch alive.
        """
        for number, row in zip(_numbers(slots), range(start, stop), strict=True):
            value = row_of(batch, row)
            self._rows[number] = value.copy() if isinstance(value, np.ndarray) else value

    def get(self, slot: int) -> Any:
        """Return a copy of one element, owned by the caller."""
        return self._rows[slot]

    def get_many(self, array: Array, target: Array) -> None:
        """Copy elements into the rows of `target`."""
        for i, slot in enumerate(array.tolist()):
            write_row(target, i, self._rows[slot])

    def move(self, slots: Any, sources: Any) -> None:
        """Copy elements from `sources` to `slots`, which must not overlap."""
        for number, source in zip(_numbers(slots), _numbers(sources), strict=True):
            self._rows[number] = self._rows[source]

    def forget(self, slots: Any) -> None:
        """Release the elements at `slots`."""
        for number in _numbers(slots):
            self._rows[number] = None


def _numbers(slots: Any) -> Sequence[int]:
    if isinstance(slots, slice):
        return range(slots.start, slots.stop)
    if isinstance(slots, np.ndarray):
        numbers: list[int] = slots.tolist()
        return numbers
    return (slots,)


def column_for(dtype: DType, dims: Dims) -> Column:
    """Return the column for a component of this type and static shape."""
    shape = [size for size in dims or (None,) if size is not None]
    is_static = dims is not None and len(shape) == len(dims) and dtype.is_numpy_compatible
    if not is_static or math.prod(shape) * dtype.numpy.itemsize > _PACKED_BYTES:
        return ObjectColumn()
    return PackedColumn(dtype, tuple(shape))
