"""A hook that writes traces and timelines of steps."""

from __future__ import annotations

from weft_graph import proto

__all__ = ["ProfilerHook"]

from typing import TYPE_CHECKING, Any

from weft_exec import progress
from weft_exec.profiling.timeline import Timeline
from weft_io.files import paths
from weft_io.files.systems import PathLike, is_url
from weft_io.training.hook import (
    SessionRunArgs,
    SessionRunContext,
    SessionRunHook,
    SessionRunValues,
)
from weft_io.training.timers import global_step_for, step_before, timer_of

if TYPE_CHECKING:
    from weft_exec.tracing.recording import Recording


class ProfilerHook(SessionRunHook):
    """Traces a step at intervals.

    It writes two files: "timeline-<global step>.weft-trace" for `weft trace`, and
    "timeline-<global step>.json", as in TensorFlow, for `chrome://tracing` or ui.perfetto.dev. The
    former is written only if `output_dir` is a local directory.

    Args:
      save_steps: steps between traces; or
      save_secs: seconds between traces.
      output_dir: the directory of the files; created if it is missing.
      show_dataflow: draw arrows from each node to the users of its outputs.
      show_memory: draw the total size of all outputs.
    Raises:
      InvalidArgumentError: not exactly one of `save_steps` and `save_secs` is set.

    Examples:
      >>> step = wf.train.get_or_create_global_step()
      >>> count = step.assign_add(1)
      >>> hook = wf.train.ProfilerHook(save_steps=2, output_dir="./traces")
      >>> with wf.train.MonitoredTrainingSession(hooks=[hook]) as session:
      ...     for _ in range(3):
      ...         _ = session.run(count)
      >>> sorted(wf.gfile.ListDirectory("./traces"))
      ['timeline-1.json', 'timeline-1.weft-trace', 'timeline-3.json', 'timeline-3.weft-trace']
    """

    def __init__(
        self,
        save_steps: int | None = None,
        save_secs: float | None = None,
        output_dir: PathLike = "",
        show_dataflow: bool = True,
        show_memory: bool = False,
    ) -> None:
        self._timer = timer_of(save_steps, save_secs, "save_steps", "save_secs")
        self._prefix = paths.join(paths.as_path(output_dir), "timeline")
        self._show = {"show_dataflow": show_dataflow, "show_memory": show_memory}
        self._recording: Recording | None = None

    def begin(self) -> None:
        """Find the global step. Raises: FailedPreconditionError: the graph has no global step."""
        self._global_step = global_step_for(self)
        self._step_before = step_before(self._global_step)
        self._next_step: int | None = None
        self._timer.reset()

    def after_create_session(self, session: Any, coord: Any) -> None:
        """End the trace of a step that has failed with the session before this one."""
        self._end_recording()

    def before_run(self, run_context: SessionRunContext) -> SessionRunArgs:
        """Request a trace if it is due."""
        if self._next_step is None:
            self._next_step = int(run_context.session.run(self._global_step)) + 1
        self._traces = self._timer.should_trigger_for_step(self._next_step)
        options = None
        self._end_recording()  # of a step that failed
        if self._traces:
            self._begin_recording(self._next_step)
            options = proto.RunOptions(trace_level=proto.RunOptions.FULL_TRACE)
        return SessionRunArgs(self._step_before, None, options)

    def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        """Write the trace if one was recorded."""
        step = int(run_values.results) + 1
        if self._traces:
            self._end_recording()
            self._timer.update_last_triggered_step(step)
            self._write(step, run_values.run_metadata)
        self._next_step = step + 1

    def end(self, session: Any) -> None:
        """End the trace of a step that failed."""
        self._end_recording()

    def _begin_recording(self, step: int) -> None:
        directory, _ = paths.split_prefix(self._prefix)
        if is_url(self._prefix):
            return
        from weft_exec.tracing.recording import Recording

        paths.storage_of(self._prefix).make_directory(directory)
        self._recording = Recording(f"{self._prefix}-{step}.weft-trace")

    def _end_recording(self) -> None:
        recording, self._recording = self._recording, None
        if recording is not None:
            recording.close()

    def _write(self, step: int, metadata: Any) -> None:
        path = f"{self._prefix}-{step}.json"
        timeline = Timeline(metadata.step_stats)
        directory, _ = paths.split_prefix(path)
        paths.storage_of(path).make_directory(directory)
        text = timeline.generate_chrome_trace_format(**self._show)
        paths.write_atomically(path, text.encode())
        progress.log.info("Saved the timeline of step %d to %s", step, path)
