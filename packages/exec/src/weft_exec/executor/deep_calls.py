"""Calls within calls, as deep as recursive functions go.

Each call takes a few frames of Python's stack, which has a limit for each thread: where half of it
is used, the call goes on in another.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from weft_exec.kernels.quiet import quietly
from weft_exec.kernels.random_counters import here, run_at
from weft_graph.ir.deep_stack import is_half_full, on_new_thread
from weft_tensor import errors

DEEPEST = 10_000
"""Calls nested within each other; more are taken for infinite recursion."""

_MEASURE_EVERY = 16
"""Nested calls after which the stack is measured again, which takes time in proportion to it."""


class _Calls(threading.local):
    def __init__(self) -> None:
        self.depth = 0
        self.stopped: list[bool] = [False]


_calls = _Calls()


def run(name: str, function: Callable[..., None], *arguments: Any) -> None:
    """Run a function one call deeper.

    Args:
      name: name of the function that is called, for messages.
    Raises:
      ResourceExhaustedError: there are too many calls within calls.
      CancelledError: whoever waits for the first of them was interrupted.
    """
    depth = _calls.depth
    if depth >= DEEPEST:
        raise errors.ResourceExhaustedError(
            f"calls may be nested at most {DEEPEST} deep, exceeded in the function {name!r}: "
            "does its recursion end?"
        )
    if _calls.stopped[0]:
        raise errors.CancelledError("the step was interrupted")
    _calls.depth = depth + 1
    try:
        if depth % _MEASURE_EVERY == _MEASURE_EVERY - 1 and is_half_full():
            _run_elsewhere(function, *arguments)
        else:
            function(*arguments)
    finally:
        _calls.depth = depth


def _run_elsewhere(function: Callable[..., None], *arguments: Any) -> None:
    """Run a function on a new thread."""
    depth, stopped = _calls.depth, _calls.stopped
    where = here()

    def go_on() -> None:
        _calls.depth, _calls.stopped = depth, stopped
        quietly(run_at, *where, function, *arguments)

    def interrupted(now: bool) -> None:
        stopped[0] = now

    on_new_thread(go_on, interrupted)
