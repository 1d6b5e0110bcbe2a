"""The thread that calls Run drives its step: inline, on the pool, and through continuations.

Pool threads and asynchronous kernels only post to the step's mailbox; all bookkeeping happens in
the driving thread, without locks.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any

from weft_exec.executor.context import Completion, StepContext
from weft_exec.executor.entries import Entry
from weft_exec.executor.executable import Executable
from weft_exec.executor.linear import Slots
from weft_exec.executor.pool import Task, ThreadPool
from weft_exec.executor.step import StepMachine
from weft_exec.kernel_errors import located
from weft_tensor import errors

if TYPE_CHECKING:
    from weft_exec.tracing import StepTrace

WORTH_A_THREAD = 1e-4
"""Seconds that a kernel must take for a hop to another thread to pay."""

_WAKE = -1

_log = logging.getLogger("weft")


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
        self._on_pool: dict[int, Task] = {}

    def run(self) -> None:
        """Run the step to its end.

        Raises: OpError: a kernel failed, or the step was cancelled or timed out.
        """
        machine = self._machine
        token = self._context.cancellation.register(self._wake)
        try:
            while not machine.done:
                entry = machine.take()
                if entry is None:
                    self._wait()
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
        elif self._pool is not None and entry.heavy and self._worth_a_thread(entry, self._pool):
            task = self._on_pool[entry.index] = Task(lambda: self._run_on_pool(entry))
            self._pool.submit(task)
        else:
            self._completed(entry, self._run_entry(entry))

    def _worth_a_thread(self, entry: Entry, pool: ThreadPool) -> bool:
        """Whether something else of weight can run meanwhile, and a thread is free."""
        if not self._machine.heavy_ready or len(self._on_pool) >= pool.size - 1:
            return False
        return not entry.cost or entry.cost >= WORTH_A_THREAD

    def _run_on_pool(self, entry: Entry) -> None:
        try:
            error = self._run_entry(entry)
        except BaseException as raised:  # because the driver waits for this entry
            error = raised
        self._mailbox.put((entry.index, None, error))

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
            assert entry.node is not None
            self._trace.waiting(entry.index, entry.node, entry.device, started)
        try:
            entry.kernel(self._context, inputs, done)
        except Exception as raised:  # because a kernel may raise anything; it is located
            try:
                done.fail(raised)
            except errors.InternalError:
                _log.exception("%s raised after it had completed", entry.node)

    # ----------------------------------------------------------------- receiving

    def _wait(self) -> None:
        """Run what no thread has started yet, or else wait for something to come in."""
        for index, task in self._on_pool.items():
            if task.claim():
                del self._on_pool[index]
                entry = self._entries[index]
                self._completed(entry, self._run_entry(entry))
                return
        self._receive(block=True)

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
            self._on_pool.pop(entry.index, None)
            if error is not None and not isinstance(error, errors.OpError):
                raise error
        else:
            assert entry.node is not None
            if self._trace is not None:
                self._trace.arrived(entry.index)
            if error is not None:
                inputs = entry.arguments(self._slots)
                error = located(error, entry.node, entry.device, inputs)
            else:
                error = self._store(entry, value)
        self._completed(entry, error)

    def _store(self, entry: Entry, value: Any) -> BaseException | None:
        slot = entry.slot
        if isinstance(slot, slice):
            count = slot.stop - slot.start
            if type(value) not in (tuple, list) or len(value) != count:
                wrong = errors.InternalError(f"the kernel must give {count} values, got {value!r}")
                assert entry.node is not None
                return located(wrong, entry.node, entry.device, entry.arguments(self._slots))
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
        waiting = [self._entries[i].node for i in sorted(self._machine.running)]
        names = [node.name for node in waiting if node is not None]
        return f" while waiting for {', '.join(names[:5])}" if names else ""

    def _abandon(self, error: BaseException) -> None:
        """Cancel what runs and wait until it has let go of the step."""
        cancelled = errors.CancelledError(f"the step was interrupted by {type(error).__name__}")
        self._machine.abort(cancelled)
        self._context.cancellation.cancel(cancelled)
        for task in list(self._on_pool.values()):
            if not task.claim():
                task.finished.wait()


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
