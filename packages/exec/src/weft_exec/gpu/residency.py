"""Which values of a GPU's kernels stay in the host's memory.

Strings, handles and other objects do, and so do small arrays of integers and bools: shapes, axes,
predicates, loop counters. Whoever made a kernel for them would have to wait for the device to look
at them. Kernels take either; `launch.py` brings to one side what a kernel needs there.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from weft_tensor.dtypes import DType

STAYING_BYTES: Final = 1024
"""Integers and bools of up to so many bytes stay on the host."""


def is_of_host(value: Any) -> bool:
    """Whether a value is an array or scalar in the host's memory."""
    return isinstance(value, np.ndarray | np.generic)


def stays(value: Any) -> bool:
    """Whether a value of the host is left there."""
    if not is_of_host(value):
        return True
    if value.dtype.hasobject:
        return True
    return bool(value.dtype.kind in "biu" and value.nbytes <= STAYING_BYTES)


def keeps_variables(dtype: DType) -> bool:
    """Whether variables of a type are in the host's memory: counters and flags are."""
    return bool(dtype.numpy.kind in "biu")
