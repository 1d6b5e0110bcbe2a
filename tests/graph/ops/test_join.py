"""Joining and splitting: API and refusals, beyond the conformance table."""

from __future__ import annotations

from typing import Any

import pytest
from weft_testing.arrays import fed, table
from weft_testing.evaluate import evaluate

from weft_graph import Graph
from weft_graph.ir.builder import constant
from weft_graph.ops import (
    join,
)
from weft_tensor import dtypes, errors


@pytest.fixture(autouse=True)
def _graph() -> Any:
    with Graph().as_default():
        yield


def test_joining_one_tensor_copies_nothing() -> None:
    x = fed(2)
    y = join.concat([x], 0)
    assert y.node.type == "Identity" and y.dims == (2,)
    with pytest.raises(errors.InvalidArgumentError, match=r"\[-1, 1\)"):
        join.concat([x], 1)


def test_splits() -> None:
    x = table(6)
    assert [p.tolist() for p in evaluate(join.split(x, 3))] == [[0, 1], [2, 3], [4, 5]]
    assert [p.tolist() for p in evaluate(join.split(x, [1, 5]))] == [[0], [1, 2, 3, 4, 5]]
    sizes = fed(None, dtype=dtypes.int32)
    with pytest.raises(errors.InvalidArgumentError, match="pass num"):
        join.split(x, sizes)
    parts = evaluate(join.split(x, sizes, num=2), {sizes: [2, 4]})
    assert [len(part) for part in parts] == [2, 4]


def test_stacks_of_plain_values() -> None:
    assert evaluate(join.stack([1, 2])).tolist() == [1, 2]
    assert evaluate(join.stack([1, constant(2)])).tolist() == [1, 2]
    assert join.stack([fed(2), [1.0, 2.0]], axis=-1).dims == (2, 2)
    assert evaluate(join.unstack([[1, 2], [3, 4]], axis=1)[1]).tolist() == [2, 4]
