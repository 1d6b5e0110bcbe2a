"""NumPy's own BLAS: where its functions are in this process.

Programs call the library that kernels call through `np.matmul`, in the same way, so products have
the same bits, and as many threads.
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
"""Those that programs call, as CBLAS names them, of float32 and of float64."""

_SPELLINGS: Final = ("scipy_cblas_{}64_", "cblas_{}64_")
"""Names of functions whose sizes have 64 bits, in NumPy's wheels and in distributions."""
_THREADS: Final = ("scipy_openblas_get_num_threads64_", "openblas_get_num_threads64_")
"""What tells there how many threads BLAS may use."""

MISSING: Final = "NumPy brings no BLAS that compiled code can call"


_SEVERAL: Final = ctypes.CFUNCTYPE(ctypes.c_int32)(lambda: 2)
"""What is asked of a BLAS that does not tell its threads: nobody shares its calls then."""


@functools.cache
def addresses() -> Mapping[str, int]:
    """Where each of FUNCTIONS is; nothing where NumPy brings no BLAS that can be called.

    Besides, as "threads", what tells how many threads it may use.
    """
    # What the module is linked with is looked through as well, and only that: another BLAS of
    # this process may have another interface by the same name.
    file = getattr(sys.modules.get("numpy._core._multiarray_umath"), "__file__", None)
    try:
        module = ctypes.CDLL(file) if file else None
    except OSError:  # where it cannot be loaded by its file
        module = None
    for spelling in _SPELLINGS:
        found: dict[str, Any] = {
            name: getattr(module, spelling.format(name), None) for name in FUNCTIONS
        }
        if None not in found.values():
            found["threads"] = next(
                (getattr(module, name) for name in _THREADS if hasattr(module, name)), _SEVERAL
            )
            return MappingProxyType(
                {name: ctypes.cast(of, ctypes.c_void_p).value or 0 for name, of in found.items()}
            )
    return MappingProxyType({})
