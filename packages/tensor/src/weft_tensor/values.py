"""Strict conversion of Python values to arrays, used by constants and tensors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np

from weft_tensor import dtypes
from weft_tensor.dtypes import DType
from weft_tensor.errors import IntegerRangeError, InvalidArgumentError, InvalidTypeError
from weft_tensor.nesting import format_value
from weft_tensor.promotion import default_dtype, nested_array

Lost = Callable[[str], None]
"""Callback that receives a description of the information that a numeric conversion loses."""


def to_array(
    value: Any, dtype: DType | None = None, lost: Lost | None = None
) -> np.ndarray[Any, Any]:
    """Return `value` as an array of an element type.

    Kinds are not converted: a float or complex is not accepted as an integer, a complex not as a
    float, a number not as a bool, and a bool not as a number; cast explicitly. An integer must
    fit. Floats round. A string array becomes an object array of bytes. Foreign byte order is
    converted. If nothing changes, the array itself is returned, not a copy.

    Args:
      value: an array, a Python value, nested lists of them, or anything with `__array__` or
        `__array_interface__`.
      dtype: element type of the result; None for `default_dtype`.
      lost: if passed, numbers are converted to any numeric kind: floats are truncated, nonzero
        numbers become True. It is called with a description if that loses information.
    Raises:
      InvalidTypeError: the value is not of that type, or, with `lost`, not a number.
      InvalidArgumentError: a list is ragged, an integer does not fit, or text cannot be encoded as
        UTF-8.
    """
    if isinstance(value, (np.ndarray, np.generic)):
        return _from_array(np.asarray(value), dtype, lost)
    if hasattr(value, "__array__") or hasattr(value, "__array_interface__"):
        return _from_array(np.asarray(value), dtype, lost)
    element_type = default_dtype(value) if dtype is None else dtype.base_dtype
    if element_type is dtypes.string:
        array = nested_array(value)
        return to_bytes(array if array.size else array.astype(object))  # [] says no type
    if not element_type.is_numpy_compatible:
        raise InvalidTypeError(f"a Python value cannot be converted to a {element_type.name}")
    return _from_numbers(nested_array(value), element_type, lost)


def to_bytes(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return an array of strings as objects of bytes; text is encoded as UTF-8.

    An object array of bytes is returned unchanged.

    Raises:
      InvalidTypeError: an element is neither bytes nor text.
      InvalidArgumentError: text holds surrogates.
    """
    if array.dtype.kind == "U":
        return _map_objects(array.astype(object))
    if array.dtype.kind == "S":
        return array.astype(object)
    if array.dtype.kind != "O":
        raise InvalidTypeError(f"expected strings, got an array of {array.dtype.name}")
    if all(type(leaf) is bytes for leaf in array.flat):
        return array
    return _map_objects(array)


def _map_objects(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    result = np.empty(array.shape, object)
    flat = result.reshape(-1)
    for index, leaf in enumerate(array.flat):
        flat[index] = _encode(leaf)
    return result


def _encode(leaf: Any) -> bytes:
    if isinstance(leaf, str):
        try:
            return leaf.encode()
        except UnicodeEncodeError as cause:
            raise InvalidArgumentError(
                f"text must be encodable as UTF-8, got {leaf!r}; pass the name of a file as "
                "os.fsencode(name)"
            ) from cause
    if isinstance(leaf, bytes):
        return bytes(leaf)
    raise InvalidTypeError(
        f"expected bytes or text, got {format_value(leaf)} of type {type(leaf).__name__!r}"
    )


_EXTENDED: Final = {
    np.dtype(np.longdouble): np.dtype(np.float64),
    np.dtype(np.clongdouble): np.dtype(np.complex128),
}
"""Replacements of NumPy's extended-precision types, which have no element type."""


def _from_array(
    array: np.ndarray[Any, Any], dtype: DType | None, lost: Lost | None
) -> np.ndarray[Any, Any]:
    if lost is not None and dtype is not None and array.dtype.kind == "O":
        array = _infer_number_kind(array, dtype)
    if dtype is not None and array.dtype in _EXTENDED:
        array = array.astype(_EXTENDED[array.dtype])
    array_type = dtypes.from_numpy(array.dtype)
    target = array_type if dtype is None else dtype.base_dtype
    if target is dtypes.string:
        return to_bytes(array)
    if array_type is target:
        return array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))
    if array_type is dtypes.string or not target.is_numpy_compatible:
        raise InvalidTypeError(f"expected {target.name}, got an array of {array_type.name}")
    return _from_numbers(array, target, lost)


