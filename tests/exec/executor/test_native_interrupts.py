"""Interruption of long compiled functions: Ctrl-C, a timeout, and closing the session."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from weft_testing.compiled_calls import around_calls
from weft_testing.waiting import wait_until

import weft as wf
from weft import errors
from weft_compiler.generator import Compiled
from weft_exec.executor.native import interrupts
from weft_exec.executor.native.interrupts import StoppableFunction

ROWS = 300_000
ONCE = 8


@pytest.fixture
def running(monkeypatch: pytest.MonkeyPatch) -> list[Compiled]:
    """The long functions that run now."""
    found: list[Compiled] = []
    call = Compiled.__call__

    def note(self: Compiled, *arrays: Any) -> None:
        if self.is_long_running:
            found.append(self)
        try:
            call(self, *arrays)
        finally:
            if self.is_long_running:
                found.remove(self)

    monkeypatch.setattr(Compiled, "__call__", note)
    monkeypatch.setenv("WEFT_JIT", "now")
    return found


def _long_step(shape: list[int]) -> tuple[Any, dict[Any, Any]]:
    """Return a loop that runs for a second."""
    x = wf.placeholder(wf.float64, shape)
    y = x
    for _ in range(ONCE):
        y = wf.sin(y) + x
    return wf.reduce_sum(y), {x: np.linspace(0, 1, ROWS * 8).reshape(shape)}


def _in_thread(function: Callable[[], None]) -> threading.Thread:
    thread = threading.Thread(target=function)
    thread.start()
    return thread


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("shape", [[ROWS * 8], [ROWS, 8]])
def test_ctrl_c_ends_a_compiled_function(
    shape: list[int], threads: int, running: list[Compiled]
) -> None:
    sent: list[float] = []

    def interrupt() -> None:
        wait_until(lambda: running)
        sent.append(time.monotonic())
        os.kill(os.getpid(), signal.SIGINT)

    config = wf.ConfigProto(intra_op_parallelism_threads=threads)
    with wf.Graph().as_default(), wf.Session(config=config) as session:
        step, feeds = _long_step(shape)
        want = session.run(step, feeds)
        started = time.monotonic()
        session.run(step, feeds)
        whole = time.monotonic() - started
        thread = _in_thread(interrupt)
        with pytest.raises(KeyboardInterrupt):
            session.run(step, feeds)
        took = time.monotonic() - sent[0]
        thread.join()
        assert took < max(0.7 * whole, 0.05)
        assert session.run(step, feeds) == want  # and it can run again


def test_a_handler_that_raises_nothing_changes_nothing(running: list[Compiled]) -> None:
    seen: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, frame: seen.append(number))

    def interrupt() -> None:
        wait_until(lambda: running)
        os.kill(os.getpid(), signal.SIGINT)

    try:
        with wf.Graph().as_default(), wf.Session() as session:
            step, feeds = _long_step([ROWS * 8])
            want = session.run(step, feeds)
            thread = _in_thread(interrupt)
            assert session.run(step, feeds) == want
            thread.join()
    finally:
        signal.signal(signal.SIGINT, before)
    assert seen == [signal.SIGINT]


@pytest.mark.parametrize("threads", [1, 3])
def test_closing_a_session_ends_a_compiled_function(threads: int, running: list[Compiled]) -> None:
    ended: list[float] = []

    def work() -> None:
        with pytest.raises(errors.CancelledError):
            session.run(step, feeds)
        ended.append(time.monotonic())

    with wf.Graph().as_default():
        session = wf.Session(config=wf.ConfigProto(intra_op_parallelism_threads=threads))
        step, feeds = _long_step([ROWS * 8])
        session.run(step, feeds)
        started = time.monotonic()
        session.run(step, feeds)
        whole = time.monotonic() - started
        thread = _in_thread(work)
        wait_until(lambda: running)
        closed = time.monotonic()
        session.close()
        thread.join()
    assert ended[0] - closed < max(0.7 * whole, 0.05)


def test_updates_are_not_ended_half_way(running: list[Compiled]) -> None:
    with wf.Graph().as_default(), wf.Session() as session:
        v = wf.Variable(np.zeros(ROWS * 8))
        x = wf.placeholder(wf.float64, [ROWS * 8])
        step = v.assign_add(wf.sin(wf.cos(x))).op
        session.run(v.initializer)
        session.run(step, {x: np.ones(ROWS * 8)})
        assert not running and np.unique(session.run(v)).size == 1


def _driven(step: Any) -> list[Any]:
    """The step with a value out of a queue, which is waited for."""
    queue = wf.FIFOQueue(1, [wf.float32], shapes=[[]])
    with wf.control_dependencies([queue.enqueue(1.0)]):
        return [step, queue.dequeue()]


@pytest.mark.parametrize("kind", ["in a line", "driven", "loop"])
def test_a_timeout_ends_a_compiled_function(kind: str, running: list[Compiled]) -> None:
    with wf.Graph().as_default(), wf.Session() as session:
        step, feeds = _long_step([ROWS * 8])
        if kind == "loop":
            x = next(iter(feeds))
            y = wf.while_loop(
                lambda i, _: i < ONCE, lambda i, a: (i + 1, wf.sin(a) + x), [0, wf.identity(x)]
            )[1]
            step = wf.reduce_sum(y)
        fetches = _driven(step) if kind == "driven" else step
        want = session.run(fetches, feeds)
        started = time.monotonic()
        assert session.run(fetches, feeds, wf.RunOptions(timeout_in_ms=600_000)) == want
        whole = time.monotonic() - started
        started = time.monotonic()
        with pytest.raises(errors.DeadlineExceededError):
            session.run(fetches, feeds, wf.RunOptions(timeout_in_ms=1 + int(whole * 200)))
        took = time.monotonic() - started
        assert took < max(0.7 * whole, 0.05)
        assert session.run(fetches, feeds) == want  # and it can run again


def test_steps_with_a_deadline_are_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    called: list[Compiled] = []
    around_calls(monkeypatch, lambda function, call: called.append(function) or call())
    monkeypatch.setenv("WEFT_JIT", "now")
    x = wf.placeholder(wf.float32, [None])
    y = wf.exp(x) * 2.0 + 1.0
    with wf.Session(config=wf.ConfigProto(operation_timeout_in_ms=600_000)) as session:
        assert session.run(y, {x: [0.0]}) == [3.0]
    assert len(called) == 1


def test_others_of_a_function_go_on_when_one_is_ended(
    running: list[Compiled], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A long call would never end if each short deadline restarted it."""
    found: list[Any] = []
    began: list[int] = []
    call = Compiled.__call__

    def note(self: Compiled, *arrays: Any) -> None:
        began.append(threading.get_ident())
        call(self, *arrays)

    with wf.Graph().as_default(), wf.Session() as session:
        step, feeds = _long_step([ROWS * 8])
        want = session.run(step, feeds)
        monkeypatch.setattr(Compiled, "__call__", note)
        thread = _in_thread(lambda: found.append(session.run(step, feeds)))
        wait_until(lambda: running)
        for _ in range(3):
            with pytest.raises(errors.DeadlineExceededError):
                session.run(step, feeds, wf.RunOptions(timeout_in_ms=5))
        thread.join()
    assert found == [want]
    assert began.count(thread.ident or 0) == 1


