"""Functions that run on a background thread after an object was freed.

Python discards every exception that leaves a finalizer: `__del__`, the callback of a weak
reference, `weakref.finalize`. It also handles signals when any Python function begins, so a Ctrl-C
could be raised inside a finalizer and vanish. Here the collector only calls a method of a queue,
which is written in C. A background thread, in which signals are never handled, takes the work from
the queue.
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
    """A function to call after an object was freed; created by `call_when_gone`."""

    __slots__ = ("arguments", "function")

    function: Callable[..., object]
    arguments: tuple[Any, ...]

    def cancel(self) -> None:
        """Cancel the call; it may be canceled twice."""
        _pending.pop(id(self), None)


_pending: Final[dict[int, Finalizer]] = {}
_gone: Final[SimpleQueue[Finalizer]] = SimpleQueue()
_lock = threading.Lock()
_started = False


def call_when_gone(owner: Any, function: Callable[..., object], *arguments: Any) -> Finalizer:
    """Call a function soon after an object was freed.

    One thread makes the calls in sequence, so they must not block for long. Calls that are pending
    when the process ends are dropped.

    Args:
      owner: an object to which neither the function nor its arguments refer.
      function: its exceptions are logged.
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

    Call it before counting resources that such functions release. The caller must not hold a lock
    that one of the functions acquires.
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
