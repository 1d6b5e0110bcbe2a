"""Element types: one interned `DType` per type, with TensorFlow's names and enum numbers.

bfloat16 is `ml_dtypes.bfloat16`; a string is an object array of bytes; quantized types are stored
as the plain integers of their width, so `as_dtype(np.int8)` is `int8` and never `qint8`. Integers
of 2 and 4 bits and floats of 4 and 8 bits are storage types, with one byte per element: ops can
convert, move, slice and save them, but not compute with them. Each type has a reference twin
(`float32_ref`), the type of a mutable variable's output.
"""

from __future__ import annotations

__all__ = [
    "QUANTIZED_DTYPES",
    "DType",
    "as_dtype",
    "bfloat16",
    "complex64",
    "complex128",
    "double",
    "float16",
    "float32",
    "float64",
    "half",
    "int8",
    "int16",
    "int32",
    "int64",
    "qint8",
    "qint16",
    "qint32",
    "quint8",
    "quint16",
    "resource",
    "string",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "variant",
]

from typing import Any, Final

import ml_dtypes
import numpy as np

from weft_tensor.errors import InvalidTypeError
from weft_tensor.nesting import format_value

_REF_OFFSET = 100

_BY_ENUM: dict[int, DType] = {}
_LOOKUP: dict[Any, DType] = {}
_BY_NUMPY: dict[np.dtype[Any], DType] = {}


class DType:
    """An element type. `DType(enum)` and `as_dtype` return the only instance of each type.

    A type equals itself and every value that `as_dtype` converts to it: a NumPy dtype, a scalar
    class, a name, an enum number.

    Attributes:
      name: "float32", "string", "float32_ref", ...
      numpy: the NumPy dtype of the elements (object for string, resource and variant).
      as_numpy_dtype: the NumPy scalar class of `numpy`.
      as_datatype_enum: TensorFlow's DataType number; references are 100 above their base.
      size: bytes per element; 8 for strings and 1 for handles, as in TensorFlow.
      is_floating: float16, bfloat16, float32 or float64.
      is_integer: a plain integer, signed or not.
      is_complex: complex64 or complex128.
      is_bool: bool.
      is_quantized: qint8, quint8, qint16, quint16 or qint32.
      is_unsigned: a plain unsigned integer.
      is_numpy_compatible: neither a resource nor a variant.
      is_ref: the type of a mutable reference.
      base_dtype: the type without the reference.
      as_ref: the reference to this type.
      real_dtype: the type of a real part: float32 for complex64, else the base type.

    Args:
      type_enum: TensorFlow's number of the type.

    Examples:
      >>> wf.float32.size, wf.as_dtype("int64") is wf.int64
      (4, True)
    """

    __slots__ = (
        "as_datatype_enum",
        "as_numpy_dtype",
        "as_ref",
        "base_dtype",
        "is_bool",
        "is_complex",
        "is_floating",
        "is_integer",
        "is_numpy_compatible",
        "is_quantized",
        "is_ref",
        "is_unsigned",
        "name",
        "numpy",
        "real_dtype",
        "size",
    )

    as_datatype_enum: int
    as_numpy_dtype: type[Any]
    as_ref: DType
    base_dtype: DType
    is_bool: bool
    is_complex: bool
    is_floating: bool
    is_integer: bool
    is_numpy_compatible: bool
    is_quantized: bool
    is_ref: bool
    is_unsigned: bool
    name: str
    numpy: np.dtype[Any]
    real_dtype: DType
    size: int

    def __new__(cls, type_enum: int) -> DType:
        """Return the type with TensorFlow's DataType number `type_enum`.

        Raises:
          InvalidTypeError: no type has this number.
        """
        try:
            return _BY_ENUM[type_enum]
        except KeyError:
            raise InvalidTypeError(f"no element type has the number {type_enum!r}") from None

    @property
    def _is_ref_dtype(self) -> bool:
        return self.is_ref

    @property
    def _as_ref(self) -> DType:
        return self.as_ref

    @property
    def is_small(self) -> bool:
        """True for storage-only types: integers of 2 or 4 bits, floats of 4 or 8 bits."""
        return 24 <= self.as_datatype_enum % _REF_OFFSET <= 33

    @property
    def min(self) -> Any:
        """Lowest finite value, as a Python number or an ml_dtypes scalar.

        Raises:
          InvalidTypeError: the type has no order: bool, string, complex, quantized or a handle.
        """
        return _range(self, "min")

    @property
    def max(self) -> Any:
        """Highest finite value.

        Raises:
          InvalidTypeError: the type has no order: bool, string, complex, quantized or a handle.
        """
        return _range(self, "max")

    @property
    def limits(self) -> tuple[Any, Any]:
        """Intensity range of an image of this type: (0, 1) for floats, (0, max) for integers.

        Raises:
          InvalidTypeError: images cannot have this type.
        """
        if self.is_bool:
            return False, True
        if self.is_floating:
            return 0, 1
        return 0, self.max

    def is_compatible_with(self, other: Any) -> bool:
        """Return True if a value of type `other` can be used as this type.

        A reference can be used as its base; a base cannot be used as a reference.
        """
        dtype = as_dtype(other)
        return dtype is self or dtype.base_dtype is self

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if other is None or isinstance(other, DType):
            return False
        return _find(other) is self

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return self.as_datatype_enum

    def __int__(self) -> int:
        return self.as_datatype_enum

    def __str__(self) -> str:
        return f"<dtype: {self.name!r}>"

    def __repr__(self) -> str:
        return f"weft.{self.name}"

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return as_dtype, (self.name,)


