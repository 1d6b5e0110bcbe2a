"""Datasets of tensors, their slices, and ranges of numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from weft_io.streams.stream import (
    INFINITE,
    Element,
    Root,
    Source,
    Stream,
    component,
    count_in,
    fields,
    rows_of,
)
from weft_tensor import errors


class TensorSource(Source):
    """A dataset with a single element.

    Args:
      values: the components of the element.
    """

    def __init__(self, values: Sequence[Any]) -> None:
        self.values = tuple([component(value) for value in values])

    def cardinality(self) -> int:
        """Return one."""
        return 1

    def iterate(self, root: Root) -> Stream:
        """Return a stream of the element."""
        return _OneStream(self.values)


class _OneStream(Stream):
    kind = "Tensor"

    def __init__(self, values: Element) -> None:
        self._values = values
        self._has_returned = False

    def get(self) -> Element | None:
        if self._has_returned:
            return None
        self._has_returned = True
        return self._values

    def save(self) -> Any:
        return [self._has_returned]

    def restore(self, state: Any) -> None:
        (self._has_returned,) = fields(state, bool)


class SliceSource(Source):
    """The rows of arrays.

    Args:
      arrays: arrays of rank 1 or more, with first axes of the same size.
    Raises:
      InvalidArgumentError: the sizes differ, or an array is a scalar.
    """

    def __init__(self, arrays: Sequence[Any]) -> None:
        if any(array.ndim == 0 for array in arrays):
            raise errors.InvalidArgumentError(
                "from_tensor_slices requires a rank of at least 1, got ()"
            )
        sizes = [array.shape[0] for array in arrays]
        if len(set(sizes)) > 1:
            raise errors.InvalidArgumentError(
                f"from_tensor_slices requires first axes of the same size, got {sizes}"
            )
        self.arrays = tuple(arrays)
        self.size = sizes[0]

    def cardinality(self) -> int:
        """Return the number of rows."""
        return int(self.size)

    def iterate(self, root: Root) -> Stream:
        """Return a stream of the rows."""
        return _SliceStream(self.arrays, self.size)


class _SliceStream(Stream):
    kind = "TensorSlice"

    def __init__(self, arrays: tuple[Any, ...], size: int) -> None:
        self._arrays = arrays
        self._size = size
        self._next = 0

    def get(self) -> Element | None:
        i = self._next
        if i >= self._size:
            return None
        self._next = i + 1
        return rows_of(self._arrays, i)

    def save(self) -> Any:
        return [self._next]

    def restore(self, state: Any) -> None:
        (position,) = fields(state, int)
        self._next = count_in(position, self._size, "the next row")


class RangeSource(Source):
    """A range of numbers.

    Args:
      start, stop, step: as for `range`.
      dtype: element type.
    Raises: InvalidArgumentError: the step is 0.
    """

    def __init__(self, start: int, stop: int, step: int, dtype: np.dtype[Any]) -> None:
        if not step:
            raise errors.InvalidArgumentError("a range requires a step other than 0, got 0")
        self._numbers = range(start, stop, step)
        self._type = dtype.type

    def cardinality(self) -> int:
        """Return the length of the range."""
        return len(self._numbers) if len(self._numbers) < 1 << 63 else INFINITE

    def iterate(self, root: Root) -> Stream:
        """Return a stream of the numbers."""
        return _RangeStream(self._numbers, self._type)


class _RangeStream(Stream):
    kind = "Range"

    def __init__(self, numbers: range, scalar: Any) -> None:
        self._numbers = numbers
        self._scalar = scalar
        self._next = 0

    def get(self) -> Element | None:
        i = self._next
        if i >= len(self._numbers):
            return None
        self._next = i + 1
        return (self._scalar(self._numbers[i]),)

    def pull(self, limit: int) -> list[Element]:
        selected = self._numbers[self._next : self._next + limit]
        self._next += len(selected)
        scalar = self._scalar
        return [(scalar(number),) for number in selected]

    def save(self) -> Any:
        return [self._next]

    def restore(self, state: Any) -> None:
        (position,) = fields(state, int)
        self._next = count_in(position, len(self._numbers), "the next number")
