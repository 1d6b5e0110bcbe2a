"""The table of element types, lookups and equality."""

from __future__ import annotations

import copy

import ml_dtypes
import numpy as np
import pytest

from weft_tensor import dtypes
from weft_tensor.dtypes import DType, as_dtype, from_numpy
from weft_tensor.errors import InvalidTypeError

# name, TensorFlow's number, NumPy dtype, bytes, what it is
TABLE = [
    ("float32", 1, np.float32, 4, "floating"),
    ("float64", 2, np.float64, 8, "floating"),
    ("int32", 3, np.int32, 4, "integer"),
    ("uint8", 4, np.uint8, 1, "integer unsigned"),
    ("int16", 5, np.int16, 2, "integer"),
    ("int8", 6, np.int8, 1, "integer"),
    ("string", 7, object, 8, ""),
    ("complex64", 8, np.complex64, 8, "complex"),
    ("int64", 9, np.int64, 8, "integer"),
    ("bool", 10, np.bool_, 1, "bool"),
    ("qint8", 11, np.int8, 1, "quantized"),
    ("quint8", 12, np.uint8, 1, "quantized"),
    ("qint32", 13, np.int32, 4, "quantized"),
    ("bfloat16", 14, ml_dtypes.bfloat16, 2, "floating"),
    ("qint16", 15, np.int16, 2, "quantized"),
    ("quint16", 16, np.uint16, 2, "quantized"),
    ("uint16", 17, np.uint16, 2, "integer unsigned"),
    ("complex128", 18, np.complex128, 16, "complex"),
    ("float16", 19, np.float16, 2, "floating"),
    ("resource", 20, object, 1, "handle"),
    ("variant", 21, object, 1, "handle"),
    ("uint32", 22, np.uint32, 4, "integer unsigned"),
    ("uint64", 23, np.uint64, 8, "integer unsigned"),
    ("float8_e5m2", 24, ml_dtypes.float8_e5m2, 1, "floating"),
    ("float8_e4m3fn", 25, ml_dtypes.float8_e4m3fn, 1, "floating"),
    ("float8_e4m3fnuz", 26, ml_dtypes.float8_e4m3fnuz, 1, "floating"),
    ("float8_e4m3b11fnuz", 27, ml_dtypes.float8_e4m3b11fnuz, 1, "floating"),
    ("float8_e5m2fnuz", 28, ml_dtypes.float8_e5m2fnuz, 1, "floating"),
    ("int4", 29, ml_dtypes.int4, 1, "integer"),
    ("uint4", 30, ml_dtypes.uint4, 1, "integer unsigned"),
    ("int2", 31, ml_dtypes.int2, 1, "integer"),
    ("uint2", 32, ml_dtypes.uint2, 1, "integer unsigned"),
    ("float4_e2m1fn", 33, ml_dtypes.float4_e2m1fn, 1, "floating"),
]
FLAGS = ("floating", "integer", "unsigned", "complex", "bool", "quantized")


@pytest.mark.parametrize(("name", "number", "numpy", "size", "kinds"), TABLE)
def test_table(name: str, number: int, numpy: type, size: int, kinds: str) -> None:
    dtype = getattr(dtypes, "bool_" if name == "bool" else name)
    for each in (dtype, dtype.as_ref):
        assert each.numpy == np.dtype(numpy)
        assert each.as_numpy_dtype is np.dtype(numpy).type
        assert each.size == size
        for flag in FLAGS:
            assert getattr(each, f"is_{flag}") == (flag in kinds.split()), flag
        assert each.is_numpy_compatible == ("handle" not in kinds)
        assert each.base_dtype is dtype
        assert each.as_ref is dtype.as_ref
        assert as_dtype(each.name) is each is DType(each.as_datatype_enum) is as_dtype(int(each))
        assert copy.deepcopy(each) is each
    assert (dtype.name, dtype.as_datatype_enum) == (name, number)
    assert (dtype.as_ref.name, int(dtype.as_ref)) == (name + "_ref", number + 100)
    assert (dtype.is_ref, dtype.as_ref.is_ref) == (False, True)
    assert (dtype._is_ref_dtype, dtype._as_ref) == (False, dtype.as_ref)
    assert str(dtype) == f"<dtype: '{name}'>"
    assert repr(dtype) == f"weft.{name}"


