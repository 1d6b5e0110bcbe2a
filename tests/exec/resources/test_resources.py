from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from weft_testing.interrupts import interrupt_in_rounds

from weft_exec.resources import cancellation as cancellation_module
from weft_exec.resources.cancellation import Cancellation, call_at
from weft_exec.resources.resources import (
    NOT_READY,
    Resource,
    ResourceManager,
    VariableState,
    Waiters,
)
from weft_tensor import dtypes, errors


def variable(value: Any, name: str = "v") -> VariableState:
    array = np.asarray(value)
    state = VariableState(name, dtypes.from_numpy(array.dtype), array.shape)
    state.assign(array)
    return state


def add(array: np.ndarray[Any, Any], value: Any) -> None:
    array += value


# --------------------------------------------------------------------------- values


def test_a_snapshot_does_not_change() -> None:
    state = variable(np.zeros(8))
    snapshot = state.read()
    state.update(add, 1.0)
    state.assign(np.full(8, 5.0))
    np.testing.assert_array_equal(snapshot, np.zeros(8))
    np.testing.assert_array_equal(state.read(), np.full(8, 5.0))


def test_a_view_keeps_the_snapshot() -> None:
    state = variable(np.zeros((4, 4)))
    view = state.read().reshape(-1)[2:5]
    state.update(add, 1.0)
    np.testing.assert_array_equal(view, np.zeros(3))


def test_the_sole_owner_is_changed_in_place() -> None:
    state = variable(np.zeros(8))
    address = state.read().ctypes.data
    state.update(add, 1.0)
    state.assign(np.full(8, 3.0))
    VariableState.update_all((state, variable(np.ones(8))), lambda a, b: np.add(a, b, out=a))
    assert state.read().ctypes.data == address
    np.testing.assert_array_equal(state.read(), np.full(8, 4.0))


def test_a_held_value_is_replaced_by_a_copy() -> None:
    state = variable(np.zeros(8))
    held = state.read()
    state.update(add, 1.0)
    assert state.read() is not held
    held = state.read()
    VariableState.update_all((state,), add, 1.0)
    np.testing.assert_array_equal(held, np.ones(8))
    np.testing.assert_array_equal(state.read(), np.full(8, 2.0))


def test_assign_copies_what_it_is_given() -> None:
    value = np.ones(8)
    state = variable(value)
    value[:] = 7
    np.testing.assert_array_equal(state.read(), np.ones(8))


def test_assigning_its_own_value_changes_nothing() -> None:
    state = variable(np.arange(8.0))
    state.assign(state.read()[::-1])
    np.testing.assert_array_equal(state.read(), np.arange(8.0)[::-1])


def test_rank_0_is_a_numpy_scalar() -> None:
    state = variable(np.float32(2))
    assert type(state.read()) is np.float32
    state.update(add, np.float32(1))
    VariableState.update_all((state,), add, np.float32(1))
    state.replace(lambda value: value * np.float32(2))
    assert type(state.read()) is np.float32 and state.read() == 8


def test_rank_0_strings_stay_arrays() -> None:
    state = VariableState("s", dtypes.string, ())
    value = np.empty((), object)
    value[()] = b"text"
    state.assign(value)
    assert isinstance(state.read(), np.ndarray) and state.read()[()] == b"text"


def test_an_unset_variable_says_its_name() -> None:
    state = VariableState("layer/w", dtypes.float32, (2,))
    for use in (
        state.read,
        lambda: state.update(add, 1),
        lambda: VariableState.update_all((state,), add),
    ):
        with pytest.raises(errors.FailedPreconditionError, match="uninitialized value layer/w"):
            use()
    assert not state.is_initialized


