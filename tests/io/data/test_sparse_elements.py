"""Sparse tensors in elements that are sliced, batched and windowed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from weft_testing.waiting import rounds

import weft as wf
from weft import errors


def run(dataset: wf.data.Dataset) -> list[Any]:
    element = dataset.make_one_shot_iterator().get_next()
    found = []
    with wf.Session() as session:
        for _ in rounds():
            try:
                found.append(session.run(element))
            except errors.OutOfRangeError:
                return found


def _sparse_rows() -> wf.SparseTensor:
    return wf.SparseTensor([[0, 0], [1, 2], [3, 1]], [1.0, 2.0, 3.0], [4, 3])


def _dense_of(dataset: wf.data.Dataset) -> Any:
    return run(dataset.map(lambda element: wf.sparse.to_dense(element)))


def test_rows_and_batches_of_sparse_tensors() -> None:
    with wf.Graph().as_default():
        expected = wf.Session().run(wf.sparse.to_dense(_sparse_rows()))
        rows = wf.data.Dataset.from_tensor_slices(_sparse_rows())
        assert rows.output_shapes.as_list() == [3]
        np.testing.assert_array_equal(np.stack(_dense_of(rows)), expected)
        batches = rows.batch(3)
        assert batches.output_shapes.as_list() == [None, 3]
        first, last = _dense_of(batches)
        np.testing.assert_array_equal(first, expected[:3])
        np.testing.assert_array_equal(last, expected[3:])
        unbatched = batches.apply(wf.data.experimental.unbatch())
        np.testing.assert_array_equal(np.stack(_dense_of(unbatched)), expected)
        windows = rows.window(2).flat_map(lambda window: window.batch(2))
        np.testing.assert_array_equal(np.concatenate(_dense_of(windows)), expected)


def test_sparse_tensors_beside_dense_ones_grow_to_the_largest_of_a_batch() -> None:
    with wf.Graph().as_default():
        element = {
            "n": wf.data.Dataset.range(3),
            "s": wf.data.Dataset.range(3).map(lambda i: wf.SparseTensor([[i]], [i], [i + 1])),
        }
        dataset = (
            wf.data.Dataset.zip(element)
            .batch(2)
            .map(lambda batch: (batch["n"], wf.sparse.to_dense(batch["s"])))
        )
        (n, s), (m, t) = run(dataset)
        assert (n.tolist(), s.tolist()) == ([0, 1], [[0, 0], [0, 1]])
        assert (m.tolist(), t.tolist()) == ([2], [[0, 0, 2]])


def test_sparse_tensors_of_different_ranks_are_no_batch() -> None:
    with wf.Graph().as_default():
        dataset = wf.data.Dataset.range(2).map(
            lambda i: wf.SparseTensor(
                wf.zeros([0, i + 1], wf.int64), wf.zeros([0]), wf.ones([i + 1], wf.int64)
            )
        )
        with pytest.raises(errors.InvalidArgumentError, match="rank"):
            run(dataset.batch(2))
