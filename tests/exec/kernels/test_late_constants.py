"""Kernels whose inputs become constants when a step is simplified: no shape rule saw them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import weft as wf
from weft_graph.ir.builder import constant_of, out
from weft_graph.ir.node import Output
from weft_tensor import errors


def hidden(value: Any) -> Output:
    """An op that is folded to a constant, and whose shape rule knows only its type."""
    output = out("Relu", [constant_of(np.array(value))])
    output.dims = None
    return output


def run(fetch: Output, optimize: bool) -> Any:
    config = wf.ConfigProto(device_count={"GPU": 0})
    if not optimize:
        config.graph_options.optimizer_options.opt_level = wf.OptimizerOptions.L0
    with wf.Session(graph=fetch.graph, config=config) as session:
        return session.run(fetch)


MATRIX = np.arange(6, dtype=np.float32).reshape(2, 3)
WRONG = [
    ("Slice", lambda x: [x, hidden(np.int32([0])), hidden(np.int32([1]))]),
    ("Slice", lambda x: [x, hidden(np.int32([0, 0])), hidden(np.int32([5, 1]))]),
    ("Reshape", lambda x: [x, hidden(np.int32(6))]),
    ("Transpose", lambda x: [x, hidden(np.int32(0))]),
    ("Transpose", lambda x: [x, hidden(np.int32([0, 1, 2]))]),
    ("Fill", lambda x: [hidden(np.int32(3)), np.float32(1)]),
    ("Tile", lambda x: [x, hidden(np.int32(2))]),
    ("BroadcastTo", lambda x: [x, hidden(np.int32(2))]),
]


@pytest.mark.parametrize("optimize", [True, False])
@pytest.mark.parametrize("row", range(len(WRONG)))
def test_wrong_ones_are_refused(row: int, optimize: bool) -> None:
    op, inputs = WRONG[row]
    with wf.Graph().as_default():
        y = out(op, inputs(constant_of(MATRIX.copy())))
        with pytest.raises(errors.InvalidArgumentError) as caught:
            run(y, optimize)
    assert "object" not in caught.value.message and "argument" not in caught.value.message


@pytest.mark.parametrize("optimize", [True, False])
def test_right_ones_are_taken(optimize: bool) -> None:
    with wf.Graph().as_default():
        x = constant_of(MATRIX.copy())
        part = out("Slice", [x, hidden(np.int32([0, 1])), hidden(np.int32([2, 2]))])
        turned = out("Transpose", [x, hidden(np.int32([1, 0]))])
        np.testing.assert_array_equal(run(part, optimize), MATRIX[:, 1:])
        np.testing.assert_array_equal(run(turned, optimize), MATRIX.T)
