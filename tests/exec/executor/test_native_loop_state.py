"""Compiled loops whose iterations read variables, draw random numbers, or divide."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from weft_testing.both_ways import loops_that_ran

import weft as wf
from weft import errors
from weft_exec.executor.native import loops as native_loops


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The loops that ran compiled, each time that they did."""
    found = loops_that_ran(monkeypatch)
    monkeypatch.setenv("WEFT_JIT", "now")
    with wf.Graph().as_default():
        yield found


def _beside(monkeypatch: pytest.MonkeyPatch, build: Any, feeds: list[Any], near: float) -> None:
    """The built graph returns equal values by kernels and compiled, in each step."""
    found = []
    for said in ("off", "now"):
        monkeypatch.setenv("WEFT_JIT", said)
        with wf.Graph().as_default(), wf.Session() as session:
            wf.set_random_seed(7)
            fetches, places = build()
            session.run(wf.global_variables_initializer())
            run = session.make_callable(fetches, places)
            found.append([run(*fed) for fed in feeds])
    for step, want in zip(found[1], found[0], strict=True):
        for value, wanted in zip(step, want, strict=True):
            np.testing.assert_allclose(value, wanted, rtol=near, atol=near)


RESOURCE = pytest.mark.parametrize("resource", [True, False])


def _reading(dtype: Any, resource: bool) -> Any:
    x, turns = wf.placeholder(dtype, [2, 3]), wf.placeholder(wf.int32, [])
    start = np.linspace(-1, 1, 9).reshape(3, 3).astype(dtype)
    w = wf.Variable(start, use_resource=resource)
    b = wf.Variable(start[0], use_resource=resource)

    def turn(i: Any, state: Any) -> Any:
        shifted = wf.cond(i > 1, lambda: state + b, lambda: state * 2.0)
        return i + 1, wf.tanh(wf.matmul(shifted, w) + b)

    last = wf.while_loop(lambda i, _: i < turns, turn, (0, x))[1]
    return [last, *wf.gradients(last, [w, b, x])], [x, turns]


