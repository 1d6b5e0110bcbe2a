"""`CheckpointManager`: retention of checkpoints in a directory, and iteration over new ones."""

from __future__ import annotations

__all__ = ["CheckpointManager", "checkpoints_iterator"]

import time
from collections.abc import Callable, Iterator
from typing import Any

from weft_io.checkpoint import state
from weft_io.files import paths
from weft_io.saving.retention import Retention
from weft_io.tracking.checkpoint import Checkpoint
from weft_io.tracking.load_status import session_of
from weft_tensor import errors
from weft_tensor.arguments import check_integer, check_number

_POLL_SECONDS = 1.0


class CheckpointManager:
    """Saves checkpoints into a directory and removes old ones.

    Args:
      checkpoint: a `Checkpoint`.
      directory: the directory of the checkpoints, created if necessary. A manager continues with
        the checkpoints of an earlier manager of the directory, and ignores those with other names.
      max_to_keep: number of the latest checkpoints to keep; None keeps all.
      keep_checkpoint_every_n_hours: also keep one of the older checkpoints per this number of
        hours.
      checkpoint_name: prefix of their names.
    Raises: InvalidTypeError, InvalidArgumentError: an argument is invalid.

    Examples:
      >>> w = wf.Variable(1.0)
      >>> checkpoint = wf.train.Checkpoint(w=w)
      >>> manager = wf.train.CheckpointManager(checkpoint, "./kept", max_to_keep=2)
      >>> with wf.Session() as session:
      ...     session.run(w.initializer)
      ...     paths = [manager.save() for _ in range(3)]
      >>> manager.checkpoints, manager.latest_checkpoint
      (['./kept/ckpt-2', './kept/ckpt-3'], './kept/ckpt-3')
    """

    def __init__(
        self,
        checkpoint: Checkpoint,
        directory: str,
        max_to_keep: int | None,
        keep_checkpoint_every_n_hours: float | None = None,
        checkpoint_name: str = "ckpt",
    ) -> None:
        if not isinstance(checkpoint, Checkpoint):
            raise errors.InvalidTypeError(f"checkpoint must be a Checkpoint, got {checkpoint!r}")
        if max_to_keep is not None:
            check_integer(max_to_keep, "max_to_keep", 1)
        hours = keep_checkpoint_every_n_hours
        if hours is not None:
            check_number(hours, "keep_checkpoint_every_n_hours")
        self._checkpoint = checkpoint
        self._directory = paths.as_path(directory)
        self._prefix = paths.join(self._directory, checkpoint_name)
        self._keeps_all = max_to_keep is None
        limit = 2**62 if max_to_keep is None else max_to_keep
        self._retention = Retention(limit, float("inf") if hours is None else hours)
        checkpoint_state = state.get_checkpoint_state(self._directory)
        if checkpoint_state is not None:
            prefix = f"{self._prefix}-"
            result = [
                path
                for path in checkpoint_state.all_model_checkpoint_paths
                if path.startswith(prefix)
            ]
            self._retention.add_existing(result)

    @property
    def checkpoint(self) -> Checkpoint:
        """The `Checkpoint` to save."""
        return self._checkpoint

    @property
    def directory(self) -> str:
        """The directory of the checkpoints."""
        return self._directory

    @property
    def checkpoints(self) -> list[str]:
        """The prefixes of the kept checkpoints, oldest first."""
        return [prefix for prefix, _ in self._retention.last]

    @property
    def latest_checkpoint(self) -> str | None:
        """The prefix of the last one, or None."""
        return self.checkpoints[-1] if self._retention.last else None

    def save(self, checkpoint_number: Any = None, session: Any = None) -> str:
        """Save a checkpoint, and remove those beyond the limit.

        Args:
          checkpoint_number: the number at the end of its name, or a variable; by default the
            `save_counter`.
          session: the default session by default.
        Returns: the prefix of the checkpoint.
        Raises: as `Checkpoint.save`.
        """
        if checkpoint_number is None:
            checkpoint_number = self._checkpoint.next_number(session)
        elif hasattr(checkpoint_number, "graph"):
            self._checkpoint.next_number(session)
            selected = session_of(checkpoint_number.graph, session, "CheckpointManager.save()")
            checkpoint_number = int(selected.run(checkpoint_number))
        else:
            self._checkpoint.next_number(session)
        prefix = self._checkpoint.write(f"{self._prefix}-{checkpoint_number}", session)
        snapshot = self._retention.snapshot()
        removed = self._retention.record(prefix)
        try:
            self._note()
        except errors.OpError:
            self._retention.rollback(snapshot)
            raise
        for old in removed:
            state.remove_checkpoint(old)
        return prefix

    def _note(self) -> None:
        last = self._retention.last
        state.update_checkpoint_state(
            self._directory,
            last[-1][0],
            [prefix for prefix, _ in last],
            all_model_checkpoint_timestamps=[written for _, written in last],
            save_relative_paths=True,
        )

    def restore_or_initialize(self, session: Any = None) -> str | None:
        """Restore the last checkpoint; if there is none, initialize all variables.

        Args:
          session: the default session by default.
        Returns: the prefix of the restored checkpoint, or None.
        """
        latest = self.latest_checkpoint
        self._checkpoint.restore(latest).initialize_or_restore(session)
        return latest


def checkpoints_iterator(
    checkpoint_dir: str,
    min_interval_secs: float = 0,
    timeout: float | None = None,
    timeout_fn: Callable[[], Any] | None = None,
) -> Iterator[str]:
    """Yield new checkpoints of a directory as they appear, such as for evaluation.

    If several appear at once, only the latest is returned.

    Args:
      checkpoint_dir: the directory.
      min_interval_secs: minimum number of seconds between them.
      timeout: seconds to wait for a new one; None for no limit.
      timeout_fn: called after a timeout; the iteration ends if it returns True, which is the
        default.
    Yields: prefixes.

    Examples:
      >>> w = wf.Variable(1.0)
      >>> with wf.Session() as session:
      ...     session.run(w.initializer)
      ...     prefix = wf.train.Saver().save(session, "./found/model")
      >>> list(wf.train.checkpoints_iterator("./found", timeout=0.0))
      ['./found/model']
    """
    previous: str | None = None
    while True:
        checkpoint = _next_checkpoint(checkpoint_dir, previous, timeout)
        if checkpoint is None:
            if timeout_fn is None or timeout_fn():
                return
            continue
        start = time.monotonic()
        previous = checkpoint
        yield checkpoint
        remaining = start + min_interval_secs - time.monotonic()
        if remaining > 0:
            time.sleep(remaining)


def _next_checkpoint(directory: str, previous: str | None, timeout: float | None) -> str | None:
    """Wait for a latest checkpoint other than `previous`; return None after the timeout."""
    deadline = None if timeout is None else time.monotonic() + timeout
    while True:
        latest_checkpoint = state.latest_checkpoint(directory)
        if latest_checkpoint is not None and latest_checkpoint != previous:
            return latest_checkpoint
        pause = _POLL_SECONDS
        if deadline is not None:
            pause = min(pause, deadline - time.monotonic())
            if pause <= 0:
                return None
        time.sleep(pause)
