"""Hooks that write event files: summaries, and the rate of steps."""

from __future__ import annotations

from weft_graph import proto

__all__ = ["StepCounterHook", "SummarySaverHook"]

import logging
from typing import Any

from weft_exec import progress
from weft_io.files.systems import PathLike
from weft_io.summary.writer_cache import FileWriterCache
from weft_io.training.hook import (
    SessionRunArgs,
    SessionRunContext,
    SessionRunHook,
    SessionRunValues,
)
from weft_io.training.timers import global_step_for, step_before, timer_of
from weft_tensor import errors

_log = logging.getLogger("weft")

_STILL = 20
"""Number of steps without a change of the global step after which a warning is logged."""


def _writer_of(summary_writer: Any, output_dir: PathLike | None) -> Any:
    if summary_writer is not None or not output_dir:
        return summary_writer
    return FileWriterCache.get(output_dir)


class StepCounterHook(SessionRunHook):
    """Logs the steps per second, and writes them as a summary "global_step/sec".

    Args:
      every_n_steps: steps between reports; or
      every_n_secs: seconds between reports, with `every_n_steps=None`.
      output_dir: directory of the event file; or
      summary_writer: a `FileWriter`. Without either, the rate is only logged.
    Raises:
      InvalidArgumentError: not exactly one of `every_n_steps` and `every_n_secs` is set, or it is
      too small; InvalidTypeError: it is not a number.

    Examples:
      >>> hook = wf.train.StepCounterHook(every_n_steps=10, output_dir="./counts")
    """

    def __init__(
        self,
        every_n_steps: int | None = 100,
        every_n_secs: float | None = None,
        output_dir: PathLike | None = None,
        summary_writer: Any = None,
    ) -> None:
        self._timer = timer_of(every_n_steps, every_n_secs, "every_n_steps", "every_n_secs")
        self._directory = output_dir
        self._writer = summary_writer

    def begin(self) -> None:
        """Find the global step. Raises: FailedPreconditionError: the graph has no global step."""
        self._global_step = global_step_for(self)
        self._step_before = step_before(self._global_step)
        self._writer = _writer_of(self._writer, self._directory)
        self._tag = self._global_step.op.name + "/sec"
        self._timer.reset()
        self._last_step: int | None = None
        self._num_unchanged = 0

    def before_run(self, run_context: SessionRunContext) -> SessionRunArgs:
        """Request the global step before the step."""
        return SessionRunArgs(self._step_before)

    def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        """Report the rate if it is due."""
        last_step = int(run_values.results)
        if self._timer.should_trigger_for_step(last_step + 1):
            step = int(run_context.session.run(self._global_step))
            if self._timer.should_trigger_for_step(step):
                seconds, steps = self._timer.update_last_triggered_step(step)
                if seconds and steps is not None:
                    self._record(steps / seconds, step)
        self._watch(last_step)

    def end(self, session: Any) -> None:
        """Flush the writer."""
        if self._writer is not None:
            self._writer.flush()

    def _record(self, steps_per_sec: float, step: int) -> None:
        if self._writer is not None:
            value = proto.Summary.Value(tag=self._tag, simple_value=steps_per_sec)
            self._writer.add_summary(proto.Summary(value=[value]), step)
        progress.log.info("%s: %g", self._tag, steps_per_sec)

    def _watch(self, step: int) -> None:
        """Log a warning, once, if the global step does not change."""
        self._num_unchanged = self._num_unchanged + 1 if step == self._last_step else 0
        self._last_step = step
        if self._num_unchanged == _STILL:
            _log.warning(
                "It seems that global step (tf.train.get_global_step) has not been increased: it "
                "is %s since %d steps. You could increase the global step by passing "
                "tf.train.get_global_step() to Optimizer.apply_gradients or Optimizer.minimize.",
                step,
                _STILL,
            )


class SummarySaverHook(SessionRunHook):
    """Writes summaries at the first step and at intervals of steps or seconds.

    Args:
      save_steps: steps between summaries; or
      save_secs: seconds between summaries.
      output_dir: directory of the event file; or
      summary_writer: a `FileWriter`. Without either, nothing is written.
      scaffold: the scaffold that has the `summary_op`; or
      summary_op: string, serialized summaries: a tensor or a list.
    Raises: InvalidArgumentError: not exactly one of `save_steps` and `save_secs`, or of `scaffold`
      and `summary_op`, is set; or the interval is too small. InvalidTypeError: the interval is not
      a number.

    Examples:
      >>> summary = wf.summary.scalar("x", 1.0)
      >>> hook = wf.train.SummarySaverHook(10, output_dir="./summaries", summary_op=summary)
    """

    def __init__(
        self,
        save_steps: int | None = None,
        save_secs: float | None = None,
        output_dir: PathLike | None = None,
        summary_writer: Any = None,
        scaffold: Any = None,
        summary_op: Any = None,
    ) -> None:
        if (scaffold is None) == (summary_op is None):
            raise errors.InvalidArgumentError(
                "Exactly one of scaffold or summary_op must be provided."
            )
        self._summary_op = summary_op
        self._scaffold = scaffold
        self._directory = output_dir
        self._writer = summary_writer
        self._timer = timer_of(save_steps, save_secs, "save_steps", "save_secs")

    def begin(self) -> None:
        """Find the global step. Raises: FailedPreconditionError: the graph has no global step."""
        self._global_step = global_step_for(self)
        self._step_before = step_before(self._global_step)
        self._writer = _writer_of(self._writer, self._directory)
        self._next_step: int | None = None
        self._timer.reset()

    def before_run(self, run_context: SessionRunContext) -> SessionRunArgs:
        """Request the global step, and the summaries if they are due."""
        next_step = self._next_step
        self._due = next_step is None or self._timer.should_trigger_for_step(next_step)
        return SessionRunArgs([self._step_before, self._summaries() if self._due else []])

    def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        """Write the summaries if they were requested."""
        if self._writer is None:
            return
        last_step, summaries = run_values.results
        step = int(last_step) + 1
        if self._due:
            step = int(run_context.session.run(self._global_step))
        if self._next_step is None:
            self._writer.add_session_log(proto.SessionLog(status=proto.SessionLog.START), step)
        if self._due:
            self._timer.update_last_triggered_step(step)
            for summary in summaries:
                self._writer.add_summary(summary, step)
        self._next_step = step + 1

    def end(self, session: Any = None) -> None:
        """Flush the writer."""
        if self._writer is not None:
            self._writer.flush()

    def _summaries(self) -> list[Any]:
        summary_op = self._summary_op
        if summary_op is None:
            summary_op = self._scaffold.summary_op
        if summary_op is None:
            return []
        return list(summary_op) if isinstance(summary_op, list | tuple) else [summary_op]
