"""The gradient checker finds right gradients right, and wrong ones wrong."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import weft as wf
from weft_autodiff.gradient_checker import compute_gradient, compute_gradient_error
from weft_autodiff.registry import RegisterGradient
from weft_exec import Session
from weft_graph.ir import builder
from weft_graph.ir.graph import Graph
from weft_graph.ops import array, gather
from weft_graph.variables.reference import Variable
from weft_tensor import dtypes, errors

make_variable: Any = Variable


@pytest.fixture(autouse=True)
def graph() -> Iterator[Graph]:
    graph = Graph()
    with graph.as_default():
        yield graph


@pytest.mark.parametrize(
    ("dtype", "delta", "limit"),
    [("float32", 1e-2, 1e-3), ("float64", 1e-5, 1e-8), ("complex64", 1e-2, 1e-3)],
)
def test_right_gradient(dtype: str, delta: float, limit: float) -> None:
    x = array.placeholder(dtypes.as_dtype(dtype), [2, 3])
    w = builder.constant(np.arange(12.0).reshape(3, 4), x.dtype) * 0.1
    y = wf.square(wf.matmul(x, w))
    with Session():
        assert compute_gradient_error(x, [2, 3], y, [2, 4], delta=delta) < limit


def test_jacobians() -> None:
    x = array.placeholder(dtypes.float64, [2])
    y = wf.matmul(
        builder.constant([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]], dtypes.float64), x[:, None]
    )
    with Session():
        theoretical, numeric = compute_gradient(x, [2], y, [3, 1], np.array([1.0, -1.0]))
    wanted = [[1.0, 3.0, 5.0], [2.0, 4.0, 6.0]]
    np.testing.assert_allclose(theoretical, wanted)
    np.testing.assert_allclose(numeric, wanted, rtol=1e-9)


def test_complex_numbers_are_two_reals() -> None:
    x = array.placeholder(dtypes.complex128, [])
    y = x * (2.0 + 3.0j)
    with Session():
        theoretical, numeric = compute_gradient(x, [], y, [], 0.5 + 0.25j)
    wanted = [[2.0, 3.0], [-3.0, 2.0]]
    np.testing.assert_allclose(theoretical, wanted)
    np.testing.assert_allclose(numeric, wanted, rtol=1e-9)


def test_real_from_complex() -> None:
    x = array.placeholder(dtypes.complex128, [2])
    with Session():
        assert compute_gradient_error(x, [2], wf.abs(x), [2], delta=1e-6) < 1e-6


def test_several_inputs_and_feeds() -> None:
    a = array.placeholder(dtypes.float64, [2])
    b = array.placeholder(dtypes.float64, [2])
    c = array.placeholder(dtypes.float64, [])
    y = a * b * c
    with Session():
        pairs = compute_gradient(
            [a, b], [[2], [2]], y, [2], [[1.0, 2.0], [3.0, 4.0]], extra_feed_dict={c: 10.0}
        )
        error = compute_gradient_error([a, b], [[2], [2]], y, [2], extra_feed_dict={c: 2.0})
    np.testing.assert_allclose(pairs[0][0], np.diag([30.0, 40.0]))
    np.testing.assert_allclose(pairs[1][1], np.diag([10.0, 20.0]))
    assert error < 1e-8


def test_sparse_gradient() -> None:
    x = array.placeholder(dtypes.float64, [4, 2])
    y = wf.square(gather.gather(x, [3, 1, 3]))
    with Session():
        assert compute_gradient_error(x, [4, 2], y, [3, 2], delta=1e-5) < 1e-8


def test_of_a_variable() -> None:
    x = make_variable([1.0, 2.0], dtype=dtypes.float64)
    y = wf.square(x.value())
    with Session():
        error = compute_gradient_error(x.value(), [2], y, [2], init_targets=x.initializer)
    assert error < 1e-8


def test_unconnected() -> None:
    x = array.placeholder(dtypes.float64, [2])
    with Session():
        theoretical, numeric = compute_gradient(x, [2], builder.constant([1.0]), [1])
    assert not theoretical.any() and not numeric.any()


def test_wrong_gradient(graph: Graph) -> None:
    RegisterGradient("TestWrongSquare")(lambda op, grad: grad)
    x = array.placeholder(dtypes.float64, [2])
    with graph.gradient_override_map({"Square": "TestWrongSquare"}):
        y = wf.square(x)
    with Session():
        assert compute_gradient_error(x, [2], y, [2], [2.0, 3.0]) == pytest.approx(5.0)


def test_nan_comes_through() -> None:
    x = array.placeholder(dtypes.float64, [1])
    with Session():
        assert np.isnan(compute_gradient_error(x, [1], wf.log(x), [1], [-1.0]))


def test_refusals() -> None:
    x = array.placeholder(dtypes.float64, [2])
    with pytest.raises(errors.FailedPreconditionError, match="session"):
        compute_gradient(x, [2], x * 2.0, [2])
    with Session(), pytest.raises(ValueError, match=r"shape \[2\], got \[3\]"):
        compute_gradient(x, [2], x * 2.0, [2], np.zeros(3))
