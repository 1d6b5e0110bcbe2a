"""Receivers and keys for the rendezvous of a step."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from weft_exec.resources.cancellation import Cancellation
from weft_exec.resources.rendezvous import DEAD
from weft_exec.resources.resources import CompletionCallback
from weft_tensor import errors

if TYPE_CHECKING:
    from weft_exec.executor.queue_entries import Entry
    from weft_exec.executor.step import Iteration, Token


class DirectReceiver:
    """Receiver of a value that the driving thread itself sends, which bypasses the mailbox.

    Args:
      token: the receiving entry.
      hand: called in that thread, with the token and the value.
      post: as in `Completion`; receives errors, from any thread.
    """

    __slots__ = ("_hand", "_post", "_token")

    def __init__(
        self,
        token: Token,
        hand: Callable[[Token, Any], None],
        post: Callable[[Any], None],
    ) -> None:
        self._token = token
        self._hand = hand
        self._post = post

    def __call__(self, value: Any = None) -> None:
        """Receive the value."""
        self._hand(self._token, value)

    def fail(self, error: BaseException) -> None:
        """Receive the error."""
        self._post((self._token, None, error))


class Arrival:
    """Receiver that copies a value from another memory space and then forwards it.

    Args:
      move: copies a value.
      done: receives the copy; dead values are forwarded immediately.
      cancellation: the cancellation of the step, which does not wait for copies in flight.
    """

    __slots__ = ("_cancellation", "_done", "_move")

    def __init__(
        self,
        move: Callable[[Any, CompletionCallback], None],
        done: CompletionCallback,
        cancellation: Cancellation,
    ) -> None:
        self._move = move
        self._done = done
        self._cancellation = cancellation

    def __call__(self, value: Any = None) -> None:
        """Receive the value."""
        if value is DEAD:
            self._done(value)
        else:
            _Transfer(self._done, self._cancellation).begin(self._move, value)

    def fail(self, error: BaseException) -> None:
        """Receive the error."""
        self._done.fail(error)


class _Transfer:
    """The `done` of one copy; it drops a result that arrives after the step was canceled."""

    __slots__ = ("_cancellation", "_done", "_ends", "_token", "_used")

    def __init__(self, done: CompletionCallback, cancellation: Cancellation) -> None:
        self._done = done
        self._cancellation = cancellation
        self._used = itertools.count()
        self._ends = itertools.count()
        self._token = cancellation.register(self._on_cancel)

    def begin(self, move: Callable[[Any, CompletionCallback], None], value: Any) -> None:
        if self._cancellation.error is not None:
            return  # the receiver has been notified
        try:
            move(value, self)
        except Exception as raised:  # because a device may raise anything; it is located later
            self.fail(raised)

    def __call__(self, value: Any = None) -> None:
        self._run_once()
        if not next(self._ends):
            self._cancellation.deregister(self._token)
            self._done(value)

    def fail(self, error: BaseException) -> None:
        self._run_once()
        if not next(self._ends):
            self._cancellation.deregister(self._token)
            self._done.fail(error)

    def _run_once(self) -> None:
        if next(self._used):
            raise errors.InternalError("a device called done twice for one transfer")

    def _on_cancel(self, error: errors.OpError) -> None:
        if not next(self._ends):
            self._done.fail(error.copy())


def key_of(transfer: Entry, iteration: Iteration) -> str:
    """Return the rendezvous key of a Send or Receive: edge, frames and iterations."""
    if not transfer.key:
        assert transfer.node is not None
        attrs = transfer.node.attrs
        names = (attrs["send_device"], attrs["recv_device"], attrs["tensor_name"])
        transfer.key = ";".join(names)
    if iteration.frame.parent is None:
        return transfer.key
    parts = [transfer.key]
    parent: Iteration | None = iteration
    while parent is not None and parent.frame.parent is not None:
        parts.append(f"{parent.frame.plan.name}:{parent.index}")
        parent = parent.frame.parent
    return ";".join(parts)
