"""Loops that change variables in their bodies, compiled as one function."""

from __future__ import annotations

import random
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import numpy as np
import pytest

import weft as wf
from weft import errors
from weft_compiler.generator import LoopCompiler
from weft_exec.executor.native.loops import CompiledLoop
from weft_exec.resources.resources import VariableState


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[bool]]:
    """Record for each call of a loop's function whether it computed the loop."""
    found: list[bool] = []
    call = CompiledLoop.__call__

    def note(self: CompiledLoop, *values: Any) -> Any:
        result = call(self, *values)
        found.append(result is not NotImplemented)
        return result

    monkeypatch.setattr(CompiledLoop, "__call__", note)
    monkeypatch.setenv("WEFT_JIT", "now")
    with wf.Graph().as_default():
        yield found


def _both_ways(
    monkeypatch: pytest.MonkeyPatch, run: Callable[[Any], list[Any]], near: float = 1e-9
) -> None:
    """Results of compiled programs equal those of kernels."""
    found = []
    for said in ("now", "off"):
        monkeypatch.setenv("WEFT_JIT", said)
        with wf.Graph().as_default(), wf.Session() as session:
            found.append(run(session))
    for value, want in zip(*found, strict=True):
        np.testing.assert_allclose(value, want, rtol=near, atol=near)


def _loop(turn: Callable[[Any, Any], Any], turns: Any, x: Any) -> Any:
    """A loop with a counter and a value, whose iterations wait for the previous one."""

    def body(i: Any, v: Any) -> tuple[Any, Any]:
        found = turn(i, v)
        with wf.control_dependencies([found]):
            return i + 1, found

    start = [wf.constant(0), x]
    return wf.while_loop(lambda i, _: i < turns, body, start)[1]


def _in_order(*steps: Callable[[], Any]) -> Any:
    """The last of some values, each of which waits for those before it."""
    found: Any = None
    for step in steps:
        with wf.control_dependencies([] if found is None else [found]):
            found = wf.identity(step())
    return found


