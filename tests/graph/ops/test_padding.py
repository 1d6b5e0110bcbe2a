"""Padding: API and refusals, beyond the conformance table."""

from __future__ import annotations

from typing import Any

import pytest
from weft_testing.arrays import table
from weft_testing.evaluate import evaluate

from weft_graph import Graph
from weft_graph.ops import (
    masks,
    padding,
)


@pytest.fixture(autouse=True)
def _graph() -> Any:
    with Graph().as_default():
        yield


def test_required_paddings() -> None:
    paddings, crops = masks.required_space_to_batch_paddings([10, 11], [5, 3])
    assert evaluate(paddings).tolist() == [[0, 0], [0, 1]]
    assert evaluate(crops).tolist() == [[0, 0], [0, 1]]
    paddings, _ = masks.required_space_to_batch_paddings([10], [5], [[1, 0]])
    assert evaluate(paddings).tolist() == [[1, 4]]


def test_pads() -> None:
    x = table(2)
    assert evaluate(padding.pad(x, [[1, 1]])).tolist() == [0, 0, 1, 0]
    assert evaluate(padding.pad(x, [[1, 1]], constant_values=7)).tolist() == [7, 0, 1, 7]
    assert evaluate(padding.pad(x, [[1, 1]], "Symmetric")).tolist() == [0, 0, 1, 1]
