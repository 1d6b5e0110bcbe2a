"""Sets of the element types that CuPy supports, for registrations of kernels."""

from __future__ import annotations

from typing import Final

REAL: Final = ("float16", "float32", "float64")
COMPLEX: Final = ("complex64", "complex128")
INEXACT: Final = (*REAL, *COMPLEX)
INTEGERS: Final = tuple(f"{kind}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64))
NUMBERS: Final = (*INEXACT, *INTEGERS, "bool")
