"""Promotion, casting and the types of Python values."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from weft_tensor import dtypes
from weft_tensor.dtypes import ALL_DTYPES, DType, as_dtype
from weft_tensor.errors import InvalidArgumentError, InvalidTypeError
from weft_tensor.promotion import can_cast, common_dtype, default_dtype

NUMBERS = [d for d in ALL_DTYPES if d.is_numpy_compatible and not d.is_quantized]
NUMBERS.remove(dtypes.string)


def _extremes(dtype: DType) -> np.ndarray[Any, Any]:
    """Values that a narrower type loses: ends of the range and full significands."""
    if dtype.is_bool:
        return np.array([False, True])
    if dtype.is_small and dtype.is_floating:
        bits = np.arange(256, dtype=np.uint8).view(dtype.numpy)
        return bits[:16] if dtype is dtypes.float4_e2m1fn else bits
    if dtype.is_integer:
        return np.array([dtype.min, dtype.max, dtype.max - 1, 1], dtype.numpy)
    real = dtype.real_dtype
    one = np.ones((), real.numpy)
    fine = one + np.asarray(np.finfo(real.numpy).eps if real != "bfloat16" else 2.0**-7, real.numpy)
    values = np.array([fine, real.max, -fine], real.numpy)
    return values * np.asarray(1 + 1j, dtype.numpy) if dtype.is_complex else values


@pytest.mark.parametrize("source", NUMBERS, ids=str)
@pytest.mark.parametrize("target", NUMBERS, ids=str)
@pytest.mark.filterwarnings("ignore")
def test_lossless_casts_are_those_that_come_back(source: DType, target: DType) -> None:
    values = _extremes(source)
    both_small = source.is_small and target.is_small  # ml_dtypes converts not all of them
    between = np.dtype(np.float32) if both_small else values.dtype
    there = values.astype(between).astype(target.numpy)
    back = there.astype(between).astype(source.numpy)
    exact = bool(np.array_equal(back, values))
    if source.is_small and source.is_floating:
        wide = [each.astype(np.complex128) for each in (back, values)]
        exact = np.array_equal(*wide, equal_nan=True)
    if target.is_integer and source.is_integer:  # wrapping comes back too, so compare the values
        exact = [int(v) for v in there] == [int(v) for v in values]
    if source.is_bool:
        exact = True
    assert can_cast(source, target) == exact
    assert can_cast(source, target, lossless=False)


def test_casts_of_the_other_types() -> None:
    assert can_cast("string", "string")
    assert not can_cast("string", "float32", lossless=False)
    assert not can_cast("resource", "variant", lossless=False)
    assert not can_cast("qint8", "int8")
    assert can_cast("qint8", "int8", lossless=False)
    assert can_cast("int8", "qint8", lossless=False)
    assert not can_cast("qint8", "int32", lossless=False)
    assert can_cast("float32_ref", "float64")


def test_nothing_is_promoted_between_tensors() -> None:
    assert common_dtype([dtypes.float32, dtypes.float32_ref, np.float32(1)]) is dtypes.float32
    with pytest.raises(
        InvalidTypeError, match=r"x and y must .* got float32, float64; tensors are not promoted"
    ):
        common_dtype([dtypes.float32, dtypes.float64], "x and y")
    with pytest.raises(InvalidTypeError, match="none"):
        common_dtype([])


@pytest.mark.parametrize(
    ("value", "name"),
    [
        (1, "int32"),
        (-(2**31), "int32"),
        (2**31, "int64"),
        (2**63, "uint64"),
        (1.0, "float32"),
        (True, "bool"),
        (1j, "complex128"),
        ("a", "string"),
        (b"a", "string"),
        (np.float64(1), "float64"),
        (np.zeros(2, np.int8), "int8"),
        ([], "float32"),
        ([[], []], "float32"),
        ([1, 2.5], "float32"),
        ([1, True], "int32"),
        ([2**40, 1], "int64"),
        ([1, 2**63], "uint64"),
        ([1.0, 2.0**70], "float32"),
        ([1, 1j], "complex128"),
        (["a", b"b"], "string"),
        ([["a", b"\xff"]], "string"),
        ([np.zeros(2), np.ones(2)], "float32"),
        (((1, 2), (3, 4)), "int32"),
    ],
)
def test_default_dtype(value: object, name: str) -> None:
    assert default_dtype(value) is as_dtype(name)


@pytest.mark.parametrize("value", [None, [None], object(), 2**70, [2**70], [1, "a"], [-1, 2**63]])
def test_values_without_a_type(value: object) -> None:
    with pytest.raises(InvalidTypeError):
        default_dtype(value)


def test_ragged_lists() -> None:
    with pytest.raises(InvalidArgumentError, match="rectangular"):
        default_dtype([[1], [2, 3]])
