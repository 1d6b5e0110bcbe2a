"""Python values as arrays for constants and feeds: element types, kinds, shapes."""

from __future__ import annotations

from typing import Any

import numpy as np

from weft_tensor import errors, values
from weft_tensor.dtypes import DType
from weft_tensor.shape import as_dims


def to_array(
    value: Any, dtype: DType | None = None, shape: Any = None, verify_shape: bool = False
) -> np.ndarray:
    """`value` as an array of `dtype` that may be kept; a copy if it is the caller's array.

    Raises:
      InvalidTypeError: the value has no element type, or another kind than `dtype`.
      InvalidArgumentError: the value is ragged, out of range, or does not fit `shape`.
    See also: `weft_tensor.values.to_array`, which decides what fits.
    """
    array = values.to_array(value, dtype)
    if isinstance(value, np.ndarray) and np.may_share_memory(array, value):
        array = array.copy()
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


def _repeat_last(array: np.ndarray, dims: list[int]) -> np.ndarray:
    size = int(np.prod(dims, dtype=np.int64))
    flat = array.reshape(-1)
    if flat.size > size or (flat.size == 0 and size):
        raise errors.InvalidArgumentError(
            f"a value of {flat.size} elements cannot fill shape {dims}"
        )
    result = np.empty(size, array.dtype)
    result[: flat.size] = flat
    if flat.size < size:
        result[flat.size :] = flat[-1]
    return result.reshape(dims)
