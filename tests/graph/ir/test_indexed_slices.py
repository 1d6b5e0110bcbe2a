"""IndexedSlices and SparseTensor."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from weft_testing.evaluate import evaluate

from weft_autodiff.registry import gradient_of
from weft_graph import Graph
from weft_graph.ir.builder import constant, convert_to_tensor
from weft_graph.ir.indexed_slices import (
    IndexedSlices,
    IndexedSlicesValue,
    SparseTensor,
    SparseTensorValue,
    convert_to_tensor_or_indexed_slices,
    convert_to_tensor_or_sparse_tensor,
)
from weft_graph.ops import array, gather, identity, segments
from weft_tensor import dtypes, errors

assert segments


@pytest.fixture(autouse=True)
def _graph() -> Any:
    with Graph().as_default():
        yield


def test_slices_become_dense() -> None:
    slices = IndexedSlices(
        constant([[1.0, 2], [3, 4], [5, 6]]), constant([0, 2, 0]), constant([4, 2])
    )
    assert slices.dims == (4, 2) and slices.dtype is dtypes.float32
    dense = convert_to_tensor(slices)
    assert dense.dims == (4, 2)
    assert evaluate(dense).tolist() == [[6, 8], [0, 0], [3, 4], [0, 0]]
    assert evaluate(identity.identity(slices)).tolist() == evaluate(dense).tolist()


def test_slices_without_a_shape_stay_sparse() -> None:
    slices = IndexedSlices(constant([[1.0]]), constant([0]))
    assert slices.dims == (None, 1)
    with pytest.raises(errors.InvalidArgumentError, match="dense_shape"):
        convert_to_tensor(slices)
    with pytest.raises(errors.InvalidTypeError, match="float64"):
        convert_to_tensor(slices, dtypes.float64)


def test_a_gathers_gradient_is_slices() -> None:
    params = array.placeholder(dtypes.float32, [5, 2])
    picked = gather.gather(params, [[3, 0], [3, 1]])
    node = picked.node
    grad = convert_to_tensor(np.ones((2, 2, 2), np.float32))
    found = gradient_of(node).function(node, grad)[0]
    assert isinstance(found, IndexedSlices)
    assert found.dims == (5, 2) and found.values.dims == (4, 2)
    assert evaluate(convert_to_tensor(found)).tolist() == [[1, 1], [1, 1], [0, 0], [2, 2], [0, 0]]


def test_values_convert() -> None:
    value = IndexedSlicesValue(np.ones((1, 2)), np.array([0]), np.array([3, 2]))
    slices = convert_to_tensor_or_indexed_slices(value)
    assert isinstance(slices, IndexedSlices) and slices.dims == (3, 2)
    assert convert_to_tensor_or_indexed_slices(slices) is slices
    with pytest.raises(errors.InvalidTypeError):
        convert_to_tensor_or_indexed_slices(slices, dtypes.int32)
    sparse = convert_to_tensor_or_sparse_tensor(SparseTensorValue([[0]], [1.0], [2]))
    assert isinstance(sparse, SparseTensor) and sparse.dims == (2,)


def test_parts_must_fit() -> None:
    with pytest.raises(errors.InvalidArgumentError, match=r"indices \[n,rank\]"):
        SparseTensor([[0, 0]], [1.0, 2.0], [2, 2])
    with pytest.raises(errors.InvalidArgumentError, match="indices must have rank 2"):
        SparseTensor([0], [1.0], [2])
