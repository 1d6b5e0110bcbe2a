"""Points at which a background compilation may pause for the program or be abandoned.

A code generator calls `may_pause` between parts of a compilation, after it has stored their
results, such as before each object file.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class CompilationAbandoned(BaseException):
    """Raised to end a background compilation because its program has ended."""


class _Thread(threading.local):
    """The thread-local function that pauses the thread's compilation, or None."""

    pause: Callable[[], None] | None = None


_thread = _Thread()


def may_pause() -> None:
    """Pause this thread's compilation while the program should run instead.

    Raises: CompilationAbandoned: the program has ended.
    """
    if _thread.pause is not None:
        _thread.pause()


@contextmanager
def pause_with(pause: Callable[[], None]) -> Iterator[None]:
    """Set the function that this thread's compilation calls at each point where it may pause."""
    _thread.pause = pause
    try:
        yield
    finally:
        _thread.pause = None
