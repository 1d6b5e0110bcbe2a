"""Sparse tensors: conversions and refusals, beyond the conformance table."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import weft as wf
from weft import errors


@pytest.fixture(autouse=True)
def _graph() -> Any:
    with wf.Graph().as_default():
        yield


@pytest.mark.parametrize(
    "dense",
    [
        np.array([[0, 1.5, 0], [2, 0, 3]], np.float32),
        np.array([True, False, True]),
        np.array([[b"", b"a"], [b"b", b""]], object),
        np.zeros((2, 0), np.int32),
        np.zeros((2, 2), np.int64),
    ],
    ids=str,
)
def test_there_and_back(dense: Any) -> None:
    sparse = wf.sparse.from_dense(wf.constant(dense))
    with wf.Session() as session:
        value, back = session.run([sparse, wf.sparse.to_dense(sparse)])
    stored = np.argwhere(dense != (b"" if dense.dtype == object else 0))
    np.testing.assert_array_equal(value.indices, stored)
    assert value.dense_shape.tolist() == list(dense.shape)
    np.testing.assert_array_equal(back, dense)


def test_elements_to_retain() -> None:
    sparse = wf.SparseTensor([[0, 1], [1, 0], [2, 2]], [1.0, 2.0, 3.0], [3, 3])
    kept = wf.sparse_retain(sparse, [True, False, True])
    with wf.Session() as session:
        value = session.run(kept)
    assert value.indices.tolist() == [[0, 1], [2, 2]]
    assert value.values.tolist() == [1.0, 3.0]
    assert value.dense_shape.tolist() == [3, 3]
    with pytest.raises(errors.InvalidArgumentError):
        wf.sparse_retain(sparse, [True, False])


def test_the_shape_of_a_dense_tensor_is_a_vector() -> None:
    with pytest.raises(errors.InvalidArgumentError, match="output_shape must have rank 1"):
        wf.sparse_to_dense([1, 3], [[5], [3]], 1, -1)
