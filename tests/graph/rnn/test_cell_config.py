"""Serialization of cells: `get_config` and `from_config`."""

from __future__ import annotations

import json
from typing import Any

import pytest

from weft_graph.ir.graph import Graph
from weft_graph.ops.array import ones
from weft_graph.rnn import cell as cells
from weft_graph.variables.initializers import random_uniform_initializer
from weft_graph.variables.reference import global_variables
from weft_tensor import dtypes, errors


def _stack() -> Any:
    inner = cells.DropoutWrapper(cells.LSTMCell(2), output_keep_prob=0.5, seed=3)
    return cells.MultiRNNCell([cells.GRUCell(3, activation="relu"), inner])


CELLS = {
    "basic": lambda: cells.BasicRNNCell(3),
    "gru": lambda: cells.GRUCell(4, kernel_initializer=random_uniform_initializer(-1, 1)),
    "basic lstm": lambda: cells.BasicLSTMCell(2, state_is_tuple=False),
    "lstm": lambda: cells.LSTMCell(
        5, use_peepholes=True, num_proj=2, cell_clip=1.5, dtype=dtypes.float64, name="mine"
    ),
    "stack": _stack,
    "residual": lambda: cells.ResidualWrapper(cells.BasicRNNCell(3, name="inside")),
    "device": lambda: cells.DeviceWrapper(cells.GRUCell(3), "/cpu:0"),
}


@pytest.mark.parametrize("kind", CELLS)
def test_a_cell_of_its_config_is_the_same_cell(kind: str) -> None:
    built = []
    config: Any = None
    for turn in range(2):
        with Graph().as_default():
            cell = CELLS[kind]()
            if turn:
                cell = type(cell).from_config(json.loads(config))
                assert json.dumps(cell.get_config()) == config
            else:
                config = json.dumps(cell.get_config())
            dtype = dtypes.float64 if kind == "lstm" else dtypes.float32
            output, _ = cell(ones([2, 3], dtype), cell.zero_state(2, dtype))
            shapes = [(v.op.type, v.shape.as_list()) for v in global_variables()]
            built.append((output.dims, output.dtype, shapes))
    assert built[0] == built[1]
    assert built[0][2]


class Mine(cells.BasicRNNCell):
    """A cell of a program."""


def test_cells_of_programs_are_found_by_name() -> None:
    with Graph().as_default():
        config = cells.MultiRNNCell([Mine(2)]).get_config()
        assert type(cells.MultiRNNCell.from_config(config)._cells[0]) is Mine
        config["cells"][0]["class_name"] = "Yours"
        with pytest.raises(errors.InvalidArgumentError, match="Yours"):
            cells.MultiRNNCell.from_config(config)
        given = {"Yours": cells.GRUCell}
        made = cells.MultiRNNCell.from_config(config, given)._cells[0]
        assert type(made) is cells.GRUCell
        assert made.output_size == 2


def test_a_function_without_a_name_stays_what_it_is() -> None:
    def act(x: Any) -> Any:
        return x

    with Graph().as_default():
        config = cells.GRUCell(2, activation=act).get_config()
        assert config["activation"] is act
        assert cells.GRUCell.from_config(config).get_config()["activation"] is act
