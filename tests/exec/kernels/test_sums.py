"""Sums computed as products with ones: special values and accuracy."""

import numpy as np
import pytest
from weft_testing.parts import Parts

import weft as wf


def run(value, **how):
    with wf.Graph().as_default(), wf.Session() as session:
        x = wf.placeholder(wf.as_dtype(value.dtype))
        return session.run(wf.reduce_sum(x, **how), {x: value})


SHAPES = [(70,), (3, 40), (40, 3), (9, 8, 7), (2, 3000, 5), (3, 5, 64, 2), (0, 90), (90, 0)]


def test_all_axes_and_types():
    with Parts() as parts:
        for shape in SHAPES:
            for dtype in ("float32", "float64", "complex64", "int32"):
                value = (np.arange(np.prod(shape)) % 17 - 8).astype(dtype).reshape(shape)
                for axis in [None, *range(-len(shape), len(shape)), tuple(range(len(shape) - 1))]:
                    for keepdims in (False, True):
                        with parts.part(f"{shape} {dtype} {axis} {keepdims}"):
                            got = run(value, axis=axis, keepdims=keepdims)
                            wanted = value.sum(axis, keepdims=keepdims, dtype=dtype)
                            assert got.dtype == dtype
                            np.testing.assert_array_equal(got, wanted)


def test_strided_values_are_summed_as_they_are():
    value = np.arange(6000, dtype=np.float32).reshape(60, 100) % 7
    with wf.Graph().as_default(), wf.Session() as session:
        turned = wf.reduce_sum(wf.transpose(wf.constant(value))[::2], axis=1)
        np.testing.assert_array_equal(session.run(turned), value.T[::2].sum(1))


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64"])
@pytest.mark.parametrize("size", [100, 129, 1000, 40_000])
def test_columns_of_a_matrix_and_reversed_values(size, dtype):
    value = (np.arange(3 * size) % 13 - 5).astype(dtype).reshape(size, 3)
    with wf.Graph().as_default(), wf.Session() as session:
        x = wf.placeholder(wf.as_dtype(dtype), [None, 3])
        sums = [
            wf.reduce_sum(x[:, 1]),
            wf.reduce_sum(x[:, 1], keepdims=True),
            wf.reduce_sum(x[::-1, 2]),
            wf.reduce_sum(x[::3, 0]),
            wf.reduce_mean(wf.unstack(x, axis=1)[2]) * size,
        ]
        got = session.run(sums, {x: value})
    wanted = [
        value[:, 1].sum(), value[:, 1].sum(keepdims=True), value[:, 2].sum(), value[::3, 0].sum(),
        value[:, 2].sum(),
    ]  # fmt: skip
    for one, other in zip(got, wanted, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-3)


def test_long_sums_of_squares_keep_their_digits():
    value = np.random.default_rng(0).random(3_000_000, np.float32)
    with wf.Graph().as_default(), wf.Session() as session:
        got = session.run(wf.nn.l2_loss(wf.constant(value)))
    assert abs(got / (0.5 * np.sum(np.square(value, dtype=np.float64))) - 1) < 1e-6


@pytest.mark.parametrize("axis", [0, 1])
def test_what_is_not_finite_stays_in_its_own_sum(axis):
    value = np.ones((80, 90), np.float32)
    value[3, 4], value[5, 6], value[7, 8] = np.nan, np.inf, -np.inf
    found = run(value, axis=axis)
    np.testing.assert_array_equal(found, value.sum(axis))
    assert np.isfinite(found).sum() == len(found) - 3


@pytest.mark.parametrize("shape", [(300_000, 3), (3, 300_000), (300_001,)])
def test_long_sums_lose_little(shape):
    value = np.random.RandomState(0).rand(*shape).astype(np.float32)
    axis = int(np.argmax(shape))
    exact = value.sum(axis, dtype=np.float64)
    np.testing.assert_allclose(run(value, axis=axis), exact, rtol=8 * np.finfo(np.float32).eps)


@pytest.mark.parametrize("dtype", ["float32", "complex64"])
def test_long_columns_lose_as_little_as_rows(dtype):
    """NumPy adds up columns one after the other: 100,000 equal numbers are off by 1e-3 then."""
    cases = [
        ((100_000, 64), 0),
        ((2, 50_000, 70), 1),
        ((40, 2000, 70), (0, 1)),
        ((5000, 2, 90), (0, 2)),
    ]
    for shape, axis in cases:
        value = np.full(shape, 0.1, dtype)
        exact = value.sum(axis, dtype="complex128")
        np.testing.assert_allclose(run(value, axis=axis), exact, rtol=3e-6)


def test_rows_of_transposed_values_lose_as_little():
    with wf.Graph().as_default(), wf.Session() as session:
        columns = wf.fill([100_000, 64], np.float32(0.1))
        rows = session.run(wf.reduce_sum(wf.transpose(columns), axis=1))
        np.testing.assert_allclose(rows, 1e5 * np.float64(np.float32(0.1)), rtol=3e-6)
