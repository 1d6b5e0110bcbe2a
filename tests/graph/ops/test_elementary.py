from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from weft_testing.evaluate import evaluate

import weft as wf
from weft_graph.ir.builder import constant
from weft_graph.ir.graph import Graph
from weft_graph.ir.indexed_slices import SparseTensor
from weft_tensor import errors


@pytest.fixture(autouse=True)
def graph() -> Iterator[Graph]:
    with Graph().as_default() as graph:
        yield graph


def test_polyval_is_horners_scheme() -> None:
    x = constant([0.0, 1.0, 2.0])
    np.testing.assert_array_equal(evaluate(wf.math.polyval([1.0, -2.0, 3.0], x)), [3, 2, 3])
    np.testing.assert_array_equal(evaluate(wf.math.polyval([], x)), [0, 0, 0])
    with pytest.raises(errors.InvalidArgumentError, match="list"):
        wf.math.polyval(constant([1.0]), x)  # type: ignore[arg-type]


def test_lbeta() -> None:
    # B(2, 3) = 1! 2! / 4!
    np.testing.assert_allclose(evaluate(wf.lbeta([[2.0, 3.0]])), [np.log(2 / 24)], rtol=1e-5)


def test_log_sigmoid_does_not_underflow() -> None:
    result = evaluate(wf.log_sigmoid(constant([-200.0, 0.0, 200.0])))
    np.testing.assert_allclose(result, [-200, -np.log(2), 0], rtol=1e-6)


def test_bessel_functions() -> None:
    x = constant([0.0, 1.0])
    np.testing.assert_allclose(evaluate(wf.math.bessel_i0(x)), [1, 1.2660658], rtol=1e-6)
    np.testing.assert_allclose(evaluate(wf.math.bessel_i1(x)), [0, 0.5651591], rtol=1e-6)


def test_sparse_tensors_stay_sparse() -> None:
    sparse = SparseTensor([[0, 1], [1, 0]], constant([-4.0, 9.0]), [2, 2])
    for function in (wf.abs, wf.negative, wf.sign, wf.square, wf.tanh, wf.erf):
        result = function(sparse)
        assert isinstance(result, SparseTensor)
        np.testing.assert_array_equal(
            evaluate(result.values), evaluate(function(constant([-4.0, 9.0])))
        )


def test_integers_are_refused() -> None:
    with pytest.raises(errors.InvalidArgumentError, match="int32"):
        wf.exp(constant([1]))


def test_python_floats_become_float32() -> None:
    assert wf.exp(1.0).dtype == "float32"
    assert wf.exp([1.0, 2.0]).dims == (2,)
