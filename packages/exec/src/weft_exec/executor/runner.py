"""Execution of steps, in a fixed order or by the ready queue."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from weft_exec.executor.driver import Driver
from weft_exec.executor.executable import Executable
from weft_exec.executor.linear import Slots
from weft_exec.executor.step_check import StepCheck, running
from weft_exec.kernels.context import StepContext
from weft_exec.kernels.numpy_warnings import call_quietly, call_unary_quietly
from weft_exec.kernels.random_counters import run_in_new_step
from weft_exec.resources.cancellation import Cancellation
from weft_exec.resources.rendezvous import Rendezvous
from weft_exec.resources.threads import ThreadPool
from weft_exec.tracing.step_trace import clock
from weft_tensor import errors

if TYPE_CHECKING:
    from weft_exec.executor.pausable_step import PausedStep
    from weft_exec.tracing.step_trace import StepTrace


class Runner:
    """Runs the steps of one session, or of one function body.

    Args:
      container: the default container of resources.
      pool: the threads for heavy kernels, or None.
    """

    def __init__(self, container: str, pool: ThreadPool | None = None) -> None:
        self._container = container
        self._pool = pool
        self._running: set[StepContext] = set()
        self._closed = False

    def run(self, executable: Executable, slots: Slots) -> list[Any]:
        """Run one step with the least overhead and return its fetches.

        Raises: OpError: a kernel failed, or `close` was called during the step.
        """
        run_line = executable.run_line
        if run_line is None:
            return self.run_watched(executable, slots)
        try:
            call_unary_quietly(run_line, slots)
        except errors.OpError as error:
            self._blame_closing(error)
            raise
        return executable.results(slots)

    def run_watched(
        self,
        executable: Executable,
        slots: Slots,
        deadline: float | None = None,
        trace: StepTrace | None = None,
        rendezvous: Rendezvous | None = None,
        cancellation: Cancellation | None = None,
    ) -> list[Any]:
        """Run one step that can be canceled at each node, and return its fetches.

        Args:
          deadline: in `time.monotonic()`.
          trace: records when each node ran.
          rendezvous: exchanges values with other partitions.
          cancellation: ends the step from outside, for example when another partition has failed.
        Raises: OpError: see `run`; or the deadline has passed; or the error of `cancellation`.
        """
        context = StepContext(deadline, self._container, rendezvous, cancellation)
        self._running.add(context)
        try:
            if self._closed:
                raise closed_error()
            if executable.linear is not None:
                check = StepCheck(context)
                outer_check, running.check = running.check, check
                try:
                    if trace is None:
                        call_quietly(run_in_new_step, executable.linear.run_checked, slots, check)
                    else:
                        # Closing the session empties the list of instructions.
                        is_checked = deadline is not None or cancellation is not None
                        segment_check = check if is_checked else None
                        run = executable.linear.run_traced
                        call_quietly(run_in_new_step, run, slots, trace.log(), segment_check)
                finally:
                    running.check = outer_check
            else:
                call_quietly(Driver(executable, slots, context, self._pool, trace).run)
        except errors.OpError as error:
            self._blame_closing(error)
            raise
        finally:
            self._running.discard(context)
        if trace is None:
            return executable.results(slots)
        start = clock()
        results = executable.results(slots)
        trace.record_phase("fetch", start, clock())
        return results

    def begin(self, executable: Executable) -> PausedStep:
        """Start a step that exchanges values with its caller."""
        from weft_exec.executor.pausable_step import CallerRendezvous, PausedStep

        if self._closed:
            raise closed_error()
        rendezvous = CallerRendezvous()
        context = StepContext(None, self._container, rendezvous)
        step = PausedStep(executable, executable.slots(()), context, self._pool, rendezvous)
        self._running.add(context)
        context.add_end_callback(partial(self._running.discard, context))
        return step

    @property
    def running(self) -> int:
        """The number of running steps that can be canceled."""
        return len(self._running)

    def close(self) -> None:
        """Cancel running steps, and reject new ones."""
        self._closed = True
        for context in list(self._running):
            error = errors.CancelledError("the step was cancelled: the session was closed")
            context.cancellation.cancel(error)

    def _blame_closing(self, error: errors.OpError) -> None:
        """Raise CancelledError in place of an error of a step during which `close` was called."""
        if not self._closed or isinstance(error, errors.CancelledError):
            return
        raise errors.CancelledError("the session was closed while the step ran") from error


def closed_error() -> errors.FailedPreconditionError:
    """Return the error for steps that start after their session was closed."""
    return errors.FailedPreconditionError("the session has been closed")
