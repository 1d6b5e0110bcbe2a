"""Probe of an unresponsive task through its probe process."""

from __future__ import annotations

import time
from typing import Final

from weft_distrib.liveness.peer_monitor import Watched

_ANSWERS: Final = 3
_RETRY_SECONDS: Final = 0.05


def probe(watched: Watched, seconds: float) -> str:
    """Return the state of a task according to its probe process.

    Args:
      watched: the watch of the task, which ends with this call.
      seconds: time limit.
    Returns: "stopped"; "busy" if it computes without answering; "stuck" if it does not compute; or
      "unreachable".
    """
    end = time.monotonic() + seconds
    while watched.heard < _ANSWERS and time.monotonic() < end:
        time.sleep(_RETRY_SECONDS)
    watched.stop()
    return watched.pulse.reported_state or "unreachable"
