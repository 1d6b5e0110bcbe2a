"""New arrays outside of any allocator; errors state shape and bytes."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from weft_tensor.errors import InvalidArgumentError, ResourceExhaustedError

_SMALL = 2**28
"""Requests up to this many bytes skip the check of the machine's memory."""


def new_array(shape: Sequence[int], dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    """Return an array with uninitialized elements.

    Raises:
      InvalidArgumentError: the array's size in bytes overflows 64 bits.
      ResourceExhaustedError: the machine has less memory.
    """
    nbytes = math.prod(shape) * dtype.itemsize
    if nbytes > _SMALL and nbytes > _machine_bytes():
        raise _no_memory_error(shape, dtype, nbytes)
    try:
        return np.empty(shape, dtype)
    except ValueError as error:
        raise InvalidArgumentError(f"no array has the shape {list(shape)}: {error}") from None
    except MemoryError:
        raise _no_memory_error(shape, dtype, nbytes) from None


def copy_array(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return a copy of an array with the same element order.

    Raises: ResourceExhaustedError: the machine has less memory.
    """
    if array.nbytes > _SMALL and array.nbytes > _machine_bytes():
        raise _no_memory_error(array.shape, array.dtype, array.nbytes)
    try:
        return array.copy()
    except MemoryError:
        raise _no_memory_error(array.shape, array.dtype, array.nbytes) from None


def _machine_bytes() -> int:
    """Return the machine's memory in bytes; larger requests fail even if the system grants them."""
    if not hasattr(os, "sysconf"):
        return 2**63
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _no_memory_error(
    shape: Sequence[int], dtype: np.dtype[Any], nbytes: int
) -> ResourceExhaustedError:
    if nbytes > 2**63 - 1:
        return ResourceExhaustedError(
            f"an array of shape {list(shape)} and type {dtype.name} needs {nbytes} bytes, which "
            "overflows 64 bits"
        )
    return ResourceExhaustedError(
        f"not enough memory for an array of shape {list(shape)} and type {dtype.name}, which "
        f"needs {nbytes} bytes"
    )
