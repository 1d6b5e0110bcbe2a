"""MonitoredSession: initializes or restores a model, calls hooks, and ends its threads."""

from __future__ import annotations

__all__ = ["MonitoredSession", "SingularMonitoredSession"]

import inspect
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, Self

from weft_graph.ir.default_graph import get_default_graph
from weft_io.arguments import to_list
from weft_io.coordination.queue_runner import QueueRunningSession
from weft_io.files.systems import PathLike
from weft_io.training.hook import SessionRunHook
from weft_io.training.scaffold import Scaffold
from weft_io.training.session_creators import ChiefSessionCreator
from weft_io.training.sessions import (
    CoordinatedSession,
    CoordinatedSessionCreator,
    RecoverableSession,
    StepContext as _StepContext,
)
from weft_tensor import errors
from weft_tensor.arguments import check_function, check_number

_CLEAN = (errors.OutOfRangeError, StopIteration)
"""Exceptions that end the `with` block without an error, because the data has ended."""

_HOOK_METHODS = ("begin", "after_create_session", "before_run", "after_run", "end")


class _MonitoredSession(QueueRunningSession):
    """Base class of `MonitoredSession` and `SingularMonitoredSession`."""

    StepContext = _StepContext

    def __init__(
        self,
        session_creator: Any,
        hooks: Sequence[SessionRunHook] | None,
        should_recover: bool,
        stop_grace_period_secs: float,
    ) -> None:
        grace = check_number(stop_grace_period_secs, "stop_grace_period_secs", 0)
        self._hooks = _check_hooks(hooks)
        self._graph = get_default_graph()
        self._was_finalized = self._graph.finalized
        self._sess: RecoverableSession | CoordinatedSession | None = None
        for hook in self._hooks:
            hook.begin()
        self._creator = CoordinatedSessionCreator(session_creator, self._hooks, self._graph, grace)
        create = self._creator.create_session
        try:
            self._sess = RecoverableSession(create) if should_recover else create()
        except BaseException:  # because the graph must be released after any failure
            self._drop_session()
            raise

    @property
    def graph(self) -> Any:
        """The session's graph; None after it is closed."""
        session = self._creator.tf_sess
        return None if session is None else session.graph

    def run(
        self,
        fetches: Any,
        feed_dict: Mapping[Any, Any] | None = None,
        options: Any = None,
        run_metadata: Any = None,
    ) -> Any:
        """Run one step and its hooks.

        Args:
          fetches, feed_dict, options, run_metadata: as for `Session.run`.
        Raises:
          FailedPreconditionError: the session is closed, `should_stop` is true, or a tensor is fed
          twice. Also errors of `Session.run`, of hooks and of queue runners.
        """
        return self._open().run(fetches, feed_dict, options, run_metadata)

    def run_step_fn(self, step_fn: Callable[[_StepContext], Any]) -> Any:
        """Call a function that runs steps, optionally without hooks.

        Args:
          step_fn: called as `step_fn(step_context)` with a `StepContext`; its result is returned.
            After a preemption it is called again.
        Raises: InvalidArgumentError: `step_fn` has other arguments; also its own errors.
        """
        _check_step_fn(step_fn)
        return self._open().run_step_fn(step_fn)

    def should_stop(self) -> bool:
        """Return True if the session is closed, or a hook or thread requested a stop."""
        return self._sess is None or self._sess.should_stop()

    def close(self) -> None:
        """Call the hooks' `end`, stop the threads and close the session.

        Raises: FailedPreconditionError: the session is already closed; also errors of hooks and
          threads.
        """
        self._close(None)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool:
        if kind is not None and issubclass(kind, _CLEAN):
            kind = None
        self._close(kind)
        return kind is None

    def _close(self, kind: type[BaseException] | None) -> None:
        session = self._open()
        try:
            if kind is None:
                with self._graph.as_default():
                    for hook in self._hooks:
                        hook.end(self._creator.tf_sess)
        finally:
            try:
                session.close()
            finally:
                self._sess = None
                self._drop_session()

    def _drop_session(self) -> None:
        self._creator.forget()
        if not self._was_finalized:
            self._graph.unfinalize()

    def _open(self) -> RecoverableSession | CoordinatedSession:
        if self._sess is None:
            raise errors.FailedPreconditionError("Session is already closed.")
        return self._sess

    def _tf_sess(self) -> Any:
        return self._creator.tf_sess


