"""Points at which a compilation in the background may pause for the program, or be abandoned.

A code generator calls `may_pause` between parts of a compilation whose results it has kept, such as
before each object file.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class CompilationAbandoned(BaseException):
    """Ends a compilation in the background, because its program has ended."""


class _Thread(threading.local):
    """The function that pauses the compilation of a thread, if there is one."""

    pause: Callable[[], None] | None = None


_thread = _Thread()


def may_pause() -> None:
    """Pause the compilation of this thread as long as its program should run instead.

    Raises: CompilationAbandoned: the program has ended.
    """
    if _thread.pause is not None:
        _thread.pause()


@contextmanager
def pausing(pause: Callable[[], None]) -> Iterator[None]:
    """Call a function at each point at which a compilation of this thread may pause."""
    _thread.pause = pause
    try:
        yield
    finally:
        _thread.pause = None
