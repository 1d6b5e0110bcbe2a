"""Caches in memory, which keep the elements of the first complete pass for later passes."""

from __future__ import annotations

from typing import Any

from weft_io.streams.stream import (
    Element,
    Root,
    Source,
    Stream,
    count_in,
    element_of,
    fields,
    restore_stream,
    save_stream,
)


class MemoryCacheSource(Source):
    """A dataset that keeps its elements in memory after the first complete pass."""

    def __init__(self, inner: Source) -> None:
        self._inner = inner

    def cardinality(self) -> int:
        """Return the number of elements."""
        return self._inner.cardinality()

    def iterate(self, root: Root) -> Stream:
        """Return a stream of the elements, from memory if they are cached."""
        return _MemoryCacheStream(self, root)

    def input(self, root: Root) -> Stream:
        """Return a stream of the uncached dataset."""
        return self._inner.iterate(root)


class _MemoryCacheStream(Stream):
    kind = "Cache"

    def __init__(self, source: MemoryCacheSource, root: Root) -> None:
        self._source = source
        self._root = root
        self._elements: list[Element] = root.cached(source) or []
        self._next = 0
        self._input: Stream | None = None
        if root.cached(source) is None:
            self._input = source.input(root)

    def get(self) -> Element | None:
        if self._input is None:
            if self._next >= len(self._elements):
                return None
            self._next += 1
            return self._elements[self._next - 1]
        element = self._input.get()
        if element is None:
            self._finish()
            return None
        self._elements.append(element)
        return element

    def _finish(self) -> None:
        assert self._input is not None
        self._input.close()
        self._input = None
        self._next = len(self._elements)
        self._root.cache(self._source, self._elements)

    def save(self) -> Any:
        inner = None if self._input is None else save_stream(self._input)
        return [self._next, [list(element) for element in self._elements], inner]

    def restore(self, state: Any) -> None:
        position, elements, inner = fields(state, int, list, None)
        self._elements = [element_of(element) for element in elements]
        self._next = count_in(position, len(self._elements), "the next of the cache")
        if inner is not None:
            self._input = self._input or self._source.input(self._root)
            restore_stream(self._input, inner)
        elif self._input is not None or self._root.cached(self._source) is None:
            self._input = None
            self._root.cache(self._source, self._elements)

    def close(self) -> None:
        if self._input is not None:
            self._input.close()
