"""The step that an asynchronous kernel belongs to."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

from weft_exec.resources.cancellation import Cancellation
from weft_exec.resources.rendezvous import Rendezvous
from weft_tensor import errors

_step_ids = itertools.count(1)


class StepContext:
    """One step.

    Attributes:
      step_id: a number that is unique within the process.
      cancellation: canceled when the step fails, times out or is canceled.
      deadline: in `time.monotonic()`, or None.
      container: the default container of resources.
      owns_rendezvous: True if one thread runs all partitions of the step.

    Args:
      rendezvous: a rendezvous shared with partitions that other processes or threads run; its
        creator ends it. By default the step has its own.
      cancellation: a cancellation shared with others that may cancel the step. By default the step
        has its own.
    """

    __slots__ = (
        "_end_callbacks",
        "_has_ended",
        "_rendezvous",
        "_tokens",
        "cancellation",
        "container",
        "deadline",
        "owns_rendezvous",
        "step_id",
    )

    def __init__(
        self,
        deadline: float | None,
        container: str,
        rendezvous: Rendezvous | None = None,
        cancellation: Cancellation | None = None,
    ) -> None:
        self.step_id = next(_step_ids)
        self.cancellation = cancellation or Cancellation()
        self.deadline = deadline
        self.container = container
        self._rendezvous = rendezvous
        self.owns_rendezvous = rendezvous is None
        if rendezvous is not None:
            self.cancellation.register(rendezvous.abort)
        self._end_callbacks: dict[int, Callable[[], None]] = {}
        self._tokens = itertools.count(1)
        self._has_ended = False

    @property
    def rendezvous(self) -> Rendezvous:
        """The rendezvous of the partitions of the step."""
        rendezvous = self._rendezvous
        if rendezvous is None:
            rendezvous = self._rendezvous = Rendezvous()
            self.cancellation.register(rendezvous.abort)
        return rendezvous

    def add_end_callback(self, callback: Callable[[], None]) -> int:
        """Call `callback()` when the step has ended, with or without an error.

        If the step has already ended, `callback` is called immediately. It may run on any thread.
        For example, this unlocks a mutex that the step has locked.

        Returns: a token for `forget`.
        """
        token = next(self._tokens)
        self._end_callbacks[token] = callback
        if self._has_ended:
            self._call(token)
        return token

    def forget(self, token: int) -> None:
        """Remove a callback of `add_end_callback`, unless it has been called or is about to be."""
        self._end_callbacks.pop(token, None)

    def end(self) -> None:
        """Signal that no part of the step runs any more; the step's driver calls this."""
        self._has_ended = True
        if self._rendezvous is not None and self.owns_rendezvous:
            self._rendezvous.abort(errors.CancelledError("the step has ended"))
        for token in list(self._end_callbacks):
            self._call(token)

    def _call(self, token: int) -> None:
        callback = self._end_callbacks.pop(token, None)  # a second caller finds none
        if callback is not None:
            callback()


class Completion:
    """The `done` of one asynchronous kernel: called exactly once, from any thread.

    It only posts to the step's mailbox; the thread that drives the step handles the result.
    """

    __slots__ = ("_post", "_token", "_used")

    def __init__(self, token: Any, post: Callable[[Any], None]) -> None:
        self._token = token
        self._post = post
        self._used = itertools.count()

    def __call__(self, value: Any = None) -> None:
        """Complete with the kernel's result.

        Raises: InternalError: the kernel has already completed.
        """
        self._complete_once()
        self._post((self._token, value, None))

    def fail(self, error: BaseException) -> None:
        """Complete with the kernel's error.

        Raises: InternalError: the kernel has already completed.
        """
        self._complete_once()
        self._post((self._token, None, error))

    def _complete_once(self) -> None:
        if next(self._used):
            raise errors.InternalError("an asynchronous kernel called done twice")
