"""The layers of a monitored session: hooks around steps, then threads, then recovery."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from weft_graph import proto
from weft_graph.ir.collections_keys import GraphKeys
from weft_graph.ir.graph import Graph
from weft_io.coordination.coordinator import Coordinator
from weft_io.coordination.queue_runner import start_queue_runners
from weft_io.training.hook import (
    SessionRunArgs,
    SessionRunContext,
    SessionRunHook,
    SessionRunValues,
)
from weft_io.training.run_requests import collect_requests
from weft_tensor import errors

_log = logging.getLogger("weft")

PREEMPTION_ERRORS = (errors.AbortedError, errors.UnavailableError)
"""Errors after which training restarts from the last checkpoint."""


class StepContext:
    """The argument of a function passed to `run_step_fn`.

    Args:
      session: the session, without hooks.
      run_with_hooks_fn: the `run` method with hooks.
    """

    def __init__(self, session: Any, run_with_hooks_fn: Callable[..., Any]) -> None:
        self._session = session
        self._run_with_hooks = run_with_hooks_fn

    @property
    def session(self) -> Any:
        """The session, without hooks."""
        return self._session

    def run_with_hooks(self, *args: Any, **kwargs: Any) -> Any:
        """Run one step with hooks, like `MonitoredSession.run`."""
        return self._run_with_hooks(*args, **kwargs)

    def request_stop(self) -> None:
        """Leave the step function, and the `with` block of the session."""
        raise StopIteration("step_fn has requested the iterations to stop.")


class HookedSession:
    """A session that calls hooks around its steps.

    Args:
      session: the session.
      hooks: called in this order.
    """

    def __init__(self, session: Any, hooks: Sequence[SessionRunHook]) -> None:
        self._session = session
        self._hooks = hooks
        self._stop = False

    def should_stop(self) -> bool:
        """True if a hook requested the end of training."""
        return self._stop

    def run(
        self,
        fetches: Any,
        feed_dict: Mapping[Any, Any] | None = None,
        options: Any = None,
        run_metadata: Any = None,
    ) -> Any:
        """Run one step with hooks. Raises: as `Session.run`, and errors of hooks."""
        if self._stop:
            raise errors.FailedPreconditionError("Run called even after should_stop requested.")
        context = SessionRunContext(SessionRunArgs(fetches, feed_dict), self._session)
        request = collect_requests(self._hooks, context, self._session.graph, options)
        if run_metadata is None:
            run_metadata = proto.RunMetadata()
        results = self._session.run(
            request.fetches,
            feed_dict=request.feed_dict,
            options=request.options,
            run_metadata=run_metadata,
        )
        used = proto.RunOptions() if request.options is None else request.options
        for hook, position in zip(self._hooks, request.positions, strict=True):
            result = request.results_of(position, results)
            hook.after_run(context, SessionRunValues(result, used, run_metadata))
        self._stop = self._stop or context.stop_requested
        return results[0]


class CoordinatedSession:
    """A session with hooks and threads.

    Args:
      raw: the session, without hooks.
      hooks: called around its steps.
      coord: the coordinator of the threads.
      stop_grace_period_secs: number of seconds to wait for the threads to stop.
    """

    def __init__(
        self,
        raw: Any,
        hooks: Sequence[SessionRunHook],
        coord: Coordinator,
        stop_grace_period_secs: float,
    ) -> None:
        self.raw = raw
        self._hooked = HookedSession(raw, hooks)
        self._coord = coord
        self._grace = stop_grace_period_secs

    def should_stop(self) -> bool:
        """Return True if a hook or a thread requested the end of training.

        Raises: the error of a thread, if it is a preemption.
        """
        if self._coord.should_stop():
            self._raise_preemption(None)
            return True
        return self._hooked.should_stop()

    def run(self, *args: Any, **kwargs: Any) -> Any:
        """Run one step.

        Raises: the errors of hooks and of `Session.run`, or a thread's preemption error.
        """
        try:
            return self._hooked.run(*args, **kwargs)
        except PREEMPTION_ERRORS:
            raise
        except Exception as error:  # because a preempted thread may have caused any error
            self._raise_preemption(error)
            raise

    def _raise_preemption(self, effect: Exception | None) -> None:
        """Raise the error of a thread if it is a preemption."""
        try:
            self._coord.raise_requested_exception()
        except PREEMPTION_ERRORS as cause:
            raise cause from effect
        except Exception as thread_error:  # because it is raised when the session is closed
            _log.debug("A thread also failed: %s", thread_error)

    def run_step_fn(self, step_fn: Callable[[StepContext], Any]) -> Any:
        """Call a step function with this session."""
        return step_fn(StepContext(self.raw, self.run))

    def close(self) -> None:
        """Stop the threads and close the session. Raises: the error of a thread."""
        self._coord.request_stop()
        try:
            self._coord.join(stop_grace_period_secs=self._grace, ignore_live_threads=True)
        finally:
            self.raw.close()


class CoordinatedSessionCreator:
    """Creates coordinated sessions: it starts queue runners and calls hooks.

    Args:
      session_creator: creates the sessions.
      hooks: hooks of each session.
      graph: the graph whose queue runners are started.
      stop_grace_period_secs: seconds that threads may take to stop.
    """

    def __init__(
        self,
        session_creator: Any,
        hooks: Sequence[SessionRunHook],
        graph: Graph,
        stop_grace_period_secs: float,
    ) -> None:
        self._creator = session_creator
        self._hooks = hooks
        self._graph = graph
        self._grace = stop_grace_period_secs
        self.tf_sess: Any = None
        self.coord: Coordinator | None = None

    def create_session(self) -> CoordinatedSession:
        """Return a new session; after a failure, stop everything that was started."""
        with self._graph.as_default():
            self.tf_sess = self._creator.create_session()
            self.coord = Coordinator(clean_stop_exception_types=[])
            coordinated_session = CoordinatedSession(
                self.tf_sess, self._hooks, self.coord, self._grace
            )
            try:
                if self.tf_sess.graph.get_collection(GraphKeys.QUEUE_RUNNERS):
                    start_queue_runners(self.tf_sess, self.coord)
                for hook in self._hooks:
                    hook.after_create_session(self.tf_sess, self.coord)
            except BaseException:  # because the threads must not outlive it after any failure
                _close_quietly(coordinated_session)
                raise
        return coordinated_session

    def forget(self) -> None:
        """Drop the session, which is permanently closed."""
        self.tf_sess = self.coord = None


def _close_quietly(session: CoordinatedSession) -> None:
    """Close a session while another error is being raised."""
    try:
        session.close()
    except Exception as error:  # because the first error is the one to be raised
        _log.info("Closing the session also failed: %s", error)


class RecoverableSession:
    """A session that is recreated when a step or its creation fails due to preemption.

    Args:
      create: creates a session.
    """

    def __init__(self, create: Callable[[], CoordinatedSession]) -> None:
        self._create = create
        self._session: CoordinatedSession | None = None
        self._attempt(lambda session: None)

    def should_stop(self) -> bool:
        """Return True if a hook or a thread requested the end of training.

        A preempted thread does not count, because the session is recreated.
        """
        if self._session is None:
            return True
        stops: bool = self._attempt(lambda session: session.should_stop())
        return stops

    def run(self, *args: Any, **kwargs: Any) -> Any:
        """Run one step, and repeat it in a new session after each preemption."""
        return self._attempt(lambda session: session.run(*args, **kwargs))

    def run_step_fn(self, step_fn: Callable[[StepContext], Any]) -> Any:
        """Call a step function, retrying in a new session after each preemption."""
        return self._attempt(lambda session: session.run_step_fn(step_fn))

    def close(self) -> None:
        """Close the current session."""
        session, self._session = self._session, None
        if session is not None:
            try:
                session.close()
            except PREEMPTION_ERRORS as error:
                _log.error("The session was preempted while it was being closed: %s", error)

    def _attempt(self, work: Callable[[CoordinatedSession], Any]) -> Any:
        while True:
            try:
                if self._session is None:
                    self._session = self._create()
                return work(self._session)
            except PREEMPTION_ERRORS as error:
                _log.info(
                    "An error was raised. This may be due to a preemption in a connected worker or "
                    "parameter server. The current session will be closed and a new session will "
                    "be created. Error: %s",
                    error,
                )
            self.close()
