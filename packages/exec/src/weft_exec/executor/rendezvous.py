"""Where the parts of a step hand each other values, by name (paper, section 3.2.2)."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from weft_exec.resources import Done
from weft_tensor import errors

if TYPE_CHECKING:
    from weft_exec.executor.step import Iteration
    from weft_graph.node import Node

DEAD: Final = object()
"""What is received in place of a value that is dead."""


class Arrival:
    """Takes a value of another memory space, and has it brought in before it hands it on.

    Args:
      move: brings a value in.
      done: takes it then; dead ones at once.
    """

    __slots__ = ("_done", "_move")

    def __init__(self, move: Callable[[Any, Done], None], done: Done) -> None:
        self._move = move
        self._done = done

    def __call__(self, value: Any = None) -> None:
        """Take the value."""
        if value is DEAD:
            self._done(value)
            return
        try:
            self._move(value, self._done)
        except Exception as raised:  # because a device may raise anything; the receiver locates it
            self._done.fail(raised)

    def fail(self, error: BaseException) -> None:
        """Take the reason why there is none."""
        self._done.fail(error)


class Rendezvous:
    """The values of one step that were sent and not yet received, and who waits for others."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._values: dict[str, Any] = {}
        self._waiting: dict[str, Done] = {}
        self._error: errors.OpError | None = None

    def send(self, key: str, value: Any) -> None:
        """Hand a value over.

        Raises: InternalError: one of this name was sent before.
        """
        with self._lock:
            if self._error is not None:
                return  # nobody will ask for it any more
            done = self._waiting.pop(key, None)
            if done is None:
                if key in self._values:
                    raise errors.InternalError(f"{key!r} was sent twice in one step")
                self._values[key] = value
                return
        done(value)

    def receive(self, key: str, done: Done) -> None:
        """Call `done(value)` when the value is there, at once if it is; or `done.fail(error)`."""
        with self._lock:
            error = self._error
            if error is None:
                if key not in self._values:
                    self._waiting[key] = done
                    return
                value = self._values.pop(key)
        if error is not None:
            done.fail(error)
        else:
            done(value)

    def abort(self, error: errors.OpError) -> None:
        """Fail whoever waits, and whoever will; forget what nobody has asked for."""
        with self._lock:
            self._error = error
            waiting, self._waiting = self._waiting, {}
            self._values.clear()
        for done in waiting.values():
            done.fail(error)

    @property
    def pending(self) -> int:
        """How many values and how many waiting there are."""
        with self._lock:
            return len(self._values) + len(self._waiting)


def key_of(transfer: Node, iteration: Iteration) -> str:
    """The name under which a Send or Receive meets its other side: edge, frames and iterations."""
    attrs = transfer.attrs
    names = (attrs["send_device"], attrs["recv_device"], attrs["tensor_name"])
    parts = [name.decode() for name in names]
    around: Iteration | None = iteration
    while around is not None and around.frame.parent is not None:
        parts.append(f"{around.frame.plan.name}:{around.index}")
        around = around.frame.parent
    return ";".join(parts)
