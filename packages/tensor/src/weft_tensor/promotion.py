"""Promotion and casting rules.

Tensors are never promoted: the operands of an op must have the same element type. Python scalars
and nested lists have no fixed type: next to a tensor they get its type, alone they get
`default_dtype`. A cast between tensors is explicit and follows `can_cast`.
"""

from __future__ import annotations

import numbers
from collections.abc import Iterable
from typing import Any

import numpy as np

from weft_tensor import dtypes
from weft_tensor.dtypes import DType
from weft_tensor.errors import IntegerRangeError, InvalidArgumentError, InvalidTypeError
from weft_tensor.nesting import format_value
from weft_tensor.shape import Dimension

# (bits of the significand, exponent of the largest power of two), IEEE 754 and bfloat16
_FLOAT_FORMATS = {
    dtypes.float16: (11, 15),
    dtypes.bfloat16: (8, 127),
    dtypes.float32: (24, 127),
    dtypes.float64: (53, 1023),
}


def can_cast(source: Any, target: Any, lossless: bool = True) -> bool:
    """Return True if elements of type `source` may be cast to `target`.

    Args:
      source: an element type, or anything that `as_dtype` accepts; references count as their base.
      target: the same.
      lossless: if True, require that every value is represented exactly. If False, require only
        that the Cast op supports the pair: any two of the numeric types and bool, or a quantized
        type and the plain integer that stores it.
    """
    a, b = dtypes.as_dtype(source).base_dtype, dtypes.as_dtype(target).base_dtype
    if a is b:
        return True
    if not (_is_number(a) and _is_number(b)):
        stored_alike = a.numpy == b.numpy and a.is_quantized != b.is_quantized
        return stored_alike and not lossless
    if not lossless or a.is_bool:
        return True
    if b.is_bool or (a.is_complex and not b.is_complex):
        return False
    return _fits(a.real_dtype, b.real_dtype)


def _is_number(dtype: DType) -> bool:
    return dtype.is_bool or dtype.is_integer or dtype.is_floating or dtype.is_complex


def _fits(a: DType, b: DType) -> bool:
    """Return True if `b` represents each value of `a`; both are integer or float types."""
    if a.is_small:
        values = _all_values(a)
        round_trip = values.astype(np.float32).astype(b.numpy).astype(np.float32)
        return np.array_equal(round_trip, values.astype(np.float32), equal_nan=True)
    if b.is_small:
        return False
    if b.is_integer:
        return a.is_integer and b.min <= a.min and a.max <= b.max
    digits, exponent = _FLOAT_FORMATS[b]
    if a.is_integer:
        bits = a.size * 8 - (0 if a.is_unsigned else 1)
        return bits <= digits and bits <= exponent
    return _FLOAT_FORMATS[a][0] <= digits and _FLOAT_FORMATS[a][1] <= exponent


def _all_values(dtype: DType) -> np.ndarray[Any, Any]:
    """Return each value of a type of at most 8 bits."""
    if dtype.is_integer:
        return np.arange(dtype.min, dtype.max + 1).astype(dtype.numpy)
    return np.arange(16 if dtype is dtypes.float4_e2m1fn else 256, dtype=np.uint8).view(dtype.numpy)


def common_dtype(operands: Iterable[Any], label: str = "operands") -> DType:
    """Return the base type that all operands have in common.

    Args:
      operands: element types, or anything with a `dtype`; at least one.
      label: name of the operands in messages.
    Raises:
      InvalidTypeError: they differ, or there are none.
    """
    element_types = [dtypes.as_dtype(operand).base_dtype for operand in operands]
    if not element_types:
        raise InvalidTypeError(f"{label} must have an element type, got none")
    for dtype in element_types:
        if dtype is not element_types[0]:
            names = ", ".join(dtype.name for dtype in element_types)
            raise InvalidTypeError(
                f"{label} must have the same element type, got {names}; tensors are not promoted, "
                "so cast one of them"
            )
    return element_types[0]


