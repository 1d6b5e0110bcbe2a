"""SessionManager: sessions whose model is initialized, restored, or prepared by the chief."""

from __future__ import annotations

__all__ = ["SessionManager"]

import logging
import math
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from weft_exec.session.session import Session
from weft_graph.ir.default_graph import get_default_graph
from weft_graph.ir.graph import Graph
from weft_io.checkpoint.state import get_checkpoint_state
from weft_io.files.systems import PathLike
from weft_tensor import errors
from weft_tensor.arguments import check_function, check_number

_log = logging.getLogger("weft")


class Readiness(NamedTuple):
    """Readiness of a model, with a message that lists missing variables."""

    ready: bool
    missing: str


_READY = Readiness(True, "")


def readiness(op: Any, session: Any, label: str) -> Readiness:
    """Return the readiness of a model; a model without a check is ready.

    Args:
      op: string, shape (n,): the names that are not ready; or a node that fails with
        FailedPreconditionError.
      session: runs the node.
      label: beginning of messages, such as "Model not ready".
    Raises:
      OpError: the node fails for a reason other than an uninitialized variable.
    """
    if op is None:
        return _READY
    try:
        value = session.run(op)
    except errors.FailedPreconditionError as cause:
        if "uninitialized" not in cause.message:
            raise
        return Readiness(False, f"{label}: {cause.message}")
    if value is None or value.dtype == np.int32 or value.size == 0:
        return _READY
    names = ", ".join(name.decode(errors="replace") for name in np.ravel(value))
    return Readiness(False, f"Variables not initialized: {names}")


class Countdown:
    """The remaining time until a deadline, by the monotonic clock."""

    def __init__(self, seconds: float) -> None:
        self._end = time.monotonic() + seconds

    def left(self) -> float:
        """Return the remaining seconds; negative after the deadline."""
        return self._end - time.monotonic()


