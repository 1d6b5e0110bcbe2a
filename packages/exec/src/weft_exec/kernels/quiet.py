"""Running code with NumPy's floating-point warnings off, cheaply.

`np.errstate` costs 0.6 us each time.  NumPy keeps the setting in a context variable, so a context
in which it was set once is enough; entering one costs a tenth of that.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextvars import Context
from typing import Any

import numpy as np


class _Contexts(threading.local):
    def __init__(self) -> None:
        self.free: list[Context] = []


_contexts = _Contexts()


def quietly(function: Callable[..., Any], *args: Any) -> Any:
    """`function(*args)` with floating-point errors ignored; steps may nest."""
    return quietly_on(lambda given: function(*given), args)


def quietly_on(function: Callable[[Any], Any], value: Any) -> Any:
    """`function(value)` in the same way, in half the time."""
    free = _contexts.free
    context = free.pop() if free else _new_context()
    try:
        return context.run(function, value)
    finally:
        free.append(context)


def _new_context() -> Context:
    context = Context()
    context.run(np.seterr, all="ignore")
    return context
