"""Functions that run on a background thread after an object was freed.

Python discards every exception that leaves a finalizer: `__del__`, the callback of a weak
reference, `weakref.finalize`. It also handles signals when any Python function begins, so a Ctrl-C
that arrives while a long operation runs, whose end frees an object, would be raised in the
finalizer of that object and vanish. Here the collector only calls a method of a queue, which is
written in C. A thread takes the work from the queue; signals are never handled in it.
"""

from __future__ import annotations

import logging
import os
import threading
import weakref
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, Final

_log = logging.getLogger("weft")
_NAME: Final = "weft-finalizers"


class Finalizer(weakref.ref[Any]):
    """A function that is called when an object has gone; `call_when_gone` makes it."""

    __slots__ = ("arguments", "function")

    function: Callable[..., object]
    arguments: tuple[Any, ...]

    def cancel(self) -> None:
        """Drop the call; canceling twice is allowed."""
        _pending.pop(id(self), None)


_pending: Final[dict[int, Finalizer]] = {}
_gone: Final[SimpleQueue[Finalizer]] = SimpleQueue()
_lock = threading.Lock()
_started = False


def call_when_gone(owner: Any, function: Callable[..., object], *arguments: Any) -> Finalizer:
    """Call a function soon after an object was freed.

    The calls are made one after the other in a thread, so they must not wait for long. Those that
    are left when the process ends are not made.

    Args:
      owner: an object to which neither the function nor its arguments refer.
      function: what it raises is logged.
    """
    _start()
    finalizer = Finalizer(owner, _gone.put)
    finalizer.function, finalizer.arguments = function, arguments
    _pending[id(finalizer)] = finalizer
    return finalizer


class _Owner:
    pass


def settle() -> None:
    """Wait until the functions of all objects that were freed before this call have run.

    For whoever counts what such functions give back. It must not be called with a lock that one of
    them takes.
    """
    if threading.current_thread().name == _NAME:
        return
    owner, called = _Owner(), threading.Event()
    call_when_gone(owner, called.set)
    del owner  # the calls are made in the order in which objects go
    called.wait()


def _start() -> None:
    global _started
    if _started:
        return
    with _lock:
        if not _started:
            threading.Thread(target=_run, name=_NAME, daemon=True).start()
            _started = True


def _run() -> None:
    while True:
        finalizer = _gone.get()
        if _pending.pop(id(finalizer), None) is None:
            continue
        try:
            finalizer.function(*finalizer.arguments)
        except Exception:  # because the calls of other objects must not be lost with this one
            _log.exception("a finalizer failed")
        del finalizer


def _after_fork() -> None:
    """Drop the parent's thread, which the child lacks; the next use starts another."""
    global _lock, _started
    _lock, _started = threading.Lock(), False


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
