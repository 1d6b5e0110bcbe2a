"""Routines whose machine code is generated: matrix products and convolutions.

The code needs no library and is position-independent, so it links on any machine with its
processor.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Protocol

from weft_compiler.codegen import bf16_gemm, conv, int8_gemm, matmul
from weft_compiler.codegen.targets import Target
from weft_compiler.codegen.tiles import symbol
from weft_compiler.windows import places_of
from weft_tensor import dtypes
from weft_tensor.dtypes import DType

__all__ = ["declaration", "library", "module_text", "routines", "supported", "symbol", "workspace"]


class _Module(Protocol):
    """The interface of a module that generates routines."""

    def declaration(self, routine: str, dtype: DType) -> str: ...

    def workspace(
        self, routine: str, dtype: DType, target: Target, of: Mapping[str, int]
    ) -> int: ...

    def module_text(self, dtype: DType, target: Target) -> str: ...


_MODULES: Final[dict[str, _Module]] = {
    "matmul": matmul,
    "matmul_packed": matmul,
    "conv": conv,
    "conv_filter": conv,
    "transpose": conv,
    "winograd": conv,
    "winograd_filters": conv,
    "winograd_gradient": conv,
    "matmul_bytes": int8_gemm,
    "conv_bytes": int8_gemm,
    "pack_bytes": int8_gemm,
    "matmul_pairs": bf16_gemm,
    "conv_pairs": bf16_gemm,
    "conv_filter_pairs": bf16_gemm,
    "pack_pairs": bf16_gemm,
}
_LIBRARIES: Final = {
    "matmul": matmul,
    "conv": conv,
    "matmul_bytes": int8_gemm,
    "matmul_pairs": bf16_gemm,
}
"""Modules by the names of their routines."""


def supported(routine: str, dtype: DType) -> bool:
    """Return True if machine code of a routine can be generated for a type."""
    if _MODULES.get(routine) is int8_gemm:
        return dtype in (dtypes.int8, dtypes.uint8)
    if _MODULES.get(routine) is bf16_gemm:
        return dtype is dtypes.bfloat16
    return routine in _MODULES and dtype in (dtypes.float32, dtypes.float64)


def declaration(routine: str, dtype: DType) -> str:
    """Return the LLVM declaration of a routine."""
    return _MODULES[routine].declaration(routine, dtype)


def workspace(routine: str, dtype: DType, target: Target, of: Mapping[str, int]) -> int:
    """Return the workspace of a call with these parameters, in bytes."""
    return _MODULES[routine].workspace(routine, dtype, target, of)


CUT_IN_PLACES: Final = ("conv_filter", "conv_filter_pairs", "winograd_gradient")
"""Filter gradients whose calls may compute a range of elements or channels."""


def parts(routine: str, of: Mapping[str, int]) -> int:
    """Return the number of parts of a filter gradient that calls can compute separately.

    Returns: elements of a window, or channels; 0 for other routines.
    """
    if routine == "winograd_gradient":
        return of["channels"]
    return places_of(of) if routine in CUT_IN_PLACES else 0


def library(routine: str) -> str:
    """Return the name of the module that defines a routine, possibly with others."""
    return next(name for name, found in _LIBRARIES.items() if found is _MODULES[routine])


def module_text(library: str, dtype: DType, target: Target) -> str:
    """Return the module that defines all routines of a library for a type."""
    return _MODULES[library].module_text(dtype, target)


def routines(library: str) -> tuple[str, ...]:
    """Return the routines that a library defines."""
    return tuple([name for name, found in _MODULES.items() if found is _MODULES[library]])
