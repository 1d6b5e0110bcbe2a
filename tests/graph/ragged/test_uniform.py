"""Ragged tensors combined with tensors: results without ragged dimensions are tensors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from weft_testing.ragged import fetched

import weft as wf
from weft_tensor import errors

ROWS = [["a", "b", "c"], ["d", "x"], ["e", "f"]]
PAIRS = [[[1, 2], [3, 4]], [[5, 6], [7, 8], [9, 10]]]


def rows() -> Any:
    return wf.ragged.constant(ROWS)


def pairs() -> Any:
    return wf.ragged.constant(PAIRS, ragged_rank=1)


@pytest.mark.parametrize(
    ("params", "indices", "batch", "axis"),
    [
        (ROWS, [[0, 1], [1, 1], [0, 0]], 1, 1),
        (ROWS, [0, 1, 1], 1, 1),
        (ROWS, [[[0], [1]]] * 3, 1, 1),
        (ROWS, [0, 1], 0, 1),
        (ROWS, [[0, 1]], 0, 1),
        (ROWS, 1, 0, 1),
        ([[[1, 2], [3]], [[4], [5, 6]]], [[0, 0], [0, 1]], 2, 2),
    ],
)
def test_dense_indices_give_a_tensor(params: Any, indices: Any, batch: int, axis: int) -> None:
    def taken(value: Any, at: Any, batch: int, axis: int) -> Any:
        if batch:
            pairs = zip(value, at, strict=True)
            return [taken(each, place, batch - 1, axis - 1) for each, place in pairs]
        if axis:
            return [taken(each, at, 0, axis - 1) for each in value]
        return [taken(value, place, 0, 0) for place in at] if isinstance(at, list) else value[at]

    found = wf.gather(wf.ragged.constant(params), indices, batch_dims=batch, axis=axis)
    assert isinstance(found, wf.Tensor)
    want = np.array(taken(params, indices, batch, axis))
    assert found.shape == want.shape
    got = wf.Session().run(found)
    assert got.astype(want.dtype).tolist() == want.tolist()


def test_dense_values_of_ragged_indices_stay_dense() -> None:
    at = wf.ragged.constant([[[1, 0], [0, 0]], [[2, 1]]], ragged_rank=1)
    names = wf.ragged.constant([[["a", "b"], ["c"]], [["d", "e", "f"]]])
    found = wf.batch_gather(names, at)
    assert found.ragged_rank == 1
    assert found.shape.as_list() == [2, None, 2]
    assert fetched(found) == [[[[b"b", b"a"], [b"c", b"c"]], [[b"f", b"e"]]]]


def test_batches_of_known_numbers_that_differ_are_refused_where_they_are_made() -> None:
    with pytest.raises(errors.InvalidArgumentError, match="equal numbers of rows, got 3 and 2"):
        wf.batch_gather(rows(), wf.ragged.constant([[1], [0]]))


def test_an_axis_behind_the_ragged_ones_is_joined_as_tensors_are() -> None:
    found = wf.concat([pairs(), pairs()], axis=2)
    assert found.ragged_rank == 1
    assert found.shape.as_list() == [2, None, 4]
    assert fetched(found) == [[[[*pair, *pair] for pair in row] for row in PAIRS]]
    mixed = wf.concat([pairs(), wf.ragged.constant(PAIRS)], axis=2)
    assert fetched(mixed) == fetched(found)


def test_tensors_of_several_sizes_are_stacked() -> None:
    first, second = [[1, 2], [3, 4], [5, 6]], [[7, 8, 9]]
    found = wf.ragged.stack([wf.constant(first), wf.constant(second)])
    assert found.ragged_rank == 2
    assert fetched(found) == [[first, second]]
    assert wf.ragged.stack([wf.constant(first), wf.constant(first[:1])]).ragged_rank == 1


@pytest.mark.parametrize("known", [True, False])
def test_a_sparse_tensor_whose_rank_a_run_tells(known: bool) -> None:
    indices, values, shape = [[0, 0], [0, 1], [2, 0]], [1, 2, 3], [3, 4]
    fed = wf.placeholder(wf.int64), wf.placeholder(wf.int64)
    parts = (indices, fed[1]) if known else fed
    ragged = wf.RaggedTensor.from_sparse(wf.SparseTensor(parts[0], values, parts[1]))
    with wf.Session() as session:
        feeds = dict(zip(fed, (indices, shape), strict=True))
        assert session.run(ragged, feeds).to_list() == [[1, 2], [], [3]]
        with pytest.raises(errors.InvalidArgumentError):
            session.run(ragged, {**feeds, fed[1]: [3, 4, 1]})


def test_partitions_of_another_shape_are_refused_where_they_are_made() -> None:
    with pytest.raises(errors.InvalidArgumentError, match=r"got \[2,2\] and \[2,3\]"):
        wf.ragged.stack_dynamic_partitions([[1, 2], [3, 4]], [[1, 2, 3], [4, 5, 6]], 10)


@pytest.mark.parametrize("shape", [[], None, [1]])
def test_a_scalar_is_repeated_along_its_only_axis(shape: Any) -> None:
    value = wf.placeholder(wf.int32, shape)
    feed = [3] if shape else 3
    for repeats in (4, [4]):
        assert (
            wf.Session().run(wf.repeat(value, repeats, axis=0), {value: feed}).tolist() == [3] * 4
        )


def test_repeats_of_an_unknown_rank() -> None:
    value = wf.placeholder(wf.int32)
    found = wf.repeat(value, [1, 2], axis=1)
    assert wf.Session().run(found, {value: [[1, 2], [3, 4]]}).tolist() == [[1, 2, 2], [3, 4, 4]]


@pytest.mark.parametrize(
    ("rows", "rank", "shape"),
    [
        ([[[], []], [[]]], 1, [2, None, 0]),
        ([[[]], []], 1, [2, None, 0]),
        ([[[[]], []]], 2, [1, None, None, 0]),
        ([[], []], 1, [2, None]),
    ],
)
def test_constants_of_inner_values_without_elements(rows: Any, rank: int, shape: Any) -> None:
    value = wf.ragged.constant_value(rows, np.int32, ragged_rank=rank)
    assert (value.to_list(), list(value.shape), value.dtype) == (rows, shape, np.int32)
    constant = wf.ragged.constant(rows, wf.int32, ragged_rank=rank)
    assert constant.shape.as_list() == shape
    assert fetched(constant) == [rows]


def test_partitions_of_data_of_unknown_rank() -> None:
    data, partitions = wf.placeholder(wf.int32, None), wf.placeholder(wf.int32, [None, None])
    found = wf.ragged.stack_dynamic_partitions(data, partitions, 2)
    with wf.Session() as session:
        which = [[0, 1], [1, 0]]
        one = session.run(found, {data: [[1, 2], [3, 4]], partitions: which})
        assert one.to_list() == [[1, 4], [2, 3]]
        rows = session.run(found, {data: np.arange(8).reshape(2, 2, 2), partitions: which})
        assert rows.to_list() == [[[0, 1], [6, 7]], [[2, 3], [4, 5]]]
