"""Session hooks: callbacks around the steps of a monitored session."""

from __future__ import annotations

__all__ = ["SessionRunArgs", "SessionRunContext", "SessionRunHook", "SessionRunValues"]

from collections.abc import Mapping
from typing import Any, NamedTuple

from weft_io.coordination.coordinator import Coordinator


class SessionRunArgs(NamedTuple):
    """The additions of a hook to a step, or the request of the program.

    Args:
      fetches: any structure that `Session.run` takes; None for nothing.
      feed_dict: tensors, or their names, to values.
      options: a RunOptions, merged with the options of the program and of the other hooks.

    Examples:
      >>> class PrintLoss(wf.train.SessionRunHook):
      ...     def before_run(self, run_context):
      ...         return wf.train.SessionRunArgs({"loss": "loss:0"})
      ...
      ...     def after_run(self, run_context, run_values):
      ...         print(run_values.results["loss"])
      >>> x = wf.Variable(3.0)
      >>> loss = wf.square(x, name="loss")
      >>> with wf.train.MonitoredSession(hooks=[PrintLoss()]) as session:
      ...     _ = session.run(x)
      9.0
    """

    fetches: Any
    feed_dict: Mapping[Any, Any] | None = None
    options: Any = None


class SessionRunValues(NamedTuple):
    """The results of a step, passed to a hook's `after_run`.

    Args:
      results: the values in the structure of the hook's fetches; None without fetches.
      options: the RunOptions of the step.
      run_metadata: the RunMetadata of the step.

    Examples:
      >>> class Trace(wf.train.SessionRunHook):
      ...     def before_run(self, run_context):
      ...         options = wf.RunOptions(trace_level=wf.RunOptions.FULL_TRACE)
      ...         return wf.train.SessionRunArgs(None, options=options)
      ...
      ...     def after_run(self, run_context, run_values):
      ...         print("traced:", bool(run_values.run_metadata.step_stats.dev_stats))
      >>> y = 2.0 * wf.Variable(3.0)
      >>> with wf.train.MonitoredSession(hooks=[Trace()]) as session:
      ...     _ = session.run(y)
      traced: True
    """

    results: Any
    options: Any
    run_metadata: Any


class SessionRunContext:
    """A step that is about to run, or has run; passed to a hook's methods.

    Args:
      original_args: the request of the program.
      session: the session, without hooks.

    Examples:
      >>> class StopWhenSmall(wf.train.SessionRunHook):
      ...     def after_run(self, run_context, run_values):
      ...         if run_context.session.run(loss) < 1.0:
      ...             run_context.request_stop()
      >>> loss = wf.Variable(8.0)
      >>> halve = wf.assign(loss, loss / 2.0)
      >>> with wf.train.MonitoredSession(hooks=[StopWhenSmall()]) as session:
      ...     while not session.should_stop():
      ...         last = session.run(halve)
      >>> last
      np.float32(0.5)
    """

    def __init__(self, original_args: SessionRunArgs, session: Any) -> None:
        self._original_args = original_args
        self._session = session
        self._stop_requested = False

    @property
    def original_args(self) -> SessionRunArgs:
        """The request of the program, without the additions of hooks."""
        return self._original_args

    @property
    def session(self) -> Any:
        """The session, without hooks."""
        return self._session

    @property
    def stop_requested(self) -> bool:
        """True if a hook requested the end of the training loop."""
        return self._stop_requested

    def request_stop(self) -> None:
        """Request the end of the training loop: `should_stop` becomes true."""
        self._stop_requested = True


class SessionRunHook:
    """Base class of hooks, whose methods are called around the steps of a monitored session.

    The order is `begin`, `after_create_session`, then `before_run` and `after_run` for each step,
    then `end`. A session that is recreated after a failure calls `after_create_session` again.

    Examples:
      >>> class Count(wf.train.SessionRunHook):
      ...     steps = 0
      ...
      ...     def after_run(self, run_context, run_values):
      ...         self.steps += 1
      >>> hook = Count()
      >>> x = wf.constant(1.0)
      >>> with wf.train.MonitoredTrainingSession(hooks=[hook]) as session:
      ...     _ = session.run(x), session.run(x)
      >>> hook.steps
      2
    """

    def begin(self) -> None:
        """Prepare the graph before the session is created; may still add nodes."""

    def after_create_session(self, session: Any, coord: Coordinator) -> None:
        """Called after a session was created; the graph is finalized.

        Args:
          session: the session, whose variables are initialized or restored.
          coord: the coordinator of its threads.
        """

    def before_run(self, run_context: SessionRunContext) -> SessionRunArgs | None:
        """Return additions to the next step, or None."""
        return None

    def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        """Called after each successful step."""

    def end(self, session: Any) -> None:
        """Called at the end, while the session is open; not after an error."""