def _check_hooks(hooks: Any) -> list[SessionRunHook]:
    result = [] if hooks is None else to_list(hooks, "hooks")
    for hook in result:
        missing = [name for name in _HOOK_METHODS if not hasattr(hook, name)]
        if missing:
            raise errors.InvalidTypeError(
                f"hooks must be SessionRunHooks, got {hook!r}, which has no {', '.join(missing)}"
            )
    return result


def _check_step_fn(step_fn: Any) -> None:
    names = list(inspect.signature(check_function(step_fn, "step_fn")).parameters)
    if names != ["step_context"]:
        raise errors.InvalidArgumentError(
            "`step_fn` may either have one `step_context` argument, or two `self` and "
            f"`step_context` if it's an instance method. Got {names} instead."
        )


class MonitoredSession(_MonitoredSession):
    """A session for training that resumes from the last checkpoint after a preemption.

    First the hooks' `begin` is called, the graph finalized, the session created, its queue runners
    started, and the hooks' `after_create_session` called. At the end of a `with` block, the hooks'
    `end` is called, the threads are stopped and the session is closed. `OutOfRangeError`, the end
    of the data, ends the block without an error; other errors are raised, without the hooks' `end`.
    If a step fails with `AbortedError` or `UnavailableError`, the session is recreated and the step
    repeated. Afterwards nodes may be added to the graph again.

    Args:
      session_creator: creates the session; a `ChiefSessionCreator()` by default.
      hooks: `SessionRunHook`s, called in this order.
      stop_grace_period_secs: seconds that threads may take to stop.
    Raises: InvalidTypeError: an argument has a wrong type; also errors of hooks and creator.

    Examples:
      >>> x = wf.Variable(1.0)
      >>> with wf.train.MonitoredSession() as session:
      ...     session.run(x)
      np.float32(1.0)
    """

    def __init__(
        self,
        session_creator: Any = None,
        hooks: Sequence[SessionRunHook] | None = None,
        stop_grace_period_secs: float = 120,
    ) -> None:
        if session_creator is not None and not hasattr(session_creator, "create_session"):
            raise errors.InvalidTypeError(
                f"session_creator must be a SessionCreator, got {session_creator!r}"
            )
        creator = ChiefSessionCreator() if session_creator is None else session_creator
        super().__init__(creator, hooks, True, stop_grace_period_secs)


class SingularMonitoredSession(_MonitoredSession):
    """A `MonitoredSession` without recovery: preemption raises an error.

    Args:
      hooks: `SessionRunHook`s, called in this order.
      scaffold: the nodes that make the model ready; a `Scaffold()` by default.
      master: a session target.
      config: a ConfigProto.
      checkpoint_dir: directory whose latest checkpoint is restored, if there is one.
      stop_grace_period_secs: seconds that threads may take to stop.
      checkpoint_filename_with_path: the checkpoint to restore, instead of `checkpoint_dir`.
    Raises: InvalidArgumentError: both a directory and a checkpoint are set; InvalidTypeError: an
      argument has a wrong type; also errors of hooks.

    Examples:
      >>> x = wf.Variable(1.0)
      >>> with wf.train.SingularMonitoredSession() as session:
      ...     session.run(x)
      np.float32(1.0)
    """

    def __init__(
        self,
        hooks: Sequence[SessionRunHook] | None = None,
        scaffold: Scaffold | None = None,
        master: str = "",
        config: Any = None,
        checkpoint_dir: PathLike | None = None,
        stop_grace_period_secs: float = 120,
        checkpoint_filename_with_path: PathLike | None = None,
    ) -> None:
        creator = ChiefSessionCreator(
            scaffold, master, config, checkpoint_dir, checkpoint_filename_with_path
        )
        super().__init__(creator, hooks, False, stop_grace_period_secs)

    def raw_session(self) -> Any:
        """Return the session, without hooks; None after it is closed."""
        return self._tf_sess()
