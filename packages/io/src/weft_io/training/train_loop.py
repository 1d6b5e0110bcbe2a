"""A training loop that restarts after preemption."""

from __future__ import annotations

__all__ = ["basic_train_loop"]

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from weft_tensor import errors
from weft_tensor.arguments import check_function


def basic_train_loop(
    supervisor: Any,
    train_step_fn: Callable[..., Any],
    args: Sequence[Any] | None = None,
    kwargs: Mapping[str, Any] | None = None,
    master: str = "",
) -> None:
    """Repeat a step until the supervisor stops; an `AbortedError` starts a new session.

    Args:
      supervisor: a `Supervisor`, or an object with its `managed_session(master)` and
        `should_stop()`.
      train_step_fn: called as `train_step_fn(session, *args, **kwargs)`.
      args, kwargs: further arguments of `train_step_fn`.
      master: a session target.
    Raises: InvalidTypeError: an argument has a wrong type; also errors of the step.

    Examples:
      >>> advance = wf.train.get_or_create_global_step().assign_add(1)
      >>> supervisor = wf.train.Supervisor()
      >>> def train_step(session, last):
      ...     if session.run(advance) == last:
      ...         supervisor.request_stop()
      >>> wf.train.basic_train_loop(supervisor, train_step, args=[3])
    """
    if not (hasattr(supervisor, "managed_session") and hasattr(supervisor, "should_stop")):
        raise errors.InvalidTypeError(f"supervisor must be a Supervisor, got {supervisor!r}")
    check_function(train_step_fn, "train_step_fn")
    while True:
        try:
            with supervisor.managed_session(master) as session:
                while not supervisor.should_stop():
                    train_step_fn(session, *(args or ()), **(kwargs or {}))
            return
        except errors.AbortedError:
            continue
