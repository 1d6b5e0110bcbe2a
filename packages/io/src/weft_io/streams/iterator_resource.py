"""An iterator as steps see it: where they are in a dataset."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

from weft_exec.resources.cancellation import Cancellation
from weft_exec.resources.resources import NOT_READY, Done, Resource, Waiters
from weft_io.streams import state as form
from weft_io.streams.prefetching import PrefetchStream
from weft_io.streams.stream import Element, Root, Source, Stream, resume, saved
from weft_tensor import errors
from weft_tensor.dtypes import DType
from weft_tensor.shape import Dims, compatible_dims, format_dims

Given = Callable[[Element], None]


class IteratorResource(Resource):
    """A place in a dataset.

    Args:
      name: in its container.
      types, shapes: of the components.
      make: makes the dataset when it is first asked for; None for one that is given one.
    """

    kind = "iterator"

    def __init__(
        self,
        name: str,
        types: Sequence[DType],
        shapes: Sequence[Dims],
        make: Callable[[], Source] | None = None,
    ) -> None:
        super().__init__(name)
        self.types = tuple(types)
        self.shapes = tuple(shapes)
        self._make = make
        self._lock = threading.RLock()
        self._waiters = Waiters(self._lock)
        self._source: Source | None = None
        self._stream: Stream | None = None

    # ------------------------------------------------------------------ what it reads

    def start(self, source: Source) -> None:
        """Begin a pass over a dataset; one that it is in is left."""
        stream = source.iterate(Root())
        self._replace(source, stream)

    def _replace(self, source: Source, stream: Stream) -> None:
        with self._lock:
            if self.closed:
                stream.close()
                raise errors.CancelledError(f"the iterator {self.name!r} was closed")
            old, self._stream, self._source = self._stream, stream, source
        if old is not None:
            old.close()
        self._waiters.wake()

    def _started(self) -> Stream:
        if self._stream is None:
            if self._make is None:
                raise self._not_started()
            self.start(self._make())
        assert self._stream is not None
        return self._stream

    def _not_started(self) -> errors.FailedPreconditionError:
        return errors.FailedPreconditionError(
            f"GetNext() failed because the iterator {self.name!r} has not been initialized. Ensure "
            "that you have run the initializer operation for this iterator before getting the "
            "next element."
        )

    # ------------------------------------------------------------------ elements

    def get_next(self, done: Done, cancellation: Cancellation | None = None) -> None:
        """Tell the next element, or the failure: OutOfRangeError at the end.

        What is read ahead is waited for without a thread; anything else is computed here.
        """
        with self._lock:
            stream = self._started()
            if isinstance(stream, PrefetchStream):
                result: Any = NOT_READY
            else:
                result = self._checked(stream.get())
        if result is NOT_READY:
            self._waiters.wait(self._attempt, done, cancellation)
        else:
            done(result)

    def _attempt(self) -> Any:
        stream = self._started()
        if isinstance(stream, PrefetchStream):
            found = stream.poll(self._waiters.wake)
            return found if found is NOT_READY else self._checked(found)
        return self._checked(stream.get())

    def _checked(self, element: Element | None) -> Element:
        if element is None:
            raise errors.OutOfRangeError("End of sequence")
        for value, dims in zip(element, self.shapes, strict=True):
            shape = () if type(value) is bytes else value.shape
            if shape != dims and not compatible_dims(dims, shape):
                raise errors.InvalidArgumentError(
                    f"the iterator {self.name!r} must give elements of shapes "
                    f"{', '.join(map(format_dims, self.shapes))}, got a component of shape "
                    f"{format_dims(shape)}"
                )
        return element

    # ------------------------------------------------------------------ state

    def serialize(self) -> bytes:
        """Where it is: the state of all its streams."""
        with self._lock:
            return form.encode(saved(self._started()))

    def restore(self, data: bytes) -> None:
        """Go on from where `serialize` was; on an error it stays where it is.

        Raises:
          FailedPreconditionError: it has no dataset yet.
          InvalidArgumentError, DataLossError: the state is of another pipeline, or damaged.
        """
        state = form.decode(data)
        with self._lock:
            source = self._source
            if source is None:
                if self._make is None:
                    raise self._not_started()
                source = self._make()
            stream = source.iterate(Root())
            try:
                resume(stream, state)
            except BaseException:  # because whatever happens the stream is let go
                stream.close()
                raise
        self._replace(source, stream)

    def close(self) -> None:
        """End its threads; those who wait fail."""
        super().close()
        self._waiters.close(errors.CancelledError(f"the iterator {self.name!r} was closed"))
        with self._lock:
            stream, self._stream, self._source = self._stream, None, None
        if stream is not None:
            stream.close()