@RESOURCE
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_turns_read_variables(
    dtype: Any, resource: bool, ran: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    x = np.linspace(0, 1, 6).reshape(2, 3).astype(dtype)
    feeds = [(x, turns) for turns in (3, 0, 5)]
    near = 1e-5 if dtype is np.float32 else 1e-12
    _beside(monkeypatch, lambda: _reading(dtype, resource), feeds, near)
    assert len(ran) == 5  # forward, and backward where there were turns


@RESOURCE
@pytest.mark.parametrize("shape", [[], [3], [2, 3]])
def test_turns_read_rows_of_variables(
    shape: list[int], resource: bool, ran: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def build() -> Any:
        words = wf.placeholder(wf.int32, [4, *shape])
        w = wf.Variable(np.linspace(-1, 1, 10).reshape(5, 2), use_resource=resource)

        def turn(i: Any, state: Any) -> Any:
            rows = wf.nn.embedding_lookup(w, wf.gather(words, i))
            return i + 1, wf.tanh(state * 0.5) + wf.sin(rows) * state

        start = wf.ones([*shape, 2], wf.float64)
        last = wf.while_loop(lambda i, _: i < 4, turn, (0, start))[1]
        (slopes,) = wf.gradients(last, [w])
        return [last, wf.convert_to_tensor(slopes)], [words]

    given = np.random.default_rng(4).integers(0, 5, (4, *shape))
    _beside(monkeypatch, build, [(given,), (given[::-1],)], 1e-12)
    assert len(ran) == 4


@RESOURCE
def test_loops_inside_read_variables(
    resource: bool, ran: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def build() -> Any:
        x = wf.placeholder(wf.float64, [3])
        v = wf.Variable(np.linspace(0, 1, 3), use_resource=resource)
        w = wf.Variable(np.linspace(1, 2, 3), use_resource=resource)

        def turn(j: Any, t: Any) -> Any:
            read = lambda: wf.sin(t) + v.read_value()  # noqa: E731
            return j + 1, wf.cond(wf.equal(j % 2, 0), read, lambda: t * w)

        def around(i: Any, total: Any) -> Any:
            inner = wf.while_loop(lambda j, _: j < i, turn, (0, total))
            return i + 1, inner[1] * v

        return [wf.while_loop(lambda i, _: i < 4, around, (0, x))[1]], [x]

    _beside(monkeypatch, build, [(np.linspace(-1, 1, 3),)] * 2, 1e-12)
    assert len(ran) == 2


def test_a_variable_without_a_value_matters_where_it_is_read(ran: list[str]) -> None:
    v = wf.Variable(np.ones(2), use_resource=True, name="weights")
    turns = wf.placeholder(wf.int32, [])
    last = wf.while_loop(
        lambda i, _: i < turns, lambda i, t: (i + 1, wf.exp(t) * v), (0, wf.zeros(2, wf.float64))
    )
    with wf.Session() as session:
        assert session.run(last[1], {turns: 0}).tolist() == [0.0, 0.0]
        with pytest.raises(errors.FailedPreconditionError, match="uninitialized value weights"):
            session.run(last[1], {turns: 1})
        session.run(v.initializer)
        assert session.run(last[1], {turns: 1}).tolist() == [1.0, 1.0]
        session.run(v.assign([2.0, 3.0]).op)
        assert session.run(last[1], {turns: 1}).tolist() == [2.0, 3.0]


def _drawing() -> Any:
    x, turns = wf.placeholder(wf.float32, [5]), wf.placeholder(wf.int32, [])

    def turn(i: Any, state: Any, count: Any) -> Any:
        drawn = wf.random_normal([5], seed=3) + wf.random_uniform([5]) - wf.truncated_normal([5])
        dropped = wf.nn.dropout(wf.tanh(state * 0.5), rate=0.4)
        whole = wf.random_uniform([], 0, 1000, wf.int64)
        return i + 1, dropped + 0.1 * drawn, count + whole

    start = (0, x, wf.constant(0, wf.int64))
    _, last, count = wf.while_loop(lambda i, *_: i < turns, turn, start)
    with wf.control_dependencies([last]):
        after = wf.random_uniform([2], seed=3)
    return [last, count, after, wf.gradients(last, x)[0]], [x, turns]


def test_turns_draw_the_numbers_of_kernels(ran: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Also after steps without iterations, and with more iterations than fit a buffer."""
    x = np.linspace(-1, 1, 5).astype(np.float32)
    turns = (3, 0, 1, 300, 2)
    _beside(monkeypatch, _drawing, [(x, count) for count in turns], 2e-5)
    assert len(ran) == 2 * len(turns) - 1  # backward, too, where there were turns


def test_whoever_runs_a_loop_streams_go_on(ran: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    wf.set_random_seed(5)
    turns = wf.placeholder(wf.int32, [])
    drawn = wf.while_loop(
        lambda i, _: i < turns,
        lambda i, t: (i + 1, t * 0.5 + wf.random_uniform([4])),
        (0, wf.zeros([4])),
    )[1]
    found = []
    for said in ("off", "now"):
        monkeypatch.setenv("WEFT_JIT", said)
        with wf.Session() as session:
            found.append([])
            for count, kernels in zip((2, 3, 0, 2, 0, 1), (0, 1, 0, 0, 1, 0), strict=True):
                with monkeypatch.context() as patch:
                    if kernels:
                        patch.setattr(
                            native_loops.CompiledLoop, "__call__", lambda *_: NotImplemented
                        )
                    found[-1].append(session.run(drawn, {turns: count}))
    np.testing.assert_allclose(found[1], found[0], rtol=1e-6)
    assert len(ran) == 4


def test_draws_in_loops_inside_and_in_branches_stay_with_kernels(
    ran: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def build() -> Any:
        x = wf.placeholder(wf.float64, [3])

        def around(i: Any, total: Any) -> Any:
            total = wf.cond(
                i > 1, lambda: total + wf.random_uniform([3], dtype=wf.float64), lambda: total
            )
            inner = wf.while_loop(
                lambda j, _: j < i,
                lambda j, t: (j + 1, t + wf.random_uniform([3], dtype=wf.float64)),
                (0, total),
            )
            return i + 1, inner[1]

        return [wf.while_loop(lambda i, _: i < 4, around, (0, x))[1]], [x]

    _beside(monkeypatch, build, [(np.zeros(3),)] * 2, 1e-9)


def test_a_recurrent_network_with_dropout_trains_compiled(
    ran: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def build() -> Any:
        x = wf.placeholder(wf.float32, [4, 6, 3])
        with wf.variable_scope("net", use_resource=True):
            cell = wf.nn.rnn_cell.DropoutWrapper(
                wf.nn.rnn_cell.GRUCell(5), input_keep_prob=0.8, output_keep_prob=0.7, seed=1
            )
            outputs, _ = wf.nn.dynamic_rnn(cell, x, dtype=wf.float32)
        loss = wf.reduce_mean(wf.square(outputs))
        step = wf.train.GradientDescentOptimizer(0.5).minimize(loss)
        with wf.control_dependencies([step]):
            return [loss, wf.identity(loss)], [x]

    x = np.random.default_rng(1).normal(size=(4, 6, 3)).astype(np.float32)
    _beside(monkeypatch, build, [(x,)] * 4, 2e-4)
    assert len(ran) == 8  # forward and backward


def test_turns_divide_integers(ran: list[str]) -> None:
    """A divisor of 0 is the error of the kernel, in its iteration."""
    start = wf.placeholder(wf.int32, [])
    last = wf.while_loop(
        lambda i, _: i < 5,
        lambda i, t: (i + 1, t + wf.floordiv(100, start - i, name="quotient") + (-7 % (i + 2))),
        (0, 0),
    )[1]
    by_hand = sum(100 // (9 - i) + (-7 % (i + 2)) for i in range(5))
    with wf.Session() as session:
        assert session.run(last, {start: 9}) == by_hand
        assert len(ran) == 1
        with pytest.raises(errors.InvalidArgumentError, match="division by zero") as caught:
            session.run(last, {start: 2})
        assert "quotient" in str(caught.value) and "iteration 2" in str(caught.value)
        assert session.run(last, {start: 9}) == by_hand


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int16, np.uint32, np.int64])
def test_integers_are_divided_as_by_kernels(
    dtype: Any, ran: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    limits = np.iinfo(dtype)
    a = np.array([7, limits.min, 5, limits.min, limits.max, 9] * 3).astype(dtype).reshape(3, 6)
    b = np.array([2, limits.max, 3, -1 if limits.min else 1, 5, 4]).astype(dtype)
    ops = [wf.floordiv, wf.floormod, wf.truncatediv, wf.truncatemod]

    def build() -> Any:
        x, y = wf.placeholder(dtype, [3, 6]), wf.placeholder(dtype, [6])
        return [op(x, y) + wf.square(x) for op in ops], [x, y]

    _beside(monkeypatch, build, [(a, b)], 0)
    monkeypatch.setenv("WEFT_JIT", "now")
    fetches, places = build()
    with wf.Session() as session:
        assert session.explain(fetches, places).compiled
        with pytest.raises(errors.InvalidArgumentError, match="FloorDiv: integer division by zero"):
            session.run(fetches, {places[0]: a, places[1]: b * 0})
        nothing = session.run(fetches[0], {places[0]: a, places[1]: b})
        assert nothing.shape == (3, 6)


def test_exponents_of_integers_are_looked_at(ran: list[str]) -> None:
    x, y = wf.placeholder(wf.int64, [None, 20]), wf.placeholder(wf.int64, [20])
    power = wf.pow(x, y) * 2 + 1
    with wf.Session() as session:
        assert session.explain(power, [x, y]).compiled
        numbers = np.arange(20).reshape(1, 20)
        assert (
            session.run(power, {x: numbers - 3, y: numbers[0] % 4}).tolist()
            == ((numbers - 3) ** (numbers % 4) * 2 + 1).tolist()
        )
        with pytest.raises(errors.InvalidArgumentError, match="negative integer powers"):
            session.run(power, {x: numbers, y: -numbers[0]})


@pytest.mark.parametrize("inside", ["turn", "branch", "loop"])
def test_turns_look_at_values_that_nobody_takes(inside: str, ran: list[str]) -> None:
    def checked(a: Any) -> Any:
        with wf.control_dependencies([wf.check_numerics(wf.log(a), "logarithm")]):
            return a - 1.0

    def changed(a: Any) -> Any:
        if inside == "branch":
            return wf.cond(a < 9.0, lambda: checked(a), lambda: a * 1.0)
        if inside == "loop":
            return wf.while_loop(lambda i, _: i < 1, lambda i, a: (i + 1, checked(a)), (0, a))[1]
        return checked(a)

    start = wf.placeholder(wf.float32, [])
    last = wf.while_loop(lambda i, _: i < 3, lambda i, a: (i + 1, changed(a)), (0, start))[1]
    with wf.Session() as session:
        assert session.run(last, {start: 4.0}) == 1.0
        assert len(ran) == 1
        with pytest.raises(errors.InvalidArgumentError, match=r"logarithm : .* Inf") as caught:
            session.run(last, {start: 2.0})
        assert "iteration 2" in str(caught.value)
        if inside == "branch":
            assert session.run(last, {start: 9.0}) == 9.0


def _drawing_test(how: str) -> Any:
    """A loop whose condition draws random numbers that determine the trip count."""
    limit, x = wf.placeholder(wf.float64, []), wf.placeholder(wf.float64, [3])

    def draw(seed: int) -> Any:
        return wf.random_uniform([], dtype=wf.float64, seed=seed)

    def test(i: Any, _: Any) -> Any:
        if how == "branch":
            drawn = wf.cond(wf.equal(i % 2, 0), lambda: draw(3), lambda: limit * 0.5)
        elif how == "loop":
            inner = lambda j, total: (j + 1, total + draw(3) * 0.5)  # noqa: E731
            drawn = wf.while_loop(lambda j, _: j < 2, inner, (0, limit * 0.0))[1]
        else:
            drawn = draw(3)
        return wf.logical_and(drawn < limit, i < 200)

    def turn(i: Any, v: Any) -> Any:
        if how == "inner":
            again = lambda j, _: wf.logical_and(draw(5) < limit, j < 5)  # noqa: E731
            v = wf.while_loop(again, lambda j, w: (j + 1, wf.sin(w) + 0.1), (0, v))[1]
        return i + 1, wf.tanh(v * x) + draw(4)

    last = wf.while_loop(test, turn, (0, x))
    slopes = [] if how == "inner" else wf.gradients(last[1], [x])
    return [*last, *slopes], [limit, x]


@pytest.mark.parametrize("how", ["plain", "branch", "loop", "inner"])
def test_tests_draw_the_numbers_of_kernels(
    how: str, ran: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also without iterations, and with more iterations than fit a buffer."""
    monkeypatch.setattr(native_loops, "_ROOM", 8)
    x = np.linspace(-1, 1, 3)
    feeds = [(limit, x) for limit in (0.5, 0.95, 0.0, 2.0, 0.7)]
    _beside(monkeypatch, lambda: _drawing_test(how), feeds, 1e-6)
    assert len(ran) >= 5


def test_what_a_test_reads_of_an_array_is_read_once_more_than_there_are_turns(
    ran: list[str],
) -> None:
    array = wf.TensorArray(wf.float32, 5).unstack(wf.linspace(0.0, 1.0, 5))
    last = wf.while_loop(lambda i: array.read(i) < 0.6, lambda i: i + 1, [0])
    with wf.control_dependencies([last]):
        again, other = array.read(last), array.read(last + 1)
    with wf.Session() as session:
        assert session.run([last, other]) == [3, 1.0]
        with pytest.raises(errors.InvalidArgumentError, match="cannot be read twice"):
            session.run(again)
    assert len(ran) == 2
