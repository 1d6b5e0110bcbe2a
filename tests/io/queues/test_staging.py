"""Staging areas: in order, by key, with limits."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from weft_testing.waiting import Recorder, in_threads, rounds, wait_until

from weft_exec.resources.cancellation import Cancellation
from weft_exec.session.session import Session
from weft_graph import proto
from weft_graph.ir.builder import create
from weft_graph.ir.graph import Graph
from weft_graph.ops.array import placeholder
from weft_io.queues.staging import MapStagingArea, StagingArea
from weft_io.resources import staging as state
from weft_tensor import dtypes, errors

F32, I32, STRING = dtypes.float32, dtypes.int32, dtypes.string


@pytest.fixture
def session() -> Any:
    with Graph().as_default() as graph, Session(graph=graph) as session:
        yield session


# --------------------------------------------------------------------------- the machines


class StagingMachine(RuleBasedStateMachine):
    """An area of two tuples and 40 bytes against a list."""

    def __init__(self) -> None:
        super().__init__()
        self.area = state.StagingArea("a", 2, 40)
        self.inside: list[tuple[int, int]] = []
        self.puts: list[tuple[Recorder, Cancellation, int, int]] = []
        self.gets: list[tuple[Recorder, Cancellation]] = []
        self.peeks: list[tuple[Recorder, Cancellation, int]] = []
        self.number = 0

    @rule(size=st.integers(1, 5))
    def put(self, size: int) -> None:
        self.number += 1
        done, step = Recorder(), Cancellation()
        self.puts.append((done, step, self.number, size))
        self.area.put((np.full(size, self.number),), done, step)

    @rule()
    def get(self) -> None:
        done, step = Recorder(), Cancellation()
        self.gets.append((done, step))
        self.area.get(done, step)

    @rule(index=st.integers(0, 1))
    def peek(self, index: int) -> None:
        done, step = Recorder(), Cancellation()
        self.peeks.append((done, step, index))
        self.area.peek(index, done, step)

    @rule()
    def clear(self) -> None:
        self.inside.clear()
        self.area.clear()

    @precondition(lambda self: self.puts or self.gets or self.peeks)
    @rule(data=st.data())
    def give_up(self, data: st.DataObject) -> None:
        waiter = data.draw(st.sampled_from([*self.puts, *self.gets, *self.peeks]))
        for line in (self.puts, self.gets, self.peeks):
            if waiter in line:
                line.remove(waiter)
        waiter[1].cancel()
        with pytest.raises(errors.CancelledError):
            assert waiter[0].value

    def settle(self) -> None:
        for _ in rounds():
            if self.gets and self.inside:
                done, _ = self.gets.pop(0)
                assert done.value[0][0] == self.inside.pop(0)[0]
            elif self.puts and self.fits(self.puts[0][3]):
                done, _, number, size = self.puts.pop(0)
                assert done.value is None
                self.inside.append((number, size))
            else:
                return

    def fits(self, size: int) -> bool:
        return len(self.inside) < 2 and sum(s for _, s in self.inside) + size <= 5

    @invariant()
    def agrees(self) -> None:
        seen = {number for number, _ in self.inside} | {p[2] for p in self.puts}
        self.settle()
        for peek in [p for p in self.peeks if not p[0].waits]:
            self.peeks.remove(peek)
            assert peek[0].value[0][0] in seen | {number for number, _ in self.inside}
        assert all(index >= len(self.inside) for _, _, index in self.peeks)
        assert self.area.size() == len(self.inside)
        assert self.area.pending() == (len(self.puts), len(self.gets) + len(self.peeks))
        assert all(w[0].waits for w in (*self.puts, *self.gets))


TestStagingMachine = StagingMachine.TestCase


class MapMachine(RuleBasedStateMachine):
    """Two components by key, at most two complete keys, against dicts."""

    def __init__(self) -> None:
        super().__init__()
        self.area = state.MapStagingArea("a", ordered=True, capacity=2)
        self.complete: dict[int, set[int]] = {}
        self.incomplete: dict[int, set[int]] = {}
        self.puts: list[tuple[Recorder, Cancellation, int, list[int]]] = []
        self.gets: list[tuple[Recorder, Cancellation, int, list[int]]] = []
        self.pops: list[tuple[Recorder, Cancellation]] = []

    @rule(key=st.integers(0, 3), indices=st.sampled_from([[0], [1], [0, 1], [1, 0]]))
    def put(self, key: int, indices: list[int]) -> None:
        done, step = Recorder(), Cancellation()
        values = tuple([np.int64(10 * key + i) for i in indices])
        self.puts.append((done, step, key, indices))
        self.area.put(key, indices, values, 2, done, step)

    @rule(key=st.integers(0, 3), indices=st.sampled_from([[0], [1], [0, 1]]))
    def get(self, key: int, indices: list[int]) -> None:
        done, step = Recorder(), Cancellation()
        self.gets.append((done, step, key, indices))
        self.area.get(key, indices, done, step)

    @rule()
    def pop(self) -> None:
        done, step = Recorder(), Cancellation()
        self.pops.append((done, step))
        self.area.pop([0, 1], done, step)

    @rule()
    def clear(self) -> None:
        self.complete.clear()
        self.incomplete.clear()
        self.area.clear()

    @precondition(lambda self: self.puts or self.gets or self.pops)
    @rule(data=st.data())
    def give_up(self, data: st.DataObject) -> None:
        waiter = data.draw(st.sampled_from([*self.puts, *self.gets, *self.pops]))
        for line in (self.puts, self.gets, self.pops):
            if waiter in line:
                line.remove(waiter)
        waiter[1].cancel()
        with pytest.raises(errors.CancelledError):
            assert waiter[0].value

    def settle(self) -> None:
        while self._put() or self._pop() or self._get():
            pass

    def _put(self) -> bool:
        if not self.puts:
            return False
        done, _, key, indices = self.puts[0]
        parts = self.incomplete.get(key, set())
        if key in self.complete or not parts.isdisjoint(indices):
            with pytest.raises(errors.InvalidArgumentError):
                assert done.value
        elif len(parts) + len(indices) < 2:
            assert done.value is None
            self.incomplete.setdefault(key, set()).update(indices)
        elif len(self.complete) < 2:
            assert done.value is None
            self.incomplete.pop(key, None)
            self.complete[key] = {0, 1}
        else:
            return False
        self.puts.pop(0)
        return True

    def _pop(self) -> bool:
        if not self.pops or not self.complete:
            return False
        done, _ = self.pops.pop(0)
        key = min(self.complete)
        self._leave(done, key, [0, 1], first=True)
        return True

    def _get(self) -> bool:
        ready = [get for get in self.gets if get[2] in self.complete]
        if not ready:
            return False
        self.gets.remove(ready[0])
        done, _, key, indices = ready[0]
        self._leave(done, key, indices, first=False)
        return True

    def _leave(self, done: Recorder, key: int, indices: list[int], first: bool) -> None:
        if not self.complete[key] >= set(indices):
            with pytest.raises(errors.InvalidArgumentError, match="taken already"):
                assert done.value
            return
        got = done.value
        if first:
            assert got[0] == key
            got = got[1:]
        assert [int(value) for value in got] == [10 * key + i for i in indices]
        self.complete[key] -= set(indices)
        if not self.complete[key]:
            del self.complete[key]

    @invariant()
    def agrees(self) -> None:
        self.settle()
        assert (self.area.size(), self.area.incomplete_size()) == (
            len(self.complete),
            len(self.incomplete),
        )
        assert self.area.pending() == (len(self.puts), len(self.pops) + len(self.gets))
        assert all(w[0].waits for w in (*self.puts, *self.pops, *self.gets))


TestMapMachine = MapMachine.TestCase


def test_lines_for_single_keys_are_forgotten() -> None:
    area = state.MapStagingArea("a", ordered=False)
    step = Cancellation()
    waiters = [Recorder() for _ in range(100)]
    for key, done in enumerate(waiters):
        area.get(key, [0], done, step)
    assert area.pending() == (0, 100)
    area.put(7, [0], (np.int64(1),), 1, Recorder())
    assert waiters[7].value == (1,) and waiters[6].waits
    step.cancel()
    assert area.pending() == (0, 0) and not area._lines


def test_who_gives_up_lets_others_go_on() -> None:
    area = state.StagingArea("a", memory_limit=40)
    step, large, small, peek = Cancellation(), Recorder(), Recorder(), Recorder()
    area.put((np.zeros(3),), Recorder())
    area.put((np.zeros(4),), large, step)
    area.put((np.ones(1),), small)
    area.peek(1, peek)
    assert large.waits and small.waits and peek.waits
    step.cancel()
    assert small.value is None and peek.value[0].tolist() == [1]


def test_deleting_ends_all_who_wait() -> None:
    area = state.MapStagingArea("a", ordered=False, capacity=1)
    waiters = [Recorder() for _ in range(4)]
    area.put(1, [0], (np.int64(1),), 1, Recorder())
    area.put(2, [0], (np.int64(1),), 1, waiters[0])
    area.get(5, [0], waiters[1])
    area.close()
    area.get(6, [0], waiters[2])
    area.pop([0], waiters[3])
    for done in waiters:
        with pytest.raises(errors.CancelledError, match="deleted"):
            assert done.value


# --------------------------------------------------------------------------- in sessions


def test_tuples_leave_in_order(session: Any) -> None:
    area = StagingArea([F32, STRING], [[2], []])
    assert (area.name, area.names, area.capacity, area.memory_limit) == ("StagingArea", None, 0, 0)
    session.run(area.put([[1.0, 2.0], "a"]))
    session.run(area.put([[3.0, 4.0], "b"]))
    first, text = area.get()
    assert first.shape.as_list() == [2] and text.dtype == STRING
    peeked = session.run(area.peek(1))
    assert peeked[0].tolist() == [3, 4] and peeked[1] == b"b"
    assert session.run(area.size()) == 2
    assert session.run([first, text])[1] == b"a"
    session.run(area.clear())
    assert session.run(area.size()) == 0


def test_names_make_dicts(session: Any) -> None:
    area = StagingArea([F32, I32], names=["x", "y"])
    session.run(area.put({"y": 2, "x": 1.0}))
    assert session.run(area.get()) == {"x": 1.0, "y": 2}
    with pytest.raises(errors.InvalidArgumentError, match="must enqueue a dictionary"):
        area.put([1.0, 2])
    with pytest.raises(errors.InvalidArgumentError, match="do not match names"):
        area.put({"z": 1.0})
    with pytest.raises(errors.InvalidArgumentError, match="has 2 components"):
        area.put({"x": 1.0})


def test_areas_wait_for_room_and_for_tuples(session: Any) -> None:
    area = StagingArea([I32], [[]], capacity=2)
    fed = placeholder(I32, [])
    put, (got,) = area.put(fed), area.get()
    taken: list[int] = []

    def consume() -> None:
        for _ in range(20):
            taken.append(int(session.run(got)))

    with in_threads(consume):
        for i in range(20):
            session.run(put, {fed: i})
    assert taken == list(range(20))
    short = proto.RunOptions(timeout_in_ms=20)
    with pytest.raises(errors.DeadlineExceededError):
        session.run(got, options=short)
    session.run(put, {fed: 1})
    session.run(put, {fed: 2})
    with pytest.raises(errors.DeadlineExceededError):
        session.run(put, {fed: 3}, options=short)
    assert session.run(area.size()) == 2


def test_memory_is_limited(session: Any) -> None:
    area = StagingArea([F32], memory_limit=20)
    session.run(area.put([[1.0, 2.0, 3.0]]))
    with pytest.raises(errors.ResourceExhaustedError, match=r"'24' bytes .* limit of '20'"):
        session.run(area.put([[1.0] * 6]))
    with pytest.raises(errors.DeadlineExceededError):
        session.run(area.put([[1.0] * 3]), options=proto.RunOptions(timeout_in_ms=20))
    session.run(area.put([[1.0] * 2]))
    assert session.run(area.size()) == 2


def test_strings_count_with_what_they_hold() -> None:
    text = np.array([b"x" * 1000], object)
    assert 1000 <= state.bytes_of([text]) < 1100
    assert state.bytes_of([np.float32(1), np.zeros(3)]) == 28


@pytest.mark.parametrize("ordered", [False, True])
def test_components_come_and_go_by_key(session: Any, ordered: bool) -> None:
    area = MapStagingArea([F32, I32, STRING], [[], [], []], ordered=ordered)
    sizes = [area.size(), area.incomplete_size()]
    session.run(area.put(5, [1.0, 2, "a"]))
    session.run(area.put(3, [4.0], [0]))
    assert session.run(sizes) == [1, 1]
    with pytest.raises(errors.InvalidArgumentError, match="index '0' for key '3' was already"):
        session.run(area.put(3, [4.0], [0]))
    session.run(area.put(3, ["b", 7], [2, 1]))
    assert session.run(sizes) == [2, 0]
    with pytest.raises(errors.InvalidArgumentError, match="key 3 is in the staging area already"):
        session.run(area.put(3, [1.0], [0]))
    assert session.run(area.peek(3, [2])) == [b"b"]
    assert session.run(area.get(3, [2])) == (3, [b"b"])
    assert session.run(sizes) == [2, 0]
    with pytest.raises(errors.InvalidArgumentError, match="taken already"):
        session.run(area.get(3))
    key, (number, whole) = area.get(3, [1, 0])
    assert session.run([key, number, whole]) == [3, 7, 4.0]
    session.run(area.put(2, [1.0, 2, "zz"]))
    key, _ = area.get()
    assert session.run(key) == (2 if ordered else 5)
    session.run(area.clear())
    assert session.run(sizes) == [0, 0]


def test_keys_wait_for_themselves(session: Any) -> None:
    area = MapStagingArea([F32], [[]])
    fed = placeholder(dtypes.int64, [])
    put = area.put(fed, [1.0])
    seven, eight = area.get(7)[1][0], area.get(8)[1][0]
    with in_threads(lambda: session.run(seven)) as first:
        wait_until(lambda: session.resources.resources(state.MapStagingArea, ""))
        (found,) = session.resources.resources(state.MapStagingArea, "")
        wait_until(lambda: found.pending() == (0, 1))
        session.run(put, {fed: 8})
        assert session.run(eight) == 1
        session.run(put, {fed: 7})
    assert first[0].outcome == 1


def test_wrong_arguments(session: Any) -> None:
    area = MapStagingArea([F32, I32], names=None)
    with pytest.raises(errors.InvalidArgumentError, match=r"indices must be in \[0, 2\)"):
        area.get(1, [2])
    with pytest.raises(errors.InvalidArgumentError, match="value per index"):
        area.put(1, [1.0], [0, 1])
    with pytest.raises(errors.InvalidTypeError):
        area.put(1, [1.0], [1])
    attrs = {"dtypes": [F32, I32], "shared_name": area.name}
    with pytest.raises(errors.InvalidArgumentError, match="each once"):
        session.run(create("MapStage", [1, [0, 0], [[1.0], [1.0]]], attrs))
    with pytest.raises(errors.InvalidArgumentError, match="component 1 is int32, got float32"):
        session.run(create("MapStage", [1, [1], [[1.0]]], attrs))
    with pytest.raises(errors.InvalidArgumentError, match="index per output"):
        session.run(create("MapUnstage", [1, [0]], attrs))
    number, key = placeholder(I32), placeholder(dtypes.int64)
    for op, inputs, fed, match in (
        ("MapStage", [1, number, [[1.0]]], 0, "indices must be a vector"),
        ("MapUnstage", [1, number], [[0]], "indices must be a vector"),
        ("MapUnstageNoKey", [number], 0, "indices must be a vector"),
    ):
        with pytest.raises(errors.InvalidArgumentError, match=match):
            session.run(create(op, inputs, attrs), {number: fed})
    with pytest.raises(errors.InvalidArgumentError, match=r"key must be a scalar, got shape \[1\]"):
        session.run(area.put(key, [1.0, 1]), {key: [1]})
    with pytest.raises(errors.InvalidArgumentError, match="index must be a scalar"):
        session.run(StagingArea([F32]).peek(number), {number: [0]})
    with pytest.raises(errors.InvalidArgumentError, match="is not ordered, unlike"):
        session.run(MapStagingArea([F32], shared_name=area.name, ordered=True).size())
    with pytest.raises(errors.InvalidTypeError, match="shared_name"):
        StagingArea([F32], shared_name=3)  # type: ignore[arg-type]
    with pytest.raises(errors.InvalidArgumentError, match="negative"):
        StagingArea([F32], capacity=-1)


def test_fed_values_stay_the_callers(session: Any) -> None:
    area = StagingArea([F32], [[2]])
    fed = placeholder(F32, [2])
    value = np.ones(2, np.float32)
    session.run(area.put(fed), {fed: value})
    value[:] = 5
    got = session.run(area.get()[0])
    assert got.tolist() == [1, 1]
    got[:] = 3


def test_components_of_a_key_by_their_names(session: Any) -> None:
    area = MapStagingArea([F32, I32], [[], []], names=["x", "n"])
    session.run(area.put(1, {"x": 2.0, "n": 3}))
    assert session.run(area.peek(1, ["n"])) == {"n": 3}
    assert session.run(area.get(1, ["x"])) == (1, {"x": 2.0})
    with pytest.raises(errors.InvalidArgumentError, match=r"have names \['x', 'n'\], got 'y'"):
        area.peek(1, ["y"])
