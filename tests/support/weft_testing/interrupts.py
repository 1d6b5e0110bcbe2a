"""Ctrl-C at chosen moments."""

from __future__ import annotations

import _thread
import gc
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest


def interrupted_while_freed(thing: list[Any]) -> bool:
    """Free what a list holds in a C call during which Ctrl-C arrives; return True if it is seen.

    Python handles the signal in whatever function of Python's begins first: in the caller, unless
    freeing runs one.

    Args:
      thing: a list with the only reference; it is emptied.
    """
    interrupt: Any = partial(_thread.interrupt_main)
    interrupt.thing = thing.pop()
    calls = iter(interrupt, None)  # calls it once, and then drops it, with what it refers to
    del interrupt
    try:
        list(calls)
    except KeyboardInterrupt:
        return True
    return False


@contextmanager
def without_gc_callbacks() -> Iterator[None]:
    """Remove callbacks of garbage collection, which would discard a Ctrl-C.

    An exception in one of them is discarded, and so is a Ctrl-C that arrives then.
    """
    callbacks = gc.callbacks[:]
    gc.callbacks.clear()
    try:
        yield
    finally:
        gc.callbacks.extend(callbacks)


def relay_to_sigint(*_: object) -> None:
    """Handle a timer's signal like SIGINT, for code that has replaced the handler of SIGINT."""
    signal.raise_signal(signal.SIGINT)


def interrupt_in_rounds(
    use: Callable[[], object],
    delays: Callable[[int], float],
    rounds: int,
    handler: Callable[..., object] = signal.default_int_handler,
    seconds: float = 10.0,
) -> Iterator[int]:
    """Let a function run over and over until a timer interrupts it, once in each round.

    The caller checks the state between the rounds. A round fails that no interrupt has ended within
    `seconds`: one was lost.

    Args:
      delays: from the number of a round to the seconds until its interrupt.
      handler: of the timer's signal.
    """
    before = signal.signal(signal.SIGALRM, handler)
    try:
        with without_gc_callbacks():
            for index in range(rounds):
                _interrupt_once(use, delays(index), seconds)
                yield index
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _interrupt_once(use: Callable[[], object], delay: float, seconds: float) -> None:
    end = time.monotonic() + seconds
    try:
        signal.setitimer(signal.ITIMER_REAL, delay)
        while time.monotonic() < end:
            use()
    except KeyboardInterrupt:
        return
    pytest.fail(f"an interrupt was lost: nothing was raised for {seconds:g} s")
