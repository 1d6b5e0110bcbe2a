"""Barriers: elements whose components come one by one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from weft_testing.waiting import Recorder, empty, in_threads, wait_until

from weft_exec.resources.cancellation import Cancellation
from weft_exec.session.session import Session
from weft_graph import proto
from weft_graph.ir.builder import create
from weft_graph.ir.graph import Graph
from weft_graph.ops.array import placeholder
from weft_io.queues.barrier import Barrier
from weft_io.resources.barrier import Barrier as BarrierState
from weft_tensor import dtypes, errors

F32, STRING = dtypes.float32, dtypes.string
FIRST = -(2**63)
KEYS = [bytes([c]) for c in b"abcd"]


@pytest.fixture
def session() -> Any:
    with Graph().as_default() as graph, Session(graph=graph) as session:
        yield session


class BarrierMachine(RuleBasedStateMachine):
    """Inserts and takes in any order against dicts."""

    components = 2

    def __init__(self) -> None:
        super().__init__()
        count = self.components
        self.barrier = BarrierState("b", [dtypes.int64] * count, [()] * count)
        self.incomplete: dict[bytes, tuple[int, set[int]]] = {}
        self.ready: list[tuple[int, int, bytes]] = []
        self.batches = self.completed = 0
        self.closed = self.dropped = False
        self.waiting: list[tuple[Recorder, Cancellation, int, bool]] = []
        self.taken: list[bytes] = []

    @rule(
        component=st.integers(0, 1),
        keys=st.lists(st.sampled_from(KEYS), min_size=1, max_size=3),
    )
    def insert(self, component: int, keys: list[bytes]) -> None:
        component %= self.components
        values = np.array([10 * key[0] + component for key in keys])
        incomplete = {key: (index, set(has)) for key, (index, has) in self.incomplete.items()}
        ready: list[tuple[int, int, bytes]] = []
        begun = False
        for key in keys:
            if key not in incomplete and self.closed:
                wanted = errors.CancelledError
                break
            begun |= key not in incomplete
            index, has = incomplete.setdefault(key, (FIRST + self.batches, set()))
            if component in has:
                wanted = errors.InvalidArgumentError
                break
            has.add(component)
            if len(has) == self.components:
                ready.append((index, self.completed + len(ready), key))
                del incomplete[key]
        else:
            self.barrier.insert_many(component, keys, values)
            self.incomplete = incomplete
            self.ready += ready
            self.completed += len(ready)
            self.batches += begun
            self.settle()
            return
        with pytest.raises(wanted):
            self.barrier.insert_many(component, keys, values)

    @rule(key=st.sampled_from(KEYS))
    def complete(self, key: bytes) -> None:
        for component in range(self.components):
            if component not in self.incomplete.get(key, (0, ()))[1]:
                self.insert(component, [key])

    @rule(count=st.integers(0, 4), small=st.booleans())
    def take(self, count: int, small: bool) -> None:
        done, step = Recorder(), Cancellation()
        self.waiting.append((done, step, count, small))
        self.barrier.take_many(count, small, empty, done, step)
        self.settle()

    @precondition(lambda self: self.waiting)
    @rule(data=st.data())
    def give_up(self, data: st.DataObject) -> None:
        waiter = data.draw(st.sampled_from(self.waiting))
        self.waiting.remove(waiter)
        waiter[1].cancel()
        with pytest.raises(errors.CancelledError):
            assert waiter[0].value
        self.settle()

    @precondition(lambda self: self.batches > 3)
    @rule(cancel=st.booleans())
    def close(self, cancel: bool) -> None:
        if self.closed and (self.dropped or not cancel):
            with pytest.raises(errors.CancelledError, match="already closed"):
                self.barrier.close_barrier(cancel)
            return
        self.closed = True
        if cancel:
            self.dropped = True
            self.incomplete.clear()
        self.barrier.close_barrier(cancel)
        self.settle()

    def settle(self) -> None:
        while self.waiting:
            done, _, count, small = self.waiting[0]
            possible = len(self.ready) + (0 if small else len(self.incomplete))
            wanted = count
            if self.closed and len(self.ready) < count:
                if possible < (1 if small else count):
                    self.waiting.pop(0)
                    with pytest.raises(errors.OutOfRangeError, match=f"requested {count}, "):
                        assert done.value
                    continue
                wanted = min(count, possible)
            if len(self.ready) < wanted:
                return
            self.waiting.pop(0)
            self.ready.sort()
            gone, self.ready = self.ready[:wanted], self.ready[wanted:]
            indices, keys, *values = done.value
            assert indices.tolist() == [index for index, _, _ in gone]
            assert keys.tolist() == [key for _, _, key in gone]
            for component, batch in enumerate(values):
                assert batch.tolist() == [10 * key[0] + component for key in keys]

    @invariant()
    def agrees(self) -> None:
        assert self.barrier.ready_size() == len(self.ready)
        assert self.barrier.incomplete_size() == len(self.incomplete)
        assert self.barrier.pending() == len(self.waiting)
        assert all(done.waits for done, *_ in self.waiting)


class SingleMachine(BarrierMachine):
    """With one component: elements are complete at once, and a key may come again."""

    components = 1


TestBarrierMachine = BarrierMachine.TestCase
TestSingleMachine = SingleMachine.TestCase


def test_components_meet(session: Any) -> None:
    barrier = Barrier((F32, STRING), ((2,), ()), name="b")
    assert barrier.name == "b"
    session.run(barrier.insert_many(0, ["x", "y"], [[1.0, 2.0], [3.0, 4.0]]))
    sizes = [barrier.ready_size(), barrier.incomplete_size()]
    assert session.run(sizes) == [0, 2]
    session.run(barrier.insert_many(1, ["y", "z"], ["why", "zed"]))
    assert session.run(sizes) == [1, 2]
    session.run(barrier.insert_many(1, ["x"], ["ex"]))
    taken = barrier.take_many(2)
    assert [t.shape.as_list() for t in (*taken[:2], *taken.values)] == [[2], [2], [2, 2], [2]]
    got = session.run(taken)
    assert got.indices.tolist() == [FIRST, FIRST]
    assert got.keys.tolist() == [b"y", b"x"]
    assert got.values[0].tolist() == [[3, 4], [1, 2]] and got.values[1].tolist() == [b"why", b"ex"]


def test_taking_waits(session: Any) -> None:
    barrier = Barrier(F32, [[]])
    take, insert = barrier.take_many(2), barrier.insert_many(0, ["a", "b"], [1.0, 2.0])
    with in_threads(lambda: session.run(take)) as threads:
        wait_until(lambda: session.resources.resources(BarrierState, ""))
        (found,) = session.resources.resources(BarrierState, "")
        wait_until(lambda: found.pending() == 1)
        session.run(insert)
    assert threads[0].outcome.keys.tolist() == [b"a", b"b"]
    with pytest.raises(errors.DeadlineExceededError):
        session.run(take, options=proto.RunOptions(timeout_in_ms=20))
    with pytest.raises(errors.DeadlineExceededError):
        session.run(barrier.take_many(1, timeout=20))
    assert found.pending() == 0


def test_who_waits_for_a_small_batch_is_answered_by_the_end(session: Any) -> None:
    for ready, wanted in ((1, [[1.0], [3.0]]), (0, None)):
        barrier = BarrierState("b", [F32, F32], [])
        barrier.insert_many(0, KEYS[:2], np.array([1.0, 2.0], np.float32))
        barrier.insert_many(1, KEYS[:ready], np.array([3.0] * ready, np.float32))
        done = Recorder()
        barrier.take_many(2, True, empty, done)
        assert barrier.pending() == 1
        barrier.close_barrier(False)
        assert barrier.pending() == 0
        if wanted is None:
            with pytest.raises(errors.OutOfRangeError):
                assert done.value
        else:
            assert [batch.tolist() for batch in done.value[2:]] == wanted


def test_closing(session: Any) -> None:
    barrier = Barrier((F32, F32), name="b")
    session.run(barrier.insert_many(0, ["a", "b"], [1.0, 2.0]))
    session.run(barrier.insert_many(1, ["a"], [3.0]))
    session.run(barrier.close())
    with pytest.raises(errors.CancelledError, match="brand new key: b'c'"):
        session.run(barrier.insert_many(0, ["c"], [1.0]))
    with pytest.raises(errors.OutOfRangeError, match=r"requested 3, total size 2"):
        session.run(barrier.take_many(3))
    small = barrier.take_many(3, allow_small_batch=True)
    assert small.keys.shape.as_list() == [None]
    assert session.run(small).values[1].tolist() == [3]  # without waiting for the other
    with pytest.raises(errors.OutOfRangeError, match=r"requested 3, total size 0"):
        session.run(small)
    session.run(barrier.insert_many(1, ["b"], [4.0]))
    assert session.run(small).values[1].tolist() == [4]
    with pytest.raises(errors.CancelledError, match="already closed"):
        session.run(barrier.close())
    session.run(barrier.close(cancel_pending_enqueues=True))
    with pytest.raises(errors.CancelledError, match="already closed"):
        session.run(barrier.close(cancel_pending_enqueues=True))


def test_wrong_inserts(session: Any) -> None:
    barrier = Barrier((F32, STRING), ((2,), ()))
    with pytest.raises(errors.InvalidArgumentError, match="component index 2"):
        barrier.insert_many(2, ["a"], [1.0])
    with pytest.raises(errors.InvalidArgumentError, match="incompatible"):
        barrier.insert_many(0, ["a"], [[1.0, 2.0, 3.0]])
    with pytest.raises(errors.InvalidArgumentError, match="keys and of values"):
        barrier.insert_many(1, ["a"], ["x", "y"])
    fed = placeholder(F32)
    with pytest.raises(errors.InvalidArgumentError, match=r"Expected \[1,2\] for 1 keys"):
        session.run(barrier.insert_many(0, ["a"], fed), {fed: [[1.0]]})
    with pytest.raises(errors.InvalidArgumentError, match="already has a value"):
        session.run(barrier.insert_many(1, ["a", "a"], ["x", "y"]))
    assert session.run(barrier.incomplete_size()) == 0
    keys = placeholder(STRING)
    for fed_keys in (b"ab", [[b"a"]]):
        with pytest.raises(errors.InvalidArgumentError, match="keys must be a vector, got shape"):
            session.run(barrier.insert_many(1, keys, ["x", "y"]), {keys: fed_keys})
    assert session.run(barrier.incomplete_size()) == 0
    with pytest.raises(errors.InvalidArgumentError, match="negative, got -1"):
        barrier.take_many(-1)
    count = placeholder(dtypes.int32)
    for fed_count, message in ((-1, "negative"), ([1], r"must be a scalar, got shape \[1\]")):
        with pytest.raises(errors.InvalidArgumentError, match=message):
            session.run(barrier.take_many(count), {count: fed_count})
    wrong = create("BarrierInsertMany", [barrier.barrier_ref, ["k"], [1]], {"component_index": 0})
    with pytest.raises(errors.InvalidArgumentError, match="is float32, got int32"):
        session.run(wrong)
    with pytest.raises(errors.InvalidArgumentError, match="same length"):
        Barrier((F32, STRING), [()])


def test_a_key_may_come_again_once_it_is_complete(session: Any) -> None:
    barrier = Barrier(F32, [()])
    session.run(barrier.insert_many(0, ["a", "b", "a"], [1.0, 2.0, 3.0]))
    session.run(barrier.insert_many(0, ["a"], [4.0]))
    taken = session.run(barrier.take_many(4))
    assert taken.keys.tolist() == [b"a", b"b", b"a", b"a"]
    assert taken.values[0].tolist() == [1, 2, 3, 4]
    assert taken.indices.tolist() == [FIRST, FIRST, FIRST, FIRST + 1]


def test_elements_of_different_shapes_leave_one_by_one(session: Any) -> None:
    barrier = Barrier(F32)
    session.run(barrier.insert_many(0, ["a"], [[1.0]]))
    session.run(barrier.insert_many(0, ["b"], [[1.0, 2.0]]))
    with pytest.raises(errors.InvalidArgumentError, match="different shapes"):
        session.run(barrier.take_many(2))
    single = barrier.take_many(1)
    assert [session.run(single).values[0].shape for _ in range(2)] == [(1, 1), (1, 2)]


def test_fed_values_stay_the_callers(session: Any) -> None:
    barrier = Barrier(F32, [[2]])
    fed = placeholder(F32, [1, 2])
    value = np.ones((1, 2), np.float32)
    session.run(barrier.insert_many(0, ["a"], fed), {fed: value})
    value[:] = 5
    assert session.run(barrier.take_many(1)).values[0].tolist() == [[1, 1]]