def default_dtype(value: Any) -> DType:
    """Return the default element type of a Python value.

    float is float32; int is int32, or int64 or uint64 when it does not fit; bool is bool; complex
    is complex128; str and bytes are string. An array, a NumPy scalar or a tensor keeps its own
    type. A nested list has the smallest type that represents all its leaves, counted as Python
    values: one float among integers makes it float32. An empty list is float32.

    Raises:
      InvalidTypeError: a leaf is not one of these, or the leaves have no common type.
      InvalidArgumentError: the list is ragged.
    """
    dtype = getattr(value, "dtype", None)
    if dtype is not None:
        return dtypes.as_dtype(dtype)
    if isinstance(value, (list, tuple)):
        return _default_of_list(value)
    if isinstance(value, bool):
        return dtypes.bool_
    if isinstance(value, (numbers.Integral, Dimension)):
        return _narrowest_int(int(value), int(value))
    if isinstance(value, numbers.Real):
        return dtypes.float32
    if isinstance(value, numbers.Complex):
        return dtypes.complex128
    if isinstance(value, (str, bytes)):
        return dtypes.string
    raise InvalidTypeError(
        f"expected a number, a string or lists of them, got {format_value(value)} of type "
        f"{type(value).__name__!r}"
    )


def _narrowest_int(low: int, high: int) -> DType:
    for dtype in (dtypes.int32, dtypes.int64, dtypes.uint64):
        if dtype.min <= low and high <= dtype.max:
            return dtype
    raise IntegerRangeError(f"no element type can hold the integers {low} to {high}")


def _default_of_list(values: Any) -> DType:
    array = nested_array(values)
    kind = array.dtype.kind
    if kind in "SU" or (kind == "O" and _all_strings(array)):
        return dtypes.string
    if kind == "O":
        return _default_of_leaves(array)
    if array.dtype == np.float64:
        if array.size and np.abs(array).max() >= 2.0**63 and _all_integers(values):
            leaves = [int(leaf) for leaf in np.asarray(values, dtype=object).flat]
            return _narrowest_int(min(leaves), max(leaves))
        return dtypes.float32
    if array.dtype == np.int64 and array.size:
        return _narrowest_int(int(array.min()), int(array.max()))
    return dtypes.from_numpy(array.dtype)


def nested_array(values: Any) -> np.ndarray[Any, Any]:
    """Convert a nested list with NumPy; strings and mixtures become an object array.

    Raises:
      InvalidArgumentError: the list is ragged.
    """
    try:
        array = np.asarray(values)
        if array.dtype.kind in "SU":  # NumPy turns numbers beside strings into strings
            array = np.asarray(values, dtype=object)
    except UnicodeDecodeError:  # NumPy turns bytes into text if the list also holds text
        array = np.asarray(values, dtype=object)
    except OverflowError as error:
        raise InvalidTypeError(
            f"the list has an integer that no element type can hold: {error}"
        ) from None
    except ValueError as error:
        raise InvalidArgumentError(f"the list is not a rectangular array: {error}") from None
    if array.dtype.kind == "O" and any(type(leaf) is Dimension for leaf in array.flat):
        return nested_array(_with_sizes(array.tolist()))
    return array


def _with_sizes(values: Any) -> Any:
    """Return a nested list in which each `Dimension` is replaced by an integer."""
    if isinstance(values, list):
        return [_with_sizes(value) for value in values]
    return int(values) if isinstance(values, Dimension) else values


def _all_strings(array: np.ndarray[Any, Any]) -> bool:
    return all(isinstance(leaf, (str, bytes)) for leaf in array.flat)


def _all_integers(values: Any) -> bool:
    """Return True if a list that NumPy converted to floats has only integers, some beyond int64."""
    leaves = np.asarray(values, dtype=object)
    return all(isinstance(leaf, numbers.Integral) for leaf in leaves.flat)


def _default_of_leaves(array: np.ndarray[Any, Any]) -> DType:
    """Return the type of leaves that have no common NumPy type; all must have the same type."""
    leaf_types = {default_dtype(leaf) for leaf in array.flat}
    if len(leaf_types) != 1:
        names = ", ".join(sorted(dtype.name for dtype in leaf_types))
        raise InvalidTypeError(f"the elements of a list must have the same type, got {names}")
    return leaf_types.pop()
