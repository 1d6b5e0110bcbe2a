"""Transformations that forward elements unchanged: take, skip, repeat, concatenate, zip."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from weft_io.streams.stream import (
    INFINITE,
    UNKNOWN,
    DerivedSource,
    Element,
    ForwardingStream,
    Root,
    Source,
    Stream,
    count_in,
    fields,
    restore_stream,
    save_stream,
)
from weft_tensor import errors


class TakeStream(ForwardingStream):
    """The first `count` elements; all if it is negative."""

    kind = "Take"

    @staticmethod
    def cardinality(count: int, *arguments: Any) -> int:
        """Return the number of elements, limited by `count`."""
        limit = int(arguments[0])
        if limit < 0 or count == UNKNOWN:
            return count
        return limit if count == INFINITE else min(count, limit)

    def __init__(self, inner: Stream, count: int) -> None:
        super().__init__(inner)
        self._count = count
        self._num_taken = 0

    def get(self) -> Element | None:
        """Return the next element."""
        if 0 <= self._count <= self._num_taken:
            return None
        element = self._input.get()
        if element is not None:
            self._num_taken += 1
        return element

    def save(self) -> Any:
        """Return the number of returned elements, and the state of the input."""
        return [self._num_taken, save_stream(self._input)]

    def restore(self, state: Any) -> None:
        """Restore the position."""
        self._num_taken, inner = fields(state, int, None)
        restore_stream(self._input, inner)


class SkipStream(ForwardingStream):
    """All elements except the first `count`; none if it is negative."""

    kind = "Skip"

    @staticmethod
    def cardinality(count: int, *arguments: Any) -> int:
        """Return the number of elements minus `count`."""
        first = int(arguments[0])
        if first < 0:
            return 0
        return count if count < 0 else max(0, count - first)

    def __init__(self, inner: Stream, count: int) -> None:
        super().__init__(inner)
        self._num_remaining = count

    def get(self) -> Element | None:
        """Return the next element."""
        while self._num_remaining:
            if self._num_remaining < 0 or self._input.get() is None:
                self._num_remaining = -1
                return None
            self._num_remaining -= 1
        return self._input.get()

    def save(self) -> Any:
        """Return the number of skipped elements, and the state of the input."""
        return [self._num_remaining, save_stream(self._input)]

    def restore(self, state: Any) -> None:
        """Restore the position."""
        self._num_remaining, inner = fields(state, int, None)
        restore_stream(self._input, inner)


class ShardSource(DerivedSource):
    """Every n-th element.

    Args:
      number: n.
      index: index of the first.
    Raises: InvalidArgumentError: not 0 <= index < number.
    """

    def __init__(self, inner: Source, number: int, index: int) -> None:
        if number < 1:
            raise errors.InvalidArgumentError(
                f"Number of shards must be greater than zero (currently num_shards = {number})."
            )
        if not 0 <= index < number:
            raise errors.InvalidArgumentError(
                f"Index must be between 0 and {number - 1} (currently index = {index})."
            )
        super().__init__(inner, _ShardStream, number, index)


class _ShardStream(ForwardingStream):
    kind = "Shard"

    @staticmethod
    def cardinality(count: int, *arguments: Any) -> int:
        """Return the number of elements in this shard."""
        number, index = arguments
        return count if count < 0 else (count - index + number - 1) // number

    def __init__(self, inner: Stream, number: int, index: int) -> None:
        super().__init__(inner)
        self._number = number
        self._index = index
        self._position = 0

    def get(self) -> Element | None:
        while (element := self._input.get()) is not None:
            is_selected = self._position == self._index
            self._position = (self._position + 1) % self._number
            if is_selected:
                return element
        return None

    def save(self) -> Any:
        return [self._position, save_stream(self._input)]

    def restore(self, state: Any) -> None:
        position, inner = fields(state, int, None)
        self._position = count_in(position, self._number - 1, "the shard")
        restore_stream(self._input, inner)


class RepeatSource(Source):
    """A dataset repeated several times.

    Args:
      count: number of repetitions; negative for no limit.
    """

    def __init__(self, inner: Source, count: int) -> None:
        self._inner = inner
        self._count = count

    def cardinality(self) -> int:
        """Return the number of elements times `count`."""
        per_repetition = self._inner.cardinality()
        if per_repetition == 0 or self._count == 0:
            return 0
        if self._count < 0:
            return INFINITE if per_repetition != UNKNOWN else UNKNOWN
        return per_repetition if per_repetition < 0 else per_repetition * self._count

    def iterate(self, root: Root) -> Stream:
        """Return a stream of all passes."""
        return _RepeatStream(self._inner, self._count, root)


class _RepeatStream(ForwardingStream):
    kind = "Repeat"

    def __init__(self, source: Source, count: int, root: Root) -> None:
        super().__init__(source.iterate(root))
        self._restart: Callable[[], Stream] = lambda: source.iterate(root)
        self._count = count
        self._done = 0
        self._has_element = False  # anything in this pass

    def get(self) -> Element | None:
        while self._done != self._count:
            element = self._input.get()
            if element is not None:
                self._has_element = True
                return element
            self._done += 1
            if self._count < 0:
                if not self._has_element:  # for ever nothing
                    self._done = self._count = 0
                    return None
                self._done = 0
            if self._done != self._count:
                self._input.close()
                self._input = self._restart()
                self._has_element = False
        return None

    def pull(self, limit: int) -> list[Element]:
        if self._done != self._count:
            result = self._input.pull(limit)
            if result:
                self._has_element = True
                return result
        return super().pull(limit)

    def save(self) -> Any:
        return [self._count, self._done, self._has_element, save_stream(self._input)]

    def restore(self, state: Any) -> None:
        self._count, self._done, self._has_element, inner = fields(state, int, int, bool, None)
        restore_stream(self._input, inner)


class ConcatenateSource(Source):
    """The concatenation of two datasets."""

    def __init__(self, first: Source, second: Source) -> None:
        self._parts = (first, second)

    def cardinality(self) -> int:
        """Return the sum of both cardinalities."""
        counts = [part.cardinality() for part in self._parts]
        if INFINITE in counts:
            return INFINITE
        return UNKNOWN if UNKNOWN in counts else sum(counts)

    def iterate(self, root: Root) -> Stream:
        """Return a stream of both datasets."""
        return _ConcatenateStream(self._parts, root)


class _ConcatenateStream(ForwardingStream):
    kind = "Concatenate"

    def __init__(self, parts: tuple[Source, Source], root: Root) -> None:
        super().__init__(parts[0].iterate(root))
        self._second: Callable[[], Stream] = lambda: parts[1].iterate(root)
        self._in_second = False

    def get(self) -> Element | None:
        element = self._input.get()
        if element is None and not self._in_second:
            self._open_next()
            element = self._input.get()
        return element

    def _open_next(self) -> None:
        self._input.close()
        self._input = self._second()
        self._in_second = True

    def save(self) -> Any:
        return [self._in_second, save_stream(self._input)]

    def restore(self, state: Any) -> None:
        in_second, inner = fields(state, bool, None)
        if in_second:
            self._open_next()
        restore_stream(self._input, inner)


class ZipSource(Source):
    """Tuples of the elements of several datasets, as long as all have elements."""

    def __init__(self, inner: Sequence[Source]) -> None:
        self._inner = tuple(inner)

    def cardinality(self) -> int:
        """Return the smallest cardinality."""
        counts = [item.cardinality() for item in self._inner]
        if UNKNOWN in counts:
            return UNKNOWN
        return min([count for count in counts if count != INFINITE], default=INFINITE)

    def iterate(self, root: Root) -> Stream:
        """Iterate over all datasets in parallel."""
        return _ZipStream([source.iterate(root) for source in self._inner])


class _ZipStream(Stream):
    kind = "Zip"

    def __init__(self, inputs: Sequence[Stream]) -> None:
        self._inputs = tuple(inputs)
        self._has_ended = False

    def get(self) -> Element | None:
        if self._has_ended:
            return None
        values: list[Any] = []
        failure: Exception | None = None
        for stream in self._inputs:
            try:
                element = stream.get()
            except errors.OpError as error:  # the others advance too, so that they stay in step
                failure = failure or error
                continue
            if element is None:
                self._has_ended = True
                return None
            values += element
        if failure is not None:
            raise failure
        return tuple(values)

    def save(self) -> Any:
        return [self._has_ended, [save_stream(stream) for stream in self._inputs]]

    def restore(self, state: Any) -> None:
        self._has_ended, inner = fields(state, bool, list)
        states = fields(inner, *[None] * len(self._inputs))
        for stream, item in zip(self._inputs, states, strict=True):
            restore_stream(stream, item)

    def close(self) -> None:
        for stream in self._inputs:
            stream.close()
