"""Gathering: API and refusals, beyond the conformance table."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from weft_testing.arrays import table
from weft_testing.evaluate import evaluate

from weft_graph import Graph
from weft_graph.ir.builder import constant
from weft_graph.ir.node import Output
from weft_graph.ops import (
    array,
    gather,
)
from weft_tensor import dtypes


@pytest.fixture(autouse=True)
def _graph() -> Any:
    with Graph().as_default():
        yield


def test_one_hot_types() -> None:
    assert gather.one_hot([0], 2).dtype is dtypes.float32
    assert gather.one_hot([0], 2, on_value=1, off_value=0).dtype is dtypes.int32
    assert gather.one_hot([0], 2, dtype=dtypes.bool_, on_value=True, off_value=False).dims == (1, 2)
    assert evaluate(gather.one_hot([1, 2], 2, 5, 1)).tolist() == [[1, 5], [1, 1]]
    assert gather.one_hot([0], 2, 1, 0, dtype=dtypes.float32).dtype is dtypes.float32
    for on, off in ((1.0, 0), (1, 0.0), (True, 0), ("a", 1)):
        with pytest.raises(TypeError, match="of the same type"):
            gather.one_hot([0], 2, on, off)


def test_batched_gathers() -> None:
    x = table(2, 3, 4)
    which = [[0, 2], [1, 1]]
    got = evaluate(gather.batch_gather(x[:, :, 0], which))
    assert got.tolist() == [[0, 8], [16, 16]]
    got = evaluate(gather.gather_nd(x, [[[0, 1]], [[2, 3]]], batch_dims=1))
    assert got.tolist() == [[1], [23]]
    late = array.placeholder(dtypes.int32)
    for batch_dims, indices in ((1, [[[0, 1]], [[2, 3]]]), (1, [[2], [0]]), (2, [[[1]] * 3] * 2)):
        got = evaluate(gather.gather_nd(x, late, batch_dims=batch_dims), {late: indices})
        wanted = evaluate(gather.gather_nd(x, indices, batch_dims=batch_dims))
        np.testing.assert_array_equal(got, wanted)


def test_a_gather_reads_rows_of_resource_variables() -> None:
    class Variable:
        def sparse_read(self, indices: Any, name: str | None = None) -> Output:
            return constant([1.0])

    assert gather.gather(Variable(), [0]).node.type == "Const"
