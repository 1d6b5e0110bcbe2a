from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from weft_testing.cases import normal
from weft_testing.evaluate import evaluate

import weft as wf
from weft_graph.ir.builder import constant, out
from weft_graph.ir.graph import Graph
from weft_tensor import dtypes, errors


@pytest.fixture(autouse=True)
def graph() -> Iterator[Graph]:
    with Graph().as_default() as graph:
        yield graph


@pytest.mark.parametrize(
    ("ids", "message"),
    [([0, 2, 1], "decrease"), ([-1, 0, 1], "at least 0")],
)
def test_sorted_ids_are_checked(ids: Any, message: str) -> None:
    with pytest.raises(errors.InvalidArgumentError, match=message):
        evaluate(wf.segment_sum(normal(3, 2), ids))


def test_as_many_ids_as_rows() -> None:
    with pytest.raises(errors.InvalidArgumentError, match="3 and 2"):
        wf.segment_max(normal(3, 2), [0, 1])
    with pytest.raises(errors.InvalidArgumentError, match="start with"):
        wf.unsorted_segment_sum(normal(3, 2), [0, 1], 2)


def test_an_id_that_is_out_of_range_is_named() -> None:
    with pytest.raises(errors.InvalidArgumentError, match=r"segment_ids\[1\] = 5"):
        evaluate(wf.unsorted_segment_sum(normal(3, 2), [0, 5, 1], 3))


def test_means_and_square_roots() -> None:
    data, ids = normal(4, 2), [1, 1, 0, 3]
    mean = evaluate(wf.unsorted_segment_mean(data, ids, 4))
    np.testing.assert_allclose(mean, [data[2], data[:2].mean(0), [0, 0], data[3]])
    root = evaluate(wf.unsorted_segment_sqrt_n(data, ids, 4))
    np.testing.assert_allclose(root[1], data[:2].sum(0) / np.sqrt(2))
    x = out("Placeholder", (), {"dtype": dtypes.float64, "shape": None})
    np.testing.assert_allclose(evaluate(wf.unsorted_segment_mean(x, ids, 4), {x: data}), mean)
    vector = evaluate(wf.unsorted_segment_mean(data[:, 0], ids, 4))
    np.testing.assert_allclose(vector, mean[:, 0])


def test_sparse_segments() -> None:
    data = normal(5, 2)
    result = wf.sparse_segment_sum(data, [0, 4], [0, 0], num_segments=3)
    assert result.dims == (3, 2)
    np.testing.assert_allclose(evaluate(result), [data[0] + data[4], [0, 0], [0, 0]])
    with pytest.raises(errors.InvalidArgumentError, match=r"indices\[1\] = 7"):
        evaluate(wf.sparse_segment_mean(data, [0, 7], [0, 1]))
    with pytest.raises(errors.InvalidArgumentError, match="out of range"):
        evaluate(wf.sparse_segment_sqrt_n(data, [0, 1], [0, 5], num_segments=constant(2)))
