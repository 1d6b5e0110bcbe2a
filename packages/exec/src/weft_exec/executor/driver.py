"""The thread that calls Run drives its step: inline, on the pool, and through continuations.

Pool threads and asynchronous kernels only post to the step's mailbox; all bookkeeping happens in
the driving thread, without locks.
"""

from __future__ import annotations

import logging
import time
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, Final

from weft_exec.executor.executable import Executable
from weft_exec.executor.kernel_errors import raise_located, to_op_error
from weft_exec.executor.linear import Segment, Slots
from weft_exec.executor.queue_entries import RECEIVE, SEND, Entry
from weft_exec.executor.step import Iteration, StepMachine, Token, TracedStepMachine
from weft_exec.executor.step_check import StepCheck, deadline_error, running
from weft_exec.executor.transfers import Arrival, DirectReceiver, key_of
from weft_exec.kernels.context import Completion, StepContext
from weft_exec.kernels.random_counters import Executions, needs_counters, run_at
from weft_exec.resources.rendezvous import DEAD
from weft_exec.resources.resources import CompletionCallback
from weft_exec.resources.threads import Task, ThreadPool
from weft_exec.tracing.step_trace import LoopIteration
from weft_graph.ir.interrupts import take_item
from weft_graph.ir.node import Node
from weft_tensor import errors

if TYPE_CHECKING:
    from weft_exec.tracing.step_trace import StepTrace

WORTH_A_THREAD = 1e-4
"""Seconds that a kernel must take for a switch to another thread to pay off."""

_log = logging.getLogger("weft")


ELSEWHERE: Final = "failed elsewhere"
"""Mark in the details of an error that it was caused by another error of the same step."""


