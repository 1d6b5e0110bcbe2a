"""Parallel map of a function over elements on a thread pool, with results in order."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from weft_exec.resources.threads import Task, ThreadPool
from weft_exec.tracing.consumers import KERNEL, record_block
from weft_io.resources.batch_memory import BatchMemory, Row, compute_in_row
from weft_io.streams.mapping import InterleaveStream, inner_stream
from weft_io.streams.pending_errors import encode_failure, failure_of
from weft_io.streams.prefetching import PrefetchStream
from weft_io.streams.stream import (
    Call,
    Element,
    ForwardingStream,
    Root,
    Source,
    Stream,
    add_location,
    element_of,
    fields,
    restore_stream,
    save_stream,
)
from weft_tensor import errors


class _Pending:
    """A started call, or the error of computing its argument."""

    __slots__ = ("element", "error", "location", "result", "row", "task")

    def __init__(
        self,
        element: Element | None,
        error: errors.OpError | None = None,
        location: str = "",
        row: Row | None = None,
    ) -> None:
        self.element = element
        self.location = location
        self.row = row
        self.error: BaseException | None = error
        self.result: Element | None = None
        self.task: Task | None = None

    def begin(self, call: Call, pool: ThreadPool) -> None:
        self.task = Task(lambda: self._run(call))
        pool.submit(self.task)

    def _run(self, call: Call) -> None:
        assert self.element is not None
        try:
            with record_block(KERNEL, "call for an element", "_ParallelMap"):
                self.result = compute_in_row(self.row, call, self.element)
        except Exception as error:  # because it is raised when the result is requested
            self.error = (
                add_location(error, self.location) if isinstance(error, errors.OpError) else error
            )

    def wait(self, call: Call) -> Element | None:
        """Return the result, once; a call that no thread has begun runs here, to avoid deadlocks.

        The task refers back to this object. It is dropped, so that results are not kept until the
        garbage collector runs.
        """
        task, self.task = self.task, None
        if task is not None:
            if task.claim():
                self._run(call)
            else:
                task.finished.wait()
        if self.error is not None:
            raise self.error
        result, self.result = self.result, None
        return result


class ParallelMapStream(ForwardingStream):
    """A function applied to several elements concurrently, with results in order.

    Args:
      limit: number of concurrent calls.
      pool: the threads that run them.
    """

    kind = "ParallelMap"

    def __init__(self, inner: Stream, call: Call, limit: int, pool: ThreadPool) -> None:
        super().__init__(inner)
        self._call = call
        self._limit = limit
        self._pool = pool
        self._line: deque[_Pending] = deque()
        self._has_ended = False
        self._location = ""  # of the last result's argument
        self._rows: BatchMemory | None = None

    def lend_rows(self, memory: BatchMemory) -> None:
        """Let the calls compute their results in the memory of batches."""
        self._rows = memory

    def location(self) -> str:
        """Return the location of the argument of the last result."""
        return self._location

    def get(self) -> Element | None:
        """Return the next result."""
        self._fill(self._limit)
        if not self._line:
            return None
        head = self._line.popleft()
        self._location = head.location
        # Refilled before waiting, so that the pool has work while this thread waits for the oldest
        # call.
        self._fill(self._limit)
        return head.wait(self._call)

    def _fill(self, limit: int) -> None:
        while len(self._line) < limit and not self._has_ended:
            try:
                element = self._input.get()
            except errors.OpError as error:
                self._line.append(_Pending(None, error))
                continue
            if element is None:
                self._has_ended = True
            else:
                self._add(element, self._input.location())

    def _add(self, element: Element, location: str = "") -> None:
        row = None if self._rows is None else self._rows.next_row()
        pending = _Pending(element, location=location, row=row)
        pending.begin(self._call, self._pool)
        self._line.append(pending)

    def save(self) -> Any:
        """Return the arguments of pending calls, and the state of the input."""
        line = [
            encode_failure(item.error) if item.element is None else list(item.element)
            for item in self._line
        ]
        return [self._has_ended, line, save_stream(self._input)]

    def restore(self, state: Any) -> None:
        """Restart the pending calls."""
        self._has_ended, line, inner = fields(state, bool, list, None)
        restore_stream(self._input, inner)
        for item in line:
            failure = failure_of(item)
            if failure is None:
                self._add(element_of(item))
            else:
                self._line.append(_Pending(None, failure))

    def close(self) -> None:
        """Wait for the running calls."""
        for item in self._line:
            # A task that is claimed here never starts, so only running ones are awaited.
            if item.task is not None and not item.task.claim():
                item.task.finished.wait()
        self._line.clear()
        self._has_ended = True
        super().close()


class ParallelInterleaveSource(Source):
    """An interleaved dataset like `InterleaveSource`, whose cycle is read ahead by threads.

    Args:
      make: function that creates the sequential source.
      ahead: number of elements to read ahead per dataset.
    """

    def __init__(self, inner: Source, call: Call, cycle: int, block: int, calls: int) -> None:
        self._inner = inner
        self._call = call
        self._cycle = cycle
        self._block = block
        self._calls = calls

    def iterate(self, root: Root) -> Stream:
        """Return a stream of the elements, in the order of the sequential one."""
        return _ParallelInterleaveStream(
            self._inner.iterate(root), self._call, self._cycle, self._block, root, self._calls
        )


class _ParallelInterleaveStream(InterleaveStream):
    kind = "ParallelInterleave"

    def __init__(
        self, inner: Stream, call: Call, cycle: int, block: int, root: Root, calls: int
    ) -> None:
        super().__init__(inner, call, cycle, block, root)
        size = block if calls > 1 else 0
        self._ahead: Callable[[Stream], Stream] = lambda stream: PrefetchStream(
            stream, size, root.owner
        )

    def begin(self, element: Element) -> Stream:
        """Return a prefetching stream with the saved state of a plain stream."""
        return self._ahead(inner_stream(self._call, element, self._root))
