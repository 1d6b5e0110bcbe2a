"""Residency rules: the values of GPU kernels that stay in the host's memory.

These are strings, handles and other objects, and small arrays of integers and bools, such as
shapes, axes, predicates and loop counters. To read them from the device, kernels would have to wait
for it. Kernels accept values in both memories; `launch.py` copies them to where a kernel needs
them.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from weft_tensor.dtypes import DType

STAYING_BYTES: Final = 1024
"""Maximum size in bytes of arrays of integers and bools that stay on the host."""


def is_of_host(value: Any) -> bool:
    """Return True if a value is an array or scalar in the host's memory."""
    return isinstance(value, np.ndarray | np.generic)


def stays_on_host(value: Any) -> bool:
    """Return True if a host value stays on the host instead of being copied to the GPU."""
    if not is_of_host(value):
        return True
    if value.dtype.hasobject:
        return True
    return bool(value.dtype.kind in "biu" and value.nbytes <= STAYING_BYTES)


def keeps_variables_on_host(dtype: DType) -> bool:
    """Return True if variables of a type are in the host's memory, such as counters and flags."""
    return bool(dtype.numpy.kind in "biu")
