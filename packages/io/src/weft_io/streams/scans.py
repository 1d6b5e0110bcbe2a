"""Stateful transformations: scan, take_while, unique, error handling, cardinality checks."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np

from weft_io.streams.stream import (
    INFINITE,
    UNKNOWN,
    Call,
    Element,
    ForwardingStream,
    Stream,
    add_location,
    element_of,
    fields,
    restore_stream,
    save_stream,
)
from weft_tensor import errors

_log = logging.getLogger("weft")


class ScanStream(ForwardingStream):
    """The results of a function of a state and each element, which also returns the next state.

    Args:
      state: the initial state.
    """

    kind = "Scan"

    def __init__(self, inner: Stream, state: Element, call: Call) -> None:
        super().__init__(inner)
        self._state = state
        self._call = call

    def get(self) -> Element | None:
        """Return the next result."""
        element = self._input.get()
        if element is None:
            return None
        try:
            result = self._call((*self._state, *element))
        except errors.OpError as error:
            add_location(error, self._input.location())
            raise
        self._state = result[: len(self._state)]
        return result[len(self._state) :]

    def save(self) -> Any:
        """Return the current state, and the state of the input."""
        return [list(self._state), save_stream(self._input)]

    def restore(self, state: Any) -> None:
        """Restore the position."""
        values, inner = fields(state, list, None)
        restore_stream(self._input, inner)
        self._state = element_of(values)


class TakeWhileStream(ForwardingStream):
    """The elements before the first for which a function returns False."""

    kind = "TakeWhile"

    def __init__(self, inner: Stream, predicate: Call) -> None:
        super().__init__(inner)
        self._predicate = predicate
        self._has_ended = False

    @staticmethod
    def cardinality(count: int, *_: Any) -> int:
        """Return the number of elements, if it is known."""
        return UNKNOWN

    def get(self) -> Element | None:
        """Return the next element."""
        element = None if self._has_ended else self._input.get()
        if element is None:
            return None
        try:
            goes_on = self._predicate(element)[0]
        except errors.OpError as error:
            add_location(error, self._input.location())
            raise
        if goes_on:
            return element
        self._has_ended = True
        return None

    def save(self) -> Any:
        """Return whether the stream has ended, and the state of the input."""
        return [self._has_ended, save_stream(self._input)]

    def restore(self, state: Any) -> None:
        """Restore the position."""
        self._has_ended, inner = fields(state, bool, None)
        restore_stream(self._input, inner)


class UniqueStream(ForwardingStream):
    """The distinct elements, in order of first occurrence."""

    kind = "Unique"

    def __init__(self, inner: Stream) -> None:
        super().__init__(inner)
        self._seen_keys: dict[Any, Element] = {}

    @staticmethod
    def cardinality(count: int, *_: Any) -> int:
        """Return the number of elements, if it is known."""
        return UNKNOWN

    def get(self) -> Element | None:
        """Return the next element that did not occur before."""
        while (element := self._input.get()) is not None:
            key = _key_of(element)
            if key not in self._seen_keys:
                self._seen_keys[key] = element
                return element
        return None

    def save(self) -> Any:
        """Return the distinct elements so far, and the state of the input."""
        return [[list(element) for element in self._seen_keys.values()], save_stream(self._input)]

    def restore(self, state: Any) -> None:
        """Restore the position."""
        seen_keys, inner = fields(state, list, None)
        restore_stream(self._input, inner)
        elements = [element_of(item) for item in seen_keys]
        self._seen_keys = {_key_of(element): element for element in elements}


def _key_of(element: Element) -> Any:
    """Return a hashable key that is equal for equal elements."""
    return tuple(
        [value if type(value) is bytes else _to_hashable(np.asarray(value)) for value in element]
    )


def _to_hashable(value: np.ndarray[Any, Any]) -> Any:
    if value.dtype.hasobject:
        return value.shape, tuple(value.reshape(-1).tolist())
    if value.dtype.kind == "f":
        value = value + value.dtype.type(0)  # -0.0 equals 0.0
    return value.shape, value.tobytes()


class IgnoreErrorsStream(ForwardingStream):
    """The elements that can be computed; errors are skipped.

    Args:
      log: log each failure.
    """

    kind = "IgnoreErrors"

    def __init__(self, inner: Stream, log: bool) -> None:
        super().__init__(inner)
        self._log = log

    @staticmethod
    def cardinality(count: int, *_: Any) -> int:
        """Return the number of elements, if it is known."""
        return INFINITE if count == INFINITE else UNKNOWN

    def get(self) -> Element | None:
        """Return the next element that does not fail."""
        while True:
            try:
                return self._input.get()
            except errors.CancelledError:
                raise
            except errors.OpError as error:
                if self._log:
                    _log.warning("Error raised with error message %s", error.message)


class AssertCardinalityStream(ForwardingStream):
    """The same elements, with a check of their number.

    Args:
      count: required number of elements, or INFINITE.
    """

    kind = "AssertCardinality"

    def __init__(self, inner: Stream, count: int) -> None:
        super().__init__(inner)
        self._count = count
        self._num_returned = 0

    @staticmethod
    def cardinality(count: int, *arguments: Any) -> int:
        """Return the asserted number."""
        return int(arguments[0])

    def get(self) -> Element | None:
        """Return the next element; raise FailedPreconditionError if their number is wrong."""
        element = self._input.get()
        if element is None:
            if self._num_returned != self._count:
                count = "an infinite number of" if self._count == INFINITE else self._count
                raise self._count_error(
                    f"{count} elements but contained only {self._num_returned} elements."
                )
            return None
        self._num_returned += 1
        if self._count not in (INFINITE, UNKNOWN) and self._num_returned > self._count:
            raise self._count_error(
                f"{self._count} elements but contained at least {self._num_returned} elements."
            )
        return element

    @staticmethod
    def _count_error(label: str) -> errors.FailedPreconditionError:
        return errors.FailedPreconditionError(f"Input dataset was expected to contain {label}")

    def save(self) -> Any:
        """Return the number of elements so far, and the state of the input."""
        return [self._num_returned, save_stream(self._input)]

    def restore(self, state: Any) -> None:
        """Restore the position."""
        self._num_returned, inner = fields(state, int, None)
        restore_stream(self._input, inner)
