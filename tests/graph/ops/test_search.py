from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from weft_testing.evaluate import evaluate

from weft_graph.ir.builder import out
from weft_graph.ir.graph import Graph
from weft_graph.ops import search
from weft_tensor import dtypes, errors


@pytest.fixture(autouse=True)
def graph() -> Iterator[Graph]:
    with Graph().as_default() as graph:
        yield graph


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32", "float32", "float64"])
@pytest.mark.parametrize("axis", [0, 1, 2, -1, -2])
def test_sorting_agrees_with_numpy(dtype: str, axis: int) -> None:
    x = np.random.default_rng(0).integers(0, 9, (3, 4, 5)).astype(dtype)
    if np.issubdtype(x.dtype, np.integer):
        x[0, 0, :2] = np.iinfo(dtype).min, np.iinfo(dtype).max
    up, down, places = evaluate(
        [
            search.sort(x, axis),
            search.sort(x, axis, "DESCENDING"),
            search.argsort(x, axis),
        ]
    )
    np.testing.assert_array_equal(up, np.sort(x, axis))
    np.testing.assert_array_equal(down, np.flip(np.sort(x, axis), axis))
    np.testing.assert_array_equal(places, np.argsort(x, axis, kind="stable"))


def test_sorting_what_has_no_static_shape() -> None:
    x = out("Placeholder", (), {"dtype": dtypes.float32, "shape": None})
    fed = np.array([[3.0, 1.0, 2.0]], np.float32)
    np.testing.assert_array_equal(evaluate(search.sort(x), {x: fed}), [[1.0, 2.0, 3.0]])
    with pytest.raises(errors.InvalidArgumentError, match="known rank"):
        search.sort(x, axis=0)


def test_bad_arguments_of_sort() -> None:
    with pytest.raises(errors.InvalidArgumentError, match=r"in \[-1, 1\), got 1"):
        search.sort([1.0, 2.0], axis=1)
    with pytest.raises(errors.InvalidArgumentError, match="'UP'"):
        search.argsort([1.0, 2.0], direction="UP")
