"""The iterator resource: the position of steps in a dataset.

Its state is a list: the names of its components' element types; the name of the node that
initialized it, "" if none was needed; and the stream's kind with its state, or None before the
first element.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from weft_exec.resources.cancellation import Cancellation
from weft_exec.resources.resources import NOT_READY, CompletionCallback, Resource, Waiters
from weft_io.streams import state as form
from weft_io.streams.prefetching import PrefetchStream
from weft_io.streams.stream import (
    Element,
    Root,
    Source,
    Stream,
    fields,
    restore_stream,
    save_stream,
)
from weft_tensor import errors
from weft_tensor.dtypes import DType
from weft_tensor.shape import Dims, compatible_dims, format_dims

_log = logging.getLogger("weft")


class _State(NamedTuple):
    """The position of an iterator.

    Attributes:
      by: the node that initialized the iterator, or "".
      stream: kind and state of the stream; None before the first element was requested.
    """

    by: str
    stream: Any


class IteratorResource(Resource):
    """A position in a dataset.

    Args:
      name: name in its container.
      types, shapes: types and shapes of the components.
      make: function that creates the dataset at the first use; None if an initializer assigns it.
      owner: function that returns the iterator's owner while that is alive; the threads end with
        the owner.
    """

    kind = "iterator"

    def __init__(
        self,
        name: str,
        types: Sequence[DType],
        shapes: Sequence[Dims],
        make: Callable[[], Source] | None = None,
        owner: Callable[[], object] | None = None,
    ) -> None:
        super().__init__(name)
        self._owner = owner
        self.types = tuple(types)
        self.shapes = tuple(shapes)
        self._make = make
        self._lock = threading.RLock()
        self._waiters = Waiters(self._lock)
        self._source: Source | None = None
        self._stream: Stream | None = None
        self._initializer = ""
        self._waiting: _State | None = None
        """A state that was restored before a dataset was assigned."""

    def check_gives(self, types: Sequence[DType], shapes: Sequence[Dims]) -> None:
        """Check that the elements have these types and shapes.

        Raises: InvalidArgumentError: the types differ, or the shapes are incompatible.
        """
        same_types = self.types == tuple(types) and len(self.shapes) == len(shapes)
        if same_types and all(map(compatible_dims, self.shapes, shapes)):
            return
        raise errors.InvalidArgumentError(
            f"an iterator over elements of {_elements(types, shapes)} is required, but "
            f"{self.name!r} has elements of {_elements(self.types, self.shapes)}"
        )

    # ------------------------------------------------------------------ what it reads

    def start(self, source: Source, initializer: str = "") -> None:
        """Start a new pass over a dataset, and drop the current one.

        If a state was restored whose pass was started by the same node, continue from that state.

        Args:
          initializer: the name of the initializing node.
        Raises: InvalidArgumentError: the state is of another pipeline.
        """
        self._replace(
            source,
            _open_pass(source, self._pop_restored_state(initializer), self._owner),
            initializer,
        )

    def _pop_restored_state(self, initializer: str) -> _State | None:
        """Return the restored state that waits for a pass started by this node."""
        waiting = self._waiting
        if waiting is None or waiting.by == initializer:
            return waiting
        _log.warning(
            "The restored state of the iterator %r is dropped: it belongs to the initializer %r, "
            "but %r ran.",
            self.name,
            waiting.by,
            initializer,
        )
        return None

    def _replace(self, source: Source, stream: Stream, initializer: str) -> None:
        with self._lock:
            if self.closed:
                stream.close()
                raise errors.CancelledError(f"the iterator {self.name!r} was closed")
            old, self._stream, self._source = self._stream, stream, source
            self._initializer, self._waiting = initializer, None
        if old is not None:
            old.close()
        self._waiters.wake()

    def _start(self) -> Stream:
        if self._stream is None:
            if self._make is None:
                raise self._inactive_error()
            self.start(self._make())
        assert self._stream is not None
        return self._stream

    def _inactive_error(self) -> errors.FailedPreconditionError:
        note = " It then goes on from the state that was restored." if self._waiting else ""
        return errors.FailedPreconditionError(
            f"GetNext() failed because the iterator {self.name!r} has not been initialized. Ensure "
            "that you have run the initializer operation for this iterator before getting the "
            f"next element: session.run(iterator.initializer).{note}"
        )

    # ------------------------------------------------------------------ elements

    def get_next(
        self, completion: CompletionCallback, cancellation: Cancellation | None = None
    ) -> None:
        """Complete with the next element, or with an error: OutOfRangeError at the end.

        Waiting for prefetched elements blocks no thread; other elements are computed in this
        thread.
        """
        with self._lock:
            stream = self._start()
            if isinstance(stream, PrefetchStream):
                result: Any = NOT_READY
            else:
                result = self._validate(stream.get())
        if result is NOT_READY:
            self._waiters.wait(self._attempt, completion, cancellation)
        else:
            completion(result)

    def _attempt(self) -> Any:
        stream = self._start()
        if isinstance(stream, PrefetchStream):
            result = stream.poll(self._waiters.wake)
            return result if result is NOT_READY else self._validate(result)
        return self._validate(stream.get())

    def _validate(self, element: Element | None) -> Element:
        if element is None:
            raise errors.OutOfRangeError("End of sequence")
        for value, dims in zip(element, self.shapes, strict=True):
            shape = () if type(value) is bytes else value.shape
            if shape != dims and not compatible_dims(dims, shape):
                raise errors.InvalidArgumentError(
                    f"the iterator {self.name!r} must return elements of shapes "
                    f"{', '.join(map(format_dims, self.shapes))}, got a component of shape "
                    f"{format_dims(shape)}"
                )
        return element

    # ------------------------------------------------------------------ state

    def serialize(self) -> bytes:
        """Serialize the position, which is the state of all streams."""
        with self._lock:
            types = [dtype.name for dtype in self.types]
            return form.encode([types, *self._state()])

    def _state(self) -> _State:
        if self._stream is not None:
            return _State(self._initializer, save_stream(self._stream))
        return self._waiting or _State("", None)

    def restore(self, data: bytes) -> None:
        """Continue from a serialized position; on an error the position is unchanged.

        Without a dataset, the state is applied to the first one assigned. Empty data comes from a
        checkpoint without the iterator, and resets it to the beginning.

        Raises: InvalidArgumentError, DataLossError: the state is of another pipeline, or damaged.
        """
        state = self._decode(data)
        with self._lock:
            source = self._source
            if source is None and self._make is not None:
                source = self._make()
            if source is None:
                self._waiting = state if state.stream is not None else None
                return
            stream = _open_pass(source, state, self._owner)
        self._replace(source, stream, self._initializer)

    def _decode(self, data: bytes) -> _State:
        if not data:
            _log.warning(
                "The checkpoint has no state of the iterator %r; it starts at the beginning.",
                self.name,
            )
            return _State("", None)
        types, initializer, stream = fields(form.decode(data), list, str, None)
        expected = [dtype.name for dtype in self.types]
        if types != expected:
            raise errors.InvalidArgumentError(
                "the state belongs to another pipeline: its elements are "
                f"{', '.join(map(str, types))}, "
                f"those of the iterator {self.name!r} are {', '.join(expected)}"
            )
        return _State(initializer, stream)

    def close(self) -> None:
        """End the threads and fail all waiters."""
        super().close()
        self._waiters.close(errors.CancelledError(f"the iterator {self.name!r} was closed"))
        with self._lock:
            stream, self._stream, self._source = self._stream, None, None
        if stream is not None:
            stream.close()


def _open_pass(source: Source, state: _State | None, owner: Callable[[], object] | None) -> Stream:
    """Start a new pass over a dataset, from a state if that is not None."""
    stream = source.iterate(Root(owner))
    if state is not None and state.stream is not None:
        try:
            restore_stream(stream, state.stream)
        except BaseException:  # because the stream must be released in any case
            stream.close()
            raise
    return stream


def _elements(types: Sequence[DType], shapes: Sequence[Dims]) -> str:
    return ", ".join(
        f"{t.name} {format_dims(dims)}" for t, dims in zip(types, shapes, strict=False)
    )
