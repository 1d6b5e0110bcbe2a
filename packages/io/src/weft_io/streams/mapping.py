"""Transformations by functions of the graph that are applied to one element at a time."""

from __future__ import annotations

from typing import Any

from weft_io.resources.batch_memory import BatchMemory, compute_in_row
from weft_io.streams.stream import (
    UNKNOWN,
    Call,
    Element,
    ForwardingStream,
    Root,
    Source,
    Stream,
    add_location,
    count_in,
    element_of,
    fields,
    restore_stream,
    save_stream,
)
from weft_tensor import errors


class MapStream(ForwardingStream):
    """The results of a function of each element."""

    kind = "Map"

    def __init__(self, inner: Stream, call: Call) -> None:
        super().__init__(inner)
        self._call = call
        self._rows: BatchMemory | None = None

    def lend_rows(self, memory: BatchMemory) -> None:
        """Let the calls compute their results in the memory of batches."""
        self._rows = memory

    def get(self) -> Element | None:
        """Return the next result."""
        element = self._input.get()
        if element is None:
            return None
        row = None if self._rows is None else self._rows.next_row()
        try:
            return compute_in_row(row, self._call, element)
        except errors.OpError as error:
            add_location(error, self._input.location())
            raise


class FilterStream(ForwardingStream):
    """The elements for which a function returns True."""

    kind = "Filter"

    @staticmethod
    def cardinality(count: int, *_: Any) -> int:
        """Return UNKNOWN."""
        return UNKNOWN

    def __init__(self, inner: Stream, predicate: Call) -> None:
        super().__init__(inner)
        self._predicate = predicate

    def get(self) -> Element | None:
        """Return the next element."""
        while (element := self._input.get()) is not None:
            try:
                if self._predicate(element)[0]:
                    return element
            except errors.OpError as error:
                add_location(error, self._input.location())
                raise
        return None


# ------------------------------------------------------------- datasets of elements


def inner_stream(call: Call, element: Element, root: Root) -> Stream:
    """Start a pass over the dataset that a function returns for an element."""
    (source,) = call(element)
    if not isinstance(source, Source):
        raise errors.InvalidTypeError(f"the function must return a dataset, got {source!r}")
    return source.iterate(root)


class FlatMapSource(Source):
    """The elements of the datasets that a function returns for each element, concatenated."""

    def __init__(self, inner: Source, call: Call) -> None:
        self._inner = inner
        self._call = call

    def iterate(self, root: Root) -> Stream:
        """Return a stream of their elements."""
        return _FlatMapStream(self._inner.iterate(root), self._call, root)


class _FlatMapStream(ForwardingStream):
    kind = "FlatMap"

    def __init__(self, inner: Stream, call: Call, root: Root) -> None:
        super().__init__(inner)
        self._call = call
        self._root = root
        self._element: Element = ()
        self._current: Stream | None = None

    def get(self) -> Element | None:
        while True:
            if self._current is not None:
                result = self._current.get()
                if result is not None:
                    return result
                self._current.close()
                self._current = None
            element = self._input.get()
            if element is None:
                return None
            self._begin(element)

    def location(self) -> str:
        return "" if self._current is None else self._current.location()

    def _begin(self, element: Element) -> None:
        self._current = inner_stream(self._call, element, self._root)
        self._element = element

    def save(self) -> Any:
        current = self._current
        open_one = None if current is None else [list(self._element), save_stream(current)]
        return [open_one, save_stream(self._input)]

    def restore(self, state: Any) -> None:
        open_one, inner = fields(state, None, None)
        restore_stream(self._input, inner)
        if open_one is not None:
            element, item = fields(open_one, list, None)
            self._begin(element_of(element))
            assert self._current is not None
            restore_stream(self._current, item)

    def close(self) -> None:
        super().close()
        if self._current is not None:
            self._current.close()


