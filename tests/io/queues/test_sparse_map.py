"""Sparse tensors kept aside under numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

from weft_exec.session.session import Session
from weft_graph.ir.graph import Graph
from weft_graph.ir.indexed_slices import SparseTensor
from weft_graph.ops.array import placeholder
from weft_io.ops.sparse_map import add_sparse_to_tensors_map, take_many_sparse_from_tensors_map
from weft_io.resources.sparse_map import SparseMap, SparseValue, rows_of_sparse
from weft_tensor import dtypes, errors


def sparse(table: Any, dtype: Any = np.float32) -> SparseValue:
    array = np.array(table, dtype)
    indices = np.argwhere(array != 0)
    return SparseValue(indices, array[tuple(indices.T)], np.array(array.shape))


def dense(value: SparseValue) -> Any:
    array = np.zeros(value.shape, value.values.dtype)
    array[tuple(value.indices.T)] = value.values
    return array


@given(st.lists(st.lists(st.integers(0, 2), min_size=3, max_size=3), max_size=4))
def test_rows_and_batches_are_each_others_inverse(table: list[list[int]]) -> None:
    array = np.array(table, np.float32).reshape(-1, 3)
    kept = SparseMap("m")
    shuffled = sparse(array)
    order = np.random.default_rng(len(table)).permutation(len(shuffled.values))
    shuffled = SparseValue(shuffled.indices[order], shuffled.values[order], shuffled.shape)
    numbers = [kept.add(dtypes.float32, row) for row in rows_of_sparse(shuffled)]
    assert len(numbers) == len(array) == len(kept)
    if numbers:
        np.testing.assert_array_equal(dense(kept.take(dtypes.float32, numbers)), array)
    assert len(kept) == 0


def test_a_batch_is_as_large_as_its_largest() -> None:
    kept = SparseMap("m")
    numbers = [kept.add(dtypes.float32, sparse(t)) for t in ([1, 0], [0, 0, 3], [])]
    joined = kept.take(dtypes.float32, numbers[::-1])
    assert joined.shape.tolist() == [3, 3]
    assert dense(joined).tolist() == [[0, 0, 0], [0, 0, 3], [1, 0, 0]]


def test_what_cannot_be_taken_stays() -> None:
    kept = SparseMap("m")
    vector = kept.add(dtypes.float32, sparse([1, 0]))
    matrix = kept.add(dtypes.float32, sparse([[1, 0]]))
    with pytest.raises(errors.InvalidArgumentError, match=r"the same rank, got \[1, 2\]"):
        kept.take(dtypes.float32, [vector, matrix])
    with pytest.raises(errors.InvalidArgumentError, match="with the key 7"):
        kept.take(dtypes.float32, [vector, 7])
    with pytest.raises(errors.InvalidArgumentError, match="is float32, but int32"):
        kept.take(dtypes.int32, [vector])
    with pytest.raises(errors.InvalidArgumentError, match="occurs twice"):
        kept.take(dtypes.float32, [vector, vector])
    assert len(kept) == 2
    kept.close()
    assert len(kept) == 0


@pytest.mark.parametrize(
    ("indices", "values", "shape", "match"),
    [
        ([[0]], [1.0, 2.0], [3], "requires indices"),
        ([[0, 1]], [1.0], [3], "requires indices"),
        ([0], [1.0], [3], "requires indices"),
        ([[3]], [1.0], [3], "in row 3"),
        ([[-1]], [1.0], [3], "in row -1"),
        (np.zeros((1, 0)), [1.0], [], "no rows"),
        (np.zeros((0, 1)), [], [-1], "number of rows must not be negative"),
    ],
)
def test_wrong_parts(indices: Any, values: Any, shape: Any, match: str) -> None:
    value = SparseValue(
        np.array(indices, np.int64), np.array(values, np.float32), np.array(shape, np.int64)
    )
    with pytest.raises(errors.InvalidArgumentError, match=match):
        rows_of_sparse(value)


def test_ops() -> None:
    with Graph().as_default() as graph, Session(graph=graph) as session:
        fed = placeholder(dtypes.int64, [None, 2])
        values = placeholder(dtypes.string, [None])
        tensor = SparseTensor(fed, values, [2, 3])
        one = add_sparse_to_tensors_map(tensor, shared_name="map")
        rows = add_sparse_to_tensors_map(tensor, shared_name="map", rows=True)
        numbers = placeholder(dtypes.int64, [None])
        taken = take_many_sparse_from_tensors_map(one.op, numbers, dtypes.string)
        of_rank = take_many_sparse_from_tensors_map(one.op, numbers, dtypes.string, rank=1)
        assert of_rank.indices.shape.as_list() == [None, 2]
        position = np.array([[1, 2]])
        feeds = {fed: position, values: [b"x"]}
        first = session.run(one, feeds)
        parts = session.run(rows, feeds)
        position[:] = 0
        got = session.run(taken, {numbers: [first]})
        assert got.indices.tolist() == [[0, 1, 2]] and got.dense_shape.tolist() == [1, 2, 3]
        got = session.run(of_rank, {numbers: parts})
        assert got.indices.tolist() == [[1, 2]] and got.values.tolist() == [b"x"]
        assert got.dense_shape.tolist() == [2, 3]
        with pytest.raises(errors.InvalidArgumentError, match="no sparse tensor"):
            session.run(of_rank, {numbers: parts})
        number = placeholder(dtypes.int64)
        scalar = take_many_sparse_from_tensors_map(one.op, number, dtypes.string)
        with pytest.raises(errors.InvalidArgumentError, match=r"must be a vector, got shape \[\]"):
            session.run(scalar.values, {number: 0})