def test_calls_that_were_ended_leave_their_memory_to_others(
    running: list[Compiled], monkeypatch: pytest.MonkeyPatch
) -> None:
    copies: list[Compiled] = []
    copy = Compiled.copy
    monkeypatch.setattr(Compiled, "copy", lambda self: copies.append(self) or copy(self))
    with wf.Graph().as_default(), wf.Session() as session:
        step, feeds = _long_step([ROWS * 8])
        want = session.run(step, feeds)
        for _ in range(3):
            with pytest.raises(errors.DeadlineExceededError):
                session.run(step, feeds, wf.RunOptions(timeout_in_ms=5))
        assert session.run(step, feeds) == want
    assert not copies


def _counting() -> tuple[Any, Any]:
    """A loop with a fed trip count, and the placeholder of the trip count."""
    turns = wf.placeholder(wf.int64, [])
    return turns, wf.while_loop(lambda i: i < turns, lambda i: i + 1, [wf.constant(0, wf.int64)])


def _watched(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Record the wakeup file descriptors that are set: two for each watched call."""
    found: list[int] = []
    set_wakeup_fd = signal.set_wakeup_fd
    monkeypatch.setattr(
        signal, "set_wakeup_fd", lambda *a, **k: found.append(a[0]) or set_wakeup_fd(*a, **k)
    )
    return found


def test_regions_that_are_brief_are_not_watched(
    running: list[Compiled], monkeypatch: pytest.MonkeyPatch
) -> None:
    watched = _watched(monkeypatch)
    step, feeds = _long_step([ROWS * 8])
    with wf.Session() as session:
        want = session.run(step, feeds)
        for brief, often in ((0.0, 2), (1e6, 2), (1e6, 0), (0.0, 0), (0.0, 2)):
            monkeypatch.setattr(interrupts, "_BRIEF", brief)
            watched.clear()
            assert session.run(step, feeds) == want
            assert len(watched) == often  # before the call, and after it


def test_regions_with_branches_are_watched(
    running: list[Compiled], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The one that was taken last may be brief, and the next one not."""
    x, p = wf.placeholder(wf.float64, [ROWS]), wf.placeholder(wf.bool, [])

    def dear() -> Any:
        y = x
        for _ in range(40):
            y = wf.sin(y) + x
        return wf.reduce_sum(y)

    total = wf.cond(p, dear, lambda: wf.constant(2.0, wf.float64) * 3.0) + 1.0
    feeds: dict[Any, Any] = {x: np.linspace(0, 1, ROWS)}
    monkeypatch.setattr(interrupts, "_BRIEF", 1e6)
    with wf.Session() as session:
        for taken in (False, False, True):
            watched = _watched(monkeypatch)
            session.run(total, {p: taken, **feeds})
            assert len(watched) == 2


def test_short_loops_are_not_watched(
    running: list[Compiled], monkeypatch: pytest.MonkeyPatch
) -> None:
    watched = _watched(monkeypatch)
    monkeypatch.setattr(interrupts, "_SHORT", 2e-3)  # which a busy machine leaves time for
    with wf.Graph().as_default(), wf.Session() as session:
        turns, last = _counting()
        assert session.run(last, {turns: 100}) == 100
        assert not watched
        assert session.run(last, {turns: 10_000_000}) == 10_000_000
        assert len(watched) == 2  # set, and put back
        assert session.run(last, {turns: 100}) == 100  # as the last one was long
        assert len(watched) == 4
        assert session.run(last, {turns: 100}) == 100
        assert len(watched) == 4
        for _ in range(20):
            assert session.run(last, {turns: 100_000}) == 100_000
        watched.clear()
        assert session.run(last, {turns: 100}) == 100
        assert len(watched) == 2  # which tries had better not be made of


def test_ctrl_c_ends_a_loop_whose_calls_were_short(running: list[Compiled]) -> None:
    def interrupt() -> None:
        wait_until(lambda: len(watched))
        os.kill(os.getpid(), signal.SIGINT)

    with wf.Graph().as_default(), wf.Session() as session:
        turns, last = _counting()
        assert session.run(last, {turns: 100}) == 100
        watched: list[int] = []
        with pytest.MonkeyPatch.context() as patch:
            begin = StoppableFunction._begin
            patch.setattr(
                StoppableFunction, "_begin", lambda self: watched.append(1) or begin(self)
            )
            thread = _in_thread(interrupt)
            with pytest.raises(KeyboardInterrupt):
                session.run(last, {turns: 1 << 62})
            thread.join()
        assert session.run(last, {turns: 100}) == 100
