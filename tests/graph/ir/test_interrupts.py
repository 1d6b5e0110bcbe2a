"""Ctrl-C that waits."""

from __future__ import annotations

import signal
import threading
from types import FrameType

import pytest

from weft_graph.ir.interrupts import uninterrupted


def test_it_comes_at_the_end_of_the_outermost_block() -> None:
    done = []
    with pytest.raises(KeyboardInterrupt):
        with uninterrupted():
            with uninterrupted():
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
        with uninterrupted():
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
        with uninterrupted():
            assert signal.getsignal(signal.SIGINT) is handler
    finally:
        signal.signal(signal.SIGINT, before)


def test_other_threads_have_no_handlers_to_hold_back() -> None:
    reached = []

    def run() -> None:
        with uninterrupted():
            reached.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert reached == [signal.default_int_handler]


def test_an_error_in_the_block_is_raised_and_ctrl_c_instead_of_it() -> None:
    with pytest.raises(ValueError, match="mine"), uninterrupted():
        raise ValueError("mine")
    with pytest.raises(KeyboardInterrupt), uninterrupted():
        signal.raise_signal(signal.SIGINT)
        raise ValueError("mine")
