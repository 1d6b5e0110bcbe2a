"""A probe of an unresponsive task through the process beside it."""

from __future__ import annotations

import time
from typing import Final

from weft_distrib.liveness.watch import Watched

_ANSWERS: Final = 3
_AGAIN_SECONDS: Final = 0.05


def probe(watched: Watched, seconds: float) -> str:
    """Return the state of a task as seen from outside.

    Args:
      watched: the task, watched from now on; it is released.
      seconds: time limit.
    Returns: "stopped", "busy" if it computes without answering, "stuck" if it does not compute, or
    "unreachable".
    """
    end = time.monotonic() + seconds
    while watched.heard < _ANSWERS and time.monotonic() < end:
        time.sleep(_AGAIN_SECONDS)
    watched.stop()
    return watched.pulse.said or "unreachable"