class InterleaveSource(Source):
    """The datasets that a function returns for each element, interleaved.

    Args:
      cycle: number of interleaved datasets.
      block: number of consecutive elements of each.
    Raises: InvalidArgumentError: an argument is below 1.
    """

    def __init__(self, inner: Source, call: Call, cycle: int, block: int) -> None:
        for label, value in (("cycle_length", cycle), ("block_length", block)):
            if value < 1:
                raise errors.InvalidArgumentError(f"`{label}` must be > 0, got {value}")
        self._inner = inner
        self._call = call
        self._cycle = cycle
        self._block = block

    def iterate(self, root: Root) -> Stream:
        """Return a stream of their elements."""
        return InterleaveStream(
            self._inner.iterate(root), self._call, self._cycle, self._block, root
        )


class InterleaveStream(ForwardingStream):
    """The slots of the cycle, each with an open stream."""

    kind = "Interleave"

    def __init__(self, inner: Stream, call: Call, cycle: int, block: int, root: Root) -> None:
        super().__init__(inner)
        self._call = call
        self._root = root
        self._block = block
        self._cycle = cycle
        self._open: list[tuple[Element, Stream] | None] = [None] * cycle
        self._count = 0  # number of open streams
        self._position = 0
        self._num_returned = 0  # of the block
        self._ended = False
        self._last: Stream | None = None  # gave the last element

    def location(self) -> str:
        """Return the location of the last used stream."""
        return "" if self._last is None else self._last.location()

    def get(self) -> Element | None:
        """Return the next element in round-robin order."""
        while self._count or not self._ended:
            entry = self._open[self._position]
            if entry is not None:
                element = entry[1].get()
                if element is None:
                    self._shut(entry[1])
                    continue
                self._last = entry[1]
                self._num_returned += 1
                if self._num_returned == self._block:
                    self._advance()
                return element
            if self._ended:
                self._advance()
            else:
                self._fill()
        return None

    def _fill(self) -> None:
        element = self._input.get()
        if element is None:
            self._ended = True
            return
        self._open[self._position] = (element, self.begin(element))
        self._count += 1

    def begin(self, element: Element) -> Stream:
        """Return the stream for a slot of the cycle."""
        return inner_stream(self._call, element, self._root)

    def _shut(self, stream: Stream) -> None:
        stream.close()
        self._count -= 1
        if len(self._open) > self._cycle:  # restored from a longer cycle
            del self._open[self._position]
            self._position -= 1
        else:
            self._open[self._position] = None
        self._advance()

    def _advance(self) -> None:
        self._num_returned = 0
        self._position = (self._position + 1) % len(self._open)

    def save(self) -> Any:
        """Return each slot's source element and stream."""
        states = [
            None if entry is None else [list(entry[0]), save_stream(entry[1])]
            for entry in self._open
        ]
        return [self._position, self._num_returned, self._ended, states, save_stream(self._input)]

    def restore(self, state: Any) -> None:
        """Restore the slots' streams; the cycle may have another length."""
        position, self._num_returned, self._ended, states, inner = fields(
            state, int, int, bool, list, None
        )
        self._position = count_in(position, len(states) - 1, "the place in the cycle")
        restore_stream(self._input, inner)
        states = self._fit(states)
        self._open = [None] * len(states)
        for i, item in enumerate(states):
            if item is None:
                continue
            values, inner_state = fields(item, list, None)
            element = element_of(values)
            stream = self.begin(element)
            restore_stream(stream, inner_state)
            self._open[i] = (element, stream)
            self._count += 1

    def _fit(self, states: list[Any]) -> list[Any]:
        """Fit the saved slots of a cycle into this one, which has room for all used slots."""
        missing = self._cycle - len(states)
        if missing >= 0:
            return [*states, *[None] * missing]
        indices = [i for i, item in enumerate(states) if item is not None or i == self._position]
        self._position = indices.index(self._position)
        return [*[states[i] for i in indices], *[None] * (self._cycle - len(indices))]

    def close(self) -> None:
        """Close all streams."""
        super().close()
        for entry in self._open:
            if entry is not None:
                entry[1].close()
