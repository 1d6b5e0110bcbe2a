"""Pruning, simplification and common subexpressions: counts, and the same numbers after."""

from __future__ import annotations

import sys

import numpy as np
import pytest

import weft as wf
from weft_graph.passes import StepGraph, eliminate_common_subexpressions, prune, simplify


@pytest.fixture(autouse=True)
def graph() -> wf.Graph:
    with wf.Graph().as_default() as made:
        yield made


def types(step: StepGraph) -> list[str]:
    return sorted(node.type for node in step.live_nodes())


def test_prune_keeps_what_is_needed_and_cuts_at_feeds(graph: wf.Graph) -> None:
    a = wf.placeholder(wf.float32, [], name="a")
    b = wf.exp(a, name="b")
    c = wf.negative(b, name="c")
    wf.square(c, name="unused")
    step = prune([b], [c], [])
    assert [node.name for node in step.live_nodes()] == ["_arg0_b_0", "c"]
    step.graph.check_integrity()
    graph.check_integrity()


def test_prune_follows_control_inputs() -> None:
    before = wf.no_op(name="before")
    with wf.control_dependencies([before]):
        c = wf.constant(1.0)
    assert types(prune([], [c], [])) == ["Const", "NoOp"]


def test_common_subexpressions_are_merged_once_equal() -> None:
    x = wf.placeholder(wf.float32, [2])
    a = wf.exp(x) + wf.exp(x)
    b = wf.exp(x) + wf.exp(x)
    step = prune([x], [a, b], [])
    assert eliminate_common_subexpressions(step) == 4
    assert types(step) == ["AddV2", "Exp", "_Arg"]
    assert eliminate_common_subexpressions(step) == 0
    step.graph.check_integrity()


@pytest.mark.parametrize("device", ["", "/cpu:0"])
def test_nodes_that_differ_are_not_merged(device: str) -> None:
    x = wf.placeholder(wf.float32, [2, 2])
    fetches = [
        wf.matmul(x, x),
        wf.matmul(x, x, transpose_a=True),
        wf.constant(0.0),
        wf.constant(-0.0),
        wf.constant(0),
        wf.random_uniform([], seed=1),
        wf.random_uniform([], seed=1),
    ]
    with wf.device(device):
        fetches.append(wf.matmul(x, x))
    step = prune([x], fetches, [])
    eliminate_common_subexpressions(step)
    assert len(set(step.fetches)) == len(fetches) - (device == "")


@pytest.mark.parametrize(
    ("narrow", "wide", "is_exact"),
    [
        ("int32", "float64", True),
        ("int32", "float32", False),
        ("int64", "float64", False),
        ("uint8", "int16", True),
        ("uint8", "int8", False),
        ("int16", "float32", True),
        ("float32", "float64", False),  # a signaling NaN comes back quiet
        ("bool", "int32", False),
    ],
)
def test_casts_there_and_back_go_where_nothing_is_lost(
    narrow: str, wide: str, is_exact: bool
) -> None:
    x = wf.placeholder(narrow, [3])
    step = prune([x], [wf.cast(wf.cast(x, wide), narrow)], [])
    simplify(step)
    assert types(step) == (["_Arg"] if is_exact else ["Cast", "Cast", "_Arg"])


def test_simplification_keeps_the_numbers() -> None:
    x = wf.placeholder(wf.float32, [2, 3])
    y = x
    for _ in range(7):
        y = wf.negative(y)
    z = wf.reshape(wf.identity(wf.cast(y, wf.float32)), [2, 3])
    step = prune([x], [z], [])
    assert simplify(step) > 0
    assert types(step) == ["Neg", "_Arg"]
    value = np.array([[0.0, -0.0, np.inf], [1, -2, np.nan]], np.float32)
    with wf.Session() as session:
        np.testing.assert_array_equal(session.run(z, {x: value}), -value)


def test_a_control_input_of_a_merged_node_is_kept() -> None:
    x = wf.placeholder(wf.float32, [])
    a, b = wf.exp(x), wf.exp(x)
    with wf.control_dependencies([b]):
        c = wf.negative(a)
    step = prune([x], [c], [])
    eliminate_common_subexpressions(step)
    assert types(step) == ["Exp", "Neg", "_Arg"]
    step.graph.check_integrity()


@pytest.mark.parametrize("kind", ["neg", "exp", "fan"])
def test_planning_is_near_linear(kind: str) -> None:
    """Ten times the nodes take ten times the calls, where a quadratic pass takes a hundred."""
    assert calls_to_plan(kind, 3000) < 15 * calls_to_plan(kind, 300)


def calls_to_plan(kind: str, count: int) -> int:
    calls = 0

    def counted(frame: object, event: str, argument: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    with wf.Graph().as_default(), wf.Session() as session:
        x = wf.placeholder(wf.float32, [])
        y = x
        for _ in range(count):
            y = -y if kind == "neg" else wf.exp(y) if kind == "exp" else y + x
        session.run(x, {x: 1.0})
        sys.setprofile(counted)
        try:
            session.run(y, {x: 0.0})
        finally:
            sys.setprofile(None)
    return calls
