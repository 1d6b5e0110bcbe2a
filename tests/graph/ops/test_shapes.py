"""Shapes: API and refusals, beyond the conformance table."""

from __future__ import annotations

from typing import Any

import pytest
from weft_testing.arrays import fed
from weft_testing.evaluate import evaluate

from weft_graph import Graph
from weft_graph.ir.builder import convert_to_tensor
from weft_graph.ir.indexed_slices import SparseTensorValue
from weft_graph.ops import (
    shapes,
)
from weft_tensor import dtypes, errors
from weft_tensor.shape import Dimension, TensorShape


@pytest.fixture(autouse=True)
def _graph() -> Any:
    with Graph().as_default():
        yield


def test_static_shapes_are_constants() -> None:
    x = fed(2, 3)
    for value in (shapes.shape(x), shapes.size(x), shapes.rank(x)):
        assert value.node.type == "Const"
    assert shapes.shape(x, out_type=dtypes.int64).dtype is dtypes.int64
    assert shapes.shape(fed(None)).node.type == "Shape"


def test_shapes_convert_to_tensors() -> None:
    assert evaluate(convert_to_tensor(TensorShape([2, 3]))).tolist() == [2, 3]
    assert evaluate(convert_to_tensor(Dimension(4))) == 4
    with pytest.raises(errors.InvalidArgumentError, match="fully defined"):
        convert_to_tensor(TensorShape([None, 3]))


@pytest.mark.parametrize(
    ("dims", "target", "wanted"),
    [
        ((None, 4), [-1, 2], (None, 2)),
        ((2, 6), [3, -1], (3, 4)),
        ((None, 0), [-1, 5], (0, 5)),
        ((None, None), [2, 3], (2, 3)),
        ((0, 3), [0, 7], (0, 7)),
    ],
)
def test_reshapes_infer(dims: Any, target: Any, wanted: Any) -> None:
    assert shapes.reshape(fed(*dims), target).dims == wanted


def test_of_what_a_sparse_tensor_was_fetched_as() -> None:
    value = SparseTensorValue(((0, 1), (1, 0)), (42, 24), (2, 3))
    assert evaluate(shapes.shape(value)).tolist() == [2, 3]
    assert evaluate(shapes.size(value)) == 6 and evaluate(shapes.rank(value)) == 2
