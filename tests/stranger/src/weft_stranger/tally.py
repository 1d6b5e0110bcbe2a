"""A resource: a number that only grows, and a queue of operations that wait for it."""

from __future__ import annotations

from typing import Any

import numpy as np

from weft_exec.resources.cancellation import Cancellation
from weft_exec.resources.resources import NOT_READY, CompletionCallback, Resource, Waiters
from weft_tensor import errors


class Tally(Resource):
    """A tally; thread-safe."""

    kind = "tally"

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self._value = np.int64(0)
        self._waiters = Waiters()

    def add(self, amount: np.int64) -> np.int64:
        """Add to the tally, and complete the operations whose value is reached."""
        with self._waiters.lock:
            self._value = value = self._value + amount
        self._waiters.wake()
        return value

    def get(self) -> np.int64:
        """Return the current value."""
        return self._value

    def wait(self, value: np.int64, done: CompletionCallback, cancellation: Cancellation) -> None:
        """Call `done` with the value once it has reached `value`."""

        def attempt() -> Any:
            return self._value if self._value >= value else NOT_READY

        self._waiters.wait(attempt, done, cancellation)

    def close(self) -> None:
        """Fail all waiting operations."""
        super().close()
        self._waiters.close(errors.CancelledError(f"the tally {self.name} was deleted"))