def _infer_number_kind(array: np.ndarray[Any, Any], dtype: DType) -> np.ndarray[Any, Any]:
    """Return an object array of numbers with its inferred dtype; other arrays unchanged."""
    if dtype.base_dtype is dtypes.string:
        return array
    plain = nested_array(array.tolist())
    return plain if plain.shape == array.shape else array


def _from_numbers(
    array: np.ndarray[Any, Any], dtype: DType, lost: Lost | None
) -> np.ndarray[Any, Any]:
    kind = array.dtype.kind
    accepted = (
        "b"
        if dtype.is_bool
        else "iu"
        if dtype.is_integer or dtype.is_quantized
        else "iufc"
        if dtype.is_complex
        else "iuf"
    )
    if kind == "O" and accepted != "b" and all(type(leaf) is int for leaf in array.flat):
        kind = "i"  # integers beyond 64 bits
    if array.dtype == dtypes.bfloat16.numpy:
        kind = "f"  # NumPy calls it V
    if kind not in accepted and kind in "biufc" and lost is not None:
        array = _convert_to_kind(array, dtype, lost)
    elif kind not in accepted and array.size:
        raise InvalidTypeError(f"expected {dtype.name}, got {_describe_odd_leaf(array, accepted)}")
    if (dtype.is_integer or dtype.is_quantized) and array.size:
        _check_range(array, dtype)
    return array.astype(dtype.numpy, copy=False)


def _convert_to_kind(array: np.ndarray[Any, Any], dtype: DType, lost: Lost) -> np.ndarray[Any, Any]:
    """Convert numbers to the kind of `dtype`; integers may still be too large for `dtype`."""
    result: np.ndarray[Any, Any]
    if dtype.is_bool:
        result = array != 0
    elif array.dtype.kind == "c":
        real = array.real
        result = real if dtype.is_floating else _convert_to_kind(real, dtype, _ignore)
    elif array.dtype.kind == "b":
        result = array.astype(dtype.numpy)
    else:
        result = _cut(array, dtype)
    if not np.array_equal(result, array, equal_nan=result.dtype.kind == "f"):
        old, new = array[result != array].flat[0], result[result != array].flat[0]
        lost(f"{format_value(old.item())} becomes {format_value(new.item())}")
    return result


def _cut(array: np.ndarray[Any, Any], dtype: DType) -> np.ndarray[Any, Any]:
    """Return floats truncated to integers."""
    wide = np.trunc(np.asarray(array, np.float64) if array.dtype.itemsize < 8 else array)
    info = np.iinfo(dtype.numpy)
    is_in_range = (wide >= float(info.min)) & (wide < float(info.max) + 1)
    if not is_in_range.all():
        odd = array[~is_in_range].flat[0].item()
        raise IntegerRangeError(
            f"{odd} does not fit in {dtype.name}, which holds {info.min} to {info.max}"
        )
    result: np.ndarray[Any, Any] = wide.astype(dtype.numpy)
    return result


def _ignore(_: str) -> None:
    """Ignore a loss that was reported already."""


def _describe_odd_leaf(array: np.ndarray[Any, Any], accepted: str) -> str:
    for leaf in array.flat:
        item = leaf.item() if isinstance(leaf, np.generic) else leaf
        if np.asarray(item).dtype.kind not in accepted:
            return f"{format_value(item)} of type {type(item).__name__!r}"
    return f"an array of {array.dtype.name}"


def _check_range(array: np.ndarray[Any, Any], dtype: DType) -> None:
    info = np.iinfo(dtype.numpy)
    low, high = array.min(), array.max()
    if int(low) < info.min or int(high) > info.max:
        odd = int(low) if int(low) < info.min else int(high)
        raise IntegerRangeError(
            f"{odd} does not fit in {dtype.name}, which holds {info.min} to {info.max}"
        )
