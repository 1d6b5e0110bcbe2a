"""Prefetching: a thread that fills a bounded buffer while the step runs."""

from __future__ import annotations

__all__ = ["AUTOTUNE"]

import threading
import weakref
from collections import deque
from collections.abc import Callable
from typing import Any, Final

from weft_exec.resources.resources import NOT_READY
from weft_exec.tracing.consumers import KERNEL, WAIT, record_block
from weft_io.streams.pending_errors import encode_failure, failure_of
from weft_io.streams.stream import (
    DerivedSource,
    Element,
    Root,
    Source,
    Stream,
    element_of,
    fields,
    restore_stream,
    save_stream,
)
from weft_tensor import errors
from weft_tensor.finalizers import call_when_gone

AUTOTUNE: Final = -1
_MAX_BUFFER_SIZE: Final = 64
"""Maximum size of a buffer whose size is chosen automatically."""


class PrefetchSource(DerivedSource):
    """A dataset that a thread prefetches.

    Args:
      size: number of elements; AUTOTUNE to choose it automatically, 0 for no prefetching.
    Raises:
      InvalidArgumentError: the size is below -1.
    """

    def __init__(self, inner: Source, size: int) -> None:
        if size < AUTOTUNE:
            raise errors.InvalidArgumentError(
                f"buffer_size must be >= 0 or set buffer_size to be {AUTOTUNE}, got {size}"
            )
        super().__init__(inner, PrefetchStream, size)
        self._size = size

    def iterate(self, root: Root) -> Stream:
        """Start a pass, whose thread ends with the owner of `root`."""
        return PrefetchStream(self._inner.iterate(root), self._size, root.owner)


class _Buffer:
    """The state shared by the thread and its consumers.

    A stream may refer to its session through the functions that it calls, and the session to
    consumers. So the thread also ends with the owner, to which none of these refers.

    Attributes:
      changed: guards everything except `stream`, and is notified of each change.
      pulling: held while the stream is used.
      items: elements, errors, and None at the end.
    """

    def __init__(self, stream: Stream, size: int, owner: object | None) -> None:
        self.stream = stream
        self.changed = threading.Condition()
        self.pulling = threading.Lock()
        self.items: deque[Element | Exception | None] = deque()
        self.grows = size == AUTOTUNE
        self.limit = 2 if self.grows else size
        self.was_full = False
        self.stopped = False
        self.wake: Callable[[], Any] | None = None
        # A bound method would keep the buffer alive as long as the owner.
        stop = weakref.WeakMethod(self.stop)
        self._owner = None if owner is None else call_when_gone(owner, _call, stop)

    def stop(self) -> None:
        if self._owner is not None:
            self._owner.cancel()
        with self.changed:
            self.stopped = True
            self.changed.notify_all()

    def run(self) -> None:
        """Prefetch until the last element, or until stopped; the thread's function."""
        while self._wait_for_room():
            # Held from the request until the item is in the buffer. Otherwise `save` could run
            # while an element is in neither the stream's state nor the buffer.
            with self.pulling:
                if self.stopped:
                    return
                item = _pull_element(self.stream)
                with self.changed:
                    self.items.append(item)
                    self.changed.notify_all()
                    wake = self.wake
            # Called without the locks, because the callback may ask for the element at once.
            if wake is not None:
                wake()
            if item is None:
                return
            # Otherwise this frame keeps the element alive while it waits for room.
            del item

    def _wait_for_room(self) -> bool:
        with self.changed:
            if len(self.items) >= self.limit and not self.stopped:
                self.was_full = True
                with record_block(WAIT, "full buffer", "_Prefetch"):
                    self.changed.wait_for(lambda: self.has_room or self.stopped)
            return not self.stopped

    @property
    def has_room(self) -> bool:
        """True if another item may be added."""
        return len(self.items) < self.limit

    def take(self) -> Element | Exception | None:
        """Remove and return the next item, except the end marker; requires the lock."""
        item = self.items[0]
        # The end marker stays in the buffer, so that later requests see the end, too.
        if item is not None:
            self.items.popleft()
            self.changed.notify_all()
        return item

    def is_empty(self) -> bool:
        """Return True if the buffer is empty; enlarge it if it was full before."""
        if self.items:
            return False
        # A buffer that is sometimes full and sometimes empty is too small for the variation of the
        # two sides. One that was never full has a slow producer, and more room would not help.
        if self.grows and self.was_full:
            self.limit = min(self.limit * 2, _MAX_BUFFER_SIZE)
            self.was_full = False
            self.changed.notify_all()
        return True


