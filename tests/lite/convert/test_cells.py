"""LSTM and GRU cells become one op each, and compute the same."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import weft as wf
from weft_lite import Interpreter
from weft_lite.convert import Converter, dynamic
from weft_lite.schema.codec import decode
from weft_lite.schema.enums import DataType, OpKind

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
    lowered = converter._lower([(2, 5, 3)])
    found = [op.kind for graph in lowered.graphs() for op in graph.ops]
    assert found.count(kind) == (1 if network is wf.nn.dynamic_rnn else 5)
    assert not {OpKind.Sigmoid, OpKind.Tanh, OpKind.FullyConnected} & set(found)
    run = Interpreter(model_content=converter.convert()).get_signature_runner()
    np.testing.assert_allclose(run(x=value)["y"], wanted, 1e-5, 1e-6)


@pytest.mark.parametrize("cell", [CELLS.LSTMCell, CELLS.GRUCell])
@pytest.mark.parametrize("weights", ["float32", "dynamic"])
def test_a_batch_takes_several_tiles_of_rows(cell: Any, weights: str) -> None:
    """A single row gives the same as in a batch: tiles have at most 16 rows."""
    with wf.Graph().as_default(), wf.Session() as session:
        x = wf.placeholder(wf.float32, [None, 3, 7], name="x")
        _, last = wf.nn.dynamic_rnn(cell(20), x, dtype=wf.float32)
        y = wf.identity(last.h if cell is CELLS.LSTMCell else last, name="y")
        session.run(wf.global_variables_initializer())
        converter = Converter.from_session(session, [x], [y], {"x": [37, 3, 7]})
        value = np.random.default_rng(0).normal(size=(37, 3, 7)).astype("float32")
        wanted = session.run(y, {x: value})
    interpreter = Interpreter(model_content=converter.convert({"x": value}, weights=weights))
    run = interpreter.get_signature_runner()
    whole = run(x=value)["y"]
    np.testing.assert_allclose(whole, wanted, atol=1e-6 if weights == "float32" else 0.02)
    interpreter.resize_tensor_input(0, [1, 3, 7])
    alone = [run(x=row[None])["y"][0] for row in value]
    np.testing.assert_allclose(whole, alone, atol=1e-6)


def of_bytes(kind: OpKind, batch: int) -> tuple[Converter, Any, Any]:
    """Steps of cells whose sizes are not multiples of four; inputs of loops are larger."""
    with wf.Graph().as_default(), wf.Session() as session:
        x = wf.placeholder(wf.float32, [batch, 5, 7], name="x")
        cell = CELLS.LSTMCell(30) if kind is OpKind.LstmCell else CELLS.GRUCell(30)
        states, _ = wf.nn.static_rnn(cell, wf.unstack(x * 0.01, axis=1), dtype=wf.float32)
        whole, _ = wf.nn.dynamic_rnn(CELLS.GRUCell(30), x * 4.0, dtype=wf.float32, scope="loop")
        y = wf.concat([*states, wf.reduce_mean(whole, 1)], 1, name="y")
        wf.set_random_seed(2)
        session.run(wf.global_variables_initializer())
        value = np.random.default_rng(0).normal(size=(batch, 5, 7)).astype("float32")
        return Converter.from_session(session, [x], [y]), value, session.run(y, {x: value})


def cells(content: bytes) -> list[tuple[OpKind, DataType]]:
    """Cells of a file, those of bodies too, with the types of their weights."""
    model = decode(content).model
    return [
        (OpKind(op.kind), DataType(model.tensors[op.inputs[place]].dtype))
        for op in model.ops
        if op.kind in dynamic.CELLS
        for place in dynamic.CELLS[OpKind(op.kind)]
    ]


@pytest.mark.parametrize("how", [{"weights": "dynamic"}, {"calibration": True}])
@pytest.mark.parametrize("batch", [1, 14])
@pytest.mark.parametrize("kind", [OpKind.LstmCell, OpKind.GruCell])
def test_cells_multiply_bytes(kind: OpKind, batch: int, how: dict[str, Any]) -> None:
    """By weights of bytes, and in graphs of int8; large inputs leave states their precision."""
    converter, value, wanted = of_bytes(kind, batch)
    if "calibration" in how:
        how = {"calibration": [{"x": value}]}
    content = converter.convert(**how)
    assert {dtype for _, dtype in cells(content)} == {DataType.INT8}
    assert {each for each, _ in cells(content)} == {kind, OpKind.GruCell}
    interpreter = Interpreter(model_content=content)
    run = interpreter.get_signature_runner()
    for i in range(8):
        if interpreter._library.wl_use_instruction_set(interpreter._handle, i):
            assert np.abs(run(x=value)["y"] - wanted).max() < 0.02


def test_the_report_says_which_cells_are_between_floats_and_int8() -> None:
    converter, value, _ = of_bytes(OpKind.LstmCell, 1)
    found = {each.name: each for each in converter.noise([{"x": value}])}
    hybrid = {name for name, each in found.items() if each.form == "hybrid"}
    assert len([name for name in hybrid if "lstm_cell" in name]) == 5 * 2
    assert any("while" in name for name in hybrid)
    assert all(20 < found[name].decibels < 80 for name in hybrid)
    kept = next(name for name in hybrid if "lstm_cell" in name)
    content = converter.convert(calibration=[{"x": value}], keep_float=[kept])
    assert [dtype for _, dtype in cells(content)].count(DataType.FLOAT32) == 1
    loop = next(name for name in hybrid if "while" in name)
    content = converter.convert(calibration=[{"x": value}], keep_float=[loop])
    assert (OpKind.GruCell, DataType.FLOAT32) in cells(content)
    wide = converter.convert(calibration=[{"x": value}], activations="int16")
    assert {dtype for _, dtype in cells(wide)} == {DataType.FLOAT32}


def test_what_is_nearly_a_cell_stays_as_it_is() -> None:
    with wf.Graph().as_default(), wf.Session() as session:
        x, c = wf.placeholder(wf.float32, [1, 3], name="x"), wf.placeholder(wf.float32, [1, 2])
        weights = np.random.default_rng(0).normal(size=(5, 8)).astype("float32")
        i, j, f, o = wf.split(wf.matmul(wf.concat([x, c], 1), weights), 4, 1)
        swapped = c * wf.sigmoid(i) + wf.sigmoid(f) * wf.tanh(j)  # gates in another order
        y = wf.identity(wf.tanh(swapped) * wf.sigmoid(o), name="y")
        converter = Converter.from_session(session, [x, c], [y])
    assert OpKind.LstmCell not in [op.kind for op in converter._lower([(1, 3), (1, 2)]).ops]
    assert converter.convert()
