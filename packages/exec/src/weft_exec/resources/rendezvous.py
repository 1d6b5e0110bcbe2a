"""Where the parts of a step hand each other values, by name (paper, section 3.2.2).

A name is `sending device;receiving device;value`, and in loops `;frame:iteration` for each one.
"""

from __future__ import annotations

import threading
from typing import Any, Final

from weft_exec.resources.resources import Done
from weft_tensor import errors

DEAD: Final = object()
"""What is sent in place of a value that is dead.

It is one object, so what carries values to another process tells there that a value is dead.
"""


def ends_of(key: str) -> tuple[str, str]:
    """The devices that send and receive the value of a name."""
    sender, receiver, _ = key.split(";", 2)
    return sender, receiver


class Rendezvous:
    """The values of one step that were sent and not yet received, and who waits for others.

    One of several processes is a subclass: its `send` carries to another process what `ends_of`
    says is received there, where the base's `send` takes it. References are sent as they are, so it
    must copy or write a value down before it returns.

    Attributes:
      session: a number of the session whose step it is; 0 within one process.
      collectives: what runs collective operations of the step; None within one process.
    """

    session = 0
    collectives: Any = None

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._values: dict[str, Any] = {}
        self._waiting: dict[str, Done] = {}
        self._error: errors.OpError | None = None
        self._finished: errors.OpError | None = None

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
            if error is None and key not in self._values:
                error = self._finished
                if error is None:
                    self._waiting[key] = done
                    return
            elif error is None:
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

    def finish(self, error: errors.OpError) -> None:
        """Nothing more is sent: hand over what was, and fail whoever waits for something else."""
        with self._lock:
            self._finished = error
            waiting, self._waiting = self._waiting, {}
        for done in waiting.values():
            done.fail(error)

    @property
    def unread(self) -> int:
        """How many values were sent and not received."""
        with self._lock:
            return len(self._values)

    @property
    def pending(self) -> int:
        """How many values and how many waiting there are."""
        with self._lock:
            return len(self._values) + len(self._waiting)
