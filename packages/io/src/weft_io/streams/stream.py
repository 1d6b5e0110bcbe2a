"""What runs of a dataset: its source, and streams, each of which is one pass over it."""

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
"""One value per component: arrays, NumPy scalars for rank 0, bytes for strings of rank 0."""

Array = np.ndarray[Any, Any]
Empty = Callable[[tuple[int, ...], Any], Array]
Call = Callable[[Sequence[Any]], Element]
"""A function of the graph: from values to values."""

INFINITE: Final = -1
UNKNOWN: Final = -2
"""Cardinalities."""

T = TypeVar("T")


class Part(NamedTuple):
    """One component.

    Attributes:
      dtype: element type.
      dims: static shape.
    """

    dtype: DType
    dims: Dims


class Root:
    """What the streams under one iterator have in common.

    Args:
      owner: gives what they work for while it is there: their threads end with it.
    """

    def __init__(self, owner: Callable[[], object] | None = None) -> None:
        self.owner = owner
        self._lock = threading.Lock()
        self._passes: WeakKeyDictionary[Source, int] = WeakKeyDictionary()
        self._cached: WeakKeyDictionary[Source, Any] = WeakKeyDictionary()

    def next_pass(self, source: Source) -> int:
        """The number of a new pass over a source, from 0 on."""
        with self._lock:
            number = self._passes.get(source, 0)
            self._passes[source] = number + 1
            return number

    def resume_pass(self, source: Source, number: int) -> None:
        """Let pass `number` be the last that was begun."""
        with self._lock:
            self._passes[source] = number + 1

    def cached(self, source: Source) -> Any:
        """What was cached for a source, or None."""
        return self._cached.get(source)

    def cache(self, source: Source, what: Any) -> None:
        """Cache something for later passes over a source."""
        self._cached[source] = what


class Source:
    """A dataset: the value on an edge between two nodes of a pipeline. It has no state."""

    shape: tuple[int, ...] = ()
    ndim = 0

    def iterate(self, root: Root) -> Stream:
        """A new pass over it."""
        raise NotImplementedError

    def cardinality(self) -> int:
        """How many elements it has, `INFINITE`, or `UNKNOWN` before it is gone through."""
        return UNKNOWN

    def __getitem__(self, index: tuple[()]) -> Source:
        return self  # as any value of rank 0


class DerivedSource(Source):
    """A dataset whose passes are streams over the passes of another.

    Args:
      inner: the other.
      stream: makes one of them: `stream(a pass over inner, *arguments)`.

    It has as many elements as the other, unless the class of its streams says something else with
    `cardinality`.
    """

    def __init__(self, inner: Source, stream: Callable[..., Stream], *arguments: Any) -> None:
        self._inner = inner
        self._stream = stream
        self._arguments = arguments

    def iterate(self, root: Root) -> Stream:
        """A new pass over it."""
        return self._stream(self._inner.iterate(root), *self._arguments)

    def cardinality(self) -> int:
        """What its streams say, or that of the other."""
        count = self._inner.cardinality()
        rule: Callable[..., int] | None = getattr(self._stream, "cardinality", None)
        return count if rule is None else rule(count, *self._arguments)


class Stream:
    """One pass over a dataset.

    Streams are used by one thread at a time. `get` may raise; what is got after that comes behind
    the element that it failed at.

    Attributes:
      kind: what it is, in saved states.
    """

    kind: ClassVar[str]

    def get(self) -> Element | None:
        """The next element; None at the end, and from then on."""
        raise NotImplementedError

    def pull(self, most: int) -> list[Element]:
        """The next elements, at most so many; none at the end.

        What was got before an element that fails is lost, as it is to a batch.
        """
        found: list[Element] = []
        get = self.get
        while len(found) < most and (element := get()) is not None:
            found.append(element)
        return found

    def place(self) -> str:
        """Where the last element came from, such as "line 3 of a.csv"; "" if that is not known."""
        return ""

    def save(self) -> Any:
        """What `restore` needs to go on from here: plain data and arrays."""
        raise NotImplementedError

    def restore(self, state: Any) -> None:
        """Go on from where `save` was; on a new stream of an equal source."""
        raise NotImplementedError

    def close(self) -> None:
        """Let go of files and threads; twice does nothing."""


