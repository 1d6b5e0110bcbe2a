"""Division: API and refusals, beyond the conformance table."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from weft_testing.evaluate import evaluate

import weft as wf
from weft_graph.ir.builder import constant
from weft_graph.ir.graph import Graph
from weft_graph.ir.node import Output
from weft_tensor import dtypes, errors


@pytest.fixture(autouse=True)
def graph() -> Iterator[Graph]:
    with Graph().as_default() as graph:
        yield graph


def value(x: Any, dtype: str = "float32") -> Output:
    return constant(x, dtype)


@pytest.mark.parametrize(
    ("dtype", "quotient"),
    [
        ("int8", "float32"),
        ("uint16", "float32"),
        ("int32", "float64"),
        ("uint64", "float64"),
        ("float16", "float16"),
        ("bfloat16", "bfloat16"),
        ("complex64", "complex64"),
    ],
)
def test_truediv_divides_as_python_does(dtype: str, quotient: str) -> None:
    result = value(7, dtype) / value(2, dtype)
    assert result.dtype == quotient
    assert evaluate(result) == 3.5


@pytest.mark.parametrize("function", [wf.floordiv, wf.floormod, wf.truncatediv, wf.mod])
@pytest.mark.parametrize("dtype", ["int8", "int32", "uint64"])
def test_integer_division_by_zero_is_an_error(function: Any, dtype: str) -> None:
    for divisor in (0, [1, 0]):
        with pytest.raises(errors.InvalidArgumentError, match="division by zero"):
            evaluate(function(value([4, 5], dtype), value(divisor, dtype)))


def test_the_lowest_integer_divided_by_minus_one_wraps() -> None:
    lowest, minus = value(-(2**31), "int32"), value(-1, "int32")
    assert evaluate(wf.floordiv(lowest, minus)) == -(2**31)
    assert evaluate(wf.truncatediv(lowest, minus)) == -(2**31)
    assert evaluate(wf.floormod(lowest, minus)) == 0
    assert evaluate(wf.truncatemod(lowest, minus)) == 0


def test_div_is_python_2s_division() -> None:
    assert evaluate(wf.div(value(-7, "int32"), 2)) == -4
    assert evaluate(wf.div(value(-7.0), 2)) == -3.5


def test_reciprocal_without_nan() -> None:
    result = wf.math.reciprocal_no_nan(value([0.0, 2.0, -4.0]))
    np.testing.assert_array_equal(evaluate(result), [0.0, 0.5, -0.25])
    assert result.dtype is dtypes.float32
