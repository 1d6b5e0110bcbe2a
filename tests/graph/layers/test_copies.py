"""Copies of layers, cells and structures that hold elements of a graph."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import weft as wf

CELLS: dict[str, Callable[[], Any]] = {
    "basic": lambda: wf.nn.rnn_cell.BasicRNNCell(3),
    "gru": lambda: wf.nn.rnn_cell.GRUCell(3),
    "lstm": lambda: wf.nn.rnn_cell.LSTMCell(3, use_peepholes=True),
    "dropout": lambda: wf.nn.rnn_cell.DropoutWrapper(wf.nn.rnn_cell.GRUCell(3), 1.0),
    "stack": lambda: wf.nn.rnn_cell.MultiRNNCell([wf.nn.rnn_cell.BasicLSTMCell(3)] * 1),
    "block": lambda: wf.contrib.rnn.LSTMBlockCell(3),
}
LAYERS: dict[str, Callable[[], Any]] = {
    "dense": lambda: wf.layers.Dense(2, activation=wf.nn.relu),
    "conv": lambda: wf.layers.Conv1D(2, 1),
    "normalization": lambda: wf.layers.BatchNormalization(),
}


@pytest.fixture(autouse=True)
def graph() -> Iterator[wf.Graph]:
    with wf.Graph().as_default() as graph:
        yield graph


def test_copies_share_elements_of_the_graph(graph: wf.Graph) -> None:
    parts = wf.get_variable("w", [4], partitioner=wf.fixed_size_partitioner(2))
    elements = [wf.constant(1.0), wf.constant(1.0).op, wf.Variable(1.0), parts]
    structure = {"list": elements, "slices": wf.IndexedSlices(elements[0], elements[0])}
    copied = copy.deepcopy(structure)
    assert all(a is b for a, b in zip(copied["list"], elements, strict=True))
    assert copied["list"] is not elements
    assert copied["slices"].values is elements[0]
    assert all(copy.copy(element) is element for element in elements)


@pytest.mark.parametrize("name", CELLS)
def test_a_copy_of_a_used_cell_shares_its_variables(name: str) -> None:
    cell, inputs = CELLS[name](), wf.constant(np.ones([2, 3], np.float32))
    state = cell.zero_state(2, wf.float32)
    expected, _ = cell(inputs, state)
    other = copy.deepcopy(cell)
    output, _ = other(inputs, state)
    assert other is not cell and type(other) is type(cell)
    assert other.name == cell.name and other.graph is cell.graph
    assert other.variables == cell.variables
    assert len(wf.global_variables()) == len(cell.variables)
    with wf.Session() as session:
        session.run(wf.global_variables_initializer())
        np.testing.assert_array_equal(*session.run([output, expected]))


@pytest.mark.parametrize("name", LAYERS)
def test_a_copy_of_a_used_layer_shares_its_variables(name: str) -> None:
    layer, inputs = LAYERS[name](), wf.constant(np.ones([2, 3, 3], np.float32))
    expected = layer(inputs)
    other = copy.deepcopy(layer)
    output = other(inputs)
    assert other.weights == layer.weights
    assert len(wf.global_variables()) == len(layer.weights)
    with wf.Session() as session:
        session.run(wf.global_variables_initializer())
        np.testing.assert_array_equal(*session.run([output, expected]))


def test_a_copy_of_an_unused_cell_has_variables_of_its_own() -> None:
    cell, inputs = wf.nn.rnn_cell.GRUCell(3), wf.zeros([2, 3])
    other = copy.deepcopy(cell)
    for each, scope in ((cell, "one"), (other, "two")):
        with wf.variable_scope(scope):
            each(inputs, wf.zeros([2, 3]))
    assert not set(cell.variables) & set(other.variables)


def test_a_copy_keeps_tensors_and_copies_settings() -> None:
    layer = wf.layers.Dense(2)
    layer.factor, layer.settings = wf.constant(2.0), {"list": [1, 2]}
    other = copy.deepcopy(layer)
    assert other.factor is layer.factor
    assert other.settings == layer.settings and other.settings is not layer.settings
