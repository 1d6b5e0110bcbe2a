"""Conditionals outside of loops as parts of compiled regions."""

from __future__ import annotations

import logging
import os
import random
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import pytest

import weft as wf
from weft import errors
from weft_compiler.ir.expressions import apply
from weft_compiler.lower import region
from weft_compiler.lower.values import compute_value

X = np.linspace(-1, 1, 12).reshape(3, 4)


@pytest.fixture(autouse=True)
def _compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEFT_JIT", "now")


def _regions(session: Any, fetches: Any, feeds: Any = ()) -> list[set[str]]:
    """The ops of each region of a step."""
    report = session.explain(fetches, list(feeds))
    return [{op for _, op in nodes} for nodes in report.compiled]


def _both_ways(
    monkeypatch: pytest.MonkeyPatch,
    run: Callable[[Any], list[Any]],
    near: float = 1e-10,
    mode: str = "now",
) -> None:
    """The results of compiled programs equal those of kernels.

    Args:
      run: makes a graph and runs it in a session.
      mode: when it is compiled.
    """
    found = []
    for said in (mode, "off"):
        monkeypatch.setenv("WEFT_JIT", said)
        with wf.Graph().as_default(), wf.Session() as session:
            found.append(run(session))
    for value, want in zip(*found, strict=True):
        np.testing.assert_allclose(value, want, rtol=near, atol=near)


