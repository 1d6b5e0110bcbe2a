"""Several updates of a variable, or of rows of it, in one compiled region."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pytest

import weft as wf
from weft import errors
from weft_exec.resources.resources import VariableState
from weft_graph.ops.training import RULES, apply_update


@pytest.fixture(autouse=True)
def _compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEFT_JIT", "now")


def _regions(session: Any, fetches: Any, feeds: Any = ()) -> list[list[str]]:
    """The ops of each region of a step."""
    report = session.explain(fetches, list(feeds))
    return [sorted({op for _, op in nodes}) for nodes in report.compiled]


@pytest.mark.parametrize("resource", [False, True])
def test_decay_training_and_averages_of_a_variable_are_one_function(
    resource: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = {}
    for said in ("off", "now"):
        monkeypatch.setenv("WEFT_JIT", said)
        with wf.Graph().as_default(), wf.Session() as session:
            variables = [
                wf.Variable(np.linspace(k - 2, k, 12).reshape(4, 3), use_resource=resource)
                for k in range(2)
            ]
            loss = sum(wf.reduce_sum(wf.tanh(v) * v) for v in variables)
            slopes, _ = wf.clip_by_global_norm(wf.gradients(loss, variables), 1.0)
            decay = [v.assign_sub(0.1 * v.read_value()) for v in variables]
            with wf.control_dependencies([wf.group(decay)]):
                adam = wf.train.AdamOptimizer(0.1)
                step = adam.apply_gradients(zip(slopes, variables, strict=True))
            averages = wf.train.ExponentialMovingAverage(0.9)
            with wf.control_dependencies([step]):
                step = averages.apply(variables)
            session.run(wf.global_variables_initializer())
            for _ in range(3):
                session.run(step)
            found[said] = session.run(wf.global_variables())
            if said == "now":
                assert len(_regions(session, step)) == 1
    for value, want in zip(found["now"], found["off"], strict=True):
        np.testing.assert_allclose(value, want, rtol=1e-10)


def test_what_changes_give_is_read_when_it_is_taken() -> None:
    v = wf.Variable(np.zeros(3))
    x = wf.placeholder(wf.float64, [3])
    first = wf.assign_add(v, wf.exp(x))
    once = first * 2.0
    with wf.control_dependencies([once]):
        second = wf.assign_sub(v, wf.exp(x) * 5.0)
    again = second + first
    feeds = {x: np.zeros(3)}
    with wf.Session() as session:
        session.run(v.initializer)
        assert len(_regions(session, [once, first, again, second], feeds)) == 1
        values = session.run([once, first, again, second], feeds)
        assert [value[0] for value in values] == [2.0, -4.0, -8.0, -4.0]
        assert session.run(v).tolist() == [-4.0] * 3


def test_changes_of_what_changes_give() -> None:
    v = wf.Variable(np.ones(2))
    x = wf.placeholder(wf.float64, [2])
    step = wf.assign_sub(wf.assign_add(wf.assign(v, wf.exp(x)), x), wf.tanh(x) * 0.0 + 5.0)
    with wf.Session() as session:
        session.run(v.initializer)
        assert len(_regions(session, step, [x])) == 1
        assert session.run(step, {x: np.zeros(2)}).tolist() == [-4.0, -4.0]
        assert session.run(step * 2.0, {x: np.zeros(2)}).tolist() == [-8.0, -8.0]


def test_a_variable_is_added_to_itself() -> None:
    v, w = wf.Variable(np.ones(2)), wf.Variable(np.full(2, 3.0))
    doubled = wf.assign_add(v, v)
    with wf.control_dependencies([doubled]):
        added = wf.assign_add(w, v)
    with wf.control_dependencies([added]):
        step = wf.assign_add(v, w)
    with wf.Session() as session:
        session.run(wf.global_variables_initializer())
        session.run([step.op])
        assert session.run([v, w])[0].tolist() == [7.0, 7.0]
        assert session.run(w).tolist() == [5.0, 5.0]


def test_kernels_outside_take_what_a_region_has_left() -> None:
    v = wf.Variable(np.arange(3.0))
    first = wf.assign_add(v, wf.exp(wf.zeros(3, wf.float64)) + 1.0)
    largest = wf.nn.top_k(first, 1).values  # by its kernel
    with wf.control_dependencies([largest]):
        second = wf.assign_sub(first, wf.exp(wf.zeros(3, wf.float64)) + 9.0)
    with wf.Session() as session:
        session.run(v.initializer)
        assert [v.tolist() for v in session.run([largest, second])] == [[4.0], [-8.0, -7.0, -6.0]]


@pytest.mark.parametrize("resource", [False, True])
def test_what_is_read_after_a_change_is_not_copied_for_those_outside(
    resource: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    copies: list[Any] = []
    copy = VariableState._copy
    monkeypatch.setattr(
        VariableState, "_copy", lambda self, value: copies.append(value) or copy(self, value)
    )
    v = wf.Variable(np.ones(4), use_resource=resource)
    x = wf.placeholder(wf.float64, [4])
    step = v.assign_add(wf.exp(x) + 1.0)
    with wf.control_dependencies([step]):
        read = v.read_value()
    inside = wf.tanh(read) * 2.0
    largest = wf.nn.top_k(read, 2).values
    with wf.Session() as session:
        session.run(v.initializer)
        fetched = [inside, largest]
        for turn in range(1, 4):
            values = session.run(fetched, {x: np.zeros(4)})
            np.testing.assert_allclose(values[0], np.tanh(1 + 2 * turn) * 2 * np.ones(4))
            assert values[1].tolist() == [1.0 + 2 * turn] * 2
        assert not copies
        only_inside = wf.tanh(read) * 2.0
        assert len(_regions(session, only_inside, [x])) == 1
        value = session.run(only_inside, {x: np.zeros(4)})
        np.testing.assert_allclose(value, np.tanh(9.0) * 2 * np.ones(4))


def test_a_function_of_several_changes_that_fails_has_made_none() -> None:
    v = wf.Variable(np.zeros((3, 2)))
    rows, x = wf.placeholder(wf.int32, [None]), wf.placeholder(wf.float64, [3, 2])
    first = wf.assign_add(v, wf.exp(x) + 1.0)
    taken = wf.gather(first, rows, name="taken") * 2.0
    with wf.control_dependencies([taken]):
        second = wf.assign_add(v, wf.exp(x) + 1.0)
    fetches = [taken, second]
    with wf.Session() as session:
        session.run(v.initializer)
        zeros = np.zeros((3, 2))
        assert len(_regions(session, fetches, [rows, x])) == 1
        assert session.run(fetches, {rows: [0, 2], x: zeros})[0].tolist() == [[4.0, 4.0]] * 2
        assert session.run(v).tolist() == [[4.0, 4.0]] * 3
        with pytest.raises(errors.InvalidArgumentError, match="node 'taken'"):
            session.run(fetches, {rows: [0, 3], x: zeros})
        assert session.run(v).tolist() == [[6.0, 6.0]] * 3  # as by kernels


def test_constants_may_wait_for_changes() -> None:
    v = wf.Variable(np.zeros(2))
    x = wf.placeholder(wf.float64, [2])
    with wf.control_dependencies([wf.assign_add(v, wf.exp(x))]):
        late = wf.constant(np.full(2, 3.0))
        step = wf.assign_add(v, wf.exp(x) * late)
        outside = wf.nn.top_k(late, 1).values
    with wf.Session() as session:
        session.run(v.initializer)
        assert len(_regions(session, [step, outside], [x])) == 1
        values = session.run([step, outside], {x: np.zeros(2)})
        assert [value.tolist() for value in values] == [[4.0, 4.0], [3.0]]


def test_rows_are_changed_after_all_of_a_variable_in_one_function() -> None:
    v = wf.Variable(np.ones((4, 2)))
    x = wf.placeholder(wf.float64, [2, 2])
    halved = wf.assign(v, v * 0.5)
    with wf.control_dependencies([halved]):
        step = wf.scatter_add(v, [3, 3], wf.exp(x) + 1.0)
    with wf.Session() as session:
        session.run(v.initializer)
        assert len(_regions(session, step.op, [x])) == 1
        session.run(step.op, {x: np.zeros((2, 2))})
        assert session.run(v).tolist() == [[0.5, 0.5]] * 3 + [[4.5, 4.5]]


def test_rows_of_variables_are_changed_by_each_other_and_by_themselves() -> None:
    v, w = wf.Variable(np.arange(3.0)), wf.Variable(np.arange(3.0) * 10)
    old_v, old_w = v * 1.0, w * 1.0
    with wf.control_dependencies([old_v, old_w]):
        step = wf.group(
            wf.scatter_add(v, [2, 1, 0], wf.identity(old_w)),
            wf.scatter_add(w, [2, 1, 0], wf.identity(old_v)),
        )
    itself = wf.scatter_add(v, [2, 2, 0], wf.reshape(v, [3]))
    with wf.Session() as session:
        session.run(wf.global_variables_initializer())
        session.run(step)
        assert [a.tolist() for a in session.run([v, w])] == [[20.0, 11.0, 2.0], [2.0, 11.0, 20.0]]
        session.run([itself.op, wf.exp(itself)])
        assert session.run(v).tolist() == [22.0, 11.0, 33.0]


SPARSE = [name for name, rule in RULES.items() if rule.sparse]


@pytest.mark.parametrize("resource", [False, True])
@pytest.mark.parametrize("rule", SPARSE)
def test_optimizers_change_rows_as_their_kernels_do(
    rule: str, resource: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Equal indices count one after the other, and one out of range changes nothing."""
    for dtype, near in ((np.float16, 2e-3), (np.float32, 4e-6), (np.float64, 1e-13)):
        compiled, message = _rows_trained(rule, resource, dtype)
        with monkeypatch.context() as patch:
            patch.setenv("WEFT_JIT", "off")
            by_kernels, wanted = _rows_trained(rule, resource, dtype)
        assert message == wanted and "[0, 6), got 6 at position 5" in message
        for value, want in zip(compiled, by_kernels, strict=True):
            np.testing.assert_allclose(value, want, rtol=near, atol=near)


