from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
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
    ("arguments", "dtype", "expected"),
    [
        ((5,), "int32", [0, 1, 2, 3, 4]),
        ((3, 9, 3), "int32", [3, 6]),
        ((3, 10, 3), "int32", [3, 6, 9]),
        ((3, 0, -1), "int32", [3, 2, 1]),
        ((2, 2), "int32", []),
        ((0.0, 1.0, 0.25), "float32", [0, 0.25, 0.5, 0.75]),
        ((0, 1, 0.5), "float32", [0, 0.5]),
        ((2.5,), "float32", [0, 1, 2]),
    ],
)
def test_range(arguments: Any, dtype: str, expected: Any) -> None:
    result = wf.range(*arguments)
    assert result.dtype == dtype
    assert result.dims == (len(expected),)
    np.testing.assert_array_equal(evaluate(result), expected)


def test_range_takes_the_widest_type_of_its_bounds() -> None:
    assert wf.range(constant(0, "int64"), 5).dtype == "int64"
    assert wf.range(constant(0, "int64"), 5.0).dtype == "float32"
    assert wf.range(0, 5, dtype="float64").dtype == "float64"
    assert wf.range(constant(5, "uint8")).dtype == "uint8"
    assert wf.range(3.0, dtype="int32").dtype == "int32"


@pytest.mark.parametrize("arguments", [(0, 5, 0), (0, 5, -1), (5, 0, 1), (5.0, 0.0, 0.5)])
def test_range_refuses_a_delta_that_leads_away(arguments: Any) -> None:
    with pytest.raises(errors.InvalidArgumentError, match="delta"):
        wf.range(*arguments)
    limit = out("Placeholder", (), {"dtype": dtypes.int32, "shape": []})
    with pytest.raises(errors.InvalidArgumentError, match="delta"):
        evaluate(wf.range(0, limit, -1), {limit: 4})


def test_a_range_up_to_the_end_of_its_type() -> None:
    result = wf.range(constant(250, "uint8"), constant(255, "uint8"), constant(2, "uint8"))
    np.testing.assert_array_equal(evaluate(result), [250, 252, 254])
    low, high = constant(-(2**63), "int64"), constant(2**63 - 1, "int64")
    result = wf.range(low, high, constant(2**62, "int64"))
    assert len(evaluate(result)) == 4


def test_linspace() -> None:
    np.testing.assert_allclose(evaluate(wf.linspace(0.0, 1.0, 5)), [0, 0.25, 0.5, 0.75, 1])
    with pytest.raises(errors.InvalidArgumentError, match="num"):
        wf.lin_space(0.0, 1.0, 0)


def test_bincount() -> None:
    x = constant([1, 1, 3])
    np.testing.assert_array_equal(evaluate(wf.bincount(x)), [0, 2, 0, 1])
    np.testing.assert_array_equal(evaluate(wf.bincount(x, minlength=6)), [0, 2, 0, 1, 0, 0])
    np.testing.assert_array_equal(evaluate(wf.bincount(x, maxlength=2)), [0, 2])
    weighted = wf.bincount(x, weights=constant([0.5, 1.0, 2.0]))
    np.testing.assert_array_equal(evaluate(weighted), [0, 1.5, 0, 2])
    empty = constant(np.zeros(0, np.int32))
    assert evaluate(wf.bincount(empty, dtype="float64")).shape == (0,)
    with pytest.raises(errors.InvalidArgumentError, match="at least 0"):
        evaluate(wf.bincount(constant([-1, 2])))


def test_histogram_bins() -> None:
    values = constant([-1.0, 0.0, 1.5, 2.0, 5.0, 15.0])
    bins = wf.histogram_fixed_width_bins(values, [0.0, 5.0], nbins=5)
    np.testing.assert_array_equal(evaluate(bins), [0, 0, 1, 2, 4, 4])
    counts = wf.histogram_fixed_width(values, [0.0, 5.0], nbins=5, dtype="int64")
    assert counts.dtype == "int64"
    np.testing.assert_array_equal(evaluate(counts), [2, 1, 1, 0, 2])
    with pytest.raises(errors.InvalidArgumentError, match="ascending"):
        evaluate(wf.histogram_fixed_width(values, [5.0, 0.0]))