@pytest.mark.parametrize("held", (False, True))
def test_a_failing_update_leaves_the_value(held: bool) -> None:
    def fail(*arrays: Any) -> None:
        raise errors.InvalidArgumentError("no")

    state, other = variable(np.ones(4)), variable(np.zeros(4))
    snapshot = state.read() if held else None
    for use in (lambda: state.update(fail), lambda: VariableState.update_all((state, other), fail)):
        with pytest.raises(errors.InvalidArgumentError):
            use()
    np.testing.assert_array_equal(state.read(), np.ones(4))
    assert snapshot is None or snapshot is state.read()


def test_shape_and_type_are_checked() -> None:
    state = variable(np.ones(4))
    with pytest.raises(errors.InvalidArgumentError, match=r"has shape \[4\], got .* \[5\]"):
        state.assign(np.ones(5))
    with pytest.raises(errors.InvalidArgumentError, match="holds float64, got a value of float32"):
        state.assign(np.ones(4, np.float32))
    state.assign(np.ones(5), validate_shape=False)
    assert state.read().shape == (5,)


def test_one_variable_twice_in_an_update_is_refused() -> None:
    state = variable(np.ones(4))
    with pytest.raises(errors.InvalidArgumentError, match="requires different variables"):
        VariableState.update_all((state, state), add)


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="requires timers that send signals")
@pytest.mark.parametrize("way", ("update", "exchange"))
def test_ctrl_c_leaves_no_variable_locked_or_without_value(way: str) -> None:
    states = tuple([variable(np.ones(2)) for _ in range(20)])

    def exchanged() -> None:
        VariableState.exchange([(state, state.read(), np.ones(2)) for state in states])

    def updated() -> None:
        VariableState.update_all(states, lambda *arrays: None)

    use = {"update": updated, "exchange": exchanged}[way]
    for _ in interrupt_in_rounds(use, lambda index: 1e-6 * (1 + index % 50), 2_000):
        assert not any(state._lock.locked() for state in states)
        assert all(type(state._value) is np.ndarray for state in states)