def _rows_trained(rule: str, resource: bool, dtype: Any) -> tuple[list[Any], str]:
    """Return the variables after two updates and a failing one, and its error message."""
    of = RULES[rule]
    with wf.Graph().as_default(), wf.Session() as session:
        start = np.linspace(0.1, 2, 18).reshape(6, 3)
        states = [
            wf.Variable((start + 0.3 * at).astype(dtype), use_resource=resource)
            for at in range(len(of.states))
        ]
        x, rows = wf.placeholder(dtype, [None, 3]), wf.placeholder(wf.int32, [None])
        given: dict[str, Any] = {
            name: wf.constant(np.array(0.3 + 0.05 * at, dtype)) for at, name in enumerate(of.sparse)
        }
        given |= {"grad": wf.tanh(x) - 0.3, "indices": rows}
        given |= {"global_step": wf.constant(3, wf.int64)} if "global_step" in given else {}
        step = apply_update(rule, states, given, name="step")
        session.run(wf.global_variables_initializer())
        feeds = {x: np.linspace(-1, 1, 18).reshape(6, 3), rows: [1, 4, 1, 1, 0, 5]}
        for _ in range(2):
            session.run(step, feeds)
        before = session.run(states)
        with pytest.raises(errors.InvalidArgumentError) as caught:
            session.run(step, feeds | {rows: [0, 0, 0, 0, 0, 6]})
        found = session.run(states)
        np.testing.assert_array_equal(found, before)
        empty = {x: np.zeros((0, 3)), rows: np.zeros(0)}
        session.run(step, empty)
        np.testing.assert_array_equal(session.run(states), before)
        if os.environ["WEFT_JIT"] == "now":
            assert _regions(session, step, [x, rows]) == [sorted(["Sub", "Tanh", step.type])]
        return found, caught.value.message.splitlines()[0]
