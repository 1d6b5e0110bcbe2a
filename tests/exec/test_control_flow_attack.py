"""Loops and conditionals where their execution is likely to go wrong."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import weft as wf
from weft import errors
from weft_graph.tensor_array import TensorArray

WAYS = [(kind, level) for kind in ("", "READY_QUEUE") for level in (0, -1)]


@pytest.fixture(autouse=True)
def graph() -> Iterator[wf.Graph]:
    with wf.Graph().as_default() as made:
        yield made


@pytest.fixture(params=WAYS, ids=lambda way: f"{way[0] or 'LINE'}{way[1]}")
def session(request: pytest.FixtureRequest) -> Iterator[wf.Session]:
    proto = wf.ConfigProto(inter_op_parallelism_threads=2)
    proto.experimental.executor_type, proto.graph_options.optimizer_options.opt_level = (
        request.param
    )
    with wf.Session(config=proto) as made:
        yield made


# ---------------------------------------------------------------------------------- effects


def test_one_branch_reads_what_the_other_updates(session: wf.Session) -> None:
    """An update does not wait for a look in a branch that is not taken."""
    p = wf.placeholder(wf.bool, [])
    v = wf.Variable(1.0, use_resource=True)
    session.run(v.initializer)
    y = wf.cond(p, lambda: v.assign_add(1.0) + 0.0, lambda: v * 2.0)
    assert session.run(y, {p: False}) == 2
    assert session.run(y, {p: True}) == 2
    assert session.run(y, {p: False}) == 4


def test_both_branches_update_one_variable(session: wf.Session) -> None:
    p = wf.placeholder(wf.bool, [])
    v = wf.Variable(1.0, use_resource=True)
    session.run(v.initializer)
    done = wf.cond(p, lambda: wf.group(v.assign_add(1.0)), lambda: wf.group(v.assign_add(10.0)))
    with wf.control_dependencies([done]):
        y = v.read_value()
    assert session.run(y, {p: True}) == 2
    assert session.run(y, {p: False}) == 12


@pytest.mark.parametrize("resource", [False, True])
def test_both_branches_read_and_update_one_variable(session: wf.Session, resource: bool) -> None:
    p = wf.placeholder(wf.bool, [])
    v = wf.Variable(1.0, use_resource=resource)
    session.run(v.initializer)

    def more(amount: float) -> Any:
        return wf.group(v.assign(v.read_value() + amount))

    done = wf.cond(p, lambda: more(1.0), lambda: more(10.0))
    with wf.control_dependencies([done]):
        y = wf.identity(v.read_value())
    assert session.run(y, {p: True}) == 2
    assert session.run(y, {p: False}) == 12


def test_an_update_outside_of_branches_that_look(session: wf.Session) -> None:
    p = wf.placeholder(wf.bool, [])
    v = wf.Variable(1.0, use_resource=True)
    session.run(v.initializer)
    y = wf.cond(p, lambda: v * 2.0, lambda: wf.constant(0.0))
    bump = v.assign_add(1.0)
    assert session.run([y, bump], {p: False})[1] == 2
    assert session.run([y, bump], {p: True}) == [4, 3]


def test_the_result_of_an_update_is_used_in_a_branch_and_outside(session: wf.Session) -> None:
    p = wf.placeholder(wf.bool, [])
    v = wf.Variable(1.0, use_resource=True)
    session.run(v.initializer)
    bump = v.assign_add(1.0)

    def then() -> Any:
        with wf.control_dependencies([bump]):
            return wf.constant(5.0)

    y = wf.cond(p, then, lambda: wf.constant(6.0))
    with wf.control_dependencies([y, bump]):
        z = v.read_value()
    assert session.run([y, z], {p: True}) == [5, 2]
    assert session.run([y, z], {p: False}) == [6, 3]


# ---------------------------------------------------------------------------------- building


def test_true_fn_is_called_first() -> None:
    """So nodes and variables made in branches have the names they have in TensorFlow."""
    called = []
    wf.cond(
        wf.placeholder(wf.bool, []),
        lambda: called.append("true") or wf.constant(1),
        lambda: called.append("false") or wf.constant(2),
    )
    assert called == ["true", "false"]


def test_a_loop_colocated_with_a_node(session: wf.Session) -> None:
    x = wf.placeholder(wf.float64, [])
    z = wf.sqrt(x)
    with wf.colocate_with(z):
        y = wf.while_loop(lambda i, a: i < 3, lambda i, a: (i + 1, a * x), [0, x])[1]
    assert session.run(y, {x: 2.0}) == 16


def test_branches_return_one_tensor_array() -> None:
    """Arrays that branches make have handles of their own, and only one can be the result."""

    def made(value: float) -> TensorArray:
        return TensorArray(wf.float64, size=1).write(0, wf.constant(value, wf.float64))

    with pytest.raises(errors.InvalidArgumentError, match="TensorArray"):
        wf.cond(wf.placeholder(wf.bool, []), lambda: made(1.0), lambda: made(2.0))


def test_a_body_returns_the_tensor_array_it_was_given() -> None:
    def body(i: Any, _: Any) -> Any:
        other = TensorArray(wf.float64, size=1)
        return i + 1, other.write(0, wf.constant(5.0, wf.float64))

    with pytest.raises(errors.InvalidArgumentError, match="TensorArray"):
        wf.while_loop(lambda i, _: i < 2, body, [0, TensorArray(wf.float64, size=1)])


def test_branches_that_are_tensors() -> None:
    x = wf.constant(1.0)
    with pytest.raises(TypeError, match="true_fn to be callable"):
        wf.cond(wf.placeholder(wf.bool, []), x, x)


def test_parallel_iterations_of_numpy(session: wf.Session) -> None:
    loop = wf.while_loop(lambda i: i < 3, lambda i: i + 1, [0], parallel_iterations=np.int64(4))
    assert session.run(loop) == 3


# ------------------------------------------------------------------------- feeding and freezing


def test_a_value_inside_of_a_loop_is_not_fed(session: wf.Session) -> None:
    x, inside = wf.placeholder(wf.float64, []), []

    def body(i: Any, a: Any) -> Any:
        inside.append(a * x)
        return i + 1, inside[0]

    y = wf.while_loop(lambda i, _: i < 3, body, [0, x])[1]
    with pytest.raises(errors.InvalidArgumentError, match="inside the loop"):
        session.run(y, {x: 2.0, inside[0]: 1.0})


def test_freezing_variables_that_loops_and_branches_use(session: wf.Session) -> None:
    x = wf.placeholder(wf.float64, [], name="x")
    p = wf.placeholder(wf.bool, [], name="p")
    v = wf.get_variable("v", initializer=np.float64(1.5), use_resource=True)
    w = wf.get_variable("w", initializer=np.float64(0.5), use_resource=False)

    def body(i: Any, a: Any) -> Any:
        return i + 1, a * v + wf.cond(p, lambda: w * x, lambda: v * 1.0)

    y = wf.while_loop(lambda i, _: i < 3, body, [0, x])[1]
    wf.identity(y, name="y")
    session.run(wf.global_variables_initializer())
    graph_def = wf.get_default_graph().as_graph_def()
    frozen = wf.graph_util.convert_variables_to_constants(session, graph_def, ["y"])
    with wf.Graph().as_default(), wf.Session() as other:
        feeds = wf.import_graph_def(frozen, name="", return_elements=["x:0", "p:0", "y:0"])
        assert other.run(feeds[2], {feeds[0]: 2.0, feeds[1]: True}) == 11.5
        assert other.run(feeds[2], {feeds[0]: 2.0, feeds[1]: False}) == 13.875


def test_a_loop_imported_into_a_body(session: wf.Session) -> None:
    with wf.Graph().as_default() as inner:
        a = wf.placeholder(wf.float64, [], name="a")
        b = wf.while_loop(lambda i, _: i < 3, lambda i, v: (i + 1, v * a), [0, a])[1]
        graph_def = inner.as_graph_def()

    def imported(value: Any) -> Any:
        (found,) = wf.import_graph_def(
            graph_def, {"a:0": value}, return_elements=[b.name], name="imported"
        )
        found.set_shape([])
        return found

    x, p = wf.placeholder(wf.float64, []), wf.placeholder(wf.bool, [])
    y = wf.while_loop(lambda i, _: i < 2, lambda i, v: (i + 1, imported(v) * 0.5), [0, x])[1]
    z = wf.cond(p, lambda: imported(x), lambda: x)
    assert session.run([y, z], {x: 2.0, p: True}) == [2048, 16]
    assert session.run(z, {x: 2.0, p: False}) == 2
