"""Whether a step is to end: asked between its nodes, and told to what runs long."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import ExitStack

from weft_exec.kernels.context import StepContext
from weft_exec.resources.cancellation import call_at
from weft_tensor import errors


class StepCheck:
    """Raises once its step's deadline has passed or the step was cancelled."""

    __slots__ = ("_context",)

    def __init__(self, context: StepContext) -> None:
        self._context = context

    def __call__(self) -> None:
        """Look.

        Raises: DeadlineExceededError, or what the step was cancelled with.
        """
        context = self._context
        if context.cancellation.error is not None:
            raise context.cancellation.error
        if context.deadline is not None and time.monotonic() >= context.deadline:
            raise deadline_error("")

    def calling(self, stop: Callable[[], None]) -> ExitStack:
        """Within the block, `stop` is called when the step is to end, from some thread."""
        context, within = self._context, ExitStack()
        if context.deadline is not None:
            within.callback(call_at(context.deadline, stop).cancel)
        token = context.cancellation.register(lambda _: stop())
        within.callback(context.cancellation.deregister, token)
        return within


class _Running(threading.local):
    """What this thread runs.

    Attributes:
      check: of the step, if somebody may end it.
    """

    check: StepCheck | None = None


running = _Running()


def raise_if_ended() -> None:
    """Raise what the step that this thread runs is to end with, if it is."""
    if running.check is not None:
        running.check()


def deadline_error(where: str) -> errors.DeadlineExceededError:
    """The error of a step that ran past its timeout."""
    return errors.DeadlineExceededError(f"the step ran past its timeout{where}")