def _call(method: weakref.WeakMethod[Callable[[], None]]) -> None:
    result = method()
    if result is not None:
        result()


def _pull_element(stream: Stream) -> Element | Exception | None:
    try:
        with record_block(KERNEL, f"element of {stream.kind}", "_Prefetch"):
            return stream.get()
    except Exception as error:  # because it is raised when the element is requested
        return error


class PrefetchStream(Stream):
    """The consumer of a buffer. Its thread starts at the first request.

    Args:
      stream: the stream to prefetch.
      size: size of the buffer, as for `PrefetchSource`.
      owner: function that returns the owner of the thread while it is alive.
    """

    kind = "Prefetch"

    def __init__(
        self, stream: Stream, size: int, owner: Callable[[], object] | None = None
    ) -> None:
        self._stream = stream
        self._direct = size == 0
        self._buffer = _Buffer(stream, size, None if owner is None else owner())
        self._thread: threading.Thread | None = None
        self._closed = False
        call_when_gone(self, self._buffer.stop)

    def get(self) -> Element | None:
        """Return the next element; wait for it in the calling thread."""
        if self._direct:
            return self._pull()
        self._start()
        buffer = self._buffer
        with buffer.changed:
            while buffer.is_empty():
                if buffer.stopped:
                    raise errors.CancelledError("the iterator was closed")
                buffer.changed.wait()
            return _unwrap(buffer.take())

    def poll(self, wake: Callable[[], Any]) -> Any:
        """Return the next element, or NOT_READY.

        Args:
          wake: function called from any thread when an element is ready.
        """
        if self._direct:
            return self._pull()
        buffer = self._buffer
        with buffer.changed:
            # Registered before the buffer is tested, so that an element that arrives in between is
            # announced.
            buffer.wake = wake
        self._start()
        with buffer.changed:
            if buffer.is_empty():
                return NOT_READY
            return _unwrap(buffer.take())

    def _pull(self) -> Element | None:
        """Return an element without the thread: from the restored buffer, then the stream."""
        items = self._buffer.items
        return _unwrap(items.popleft()) if items else self._stream.get()

    def _start(self) -> None:
        if self._thread is None and not self._closed:
            self._thread = threading.Thread(
                target=self._buffer.run, name="weft: prefetch", daemon=True
            )
            self._thread.start()

    def save(self) -> Any:
        """Return the buffered items, and the state of the stream."""
        buffer = self._buffer
        with buffer.pulling:
            items = [
                encode_failure(item) if isinstance(item, Exception) else list(item)
                for item in buffer.items
                if item is not None
            ]
            return [items, save_stream(self._stream)]

    def restore(self, state: Any) -> None:
        """Restore the buffered items, and the state of the stream."""
        items, inner = fields(state, list, None)
        restore_stream(self._stream, inner)
        self._buffer.items.extend([failure_of(item) or element_of(item) for item in items])

    def close(self) -> None:
        """End the thread, then close its stream; wait a limited time for the current call."""
        self._closed = True
        self._buffer.stop()
        thread = self._thread
        if thread is None or thread is threading.current_thread():
            self._stream.close()
            return
        thread.join(_JOIN_TIMEOUT)
        if not thread.is_alive():
            self._stream.close()


_JOIN_TIMEOUT: Final = 5.0
"""Maximum number of seconds that closing waits for the thread, which may be blocked forever."""


def _unwrap(item: Element | Exception | None) -> Element | None:
    if isinstance(item, Exception):
        raise item
    return item
