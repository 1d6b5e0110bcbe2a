from __future__ import annotations

import numpy as np
import pytest

from weft_autodiff.gradients.backprop import gradients
from weft_exec.session.session import Session
from weft_graph.ir import builder
from weft_graph.ir.graph import Graph
from weft_graph.ir.indexed_slices import IndexedSlices
from weft_graph.ir.node import Output
from weft_graph.ops import resource_state
from weft_graph.variables.reference import Variable
from weft_tensor import dtypes


def loss_of(value: Output, weights: np.ndarray) -> Output:
    axes = list(range(weights.ndim))
    return builder.out("Sum", [builder.out("Mul", [value, weights]), axes])


@pytest.mark.parametrize("use_resource", (False, True))
def test_the_gradient_of_a_variable(use_resource: bool) -> None:
    weights = np.arange(6.0).reshape(2, 3)
    with Graph().as_default() as graph:
        variable = Variable(np.ones((2, 3)), use_resource=use_resource)
        loss = loss_of(variable * variable, weights) + loss_of(variable.value(), weights)
        (grad,) = gradients([loss], [variable])
    session = Session(graph=graph)
    session.run(variable.initializer)
    np.testing.assert_array_equal(session.run(grad), 3 * weights)


@pytest.mark.parametrize("use_resource", (False, True))
def test_the_gradient_of_an_initialized_value(use_resource: bool) -> None:
    with Graph().as_default() as graph:
        variable = Variable(np.ones(3), use_resource=use_resource)
        loss = loss_of(variable.initialized_value(), np.arange(3.0))
        (grad,) = gradients([loss], [variable])
    session = Session(graph=graph)
    session.run(variable.initializer)
    np.testing.assert_array_equal(session.run(grad), np.arange(3.0))


def test_the_gradient_of_a_gather_is_sparse() -> None:
    weights = np.arange(8.0).reshape(2, 2, 2)
    with Graph().as_default() as graph:
        variable = Variable(np.ones((5, 2)), use_resource=True)
        loss = loss_of(variable.sparse_read([[1, 3], [3, 0]]), weights)
        (grad,) = gradients([loss], [variable])
        assert isinstance(grad, IndexedSlices)
        dense = builder.convert_to_tensor(grad)
    session = Session(graph=graph)
    session.run(variable.initializer)
    wanted = np.zeros((5, 2))
    np.add.at(wanted, [[1, 3], [3, 0]], weights)
    np.testing.assert_array_equal(session.run(dense), wanted)


def test_the_gradient_of_a_batched_gather() -> None:
    indices = np.array([[0, 2, 2], [1, 1, 0]], np.int32)
    weights = np.arange(12.0).reshape(2, 3, 2)
    with Graph().as_default() as graph:
        variable = Variable(np.ones((2, 3, 2)), use_resource=True)
        value = resource_state.resource_gather(
            variable.handle, indices, dtypes.float64, batch_dims=1
        )
        (grad,) = gradients([loss_of(value, weights)], [variable])
    session = Session(graph=graph)
    session.run(variable.initializer)
    wanted = np.zeros((2, 3, 2))
    for batch in range(2):
        np.add.at(wanted[batch], indices[batch], weights[batch])
    np.testing.assert_array_equal(session.run(grad), wanted)


def test_the_gradient_of_gather_nd() -> None:
    points = [[1, 1], [0, 0], [1, 1]]
    with Graph().as_default() as graph:
        variable = Variable(np.ones((2, 2)), use_resource=True)
        loss = loss_of(variable.gather_nd(points), np.array([1.0, 2.0, 4.0]))
        (grad,) = gradients([loss], [variable])
    session = Session(graph=graph)
    session.run(variable.initializer)
    np.testing.assert_array_equal(session.run(grad), [[2.0, 0.0], [0.0, 5.0]])
