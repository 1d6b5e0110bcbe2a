from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from weft_testing.evaluate import evaluate

import weft as wf
from weft_graph.ir.builder import constant, out
from weft_graph.ir.graph import Graph
from weft_graph.ir.node import Output
from weft_tensor import dtypes, errors

X = np.array([[1.0, 2.0, 3.0], [4.0, 0.0, 6.0]])


@pytest.fixture(autouse=True)
def graph() -> Iterator[Graph]:
    with Graph().as_default() as graph:
        yield graph


def feed(shape: Any, dtype: str = "float32") -> Output:
    return out("Placeholder", (), {"dtype": dtypes.as_dtype(dtype), "shape": shape})


def test_axis_forms() -> None:
    x = constant(X)
    assert evaluate(wf.reduce_sum(x)) == 16
    np.testing.assert_array_equal(evaluate(wf.reduce_sum(x, 0)), [5, 2, 9])
    np.testing.assert_array_equal(evaluate(wf.reduce_sum(x, [-1])), [6, 10])
    np.testing.assert_array_equal(evaluate(wf.reduce_sum(x, constant(0))), [5, 2, 9])
    np.testing.assert_array_equal(evaluate(wf.reduce_sum(x, np.array([0, 1]))), 16)
    np.testing.assert_array_equal(evaluate(wf.reduce_sum(x, [])), X)
    assert evaluate(wf.reduce_sum(x, keepdims=True)).shape == (1, 1)


def test_former_argument_names() -> None:
    x = constant(X)
    result = wf.reduce_max(x, reduction_indices=[1], keep_dims=True)
    np.testing.assert_array_equal(evaluate(result), [[3], [6]])
    with pytest.raises(errors.InvalidArgumentError, match="reduction_indices"):
        wf.reduce_max(x, axis=0, reduction_indices=0)
    with pytest.raises(errors.InvalidArgumentError, match="keep_dims"):
        wf.reduce_max(x, keepdims=True, keep_dims=True)
    np.testing.assert_array_equal(evaluate(wf.argmax(x, dimension=1)), [2, 2])


def test_all_axes_of_an_unknown_rank() -> None:
    x = feed(None)
    total = wf.reduce_sum(x)
    assert evaluate(total, {x: X}) == 16
    assert wf.reduce_sum(feed([None, 3]), 1).dims == (None,)
    assert wf.reduce_sum(feed([None, 3]), 0, keepdims=True).dims == (1, 3)
    assert wf.reduce_sum(feed([None, 3]), feed([], "int32")).dims is None


@pytest.mark.parametrize("axis", [2, -3, [0, 2], [0, 0], [0, -2]])
def test_bad_axes_are_refused_while_the_graph_is_built(axis: Any) -> None:
    with pytest.raises(errors.InvalidArgumentError, match="axis"):
        wf.reduce_sum(constant(X), axis)


def test_bad_axes_are_refused_when_run() -> None:
    x, axis = feed([2, 3]), feed([], "int32")
    with pytest.raises(errors.InvalidArgumentError, match="axis"):
        evaluate(wf.reduce_sum(x, axis), {x: X, axis: 5})


def test_logsumexp_neither_overflows_nor_underflows() -> None:
    x = constant([[1000.0, 1000.0], [-1000.0, -1000.0], [-np.inf, -np.inf], [np.inf, 0.0]])
    result = evaluate(wf.reduce_logsumexp(x, 1))
    np.testing.assert_allclose(result, [1000 + np.log(2), -1000 + np.log(2), -np.inf, np.inf])
    assert evaluate(wf.reduce_logsumexp(x, 1, keepdims=True)).shape == (4, 1)
    assert evaluate(wf.reduce_logsumexp(constant(X))).shape == ()


def test_moments() -> None:
    x = constant(X)
    np.testing.assert_allclose(evaluate(wf.math.reduce_variance(x, 0)), X.var(0))
    np.testing.assert_allclose(evaluate(wf.math.reduce_std(x, keepdims=True)), [[X.std()]])
    z = constant(X + 1j * X)
    variance = wf.math.reduce_variance(z)
    assert variance.dtype == "float64"
    np.testing.assert_allclose(evaluate(variance), 2 * X.var())
    with pytest.raises(errors.InvalidArgumentError, match="int32"):
        wf.math.reduce_variance(constant([1, 2]))


def test_count_nonzero() -> None:
    x = constant(X)
    result = wf.count_nonzero(x, axis=1, dtype="int32")
    assert result.dtype == "int32"
    np.testing.assert_array_equal(evaluate(result), [3, 2])
    assert evaluate(wf.count_nonzero(constant(["", "a", "b"]))) == 2
    assert evaluate(wf.count_nonzero(constant([True, False]))) == 1


def test_positions_require_elements() -> None:
    with pytest.raises(errors.InvalidArgumentError, match="elements"):
        evaluate(wf.argmax(constant(np.zeros((2, 0))), 1))
    with pytest.raises(errors.InvalidArgumentError, match="rank at least 1"):
        wf.argmin(constant(3.0))
    assert wf.arg_max(constant(X), 1).dtype == "int64"


def test_scans_check_their_axis() -> None:
    with pytest.raises(errors.InvalidArgumentError, match="axis"):
        wf.cumsum(constant(X), 2)
    result = wf.cumsum(constant([1, 2, 3]), exclusive=True, reverse=True)
    np.testing.assert_array_equal(evaluate(result), [5, 3, 0])


def test_all_and_any_of_an_empty_list() -> None:
    assert evaluate(wf.reduce_all([])) and not evaluate(wf.reduce_any([]))
