"""Timers of hooks, in steps or seconds, and access to the global step."""

from __future__ import annotations

__all__ = ["SecondOrStepTimer"]

import time
from typing import Any, Protocol

from weft_autodiff.optimizers.training_util import get_global_step
from weft_graph.ir.graph import Graph
from weft_graph.ir.node import Output
from weft_graph.ops.identity import identity
from weft_graph.variables.reference import RefVariable
from weft_tensor import errors
from weft_tensor.arguments import check_integer, check_number


class Timer(Protocol):
    """The interface of `SecondOrStepTimer` and `NeverTriggerTimer`."""

    def reset(self) -> None:
        """Reset to the state before the first action."""

    def should_trigger_for_step(self, step: int) -> bool:
        """Return True if the action is due at this step."""

    def update_last_triggered_step(self, step: int) -> tuple[float | None, int | None]:
        """Record the action at this step; return seconds and steps since the previous one."""

    def last_triggered_step(self) -> int | None:
        """Return the step of the last action, or None."""


class SecondOrStepTimer:
    """A timer that is due at the first step, and then at intervals after the last action.

    Call `should_trigger_for_step`, and after the action `update_last_triggered_step`. Seconds are
    measured by the monotonic clock.

    Args:
      every_secs: interval in seconds; or
      every_steps: interval in steps.
    Raises:
      InvalidArgumentError: not exactly one of them is set.

    Examples:
      >>> timer = wf.train.SecondOrStepTimer(every_steps=10)
      >>> for step in range(25):
      ...     if timer.should_trigger_for_step(step):
      ...         timer.update_last_triggered_step(step)[1], step
      (None, 0)
      (10, 10)
      (10, 20)
    """

    def __init__(self, every_secs: float | None = None, every_steps: int | None = None) -> None:
        if (every_secs is None) == (every_steps is None):
            raise errors.InvalidArgumentError(
                f"one of every_secs and every_steps is required, got {every_secs} and {every_steps}"
            )
        self._every_secs = every_secs
        self._every_steps = every_steps
        self.reset()

    def reset(self) -> None:
        """Reset to the state before the first action."""
        self._last: tuple[float, int] | None = None

    def should_trigger_for_step(self, step: int) -> bool:
        """Return True if the action is due at this step and was not yet done at it."""
        if self._last is None:
            return True
        last_time, last_step = self._last
        if step == last_step:
            return False
        if self._every_secs is not None:
            return time.monotonic() >= last_time + self._every_secs
        assert self._every_steps is not None
        return step >= last_step + self._every_steps

    def update_last_triggered_step(self, step: int) -> tuple[float | None, int | None]:
        """Record the action at this step and the current time.

        Returns: seconds and steps since the previous action; None the first time.
        """
        now = (time.monotonic(), step)
        last, self._last = self._last, now
        return (None, None) if last is None else (now[0] - last[0], step - last[1])

    def last_triggered_step(self) -> int | None:
        """Return the step of the last action, or None."""
        return None if self._last is None else self._last[1]


class StepsAhead:
    """An upper bound of the global step after a step, based on the increments so far.

    Hooks know the global step before a step. Reading it after the step takes another step, which
    they run only if the action may be due.
    """

    def __init__(self) -> None:
        self._last_start: int | None = None
        self._max_steps = 1

    def after(self, start_step: int) -> int:
        """Return the upper bound after a step that started at `start_step`."""
        if self._last_start is None:
            self._last_start = start_step
            return start_step + _FAR
        self._max_steps = max(self._max_steps, start_step - self._last_start)
        self._last_start = start_step
        return start_step + self._max_steps


_FAR = 1 << 62
"""Assumed increment of the first step."""


class NeverTriggerTimer:
    """A timer that is never due."""

    def reset(self) -> None:
        """Do nothing."""

    def should_trigger_for_step(self, step: int) -> bool:
        """Return False."""
        return False

    def update_last_triggered_step(self, step: int) -> tuple[float | None, int | None]:
        """Return (None, None)."""
        return None, None

    def last_triggered_step(self) -> int | None:
        """Return None."""
        return None


def timer_of(
    every_steps: int | None, every_secs: float | None, steps_name: str, secs_name: str
) -> SecondOrStepTimer:
    """Return a timer from one of two arguments.

    Args:
      every_steps, every_secs: the arguments.
      steps_name, secs_name: their names in messages.
    Raises: InvalidArgumentError: none or both are set, or the value is too small; InvalidTypeError:
      it is not a number.
    """
    if (every_steps is None) == (every_secs is None):
        raise errors.InvalidArgumentError(
            f"exactly one of {steps_name} and {secs_name} should be provided, "
            f"got {every_steps} and {every_secs}"
        )
    if every_steps is not None:
        every_steps = check_integer(every_steps, steps_name, 1)
    if every_secs is not None:
        every_secs = check_number(every_secs, secs_name, 0)
    return SecondOrStepTimer(every_secs=every_secs, every_steps=every_steps)


def global_step_for(hook: Any, graph: Graph | None = None) -> Any:
    """Return the global step that a hook needs.

    Raises: FailedPreconditionError: the graph has none.
    """
    step = get_global_step(graph)
    if step is None:
        raise errors.FailedPreconditionError(
            f"Global step should be created to use {type(hook).__name__}."
        )
    return step


def step_before(step: Any) -> Any:
    """Return the fetch for a hook to read the global step before a step.

    A fetched reference variable would be read at the end of the step.
    """
    if isinstance(step, Output):
        return identity(step) if step.dtype.is_ref else step
    return step.value() if isinstance(step, RefVariable) else step
