"""Clipping against plain NumPy, dense and sparse."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from weft_autodiff import clipping
from weft_autodiff.gradients.backprop import gradients
from weft_exec import Session
from weft_graph.ir import builder
from weft_graph.ir.graph import Graph
from weft_graph.ir.indexed_slices import IndexedSlices
from weft_graph.ops import array
from weft_tensor import dtypes, errors


@pytest.fixture(autouse=True)
def graph() -> Iterator[Graph]:
    graph = Graph()
    with graph.as_default():
        yield graph


def run(*fetches: Any, feeds: Any = None) -> Any:
    with Session() as session:
        results = session.run(list(fetches), feeds)
    return results[0] if len(results) == 1 else results


X = np.array([[3.0, 0.0, -4.0], [1.0, 2.0, 2.0]])


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize(
    ("limit", "axes", "factor"),
    [
        (1.0, None, 1 / np.sqrt(34)),
        (100.0, None, 1.0),
        (4.0, [1], [[0.8], [1.0]]),
        (4.0, [0], 4 / np.maximum(4, np.sqrt([[10.0, 4.0, 20.0]]))),
    ],
)
def test_clip_by_norm(dtype: str, limit: float, axes: Any, factor: Any) -> None:
    element = dtypes.as_dtype(dtype)
    result = run(clipping.clip_by_norm(builder.constant(X, element), limit, axes))
    assert result.dtype == element.numpy
    np.testing.assert_allclose(result, X * factor, rtol=5e-3 if dtype == "float16" else 1e-6)


def test_clip_by_norm_of_unknown_rank() -> None:
    x = array.placeholder(dtypes.float64, None)
    result = run(clipping.clip_by_norm(x, 1.0), feeds={x: X})
    np.testing.assert_allclose(result, X / np.sqrt(34))


def test_clip_by_norm_keeps_the_shape() -> None:
    with pytest.raises(errors.InvalidArgumentError, match=r"\[2,3,1\] and \[2,3,2\]"):
        clipping.clip_by_norm(array.zeros([2, 3, 1]), [1.0, 2.0])


def test_clip_by_norm_of_zero_has_a_finite_gradient() -> None:
    x = builder.constant(np.zeros(3))
    clipped = clipping.clip_by_norm(x, 1.0)
    value, slope = run(clipped, gradients(clipped, x)[0])
    np.testing.assert_array_equal(value, np.zeros(3))
    assert np.isfinite(slope).all()


def test_clip_by_average_norm() -> None:
    factor = 0.1 / np.maximum(np.sqrt(34) / 6, 0.1)
    result = run(clipping.clip_by_average_norm(builder.constant(X), 0.1))
    np.testing.assert_allclose(result, X * factor)
    np.testing.assert_allclose(run(clipping.clip_by_average_norm(builder.constant(X), 5.0)), X)


def test_global_norm() -> None:
    other = np.array([5.0])
    norm = clipping.global_norm([builder.constant(X), None, builder.constant(other)])
    assert norm is not None
    np.testing.assert_allclose(run(norm), np.sqrt(34 + 25))
    assert clipping.global_norm([None]) is None


@pytest.mark.parametrize(("limit", "factor"), [(1.0, 1 / np.sqrt(59)), (10.0, 1.0)])
def test_clip_by_global_norm(limit: float, factor: float) -> None:
    tensors = [builder.constant(X), None, builder.constant([5.0], dtypes.float64)]
    clipped, norm = clipping.clip_by_global_norm(tensors, limit)
    assert clipped[1] is None
    first, second, total = run(clipped[0], clipped[2], norm)
    np.testing.assert_allclose(first, X * factor)
    np.testing.assert_allclose(second, [5.0 * factor])
    np.testing.assert_allclose(total, np.sqrt(59))


def test_clip_by_global_norm_with_a_given_norm() -> None:
    clipped, norm = clipping.clip_by_global_norm([builder.constant([2.0])], 1.0, use_norm=4.0)
    result, given = run(clipped[0], norm)
    assert given == 4.0
    np.testing.assert_allclose(result, [0.5])


def test_clip_by_global_norm_of_something_infinite_is_nan() -> None:
    clipped, _ = clipping.clip_by_global_norm([builder.constant([1.0, np.inf])], 1.0)
    assert np.isnan(run(clipped[0])).all()


def test_one_tensor_twice_is_scaled_once(graph: Graph) -> None:
    x = builder.constant([3.0, 4.0])
    clipped, _ = clipping.clip_by_global_norm([x, x], 1.0)
    assert clipped[0] is clipped[1]


def slices() -> IndexedSlices:
    return IndexedSlices(builder.constant(X), builder.constant([0, 2]), builder.constant([4, 3]))


def test_indexed_slices_stay_sparse() -> None:
    by_norm = clipping.clip_by_norm(slices(), 1.0)
    by_average = clipping.clip_by_average_norm(slices(), 0.1)
    by_global, _ = clipping.clip_by_global_norm([slices()], 1.0)
    for result, factor in [
        (by_norm, 1 / np.sqrt(34)),
        (by_average, 0.6 / np.sqrt(34)),
        (by_global[0], 1 / np.sqrt(34)),
    ]:
        assert isinstance(result, IndexedSlices)
        values, indices, shape = run(result.values, result.indices, result.dense_shape)
        np.testing.assert_allclose(values, X * factor)
        np.testing.assert_array_equal(indices, [0, 2])
        np.testing.assert_array_equal(shape, [4, 3])


@pytest.mark.parametrize("wrong", ["text", 3.0])
def test_a_list_is_wanted(wrong: Any) -> None:
    with pytest.raises(errors.InvalidTypeError, match="list of tensors"):
        clipping.clip_by_global_norm(wrong, 1.0)
    with pytest.raises(TypeError, match="list of tensors"):
        clipping.global_norm(builder.constant(1.0))  # type: ignore[arg-type]
