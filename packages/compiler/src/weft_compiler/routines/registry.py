"""Table of the routines of this package."""

from __future__ import annotations

from typing import Final

from weft_compiler.codegen.routine import Library, Routine
from weft_compiler.ir.registry import register, routines
from weft_compiler.routines.bfloat16 import ConvFilterPairs, ConvPairs, MatmulPairs, PackPairs
from weft_compiler.routines.conv2d import Conv, ConvFilter
from weft_compiler.routines.gemm import Gemm, Matmul, MatmulPacked, SmallMatmul
from weft_compiler.routines.int8 import ConvBytes, MatmulBytes, PackBytes
from weft_compiler.routines.philox import Philox
from weft_compiler.routines.transpose import Transpose
from weft_compiler.routines.winograd import Winograd, WinogradFilters, WinogradGradient

ROUTINES: Final[tuple[type[Routine], ...]] = (
    Gemm,
    Matmul,
    MatmulPacked,
    SmallMatmul,
    MatmulBytes,
    PackBytes,
    MatmulPairs,
    PackPairs,
    Conv,
    ConvFilter,
    ConvBytes,
    ConvPairs,
    ConvFilterPairs,
    Winograd,
    WinogradGradient,
    WinogradFilters,
    Transpose,
    Philox,
)

register(*ROUTINES)


def library_routines(library: Library) -> tuple[str, ...]:
    """Return the names of the routines that a library defines."""
    return tuple([name for name, routine in _machine_routines() if routine.library is library])


def library_of(routine: str) -> Library:
    """Return the library that defines a routine."""
    library = dict(_machine_routines())[routine].library
    assert library is not None, f"{routine} is in no library"
    return library


def libraries() -> tuple[Library, ...]:
    """Return all libraries."""
    distinct = dict.fromkeys(routine.library for _, routine in _machine_routines())
    return tuple([library for library in distinct if library is not None])


def _machine_routines() -> list[tuple[str, type[Routine]]]:
    return [(name, routine) for name, routine in routines().items() if issubclass(routine, Routine)]
