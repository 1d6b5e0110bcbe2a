"""The hook that saves checkpoints, and its listeners."""

from __future__ import annotations

from weft_graph import proto

__all__ = ["CheckpointSaverHook", "CheckpointSaverListener"]

import logging
import os
from collections.abc import Sequence
from typing import Any

from weft_exec import progress
from weft_graph.ir.collections_keys import GraphKeys
from weft_graph.ir.default_graph import get_default_graph
from weft_io.arguments import to_list
from weft_io.coordination.coordinator import Coordinator
from weft_io.files.systems import PathLike, as_path
from weft_io.meta_graphs.graph_io import write_graph
from weft_io.summary.writer_cache import FileWriterCache
from weft_io.training.hook import (
    SessionRunArgs,
    SessionRunContext,
    SessionRunHook,
    SessionRunValues,
)
from weft_io.training.timers import StepsAhead, global_step_for, step_before, timer_of
from weft_tensor import errors
from weft_tensor.arguments import check_text

_log = logging.getLogger("weft")


class CheckpointSaverListener:
    """Listener of a `CheckpointSaverHook`, called before and after each save; override as needed.

    Examples:
      >>> class Report(wf.train.CheckpointSaverListener):
      ...     def after_save(self, session, global_step_value):
      ...         print("saved step", global_step_value)
      >>> advance = wf.train.get_or_create_global_step().assign_add(1)
      >>> saver = wf.train.CheckpointSaverHook("./told", save_steps=2, listeners=[Report()])
      >>> with wf.train.MonitoredSession(hooks=[saver]) as session:
      ...     for _ in range(2):
      ...         _ = session.run(advance)
      saved step 0
      saved step 2
    """

    def begin(self) -> None:
        """Prepare the graph before the session is created; may still add nodes."""

    def before_save(self, session: Any, global_step_value: int) -> None:
        """Called before a checkpoint is written.

        Args:
          session: the session, without hooks.
          global_step_value: the global step of the checkpoint.
        """

    def after_save(self, session: Any, global_step_value: int) -> bool | None:
        """Called after the checkpoint is written; for arguments see `before_save`.

        Returns: True requests the end of the training loop.
        """

    def end(self, session: Any, global_step_value: int) -> None:
        """Called at the end, after the last checkpoint; for arguments see `before_save`."""


class CheckpointSaverHook(SessionRunHook):
    """Hook that saves a checkpoint at the start, at intervals of steps or seconds, and at the end.

    Args:
      checkpoint_dir: the directory.
      save_secs: seconds between checkpoints; or
      save_steps: steps between checkpoints.
      saver: a `Saver`; or
      scaffold: a `Scaffold` that has one. By default, the saver in the collection SAVERS.
      checkpoint_basename: prefix of the names of the checkpoints.
      listeners: `CheckpointSaverListener`s, called in order.
      save_graph_def: write "graph.pbtxt", and a ".meta" file beside each checkpoint.
    Raises:
      InvalidArgumentError: both `saver` and `scaffold` are set, not exactly one of `save_secs` and
        `save_steps` is set, or it is too small.
      InvalidTypeError: an argument has a wrong type.

    Examples:
      >>> step = wf.train.get_or_create_global_step()
      >>> hook = wf.train.CheckpointSaverHook("./checkpoints", save_steps=100)
    """

    def __init__(
        self,
        checkpoint_dir: PathLike,
        save_secs: float | None = None,
        save_steps: int | None = None,
        saver: Any = None,
        checkpoint_basename: str = "model.ckpt",
        scaffold: Any = None,
        listeners: Sequence[CheckpointSaverListener] | None = None,
        save_graph_def: bool = True,
    ) -> None:
        if saver is not None and scaffold is not None:
            raise errors.InvalidArgumentError("You cannot provide both saver and scaffold.")
        self._directory = as_path(checkpoint_dir)
        self._timer = timer_of(save_steps, save_secs, "save_steps", "save_secs")
        self._path = os.path.join(
            self._directory, check_text(checkpoint_basename, "checkpoint_basename")
        )
        self._saver_argument = saver
        self._scaffold = scaffold
        self._listeners = [] if listeners is None else to_list(listeners, "listeners")
        self._save_graph_def = save_graph_def

    def begin(self) -> None:
        """Find the global step. Raises: FailedPreconditionError: the graph has no global step."""
        self._global_step = global_step_for(self)
        self._step_before = step_before(self._global_step)
        self._steps = StepsAhead()
        self._writer = FileWriterCache.get(self._directory)
        for listener in self._listeners:
            listener.begin()

    def after_create_session(self, session: Any, coord: Coordinator) -> None:
        """Write the graph, and a checkpoint of the first step."""
        graph = get_default_graph()
        step = int(session.run(self._global_step))
        if self._save_graph_def:
            write_graph(graph.as_graph_def(add_shapes=True), self._directory, "graph.pbtxt")
        self._writer.add_graph(graph)
        self._writer.add_meta_graph(self._saver().export_meta_graph(graph=graph))
        self._save(session, step)
        self._timer.update_last_triggered_step(step)

    def before_run(self, run_context: SessionRunContext) -> SessionRunArgs:
        """Request the global step before the step."""
        return SessionRunArgs(self._step_before)

    def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        """Save a checkpoint if it is due."""
        if not self._timer.should_trigger_for_step(self._steps.after(int(run_values.results))):
            return
        step = int(run_context.session.run(self._global_step))
        if self._timer.should_trigger_for_step(step):
            self._timer.update_last_triggered_step(step)
            if self._save(run_context.session, step):
                run_context.request_stop()

    def end(self, session: Any) -> None:
        """Save the last step if necessary, and wait until everything is written."""
        step = int(session.run(self._global_step))
        if step != self._timer.last_triggered_step():
            self._save(session, step)
        for listener in self._listeners:
            listener.end(session, step)
        self._saver().close()
        self._writer.flush()

    def _save(self, session: Any, step: int) -> bool:
        """Save a checkpoint; return True if a listener requests the end."""
        progress.log.info("Saving checkpoints for %d into %s.", step, self._path)
        for listener in self._listeners:
            listener.before_save(session, step)
        saver = self._saver()
        saver.save(session, self._path, global_step=step, write_meta_graph=self._save_graph_def)
        status = proto.SessionLog(status=proto.SessionLog.CHECKPOINT, checkpoint_path=self._path)
        self._writer.add_session_log(status, step)
        stop = False
        for listener in self._listeners:
            if listener.after_save(session, step):
                _log.info(
                    "A CheckpointSaverListener requested that training be stopped. listener: %s",
                    listener,
                )
                stop = True
        return stop

    def _saver(self) -> Any:
        if self._saver_argument is not None:
            return self._saver_argument
        if self._scaffold is not None:
            return self._scaffold.saver
        savers = get_default_graph().get_collection(GraphKeys.SAVERS)
        if not savers:
            raise errors.FailedPreconditionError(
                f"No items in collection {GraphKeys.SAVERS}. Please add a saver to the collection "
                "or provide a saver or scaffold."
            )
        if len(savers) > 1:
            raise errors.FailedPreconditionError(
                f"More than one item in collection {GraphKeys.SAVERS}. Please indicate which one "
                "to use by passing it to the constructor."
            )
        return savers[0]