class SessionManager:
    """Creates sessions with a ready model.

    Args:
      local_init_op: node to run in each new session, which initializes state that is not in
        checkpoints.
      ready_op: string, shape (n,): names of variables that are not ready.
      ready_for_local_init_op: string, shape (n,): names that `local_init_op` still waits for.
      graph: the default graph by default.
      recovery_wait_secs: pause between checks of whether the model is ready.
      local_init_run_options: RunOptions for `local_init_op`.
      local_init_feed_dict: feeds of `local_init_op`.
    Raises: InvalidArgumentError: `ready_for_local_init_op` is set without `local_init_op`, or the
      pause is negative; InvalidTypeError: an argument has a wrong type.

    Examples:
      >>> step = wf.Variable(0, name="step")
      >>> saver, init = wf.train.Saver(), wf.global_variables_initializer()
      >>> manager = wf.train.SessionManager()
      >>> with manager.prepare_session("", init, saver, checkpoint_dir="./managed") as session:
      ...     session.run(step.assign(7))
      ...     prefix = saver.save(session, "./managed/model")
      np.int32(7)
      >>> with manager.prepare_session("", init, saver, checkpoint_dir="./managed") as session:
      ...     session.run(step)
      np.int32(7)
    """

    def __init__(
        self,
        local_init_op: Any = None,
        ready_op: Any = None,
        ready_for_local_init_op: Any = None,
        graph: Graph | None = None,
        recovery_wait_secs: float = 30,
        local_init_run_options: Any = None,
        local_init_feed_dict: Mapping[Any, Any] | None = None,
    ) -> None:
        if ready_for_local_init_op is not None and local_init_op is None:
            raise errors.InvalidArgumentError(
                "If you pass a ready_for_local_init_op you must also pass a local_init_op, "
                f"ready_for_local_init_op [{ready_for_local_init_op}]"
            )
        if not (graph is None or isinstance(graph, Graph)):
            raise errors.InvalidTypeError(f"graph must be a Graph, got {graph!r}")
        self._local_init_op = local_init_op
        self._ready_op = ready_op
        self._ready_for_local_init_op = ready_for_local_init_op
        self._graph = graph or get_default_graph()
        self._pause = check_number(recovery_wait_secs, "recovery_wait_secs", 0)
        self._local_init_run_options = local_init_run_options
        self._local_init_feed_dict = local_init_feed_dict

    def prepare_session(
        self,
        master: str,
        init_op: Any = None,
        saver: Any = None,
        checkpoint_dir: PathLike | None = None,
        checkpoint_filename_with_path: PathLike | None = None,
        wait_for_checkpoint: bool = False,
        max_wait_secs: float = 7200,
        config: Any = None,
        init_feed_dict: Mapping[Any, Any] | None = None,
        init_fn: Callable[[Any], Any] | None = None,
    ) -> Session:
        """Return a session with a ready model, restored if there is a checkpoint.

        Args:
          master: a session target.
          init_op: node to run if there is no checkpoint.
          saver: restores the checkpoint.
          checkpoint_dir: directory whose latest checkpoint is restored; or
          checkpoint_filename_with_path: the checkpoint to restore.
          wait_for_checkpoint: wait until there is one in `checkpoint_dir`.
          max_wait_secs: timeout of that wait.
          config: a ConfigProto.
          init_feed_dict: feeds of `init_op`.
          init_fn: called with the session after `init_op`.
        Raises:
          FailedPreconditionError: nothing initializes the model, or it is not ready afterwards.
          InvalidArgumentError: both `checkpoint_dir` and `checkpoint_filename_with_path` are set.
          OpError: the checkpoint cannot be restored, or an initializer failed.
        """
        if init_fn is not None:
            check_function(init_fn, "init_fn", 1)
        restore = _Restore.of(saver, checkpoint_dir, checkpoint_filename_with_path)
        session = Session(master, graph=self._graph, config=config)
        with _closed_on_failure(session):
            if not self._restore(session, restore, wait_for_checkpoint, max_wait_secs):
                if init_op is None and init_fn is None and self._local_init_op is None:
                    raise errors.FailedPreconditionError(
                        "Model is not initialized and no init_op or init_fn or local_init_op was "
                        "given"
                    )
                if init_op is not None:
                    session.run(init_op, feed_dict=init_feed_dict)
                if init_fn is not None:
                    init_fn(session)
            tried = f"Init op: {_name(init_op)}, init fn: {init_fn}, local_init_op: " + _name(
                self._local_init_op
            )
            local = self._run_local_init_op(session)
            if not local.ready:
                raise errors.FailedPreconditionError(
                    "Init operations did not make model ready for local_init.  "
                    f"{tried}, error: {local.missing}"
                )
            model = self._model_ready(session)
            if not model.ready:
                raise errors.FailedPreconditionError(
                    f"Init operations did not make model ready.  {tried}, error: {model.missing}"
                )
        return session

    def recover_session(
        self,
        master: str,
        saver: Any = None,
        checkpoint_dir: PathLike | None = None,
        checkpoint_filename_with_path: PathLike | None = None,
        wait_for_checkpoint: bool = False,
        max_wait_secs: float = 7200,
        config: Any = None,
    ) -> tuple[Session, bool]:
        """Return a session, and whether its model was restored from a checkpoint.

        `local_init_op` is run in either case if the model is ready for it.

        Args:
          master, saver, checkpoint_dir, checkpoint_filename_with_path, wait_for_checkpoint,
            max_wait_secs, config: as for `prepare_session`.
        Raises: InvalidArgumentError: both `checkpoint_dir` and `checkpoint_filename_with_path` are
          set; OpError: the checkpoint cannot be restored.
        """
        restore = _Restore.of(saver, checkpoint_dir, checkpoint_filename_with_path)
        session = Session(master, graph=self._graph, config=config)
        with _closed_on_failure(session):
            restored = self._restore(session, restore, wait_for_checkpoint, max_wait_secs)
            local = self._run_local_init_op(session)
            if not restored:
                return session, False
            source = checkpoint_dir or checkpoint_filename_with_path
            if not local.ready:
                _log.info(
                    "Restoring model from %s did not make model ready for local init: %s",
                    source,
                    local.missing,
                )
                return session, False
            model = self._model_ready(session)
            if not model.ready:
                _log.info(
                    "Restoring model from %s did not make model ready: %s", source, model.missing
                )
                return session, False
            _log.info("Restored model from %s", source)
        return session, True

    def wait_for_session(
        self, master: str, config: Any = None, max_wait_secs: float | None = math.inf
    ) -> Session:
        """Wait until the chief has prepared the model, and return a session.

        Args:
          master: the session target that is shared with the chief.
          config: a ConfigProto.
          max_wait_secs: the timeout; None for no limit.
        Raises: DeadlineExceededError: the model is not ready in time.
        """
        limit = math.inf if max_wait_secs is None else check_number(max_wait_secs, "max_wait_secs")
        timer = Countdown(limit)
        while True:
            session = Session(master, graph=self._graph, config=config)
            with _closed_on_failure(session):
                local = self._run_local_init_op(session)
                model = self._model_ready(session) if local.ready else Readiness(False, "")
            if model.ready:
                return session
            session.close()
            missing = local.missing or model.missing
            if timer.left() < self._pause:
                raise errors.DeadlineExceededError(
                    f"Session was not ready after waiting {limit:g} secs: {missing}"
                )
            _log.info("Waiting for model to be ready: %s", missing)
            time.sleep(self._pause)

    # ------------------------------------------------------------- steps of these

    def _restore(self, session: Session, restore: _Restore, wait: bool, limit: float) -> bool:
        """Restore the model from a checkpoint, if there is one; return True if it was restored."""
        if restore.saver is None:
            return False
        if restore.path is not None:
            restore.saver.restore(session, restore.path)
            return True
        result = self._wait_for_checkpoint(restore.directory, limit if wait else -1)
        if result is None:
            return False
        restore.saver.restore(session, result.model_checkpoint_path)
        restore.saver.recover_last_checkpoints(result.all_model_checkpoint_paths)
        return True

    def _wait_for_checkpoint(self, directory: Any, limit: float) -> Any:
        """Return the state of a directory once it has a checkpoint; None after a timeout."""
        timer = Countdown(limit)
        while True:
            checkpoint_state = get_checkpoint_state(directory)
            if checkpoint_state is not None and checkpoint_state.model_checkpoint_path:
                return checkpoint_state
            if timer.left() <= 0:
                return None
            _log.info("Waiting for checkpoint to be available.")
            time.sleep(min(self._pause, timer.left()))

    def _run_local_init_op(self, session: Session) -> Readiness:
        """Run `local_init_op` if the model is ready for it."""
        if self._local_init_op is None:
            return _READY
        local_readiness = readiness(
            self._ready_for_local_init_op, session, "Model not ready for local init"
        )
        if local_readiness.ready:
            _log.info("Running local_init_op.")
            session.run(
                self._local_init_op,
                feed_dict=self._local_init_feed_dict,
                options=self._local_init_run_options,
            )
            _log.info("Done running local_init_op.")
        return local_readiness

    def _model_ready(self, session: Session) -> Readiness:
        return readiness(self._ready_op, session, "Model not ready")


class _Restore(NamedTuple):
    """The checkpoint to restore, or the directory with it; nothing is restored without a saver."""

    saver: Any
    directory: PathLike | None
    path: PathLike | None

    @staticmethod
    def of(saver: Any, directory: PathLike | None, path: PathLike | None) -> _Restore:
        if directory and path:
            raise errors.InvalidArgumentError(
                "Can not provide both checkpoint_dir and checkpoint_filename_with_path."
            )
        if saver is not None and not hasattr(saver, "restore"):
            raise errors.InvalidTypeError(f"saver must be a Saver, got {saver!r}")
        return _Restore(saver if directory or path else None, directory, path or None)


class _closed_on_failure:  # noqa: N801 - a context manager used as a function
    """A context that closes a session if the block raises."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, *_: Any) -> None:
        if kind is not None:
            self._session.close()


def _name(op: Any) -> str:
    return str(getattr(op, "name", op))
