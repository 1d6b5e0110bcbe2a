"""Hooks that start and stop training, feed each step, or fetch values at the end."""

from __future__ import annotations

__all__ = ["FeedFnHook", "FinalOpsHook", "GlobalStepWaiterHook", "StopAtStepHook"]

import logging
import time
from collections.abc import Callable, Mapping
from typing import Any

from weft_exec import progress
from weft_io.coordination.coordinator import Coordinator
from weft_io.training.hook import (
    SessionRunArgs,
    SessionRunContext,
    SessionRunHook,
    SessionRunValues,
)
from weft_io.training.timers import StepsAhead, global_step_for, step_before
from weft_tensor import errors
from weft_tensor.arguments import check_function, check_integer

_log = logging.getLogger("weft")

_PAUSE = 0.5
"""Seconds between reads of the global step that another program increments."""


class StopAtStepHook(SessionRunHook):
    """Requests a stop at a step; immediately if the session starts at or after it.

    Args:
      num_steps: number of steps to run; or
      last_step: the last global step.
    Raises:
      InvalidArgumentError: none or both are set; InvalidTypeError: the argument is not an integer.

    Examples:
      >>> step = wf.train.get_or_create_global_step().assign_add(1)
      >>> hook = wf.train.StopAtStepHook(last_step=2)
      >>> with wf.train.MonitoredTrainingSession(hooks=[hook]) as session:
      ...     while not session.should_stop():
      ...         last = session.run(step)
      >>> int(last)
      2
    """

    def __init__(self, num_steps: int | None = None, last_step: int | None = None) -> None:
        if num_steps is None and last_step is None:
            raise errors.InvalidArgumentError("One of num_steps or last_step must be specified.")
        if num_steps is not None and last_step is not None:
            raise errors.InvalidArgumentError(
                f"Only one of num_steps or last_step can be specified, got {num_steps}, {last_step}"
            )
        self._num_steps = None if num_steps is None else check_integer(num_steps, "num_steps")
        self._last_step_argument = (
            None if last_step is None else check_integer(last_step, "last_step")
        )

    def begin(self) -> None:
        """Find the global step. Raises: FailedPreconditionError: the graph has no global step."""
        self._global_step = global_step_for(self)
        self._step_before = step_before(self._global_step)
        self._last_step = self._last_step_argument
        self._steps = StepsAhead()

    def after_create_session(self, session: Any, coord: Coordinator) -> None:
        """Determine the last step once, so that a recreated session ends at the same step."""
        step = int(session.run(self._global_step))
        if self._last_step is None:
            assert self._num_steps is not None
            self._last_step = step + self._num_steps
        if step >= self._last_step:
            progress.log.info(
                "The global step is %d, and the last is %d: done.", step, self._last_step
            )
            coord.request_stop()

    def before_run(self, run_context: SessionRunContext) -> SessionRunArgs:
        """Request the global step before the step."""
        return SessionRunArgs(self._step_before)

    def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        """Request a stop if the last step is reached."""
        assert self._last_step is not None
        if self._steps.after(int(run_values.results)) < self._last_step:
            return
        if run_context.session.run(self._global_step) >= self._last_step:
            run_context.request_stop()


class GlobalStepWaiterHook(SessionRunHook):
    """Delays a worker until the global step, which others increment, reaches a value.

    With different values, workers start one after the other.

    Args:
      wait_until_step: the global step.
    Raises: InvalidTypeError: the value is not an integer.

    Examples:
      >>> advance = wf.train.get_or_create_global_step().assign_add(1)
      >>> task_index = 0
      >>> hook = wf.train.GlobalStepWaiterHook(wait_until_step=100 * task_index)
      >>> with wf.train.MonitoredSession(hooks=[hook]) as session:
      ...     session.run(advance)
      np.int64(1)
    """

    def __init__(self, wait_until_step: int) -> None:
        self._wait_until_step = check_integer(wait_until_step, "wait_until_step")

    def begin(self) -> None:
        """Find the global step. Raises: FailedPreconditionError: the graph has no global step."""
        self._global_step = global_step_for(self)
        self._started = self._wait_until_step <= 0

    def before_run(self, run_context: SessionRunContext) -> None:
        """Wait before the first step."""
        if self._started:
            return
        _log.info("Waiting for global step %d before starting training.", self._wait_until_step)
        logged = 0
        while (step := int(run_context.session.run(self._global_step))) < self._wait_until_step:
            if step - logged > 1000:
                _log.info(
                    "Waiting for global step %d before starting training. Current step is %d.",
                    self._wait_until_step,
                    step,
                )
                logged = step
            time.sleep(_PAUSE)
        self._started = True


class FinalOpsHook(SessionRunHook):
    """Fetches values at the end of training.

    Args:
      final_ops: any structure that `Session.run` takes; None for nothing.
      final_ops_feed_dict: the feeds for these fetches.

    Examples:
      >>> hook = wf.train.FinalOpsHook(wf.constant(3.0) * 2.0)
      >>> x = wf.constant(1.0)
      >>> with wf.train.MonitoredTrainingSession(hooks=[hook]) as session:
      ...     _ = session.run(x)
      >>> hook.final_ops_values
      np.float32(6.0)
    """

    def __init__(
        self, final_ops: Any, final_ops_feed_dict: Mapping[Any, Any] | None = None
    ) -> None:
        self._final_ops = final_ops
        self._feed_dict = final_ops_feed_dict
        self._values: Any = None

    @property
    def final_ops_values(self) -> Any:
        """The values, after the end of training; None before."""
        return self._values

    def end(self, session: Any) -> None:
        """Fetch the final values. Raises: the errors of the fetched nodes."""
        if self._final_ops is None:
            return
        try:
            self._values = session.run(self._final_ops, feed_dict=self._feed_dict)
        except (errors.OutOfRangeError, StopIteration):
            _log.warning(
                "An OutOfRangeError or StopIteration is raised by the code in FinalOpsHook. This "
                "typically means the Ops running by the FinalOpsHook have a dependency back to "
                "some input source, which should not happen."
            )
            raise


class FeedFnHook(SessionRunHook):
    """Feeds each step with the result of a function.

    Args:
      feed_fn: function called without arguments before each step, which returns a feed dictionary.
    Raises: InvalidTypeError: it cannot be called without arguments.

    Examples:
      >>> x = wf.placeholder(wf.float32)
      >>> hook = wf.train.FeedFnHook(lambda: {x: 2.0})
      >>> y = 3.0 * x
      >>> with wf.train.MonitoredTrainingSession(hooks=[hook]) as session:
      ...     session.run(y)
      np.float32(6.0)
    """

    def __init__(self, feed_fn: Callable[[], Mapping[Any, Any]]) -> None:
        self._feed_fn = check_function(feed_fn, "feed_fn", 0)

    def before_run(self, run_context: SessionRunContext) -> SessionRunArgs:
        """Return the feeds of the next step."""
        return SessionRunArgs(None, self._feed_fn())
