"""Statistics and differences of tensors, compared with NumPy."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st
from hypothesis.extra import numpy as arrays

from weft_io.checkpoint import statistics as module
from weft_io.checkpoint.statistics import difference, statistics
from weft_tensor import dtypes

FLOATS = st.floats(width=32, allow_nan=True, allow_infinity=True)


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_PIECE", 7)


@given(arrays.arrays(np.float32, st.integers(0, 40), elements=FLOATS))
def test_floats(value: Any) -> None:
    good = value[np.isfinite(value)].astype(np.float64)
    found = statistics(value, dtypes.float32)
    assert found.not_finite == value.size - good.size
    assert found.zeros == np.count_nonzero(value == 0)
    if not good.size:
        assert found[:4] == (None, None, None, None)
        return
    assert (found.least, found.most) == (good.min(), good.max())
    assert found.mean == pytest.approx(good.mean(), rel=1e-6, abs=1e-6 * np.abs(good).max())
    spread = max(np.abs(good).max(), 1e-30)
    assert found.deviation == pytest.approx(good.std(), rel=1e-6, abs=1e-6 * spread)


@pytest.mark.parametrize(
    "value, dtype, expected",
    [
        (np.array([True, False, True, True]), dtypes.bool_, (0, 1, 0.75, math.sqrt(3) / 4, 1, 0)),
        (np.array([3 + 4j, 0]), dtypes.complex128, (0.0, 5.0, 2.5, 2.5, 1, 0)),
        (np.array([b"", b"abc\0"], object), dtypes.string, (0, 4, 2.0, 2.0, 1, 0)),
        (b"ab\0", dtypes.string, (3, 3, 3.0, 0.0, 0, 0)),
        (np.uint64(2**64 - 1), dtypes.uint64, (2**64 - 1, 2**64 - 1, 2.0**64, 0.0, 0, 0)),
        (np.array([-(2**63)] * 9), dtypes.int64, (-(2**63), -(2**63), -(2.0**63), 0.0, 0, 0)),
        (np.array([1.5, 2.5], dtypes.bfloat16.numpy), dtypes.bfloat16, (1.5, 2.5, 2.0, 0.5, 0, 0)),
        (np.array([3, 5], np.int8), dtypes.qint8, (3, 5, 4.0, 1.0, 0, 0)),
        (np.zeros((0, 3), np.int32), dtypes.int32, (None, None, None, None, 0, 0)),
    ],
    ids=lambda each: each.name if hasattr(each, "name") else "",
)
def test_other_types(value: Any, dtype: Any, expected: Any) -> None:
    assert tuple(statistics(value, dtype)) == pytest.approx(expected)


@given(
    arrays.arrays(np.int64, 20, elements=st.integers(-(2**63), 2**63 - 1)),
    arrays.arrays(np.int64, 20, elements=st.integers(-(2**63), 2**63 - 1)),
)
def test_differences_of_integers_are_exact(a: Any, b: Any) -> None:
    found = difference(a, b, dtypes.int64)
    gaps = [abs(x - y) for x, y in zip(a.tolist(), b.tolist(), strict=True)]
    if not any(gaps):
        assert found is None
        return
    assert found is not None and found.relative is not None
    assert found.elements == sum(map(bool, gaps)) and found.absolute == max(gaps)
    assert 0 < found.relative <= 2


@given(
    arrays.arrays(np.float32, 20, elements=FLOATS), arrays.arrays(np.float32, 20, elements=FLOATS)
)
def test_differences_of_floats(a: Any, b: Any) -> None:
    found = difference(a, b, dtypes.float32)
    differ = a.view(np.uint32) != b.view(np.uint32)
    if not differ.any():
        assert found is None
        return
    assert found is not None and found.elements == differ.sum()
    x, y = a[differ].astype(np.float64), b[differ].astype(np.float64)
    if np.isfinite(x).all() and np.isfinite(y).all():
        assert found.absolute == np.abs(x - y).max()
    else:
        assert found.absolute == np.inf or (np.isinf(x) == np.isinf(y)).any()


@pytest.mark.parametrize(
    "a, b, dtype, expected",
    [
        (np.float32(0), np.float32(-0.0), dtypes.float32, (1, 0.0, 0.0)),
        (np.float32(np.nan), np.float32(np.nan), dtypes.float32, None),
        (np.float32(np.nan), np.float32(1), dtypes.float32, (1, np.inf, np.inf)),
        (np.array([1.0, 4.0]), np.array([1.0, 3.0]), dtypes.float64, (1, 1.0, 0.25)),
        (np.array([True, False]), np.array([True, True]), dtypes.bool_, (1, 1.0, 1.0)),
        (np.array([3 + 4j]), np.array([0j]), dtypes.complex128, (1, 5.0, 1.0)),
        (np.uint8(0), np.uint8(255), dtypes.quint8, (1, 255, 1.0)),
        (b"a", b"a\0", dtypes.string, (1, None, None)),
        (np.array([b"a", b"b"], object), np.array([b"a", b"b"], object), dtypes.string, None),
        (np.zeros((0,)), np.zeros((0,)), dtypes.float64, None),
    ],
)
def test_differences(a: Any, b: Any, dtype: Any, expected: Any) -> None:
    found = difference(a, b, dtype)
    assert found == expected
