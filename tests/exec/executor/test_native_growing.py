"""Compiled loops that grow TensorArrays: contents and errors."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import weft as wf
from weft import errors
from weft_exec.executor.native import loops as native_loops
from weft_exec.executor.native.loops import CompiledLoop

X = np.array([0.3, -0.5, 1.2])


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[bool]]:
    """Record for each call of a loop whether compiled code computed it; the first capacity is 8."""
    found: list[bool] = []
    call = CompiledLoop.__call__

    def note(self: CompiledLoop, *values: Any) -> Any:
        result = call(self, *values)
        found.append(isinstance(result, list))
        return result

    monkeypatch.setattr(CompiledLoop, "__call__", note)
    monkeypatch.setattr(native_loops, "_ROOM", 8)
    with wf.Graph().as_default():
        yield found


def _both_ways(monkeypatch: pytest.MonkeyPatch, run: Callable[[Any], list[Any]]) -> None:
    """Results and errors of compiled programs equal those of kernels."""
    found = []
    for said in ("now", "off"):
        monkeypatch.setenv("WEFT_JIT", said)
        with wf.Graph().as_default(), wf.Session() as session:
            wf.set_random_seed(3)
            found.append(run(session))
    assert len(found[0]) == len(found[1])
    for value, want in zip(*found, strict=True):
        if isinstance(want, str):
            assert value == want
        else:
            np.testing.assert_allclose(value, want, rtol=1e-9, atol=1e-9)


def _written(n: Any, size: int, where: Callable[[Any], Any], first: Any = None) -> tuple[Any, Any]:
    """An array after a loop of n iterations, and the final value of x."""
    x = wf.constant(X)
    array = wf.TensorArray(wf.float64, size, dynamic_size=True, clear_after_read=False,
                           element_shape=[3])  # fmt: skip
    if first is not None:
        array = array.write(first, x)

    def turn(i: Any, a: Any, v: Any) -> tuple[Any, Any, Any]:
        v = wf.tanh(v * x) + 1.0
        return i + 1, a.write(where(i), v), v

    _, array, last = wf.while_loop(lambda i, *_: i < n, turn, (0, array, x))
    return array, last


ORDERS: dict[str, Callable[[Any, Any], Any]] = {
    "up": lambda i, n: i,
    "down": lambda i, n: n - 1 - i,
    "with gaps": lambda i, n: 3 * i + 1,
}


@pytest.mark.parametrize("size", [0, 5])
@pytest.mark.parametrize("order", ORDERS)
def test_arrays_grow_as_by_kernels(
    order: str, size: int, ran: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(session: Any) -> list[Any]:
        n = wf.placeholder(wf.int32, [])
        array, last = _written(n, size, lambda i: ORDERS[order](i, n))
        fetches = [array.size(), last, array.stack(), array.read(1)]
        return [each for turns in (3, 30, 8, 0, 9) for each in _results(session, fetches, n, turns)]

    _both_ways(monkeypatch, run)
    assert ran == [True] * 5


def _results(session: Any, fetches: Any, n: Any, turns: int) -> list[Any]:
    try:
        return list(session.run(fetches, {n: turns}))
    except errors.OpError as error:
        return [str(error)]


@pytest.mark.parametrize("size", [0, 4])
def test_what_was_written_before_the_loop_stays(
    size: int, ran: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(session: Any) -> list[Any]:
        n = wf.placeholder(wf.int32, [])
        array, last = _written(n, size, lambda i: i + 1, first=0)
        fetches = [array.size(), last, array.stack()]
        return [each for turns in (3, 30, 2) for each in _results(session, fetches, n, turns)]

    _both_ways(monkeypatch, run)
    assert ran == [True] * 3


def test_what_was_written_before_a_loop_over_an_array_of_one_size_stays(
    ran: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(session: Any) -> list[Any]:
        x = wf.constant(X)
        array = wf.TensorArray(wf.float64, 6).write(0, x)
        _, array = wf.while_loop(
            lambda i, _: i < 6,
            lambda i, a: (i + 1, a.write(i, x * wf.cast(i, x.dtype))),
            (1, array),
        )
        rows = array.stack()
        return [*session.run([rows, *wf.gradients(rows * rows, [x])])]

    _both_ways(monkeypatch, run)
    assert ran == [True, True]


WRONG: dict[str, tuple[Callable[[Any], Any], Any]] = {
    "below": (lambda i: i - 2 * (i // 13) * i, None),
    "twice": (lambda i: i % 20, None),
    "twice at once": (lambda i: i // 2, None),
    "taken": (lambda i: i, 20),
    "after it": (lambda i: i + 1, 0),
}


@pytest.mark.parametrize("how", WRONG)
def test_errors_are_those_of_kernels(
    how: str, ran: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    where, first = WRONG[how]

    def run(session: Any) -> list[Any]:
        n = wf.placeholder(wf.int32, [])
        array, last = _written(n, 0, where, first)
        if how == "after it":
            array = array.write(12, last)
        found = _results(session, [array.stack(), last], n, 25)
        assert isinstance(found[0], str) and "TensorArrayWrite" in found[0]
        return found

    _both_ways(monkeypatch, run)
    assert ran == [how == "after it"]


def test_an_index_that_nothing_has_room_for_is_the_error_of_its_kernel(
    ran: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WEFT_JIT", "now")
    array, _ = _written(3, 0, lambda i: i + 2147483000)
    monkeypatch.setattr("weft_exec.resources.tensor_arrays.TensorArrayState._grow", _no_room)
    said = pytest.raises(errors.ResourceExhaustedError, match="no room for 2147483000")
    with wf.Session() as session, said:
        session.run(array.flow)
    assert ran == [False]


def _no_room(array: Any, index: int) -> None:
    raise errors.ResourceExhaustedError(f"no room for {index}")


def test_a_loop_that_has_found_no_room_draws_the_numbers_of_kernels(
    ran: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(session: Any) -> list[Any]:
        n = wf.placeholder(wf.int32, [])

        def turn(i: Any, a: Any) -> tuple[Any, Any]:
            return i + 1, a.write(i, wf.random_uniform([2], dtype=wf.float64, seed=4))

        array = wf.TensorArray(wf.float64, 0, dynamic_size=True)
        rows = wf.while_loop(lambda i, _: i < n, turn, (0, array))[1].stack()
        return [session.run(rows, {n: turns}) for turns in (3, 30, 5)]

    _both_ways(monkeypatch, run)
    assert ran == [True] * 3


def test_jit_check_compares_arrays_that_grow(
    ran: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WEFT_JIT", "now")
    config = wf.ConfigProto()
    config.experimental.jit_check = True
    n = wf.placeholder(wf.int32, [])
    array, _ = _written(n, 0, lambda i: 2 * i)
    rows = array.stack()
    keep = native_loops.TensorListBuffer.beside
    seen: list[int] = []

    def note(place: Any, made: Any) -> Any:
        pairs = keep(place, made)
        seen.append(len(pairs))
        return [(pairs[0][0] + 1.0, pairs[0][1]), *pairs[1:]] if len(pairs) == 7 else pairs

    monkeypatch.setattr(native_loops.TensorListBuffer, "beside", note)
    with wf.Session(config=config) as session:
        assert session.run(rows, {n: 20}).shape == (39, 3)
        with pytest.raises(errors.InternalError, match="jit_check: TensorArrayWriteV3 returns"):
            session.run(rows, {n: 7})
    assert seen == [20, 7]


class _Program:
    """A loop that writes to arrays, with branches and loops inside, from a seed."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.n = wf.placeholder(wf.int32, [])
        self.x = wf.constant(X)
        arrays = [self.array() for _ in range(self.random.randint(1, 3))]
        kinds = [self.random.choice(["plain", "branch", "inner"]) for _ in arrays]
        steps = [self.random.choice([1, 1, 2, 3]) for _ in arrays]
        draws = self.random.random() < 0.3

        def turn(i: Any, v: Any, *arrays: Any) -> tuple[Any, ...]:
            v = wf.tanh(v * self.x) + 1.0
            if draws:
                v = v + wf.random_uniform([3], dtype=v.dtype, seed=9)
            found = [
                self.written(a, kind, i, i * step + 1, v)
                for a, kind, step in zip(arrays, kinds, steps, strict=True)
            ]
            return i + 1, v, *found

        first = [wf.constant(0), self.x, *arrays]
        _, last, *arrays = wf.while_loop(lambda i, *_: i < self.n, turn, first)
        stacked = [array.stack() for array in arrays]
        ends = [wf.reduce_sum(rows * rows) for rows in stacked]
        self.fetches = [last, *stacked, *[array.size() for array in arrays]]
        self.fetches += wf.gradients([*ends, last], [self.x])

    def array(self) -> Any:
        size = self.random.choice([0, 1, 7, 20])
        array = wf.TensorArray(
            wf.float64,
            size,
            dynamic_size=True,
            clear_after_read=False,
            element_shape=[3],
        )
        return array.write(0, self.x * 0.5) if self.random.random() < 0.4 else array

    def written(self, array: Any, kind: str, i: Any, at: Any, v: Any) -> Any:
        if kind == "branch":
            return wf.cond(wf.equal(i % 3, 1), lambda: array, lambda: array.write(at, v * 2.0))
        if kind == "inner":
            inner = lambda j, a: (j + 1, a.write(at * 2 + j, v * wf.cast(j, v.dtype)))  # noqa: E731
            return wf.while_loop(lambda j, _: j < 2, inner, (0, array))[1]
        return array.write(at, v)


def _agree(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def run(session: Any) -> list[Any]:
        program = _Program(seed)
        found: list[Any] = []
        for turns in (3, 30, 0, 7):
            found += _results(session, program.fetches, program.n, turns)
        return found

    _both_ways(monkeypatch, run)


def test_loops_do_what_kernels_do_to_arrays(
    ran: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    for seed in range(5):
        _agree(seed, monkeypatch)
    assert sum(ran) > 20


@pytest.mark.long
@pytest.mark.parametrize("first", range(1000, 2000, 100))
def test_many_loops_do_what_kernels_do_to_arrays(
    first: int, ran: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    for seed in range(first, first + 100):
        _agree(seed, monkeypatch)
    assert sum(ran) > 400
