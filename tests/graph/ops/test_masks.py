"""Masks: API and refusals, beyond the conformance table."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from weft_testing.arrays import fed, table
from weft_testing.evaluate import evaluate

from weft_graph import Graph
from weft_graph.ops import (
    masks,
)
from weft_tensor import dtypes


@pytest.fixture(autouse=True)
def _graph() -> Any:
    with Graph().as_default():
        yield


def test_boolean_masks() -> None:
    x = table(2, 3, 4)
    for mask, axis in (
        (np.array([True, False]), None),
        (x[:, :, 0] > 3, None),
        (np.array([True, False, True]), 1),
        (x[0] > 3, 1),
    ):
        y = masks.boolean_mask(x, mask, axis=axis)
        at = axis or 0
        key = (slice(None),) * at + (mask,)
        np.testing.assert_array_equal(evaluate(y), x[key])
    hidden = fed(None, None, 4)
    y = masks.boolean_mask(hidden, x[:, :, 0] > 3)
    np.testing.assert_array_equal(evaluate(y, {hidden: x}), x[x[:, :, 0] > 3])


def test_sequence_masks() -> None:
    mask = masks.sequence_mask([1, 3, 0])
    assert evaluate(mask).tolist() == [[True, False, False], [True] * 3, [False] * 3]
    mask = masks.sequence_mask(np.array([[1], [2]], np.int64), 4, dtypes.float32)
    assert mask.dims == (2, 1, 4) and evaluate(mask).sum() == 3
    assert evaluate(masks.sequence_mask(np.zeros(0, np.int32))).shape == (0, 0)
    # neither lengths nor the number of columns wrap around in the other's type
    mask = masks.sequence_mask(np.array([1, 200], np.uint8), 300)
    assert evaluate(mask).sum(1).tolist() == [1, 200]
    mask = masks.sequence_mask(np.array([2**32 + 1]), np.array(3, np.int32))
    assert evaluate(mask).tolist() == [[True] * 3]
    assert masks.sequence_mask([1], 2**45).dims == (1, 2**45)
