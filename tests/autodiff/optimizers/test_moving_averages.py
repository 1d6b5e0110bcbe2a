"""Moving averages: values, names, and the variables that a Saver should restore."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from weft_autodiff.optimizers.moving_averages import ExponentialMovingAverage, assign_moving_average
from weft_exec import Session
from weft_graph.ir.collections_keys import GraphKeys
from weft_graph.ir.graph import Graph
from weft_graph.ops import array
from weft_graph.ops.state import assign_add
from weft_graph.variables.reference import (
    Variable,
    global_variables,
    global_variables_initializer,
    moving_average_variables,
)
from weft_tensor import dtypes, errors

make_variable: Any = Variable


@pytest.fixture(autouse=True)
def graph() -> Iterator[Graph]:
    graph = Graph()
    with graph.as_default():
        yield graph


RESOURCE = pytest.mark.parametrize("use_resource", [False, True], ids=["ref", "resource"])


@RESOURCE
def test_assign_moving_average(use_resource: bool) -> None:
    var = make_variable([10.0, 11.0], use_resource=use_resource)
    update = assign_moving_average(var, [1.0, 2.0], 0.25, zero_debias=False)
    with Session() as session:
        session.run(global_variables_initializer())
        session.run(update)
        np.testing.assert_allclose(session.run(var), [10 * 0.25 + 0.75, 11 * 0.25 + 1.5])


@RESOURCE
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_zero_debias(use_resource: bool, dtype: str) -> None:
    element = dtypes.as_dtype(dtype)
    var = make_variable(np.zeros(2, element.numpy), name="mean", use_resource=use_resource)
    value = array.placeholder(element, [2])
    update = assign_moving_average(var, value, 0.9)
    names = {v.op.name for v in global_variables()}
    assert names == {"mean", "mean/biased", "mean/local_step"}
    biased = np.zeros(2)
    with Session() as session:
        session.run(global_variables_initializer())
        for step in range(1, 6):
            given = np.array([step, -step * 2.0])
            biased = 0.9 * biased + 0.1 * given
            session.run(update, {value: given})
            wanted = biased / (1 - 0.9**step)
            np.testing.assert_allclose(session.run(var), wanted, rtol=1e-5)


def test_two_debiased_averages_into_one_variable() -> None:
    var = make_variable(np.zeros(2), name="mean")
    for _ in range(2):
        assign_moving_average(var, np.ones(2), 0.9)
    names = {v.op.name for v in global_variables()}
    assert names > {"mean/biased", "mean/biased_1", "mean/local_step", "mean/local_step_1"}


@RESOURCE
def test_average_of_a_variable(use_resource: bool) -> None:
    var = make_variable(10.0, name="W", use_resource=use_resource)
    ema = ExponentialMovingAverage(0.25)
    assert ema.average_name(var) == "W/ExponentialMovingAverage"
    update = ema.apply([var])
    assert update.name == "ExponentialMovingAverage"
    shadow = ema.average(var)
    assert shadow.op.name == ema.average_name(var) == "W/ExponentialMovingAverage"
    assert type(shadow) is type(var) and not shadow.trainable
    assert moving_average_variables() == [var]
    with Session() as session:
        session.run(global_variables_initializer())
        assert session.run(shadow) == 10.0
        session.run(var.assign(2.0))
        session.run(update)
        assert session.run(shadow) == 0.25 * 10 + 0.75 * 2


@RESOURCE
def test_average_sees_the_update_that_it_waits_for(graph: Graph, use_resource: bool) -> None:
    var = make_variable(1.0, name="W", use_resource=use_resource)
    ema = ExponentialMovingAverage(0.5)
    changed = assign_add(var, 2.0)
    with graph.control_dependencies([changed]):
        update = ema.apply()
    with Session() as session:
        session.run(global_variables_initializer())
        session.run(update)
        assert session.run(ema.average(var)) == 0.5 * 1 + 0.5 * 3


@pytest.mark.parametrize("zero_debias", [False, True])
def test_average_of_a_tensor(zero_debias: bool) -> None:
    value = array.placeholder(dtypes.float32, [2], name="x")
    ema = ExponentialMovingAverage(0.25, zero_debias=zero_debias)
    update = ema.apply([value])
    shadow = ema.average(value)
    assert shadow.op.name == "x/ExponentialMovingAverage"
    assert shadow in global_variables()
    given = np.array([4.0, 8.0], np.float32)
    with Session() as session:
        session.run(global_variables_initializer())
        session.run(update, {value: given})
        wanted = given if zero_debias else 0.75 * given
        np.testing.assert_allclose(session.run(shadow), wanted, rtol=1e-6)


def test_num_updates_limits_the_decay() -> None:
    var = make_variable(10.0, name="W")
    count = array.placeholder(dtypes.int64, [])
    ema = ExponentialMovingAverage(0.25, num_updates=count)
    update = ema.apply([var])
    with Session() as session:
        session.run(global_variables_initializer())
        session.run(var.assign(0.0))
        session.run(update, {count: 0})
        np.testing.assert_allclose(session.run(ema.average(var)), 10 * 0.1, rtol=1e-6)
        session.run(update, {count: 100})
        np.testing.assert_allclose(session.run(ema.average(var)), 10 * 0.1 * 0.25, rtol=1e-6)


def test_variables_to_restore(graph: Graph) -> None:
    trained = make_variable(1.0, name="W")
    count = make_variable(1, name="count", trainable=False)
    tensor = array.placeholder(dtypes.float32, [], name="x")
    ema = ExponentialMovingAverage(0.5, name="ema")
    ema.apply([trained, tensor])
    assert ema.variables_to_restore() == {
        "W/ema": trained,
        "count": count,
        "x/ema": ema.average(tensor),
    }
    assert ema.variables_to_restore([]) == {
        "W": trained,
        "W/ema": ema.average(trained),
        "count": count,
        "x/ema": ema.average(tensor),
    }


def test_restore_names_without_apply() -> None:
    trained = make_variable(1.0, name="W")
    assert ExponentialMovingAverage(0.5, name="ema").variables_to_restore() == {"W/ema": trained}


def test_refusals(graph: Graph) -> None:
    var = make_variable(1.0, name="W")
    ema = ExponentialMovingAverage(0.5)
    ema.apply([var])
    with pytest.raises(ValueError, match="already computed for: W:0"):
        ema.apply([var])
    with pytest.raises(TypeError, match="must be floating: n:0 is int32"):
        ema.apply([make_variable(1, name="n")])
    assert ema.average(make_variable(1.0)) is None
    assert graph.get_collection(GraphKeys.MOVING_AVERAGE_VARIABLES) == [var]
    assert isinstance(errors.InvalidTypeError(""), TypeError)
