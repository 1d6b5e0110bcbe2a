"""Transposition: API and refusals, beyond the conformance table."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from weft_testing.arrays import fed, table
from weft_testing.evaluate import evaluate

from weft_graph import Graph
from weft_graph.ir.builder import constant
from weft_graph.ops import (
    array,
    permutation,
)
from weft_tensor import dtypes


@pytest.fixture(autouse=True)
def _graph() -> Any:
    with Graph().as_default():
        yield


def test_transpositions() -> None:
    x = fed(2, 3, 4)
    assert permutation.transpose(x).dims == (4, 3, 2)
    assert permutation.matrix_transpose(x).dims == (2, 4, 3)
    hidden = array.placeholder(dtypes.float32)
    y, z = permutation.transpose(hidden), permutation.matrix_transpose(hidden)
    value = table(2, 3, 4)
    np.testing.assert_array_equal(evaluate(y, {hidden: value}), value.T)
    np.testing.assert_array_equal(evaluate(z, {hidden: value}), value.swapaxes(1, 2))
    c = constant(np.array([[1 + 2j]]))
    assert evaluate(permutation.transpose(c, conjugate=True)).tolist() == [[1 - 2j]]
    assert permutation.transpose(x, conjugate=True).node.type == "Transpose"