def _range(dtype: DType, end: str) -> Any:
    if dtype.is_integer:
        info: Any = ml_dtypes.iinfo
        return int(getattr(info(dtype.numpy), end))
    if dtype.is_floating:
        finfo: Any = ml_dtypes.finfo
        return getattr(finfo(dtype.numpy), end)
    raise InvalidTypeError(f"{dtype.name} has no {end}imum value: its elements have no order")


def _make(name: str, number: int, numpy: np.dtype[Any], **flags: bool) -> DType:
    dtype = object.__new__(DType)
    dtype.name = name
    dtype.as_datatype_enum = number
    dtype.numpy = numpy
    dtype.as_numpy_dtype = numpy.type
    dtype.is_quantized = flags.get("quantized", False)
    dtype.is_ref = False
    dtype.is_numpy_compatible = not flags.get("handle", False)
    plain = not (dtype.is_quantized or numpy.kind == "O")
    # NumPy does not recognize the integers of ml_dtypes, except by their names.
    kind = numpy.kind if numpy.kind != "V" else name.replace("bfloat", "float")[0]
    dtype.is_bool = kind == "b"
    dtype.is_integer = plain and kind in "iu"
    dtype.is_unsigned = plain and kind == "u"
    dtype.is_complex = numpy.kind == "c"
    dtype.is_floating = plain and not (dtype.is_bool or dtype.is_integer or dtype.is_complex)
    dtype.size = numpy.itemsize if dtype.is_numpy_compatible else 1
    dtype.base_dtype = dtype
    dtype.real_dtype = dtype
    return dtype


def _make_ref(base: DType) -> DType:
    ref = object.__new__(DType)
    for slot in DType.__slots__:
        if slot != "as_ref":
            setattr(ref, slot, getattr(base, slot))
    ref.name = base.name + "_ref"
    ref.as_datatype_enum = base.as_datatype_enum + _REF_OFFSET
    ref.is_ref = True
    ref.as_ref = ref
    return ref


def _intern(name: str, number: int, numpy: Any, **flags: bool) -> DType:
    dtype = _make(name, number, np.dtype(numpy), **flags)
    dtype.as_ref = _make_ref(dtype)
    for variant in (dtype, dtype.as_ref):
        _BY_ENUM[variant.as_datatype_enum] = variant
        _LOOKUP[variant.name] = variant
    if dtype.is_numpy_compatible and not dtype.is_quantized:
        _BY_NUMPY[dtype.numpy] = dtype
        _LOOKUP[dtype.numpy] = dtype
        _LOOKUP[dtype.as_numpy_dtype] = dtype
    return dtype


