"""Threads that end together."""

from __future__ import annotations

import sys
import threading
import time
from typing import Any

import pytest
from weft_testing.waiting import wait_until

from weft_io.coordination.coordinator import Coordinator, LooperThread
from weft_tensor import errors


class Gate:
    """A thread that ends when it is asked to stop."""

    def __init__(self, work: Any = None) -> None:
        self.open = threading.Event()
        self.work = work or (lambda: None)
        self.thread = threading.Thread(target=self._run, daemon=True, name="gate")

    def _run(self) -> None:
        self.open.wait(30)
        self.work()


def started(*gates: Gate) -> list[threading.Thread]:
    for gate in gates:
        gate.thread.start()
    return [gate.thread for gate in gates]


def test_threads_stop_when_asked() -> None:
    coord = Coordinator()
    rounds: list[int] = []

    def work() -> None:
        while not coord.should_stop():
            rounds.append(1)
            if len(rounds) > 10:
                coord.request_stop()

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        coord.register_thread(thread)
        thread.start()
    coord.join()
    assert coord.joined and coord.should_stop() and coord.wait_for_stop(0)
    assert not any(thread.is_alive() for thread in threads)


def test_join_returns_when_all_have_ended_by_themselves() -> None:
    coord = Coordinator()
    gate = Gate()
    (thread,) = started(gate)
    gate.open.set()
    coord.join([thread])
    assert not coord.should_stop()


def test_the_first_exception_is_raised() -> None:
    coord = Coordinator()

    def fail(message: str) -> None:
        with coord.stop_on_exception():
            raise KeyError(message)

    first, second = Gate(lambda: fail("first")), Gate(lambda: fail("second"))
    threads = started(first, second)
    first.open.set()
    assert coord.wait_for_stop(30)
    second.open.set()
    with pytest.raises(KeyError, match="first") as caught:
        coord.join(threads)
    assert any(entry.name == "fail" for entry in caught.traceback)
    with pytest.raises(KeyError, match="first"):
        coord.raise_requested_exception()


def test_the_end_of_the_data_is_no_failure() -> None:
    coord = Coordinator()
    with coord.stop_on_exception():
        raise errors.OutOfRangeError("the end")
    coord.join()
    coord.raise_requested_exception()
    strict = Coordinator(clean_stop_exception_types=(KeyError,))
    strict.request_stop(KeyError("clean"))
    strict.join()
    strict = Coordinator(clean_stop_exception_types=())
    strict.request_stop(errors.OutOfRangeError("the end"))
    with pytest.raises(errors.OutOfRangeError):
        strict.join()


def test_an_exception_may_come_with_its_traceback() -> None:
    coord = Coordinator()
    try:
        raise ValueError("inside")
    except ValueError:
        coord.request_stop(sys.exc_info())  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="inside"):
        coord.join()
    nothing = Coordinator()
    nothing.request_stop(sys.exc_info())  # type: ignore[arg-type]
    nothing.join()


def test_what_comes_after_join_is_raised_at_once() -> None:
    coord = Coordinator()
    coord.join()
    with pytest.raises(ValueError, match="late"):
        coord.request_stop(ValueError("late"))
    coord.request_stop()
    coord.request_stop(errors.OutOfRangeError("clean"))


def test_a_stop_can_be_forgotten() -> None:
    coord = Coordinator()
    coord.request_stop(ValueError("old"))
    coord.clear_stop()
    assert not coord.should_stop() and not coord.joined
    coord.join()


def test_stragglers_are_named() -> None:
    coord = Coordinator()
    gate = Gate()
    (thread,) = started(gate)
    coord.request_stop()
    with pytest.raises(RuntimeError, match="threads still running: gate"):
        coord.join([thread], stop_grace_period_secs=0.02)
    coord.join([thread], stop_grace_period_secs=0.02, ignore_live_threads=True)
    gate.open.set()
    thread.join(30)


def test_the_grace_period_ends_when_the_threads_do() -> None:
    coord = Coordinator()
    gate = Gate()
    (thread,) = started(gate)
    coord.request_stop()
    threading.Timer(0.05, gate.open.set).start()
    before = time.monotonic()
    coord.join([thread], stop_grace_period_secs=60)
    assert time.monotonic() - before < 30


def test_looping() -> None:
    coord = Coordinator()
    calls: list[Any] = []

    def work(a: int, b: int) -> None:
        calls.append((a, b))
        if len(calls) == 3:
            coord.request_stop()

    LooperThread.loop(coord, None, work, (1,), {"b": 2})
    coord.join()
    assert calls == [(1, 2)] * 3


def test_looping_by_the_clock() -> None:
    coord = Coordinator()
    steps: list[str] = []

    class Loop(LooperThread):
        def start_loop(self) -> None:
            steps.append("start")

        def run_loop(self) -> None:
            steps.append("run")

        def stop_loop(self) -> None:
            steps.append("stop")

    thread = Loop(coord, 0.001)
    thread.start()
    wait_until(lambda: len(steps) > 3)
    coord.request_stop()
    coord.join()
    assert steps[0] == "start" and steps[-1] == "stop" and set(steps[1:-1]) == {"run"}
    assert thread.daemon


def test_a_loop_that_fails_stops_all() -> None:
    coord = Coordinator()

    def fail() -> None:
        raise ValueError("in the loop")

    LooperThread.loop(coord, 5, fail)
    with pytest.raises(ValueError, match="in the loop"):
        coord.join()


def test_wrong_arguments() -> None:
    with pytest.raises(ValueError, match="must be a Coordinator"):
        LooperThread(None, 1)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="need a 'target'"):
        LooperThread(Coordinator(), 1, None, (1,))


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: Coordinator(3), "clean_stop_exception_types must be a list, got 3"),  # type: ignore[arg-type]
        (lambda: Coordinator(ValueError), "clean_stop_exception_types must be a list, got <class"),  # type: ignore[arg-type]
        (lambda: Coordinator([3]), "must be exception types, got 3"),  # type: ignore[list-item]
        (lambda: Coordinator().join([None]), "thread must be a Thread, got None"),  # type: ignore[list-item]
        (lambda: Coordinator().join(3), "threads must be a list, got 3"),  # type: ignore[arg-type]
        (lambda: Coordinator().join([], "x"), "stop_grace_period_secs must be a number, got 'x'"),  # type: ignore[arg-type]
        (lambda: Coordinator().register_thread(3), "thread must be a Thread, got 3"),  # type: ignore[arg-type]
        (lambda: Coordinator().request_stop(3), "ex must be an exception, .*got 3"),  # type: ignore[arg-type]
        (lambda: Coordinator().request_stop((1,)), r"ex must be an exception, .*got \(1,\)"),  # type: ignore[arg-type]
        (lambda: Coordinator().request_stop((1, 2, 3)), "ex must be an exception"),  # type: ignore[arg-type]
        (lambda: Coordinator().wait_for_stop("x"), "timeout must be a number, got 'x'"),  # type: ignore[arg-type]
        (lambda: LooperThread(Coordinator(), "x"), "timer_interval_secs must be a number"),  # type: ignore[arg-type]
        (lambda: LooperThread(Coordinator(), 1, 3), "`target` must be callable, got 3"),  # type: ignore[arg-type]
    ],
)
def test_arguments_of_the_wrong_type(call: Any, text: str) -> None:
    with pytest.raises(errors.InvalidTypeError, match=text):
        call()
