"""Addresses of the functions of NumPy's BLAS in this process.

Compiled programs call the same library in the same way as `np.matmul`. Their products are therefore
bitwise equal to those of kernels, and use the same number of threads.
"""

from __future__ import annotations

import ctypes
import functools
import sys
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

import numpy  # noqa: F401 - loads the module below

FUNCTIONS: Final = tuple(f"{kind}{name}" for kind in "sd" for name in ("gemm", "gemv", "dot"))
"""The CBLAS names of the functions that programs call, for float32 and float64."""

_SPELLINGS: Final = ("scipy_cblas_{}64_", "cblas_{}64_")
"""Symbols of the functions with 64-bit sizes, in NumPy's wheels and in Linux distributions."""
_THREADS: Final = ("scipy_openblas_get_num_threads64_", "openblas_get_num_threads64_")
"""Symbols of the function that returns BLAS's number of threads."""

MISSING: Final = "NumPy brings no BLAS that compiled code can call"


_SEVERAL: Final = ctypes.CFUNCTYPE(ctypes.c_int32)(lambda: 2)
"""Substitute for a BLAS without that function; it returns 2, so that calls are not split."""


@functools.cache
def addresses() -> Mapping[str, int]:
    """Return the addresses of FUNCTIONS by name; empty if NumPy's BLAS cannot be called.

    The key "threads" has the address of the function that returns the number of threads.
    """
    # Symbols are searched in the module and its dependencies only: another BLAS in this process
    # may have a different interface under the same names.
    file = getattr(sys.modules.get("numpy._core._multiarray_umath"), "__file__", None)
    try:
        module = ctypes.CDLL(file) if file else None
    except OSError:  # the file cannot be loaded
        module = None
    for spelling in _SPELLINGS:
        names: dict[str, Any] = {
            name: getattr(module, spelling.format(name), None) for name in FUNCTIONS
        }
        if None not in names.values():
            names["threads"] = next(
                (getattr(module, name) for name in _THREADS if hasattr(module, name)), _SEVERAL
            )
            return MappingProxyType(
                {
                    name: ctypes.cast(function, ctypes.c_void_p).value or 0
                    for name, function in names.items()
                }
            )
    return MappingProxyType({})
