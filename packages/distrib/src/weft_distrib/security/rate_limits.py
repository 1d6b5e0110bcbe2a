"""Rate limits: plain objects driven by the time."""

from __future__ import annotations

import threading
import time

from weft_tensor import errors


class Rate:
    """A token bucket: limits the rate of events, and the size of a burst.

    Args:
      label: a description of the events for messages, such as "new connections".
      per_second: the average number of events per second.
      burst: the maximum number of events in a burst.
    """

    def __init__(self, label: str, per_second: float, burst: int) -> None:
        self._label, self._per_second, self._burst = label, per_second, burst
        self._allowance = float(burst)
        self._last = 0.0
        self._lock = threading.Lock()

    def take(self, now: float | None = None) -> None:
        """Count one event.

        Args:
          now: the time in seconds by a monotonic clock; by default `time.monotonic()`.
        Raises: ResourceExhaustedError: there are too many events.
        """
        now = time.monotonic() if now is None else now
        with self._lock:
            self._allowance = min(
                self._burst, self._allowance + (now - self._last) * self._per_second
            )
            self._last = now
            if self._allowance < 1:
                raise errors.ResourceExhaustedError(
                    f"too many {self._label}: at most {self._burst} in a burst and "
                    f"{self._per_second:g} per second are accepted; try again later"
                )
            self._allowance -= 1
