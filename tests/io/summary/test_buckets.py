"""Histograms: every value in its bucket, by both ways of counting."""

from __future__ import annotations

import bisect
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given, strategies as st
from hypothesis.extra import numpy as arrays

from weft_io.summary import buckets
from weft_tensor import dtypes, errors

MOST = float(np.finfo(np.float64).max)


@pytest.fixture(autouse=True)
def as_in_a_step() -> Iterator[None]:
    with np.errstate(all="ignore"):
        yield


def reference(values: list[float]) -> dict[float, int]:
    """Upper limit to count, of the buckets that hold something."""
    limits = buckets.bucket_limits().tolist()
    counts: dict[float, int] = {}
    for value in values:
        limit = limits[min(bisect.bisect_right(limits, value), len(limits) - 1)]
        counts[limit] = counts.get(limit, 0) + 1
    return counts


def filled(histogram: object) -> dict[float, int]:
    limits, counts = histogram.bucket_limit, histogram.bucket  # type: ignore[attr-defined]
    return {limit: int(count) for limit, count in zip(limits, counts, strict=True) if count}


def test_limits_are_tensorflows() -> None:
    limits = buckets.bucket_limits()
    assert len(limits) == 1551
    assert limits[775] == 0 and limits[776] == 1e-12
    assert limits[777] == 1e-12 * 1.1
    assert limits[-1] == MOST and limits[-2] == 9.9207756218597835e19
    np.testing.assert_array_equal(limits, -limits[::-1])


def test_runs_of_empty_buckets_are_told_by_their_last() -> None:
    histogram = buckets.histogram_of(np.array([1.0, 1, 2, -3, 0]), "x")
    assert list(zip(histogram.bucket_limit, histogram.bucket, strict=True)) == [
        (-3.1665833053880363, 0),
        (-2.8787120958073054, 1),
        (0.0, 0),
        (1e-12, 1),
        (0.917246389039776, 0),
        (1.0089710279437536, 2),
        (1.9661990955585713, 0),
        (2.1628190051144287, 1),
        (MOST, 0),
    ]
    assert (histogram.min, histogram.max, histogram.num) == (-3, 2, 5)
    assert (histogram.sum, histogram.sum_squares) == (1, 15)


def test_the_largest_number_of_all_is_in_the_last_bucket() -> None:
    for values in ([MOST], [MOST] * 5000):
        histogram = buckets.histogram_of(np.array(values), "x")
        assert filled(histogram) == {MOST: len(values)}


numbers = arrays.arrays(
    st.sampled_from([np.float16, np.float32, np.float64, np.int8, np.uint16, np.int64, np.uint64]),
    st.integers(1, 40),
)


@given(numbers)
def test_both_ways_of_counting_agree_with_looking_up_each(values: np.ndarray) -> None:
    if not np.isfinite(values).all():
        return
    flat = values.astype(np.float64)
    few = buckets.histogram_of(values, "x")
    many = buckets.histogram_of(np.tile(values, 3000), "x")
    expected = reference(flat.tolist())
    assert filled(few) == expected
    assert filled(many) == {limit: 3000 * count for limit, count in expected.items()}
    for histogram in (few, many):
        assert (histogram.min, histogram.max) == (flat.min(), flat.max())
        assert sum(histogram.bucket) == histogram.num


@pytest.mark.parametrize("size", [50, 5000])
@pytest.mark.parametrize(
    "dtype", ["float16", "bfloat16", "float32", "float64", "int8", "int16", "uint8", "uint64"]
)
def test_sums(dtype: str, size: int) -> None:
    values = np.random.default_rng(0).normal(scale=5, size=size)
    element = dtypes.as_dtype(dtype)
    array = (
        np.abs(values).astype(element.numpy)
        if element.is_unsigned
        else values.astype(element.numpy)
    )
    wide = array.astype(np.float64)
    histogram = buckets.histogram_of(array, "x")
    np.testing.assert_allclose(histogram.sum, wide.sum(), rtol=1e-12)
    np.testing.assert_allclose(histogram.sum_squares, (wide**2).sum(), rtol=1e-12)
    assert filled(histogram) == reference(wide.tolist())


@pytest.mark.parametrize("size", [5, 5000])
def test_nan_is_told_before_infinity(size: int) -> None:
    values = np.zeros(size)
    values[:2] = np.inf, np.nan
    with pytest.raises(errors.InvalidArgumentError, match="NaN in the histogram of here"):
        buckets.histogram_of(values, "here")
