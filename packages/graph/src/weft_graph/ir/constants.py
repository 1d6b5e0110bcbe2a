"""Conversion of Python values to arrays for constants and feeds."""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np

from weft_tensor import errors, values
from weft_tensor.dtypes import DType
from weft_tensor.memory import copy_array, new_array
from weft_tensor.shape import as_dims


def to_array(
    value: Any,
    dtype: DType | None = None,
    shape: Any = None,
    verify_shape: bool = False,
    lost: values.Lost | None = None,
) -> np.ndarray:
    """Convert `value` to an array of `dtype`; copy it if the caller may share its memory.

    Arrays of another numeric kind are accepted if `lost` is passed; Python numbers are not.

    Raises:
      InvalidTypeError: the value has no element type, or its kind is not that of `dtype`.
      InvalidArgumentError: the value is ragged, out of range, or does not fit `shape`.
    See also: `weft_tensor.values.to_array`, which decides what fits.
    """
    strict = isinstance(value, _PLAIN) and not isinstance(value, np.generic)
    array = np.asarray(values.to_array(value, dtype, None if strict else lost))
    if not (isinstance(value, _WITHOUT_MEMORY) or _is_converted(array, value)):
        array = copy_array(array)
    if shape is None:
        return array
    dims = [size or 0 for size in as_dims(shape) or ()]
    if array.shape == tuple(dims):
        return array
    if verify_shape:
        raise errors.InvalidArgumentError(
            f"the value must have shape {dims}, got {list(array.shape)}"
        )
    return _repeat_last(array, dims)


_PLAIN: Final = (bool, int, float, complex, str, bytes, list, tuple)
_WITHOUT_MEMORY: Final = (*_PLAIN, np.generic)
"""Types that always convert to a new array; arrays of other values may share memory."""


def _is_converted(array: np.ndarray, value: Any) -> bool:
    """Return True if the elements were converted, so that the array is new even if empty."""
    return isinstance(value, np.ndarray) and array.dtype != value.dtype


def _repeat_last(array: np.ndarray, dims: list[int]) -> np.ndarray:
    size = math.prod(dims)
    flat = array.reshape(-1)
    if flat.size > max(size, 1) or (flat.size == 0 and size):
        raise errors.InvalidArgumentError(
            f"a value of {flat.size} elements does not match shape {dims}"
        )
    result = new_array(dims, array.dtype).reshape(-1)
    result[: flat.size] = flat[:size]
    if flat.size < size:
        result[flat.size :] = flat[-1]
    return result.reshape(dims)
