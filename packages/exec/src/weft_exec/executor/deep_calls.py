"""Nested calls of functions, to the depth that recursive functions need.

Each call uses a few frames of Python's stack, whose size is limited for each thread. When half of a
thread's stack is used, the next call runs on a new thread.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from weft_exec.kernels.numpy_warnings import call_quietly
from weft_exec.kernels.random_counters import current_iteration, run_at
from weft_graph.ir.deep_stack import is_half_full, run_on_new_thread
from weft_tensor import errors

DEEPEST = 10_000
"""Maximum depth of nested calls; deeper calls are taken for infinite recursion."""

_MEASURE_EVERY = 16
"""Number of nested calls after which the stack is measured again; measuring takes time in
proportion to its depth.
"""


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
      ResourceExhaustedError: the calls are nested too deeply.
      CancelledError: the thread that waits for the outermost call was interrupted.
    """
    depth = _calls.depth
    if depth >= DEEPEST:
        raise errors.ResourceExhaustedError(
            f"calls must be nested at most {DEEPEST} deep, which the function {name!r} exceeds: "
            "check that its recursion ends"
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
    iteration = current_iteration()

    def go_on() -> None:
        _calls.depth, _calls.stopped = depth, stopped
        call_quietly(run_at, *iteration, function, *arguments)

    def interrupted(immediately: bool) -> None:
        stopped[0] = immediately

    run_on_new_thread(go_on, interrupted)