@pytest.mark.parametrize("resource", [False, True])
@pytest.mark.parametrize("how", ["dense", "rows", "scalar", "branch", "inner"])
def test_turns_change_variables(
    how: str, resource: bool, ran: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(session: Any) -> list[Any]:
        v = wf.Variable(np.linspace(0, 1, 4), use_resource=resource)
        count = wf.Variable(0.5, dtype=wf.float64, use_resource=resource)
        x = wf.placeholder(wf.float64, [4])
        turns = wf.placeholder(wf.int32, [])

        def turn(i: Any, u: Any) -> Any:
            if how == "dense":
                read = lambda: v.read_value() + u  # noqa: E731
                return _in_order(lambda: v.assign_add(wf.sin(u)), read) * 0.5
            if how == "rows":
                rows = wf.stack([i % 4, i % 4, 0])
                given = wf.stack([u[0], u[1], 1.0])
                return _in_order(lambda: wf.scatter_add(v, rows, given), v.read_value) * 0.5 + u
            if how == "scalar":
                return _in_order(lambda: count.assign(count * 2.0 - 0.1), count.read_value) + u
            if how == "branch":
                return wf.cond(
                    wf.equal(i % 2, 0),
                    lambda: _in_order(lambda: v.assign_sub(u * 0.5)),
                    lambda: _in_order(v.read_value) * 2.0,
                )
            inner = lambda j, w: _in_order(lambda: v.assign_add(w * 0.1), v.read_value)  # noqa: E731
            return _loop(inner, i, u) + _in_order(lambda: count.assign_add(1.0))

        y = _loop(turn, turns, x)
        session.run(wf.global_variables_initializer())
        held = session.run(v)
        found: list[Any] = []
        for limit in (3, 0, 5, 1):
            found += [session.run(y, {x: [0.5, -1.0, 2.0, 0.1], turns: limit})]
            found += session.run([v, count])
        assert held.tolist() == np.linspace(0, 1, 4).tolist()
        return found

    _both_ways(monkeypatch, run)
    assert ran and all(ran)


@pytest.mark.parametrize(
    "make",
    [
        lambda: wf.train.GradientDescentOptimizer(0.1),
        lambda: wf.train.MomentumOptimizer(0.1, 0.9, use_nesterov=True),
        lambda: wf.train.AdamOptimizer(0.1),
    ],
)
@pytest.mark.parametrize("resource", [False, True])
def test_optimizers_run_in_loops(
    resource: bool, make: Any, ran: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(session: Any) -> list[Any]:
        w = wf.Variable(np.linspace(-1, 1, 6).reshape(3, 2), use_resource=resource)
        x = wf.placeholder(wf.float64, [4, 3])
        optimizer = make()
        optimizer.apply_gradients([(wf.zeros([3, 2], wf.float64), w)])  # makes its slots

        def turn(i: Any, u: Any) -> Any:
            error = wf.matmul(x, w.read_value()) - 1.0
            slope = wf.matmul(x, error, transpose_a=True)
            with wf.control_dependencies([optimizer.apply_gradients([(slope, w)])]):
                return u + wf.reduce_sum(wf.square(error))

        y = _loop(turn, 5, wf.constant(0.0, wf.float64))
        session.run(wf.global_variables_initializer())
        feed = {x: np.linspace(0, 1, 12).reshape(4, 3)}
        found = [session.run(y, feed) for _ in range(2)]
        return [*found, *session.run(wf.global_variables())]

    _both_ways(monkeypatch, run)
    assert ran and all(ran)


@pytest.mark.parametrize("resource", [False, True])
def test_a_loop_that_fails_leaves_what_its_kernels_leave(
    resource: bool, ran: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(session: Any) -> list[Any]:
        v = wf.Variable(np.zeros(3), use_resource=resource)
        d = wf.placeholder(wf.int64, [6])

        def turn(i: Any, u: Any) -> Any:
            add = wf.fill([3], wf.cast(i + 1, wf.float64))
            divided = lambda: wf.cast(wf.constant(12, wf.int64) // wf.gather(d, i), wf.float64)  # noqa: E731
            return u + _in_order(lambda: v.assign_add(add), divided)

        y = _loop(turn, 6, wf.constant(0.0, wf.float64))
        session.run(v.initializer)
        with pytest.raises(errors.InvalidArgumentError, match=r"(?s)zero.*in iteration 3 of"):
            session.run(y, {d: [1, 2, 3, 0, 1, 1]})
        after = session.run(v)
        assert after.tolist() == [10.0] * 3
        return [after, session.run(y, {d: [1] * 6}), session.run(v)]

    _both_ways(monkeypatch, run)
    assert ran == [False, True]


def test_a_variable_that_another_step_changes_meanwhile_loses_nothing(
    ran: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    v = wf.Variable(np.zeros(2), use_resource=True)
    x = wf.placeholder(wf.float64, [2])
    y = _loop(lambda i, u: _in_order(lambda: v.assign_add(u)), 4, x)
    add = v.assign_add([100.0, 100.0])
    exchange = VariableState.exchange
    with wf.Session() as session:
        session.run(v.initializer)

        def meanwhile(changes: Any) -> bool:
            thread = threading.Thread(target=session.run, args=[add.op])
            thread.start()
            thread.join()
            return exchange(changes)

        session.run(y, {x: [0.0, 0.0]})
        monkeypatch.setattr(VariableState, "exchange", staticmethod(meanwhile))
        session.run(y, {x: [1.0, 0.0]})
        # Turns that kernels run once more, from 100: 101, then each twice the one before.
        assert session.run(v).tolist() == [808.0, 800.0]
    assert ran == [True, False]


def test_a_variable_without_a_value_is_the_error_of_its_kernel(ran: list[bool]) -> None:
    v = wf.Variable(np.zeros(2), use_resource=True)
    y = _loop(
        lambda i, u: _in_order(lambda: v.assign_add(u)), 2, wf.constant([1.0, 2.0], wf.float64)
    )
    with wf.Session() as session:
        with pytest.raises(errors.FailedPreconditionError, match="Variable"):
            session.run(y)
        session.run(v.initializer)
        assert session.run(y).tolist() == [2.0, 4.0]
    assert ran == [False, True]


def test_ctrl_c_leaves_variables_as_they_were_and_nobody_waits_for_the_loop(
    ran: list[bool],
) -> None:
    on = wf.placeholder(wf.bool, [])
    v = wf.Variable(np.zeros(2), use_resource=True)

    def turn(i: Any) -> list[Any]:
        with wf.control_dependencies([v.assign_add([1.0, 2.0]).op]):
            return [i + 1]

    last = wf.while_loop(lambda i: wf.logical_or(on, i < 3), turn, [0])
    seen: list[Any] = []
    with wf.Session() as session:
        session.run(v.initializer)
        session.run(last, {on: False})
        main = threading.main_thread().ident
        assert main is not None

        def meanwhile() -> None:
            seen.append(session.run(v).tolist())
            signal.pthread_kill(main, signal.SIGINT)

        threading.Timer(0.3, meanwhile).start()
        with pytest.raises(KeyboardInterrupt):
            session.run(last, {on: True})
        assert seen == [[3.0, 6.0]] and session.run(v).tolist() == [3.0, 6.0]
        assert session.run(last, {on: False}) == 3 and session.run(v).tolist() == [6.0, 12.0]
    assert ran == [True, True]


def test_rows_are_changed_where_they_are_after_others_have_read_them(
    ran: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The operand of the change, and another variable, are computed from the previous value."""

    def run(session: Any) -> list[Any]:
        v = wf.Variable(np.arange(6.0), use_resource=True)
        other = wf.Variable(np.zeros(6), use_resource=True)

        def turn(i: Any, u: Any) -> Any:
            before = v.read_value()
            with wf.control_dependencies([before]):
                change = wf.scatter_update(v, [1, 2, 3, 4, 5, 0], before)
            with wf.control_dependencies([change]):
                kept = wf.identity(other.assign(before + u * 0.0))
            return wf.tanh(kept) + before

        y = _loop(turn, 3, wf.zeros([6], wf.float64))
        session.run(wf.global_variables_initializer())
        return [session.run(y), *session.run([v, other])]

    _both_ways(monkeypatch, run)
    assert ran == [True]


def test_jit_check_compares_what_variables_become(
    ran: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    config = wf.ConfigProto()
    config.experimental.jit_check = True
    v = wf.Variable(np.ones(3), use_resource=True)
    y = _loop(lambda i, u: _in_order(lambda: v.assign_add(u), lambda: u * 1.0), 3, v * 2.0)
    called = LoopCompiler.generate
    with wf.Session(config=config) as session:
        session.run(v.initializer)
        assert session.run(y).tolist() == [2.0] * 3
        assert session.run(v).tolist() == [7.0] * 3

    def wrong(self: Any, *asked: Any) -> Any:
        made = called(self, *asked)
        run = type(made).__call__

        class Wrong(type(made)):  # type: ignore[misc]  # a class that is known here only
            def __call__(self, *arrays: Any) -> None:
                run(self, *arrays)
                arrays[-1][:] += 1.0

            enter_briefly = __call__

        made.__class__ = Wrong
        return made

    monkeypatch.setattr(LoopCompiler, "generate", wrong)
    with wf.Session(config=config) as session:
        session.run(v.initializer)
        with pytest.raises(errors.InternalError, match="jit_check: AssignAddVariableOp returns"):
            session.run(y)


class _Program:
    """A loop that reads and changes variables, with branches and loops inside, from a seed."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        resource = self.random.random() < 0.5
        self.variables = [
            wf.Variable(np.linspace(k, k + 1, 4) / 4, use_resource=resource) for k in range(2)
        ]
        self.x = wf.placeholder(wf.float64, [4])
        self.turns = wf.placeholder(wf.int32, [])
        self.last: list[Any] = []
        self.y = self.loop(self.turns, self.x, 0)

    def loop(self, turns: Any, x: Any, depth: int) -> Any:
        def turn(i: Any, v: Any) -> Any:
            self.last = []
            steps = self.steps([v], i, self.random.randint(1, 5), depth)
            with wf.control_dependencies(self.last):
                return wf.clip_by_value(wf.tanh(steps[-1]) + v * 0.5, -2.0, 2.0)

        before = self.last
        with wf.control_dependencies(before):
            found = _loop(turn, turns, wf.identity(x))
        self.last = [found]
        return found

    def steps(self, values: Sequence[Any], i: Any, count: int, depth: int) -> list[Any]:
        found = list(values)
        for _ in range(count):
            x = self.random.choice(found)
            kind = self.random.choice(["unary", "change", "change", "read", "choose", "loop"])
            if kind == "choose" and depth < 2:
                found.append(self.choose(x, i, depth))
            elif kind == "loop" and depth < 2:
                found.append(self.loop(self.random.choice([2, i % 3]), x, depth + 1))
            elif kind in ("change", "read"):
                found.append(self.touch(x, i, kind))
            else:
                found.append(self.random.choice([wf.tanh, wf.sin, wf.nn.softmax])(x))
        return found

    def touch(self, x: Any, i: Any, kind: str) -> Any:
        variable = self.random.choice(self.variables)
        with wf.control_dependencies(self.last):
            if kind == "read":
                found = wf.tanh(variable.read_value() * 0.7 + x)
            elif self.random.random() < 0.3:
                rows = wf.stack([i % 4, self.random.randrange(4), 1])
                op = self.random.choice([wf.scatter_add, wf.scatter_sub, wf.scatter_update])
                found = wf.identity(op(variable, rows, wf.sin(x[1:]))) * 1.0
            else:
                how = self.random.choice(["assign", "assign_add", "assign_sub"])
                found = wf.identity(getattr(variable, how)(wf.sin(x))) * 1.0
        self.last = [found]
        return found

    def choose(self, x: Any, i: Any, depth: int) -> Any:
        before = self.last

        def side() -> Any:
            self.last = before
            steps = self.steps([x], i, self.random.randint(0, 3), depth + 1)
            with wf.control_dependencies(self.last if self.last is not before else []):
                return wf.identity(steps[-1])

        with wf.control_dependencies(before):
            found = wf.cond(wf.equal(i % 2, self.random.randrange(2)), side, side)
        self.last = [found]
        return found


SPARSE: Final[Sequence[Callable[[], Any]]] = (
    lambda: wf.train.AdagradOptimizer(0.1),
    lambda: wf.train.MomentumOptimizer(0.1, 0.9, use_nesterov=True),
    lambda: wf.train.RMSPropOptimizer(0.1, momentum=0.5),
    lambda: wf.train.FtrlOptimizer(0.1, l1_regularization_strength=0.01),
    lambda: wf.train.AdadeltaOptimizer(0.1),
    lambda: wf.train.AdamOptimizer(0.1),
)


class _SparseProgram(_Program):
    """The same, with optimizers that change rows."""

    def touch(self, x: Any, i: Any, kind: str) -> Any:
        if self.random.random() < 0.5:
            return super().touch(x, i, kind)
        variable = self.random.choice(self.variables)
        rows = wf.stack([i % 4, self.random.randrange(4), self.random.choice([1, (i * 3) % 4])])
        optimizer = self.random.choice(SPARSE)()
        with wf.control_dependencies(self.last):
            slices = wf.IndexedSlices(wf.sin(x[1:]), rows, wf.constant([4]))
            change = optimizer.apply_gradients([(slices, variable)])
        with wf.control_dependencies([change]):
            found = wf.identity(variable.read_value()) * 0.5
        self.last = [found]
        return found


def _agree(seed: int, monkeypatch: pytest.MonkeyPatch, make: Any = _Program) -> None:
    def run(session: Any) -> list[Any]:
        program = make(seed)
        session.run(wf.global_variables_initializer())
        found: list[Any] = []
        for turns in (3, 0, 4):
            feed = {program.turns: turns, program.x: np.linspace(-1, turns, 4)}
            found.append(session.run(program.y, feed))
            found += session.run(wf.global_variables())
        return found

    _both_ways(monkeypatch, run, 1e-7)


def test_loops_do_what_kernels_do_to_variables(
    ran: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    for seed in range(8):
        _agree(seed, monkeypatch)
    assert sum(ran) > 12 and all(ran)


def test_loops_change_rows_by_optimizers_as_kernels_do(
    ran: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    for seed in range(5):
        _agree(seed, monkeypatch, _SparseProgram)
    assert sum(ran) > 10 and all(ran)


@pytest.mark.parametrize("resource", [False, True])
@pytest.mark.parametrize("make", SPARSE)
def test_optimizers_change_rows_in_loops(
    resource: bool, make: Any, ran: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some rows have several gradients in an iteration, and rows vary by iteration."""

    def run(session: Any) -> list[Any]:
        w = wf.Variable(np.linspace(-1, 1, 12).reshape(6, 2), use_resource=resource)
        words = wf.placeholder(wf.int32, [5, 4])
        optimizer = make()

        def turn(i: Any, u: Any) -> Any:
            seen = wf.gather(words, i)
            with wf.control_dependencies([u]):
                rows = wf.nn.embedding_lookup(w, seen)
            slices = wf.IndexedSlices(wf.sin(rows) + 0.1, seen, wf.constant([6, 2]))
            with wf.control_dependencies([optimizer.apply_gradients([(slices, w)])]):
                return u + wf.reduce_sum(rows)

        y = _loop(turn, 5, wf.constant(0.0, wf.float64))
        session.run(wf.global_variables_initializer())
        given = np.random.default_rng(2).integers(0, 6, (5, 4))
        given[1] = 3
        found = [session.run(y, {words: given}) for _ in range(2)]
        with pytest.raises(errors.InvalidArgumentError):
            session.run(y, {words: given + 4})
        return [*found, *session.run(wf.global_variables())]

    _both_ways(monkeypatch, run)
    assert ran and True in ran


def test_what_only_seems_to_name_rows_stays_with_kernels(
    ran: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its number is seen outside of the update."""

    def run(session: Any) -> list[Any]:
        w = wf.Variable(np.ones([6, 2]))
        optimizer = wf.train.AdagradOptimizer(0.1)

        def turn(i: Any, u: Any) -> Any:
            slices = wf.IndexedSlices(wf.ones([3, 2], wf.float64), wf.stack([i, 1, 2]), [6, 2])
            with wf.control_dependencies([optimizer.apply_gradients([(slices, w)])]):
                graph = wf.get_default_graph()
                named = [n for n in graph.get_operations() if n.type == "Unique"]
                return u + wf.cast(wf.size(named[0].outputs[0]), wf.float64)

        y = _loop(turn, 4, wf.constant(0.0, wf.float64))
        session.run(wf.global_variables_initializer())
        return [session.run(y), *session.run(wf.global_variables())]

    _both_ways(monkeypatch, run)
    assert not any(ran)


def test_a_conditional_in_a_loop_reads_a_variable_that_no_turn_changes(
    ran: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    """By its reference, which an Enter brings into the loop."""
    _agree(1097, monkeypatch)
    assert ran == [True] * 3


@pytest.mark.long
@pytest.mark.parametrize("first", range(1000, 2000, 100))
def test_many_loops_do_what_kernels_do_to_variables(
    first: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for seed in range(first, first + 100):
        _agree(seed, monkeypatch)
        _agree(seed, monkeypatch, _SparseProgram)


def test_what_a_loop_changes_may_be_read_beside_it(
    ran: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The readers would be a region if all uses of the variable were in one place."""

    def run(session: Any) -> list[Any]:
        v = wf.Variable(np.linspace(0, 1, 3), use_resource=False)
        x = wf.placeholder(wf.float64, [3])
        beside = wf.tanh(v * 1.5 + x)  # before the loop or after it, which is open
        last = _loop(lambda i, t: wf.sin(t) + v.assign_add(t), 3, x)
        session.run(wf.global_variables_initializer())
        found = [session.run([last, beside], {x: np.ones(3)})[0] for _ in range(2)]
        return [*found, session.run(v)]

    _both_ways(monkeypatch, run)
    assert ran == [True, True]