def run_threads(*works: Callable[[], None]) -> list[BaseException]:
    failures: list[BaseException] = []

    def guarded(work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:  # because a thread must hand its failure to the test
            failures.append(error)

    threads = [threading.Thread(target=guarded, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return failures


def test_readers_never_see_a_torn_value() -> None:
    state = variable(np.zeros(100_000))
    stop = time.monotonic() + 0.6

    def write() -> None:
        while time.monotonic() < stop:
            state.update(add, 1.0)

    def assign() -> None:
        while time.monotonic() < stop:
            state.assign(np.full(100_000, 0.5))

    def read() -> None:
        while time.monotonic() < stop:
            value = state.read()
            first = float(value[0])
            assert value[-1] == first and (value == first).all()

    assert not run_threads(write, assign, read, read)


def test_no_update_is_lost() -> None:
    state, scalar = variable(np.zeros(16)), variable(np.int64(0))

    def work() -> None:
        for _ in range(500):
            state.update(add, 1.0)
            scalar.update(add, 1)
            VariableState.update_all((scalar, state), lambda a, b: (add(a, 1), add(b, 1.0)))
            VariableState.update_all((state, scalar), lambda a, b: (add(a, 1.0), add(b, 1)))

    assert not run_threads(work, work, work)
    assert scalar.read() == 4500
    np.testing.assert_array_equal(state.read(), np.full(16, 4500.0))


# --------------------------------------------------------------------------- containers


def test_resources_are_found_by_container_and_name() -> None:
    manager = ResourceManager()
    made = manager.lookup_or_create("", "a", Resource, lambda: Resource("a"))
    assert manager.lookup(manager.default_container, "a", Resource) is made
    assert manager.lookup_or_create("", "a", Resource, lambda: Resource("a")) is made
    other = manager.lookup_or_create("box", "a", Resource, lambda: Resource("a"))
    assert other is not made and other.container == "box"
    assert manager.resources(Resource) == [made, other]
    assert manager.resources(Resource, "box") == [other]


def test_missing_and_mistaken_resources() -> None:
    manager = ResourceManager()
    manager.lookup_or_create("", "a", Resource, lambda: Resource("a"))
    with pytest.raises(errors.NotFoundError, match="no variable named 'b'"):
        manager.lookup("", "b", VariableState)
    with pytest.raises(errors.InvalidArgumentError, match="is a resource, but a variable"):
        manager.lookup("", "a", VariableState)


def test_deleted_resources_are_closed_and_made_anew() -> None:
    manager = ResourceManager()
    first = manager.lookup_or_create("", "a", Resource, lambda: Resource("a"))
    epoch = manager.epoch
    manager.delete("", "a")
    assert first.closed and manager.epoch > epoch
    with pytest.raises(errors.NotFoundError):
        manager.delete("", "a")
    second = manager.lookup_or_create("", "a", Resource, lambda: Resource("a"))
    kept = manager.lookup_or_create("box", "a", Resource, lambda: Resource("a"))
    manager.clear([""])
    assert second.closed and not kept.closed
    manager.clear()
    assert kept.closed and not manager.resources(Resource)


def test_two_threads_make_one_resource() -> None:
    manager = ResourceManager()
    barrier = threading.Barrier(4)
    found: list[Resource] = []

    def work() -> None:
        barrier.wait()
        found.append(manager.lookup_or_create("", "a", Resource, lambda: Resource("a")))

    assert not run_threads(work, work, work, work)
    assert len(set(map(id, found))) == 1


# --------------------------------------------------------------------------- waiting


class Outcome:
    """A Done that remembers, and allows one call."""

    def __init__(self) -> None:
        self.results: list[Any] = []

    def __call__(self, value: Any = None) -> None:
        self.results.append(value)

    def fail(self, error: BaseException) -> None:
        self.results.append(error)

    @property
    def result(self) -> Any:
        (result,) = self.results
        return result


class Tokens:
    """A line for a number of tokens."""

    def __init__(self, count: int = 0) -> None:
        self.count = count
        self.waiters = Waiters()

    def take(self) -> Any:
        if not self.count:
            return NOT_READY
        self.count -= 1
        return "token"

    def give(self, count: int = 1) -> None:
        with self.waiters.lock:
            self.count += count
        self.waiters.wake()

    def wait(self, **options: Any) -> Outcome:
        outcome = Outcome()
        self.waiters.wait(self.take, outcome, **options)
        return outcome


def test_what_is_ready_completes_at_once() -> None:
    assert Tokens(1).wait().result == "token"


def test_waiters_are_served_in_order() -> None:
    tokens = Tokens()
    outcomes = [tokens.wait() for _ in range(4)]
    tokens.give(2)
    assert [len(outcome.results) for outcome in outcomes] == [1, 1, 0, 0]
    assert len(tokens.waiters) == 2
    tokens.give(5)
    assert [outcome.result for outcome in outcomes] == ["token"] * 4


def test_nobody_passes_the_head_of_the_line() -> None:
    tokens = Tokens()
    big = Outcome()
    tokens.waiters.wait(lambda: NOT_READY if tokens.count < 3 else "big", big)
    small = tokens.wait()
    tokens.give(2)
    assert not big.results and not small.results
    tokens.give(1)
    assert big.result == "big" and small.result == "token"


def test_a_cancelled_waiter_fails_once_and_lets_others_by() -> None:
    tokens, cancellation = Tokens(), Cancellation()
    first = Outcome()
    tokens.waiters.wait(lambda: NOT_READY, first, cancellation)
    second = tokens.wait()
    tokens.give()
    assert not second.results
    assert cancellation.cancel(errors.CancelledError("stop"))
    assert not cancellation.cancel()
    assert isinstance(first.result, errors.CancelledError) and str(first.result) == "stop"
    assert second.result == "token"


def test_a_step_cancelled_before_does_not_wait() -> None:
    cancellation = Cancellation()
    cancellation.cancel()
    assert isinstance(Tokens().wait(cancellation=cancellation).result, errors.CancelledError)


def test_a_served_waiter_is_not_cancelled() -> None:
    tokens, cancellation = Tokens(), Cancellation()
    outcome = tokens.wait(cancellation=cancellation)
    tokens.give()
    cancellation.cancel()
    assert outcome.result == "token"
    assert not cancellation._callbacks


def test_a_deadline_passes() -> None:
    tokens = Tokens()
    late = tokens.wait(deadline=time.monotonic() + 0.05)
    early = tokens.wait(deadline=time.monotonic() + 30)
    for _ in range(200):
        if late.results:
            break
        time.sleep(0.01)
    assert isinstance(late.result, errors.DeadlineExceededError)
    tokens.give()
    assert early.result == "token"


def test_deadlines_of_those_served_do_not_pile_up() -> None:
    tokens = Tokens()
    before = len(cancellation_module._timers._heap)
    cancellation = Cancellation()
    for _ in range(1000):
        outcome = tokens.wait(cancellation=cancellation, deadline=time.monotonic() + 3600)
        tokens.give()
        assert outcome.result == "token"
    assert len(cancellation_module._timers._heap) <= 2 * before + 1
    assert not cancellation._callbacks


def test_a_deadline_that_passed_leaves_nothing_with_the_step() -> None:
    cancellation, outcome = Cancellation(), Outcome()
    Waiters().wait(lambda: NOT_READY, outcome, cancellation, time.monotonic())
    for _ in range(200):
        if outcome.results:
            break
        time.sleep(0.01)
    assert isinstance(outcome.result, errors.DeadlineExceededError)
    assert not cancellation._callbacks


def test_an_attempt_may_fail() -> None:
    tokens = Tokens()
    outcome = Outcome()

    def attempt() -> Any:
        raise errors.OutOfRangeError("end")

    tokens.waiters.wait(attempt, outcome)
    assert isinstance(outcome.result, errors.OutOfRangeError)


def test_closing_fails_everyone() -> None:
    tokens = Tokens()
    before = tokens.wait()
    tokens.waiters.close(errors.AbortedError("closed"))
    after = tokens.wait()
    assert isinstance(before.result, errors.AbortedError)
    assert isinstance(after.result, errors.AbortedError)


def test_lines_that_feed_one_another() -> None:
    items: list[int] = []
    puts = Waiters()
    takes = Waiters(puts.lock)

    def put(value: int) -> Any:
        if items:
            return NOT_READY
        items.append(value)
        return None

    outcomes = [Outcome() for _ in range(3)]
    for value in range(3):
        puts.wait(lambda value=value: put(value), Outcome())
    for outcome in outcomes:
        takes.wait(lambda: items.pop(0) if items else NOT_READY, outcome)
        Waiters.wake_all(puts, takes)
    assert [outcome.result for outcome in outcomes] == [0, 1, 2]


def test_many_threads_share_a_line() -> None:
    tokens = Tokens()
    outcomes: list[Outcome] = []
    cancellations: list[Cancellation] = []

    def join() -> None:
        for _ in range(300):
            cancellation = Cancellation()
            cancellations.append(cancellation)
            outcomes.append(tokens.wait(cancellation=cancellation))

    def give() -> None:
        for _ in range(300):
            tokens.give()

    def cancel() -> None:
        for _ in range(2000):
            if cancellations:
                cancellations.pop().cancel()

    assert not run_threads(join, join, give, cancel)
    tokens.give(600)
    assert all(len(outcome.results) == 1 for outcome in outcomes) and len(outcomes) == 600


def test_a_deadline_in_the_far_future_does_not_stop_earlier_ones() -> None:
    far = call_at(time.monotonic() + 2**64, lambda: None)
    for _ in range(5):  # between two of them the thread waits for the far one
        came = threading.Event()
        call_at(time.monotonic() + 0.05, came.set)
        assert came.wait(30)
    far.cancel()
