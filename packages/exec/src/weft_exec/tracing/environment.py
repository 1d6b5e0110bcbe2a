"""Recordings that environment variables and the configs of sessions request."""

from __future__ import annotations

import atexit
import os
import threading
from collections.abc import Callable
from typing import Final

from weft_tensor import errors

_TRACE: Final = "WEFT_TRACE"
_FLIGHT: Final = "WEFT_FLIGHT_RECORDER"
_OPTIONS: Final = ("seconds", "slow")

_lock = threading.Lock()
_is_started = False


def start_once() -> None:
    """Start the recordings that the environment requests, at the first session of the process.

    "%p" in a path stands for the number of the process. Recordings end with the process.

    Raises:
      InvalidArgumentError: a variable has an invalid option.
      OSError: a file cannot be written.
    """
    if not _take():
        return
    if path := os.environ.get(_TRACE):
        from weft_exec.tracing.recording import Recording

        atexit.register(Recording(_for_process(path)).close)
    if setting := os.environ.get(_FLIGHT):
        from weft_exec.tracing.flight_recorder import FlightRecorder

        path, seconds, slow = parse_flight(setting)
        atexit.register(FlightRecorder(_for_process(path), seconds, slow).close)


class SessionRecordings:
    """The recordings that the config of a session requests, from now until `close`.

    Raises:
      InvalidArgumentError: a number of the flight recorder is not positive.
      OSError: the file of the trace cannot be written.
    """

    def __init__(
        self,
        trace_file: str,
        flight_path: str,
        flight_seconds: float,
        slow_seconds: float | None,
    ) -> None:
        self._closes: list[Callable[[], None]] = []
        if flight_path:
            from weft_exec.tracing.flight_recorder import FlightRecorder

            path = _for_process(flight_path)
            recorder = FlightRecorder(path, flight_seconds, slow_seconds)
            self._closes.append(recorder.close)
        if trace_file:
            from weft_exec.tracing.recording import Recording

            try:
                self._closes.append(Recording(_for_process(trace_file)).close)
            except OSError:
                self.close()
                raise
        if self._closes:
            atexit.register(self.close)

    def close(self) -> None:
        """Write the recorded steps. Later calls do nothing.

        Raises: OSError: a file cannot be written.
        """
        closes, self._closes = self._closes, []
        if closes:
            atexit.unregister(self.close)
        for close in closes:
            close()


def _take() -> bool:
    """Return True only for the first caller."""
    global _is_started
    with _lock:
        is_first, _is_started = not _is_started, True
    return is_first


def _for_process(path: str) -> str:
    return path.replace("%p", str(os.getpid()))


def parse_flight(setting: str) -> tuple[str, float, float | None]:
    """Return the path, the seconds to keep, and the minimum seconds of a slow step.

    Raises: InvalidArgumentError: an option is unknown or not a number.
    """
    path, *options = setting.split(",")
    values: dict[str, float] = {}
    for option in options:
        name, _, number = option.partition("=")
        try:
            if name not in _OPTIONS:
                raise ValueError(name)
            values[name] = float(number)
        except ValueError as error:
            raise errors.InvalidArgumentError(
                f"{_FLIGHT} must be a path, and possibly ',seconds=NUMBER' and ',slow=NUMBER', "
                f"got {setting!r}"
            ) from error
    return path, values.get("seconds", 10.0), values.get("slow")
