"""Batching and unbatching of elements."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from weft_graph.ir.variants import RaggedVariant
from weft_io.resources.batch_memory import BatchMemory
from weft_io.streams.mapping import MapStream
from weft_io.streams.parallel import ParallelMapStream
from weft_io.streams.stream import (
    Array,
    Element,
    Empty,
    ForwardingStream,
    Root,
    Source,
    Stream,
    element_of,
    fields,
    restore_stream,
    rows_of,
    save_stream,
    shape_of,
)
from weft_tensor import errors
from weft_tensor.shape import format_dims


def stack_components(values: Sequence[Any], empty: Empty) -> Array:
    """Stack components of the same type and shape along a new first axis.

    Raises: InvalidArgumentError: their shapes differ.
    """
    first = values[0]
    if type(first) is bytes:
        return _strings(values)
    if all(isinstance(value, RaggedVariant | Source) for value in values):
        return _objects(values)
    if not isinstance(first, np.ndarray | np.generic):
        raise errors.UnimplementedError(f"batches cannot contain {type(first).__name__}")
    shape = first.shape
    for i, value in enumerate(values):
        if shape_of(value) != shape:
            raise errors.InvalidArgumentError(
                "Cannot batch tensors with different shapes. First element had shape "
                f"{format_dims(shape)} and element {i} had shape {format_dims(shape_of(value))}."
            )
    if not shape:
        return np.array(values, first.dtype)
    result = empty((len(values), *shape), first.dtype)
    for i, value in enumerate(values):
        result[i] = value
    return result


def _strings(values: Sequence[Any]) -> Array:
    for i, value in enumerate(values):
        if type(value) is not bytes:
            raise errors.InvalidArgumentError(
                "Cannot batch tensors with different shapes. First element had shape [] and "
                f"element {i} had shape {format_dims(value.shape)}."
            )
    return _objects(values)


def _objects(values: Sequence[Any]) -> Array:
    result = np.empty(len(values), object)
    result[:] = values
    return result


class BatchSource(Source):
    """Elements in batches.

    Args:
      size: size of a batch.
      drop: drop a last batch that is smaller.
      empty: allocator of the arrays.
    Raises: InvalidArgumentError: the size is below 1.
    """

    kind = "Batch"

    def __init__(self, inner: Source, size: int, drop: bool, empty: Empty) -> None:
        if size < 1:
            raise errors.InvalidArgumentError(f"Batch size must be greater than zero, got {size}.")
        self._inner = inner
        self._size = size
        self._drop = drop
        self.empty = empty

    def cardinality(self) -> int:
        """Return the number of batches."""
        count = self._inner.cardinality()
        if count < 0:
            return count
        return count // self._size if self._drop else -(-count // self._size)

    def iterate(self, root: Root) -> Stream:
        """Return a stream of the batches."""
        inner = self._inner.iterate(root)
        memory = self._memory()
        if memory is not None and isinstance(inner, MapStream | ParallelMapStream):
            inner.lend_rows(memory)
        return _BatchStream(inner, self, self._size, self._drop, memory)

    def _memory(self) -> BatchMemory | None:
        """Return an object that lends rows of batches to the calls that compute the elements."""
        return BatchMemory(self._size, self.empty)

    def join_component(self, column: Sequence[Any], i: int) -> Array:
        """Join the components i of all elements of a batch."""
        return stack_components(column, self.empty)


class _BatchStream(ForwardingStream):
    def __init__(
        self,
        inner: Stream,
        source: BatchSource,
        size: int,
        drop: bool,
        memory: BatchMemory | None,
    ) -> None:
        super().__init__(inner)
        self._memory = memory
        self.kind = source.kind  # type: ignore[misc]
        self._source = source
        self._size = size
        self._drop = drop

    def location(self) -> str:
        last = self._input.location()
        return last and f"in the batch that ends with {last}"

    def get(self) -> Element | None:
        elements: list[Element] = []
        while len(elements) < self._size:
            pulled = self._input.pull(self._size - len(elements))
            if not pulled:
                break
            elements += pulled
        if not elements or (self._drop and len(elements) < self._size):
            return None
        joined = self._source.join_component
        columns = list(zip(*elements, strict=True))
        adopted = None if self._memory is None else self._memory.adopt(columns)
        if adopted is None:
            return tuple([joined(column, i) for i, column in enumerate(columns)])
        location, batch = adopted
        return tuple(
            [batch if i == location else joined(column, i) for i, column in enumerate(columns)]
        )


class PaddedBatchSource(BatchSource):
    """Elements in batches, padded at the end of each axis to the same size.

    Args:
      shapes: shape of each component; -1 for the largest size in the batch.
      padding: padding value of each component.
    """

    kind = "PaddedBatch"

    def __init__(
        self,
        inner: Source,
        size: int,
        drop: bool,
        empty: Empty,
        shapes: Sequence[Sequence[int]],
        padding: Sequence[Any],
    ) -> None:
        super().__init__(inner, size, drop, empty)
        self._shapes = [tuple(shape) for shape in shapes]
        self._padding = tuple(padding)

    def _memory(self) -> BatchMemory | None:
        return None  # the sizes of a batch are known when all of it is there

    def join_component(self, column: Sequence[Any], i: int) -> Array:
        """Join the components i of all elements of a batch, with padding.

        Raises: InvalidArgumentError: the rank of an element differs from the requested one, or a
          size exceeds it.
        """
        target = self._shapes[i]
        shapes = [shape_of(value) for value in column]
        for shape in shapes:
            if len(shape) != len(target):
                raise errors.InvalidArgumentError(
                    "All elements in a batch must have the same rank as the padded shape for "
                    f"component{i}: expected rank {len(target)} but got element with rank "
                    f"{len(shape)}"
                )
        sizes = [
            max(column_sizes) if expected < 0 else self._fit_size(expected, max(column_sizes), i)
            for expected, column_sizes in zip(target, zip(*shapes, strict=True), strict=True)
        ]
        if not target:
            return stack_components(column, self.empty)
        result = self.empty((len(column), *sizes), column[0].dtype)
        padding = self._padding[i]
        result[...] = padding
        for row, value in zip(result, column, strict=True):
            row[tuple([slice(n) for n in value.shape])] = value
        return result

    def _fit_size(self, expected: int, largest: int, i: int) -> int:
        if largest > expected:
            raise errors.PaddingError(
                f"Attempted to pad to a smaller size than the input element: component {i} is to "
                f"have the size {expected}, got {largest}"
            )
        return expected


class UnbatchSource(Source):
    """The rows of elements as separate elements."""

    def __init__(self, inner: Source) -> None:
        self._inner = inner

    def iterate(self, root: Root) -> Stream:
        """Return a stream of the rows of all elements."""
        return _UnbatchStream(self._inner.iterate(root))


class _UnbatchStream(ForwardingStream):
    kind = "Unbatch"

    def __init__(self, inner: Stream) -> None:
        super().__init__(inner)
        self._current: Element = ()
        self._next = 0
        self._size = 0

    def get(self) -> Element | None:
        while self._next >= self._size:
            element = self._input.get()
            if element is None:
                return None
            self._begin(element)
        self._next += 1
        return rows_of(self._current, self._next - 1)

    def _begin(self, element: Element) -> None:
        sizes = {shape_of(value)[:1] for value in element}
        if len(sizes) != 1 or () in sizes:
            raise errors.InvalidArgumentError(
                f"unbatch requires components with first axes of the same size, got {sorted(sizes)}"
            )
        self._current = element
        self._next = 0
        self._size = element[0].shape[0]

    def save(self) -> Any:
        remaining = self._next < self._size
        current = [value[self._next :] for value in self._current] if remaining else None
        return [current, save_stream(self._input)]

    def restore(self, state: Any) -> None:
        current, inner = fields(state, None, None)
        if current is not None:
            self._begin(element_of(current))
        restore_stream(self._input, inner)
