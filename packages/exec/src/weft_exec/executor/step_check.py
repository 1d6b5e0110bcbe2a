"""Checks of whether a step must end, and callbacks that stop long-running work."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import ExitStack

from weft_exec.kernels.context import StepContext
from weft_exec.resources.cancellation import call_at
from weft_tensor import errors


class StepCheck:
    """Check that raises an error once its step has passed its deadline or was canceled."""

    __slots__ = ("_context",)

    def __init__(self, context: StepContext) -> None:
        self._context = context

    def __call__(self) -> None:
        """Raise an error if the step must end.

        Raises: DeadlineExceededError, or the error that canceled the step.
        """
        context = self._context
        if context.cancellation.error is not None:
            raise context.cancellation.error
        if context.deadline is not None and time.monotonic() >= context.deadline:
            raise deadline_error("")

    def on_stop(self, stop: Callable[[], None]) -> ExitStack:
        """Return a context that calls `stop`, from any thread, when the step must end."""
        context, stack = self._context, ExitStack()
        if context.deadline is not None:
            stack.callback(call_at(context.deadline, stop).cancel)
        token = context.cancellation.register(lambda _: stop())
        stack.callback(context.cancellation.deregister, token)
        return stack


class _RunningStep(threading.local):
    """The step that the current thread runs.

    Attributes:
      check: its check, or None if it cannot be ended.
    """

    check: StepCheck | None = None


running = _RunningStep()


def raise_if_ended() -> None:
    """Raise the error of the current thread's step if it must end."""
    if running.check is not None:
        running.check()


def deadline_error(position: str) -> errors.DeadlineExceededError:
    """Return the error for a step that has exceeded its timeout."""
    return errors.DeadlineExceededError(f"the step exceeded its timeout{position}")
