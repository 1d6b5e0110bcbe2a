"""Specialization of a step: bound placeholders, folded conditionals, dropped masks and updates."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import weft as wf
from weft_graph.freezing import specialize_graph
from weft_graph.passes import prune
from weft_graph.passes.specialize import fold_conditionals, specialize

X = np.array([1.0, -2.0, 3.0], np.float32)


@pytest.fixture(autouse=True)
def graph() -> Any:
    with wf.Graph().as_default() as made:
        yield made


def types(output: Any) -> set[str]:
    return {node.type for node in output.graph.nodes}


def specialized(x: Any, y: Any, values: Any = None, **fed: Any) -> Any:
    """The copy of `y`, which must have the value of the original, whole and from a new session."""
    (copy_x,), (copy_y,) = specialize_graph([x], [y], values)
    copy_y.graph.check_integrity()
    feeds = {key: value.item() for key, value in (values or {}).items()}
    with wf.Session(graph=y.graph) as session:
        session.run(wf.global_variables_initializer())
        expected = session.run(y, {x: X, **feeds})
    if not types(copy_y) & {"VariableV2", "VarHandleOp"}:
        with wf.Session(graph=copy_y.graph) as session:
            np.testing.assert_array_equal(session.run(copy_y, {copy_x: X}), expected)
    return copy_y


@pytest.mark.parametrize("training", [None, False, True])
def test_a_conditional_becomes_the_branch_that_is_taken(training: bool | None) -> None:
    x = wf.placeholder(wf.float32, [3], name="x")
    switch = wf.placeholder_with_default(False, [], name="training")
    y = wf.cond(switch, lambda: wf.exp(x) + 1.0, lambda: wf.square(x) + 2.0)
    values = None if training is None else {switch: np.array(training)}
    found = types(specialized(x, y, values))
    assert found == {"Placeholder", "Const", "AddV2", "Exp" if training else "Square", "Identity"}


def test_nested_conditionals_with_computed_predicates() -> None:
    x = wf.placeholder(wf.float32, [3], name="x")
    mode = wf.placeholder_with_default(2, [], name="mode")
    inner = wf.logical_not(wf.equal(mode, 2))
    chosen = wf.cond(mode > 1, lambda: wf.cond(inner, lambda: 1, lambda: 7), lambda: 3)
    y = wf.cond(wf.equal(chosen, 7), lambda: wf.exp(x), lambda: x / 0.0)
    y = wf.cond(x[0] > 0.0, lambda: wf.cond(inner, lambda: y, lambda: -y), lambda: y)
    copy = specialized(x, y)
    assert len([node for node in copy.graph.nodes if node.type == "Merge"]) == 1
    assert not types(copy) & {"RealDiv", "PlaceholderWithDefault", "LogicalNot"}


@pytest.mark.parametrize("training", [False, True])
def test_loops_in_branches_and_branches_in_loops(training: bool) -> None:
    x = wf.placeholder(wf.float32, [3], name="x")
    switch = wf.placeholder(wf.bool, [], name="training")

    def repeated() -> Any:
        def body(i: Any, v: Any) -> Any:
            return i + 1, wf.cond(switch, lambda: v * 2.0, lambda: v + wf.constant(1.0))

        return wf.while_loop(lambda i, v: i < 3, body, [0, x])[1]

    y = wf.cond(switch, lambda: repeated() - 1.0, lambda: x) + repeated()
    copy = specialized(x, y, {switch: np.array(training)})
    loops = [node for node in copy.graph.nodes if node.type == "LoopCond"]
    assert len(loops) == (2 if training else 1)
    assert ("Mul" in types(copy)) == training


def test_the_index_of_a_merge_is_known_as_well() -> None:
    x = wf.placeholder(wf.float32, [3], name="x")
    lower, upper = wf.raw_ops.Switch(data=x, pred=wf.constant(True))
    merged, index = wf.raw_ops.Merge(inputs=[lower * 2.0, upper * 3.0])
    copy = specialized(x, merged * wf.cast(index, wf.float32))
    assert "Merge" not in types(copy)


def test_what_waits_in_a_branch_waits_for_effects_only() -> None:
    x = wf.placeholder(wf.float32, [3], name="x")
    switch = wf.placeholder_with_default(True, [])
    check = wf.Assert(x[0] > 0.0, [x])

    def checked() -> Any:
        with wf.control_dependencies([check]):
            return wf.constant(5.0)

    (_,), (y,) = specialize_graph([x], [wf.cond(switch, checked, lambda: 0.0) + x])
    waiting = {node.type for node in y.graph.nodes for _ in node.controls}
    assert waiting <= {"Const", "Identity"}
    with wf.Session(graph=y.graph) as session, pytest.raises(wf.errors.InvalidArgumentError):
        session.run(y, {"x:0": -X})


def test_a_result_of_the_branch_that_is_not_taken_is_refused_by_name() -> None:
    x = wf.placeholder(wf.float32, [3], name="x")
    inside = []
    switch = wf.placeholder_with_default(False, [])
    wf.cond(switch, lambda: inside.append(wf.exp(x, name="lost")) or inside[0], lambda: x)
    with pytest.raises(wf.errors.InvalidArgumentError, match="not taken") as caught:
        specialize_graph([x], inside)
    assert caught.value.node == "cond/lost" and "test_specialize" in caught.value.line


def test_loops_that_run_for_ever_are_no_conditionals() -> None:
    x = wf.placeholder(wf.float32, [3], name="x")
    y = wf.while_loop(lambda v: wf.constant(True), lambda v: v * 2.0, [x])
    assert fold_conditionals(prune([x], [y], [])) == 0


@pytest.mark.parametrize("form", ["rate", "keep_prob", "floor", "scaled", "noise_shape"])
@pytest.mark.parametrize("keeps", [True, False])
def test_dropout_masks_go_where_they_keep_everything(form: str, keeps: bool) -> None:
    x = wf.placeholder(wf.float32, [None], name="x")
    keep = wf.placeholder_with_default(1.0, [])
    sampled = wf.random_uniform(wf.shape(x), wf.constant(0.0), wf.constant(1.0))
    y = {
        "rate": lambda: wf.nn.dropout(x, rate=1.0 - keep),
        "keep_prob": lambda: wf.nn.dropout(x, keep_prob=keep),
        "floor": lambda: x / keep * wf.floor(keep + wf.random_uniform(wf.shape(x))),
        "scaled": lambda: x * wf.cast(sampled >= 1.0 - keep, wf.float32),
        "noise_shape": lambda: wf.nn.dropout(x, keep_prob=keep, noise_shape=wf.shape(x[:1])),
    }[form]()
    if keeps:
        copy = specialized(x, y)
        assert ("Fill" in types(copy)) == (form == "noise_shape")
    else:
        _, (copy,) = specialize_graph([x], [y], {keep: np.float32(0.5)})
    assert ("RandomUniform" in types(copy)) != keeps


@pytest.mark.parametrize("use_resource", [False, True])
def test_moving_averages_stay_where_they_are_outside_of_training(use_resource: bool) -> None:
    x = wf.placeholder(wf.float32, [3], name="x")
    weight = wf.placeholder_with_default(0.0, [])
    mean = wf.get_variable("mean", initializer=2.0, use_resource=use_resource)
    with wf.control_dependencies([wf.assign_sub(mean, (mean - x[0]) * weight)]):
        y = x + mean
    updates = {"AssignSub", "AssignSubVariableOp"}
    assert not types(specialized(x, y)) & updates
    assert types(specialized(x, y, {weight: np.float32(0.1)})) & updates


def test_inputs_keep_their_names_and_nodes_their_lines(graph: Any) -> None:
    parts = wf.split(wf.placeholder(wf.float32, [4], name="whole"), 2, name="halves")
    y = wf.add(parts[0] + parts[1], 1.0, name="y")
    (first,), (copy,) = specialize_graph([parts[0]], [y])
    assert first.name == "halves_1:0" and copy.name == "y:0"
    assert copy.node.line == y.node.line
    (whole,), (same,) = specialize_graph([parts[0]], [parts[0]])
    assert whole is same and whole.name == "halves:0"


def test_a_step_without_switches_is_left_alone() -> None:
    x = wf.placeholder(wf.float32, [3], name="x")
    assert specialize(prune([x], [wf.exp(x)], [])) == 0
