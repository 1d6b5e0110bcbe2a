"""Rendezvous: exchange of values between partitions by key (paper, section 3.2.2).

A key is `sending device;receiving device;value`, followed by `;frame:iteration` for each enclosing
loop.
"""

from __future__ import annotations

import threading
from typing import Any, Final

from weft_exec.resources.resources import CompletionCallback
from weft_tensor import errors

DEAD: Final = object()
"""Marker that is sent in place of a dead value.

It is a single object, so transports to other processes can recognize it.
"""


def ends_of(key: str) -> tuple[str, str]:
    """Return the sending and the receiving device of a key."""
    sender, receiver, _ = key.split(";", 2)
    return sender, receiver


class Rendezvous:
    """The values of one step that were sent but not received, and the pending receives.

    With several processes a subclass is used, whose `send` transfers values for devices of other
    processes (see `ends_of`). It must copy or serialize a value before it returns, because the
    value may be the memory of a variable.

    Attributes:
      session: the number of the session; 0 within one process.
      collectives: the runtime of the step's collective operations; None within one process.
    """

    session = 0
    collectives: Any = None

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._values: dict[str, Any] = {}
        self._waiting: dict[str, CompletionCallback] = {}
        self._error: errors.OpError | None = None
        self._finished: errors.OpError | None = None

    def send(self, key: str, value: Any) -> None:
        """Send a value.

        Raises: InternalError: the key was already used in this step.
        """
        with self._lock:
            if self._error is not None:
                return  # the receive was canceled
            callback = self._waiting.pop(key, None)
            if callback is None:
                if key in self._values:
                    raise errors.InternalError(f"{key!r} was sent twice in one step")
                self._values[key] = value
                return
        # Called without the lock, because a continuation may send or receive values itself.
        callback(value)

    def receive(self, key: str, done: CompletionCallback) -> None:
        """Call `done(value)` when the value is available, or `done.fail(error)`."""
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
        """Fail current and future receives; drop unclaimed values."""
        with self._lock:
            self._error = error
            waiting, self._waiting = self._waiting, {}
            self._values.clear()
        for callback in waiting.values():
            callback.fail(error)

    def finish(self, error: errors.OpError) -> None:
        """End sending: values that were sent are still delivered, and all other receives fail."""
        with self._lock:
            self._finished = error
            waiting, self._waiting = self._waiting, {}
        for callback in waiting.values():
            callback.fail(error)

    @property
    def unread(self) -> int:
        """Return the number of values that were sent but not received."""
        with self._lock:
            return len(self._values)

    @property
    def pending(self) -> int:
        """Return the number of unclaimed values and pending receives."""
        with self._lock:
            return len(self._values) + len(self._waiting)
