"""Regressions found by attacking gradients."""

from __future__ import annotations

import collections
import gc
import weakref
from collections.abc import Iterator
from typing import Any

import pytest

import weft as wf
from weft import errors


@pytest.fixture(autouse=True)
def graph() -> Iterator[wf.Graph]:
    with wf.Graph().as_default() as made:
        yield made


def run(fetches: Any) -> Any:
    with wf.Session() as session:
        session.run(wf.global_variables_initializer())
        return session.run(fetches)


def test_partial_derivatives_when_the_xs_are_stopped_too() -> None:
    """TensorFlow's own example of stop_gradients."""
    a = wf.constant(0.0)
    b = 2 * a
    assert run(wf.gradients(a + b, [a, b], stop_gradients=[a, b])) == [1.0, 1.0]


def test_a_stopped_y_passes_nothing_on() -> None:
    """In TensorFlow nothing flows behind the node of a stopped output."""
    x = wf.constant(3.0)
    y = x * x
    assert wf.gradients(y, [x], stop_gradients=[y]) == [None]


def test_an_x_of_another_graph_is_refused() -> None:
    x = wf.constant(3.0)
    with wf.Graph().as_default():
        other = wf.constant(1.0)
    with pytest.raises(errors.InvalidArgumentError):
        wf.gradients(x * x, [other])


def test_an_integer_x_has_no_gradient() -> None:
    x, i = wf.constant(3.0), wf.constant(1)
    y = x * wf.cast(i, wf.float32)
    assert wf.gradients(y, [i]) == [None]
    assert run(wf.gradients(y, [i, x], unconnected_gradients="zero")) == [0, 1.0]


def test_a_graph_with_a_custom_gradient_is_collected() -> None:
    graph = wf.Graph()
    with graph.as_default():

        @wf.custom_gradient
        def double(x: Any) -> Any:
            return x * 2.0, lambda grad: grad * 3.0

        double(wf.constant(1.0))
    ref = weakref.ref(graph)
    del graph, double
    gc.collect()
    assert ref() is None


def test_a_custom_gradient_of_a_function_that_makes_its_variable() -> None:
    @wf.custom_gradient
    def scale(x: Any) -> Any:
        w = wf.get_variable("w", initializer=2.0, use_resource=True)

        def grad(dy: Any, variables: Any = None) -> Any:
            return dy * w, [dy * x for _ in variables]

        return x * w, grad

    x = wf.constant(3.0)
    y = scale(x)
    assert run(wf.gradients(y, [x, wf.global_variables()[0]])) == [2.0, 3.0]


def test_a_custom_gradient_adds_no_reads_of_variables_it_does_not_use(graph: wf.Graph) -> None:
    for i in range(5):
        wf.get_variable(f"v{i}", initializer=1.0, use_resource=True)
    x = wf.constant(1.0)
    before = len(graph.nodes)
    wf.custom_gradient(lambda x: (x * 2.0, lambda grad: grad))(x)
    assert [n.name for n in graph.nodes[before:] if n.type == "ReadVariableOp"] == []


def test_a_custom_gradient_may_return_a_named_tuple() -> None:
    Pair = collections.namedtuple("Pair", "a b")
    answer = wf.custom_gradient(lambda x: (Pair(x, x), lambda a, b: a + b))(wf.constant(1.0))
    assert type(answer) is Pair
