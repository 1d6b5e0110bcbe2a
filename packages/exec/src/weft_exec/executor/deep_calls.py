"""Calls within calls, as deep as recursive functions go.

Each call takes a few frames of Python's stack, which has a limit for each thread.  Where one thread
has used up half of it, the call goes on in another, and the first waits.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from typing import Any

from weft_exec.kernels.quiet import quietly
from weft_exec.kernels.random_counters import here, run_at
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
      name: of the function that is called, for messages.
    Raises:
      ResourceExhaustedError: there are too many calls within calls.
      CancelledError: whoever waits for the first of them was interrupted.
    """
    depth = _calls.depth
    if depth >= DEEPEST:
        raise errors.ResourceExhaustedError(
            f"calls may be nested at most {DEEPEST} deep, got another of the function {name!r}: "
            "does its recursion end?"
        )
    if _calls.stopped[0]:
        raise errors.CancelledError("the step was interrupted")
    _calls.depth = depth + 1
    try:
        if depth % _MEASURE_EVERY == _MEASURE_EVERY - 1 and _is_half_full():
            _run_elsewhere(function, *arguments)
        else:
            function(*arguments)
    finally:
        _calls.depth = depth


def _is_half_full() -> bool:
    try:
        sys._getframe(sys.getrecursionlimit() // 2)
    except ValueError:
        return False
    return True


def _run_elsewhere(function: Callable[..., None], *arguments: Any) -> None:
    """Run a function on a new thread, and wait for it also when interrupted."""
    depth, stopped = _calls.depth, _calls.stopped
    where = here()
    raised: list[BaseException] = []

    def go_on() -> None:
        _calls.depth, _calls.stopped = depth, stopped
        try:
            quietly(run_at, *where, function, *arguments)
        except BaseException as error:  # because it is raised again where it is waited for
            raised.append(error)

    thread = threading.Thread(target=go_on, name="weft-deep-calls", daemon=True)
    thread.start()
    try:
        thread.join()
    except BaseException:  # because Ctrl-C must not leave calls behind
        stopped[0] = True
        thread.join()
        stopped[0] = False
        raise
    if raised:
        raise raised[0]
