"""What hooks share: their timers and the global step."""

from __future__ import annotations

from typing import Any, Protocol

from weft_autodiff.optimizers.training_util import get_global_step
from weft_graph.ir.graph import Graph
from weft_io.arguments import integer, number
from weft_io.training.hook_timers import SecondOrStepTimer
from weft_tensor import errors


class Timer(Protocol):
    """What `SecondOrStepTimer` and `NeverTriggerTimer` do."""

    def reset(self) -> None:
        """As if it had never been done."""

    def should_trigger_for_step(self, step: int) -> bool:
        """Whether it is due at this step."""

    def update_last_triggered_step(self, step: int) -> tuple[float | None, int | None]:
        """It was done at this step, now; seconds and steps since it was done before."""

    def last_triggered_step(self) -> int | None:
        """The step at which it was last done, if it ever was."""


class NeverTriggerTimer:
    """Never due."""

    def reset(self) -> None:
        """Nothing to forget."""

    def should_trigger_for_step(self, step: int) -> bool:
        """False."""
        return False

    def update_last_triggered_step(self, step: int) -> tuple[float | None, int | None]:
        """(None, None)."""
        return None, None

    def last_triggered_step(self) -> int | None:
        """None."""
        return None


def timer_of(
    every_steps: int | None, every_secs: float | None, steps_name: str, secs_name: str
) -> SecondOrStepTimer:
    """A timer by one of two arguments.

    Args:
      every_steps, every_secs: the arguments.
      steps_name, secs_name: what they are called in messages.
    Raises: InvalidArgumentError: none or both are given, or one is too small; InvalidTypeError: it
      is no number.
    """
    if (every_steps is None) == (every_secs is None):
        raise errors.InvalidArgumentError(
            f"exactly one of {steps_name} and {secs_name} should be provided, "
            f"got {every_steps} and {every_secs}"
        )
    if every_steps is not None:
        every_steps = integer(every_steps, steps_name, 1)
    if every_secs is not None:
        every_secs = number(every_secs, secs_name, 0)
    return SecondOrStepTimer(every_secs=every_secs, every_steps=every_steps)


def global_step_for(hook: Any, graph: Graph | None = None) -> Any:
    """The global step, which a hook needs.

    Raises: FailedPreconditionError: the graph has none.
    """
    step = get_global_step(graph)
    if step is None:
        raise errors.FailedPreconditionError(
            f"Global step should be created to use {type(hook).__name__}."
        )
    return step
