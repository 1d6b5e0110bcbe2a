"""Datasets of datasets: windows and groups of elements."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from weft_io.streams.mapping import inner_stream
from weft_io.streams.stream import (
    UNKNOWN,
    Call,
    Element,
    ElementsSource,
    ForwardingStream,
    Root,
    Source,
    Stream,
    add_location,
    element_of,
    fields,
    graph_value,
    restore_stream,
    save_stream,
)
from weft_tensor import errors


def encode_elements(elements: Sequence[Element]) -> list[Any]:
    """Convert elements to a part of a saved state."""
    return [list(element) for element in elements]


def decode_elements(state: list[Any]) -> list[Element]:
    """Return the elements in a result of `encode_elements`."""
    return [element_of(item) for item in state]


class WindowStream(ForwardingStream):
    """Windows of elements: an element has, per component, a dataset of values.

    Args:
      size: number of elements in a window.
      shift: distance between the starts of successive windows.
      stride: distance between the elements of a window.
      drop: drop smaller windows at the end.
    Raises: InvalidArgumentError: a number is below 1.
    """

    kind = "Window"

    def __init__(self, inner: Stream, size: int, shift: int, stride: int, drop: bool) -> None:
        for label, number in (("size", size), ("shift", shift), ("stride", stride)):
            if number < 1:
                raise errors.InvalidArgumentError(
                    f"Window {label} must be greater than zero, got {number}"
                )
        super().__init__(inner)
        self._size, self._shift, self._stride, self._drop = size, shift, stride, drop
        self._span = (size - 1) * stride + 1
        self._buffer: list[Element] = []
        self._to_skip = 0

    @staticmethod
    def cardinality(count: int, *arguments: Any) -> int:
        """Return the number of windows."""
        size, shift, stride, drop = arguments
        if count < 0:
            return count
        starts = count - (size - 1) * stride if drop else count
        return max(0, -(-int(starts) // int(shift)))

    def location(self) -> str:
        """Return "", since a window consists of many elements."""
        return ""

    def get(self) -> Element | None:
        """Return the next window."""
        while self._to_skip:
            if self._input.get() is None:
                return None
            self._to_skip -= 1
        while len(self._buffer) < self._span:
            pulled = self._input.pull(self._span - len(self._buffer))
            if not pulled:
                break
            self._buffer += pulled
        selected = self._buffer[:: self._stride]
        if not selected or (self._drop and len(selected) < self._size):
            return None
        self._to_skip = max(0, self._shift - len(self._buffer))
        del self._buffer[: self._shift]
        columns = zip(*selected, strict=True)
        return tuple([ElementsSource([(value,) for value in column]) for column in columns])

    def save(self) -> Any:
        """Return the buffered elements of later windows, and the state of the input."""
        return [self._to_skip, encode_elements(self._buffer), save_stream(self._input)]

    def restore(self, state: Any) -> None:
        """Restore the position."""
        self._to_skip, elements, inner = fields(state, int, list, None)
        restore_stream(self._input, inner)
        self._buffer = decode_elements(elements)


def _scalar(call: Call, element: Element, label: str, stream: Stream) -> int:
    """Return the integer that a function returns for an element."""
    try:
        (value,) = call(element)
    except errors.OpError as error:
        add_location(error, stream.location())
        raise
    if getattr(value, "shape", ()) != ():
        raise errors.InvalidArgumentError(
            f"the {label} must be a scalar, got shape {list(value.shape)}"
        )
    return int(value)


class GroupByWindowSource(Source):
    """The elements of the datasets that a function returns for groups with the same key.

    Args:
      key: function from an element to an integer.
      reduce: function from a key and a dataset to a dataset.
      size: function from a key to the number of elements in a group.
    """

    def __init__(self, inner: Source, key: Call, reduce: Call, size: Call) -> None:
        self._inner = inner
        self.key, self.reduce, self.size = key, reduce, size

    def iterate(self, root: Root) -> Stream:
        """Return a stream of the elements of the resulting datasets."""
        return _GroupByWindowStream(self._inner.iterate(root), self, root)


class _GroupByWindowStream(ForwardingStream):
    kind = "GroupByWindow"

    def __init__(self, inner: Stream, source: GroupByWindowSource, root: Root) -> None:
        super().__init__(inner)
        self._source = source
        self._root = root
        self._groups: dict[int, list[Element]] = {}
        self._sizes: dict[int, int] = {}
        self._has_ended = False
        self._current: Stream | None = None
        self._current_group: tuple[int, list[Element]] = (0, [])

    def location(self) -> str:
        return ""

    def get(self) -> Element | None:
        while True:
            if self._current is not None:
                result = self._current.get()
                if result is not None:
                    return result
                self._current.close()
                self._current = None
            key = self._full_group()
            if key is None:
                return None
            self._open(key, self._groups.pop(key))

    def _full_group(self) -> int | None:
        """Return the key of a full group; at the end, the lowest remaining key."""
        while not self._has_ended:
            element = self._input.get()
            if element is None:
                self._has_ended = True
                break
            key = _scalar(self._source.key, element, "key", self._input)
            group = self._groups.setdefault(key, [])
            group.append(element)
            if len(group) >= self._size(key):
                return key
        return min(self._groups, default=None)

    def _size(self, key: int) -> int:
        if key not in self._sizes:
            size = _scalar(self._source.size, (np.int64(key),), "window size", self._input)
            if size < 1:
                del self._groups[key][-1:]
                raise errors.InvalidArgumentError(
                    f"Window size must be greater than zero, but got {size}."
                )
            self._sizes[key] = size
        return self._sizes[key]

    def _open(self, key: int, group: list[Element]) -> None:
        arguments = (np.int64(key), ElementsSource(group))
        self._current = inner_stream(self._source.reduce, arguments, self._root)
        self._current_group = key, group

    def save(self) -> Any:
        current = self._current
        key, group = self._current_group
        saved_group = (
            None if current is None else [key, encode_elements(group), save_stream(current)]
        )
        groups = [[key, encode_elements(group)] for key, group in self._groups.items()]
        return [self._has_ended, groups, saved_group, save_stream(self._input)]

    def restore(self, state: Any) -> None:
        self._has_ended, groups, saved_group, inner = fields(state, bool, list, None, None)
        restore_stream(self._input, inner)
        self._groups = {}
        for item in groups:
            key, group = fields(item, int, list)
            self._groups[key] = decode_elements(group)
        if saved_group is not None:
            key, group, element = fields(saved_group, int, list, None)
            self._open(key, decode_elements(group))
            assert self._current is not None
            restore_stream(self._current, element)

    def close(self) -> None:
        super().close()
        if self._current is not None:
            self._current.close()


class GroupByReducerStream(ForwardingStream):
    """One element per key, computed by reducing the elements of the key; in the order of keys.

    Args:
      key: function from an element to an integer.
      begin: function from a key to a state.
      reduce: function from a state and an element to a state.
      finish: function from a state to an element.
    """

    kind = "GroupByReducer"

    def __init__(self, inner: Stream, key: Call, begin: Call, reduce: Call, finish: Call) -> None:
        super().__init__(inner)
        self._key, self._begin, self._reduce, self._finish = key, begin, reduce, finish
        self._states: dict[int, Element] = {}
        self._has_ended = False

    @staticmethod
    def cardinality(count: int, *_: Any) -> int:
        """Return UNKNOWN."""
        return UNKNOWN

    def location(self) -> str:
        """Return "", since a result depends on many elements."""
        return ""

    def get(self) -> Element | None:
        """Return the result of the lowest remaining key; the first call reads all elements."""
        while not self._has_ended:
            element = self._input.get()
            if element is None:
                self._has_ended = True
                break
            key = _scalar(self._key, element, "key", self._input)
            if key not in self._states:
                self._states[key] = self._begin((np.int64(key),))
            self._states[key] = self._reduce((*self._states[key], *element))
        if not self._states:
            return None
        return self._finish(self._states.pop(min(self._states)))

    def save(self) -> Any:
        """Return the states, and the state of the input."""
        states = [[key, list(values)] for key, values in self._states.items()]
        return [self._has_ended, states, save_stream(self._input)]

    def restore(self, state: Any) -> None:
        """Restore the position."""
        self._has_ended, states, inner = fields(state, bool, list, None)
        restore_stream(self._input, inner)
        self._states = {}
        for item in states:
            key, values = fields(item, int, list)
            self._states[key] = element_of(values)


class SparseBatchSource(Source):
    """Elements of different sizes, batched to sparse tensors.

    Args:
      size: size of a batch.
      row_shape: shape of the rows; -1 for the largest size in the batch.
    Raises: InvalidArgumentError: the size is below 1.
    """

    def __init__(self, inner: Source, size: int, row_shape: tuple[int, ...]) -> None:
        if size < 1:
            raise errors.InvalidArgumentError(f"Batch size must be greater than zero, got {size}.")
        self._inner = inner
        self._size = size
        self._row_shape = row_shape

    def iterate(self, root: Root) -> Stream:
        """Return a stream of the batches."""
        return _SparseBatchStream(self._inner.iterate(root), self._size, self._row_shape)

    def cardinality(self) -> int:
        """Return the number of batches."""
        count = self._inner.cardinality()
        return count if count < 0 else -(-count // self._size)


class _SparseBatchStream(ForwardingStream):
    kind = "DenseToSparseBatch"

    def __init__(self, inner: Stream, size: int, row_shape: tuple[int, ...]) -> None:
        super().__init__(inner)
        self._size = size
        self._row_shape = row_shape

    def get(self) -> Element | None:
        rows: list[Any] = []
        while len(rows) < self._size:
            pulled = self._input.pull(self._size - len(rows))
            if not pulled:
                break
            rows += [np.asarray(graph_value(element[0])) for element in pulled]
        return self._join(rows) if rows else None

    def _join(self, rows: Sequence[Any]) -> Element:
        row_shape = self._row_shape
        for row in rows:
            if row.ndim != len(row_shape) or any(
                limit >= 0 and n > limit for n, limit in zip(row.shape, row_shape, strict=True)
            ):
                raise errors.InvalidArgumentError(
                    f"the rows of a sparse batch must fit into {list(row_shape)}, got a row of "
                    "shape "
                    f"{list(row.shape)}"
                )
        largest = np.max([row.shape for row in rows], axis=0)
        sizes = [
            int(n) if limit < 0 else limit for n, limit in zip(largest, row_shape, strict=True)
        ]
        counts = [row.size for row in rows]
        indices = np.empty((sum(counts), len(row_shape) + 1), np.int64)
        indices[:, 0] = np.repeat(np.arange(len(rows)), counts)
        index_rows = [np.indices(row.shape).reshape(row.ndim, -1).T for row in rows]
        indices[:, 1:] = np.concatenate(index_rows)
        values = np.concatenate([row.reshape(-1) for row in rows])
        return indices, values, np.array([len(rows), *sizes], np.int64)
