"""Products of sparse and dense matrices, of rows with few, many, equal and no values."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from weft_testing.parts import Parts

import weft as wf

ROWS, COLUMNS = 700, 90
DTYPES = (np.int32, np.float16, np.float32, np.float64, np.complex64, np.complex128)


def _places(kind: str, rng: np.random.Generator) -> Any:
    """Indices of a matrix: ordered or not, with most values in a few rows, or none at all."""
    count = 0 if kind == "empty" else 4000
    places = np.stack([rng.integers(0, ROWS, count), rng.integers(0, COLUMNS, count)], 1)
    if kind == "skewed":
        places[:, 0] = ROWS * rng.random(count) ** 6
    if kind == "ordered":
        places = places[np.lexsort(places.T[::-1])]
    return places.astype(np.int64)


def _numbers(dtype: Any, shape: Any, rng: np.random.Generator) -> Any:
    found = rng.integers(-4, 5, shape) + 1j * rng.integers(-4, 5, shape)
    return (found if np.dtype(dtype).kind == "c" else found.real).astype(dtype)


def _expected(places: Any, values: Any, b: Any, adjoint_a: bool, adjoint_b: bool) -> Any:
    wide = np.complex128 if values.dtype.kind == "c" else np.float64
    a = np.zeros((ROWS, COLUMNS), wide)
    np.add.at(a, tuple(places.T), values)
    return (a.conj().T if adjoint_a else a) @ (b.conj().T if adjoint_b else b).astype(wide)


@pytest.mark.parametrize("mode", ["now", "off"])
@pytest.mark.parametrize("kind", ["ordered", "unordered", "skewed", "empty"])
def test_products_are_those_of_dense_matrices(
    kind: str, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WEFT_JIT", mode)
    rng = np.random.default_rng(1)
    places = _places(kind, rng)
    with Parts() as parts:
        for number, dtype in enumerate(DTYPES if mode == "off" else DTYPES[2:3]):
            for width in (0, 1, 8, 9, 40) if mode == "off" else (1, 40):
                turned = bool((number + width) % 2), bool((number + width) % 3)
                values = _numbers(dtype, len(places), rng)
                shape = (ROWS if turned[0] else COLUMNS, width)
                b = _numbers(dtype, shape[::-1] if turned[1] else shape, rng)
                with parts.part(f"{np.dtype(dtype)} {width}"), wf.Graph().as_default():
                    a = wf.sparse_placeholder(dtype)
                    fed = wf.placeholder(dtype, [None, None])
                    found = wf.sparse_tensor_dense_matmul(a, fed, *turned)
                    feeds = {a: wf.SparseTensorValue(places, values, [ROWS, COLUMNS]), fed: b}
                    with wf.Session() as session:
                        result = session.run(found, feeds)
                    assert result.dtype == dtype
                    np.testing.assert_array_equal(result, _expected(places, values, b, *turned))


@pytest.mark.parametrize("mode", ["now", "off"])
@pytest.mark.parametrize("width", [1, 40])
def test_what_is_not_finite_reaches_its_rows_alone(
    width: int, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WEFT_JIT", mode)
    rng = np.random.default_rng(2)
    places, b = _places("unordered", rng), np.ones((COLUMNS, width), np.float32)
    b[3], b[5] = np.inf, np.nan
    values = (places[:, 0] % 2).astype(np.float32)  # a zero that is stored counts, too
    with wf.Graph().as_default(), wf.Session() as session:
        a, fed = wf.sparse_placeholder(wf.float32), wf.placeholder(wf.float32, [None, None])
        feeds = {a: wf.SparseTensorValue(places, values, [ROWS, COLUMNS]), fed: b}
        found = session.run(wf.sparse_tensor_dense_matmul(a, fed), feeds)
    expected = np.zeros((ROWS, width), np.float32)
    with np.errstate(invalid="ignore"):
        for (row, column), value in zip(places, values, strict=True):
            expected[row] += value * b[column]
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("mode, width", [("now", 3), ("off", 3), ("off", 40)])
@pytest.mark.parametrize("turned", [(False, False), (True, False), (False, True), (True, True)])
def test_gradients_are_those_of_dense_matrices(
    turned: tuple[bool, bool], width: int, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WEFT_JIT", mode)
    rng = np.random.default_rng(3)
    places = np.unique(_places("skewed", rng), axis=0)
    values = rng.normal(size=len(places))
    shape = (ROWS if turned[0] else COLUMNS, width)
    b = rng.normal(size=shape[::-1] if turned[1] else shape)
    with wf.Graph().as_default(), wf.Session() as session:
        a, fed = wf.sparse_placeholder(wf.float64), wf.placeholder(wf.float64, [None, None])
        dense = wf.scatter_nd(a.indices, a.values, a.dense_shape)
        results = []
        for product in (
            wf.sparse_tensor_dense_matmul(a, fed, *turned),
            wf.matmul(dense, fed, adjoint_a=turned[0], adjoint_b=turned[1]),
        ):
            loss = wf.reduce_sum(wf.square(product))
            results.append(wf.gradients(loss, [a.values, fed]))
        feeds = {a: wf.SparseTensorValue(places, values, [ROWS, COLUMNS]), fed: b}
        sparse, expected = session.run(results, feeds)
    for one, other in zip(sparse, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-9)
