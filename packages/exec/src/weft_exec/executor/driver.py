"""The thread that calls Run drives its step: inline, on the pool, and through continuations.

Pool threads and asynchronous kernels only post to the step's mailbox; all bookkeeping happens in
the driving thread, without locks.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any

from weft_exec.executor.context import Completion, StepContext
from weft_exec.executor.entries import Entry
from weft_exec.executor.executable import Executable
from weft_exec.executor.linear import Slots
from weft_exec.executor.pool import ThreadPool
from weft_exec.executor.step import StepMachine
from weft_exec.kernel_errors import located
from weft_tensor import errors

if TYPE_CHECKING:
    from weft_exec.tracing import StepTrace

WORTH_A_THREAD = 1e-4
"""Seconds that a kernel must take for a hop to another thread to pay."""

_WAKE = -1


class Driver:
    """One step of an executable that has something to overlap."""

    def __init__(
        self,
        executable: Executable,
        slots: Slots,
        context: StepContext,
        pool: ThreadPool | None,
        trace: StepTrace | None,
    ) -> None:
        self._entries = executable.entries
        self._slots = slots
        self._context = context
        self._pool = pool
        self._trace = trace
        self._machine = StepMachine(executable.entries, executable.shared_uses)
        self._mailbox: SimpleQueue[tuple[int, Any, BaseException | None]] = SimpleQueue()
        self._threads_busy = 0

    def run(self) -> None:
        """Run the step to its end.

        Raises: OpError: a kernel failed, or the step was cancelled or timed out.
        """
        machine = self._machine
        token = self._context.cancellation.register(
            lambda error: self._mailbox.put((_WAKE, None, error))
        )
        try:
            while not machine.done:
                entry = machine.take()
                if entry is None:
                    self._receive(block=True)
                else:
                    self._start(entry)
                    self._receive(block=False)
        except BaseException as error:  # because Ctrl-C must not leave kernels behind
            self._abandon(error)
            raise
        finally:
            self._context.cancellation.deregister(token)
        if machine.error is not None:
            raise machine.error

    def _wake(self, error: errors.OpError) -> None:
        self._mailbox.put((_WAKE, None, error))

    # ------------------------------------------------------------------ starting

    def _start(self, entry: Entry) -> None:
        if entry.kernel is not None:
            self._start_asynchronous(entry)
        elif entry.heavy and self._worth_a_thread(entry):
            self._threads_busy += 1
            assert self._pool is not None
            self._pool.submit(lambda: self._run_on_pool(entry))
        else:
            error = self._run_entry(entry)
            self._completed(entry, error)

    def _worth_a_thread(self, entry: Entry) -> bool:
        """Whether something else of weight can run meanwhile, and a thread is free."""
        if self._pool is None or self._threads_busy >= self._pool.size - 1:
            return False
        if entry.cost and entry.cost < WORTH_A_THREAD:
            return False
        return any(other.heavy for other in self._machine.peek())

    def _run_on_pool(self, entry: Entry) -> None:
        self._mailbox.put((entry.index, entry, self._run_entry(entry)))

    def _run_entry(self, entry: Entry) -> BaseException | None:
        started = time.perf_counter()
        try:
            self._run_segment(entry)
        except errors.OpError as error:
            return error
        elapsed = time.perf_counter() - started
        entry.cost = elapsed if not entry.cost else 0.8 * entry.cost + 0.2 * elapsed
        return None

    def _run_segment(self, entry: Entry) -> None:
        context = self._context
        if context.deadline is None and self._trace is None:
            if context.cancellation.error is not None:
                raise context.cancellation.error
            entry.segment.run(self._slots)
        else:
            record = None if self._trace is None else self._trace.record
            entry.segment.run_checked(self._slots, checker(context), record)

    def _start_asynchronous(self, entry: Entry) -> None:
        error = self._run_entry(entry) if entry.segment.instructions else None
        if error is not None:
            self._completed(entry, error)
            return
        done = Completion(entry.index, self._mailbox.put)
        assert entry.kernel is not None
        started = time.time_ns()
        inputs = entry.arguments(self._slots)
        if self._trace is not None:
            self._trace.waiting(entry.index, entry.segment.nodes[-1], started)
        try:
            entry.kernel(self._context, inputs, done)
        except Exception as raised:  # because a kernel may raise anything; it is located
            self._mailbox.put((entry.index, None, raised))

    # ----------------------------------------------------------------- receiving

    def _receive(self, block: bool) -> None:
        """Handle what came in; with `block`, wait for something first."""
        while True:
            try:
                index, value, error = self._mailbox.get(block, self._patience() if block else None)
            except Empty:
                if block:
                    self._timed_out()
                    block = False
                    continue
                return
            block = False
            if index == _WAKE:
                assert isinstance(error, errors.OpError)
                self._machine.abort(error)
                continue
            self._handle(self._entries[index], value, error)

    def _handle(self, entry: Entry, value: Any, error: BaseException | None) -> None:
        if entry.kernel is None:
            self._threads_busy -= 1
        else:
            node = entry.segment.nodes[-1]
            if self._trace is not None:
                self._trace.arrived(entry.index)
            if error is not None:
                error = located(
                    error, node, entry.segment.devices[-1], entry.arguments(self._slots)
                )
            else:
                error = self._store(entry, value)
        self._completed(entry, error)

    def _store(self, entry: Entry, value: Any) -> BaseException | None:
        slot = entry.slot
        if isinstance(slot, slice):
            count = slot.stop - slot.start
            if type(value) not in (tuple, list) or len(value) != count:
                node = entry.segment.nodes[-1]
                return errors.InternalError(
                    f"the kernel must give {count} values, got {value!r}",
                    op=node.type,
                    node=node.name,
                )
        self._slots[slot] = value
        return None

    def _completed(self, entry: Entry, error: BaseException | None) -> None:
        if error is None:
            for slot in self._machine.finished(entry):
                self._slots[slot] = None
            return
        assert isinstance(error, errors.OpError)
        if self._machine.failed(entry, error):
            self._context.cancellation.cancel(
                errors.CancelledError(f"the step failed elsewhere: {error.message}")
            )

    def _patience(self) -> float | None:
        deadline = self._context.deadline
        if deadline is None or self._machine.error is not None:
            return None
        return max(0.0, deadline - time.monotonic())

    def _timed_out(self) -> None:
        error = deadline_error(self._waiting_for())
        if self._machine.abort(error):
            self._context.cancellation.cancel(error)

    def _waiting_for(self) -> str:
        names = [self._entries[i].segment.nodes[-1].name for i in sorted(self._machine.running)]
        return f" while waiting for {', '.join(names[:5])}" if names else ""

    def _abandon(self, error: BaseException) -> None:
        """Cancel what runs and wait until it has let go of the step."""
        cancelled = errors.CancelledError(f"the step was interrupted by {type(error).__name__}")
        self._machine.abort(cancelled)
        self._context.cancellation.cancel(cancelled)
        while self._threads_busy:
            index, _, _ = self._mailbox.get()
            if index != _WAKE and self._entries[index].kernel is None:
                self._threads_busy -= 1


def checker(context: StepContext) -> Callable[[], None]:
    """What raises once the step's deadline has passed or it was cancelled."""

    def check() -> None:
        if context.cancellation.error is not None:
            raise context.cancellation.error
        if context.deadline is not None and time.monotonic() > context.deadline:
            raise deadline_error("")

    return check


def deadline_error(where: str) -> errors.DeadlineExceededError:
    """The error of a step that ran past its timeout."""
    return errors.DeadlineExceededError(f"the step ran past its timeout{where}")
