"""Creators of training sessions, for the chief, which initializes the model, and for workers."""

from __future__ import annotations

__all__ = ["ChiefSessionCreator", "SessionCreator", "WorkerSessionCreator"]

from typing import Any, Final

from weft_exec.config import SessionConfig
from weft_io.files.systems import PathLike
from weft_io.training.scaffold import Scaffold
from weft_io.training.session_manager import SessionManager
from weft_tensor import errors
from weft_tensor.arguments import check_number

_RECOVERY_WAIT_SECONDS: Final = 1.0
"""Seconds between checks whether the model is ready.

The default of `SessionManager`, 30 s, would leave workers idle for too long after the chief has
restored a lost parameter server.
"""


class SessionCreator:
    """Base class of objects that create the sessions of a `MonitoredSession`.

    Examples:
      >>> x = wf.Variable(1.0)
      >>> initialize = wf.global_variables_initializer()
      >>> class OneThread(wf.train.SessionCreator):
      ...     def create_session(self):
      ...         session = wf.Session(config=wf.ConfigProto(inter_op_parallelism_threads=1))
      ...         session.run(initialize)
      ...         return session
      >>> with wf.train.MonitoredSession(OneThread()) as session:
      ...     session.run(x)
      np.float32(1.0)
    """

    def create_session(self) -> Any:
        """Return a session with a ready model."""
        raise NotImplementedError(f"create_session of {type(self).__name__}")


def _scaffold(scaffold: Any) -> Scaffold:
    if scaffold is None:
        return Scaffold()
    if not isinstance(scaffold, Scaffold):
        raise errors.InvalidTypeError(f"scaffold must be a Scaffold, got {scaffold!r}")
    return scaffold


class ChiefSessionCreator(SessionCreator):
    """Creates sessions, and initializes or restores the model in them.

    Args:
      scaffold: the nodes for it; a `Scaffold()` by default.
      master: a session target.
      config: a ConfigProto; if it is deterministic, checkpoints of the default saver are resumable.
      checkpoint_dir: directory whose latest checkpoint is restored, if there is one; or
      checkpoint_filename_with_path: the checkpoint to restore.
    Raises: InvalidArgumentError: both a directory and a checkpoint are set; InvalidTypeError:
      `scaffold` is not a Scaffold.

    Examples:
      >>> x = wf.Variable(1.0)
      >>> creator = wf.train.ChiefSessionCreator(checkpoint_dir="./restored_if_there")
      >>> with wf.train.MonitoredSession(creator) as session:
      ...     session.run(x)
      np.float32(1.0)
    """

    def __init__(
        self,
        scaffold: Scaffold | None = None,
        master: str = "",
        config: Any = None,
        checkpoint_dir: PathLike | None = None,
        checkpoint_filename_with_path: PathLike | None = None,
    ) -> None:
        if checkpoint_dir and checkpoint_filename_with_path:
            raise errors.InvalidArgumentError(
                "Can not provide both checkpoint_dir and checkpoint_filename_with_path."
            )
        self._scaffold = _scaffold(scaffold)
        self._master = master
        self._config = config
        self._directory = checkpoint_dir
        self._path = checkpoint_filename_with_path
        self._manager: SessionManager | None = None

    def create_session(self) -> Any:
        """Return a session; the default graph is finalized.

        Raises: FailedPreconditionError: the model is not ready after its initialization.
        """
        scaffold = self._scaffold.finalize(SessionConfig.from_proto(self._config).deterministic)
        self._manager = self._manager or _manager_of(scaffold)
        return self._manager.prepare_session(
            self._master,
            saver=scaffold.saver,
            checkpoint_dir=self._directory,
            checkpoint_filename_with_path=self._path,
            config=self._config,
            init_op=scaffold.init_op,
            init_feed_dict=scaffold.init_feed_dict,
            init_fn=scaffold.init_fn,
        )


class WorkerSessionCreator(SessionCreator):
    """Creates sessions after the chief has prepared the model.

    Args:
      scaffold: the nodes that check this; a `Scaffold()` by default.
      master: the session target that is shared with the chief.
      config: a ConfigProto.
      max_wait_secs: maximum number of seconds to wait; None for no limit.
    Raises: InvalidTypeError: an argument has a wrong type.

    Examples:
      >>> x = wf.Variable(1.0)
      >>> chief = wf.Session("inproc://trained")
      >>> chief.run(wf.global_variables_initializer())
      >>> worker = wf.train.WorkerSessionCreator(master="inproc://trained", max_wait_secs=10)
      >>> with wf.train.MonitoredSession(worker) as session:
      ...     session.run(x)
      np.float32(1.0)
    """

    def __init__(
        self,
        scaffold: Scaffold | None = None,
        master: str = "",
        config: Any = None,
        max_wait_secs: float | None = 30 * 60,
    ) -> None:
        self._scaffold = _scaffold(scaffold)
        self._master = master
        self._config = config
        if max_wait_secs is not None:
            max_wait_secs = check_number(max_wait_secs, "max_wait_secs")
        self._max_wait_secs = max_wait_secs
        self._manager: SessionManager | None = None

    def create_session(self) -> Any:
        """Return a session; the default graph is finalized.

        Raises: DeadlineExceededError: the model is not ready in time.
        """
        scaffold = self._scaffold.finalize()
        self._manager = self._manager or _manager_of(scaffold)
        return self._manager.wait_for_session(
            self._master, config=self._config, max_wait_secs=self._max_wait_secs
        )


def _manager_of(scaffold: Scaffold) -> SessionManager:
    return SessionManager(
        local_init_op=scaffold.local_init_op,
        local_init_feed_dict=scaffold.local_init_feed_dict,
        ready_op=scaffold.ready_op,
        ready_for_local_init_op=scaffold.ready_for_local_init_op,
        recovery_wait_secs=_RECOVERY_WAIT_SECONDS,
    )
