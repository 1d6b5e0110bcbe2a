"""Hooks that log the values of tensors, and that stop when a loss is NaN."""

from __future__ import annotations

__all__ = ["LoggingTensorHook", "NanLossDuringTrainingError", "NanTensorHook"]

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from weft_exec import progress
from weft_graph.ir.default_graph import get_default_graph
from weft_io.arguments import to_list
from weft_io.training.hook import (
    SessionRunArgs,
    SessionRunContext,
    SessionRunHook,
    SessionRunValues,
)
from weft_io.training.timers import NeverTriggerTimer, Timer, timer_of
from weft_tensor import errors
from weft_tensor.arguments import check_function, check_integer

_log = logging.getLogger("weft")


class LoggingTensorHook(SessionRunHook):
    """Hook that logs tensors at the first step and at intervals of steps or seconds.

    Args:
      tensors: tensors or their names; or a dict from tags to them, logged in the order of the tags.
      every_n_iter: steps of this session between lines; or
      every_n_secs: seconds between lines. Optional with `at_end`.
      at_end: log at the end as well.
      formatter: function from a dict of values by tag to the line.
    Raises:
      InvalidArgumentError: not exactly one of `every_n_iter` and `every_n_secs` is set, or it is
        too small.
      InvalidTypeError: an argument has a wrong type.

    Examples:
      >>> x = wf.constant(1.0, name="x")
      >>> hook = wf.train.LoggingTensorHook({"x": x}, every_n_iter=100)
    """

    def __init__(
        self,
        tensors: Mapping[str, Any] | Sequence[Any],
        every_n_iter: int | None = None,
        every_n_secs: float | None = None,
        at_end: bool = False,
        formatter: Callable[[dict[Any, Any]], str] | None = None,
    ) -> None:
        self._timer = _logging_timer(every_n_iter, every_n_secs, at_end)
        if isinstance(tensors, Mapping):
            self._tensors = dict(tensors)
            self._tags = sorted(self._tensors)
        else:
            self._tags = to_list(tensors, "tensors")
            self._tensors = {tensor: tensor for tensor in self._tags}
        self._formatter = None if formatter is None else check_function(formatter, "formatter", 1)
        self._logs_at_end = at_end

    def begin(self) -> None:
        """Look up the tensors. Raises: NotFoundError: a name does not exist."""
        graph = get_default_graph()
        self._timer.reset()
        self._count = 0
        self._tensors_by_tag = {
            tag: graph.as_graph_element(tensor, allow_operation=False)
            for tag, tensor in self._tensors.items()
        }

    def before_run(self, run_context: SessionRunContext) -> SessionRunArgs | None:
        """Request the tensors if a line is due."""
        self._due = self._timer.should_trigger_for_step(self._count)
        return SessionRunArgs(self._tensors_by_tag) if self._due else None

    def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        """Log the tensors if they were requested."""
        if self._due:
            self._log_tensors(run_values.results)
        self._count += 1

    def end(self, session: Any) -> None:
        """Log the tensors once more if `at_end` is set."""
        if self._logs_at_end:
            self._log_tensors(session.run(self._tensors_by_tag))

    def _log_tensors(self, values: dict[Any, Any]) -> None:
        seconds, _ = self._timer.update_last_triggered_step(self._count)
        with np.printoptions(suppress=True):
            if self._formatter is not None:
                progress.log.info("%s", self._formatter(values))
                return
            line = ", ".join(f"{_tag_name(tag)} = {values[tag]}" for tag in self._tags)
        if seconds is None:
            progress.log.info("%s", line)
        else:
            _log.info("%s (%.3f sec)", line, seconds)


def _logging_timer(every_n_iter: int | None, every_n_secs: float | None, at_end: bool) -> Timer:
    if at_end and every_n_iter is None and every_n_secs is None:
        return NeverTriggerTimer()
    if (every_n_iter is None) == (every_n_secs is None):
        raise errors.InvalidArgumentError(
            "either at_end and/or exactly one of every_n_iter and every_n_secs must be provided, "
            f"got {every_n_iter} and {every_n_secs}"
        )
    if every_n_iter is not None:
        check_integer(every_n_iter, "every_n_iter", 1)
    return timer_of(every_n_iter, every_n_secs, "every_n_iter", "every_n_secs")


def _tag_name(tag: Any) -> str:
    return tag if isinstance(tag, str) else str(getattr(tag, "name", tag))


class NanLossDuringTrainingError(RuntimeError):
    """Error for a NaN loss: the learning rate may be too high, or an input may be NaN."""

    def __str__(self) -> str:
        return "NaN loss during training."


class NanTensorHook(SessionRunHook):
    """Stops training when a loss is NaN.

    Args:
      loss_tensor: floating, shape ().
      fail_on_nan_loss: raise `NanLossDuringTrainingError`; otherwise request the end of training.

    Examples:
      >>> hook = wf.train.NanTensorHook(wf.constant(1.0))
      >>> with wf.train.MonitoredTrainingSession(hooks=[hook]) as session:
      ...     session.run(wf.get_default_graph().get_tensor_by_name("Const:0"))
      np.float32(1.0)
    """

    def __init__(self, loss_tensor: Any, fail_on_nan_loss: bool = True) -> None:
        if loss_tensor is None:
            raise errors.InvalidTypeError("loss_tensor must be a tensor, got None")
        self._loss = loss_tensor
        self._fail = fail_on_nan_loss

    def before_run(self, run_context: SessionRunContext) -> SessionRunArgs:
        """Request the loss."""
        return SessionRunArgs(self._loss)

    def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        """Check the loss. Raises: NanLossDuringTrainingError: the loss is NaN."""
        if not np.isnan(run_values.results).any():
            return
        message = "Model diverged with loss = NaN."
        if self._fail:
            _log.error("%s", message)
            raise NanLossDuringTrainingError
        _log.warning("%s", message)
        run_context.request_stop()
