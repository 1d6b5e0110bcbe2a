"""Loops and conditionals where their execution is likely to go wrong."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import weft as wf
from weft import errors

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


def test_an_update_outside_of_branches_that_look(session: wf.Session) -> None:
    p = wf.placeholder(wf.bool, [])
    v = wf.Variable(1.0, use_resource=True)
    session.run(v.initializer)
    y = wf.cond(p, lambda: v * 2.0, lambda: wf.constant(0.0))
    bump = v.assign_add(1.0)
    assert session.run([y, bump], {p: False})[1] == 2
    assert session.run([y, bump], {p: True}) == [4, 3]


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
