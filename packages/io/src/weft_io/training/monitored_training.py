"""MonitoredTrainingSession: a monitored session with the usual hooks for training."""

from __future__ import annotations

__all__ = ["MonitoredTrainingSession"]

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from weft_io.arguments import to_list
from weft_io.files.systems import PathLike
from weft_io.training.checkpoint_hooks import CheckpointSaverHook
from weft_io.training.hook import SessionRunHook
from weft_io.training.monitored_session import MonitoredSession
from weft_io.training.scaffold import Scaffold
from weft_io.training.session_creators import ChiefSessionCreator, WorkerSessionCreator
from weft_io.training.summary_hooks import StepCounterHook, SummarySaverHook
from weft_tensor.arguments import check_integer, check_number


class _Default:
    def __repr__(self) -> str:
        return "the default"


USE_DEFAULT: Final[Any] = _Default()
"""Marker of an omitted argument, since None disables a service."""


class _Interval(NamedTuple):
    """The interval of a repeated action; both None means never."""

    steps: int | None
    secs: float | None

    @staticmethod
    def of(steps: Any, secs: Any, name: str, default: _Interval) -> _Interval:
        """Return the interval from two arguments; None and 0 disable the action."""
        if steps is USE_DEFAULT and secs is USE_DEFAULT:
            return default
        steps = (
            None if steps is USE_DEFAULT or steps is None else check_integer(steps, f"{name}_steps")
        )
        secs = None if secs is USE_DEFAULT or secs is None else check_number(secs, f"{name}_secs")
        return _Interval(steps, secs)

    @property
    def is_asked_for(self) -> bool:
        return bool((self.steps and self.steps > 0) or (self.secs and self.secs > 0))


def MonitoredTrainingSession(  # noqa: N802 - TensorFlow's name of a function
    master: str = "",
    is_chief: bool = True,
    checkpoint_dir: PathLike | None = None,
    scaffold: Scaffold | None = None,
    hooks: Sequence[SessionRunHook] | None = None,
    chief_only_hooks: Sequence[SessionRunHook] | None = None,
    save_checkpoint_secs: float | None = USE_DEFAULT,
    save_summaries_steps: int | None = USE_DEFAULT,
    save_summaries_secs: float | None = USE_DEFAULT,
    config: Any = None,
    stop_grace_period_secs: float = 120,
    log_step_count_steps: int | None = 100,
    max_wait_secs: float = 7200,
    save_checkpoint_steps: int | None = USE_DEFAULT,
    summary_dir: PathLike | None = None,
    save_graph_def: bool = True,
) -> MonitoredSession:
    """Return a `MonitoredSession` that saves checkpoints and summaries, and counts steps.

    Args:
      master: a session target.
      is_chief: True if this program initializes and saves the model; others wait for it.
      checkpoint_dir: directory of checkpoints, to save and to restore; None for none.
      scaffold: the nodes that make the model ready; a `Scaffold()` by default.
      hooks: hooks called after the standard ones.
      chief_only_hooks: hooks called only by the chief, before all others.
      save_checkpoint_secs: seconds between checkpoints, 600 unless `save_checkpoint_steps` is set;
        None or 0 for no checkpoints.
      save_summaries_steps: steps between summaries, 100 unless `save_summaries_secs` is set; None
        or 0 for no summaries.
      save_summaries_secs: seconds between summaries.
      config: a ConfigProto.
      stop_grace_period_secs: seconds that threads may take to stop.
      log_step_count_steps: steps between reports of steps per second; None or 0 for none.
      max_wait_secs: seconds that a worker waits for the chief.
      save_checkpoint_steps: steps between checkpoints.
      summary_dir: directory of event files; `checkpoint_dir` by default.
      save_graph_def: write "graph.pbtxt", and a ".meta" file beside each checkpoint.
    Raises:
      InvalidArgumentError: steps and seconds are set for the same action, or an argument is too
        small.
      InvalidTypeError: an argument has a wrong type.
      FailedPreconditionError: the graph has no global step, which is required for saving.

    Examples:
      >>> step = wf.train.get_or_create_global_step()
      >>> advance = step.assign_add(1)
      >>> with wf.train.MonitoredTrainingSession(hooks=[wf.train.StopAtStepHook(3)]) as session:
      ...     while not session.should_stop():
      ...         last = session.run(advance)
      >>> int(last)
      3
    """
    summaries = _Interval.of(
        save_summaries_steps, save_summaries_secs, "save_summaries", _Interval(100, None)
    )
    checkpoints = _Interval.of(
        save_checkpoint_steps, save_checkpoint_secs, "save_checkpoint", _Interval(None, 600)
    )
    if log_step_count_steps is not None:
        log_step_count_steps = check_integer(log_step_count_steps, "log_step_count_steps")
    scaffold = scaffold or Scaffold()
    all_hooks = [] if hooks is None else to_list(hooks, "hooks")
    if not is_chief:
        worker = WorkerSessionCreator(scaffold, master, config, max_wait_secs)
        return MonitoredSession(worker, all_hooks, stop_grace_period_secs)
    chief = ChiefSessionCreator(scaffold, master, config, checkpoint_dir)
    interval = [] if chief_only_hooks is None else to_list(chief_only_hooks, "chief_only_hooks")
    summary_dir = summary_dir or checkpoint_dir
    if summary_dir:
        if log_step_count_steps and log_step_count_steps > 0:
            interval.append(StepCounterHook(log_step_count_steps, output_dir=summary_dir))
        if summaries.is_asked_for:
            interval.append(SummarySaverHook(*summaries, output_dir=summary_dir, scaffold=scaffold))
    if checkpoint_dir and checkpoints.is_asked_for:
        secs, steps = checkpoints.secs, checkpoints.steps
        options: Any = {"scaffold": scaffold, "save_graph_def": save_graph_def}
        interval.append(CheckpointSaverHook(checkpoint_dir, secs, steps, **options))
    return MonitoredSession(chief, interval + all_hooks, stop_grace_period_secs)