float32: Final = _intern("float32", 1, np.float32)
float64: Final = _intern("float64", 2, np.float64)
int32: Final = _intern("int32", 3, np.int32)
uint8: Final = _intern("uint8", 4, np.uint8)
int16: Final = _intern("int16", 5, np.int16)
int8: Final = _intern("int8", 6, np.int8)
string: Final = _intern("string", 7, np.object_)
complex64: Final = _intern("complex64", 8, np.complex64)
int64: Final = _intern("int64", 9, np.int64)
bool_: Final = _intern("bool", 10, np.bool_)
qint8: Final = _intern("qint8", 11, np.int8, quantized=True)
quint8: Final = _intern("quint8", 12, np.uint8, quantized=True)
qint32: Final = _intern("qint32", 13, np.int32, quantized=True)
bfloat16: Final = _intern("bfloat16", 14, ml_dtypes.bfloat16)
qint16: Final = _intern("qint16", 15, np.int16, quantized=True)
quint16: Final = _intern("quint16", 16, np.uint16, quantized=True)
uint16: Final = _intern("uint16", 17, np.uint16)
complex128: Final = _intern("complex128", 18, np.complex128)
float16: Final = _intern("float16", 19, np.float16)
resource: Final = _intern("resource", 20, np.object_, handle=True)
variant: Final = _intern("variant", 21, np.object_, handle=True)
uint32: Final = _intern("uint32", 22, np.uint32)
uint64: Final = _intern("uint64", 23, np.uint64)
float8_e5m2: Final = _intern("float8_e5m2", 24, ml_dtypes.float8_e5m2)
float8_e4m3fn: Final = _intern("float8_e4m3fn", 25, ml_dtypes.float8_e4m3fn)
float8_e4m3fnuz: Final = _intern("float8_e4m3fnuz", 26, ml_dtypes.float8_e4m3fnuz)
float8_e4m3b11fnuz: Final = _intern("float8_e4m3b11fnuz", 27, ml_dtypes.float8_e4m3b11fnuz)
float8_e5m2fnuz: Final = _intern("float8_e5m2fnuz", 28, ml_dtypes.float8_e5m2fnuz)
int4: Final = _intern("int4", 29, ml_dtypes.int4)
uint4: Final = _intern("uint4", 30, ml_dtypes.uint4)
int2: Final = _intern("int2", 31, ml_dtypes.int2)
uint2: Final = _intern("uint2", 32, ml_dtypes.uint2)
float4_e2m1fn: Final = _intern("float4_e2m1fn", 33, ml_dtypes.float4_e2m1fn)

half: Final = float16
double: Final = float64

float32_ref: Final = float32.as_ref
float64_ref: Final = float64.as_ref
int32_ref: Final = int32.as_ref
uint8_ref: Final = uint8.as_ref
int16_ref: Final = int16.as_ref
int8_ref: Final = int8.as_ref
string_ref: Final = string.as_ref
complex64_ref: Final = complex64.as_ref
int64_ref: Final = int64.as_ref
bool_ref: Final = bool_.as_ref
qint8_ref: Final = qint8.as_ref
quint8_ref: Final = quint8.as_ref
qint32_ref: Final = qint32.as_ref
bfloat16_ref: Final = bfloat16.as_ref
qint16_ref: Final = qint16.as_ref
quint16_ref: Final = quint16.as_ref
uint16_ref: Final = uint16.as_ref
complex128_ref: Final = complex128.as_ref
float16_ref: Final = float16.as_ref
resource_ref: Final = resource.as_ref
variant_ref: Final = variant.as_ref
uint32_ref: Final = uint32.as_ref
uint64_ref: Final = uint64.as_ref
float8_e5m2_ref: Final = float8_e5m2.as_ref
float8_e4m3fn_ref: Final = float8_e4m3fn.as_ref
float8_e4m3fnuz_ref: Final = float8_e4m3fnuz.as_ref
float8_e4m3b11fnuz_ref: Final = float8_e4m3b11fnuz.as_ref
float8_e5m2fnuz_ref: Final = float8_e5m2fnuz.as_ref
int4_ref: Final = int4.as_ref
uint4_ref: Final = uint4.as_ref
int2_ref: Final = int2.as_ref
uint2_ref: Final = uint2.as_ref
float4_e2m1fn_ref: Final = float4_e2m1fn.as_ref

