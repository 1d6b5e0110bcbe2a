"""Storage of elements in order of arrival; batches are not split.

An enqueued batch is stored as one piece, and elements dequeued from it are views. Values are copied
only if one `take_many` needs several pieces.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from weft_io.resources.values import Array, Empty, Values, padding_of, row_of, shape_of
from weft_tensor.dtypes import DType
from weft_tensor.shape import Dims

Piece = tuple[Values, int, int]
"""Values with the rows from start to stop; if stop is 0, the values are one element."""

Finish = Callable[[], Values]
"""The second half of a `take_many`, which copies without the lock."""


class ChunkStore:
    """A FIFO of pieces.

    Args:
      types: element type of each component.
      shapes: static shape of each component; needed only by `take_many`.
    """

    def __init__(self, types: Sequence[DType], shapes: Sequence[Dims]) -> None:
        self._types = tuple(types)
        self._shapes = tuple(shapes)
        self._pieces: deque[Piece] = deque()
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def add(self, values: Values) -> None:
        """Append one element."""
        self._pieces.append((values, 0, 0))
        self._size += 1

    def add_many(self, values: Values, start: int, stop: int) -> None:
        """Append the rows from `start` to `stop` as elements."""
        self._pieces.append((values, start, stop))
        self._size += stop - start

    def take(self) -> Values:
        """Remove the first element."""
        values, start, stop = piece = self._pieces[0]
        if not stop:
            self._pieces.popleft()
        else:
            values = tuple([row_of(batch, start) for batch in values])
            self._shorten(piece, 1)
        self._size -= 1
        return values

    def take_many(self, count: int, empty: Empty) -> Finish:
        """Remove the first `count` elements, which must exist.

        Memory is allocated before anything is removed.

        Returns: a function that returns the elements as a batch.
        """
        pieces = self._first_pieces(count)
        targets = self._targets(pieces, count, empty)
        for piece in pieces:
            if piece[2]:
                self._shorten(self._pieces[0], piece[2] - piece[1])
            else:
                self._pieces.popleft()
        self._size -= count
        if targets is None:
            values, start, stop = pieces[0]
            return lambda: tuple([_rows(batch, start, stop) for batch in values])
        return lambda: tuple([_fill(target, pieces, j) for j, target in enumerate(targets)])

    def clear(self) -> None:
        """Remove all elements."""
        self._pieces.clear()
        self._size = 0

    def _first_pieces(self, count: int) -> list[Piece]:
        pieces: list[Piece] = []
        for values, start, stop in self._pieces:
            if not count:
                break
            size = min(stop - start, count) if stop else 1
            pieces.append((values, start, start + size if stop else 0))
            count -= size
        return pieces

    def _shorten(self, piece: Piece, count: int) -> None:
        values, start, stop = piece
        if start + count == stop:
            self._pieces.popleft()
        else:
            self._pieces[0] = (values, start + count, stop)

    def _targets(self, pieces: Sequence[Piece], count: int, empty: Empty) -> Sequence[Array] | None:
        """Return arrays into which to copy the pieces; None if one piece already is the result."""
        if len(pieces) == 1 and pieces[0][2]:
            return None
        return [
            empty((count, *self._row_shape(pieces, j)), dtype.numpy)
            for j, dtype in enumerate(self._types)
        ]

    def _row_shape(self, pieces: Sequence[Piece], component: int) -> tuple[int, ...]:
        dims = self._shapes[component] or ()
        return tuple([size or 0 for size in dims])


def _rows(batch: Array, start: int, stop: int) -> Array:
    return batch if stop - start == len(batch) else batch[start:stop]


class PaddingStore(ChunkStore):
    """A FIFO of pieces whose elements differ in size; batches are padded to the largest element."""

    def _targets(self, pieces: Sequence[Piece], count: int, empty: Empty) -> Sequence[Array] | None:
        targets = super()._targets(pieces, count, empty)
        for target, dtype, dims in zip(targets or (), self._types, self._shapes, strict=False):
            if dims is None or None in dims:
                target[...] = padding_of(dtype)
        return targets

    def _row_shape(self, pieces: Sequence[Piece], component: int) -> tuple[int, ...]:
        dims = self._shapes[component] or ()
        if None not in dims or not pieces:
            return super()._row_shape(pieces, component)
        shapes = [shape_of(values[component])[1 if stop else 0 :] for values, _, stop in pieces]
        return tuple([max(sizes) for sizes in zip(*shapes, strict=True)])


def _fill(target: Array, pieces: Sequence[Piece], component: int) -> Array:
    """Copy one component of the pieces into `target`, each element into the corner of its row."""
    index = 0
    shape = target.shape[1:]
    for values, start, stop in pieces:
        value = values[component]
        if not stop:
            write_row(target, index, value)
            index += 1
            continue
        size = stop - start
        rows = value[start:stop]
        if rows.shape[1:] == shape:
            target[index : index + size] = rows
        else:
            target[(slice(index, index + size), *_corner(rows.shape[1:]))] = rows
        index += size
    return target


def write_row(target: Array, index: int, value: Any) -> None:
    """Write one element into the corner of a row."""
    if not isinstance(value, np.ndarray):
        target[index] = value
    elif value.shape == target.shape[1:]:
        target[index, ...] = value
    else:
        corner: tuple[int | slice, ...] = (index, *_corner(value.shape))
        target[corner] = value


def _corner(shape: tuple[int, ...]) -> tuple[slice, ...]:
    return tuple([slice(size) for size in shape])
