"""How often something may happen: a plain object that is told the time."""

from __future__ import annotations

import threading
import time

from weft_tensor import errors


class Rate:
    """Lets so many things happen in a second, and as many at once as a burst may have.

    Args:
      what: happens, for messages: "new connections".
      per_second: how many on the whole.
      burst: how many at once, after a pause.
    """

    def __init__(self, what: str, per_second: float, burst: int) -> None:
        self._what, self._per_second, self._burst = what, per_second, burst
        self._left = float(burst)
        self._last = 0.0
        self._lock = threading.Lock()

    def take(self, now: float | None = None) -> None:
        """Count one.

        Args:
          now: in seconds of a clock that goes on; `time.monotonic()` by default.
        Raises: ResourceExhaustedError: there were too many.
        """
        now = time.monotonic() if now is None else now
        with self._lock:
            self._left = min(self._burst, self._left + (now - self._last) * self._per_second)
            self._last = now
            if self._left < 1:
                raise errors.ResourceExhaustedError(
                    f"more {self._what} than {self._burst} at once and {self._per_second:g} a "
                    "second: try again later"
                )
            self._left -= 1
