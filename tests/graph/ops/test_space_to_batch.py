"""Blocks of space: API and refusals, beyond the conformance table."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from weft_testing.arrays import table
from weft_testing.evaluate import evaluate

from weft_graph import Graph
from weft_graph.ops import array, space_to_batch
from weft_tensor import dtypes


@pytest.fixture(autouse=True)
def _graph() -> Any:
    with Graph().as_default():
        yield


def test_images_to_batches_and_back() -> None:
    x = table(1, 4, 4, 2)
    there = space_to_batch.space_to_batch(x, [[0, 0], [0, 0]], 2)
    back = space_to_batch.batch_to_space(there, [[0, 0], [0, 0]], 2)
    assert there.dims == (4, 2, 2, 2) and back.dims == x.shape
    np.testing.assert_array_equal(evaluate(back), x)


def test_images_have_four_axes() -> None:
    x, sizes = array.placeholder(dtypes.float32), array.placeholder(dtypes.int32)
    for function in (space_to_batch.space_to_batch, space_to_batch.batch_to_space):
        assert function(x, sizes, block_size=4).dims == (None,) * 4
