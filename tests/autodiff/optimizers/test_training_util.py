"""The global step: made once, found again, checked."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from weft_autodiff.optimizers import training_util
from weft_exec import Session
from weft_graph.ir import builder
from weft_graph.ir.collections_keys import GraphKeys
from weft_graph.ir.graph import Graph
from weft_graph.ops import array
from weft_graph.variables.reference import (
    Variable,
    global_variables_initializer,
    trainable_variables,
)
from weft_tensor import dtypes

make_variable: Any = Variable


@pytest.fixture(autouse=True)
def graph() -> Iterator[Graph]:
    graph = Graph()
    with graph.as_default():
        yield graph


def test_create_and_find(graph: Graph) -> None:
    assert training_util.get_global_step() is None
    with graph.name_scope("anywhere"):
        step = training_util.create_global_step()
    assert step.name == "global_step:0"
    assert step.dtype.base_dtype is dtypes.int64
    assert step.shape.as_list() == []
    assert trainable_variables() == []
    assert graph.get_collection(GraphKeys.GLOBAL_VARIABLES) == [step]
    assert training_util.get_global_step() is step
    assert training_util.get_or_create_global_step() is step
    with pytest.raises(ValueError, match="already exists"):
        training_util.create_global_step()
    with Session() as session:
        session.run(global_variables_initializer())
        assert training_util.global_step(session, step) == 0
        session.run(step.assign_add(3))
        assert training_util.global_step(session, step) == 3


def test_of_another_graph(graph: Graph) -> None:
    other = Graph()
    step = training_util.get_or_create_global_step(other)
    assert step.graph is other
    assert training_util.get_global_step() is None


def test_found_by_name() -> None:
    builder.constant(5, name="global_step")
    found = training_util.get_global_step()
    assert found.name == "global_step:0"


def test_must_be_one_integer_scalar(graph: Graph) -> None:
    with pytest.raises(TypeError, match="does not have integer type: float32"):
        training_util.assert_global_step(builder.constant(1.0))
    with pytest.raises(TypeError, match="is not scalar"):
        training_util.assert_global_step(make_variable([1, 2]))
    with pytest.raises(TypeError, match="tensor or a variable"):
        training_util.assert_global_step(3)
    training_util.assert_global_step(array.placeholder(dtypes.int32, None))
    for _ in range(2):
        graph.add_to_collection(GraphKeys.GLOBAL_STEP, make_variable(1))
    with pytest.raises(ValueError, match="must have one item"):
        training_util.get_global_step()