def test_all_types_are_listed() -> None:
    assert [dtype.name for dtype in dtypes.ALL_DTYPES] == [row[0] for row in TABLE]
    assert len(dtypes.QUANTIZED_DTYPES) == 10


@pytest.mark.parametrize(
    ("value", "name"),
    [
        (float, "float32"),
        (int, "int32"),
        (bool, "bool"),
        (complex, "complex128"),
        (str, "string"),
        (bytes, "string"),
        (object, "string"),
        ("half", "float16"),
        ("float", "float32"),
        ("double", "float64"),
        ("double_ref", "float64_ref"),
        ("<i4", "int32"),
        ("bool", "bool"),
        (np.int8, "int8"),
        (np.longlong, "int64"),
        (np.dtype("S5"), "string"),
        (np.dtype("U5"), "string"),
        (np.dtype(">f4"), "float32"),
        (ml_dtypes.bfloat16, "bfloat16"),
        (np.zeros(2, np.uint16), "uint16"),
        (np.float64(2), "float64"),
        (101, "float32_ref"),
        (np.int64(9), "int64"),
    ],
)
def test_as_dtype(value: object, name: str) -> None:
    assert as_dtype(value).name == name


@pytest.mark.parametrize(
    "value", [None, "float31", True, 0, 34, [], {}, np.dtype("M8[s]"), np.dtype([("a", "i4")]), 1.5]
)
def test_as_dtype_refuses(value: object) -> None:
    with pytest.raises(InvalidTypeError, match="expected an element type"):
        as_dtype(value)
    assert (dtypes.float32 == value) is False


def test_unknown_number() -> None:
    with pytest.raises(InvalidTypeError, match="99"):
        DType(99)


def test_from_numpy() -> None:
    for name, _, numpy, _, kinds in TABLE:
        if "quantized" not in kinds and "handle" not in kinds:
            assert from_numpy(np.dtype(numpy)).name == name
    assert from_numpy(np.dtype(">i8")) is dtypes.int64
    assert from_numpy(np.dtype("S")) is dtypes.string
    for odd in ("M8[s]", "V3", "g"):
        with pytest.raises(InvalidTypeError, match="no element type"):
            from_numpy(np.dtype(odd))


def test_equality() -> None:
    assert dtypes.float32 == np.float32
    assert np.dtype(np.float32) == dtypes.float32.numpy
    assert dtypes.float32 == "float"
    assert dtypes.float32 == 1
    assert dtypes.float32 != dtypes.float32_ref
    assert dtypes.float32 != dtypes.float64
    assert dtypes.float32 != None  # noqa: E711
    assert dtypes.qint8 != np.int8
    assert dtypes.int8 == np.int8
    assert {dtypes.float32: 1}[as_dtype("float32")] == 1
    assert hash(dtypes.float32) == 1


def test_compatible_with() -> None:
    assert dtypes.float32.is_compatible_with(dtypes.float32_ref)
    assert not dtypes.float32_ref.is_compatible_with(dtypes.float32)
    assert dtypes.float32.is_compatible_with("float32")
    assert not dtypes.float32.is_compatible_with(dtypes.float64)


def test_ranges() -> None:
    assert (dtypes.int8.min, dtypes.int8.max) == (-128, 127)
    assert dtypes.uint64.max == 2**64 - 1
    assert dtypes.float32.max == np.finfo(np.float32).max
    assert float(dtypes.bfloat16.min) == float.fromhex("-0x1.FEp127")
    assert dtypes.int32_ref.max == 2**31 - 1
    for dtype in (dtypes.bool_, dtypes.string, dtypes.complex64, dtypes.qint8, dtypes.resource):
        with pytest.raises(TypeError, match="no order"):
            _ = dtype.min
    assert dtypes.float32.limits == (0, 1)
    assert dtypes.uint8.limits == (0, 255)
    assert dtypes.int8.limits == (0, 127)
    assert dtypes.bool_.limits == (False, True)


def test_real_dtype() -> None:
    assert dtypes.complex64.real_dtype is dtypes.float32
    assert dtypes.complex128_ref.real_dtype is dtypes.float64
    assert dtypes.int32_ref.real_dtype is dtypes.int32
    assert dtypes.half is dtypes.float16
    assert dtypes.double is dtypes.float64