@pytest.mark.parametrize("resource", [False, True])
def test_a_step_with_conditionals_and_gradients_is_one_function(
    resource: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def run(session: Any) -> list[Any]:
        x = wf.placeholder(wf.float64, [3, 4])
        p, q = wf.placeholder(wf.bool, []), wf.placeholder(wf.bool, [])
        w = wf.Variable(np.linspace(-1, 1, 16).reshape(4, 4), use_resource=resource)
        h = wf.tanh(x) * 2.0
        y = wf.cond(wf.reduce_sum(h) > 0, lambda: wf.tanh(wf.matmul(h, w)), lambda: h * 2.0 + 1.0)
        z = wf.cond(
            p,
            lambda: wf.cond(q, lambda: y * wf.exp(h), lambda: wf.nn.softmax(y)),
            lambda: wf.sqrt(wf.abs(y) + 1.0),
        )
        large = wf.cond(p, lambda: wf.nn.softmax(y) * wf.exp(h), lambda: wf.square(y) - h)
        loss = wf.reduce_sum(wf.exp(-large * large))
        slopes = [s for s in wf.gradients(loss, [x, w]) if s is not None]
        change = wf.cond(p, lambda: wf.group(w.assign_add(slopes[1])), lambda: wf.no_op())
        with wf.control_dependencies([change]):
            after = w.read_value() * 1.0
        session.run(wf.global_variables_initializer())
        found: list[Any] = []
        for sign in (1.0, -1.0):
            for first in (True, False):
                for second in (True, False):
                    feed = {x: sign * (X + 0.1), p: first, q: second}
                    found += session.run([y, z, loss, *slopes, after], feed)
        if os.environ["WEFT_JIT"] == "now":
            assert len(_regions(session, [z, loss, *slopes, after], [x, p, q])) == 1
        return found

    with caplog.at_level(logging.INFO, "weft_exec.executor.native"):
        _both_ways(monkeypatch, run)
    assert not caplog.records  # nothing ran with kernels


def test_the_gradient_of_conditionals_in_conditionals_is_in_their_function(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def run(session: Any) -> list[Any]:
        inner, outer = wf.placeholder(wf.bool, []), wf.placeholder(wf.bool, [])
        x = wf.placeholder(wf.float64, [3, 4])
        h = wf.tanh(x)

        def nested() -> Any:
            here = wf.cond(inner, lambda: h * wf.exp(h), lambda: wf.nn.softmax(h))
            there = wf.cond(wf.reduce_sum(h) > 0, lambda: here * x, lambda: wf.sin(here))
            return wf.cond(outer, lambda: there * 2.0, lambda: wf.exp(there))

        y = wf.cond(outer, nested, lambda: wf.cond(inner, lambda: wf.square(h), lambda: h))
        loss = wf.reduce_sum(wf.square(y))
        fetches = [y, *wf.gradients(loss, [x])]
        if os.environ["WEFT_JIT"] == "now":
            assert len(_regions(session, fetches, [x, inner, outer])) == 1
        found: list[Any] = []
        for turn in range(8):
            feed = {x: X * (-1) ** (turn & 1) + 0.1, inner: turn & 2 > 0, outer: turn & 4 > 0}
            found += session.run(fetches, feed)
        return found

    _both_ways(monkeypatch, run)


def test_errors_of_the_side_that_is_not_taken_do_not_appear() -> None:
    p = wf.placeholder(wf.bool, [])
    x = wf.placeholder(wf.int32, [20])
    divided = wf.cond(p, lambda: x // (x - 3), lambda: x + 1)
    found = divided * 2 + x
    feed = {x: np.arange(20)}
    with wf.Session() as session:
        assert len(_regions(session, found, [p, x])) == 1
        assert session.run(found, {p: False, **feed}).tolist() == [3 * i + 2 for i in range(20)]
        with pytest.raises(errors.InvalidArgumentError, match="division by zero") as caught:
            session.run(found, {p: True, **feed})
        assert "cond/floordiv" in str(caught.value)
        assert session.run(found, {p: False, **feed})[1] == 5


def test_references_that_a_branch_hands_on_are_no_values() -> None:
    v = wf.raw_ops.VariableV2(shape=[1], dtype=wf.float32)
    lacking, there = wf.raw_ops.RefSwitch(data=v, pred=wf.is_variable_initialized(v))
    with wf.control_dependencies([wf.raw_ops.RefIdentity(input=lacking)]):
        made = wf.assign(v, [1.0])
    with wf.control_dependencies([wf.raw_ops.RefIdentity(input=there)]):
        kept = wf.identity(v)
    either, which = wf.raw_ops.Merge(inputs=[made, kept])
    with wf.Session() as session:
        assert session.run([either, which]) == [[1.0], 0]
        assert session.run([either, which]) == [[1.0], 1]


@pytest.mark.parametrize("resource", [False, True])
def test_variables_change_where_the_branch_runs(resource: bool) -> None:
    v = wf.Variable(np.zeros(5), use_resource=resource)
    p = wf.placeholder(wf.bool, [])
    x = wf.placeholder(wf.float64, [5])
    before = v.read_value() * 1.0
    with wf.control_dependencies([before]):
        first = wf.cond(
            p,
            lambda: wf.identity(v.assign_add(wf.exp(x))),
            lambda: wf.identity(v.assign_sub(x + 2.0)),
        )
    with wf.control_dependencies([first]):
        then = wf.cond(v.read_value()[0] > 0, lambda: v.read_value() * 2.0, lambda: x - 1.0)
    zeros = np.zeros(5)
    with wf.Session() as session:
        session.run(v.initializer)
        fetches = [before, first, then]
        assert len(_regions(session, fetches, [p, x])) == 1
        held = session.run(v)
        values = [each[0] for each in session.run(fetches, {p: True, x: zeros})]
        assert values == [0.0, 1.0, 2.0] and held[0] == 0.0
        values = [each[0] for each in session.run(fetches, {p: False, x: zeros})]
        assert values == [1.0, -1.0, -1.0] and session.run(v).tolist() == [-1.0] * 5


@pytest.mark.parametrize("resource", [False, True])
@pytest.mark.parametrize("depth", [1, 2])
def test_rows_change_where_the_branch_runs(
    depth: int, resource: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They change in the region of their conditional; other rows are not written."""
    programs: list[str] = []
    write = region.write

    def note(*given: Any, **more: Any) -> Any:
        program = write(*given, **more)
        programs.append(str(program))
        return program

    def run(session: Any) -> list[Any]:
        v = wf.Variable(np.linspace(0, 1, 150).reshape(50, 3), use_resource=resource)
        p, q = wf.placeholder(wf.bool, []), wf.placeholder(wf.bool, [])
        x, rows = wf.placeholder(wf.float64, [20, 3]), wf.placeholder(wf.int32, [20])

        def change() -> Any:
            y = wf.tanh(x) * 2.0 + 0.5
            slices = wf.IndexedSlices(y, rows, wf.constant([50, 3]))
            made = wf.train.GradientDescentOptimizer(0.5).apply_gradients([(slices, v)])
            with wf.control_dependencies([made]):
                return wf.sin(y) * 3.0

        inner = change if depth == 1 else lambda: wf.cond(q, change, lambda: wf.exp(x) + 1.0)
        y = wf.cond(p, inner, lambda: wf.cos(x) * 2.0)
        with wf.control_dependencies([y]):
            after = wf.sin(v.read_value()) * 2.0 + 1.0
        fetches = [wf.tanh(y) * 2.0, after]
        session.run(wf.global_variables_initializer())
        given = np.linspace(-1, 1, 60).reshape(20, 3)
        found: list[Any] = []
        for taken, also, wrong in ((True, True, 0), (False, True, 99), (True, False, 0)):
            places = [7, 7, *range(17), 49 + wrong]
            fed = {p: taken, q: also, x: given, rows: places}
            found += [*session.run(fetches, fed), session.run(v)]
        with pytest.raises(errors.InvalidArgumentError):
            session.run(fetches, {p: True, q: True, x: given, rows: [50] * 20})
        found.append(session.run(v))
        if os.environ["WEFT_JIT"] == "now":
            ops = _regions(session, fetches, [p, q, x, rows])
            change_op = "ResourceScatterSub" if resource else "ScatterSub"
            assert any({change_op, "Merge", "Cos"} <= region for region in ops), ops
        return found

    monkeypatch.setattr(region, "write", note)
    monkeypatch.setattr("weft_compiler.generator.RegionCompiler.find", lambda *_, **__: None)
    _both_ways(monkeypatch, run)
    (program,) = [each for each in programs if "update" in each]
    assert "in 50" not in program


def test_a_predicate_inside_of_a_side_that_is_known_not_to_be_taken() -> None:
    v = wf.Variable(np.ones(4), use_resource=True)
    x = wf.placeholder(wf.float64, [None])

    def inner() -> Any:
        positive = wf.reduce_sum(wf.tanh(x)) > 0
        return wf.cond(
            positive, lambda: wf.identity(v.assign_add(wf.sin(x))), lambda: wf.tanh(x) * 2.0
        )

    first = wf.cond(wf.size(x) > 4, inner, lambda: wf.sin(x))
    with wf.control_dependencies([first]):
        then = wf.exp(v.read_value()) * 1.0
    with wf.Session() as session:
        session.run(v.initializer)
        assert len(_regions(session, [first, then], [x])) == 1
        for _ in range(3):
            values = session.run([first, then], {x: np.zeros(4)})
            assert values[0].tolist() == [0.0] * 4
            np.testing.assert_allclose(values[1], np.full(4, np.e))


def test_a_variable_without_a_value_in_the_side_that_is_not_taken() -> None:
    v = wf.Variable(np.ones(5), use_resource=True)
    p = wf.placeholder(wf.bool, [])
    x = wf.placeholder(wf.float64, [5])
    y = wf.exp(wf.cond(p, lambda: v * x, lambda: wf.tanh(x)))
    with wf.Session() as session:
        assert len(_regions(session, y, [p, x])) == 1
        assert session.run(y, {p: False, x: np.zeros(5)}).tolist() == [1.0] * 5
        with pytest.raises(errors.FailedPreconditionError):
            session.run(y, {p: True, x: np.zeros(5)})
        session.run(v.initializer)
        assert session.run(y, {p: True, x: np.zeros(5)}).tolist() == [1.0] * 5


def test_what_cannot_be_compiled_leaves_its_conditional_as_it_is() -> None:
    p, x = wf.placeholder(wf.bool, []), wf.placeholder(wf.float64, [5])
    ran: list[bool] = []

    def noted(value: Any) -> Any:
        ran.append(True)
        return value

    by_kernels = wf.cond(p, lambda: wf.py_func(noted, [x], wf.float64) + 1.0, lambda: x)
    by_kernels.set_shape([5])
    y = wf.cond(p, lambda: wf.exp(by_kernels), lambda: wf.tanh(by_kernels)) + 1.0
    with wf.Session() as session:
        regions = _regions(session, y, [p, x])
        assert [("Merge" in ops) for ops in regions].count(True) == 1
        assert session.run(y, {p: False, x: np.zeros(5)}).tolist() == [1.0] * 5 and not ran
        np.testing.assert_allclose(session.run(y, {p: True, x: np.zeros(5)}), np.e + 1.0)
        assert ran


def test_both_sides_of_different_shapes_stay_with_kernels() -> None:
    p, x = wf.placeholder(wf.bool, []), wf.placeholder(wf.float64, [None])
    y = wf.tanh(wf.cond(p, lambda: wf.exp(x) * 2.0, lambda: wf.concat([x, wf.sin(x)], 0)))
    with wf.Session() as session:
        assert session.run(y, {p: False, x: np.zeros(2)}).tolist() == [0.0] * 4
        assert session.run(y, {p: True, x: np.zeros(2)}).shape == (2,)


class _Program:
    """A program with conditionals, one inside another, drawn from a seed."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.feeds: dict[Any, Any] = {}
        resource = self.random.random() < 0.5
        self.variables = [
            wf.Variable(np.linspace(k, k + 1, 4) / 4, use_resource=resource) for k in range(2)
        ]
        self.predicates = [self._fed(wf.bool, []) for _ in range(2)]
        self.last: list[Any] = []
        values = [self._fed(wf.float64, [4]), wf.constant(np.linspace(-1, 1, 4))]
        self.kept = self.steps(values, self.random.randint(3, 9), 0)
        if self.random.random() < 0.6:
            slopes = wf.gradients(wf.reduce_sum(self.kept[-1]), values[:1])
            self.kept += [slope for slope in slopes if slope is not None]

    def _fed(self, dtype: Any, shape: list[int]) -> Any:
        found = wf.placeholder(dtype, shape)
        self.feeds[found] = shape
        return found

    def steps(self, values: Sequence[Any], count: int, depth: int) -> list[Any]:
        """Return random values; each change of a variable waits for all values before it."""
        found = list(values)
        for _ in range(count):
            x, y = self.random.choice(found), self.random.choice(found)
            kind = self.random.choice(["unary", "binary", "product", "choose", "choose", "change"])
            if kind == "choose" and depth < 3:
                found += self.choose(x, y, found, depth)
            elif kind == "product":
                found.append(wf.reshape(wf.matmul(wf.tanh(x)[:, None], y[None, :]), [16])[2:6])
            elif kind == "change":
                found.append(self.change(x))
            elif kind == "binary":
                found.append(self.random.choice([wf.add, wf.multiply, wf.subtract])(x, wf.tanh(y)))
            else:
                found.append(self.random.choice([wf.tanh, wf.sin, wf.nn.softmax, wf.square])(x))
                found[-1] = wf.clip_by_value(found[-1], -3.0, 3.0)
        return found[len(values) :] or [wf.tanh(found[-1])]

    def change(self, x: Any) -> Any:
        """A change of a variable or a read, in order with all others."""
        variable = self.random.choice(self.variables)
        with wf.control_dependencies(self.last):
            if self.random.random() < 0.4:
                found = wf.tanh(variable.read_value() * 0.7 + x)
            else:
                how = self.random.choice(["assign", "assign_add", "assign_sub"])
                found = wf.identity(getattr(variable, how)(wf.sin(x))) * 1.0
        self.last = [found]
        return found

    def choose(self, x: Any, y: Any, values: Sequence[Any], depth: int) -> list[Any]:
        predicate = self.random.choice([*self.predicates, wf.reduce_sum(x) > 0.1, y[1] < x[2]])
        count = self.random.randint(1, 2)
        before = self.last

        def side() -> list[Any]:
            self.last = before
            steps = self.steps(values, self.random.randint(0, 4), depth + 1)
            with wf.control_dependencies(self.last if self.last is not before else []):
                return [wf.identity(self.random.choice([*steps, x])) for _ in range(count)]

        with wf.control_dependencies(before):
            found = wf.cond(predicate, side, side)
        found = list(found) if isinstance(found, list | tuple) else [found]
        self.last = [*before, *[each.op for each in found]]
        return found

    def feed(self, turn: int) -> dict[Any, Any]:
        draw = np.random.default_rng(turn)
        return {
            key: draw.standard_normal(shape) if shape else bool(draw.integers(2))
            for key, shape in self.feeds.items()
        }


def _results(seed: int, session: Any) -> list[Any]:
    """Return the results of some steps of a program, and the final values of its variables."""
    program = _Program(seed)
    session.run(wf.global_variables_initializer())
    found: list[Any] = []
    for turn in range(4):
        found += session.run(program.kept, program.feed(turn))
        found += session.run(program.variables)
    return found


def _agree(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    _both_ways(monkeypatch, partial(_results, seed), 1e-7)


@pytest.mark.parametrize("first", range(0, 30, 10))
def test_conditionals_do_what_kernels_do(first: int, monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in range(first, first + 10):
        _agree(seed, monkeypatch)


def test_a_gradient_needs_the_outer_conditional_of_what_it_takes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _agree(2217, monkeypatch)


@pytest.mark.parametrize("seed", [1298, 2264])
def test_a_change_in_a_branch_of_a_branch_is_chosen_inside_of_the_outer_one(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    _agree(seed, monkeypatch)


def test_members_in_branches_run_by_their_kernels_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """Predicates are known where they decide, not only where a branch hands them on."""
    for seed in (6, 11, 17):
        _both_ways(monkeypatch, partial(_results, seed), 1e-7, "on")


def _checking() -> Any:
    config = wf.ConfigProto()
    config.experimental.jit_check = True
    return wf.Session(config=config)


def _check(seeds: Sequence[int]) -> None:
    for seed in seeds:
        with wf.Graph().as_default(), _checking() as session:
            _results(seed, session)


def test_jit_check_finds_nothing_wrong_with_conditionals() -> None:
    _check(range(40, 52))


@pytest.mark.long
@pytest.mark.parametrize("first", range(5000, 6000, 100))
def test_jit_check_finds_nothing_wrong_with_many_conditionals(first: int) -> None:
    _check(range(first, first + 100))


def test_jit_check_names_what_differs_in_the_side_that_is_taken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    p, x = wf.placeholder(wf.bool, []), wf.placeholder(wf.float64, [4])
    v = wf.Variable(np.ones(4), use_resource=True)

    def then() -> Any:
        return wf.exp(wf.tanh(wf.sin(x * v), name="wrong")) * 2.0

    y = wf.cond(p, then, lambda: wf.sin(x) * 3.0) + 1.0
    elementwise = region._elementwise

    def wrong(op: Any) -> Any:
        if op.node.type != "Tanh":
            return elementwise(op)
        return compute_value(op.name, op.dtype(), op.shape(), lambda *at: op.inputs[0].at(*at))

    monkeypatch.setattr(region, "_elementwise", wrong)
    with _checking() as session:
        session.run(v.initializer)
        assert len(_regions(session, y, [p, x])) == 1
        np.testing.assert_allclose(session.run(y, {p: False, x: X[0]}), np.sin(X[0]) * 3 + 1)
        with pytest.raises(
            errors.InternalError, match=r"(?s)jit_check: Tanh returns .*node 'cond.*/wrong'"
        ):
            session.run(y, {p: True, x: X[0]})


@pytest.mark.parametrize("side", [True, False])
def test_jit_check_names_what_changes_a_variable_otherwise(
    side: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    p, x = wf.placeholder(wf.bool, []), wf.placeholder(wf.float64, [4])
    v = wf.Variable(np.ones(4))
    change = wf.cond(
        p,
        lambda: wf.group(v.assign_add(wf.sin(x) * 2.0)),
        lambda: wf.group(v.assign_sub(wf.exp(x) * 2.0)),
    )
    after = region.PathConditions.value_after

    def wrong(self: Any, path: Any, new: Any, old: Any) -> Any:
        more = compute_value(
            new.name, new.dtype, new.shape, lambda *at: apply("add", new.at(*at), new.at(*at))
        )
        return after(self, path, more, old)

    monkeypatch.setattr(region.PathConditions, "value_after", wrong)
    name = "AssignAdd returns" if side else "AssignSub returns"
    with _checking() as session:
        session.run(v.initializer)
        with pytest.raises(errors.InternalError, match=f"jit_check: {name}"):
            session.run(change, {p: side, x: X[0]})


@pytest.mark.long
@pytest.mark.parametrize("first", range(1000, 3000, 100))
def test_many_conditionals_do_what_kernels_do(first: int, monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in range(first, first + 100):
        _agree(seed, monkeypatch)
