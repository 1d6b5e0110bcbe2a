"""Calls with NumPy's floating-point warnings turned off at little cost.

`np.errstate` costs 0.6 µs each time. NumPy keeps the setting in a context variable, so it is set
once in a context, and entering that context costs a tenth.
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


def call_quietly(function: Callable[..., Any], *args: Any) -> Any:
    """Call `function(*args)` with floating-point errors ignored; such calls may nest."""
    return call_unary_quietly(lambda arguments: function(*arguments), args)


def call_unary_quietly(function: Callable[[Any], Any], value: Any) -> Any:
    """Call `function(value)` like `call_quietly`, in half the time."""
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
