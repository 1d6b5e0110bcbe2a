"""LSTM and GRU cells become one op each, and compute the same."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import weft as wf
from weft_lite import Interpreter
from weft_lite.convert import Converter
from weft_lite.schema.enums import OpKind

CELLS = wf.nn.rnn_cell


@pytest.mark.parametrize(
    ("cell", "kind"),
    [
        (CELLS.BasicLSTMCell, OpKind.LstmCell),
        (CELLS.LSTMCell, OpKind.LstmCell),
        (CELLS.GRUCell, OpKind.GruCell),
    ],
)
@pytest.mark.parametrize("network", [wf.nn.dynamic_rnn, wf.nn.static_rnn])
def test_a_cell_is_one_op(cell: Any, kind: OpKind, network: Any) -> None:
    with wf.Graph().as_default(), wf.Session() as session:
        x = wf.placeholder(wf.float32, [2, 5, 3], name="x")
        frames = x if network is wf.nn.dynamic_rnn else wf.unstack(x, axis=1)
        states, _ = network(cell(4), frames, dtype=wf.float32)
        y = wf.identity(states if network is wf.nn.dynamic_rnn else wf.stack(states, 1), name="y")
        session.run(wf.global_variables_initializer())
        converter = Converter.from_session(session, [x], [y])
        value = np.random.default_rng(0).normal(size=(2, 5, 3)).astype("float32")
        wanted = session.run(y, {x: value})
    lowered = converter._lowered([(2, 5, 3)])
    found = [op.kind for graph in lowered.graphs() for op in graph.ops]
    assert found.count(kind) == (1 if network is wf.nn.dynamic_rnn else 5)
    assert not {OpKind.Sigmoid, OpKind.Tanh, OpKind.FullyConnected} & set(found)
    run = Interpreter(model_content=converter.convert()).get_signature_runner()
    np.testing.assert_allclose(run(x=value)["y"], wanted, 1e-5, 1e-6)


def test_what_is_nearly_a_cell_stays_as_it_is() -> None:
    with wf.Graph().as_default(), wf.Session() as session:
        x, c = wf.placeholder(wf.float32, [1, 3], name="x"), wf.placeholder(wf.float32, [1, 2])
        weights = np.random.default_rng(0).normal(size=(5, 8)).astype("float32")
        i, j, f, o = wf.split(wf.matmul(wf.concat([x, c], 1), weights), 4, 1)
        swapped = c * wf.sigmoid(i) + wf.sigmoid(f) * wf.tanh(j)  # gates in another order
        y = wf.identity(wf.tanh(swapped) * wf.sigmoid(o), name="y")
        converter = Converter.from_session(session, [x, c], [y])
    assert OpKind.LstmCell not in [op.kind for op in converter._lowered([(1, 3), (1, 2)]).ops]
    assert converter.convert()
