"""Ctrl-C that waits."""

from __future__ import annotations

import signal
import threading
import time
from queue import Empty, SimpleQueue
from types import FrameType

import pytest

from weft_graph.ir.interrupts import defer_interrupts, take_item


def test_it_comes_at_the_end_of_the_outermost_block() -> None:
    done = []
    with pytest.raises(KeyboardInterrupt):
        with defer_interrupts():
            with defer_interrupts():
                signal.raise_signal(signal.SIGINT)
                done.append("inner")
            done.append("outer")
        done.append("after")
    assert done == ["inner", "outer"]
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)


def test_it_goes_to_the_programs_own_handler_once() -> None:
    told: list[int] = []

    def handler(number: int, frame: FrameType | None) -> None:
        told.append(number)

    before = signal.signal(signal.SIGINT, handler)
    try:
        with defer_interrupts():
            signal.raise_signal(signal.SIGINT)
            signal.raise_signal(signal.SIGINT)
            assert not told
        assert told == [signal.SIGINT]
        assert signal.getsignal(signal.SIGINT) is handler
    finally:
        signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize("handler", [signal.SIG_IGN, signal.SIG_DFL])
def test_where_no_handler_is_called_nothing_waits(handler: signal.Handlers) -> None:
    before = signal.signal(signal.SIGINT, handler)
    try:
        with defer_interrupts():
            assert signal.getsignal(signal.SIGINT) is handler
    finally:
        signal.signal(signal.SIGINT, before)


def test_other_threads_have_no_handlers_to_hold_back() -> None:
    reached = []

    def run() -> None:
        with defer_interrupts():
            reached.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert reached == [signal.default_int_handler]


def test_an_error_in_the_block_is_raised_and_ctrl_c_instead_of_it() -> None:
    with pytest.raises(ValueError, match="mine"), defer_interrupts():
        raise ValueError("mine")
    with pytest.raises(KeyboardInterrupt), defer_interrupts():
        signal.raise_signal(signal.SIGINT)
        raise ValueError("mine")


def test_long_waits_are_several() -> None:
    seen: list[float] = []

    class Slow(SimpleQueue[int]):
        def get(self, block: bool = True, timeout: float | None = None) -> int:
            assert timeout is not None
            seen.append(timeout)
            if len(seen) < 4:
                raise Empty
            return 7

    assert take_item(Slow()) == 7 and seen == [1.0] * 4
    assert take_item(Slow(), 100) == 7 and max(seen) <= 1


def test_an_item_is_waited_for_so_long() -> None:
    queue: SimpleQueue[int] = SimpleQueue()
    begun = time.monotonic()
    with pytest.raises(Empty):
        take_item(queue, 0.05)
    assert time.monotonic() - begun >= 0.04
    queue.put(3)
    assert take_item(queue) == 3
