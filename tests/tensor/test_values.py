"""Strict conversion of Python values, case by case as TensorFlow's constants treat them."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from weft_tensor import dtypes
from weft_tensor.dtypes import as_dtype
from weft_tensor.errors import InvalidArgumentError, InvalidTypeError
from weft_tensor.values import to_array

BF16 = ml_dtypes.bfloat16


@pytest.mark.parametrize(
    ("value", "dtype", "expected"),
    [
        (1, "float32", np.float32(1)),
        (True, "bool", np.bool_(True)),
        (1, "complex64", np.complex64(1)),
        (1.5, "complex64", np.complex64(1.5)),
        (2**63, "uint64", np.uint64(2**63)),
        (2**70, "float32", np.float32(2.0**70)),
        (7, "qint8", np.int8(7)),
        (1.5, "bfloat16", BF16(1.5)),
        ([[1], [2]], "int8", np.array([[1], [2]], np.int8)),
        ([], "int32", np.zeros(0, np.int32)),
        ([np.float32(1), 2], "bfloat16", np.array([1, 2], BF16)),
        ([BF16(1.5)], "float32", np.array([1.5], np.float32)),
        (np.array([1.5]), "float32", np.array([1.5], np.float32)),
        (np.int64(3), "int32", np.int32(3)),
        (np.array([1]), "complex64", np.array([1], np.complex64)),
        ([1, 2.5], None, np.array([1, 2.5], np.float32)),
        (5, None, np.int32(5)),
        (np.array([1.0]), None, np.array([1.0])),
        ("é", None, np.array("é".encode(), object)),
        ([b"a\0", "b"], None, np.array([b"a\0", b"b"], object)),
        (["a"], "string", np.array([b"a"], object)),
        (np.array(["a"]), None, np.array([b"a"], object)),
    ],
)
def test_converted(value: object, dtype: str | None, expected: Any) -> None:
    array = to_array(value, None if dtype is None else as_dtype(dtype))
    wanted = np.asarray(expected)
    assert (array.dtype, array.shape) == (wanted.dtype, wanted.shape)
    assert array.tolist() == wanted.tolist()


@pytest.mark.parametrize(
    ("value", "dtype", "message"),
    [
        (1.5, "int32", "expected int32, got 1.5 of type 'float'"),
        (1, "bool", "expected bool, got 1 of type 'int'"),
        (True, "int32", "expected int32, got True of type 'bool'"),
        (np.array([1.5]), "int32", "expected int32, got 1.5 of type 'float'"),
        (np.float64(3), "int32", "expected int32, got 3.0 of type 'float'"),
        ("a", "int32", "expected int32, got 'a' of type 'str'"),
        (1j, "float32", "expected float32, got 1j of type 'complex'"),
        ([1, "a"], "float32", "got 'a' of type 'str'"),
        ([1, None], "float32", "got None of type 'NoneType'"),
        ([BF16(1.5)], "int32", "expected int32"),
        (1, "string", "expected strings"),
        ([b"a", 1], "string", "got 1 of type 'int'"),
        (1, "resource", "resource"),
        (None, None, "got None"),
        (bytearray(b"a"), None, "bytearray"),
        (np.array(["a"]), "int32", "expected int32, got an array of string"),
        (np.array([1]), "string", "expected strings"),
        (np.array([1j]), "float32", "complex"),
        (np.array([1]), "variant", "expected variant"),
    ],
)
def test_wrong_types(value: object, dtype: str | None, message: str) -> None:
    with pytest.raises(InvalidTypeError, match=message):
        to_array(value, None if dtype is None else as_dtype(dtype))


@pytest.mark.parametrize(
    ("value", "dtype"), [(300, "uint8"), (-1, "uint64"), (2**63, "int64"), ([1, 2**70], "int32")]
)
def test_integers_that_do_not_fit(value: object, dtype: str) -> None:
    with pytest.raises(InvalidArgumentError, match=f"does not fit in {dtype}"):
        to_array(value, as_dtype(dtype))


def test_ragged_list() -> None:
    with pytest.raises(InvalidArgumentError, match="rectangular"):
        to_array([[1], [2, 3]], as_dtype("int32"))


def test_nothing_is_copied_without_need() -> None:
    array = np.zeros(3, np.float32)
    assert to_array(array) is array
    assert to_array(array, as_dtype("float32_ref")) is array
    objects = np.array([b"a"], object)
    assert to_array(objects) is objects


@pytest.mark.parametrize("value", ["\udc80", ["a", "\udc80"], np.array(["\udc80"]), "\ud800"])
def test_text_that_is_no_utf8(value: object) -> None:
    with pytest.raises(InvalidArgumentError, match=r"encodable as UTF-8, got '\\ud.*os.fsencode"):
        to_array(value)


def test_arrays_of_another_kind_are_taken_by_those_who_hear_what_is_lost() -> None:
    heard: list[str] = []
    for value, dtype, expected in (
        (np.array([1.5, 2.0]), dtypes.int32, [1, 2]),
        (np.array([1.0, 2.0]), dtypes.int32, [1, 2]),
        (np.array([0, 1]), dtypes.bool_, [False, True]),
        (np.array([0, 2]), dtypes.bool_, [False, True]),
        (np.array([1 + 2j]), dtypes.float32, [1.0]),
        (np.array([1.5 + 0j]), dtypes.int8, [1]),
        (np.array([True]), dtypes.float64, [1.0]),
        (np.array([1, None], object)[:1], dtypes.float32, [1.0]),
        (np.array([], object), dtypes.int32, []),
    ):
        found = to_array(value, dtype, heard.append)
        assert found.dtype == dtype.numpy and found.tolist() == expected
    assert heard == [
        "1.5 becomes 1",
        "2 becomes True",
        "(1+2j) becomes 1.0",
        "(1.5+0j) becomes 1",
    ]
    for value, dtype in (
        (np.array([np.inf]), dtypes.int64),
        (np.array([2.0**63]), dtypes.int64),
        (np.array([-129.0]), dtypes.int8),
        (np.array([1 << 40]), dtypes.int32),
        (np.array(["1"], object), dtypes.float32),
    ):
        with pytest.raises((InvalidArgumentError, InvalidTypeError)):
            to_array(value, dtype, heard.append)


@pytest.mark.parametrize("dtype", [None, dtypes.float32])
def test_bytes_in_another_order_become_those_of_this_machine(dtype: Any) -> None:
    given = np.arange(3, dtype=np.dtype(np.float32).newbyteorder())
    found = to_array(given, dtype)
    assert found.dtype == np.float32 and found.tolist() == [0.0, 1.0, 2.0]
    scalar = to_array(given[1], dtype)
    assert scalar.dtype == np.float32 and scalar == 1.0