ALL_DTYPES: Final = tuple(d for d in _BY_ENUM.values() if not d.is_ref)
"""Every type without its reference, in the order of TensorFlow's numbers."""

QUANTIZED_DTYPES: Final = frozenset(d for d in _BY_ENUM.values() if d.is_quantized)
"""The quantized types and their references."""


def _finish_tables() -> None:
    for dtype, real in ((complex64, float32), (complex128, float64)):
        dtype.real_dtype = dtype.as_ref.real_dtype = real
    for base in ALL_DTYPES:
        base.as_ref.base_dtype = base
    _LOOKUP.update(
        {
            "half": float16,
            "half_ref": float16_ref,
            "float": float32,
            "float_ref": float32_ref,
            "double": float64,
            "double_ref": float64_ref,
            float: float32,
            int: int32,
            bool: bool_,
            complex: complex128,
            bytes: string,
            str: string,
            np.bytes_: string,
            np.str_: string,
            object: string,
        }
    )
    for kind in (np.longlong, np.ulonglong, np.intc, np.uintc):
        _LOOKUP[kind] = _BY_NUMPY[np.dtype(kind)]


_finish_tables()


def _find(value: Any) -> DType | None:
    """Return the type that `value` stands for, or None; the slow path of `as_dtype`."""
    try:
        dtype = _LOOKUP.get(value)
    except TypeError:
        dtype = None
    if dtype is not None:
        return dtype
    if isinstance(value, (int, np.integer)):
        return None if isinstance(value, bool) else _BY_ENUM.get(int(value))
    if isinstance(value, DType):
        return value
    if not isinstance(value, (np.dtype, str, type)):
        value = getattr(value, "dtype", None)
        if isinstance(value, DType):
            return value
    if isinstance(value, str):
        return None if len(value) < 2 else _find_named(value)
    return _find_numpy(value) if isinstance(value, np.dtype) else None


def _find_named(name: str) -> DType | None:
    try:
        return _find_numpy(np.dtype(name))
    except TypeError:
        return None


def _find_numpy(dtype: np.dtype[Any]) -> DType | None:
    if dtype.kind in "SU":
        return string
    element_type = _BY_NUMPY.get(dtype)
    if element_type is None and not dtype.isnative and dtype.kind != "V":
        return _BY_NUMPY.get(dtype.newbyteorder("="))
    return element_type


def as_dtype(type_value: Any) -> DType:
    """Return the element type that `type_value` stands for.

    Args:
      type_value: a `DType`, a NumPy dtype or scalar class, a Python class (float is float32, int is
        int32, str and bytes are string), a name ("float32", "half", "float32_ref"), TensorFlow's
        enum number, or an object whose `dtype` is one of these.
    Raises:
      InvalidTypeError: no element type corresponds to it.

    Examples:
      >>> wf.as_dtype(np.float32), wf.as_dtype("string")
      (weft.float32, weft.string)
    """
    if type(type_value) is DType:
        return type_value
    try:
        return _LOOKUP[type_value]
    except (KeyError, TypeError):
        element_type = _find(type_value)
    if element_type is None:
        raise InvalidTypeError(
            f"expected an element type such as weft.float32, got {format_value(type_value)}"
        )
    return element_type


def from_numpy(dtype: np.dtype[Any]) -> DType:
    """Return the element type of arrays of a NumPy dtype; any byte order counts as native.

    Raises:
      InvalidTypeError: no element type corresponds to it (dates, records, long doubles, ...).
    """
    try:
        return _BY_NUMPY[dtype]
    except (KeyError, TypeError):
        element_type = _find_numpy(np.dtype(dtype))
    if element_type is None:
        raise InvalidTypeError(f"no element type corresponds to NumPy's {dtype!r}")
    return element_type
