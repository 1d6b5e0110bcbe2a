"""Extension of Python's stack for functions whose recursion depth depends on their input.

Nested function calls are read, inlined and differentiated recursively. Python's stack is limited
per thread, so when a thread has used half of it, the recursion continues in a new thread while the
first one waits.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from contextvars import copy_context
from typing import Any, TypeVar

from weft_graph.ir import thread_stacks
from weft_tensor import errors

R = TypeVar("R")

MAX_THREADS = 400
"""Largest number of nested threads; more count as an infinite recursion."""


class _Depth(threading.local):
    """Number of threads that wait for this one."""

    def __init__(self) -> None:
        self.threads = 0


_depth = _Depth()


def is_half_full() -> bool:
    """Return True if this thread has used half of its recursion limit."""
    try:
        sys._getframe(sys.getrecursionlimit() // 2)
    except ValueError:
        return False
    return True


def deeper(function: Callable[..., R], *arguments: Any) -> R:
    """Call `function(*arguments)`, on a new thread if the stack of this one is half full.

    The new thread has the default graphs, default sessions and context variables of this one.

    Raises: ResourceExhaustedError: the recursion is too deep and probably infinite.
    """
    if not is_half_full():
        return function(*arguments)
    waiting = _depth.threads + 1
    if waiting > MAX_THREADS:
        raise errors.ResourceExhaustedError(
            f"functions are nested deeper than {MAX_THREADS} threads allow: check that the "
            "recursion ends"
        )
    context, thread_state = copy_context(), thread_stacks.of_thread.__dict__

    def go_on() -> R:
        _depth.threads = waiting
        thread_stacks.of_thread.__dict__.update(thread_state)
        return context.run(function, *arguments)

    return run_on_new_thread(go_on)


def run_on_new_thread(
    function: Callable[[], R], interrupted: Callable[[bool], None] = lambda _: None
) -> R:
    """Run a function on a new thread, and wait for it even if interrupted.

    Args:
      interrupted: called with True when the wait is interrupted, and with False when the function
        returns.
    """
    results: list[R] = []
    raised: list[BaseException] = []

    def run() -> None:
        try:
            results.append(function())
        except BaseException as error:  # because it is raised again where it is waited for
            raised.append(error)

    thread = threading.Thread(target=run, name="weft-deep-calls", daemon=True)
    thread.start()
    try:
        thread.join()
    except BaseException:  # because Ctrl-C must not leave the function behind
        interrupted(True)
        thread.join()
        interrupted(False)
        raise
    if raised:
        raise raised[0]
    return results[0]
