"""Rate limits: plain objects driven by the time."""

from __future__ import annotations

import threading
import time

from weft_tensor import errors


class Rate:
    """A token bucket: limits the rate of events, and the size of a burst.

    Args:
      label: the events, for messages: "new connections".
      per_second: average number per second.
      burst: maximum number at once, after a pause.
    """

    def __init__(self, label: str, per_second: float, burst: int) -> None:
        self._label, self._per_second, self._burst = label, per_second, burst
        self._left = float(burst)
        self._last = 0.0
        self._lock = threading.Lock()

    def take(self, now: float | None = None) -> None:
        """Count one event.

        Args:
          now: in seconds of a monotonic clock; `time.monotonic()` by default.
        Raises: ResourceExhaustedError: there were too many.
        """
        now = time.monotonic() if now is None else now
        with self._lock:
            self._left = min(self._burst, self._left + (now - self._last) * self._per_second)
            self._last = now
            if self._left < 1:
                raise errors.ResourceExhaustedError(
                    f"more {self._label} than {self._burst} at once and {self._per_second:g} a "
                    "second: try again later"
                )
            self._left -= 1