class Driver:
    """One step of an executable whose nodes can overlap."""

    def __init__(
        self,
        executable: Executable,
        slots: Slots,
        context: StepContext,
        pool: ThreadPool | None,
        trace: StepTrace | None,
    ) -> None:
        self._context = context
        self._check = StepCheck(context)
        self._pool = pool
        self._trace = trace
        make = StepMachine if trace is None else TracedStepMachine
        self._machine: StepMachine = executable.machine(slots, make)
        self._mailbox: SimpleQueue[tuple[Token | None, Any, BaseException | None]] = SimpleQueue()
        self._on_pool: dict[Token, Task] = {}
        self._accepted: list[tuple[Token, Any]] = []
        self._executions: Executions = {}
        self._pending_receives = 0  # received through the mailbox

    def run(self) -> None:
        """Run the step to its end.

        Raises: OpError: a kernel failed, or the step was canceled or timed out.
        """
        machine = self._machine
        token = self._context.cancellation.register(self._wake)
        try:
            while True:
                ready = machine.take()
                if ready is not None:
                    self._start(ready)
                    if self._accepted:
                        self._take_handed()
                    # Mail is handled between two starts, so that successors of finished work
                    # compete with entries that are ready already.
                    if not self._mailbox.empty():
                        self._receive(block=False)
                elif machine.done:
                    break
                else:
                    self._wait()
            machine.end()
        except BaseException as error:  # because Ctrl-C must not leave kernels running
            self._abandon(error)
            raise
        finally:
            self._context.cancellation.deregister(token)
            machine.close()
            self._context.end()
        if machine.error is not None:
            raise_located(machine.take_error())

    def _wake(self, error: errors.OpError) -> None:
        self._mailbox.put((None, None, error))

    # ------------------------------------------------------------------ starting

    def _start(self, token: Token) -> None:
        entry, iteration = token
        if entry.kind == SEND:
            self._send(token)
        elif entry.kind == RECEIVE:
            if self._trace is not None:
                self._record_wait(token, key_of(entry, iteration))
            done: CompletionCallback = DirectReceiver(token, self._accept_sent, self._mailbox.put)
            if self._is_sent_by_other_thread(entry):
                self._pending_receives += 1
                done = Completion(token, self._mailbox.put)
            if entry.move is not None:
                done = Arrival(entry.move, done, self._context.cancellation)
            self._context.rendezvous.receive(key_of(entry, iteration), done)
        elif entry.kernel is not None:
            self._start_asynchronous(token)
        elif not entry.heavy:
            try:
                self._run_segment(token)
            except errors.OpError as error:
                self._completed(token, error)
            else:
                self._machine.finished(token)
        elif self._pool is not None and self._repays_thread(entry, self._pool):
            task = self._on_pool[token] = Task(lambda: self._run_on_pool(token))
            self._pool.submit(task)
        else:
            self._completed(token, self._run_entry(token))

    def _is_sent_by_other_thread(self, receive: Entry) -> bool:
        """Return True if a thread of a device or of another partition sends the value."""
        return receive.move is not None or not self._context.owns_rendezvous

    def _repays_thread(self, entry: Entry, pool: ThreadPool) -> bool:
        """Return True if other work can run at the same time and a thread is free.

        The last of the ready entries goes to the pool, too, so that the successors of the others
        start at once. A device with its own memory must be polled at the same time.
        """
        busy = len(self._on_pool)
        heavy_ready = self._machine.heavy_ready or self._pending_receives
        if busy >= (pool.size - 1 if heavy_ready else pool.size) or not (heavy_ready or busy):
            return False
        return not entry.cost or entry.cost >= WORTH_A_THREAD

    def _run_on_pool(self, token: Token) -> None:
        try:
            error = self._run_entry(token)
        except BaseException as raised:  # because the driver waits for this entry
            error = raised
        self._mailbox.put((token, None, error))
        del error  # its traceback refers to this frame

    def _run_entry(self, token: Token) -> BaseException | None:
        entry = token[0]
        started = time.perf_counter()
        try:
            self._run_segment(token)
        except errors.OpError as error:
            return error
        elapsed = time.perf_counter() - started
        # Concurrent steps update the average without a lock: a lost update only delays it.
        entry.cost = elapsed if not entry.cost else 0.8 * entry.cost + 0.2 * elapsed
        return None

    def _run_segment(self, token: Token) -> None:
        entry, iteration = token
        segment = entry.segment
        if self._trace is not None:
            run_at(self._executions, iteration.tag, self._run_traced, token, self._trace)
        elif segment.uses_rng:
            run_at(self._executions, iteration.tag, self._run_here, segment, iteration.slots)
        else:
            self._run_here(segment, iteration.slots)

    def _run_here(self, segment: Segment, slots: Slots) -> None:
        context = self._context
        # Restored afterwards, because this thread may be inside a kernel of another step.
        outer_check, running.check = running.check, self._check
        try:
            if context.deadline is None:
                if context.cancellation.error is not None:
                    raise context.cancellation.error
                segment.run(slots)
            else:
                segment.run_checked(slots, self._check)
        finally:
            running.check = outer_check

    def _run_traced(self, token: Token, trace: StepTrace) -> None:
        context, log = self._context, trace.log()
        outer_check, running.check = running.check, self._check
        log.iteration = _loop_iteration(token[1])
        try:
            if context.cancellation.error is not None:
                raise context.cancellation.error
            check = None if context.deadline is None else self._check
            ready = self._machine.ready_time(token)
            escaping = token[0].segment.run_traced(token[1].slots, log, check, ready)
            self._machine.watch_releases(token, *escaping)
        finally:
            running.check = outer_check
            log.iteration = None

    def _record_wait(self, token: Token, key: str = "") -> None:
        """Record that an asynchronous entry starts to wait.

        Args:
          key: the rendezvous key of a Receive.
        """
        entry, iteration = token
        assert self._trace is not None
        ready, loop_iteration = self._machine.ready_time(token), _loop_iteration(iteration)
        self._trace.record_start(token, _node(entry), entry.device, ready, loop_iteration, key)

    def _send(self, token: Token) -> None:
        entry, iteration = token
        value = DEAD
        if not iteration.dead[entry.local]:
            error = self._run_entry(token) if entry.segment.instructions else None
            if error is not None:
                self._completed(token, error)
                return
            (value,) = entry.arguments(iteration.slots)
        key = key_of(entry, iteration)
        if self._trace is not None:
            ready, loop_iteration = self._machine.ready_time(token), _loop_iteration(iteration)
            self._trace.record_send(key, _node(entry), entry.device, ready, loop_iteration)
        self._context.rendezvous.send(key, value)
        self._machine.finished(token)

    def _start_asynchronous(self, token: Token) -> None:
        entry, iteration = token
        error = self._run_entry(token) if entry.segment.instructions else None
        if error is not None:
            self._completed(token, error)
            return
        done = Completion(token, self._mailbox.put)
        assert entry.kernel is not None
        inputs = entry.arguments(iteration.slots)
        if self._trace is not None:
            self._record_wait(token)
        try:
            if needs_counters(_node(entry)):
                start = entry.kernel, self._context, inputs, done
                run_at(self._executions, iteration.tag, *start)
            else:
                entry.kernel(self._context, inputs, done)
        except Exception as raised:  # because a kernel may raise anything; the location is added
            try:
                done.fail(raised)
            except errors.InternalError:
                _log.exception("%s raised after it had completed", entry.node)

    # ----------------------------------------------------------------- receiving

    def _accept_sent(self, token: Token, value: Any) -> None:
        """Accept a value that this thread has sent."""
        self._accepted.append((token, value))

    def _take_handed(self) -> None:
        """Handle the values that this thread has sent and received."""
        handed, self._accepted = self._accepted, []
        for token, value in handed:
            entry, iteration = token
            if value is DEAD or self._trace is not None:
                self._handle(token, value, None)
            else:
                iteration.slots[entry.slot] = value
                self._machine.finished(token)

    def _wait(self) -> None:
        """Run a task that no thread has started yet, or else wait for mail.

        While mail is expected, tasks are run only if no thread is free for them.
        """
        has_several = self._pending_receives or len(self._on_pool) > 1
        if has_several and self._pool is not None and self._pool.has_room:
            self._receive(block=True)
            return
        for token, task in self._on_pool.items():
            if task.claim():
                del self._on_pool[token]
                self._completed(token, self._run_entry(token))
                return
        self._receive(block=True)

    def _receive(self, block: bool) -> None:
        """Handle queued messages; if `block`, wait for at least one."""
        while True:
            try:
                token, value, error = (
                    take_item(self._mailbox, self._wait_timeout())
                    if block
                    else self._mailbox.get_nowait()
                )
            except Empty:
                if block:
                    self._timed_out()
                    block = False
                    continue
                return
            block = False
            self._take_in(token, value, error)

    def _take_in(self, token: Token | None, value: Any, error: BaseException | None) -> None:
        if token is None:
            assert isinstance(error, errors.OpError)
            if not self._machine.done:
                self._machine.interrupt(error)
        else:
            self._handle(token, value, error)

    def _handle(self, token: Token, value: Any, error: BaseException | None) -> None:
        entry, iteration = token
        if entry.kind == RECEIVE and self._is_sent_by_other_thread(entry):
            self._pending_receives -= 1
        if entry.kernel is None:
            self._on_pool.pop(token, None)
            if error is not None and not isinstance(error, errors.OpError):
                raise error
        else:
            if value is DEAD:
                self._machine.finished(token, dead=True)
                return
            if self._trace is not None:
                self._trace.record_completion(token, value, error is not None)
            if error is not None:
                inputs = entry.arguments(iteration.slots)
                error = to_op_error(error, _node(entry), entry.device, inputs)
            else:
                error = self._store(entry, iteration.slots, value)
        self._completed(token, error)

    def _store(self, entry: Entry, slots: Slots, value: Any) -> BaseException | None:
        slot = entry.slot
        if isinstance(slot, slice):
            count = slot.stop - slot.start
            if type(value) not in (tuple, list) or len(value) != count:
                internal_error = errors.InternalError(
                    f"the kernel must return {count} values, got {value!r}"
                )
                assert entry.node is not None
                return to_op_error(internal_error, entry.node, entry.device, entry.arguments(slots))
        slots[slot] = value
        return None

    def _completed(self, token: Token, error: BaseException | None) -> None:
        if error is None:
            self._machine.finished(token)
            return
        assert isinstance(error, errors.OpError)
        _add_iterations(error, token[1])
        if self._machine.failed(token, error):
            # The failures that this causes are marked, so that they are not reported in place of
            # the cause.
            reason = f"the step failed elsewhere: {error.message}"
            self._context.cancellation.cancel(
                errors.CancelledError(reason, details={ELSEWHERE: True})
            )

    def _wait_timeout(self) -> float | None:
        deadline = self._context.deadline
        # After a failure the running entries are awaited without a limit, because they still use
        # the memory of the step.
        if deadline is None or self._machine.error is not None:
            return None
        return max(0.0, deadline - time.monotonic())

    def _timed_out(self) -> None:
        error = deadline_error(self._describe_pending())
        if self._machine.interrupt(error):
            self._context.cancellation.cancel(error)

    def _describe_pending(self) -> str:
        waiting = sorted(self._machine.running, key=lambda token: (token[1].serial, token[0].index))
        names = [entry.node.name for entry, _ in waiting if entry.node is not None]
        return f" while waiting for {', '.join(names[:5])}" if names else ""

    def _abandon(self, error: BaseException) -> None:
        """Cancel running kernels and wait until they no longer use the step."""
        cancelled = errors.CancelledError(f"the step was interrupted by {type(error).__name__}")
        self._machine.abort(cancelled)
        self._context.cancellation.cancel(cancelled)
        for task in list(self._on_pool.values()):
            # A task that is claimed here never starts. One that has started writes to the slots of
            # this step.
            if not task.claim():
                task.finished.wait()


def _node(entry: Entry) -> Node:
    assert entry.node is not None
    return entry.node


def _loop_iteration(iteration: Iteration) -> LoopIteration | None:
    """Return an iteration as a trace names it."""
    frame = iteration.frame
    if frame.parent is None:
        return None
    outer = _loop_iteration(frame.parent)
    return LoopIteration(frame.plan.name, iteration.index, outer, iteration.tag)


def _add_iterations(error: errors.OpError, iteration: Iteration | None) -> None:
    """Record the loop iterations in which an error was raised, inner loops first."""
    while iteration is not None and iteration.frame.parent is not None:
        error.in_iteration(iteration.frame.plan.name, iteration.index)
        iteration = iteration.frame.parent