class ForwardingStream(Stream):
    """A stream over one other, which has all of the state unless a subclass says more."""

    def __init__(self, inner: Stream) -> None:
        self._input = inner

    def place(self) -> str:
        """That of the other, whose last element this one's was made of."""
        return self._input.place()

    def save(self) -> Any:
        """The state of the other."""
        return saved(self._input)

    def restore(self, state: Any) -> None:
        """Restore the other."""
        resume(self._input, state)

    def close(self) -> None:
        """Close the other."""
        self._input.close()


class ElementsSource(Source):
    """A dataset whose elements are there; it may itself be a component, in saved states too.

    Args:
      elements: all of them.
    """

    def __init__(self, elements: Sequence[Element]) -> None:
        self.elements = elements

    def iterate(self, root: Root) -> Stream:
        """Over them."""
        return _ElementsStream(self.elements)

    def cardinality(self) -> int:
        """How many there are."""
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

    def pull(self, most: int) -> list[Element]:
        found = list(self._elements[self._next : self._next + most])
        self._next += len(found)
        return found

    def save(self) -> Any:
        return [self._next]

    def restore(self, state: Any) -> None:
        (place,) = fields(state, int)
        self._next = count_in(place, len(self._elements), "the next element")


def placed(error: errors.OpError, place: str) -> errors.OpError:
    """The error of a function of an element, which says where the element came from."""
    if place and "place" not in error.details:
        error.details["place"] = place
        error.message += f" ({place})"
        error.args = (error.message,)
    return error


# --------------------------------------------------------------------------- states


def saved(stream: Stream) -> list[Any]:
    """The state of a stream with its kind."""
    return [stream.kind, stream.save()]


def resume(stream: Stream, state: Any) -> None:
    """Restore a stream from what `saved` gave.

    Raises: InvalidArgumentError: it is the state of something else.
    """
    kind, inner = fields(state, str, None)
    if kind != stream.kind:
        raise errors.InvalidArgumentError(
            f"the state is of another pipeline: it has {kind} where this one has {stream.kind}"
        )
    stream.restore(inner)


def fields(state: Any, *types: type | None) -> list[Any]:
    """The fields of a list in a state, checked.

    Args:
      types: of each; None for any.
    Raises: InvalidArgumentError: it is no list, or of other fields.
    """
    if (
        not isinstance(state, list)
        or len(state) != len(types)
        or not all(
            wanted is None or type(field) is wanted
            for field, wanted in zip(state, types, strict=True)
        )
    ):
        wanted = ", ".join("any" if each is None else each.__name__ for each in types)
        got = [type(each).__name__ for each in state] if isinstance(state, list) else state
        raise errors.InvalidArgumentError(
            f"the state of an iterator must have the fields [{wanted}] here, got {got!r}"
        )
    return state


def count_in(value: int, most: int, what: str) -> int:
    """A number from a state.

    Raises: InvalidArgumentError: it is not in [0, most].
    """
    if not 0 <= value <= most:
        raise errors.InvalidArgumentError(
            f"the state of an iterator is of another pipeline: {what} must be in [0, {most}], "
            f"got {value}"
        )
    return value


def element_of(state: Any) -> Element:
    """An element from a state.

    Raises: InvalidArgumentError: it is none.
    """
    if not isinstance(state, list) or not all(
        isinstance(value, bytes | np.ndarray | np.generic | ElementsSource | RaggedVariant)
        for value in state
    ):
        raise errors.InvalidArgumentError(f"the state must have an element here, got {state!r}")
    return tuple(state)


# --------------------------------------------------------------------------- values


def component(value: Any) -> Any:
    """A value of the graph as a component: strings of rank 0 as bytes."""
    if type(value) is np.ndarray and value.ndim == 0:
        return value[()]
    return value


def graph_value(value: Any) -> Any:
    """A component as a value of the graph."""
    return np.array(value, object) if type(value) is bytes else value


def shape_of(value: Any) -> tuple[int, ...]:
    """The shape of a component."""
    return () if type(value) is bytes else value.shape


def rows_of(arrays: Sequence[Any], i: int) -> Element:
    """Row i of each of some arrays: views."""
    return tuple([array[i] for array in arrays])
