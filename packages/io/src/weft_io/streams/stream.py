"""Sources, which describe datasets, and streams, which are passes over a source."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Final, NamedTuple, TypeVar
from weakref import WeakKeyDictionary

import numpy as np

from weft_graph.ir.variants import RaggedVariant
from weft_tensor import errors
from weft_tensor.dtypes import DType
from weft_tensor.shape import Dims

Element = tuple[Any, ...]
"""One value per component: arrays, NumPy scalars for rank 0, bytes for scalar strings."""

Array = np.ndarray[Any, Any]
Empty = Callable[[tuple[int, ...], Any], Array]
Call = Callable[[Sequence[Any]], Element]
"""A function of the graph, from values to values."""

INFINITE: Final = -1
UNKNOWN: Final = -2
"""Special values of the cardinality."""

T = TypeVar("T")


class Part(NamedTuple):
    """The static type and shape of a component.

    Attributes:
      dtype: element type.
      dims: static shape.
    """

    dtype: DType
    dims: Dims


class Root:
    """State shared by the streams of one iterator.

    Args:
      owner: function that returns the owner of the streams' threads while it is alive; the threads
        end with it.
    """

    def __init__(self, owner: Callable[[], object] | None = None) -> None:
        self.owner = owner
        self._lock = threading.Lock()
        self._passes: WeakKeyDictionary[Source, int] = WeakKeyDictionary()
        self._cached: WeakKeyDictionary[Source, Any] = WeakKeyDictionary()

    def next_pass(self, source: Source) -> int:
        """Return the number of a new pass over a source, counted from 0."""
        with self._lock:
            number = self._passes.get(source, 0)
            self._passes[source] = number + 1
            return number

    def resume_pass(self, source: Source, number: int) -> None:
        """Set the number of the last started pass."""
        with self._lock:
            self._passes[source] = number + 1

    def cached(self, source: Source) -> Any:
        """Return the cached data of a source, or None."""
        return self._cached.get(source)

    def cache(self, source: Source, label: Any) -> None:
        """Cache data for later passes over a source."""
        self._cached[source] = label


class Source:
    """A dataset: the value on an edge between two nodes of a pipeline, without state."""

    shape: tuple[int, ...] = ()
    ndim = 0

    def iterate(self, root: Root) -> Stream:
        """Return a stream for a new pass."""
        raise NotImplementedError

    def cardinality(self) -> int:
        """Return the number of elements, `INFINITE`, or `UNKNOWN` before iteration."""
        return UNKNOWN

    def __getitem__(self, index: tuple[()]) -> Source:
        return self  # as any value of rank 0


class DerivedSource(Source):
    """A dataset whose streams read a stream of another dataset.

    Args:
      inner: the other dataset.
      stream: class of the streams, called as `stream(pass over inner, *arguments)`. The dataset has
        as many elements as its input, unless the class has a method `cardinality`.
    """

    def __init__(self, inner: Source, stream: Callable[..., Stream], *arguments: Any) -> None:
        self._inner = inner
        self._stream = stream
        self._arguments = arguments

    def iterate(self, root: Root) -> Stream:
        """Return a stream for a new pass."""
        return self._stream(self._inner.iterate(root), *self._arguments)

    def cardinality(self) -> int:
        """Return the number of elements, from the class of streams or the other dataset."""
        count = self._inner.cardinality()
        rule: Callable[..., int] | None = getattr(self._stream, "cardinality", None)
        return count if rule is None else rule(count, *self._arguments)


class Stream:
    """One pass over a dataset.

    Only one thread may use a stream at a time. `get` may raise; the next call then returns the
    element after the failed one.

    Attributes:
      kind: name of the kind of stream in saved states.
    """

    kind: ClassVar[str]

    def get(self) -> Element | None:
        """Return the next element; None at the end and in all later calls."""
        raise NotImplementedError

    def pull(self, limit: int) -> list[Element]:
        """Return up to `limit` next elements; an empty list at the end.

        Elements before a failed one are lost, as in a batch.
        """
        elements: list[Element] = []
        get = self.get
        while len(elements) < limit and (element := get()) is not None:
            elements.append(element)
        return elements

    def location(self) -> str:
        """Return the location of the last element, such as "line 3 of a.csv"; "" if unknown."""
        return ""

    def save(self) -> Any:
        """Return the state for `restore`: plain data and arrays."""
        raise NotImplementedError

    def restore(self, state: Any) -> None:
        """Continue from a saved state; called on a new stream of an equal source."""
        raise NotImplementedError

    def close(self) -> None:
        """Release files and threads; do nothing if they are released."""


class ForwardingStream(Stream):
    """A stream over another stream; by default only that one has state."""

    def __init__(self, inner: Stream) -> None:
        self._input = inner

    def location(self) -> str:
        """Return the location of the input element that the last element was computed from."""
        return self._input.location()

    def save(self) -> Any:
        """Return the state of the other stream."""
        return save_stream(self._input)

    def restore(self, state: Any) -> None:
        """Restore the other stream."""
        restore_stream(self._input, state)

    def close(self) -> None:
        """Close the other stream."""
        self._input.close()


class ElementsSource(Source):
    """A dataset of known elements; it can itself be a component, also in saved states.

    Args:
      elements: all elements.
    """

    def __init__(self, elements: Sequence[Element]) -> None:
        self.elements = elements

    def iterate(self, root: Root) -> Stream:
        """Return a stream of the elements."""
        return _ElementsStream(self.elements)

    def cardinality(self) -> int:
        """Return the number of elements."""
        return len(self.elements)


class _ElementsStream(Stream):
    kind = "Elements"

    def __init__(self, elements: Sequence[Element]) -> None:
        self._elements = elements
        self._next = 0

    def get(self) -> Element | None:
        if self._next >= len(self._elements):
            return None
        self._next += 1
        return self._elements[self._next - 1]

    def pull(self, limit: int) -> list[Element]:
        result = list(self._elements[self._next : self._next + limit])
        self._next += len(result)
        return result

    def save(self) -> Any:
        return [self._next]

    def restore(self, state: Any) -> None:
        (location,) = fields(state, int)
        self._next = count_in(location, len(self._elements), "the next element")


def add_location(error: errors.OpError, location: str) -> errors.OpError:
    """Add the location of an element to the error of a function."""
    if location and "place" not in error.details:
        error.details["place"] = location
        error.message += f" ({location})"
        error.args = (error.message,)
    return error


# --------------------------------------------------------------------------- states


def save_stream(stream: Stream) -> list[Any]:
    """Return the kind and state of a stream."""
    return [stream.kind, stream.save()]


def restore_stream(stream: Stream, state: Any) -> None:
    """Restore a stream from a result of `save_stream`.

    Raises: InvalidArgumentError: it is the state of another kind of stream.
    """
    kind, inner = fields(state, str, None)
    if kind != stream.kind:
        raise errors.InvalidArgumentError(
            f"the state belongs to another pipeline: it has {kind}, but this one has {stream.kind}"
        )
    stream.restore(inner)


def fields(state: Any, *types: type | None) -> list[Any]:
    """Return the fields of a list in a saved state, after checking their types.

    Args:
      types: element type of each component; None for any.
    Raises: InvalidArgumentError: it is not a list, or its fields differ.
    """
    if (
        not isinstance(state, list)
        or len(state) != len(types)
        or not all(
            expected is None or type(field) is expected
            for field, expected in zip(state, types, strict=True)
        )
    ):
        expected = ", ".join("any" if item is None else item.__name__ for item in types)
        actual = [type(item).__name__ for item in state] if isinstance(state, list) else state
        raise errors.InvalidArgumentError(
            f"the state of an iterator must have the fields [{expected}] here, got {actual!r}"
        )
    return state


def count_in(value: int, limit: int, label: str) -> int:
    """Return a number from a saved state.

    Raises: InvalidArgumentError: it is not in [0, limit].
    """
    if not 0 <= value <= limit:
        raise errors.InvalidArgumentError(
            f"the state of an iterator belongs to another pipeline: {label} must be in [0, "
            f"{limit}], "
            f"got {value}"
        )
    return value


def element_of(state: Any) -> Element:
    """Return an element from a saved state.

    Raises: InvalidArgumentError: it is not an element.
    """
    if not isinstance(state, list) or not all(
        isinstance(value, bytes | np.ndarray | np.generic | ElementsSource | RaggedVariant)
        for value in state
    ):
        raise errors.InvalidArgumentError(f"the state must have an element here, got {state!r}")
    return tuple(state)


# --------------------------------------------------------------------------- values


def component(value: Any) -> Any:
    """Convert a value of the graph to a component; scalar strings become bytes."""
    if type(value) is np.ndarray and value.ndim == 0:
        return value[()]
    return value


def graph_value(value: Any) -> Any:
    """Convert a component to a value of the graph."""
    return np.array(value, object) if type(value) is bytes else value


def shape_of(value: Any) -> tuple[int, ...]:
    """Return the shape of a component."""
    return () if type(value) is bytes else value.shape


def rows_of(arrays: Sequence[Any], i: int) -> Element:
    """Return row i of each array, as views."""
    return tuple([array[i] for array in arrays])
