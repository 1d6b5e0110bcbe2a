"""Code generation options."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Final

from weft_tensor import errors

BOUNDS: Final = "WEFT_JIT_BOUNDS"
CPU: Final = "WEFT_JIT_CPU"


@dataclass(frozen=True, slots=True)
class Options:
    """Options of a compilation.

    Attributes:
      contract: allow FMA contraction, and vectorization of floating-point reductions.
      bounds_checks: check indices before each access, for debugging.
      threads: allow several threads to run parallel loops; each call sets their number.
      cpu: an LLVM processor name such as "x86-64-v3"; empty for this machine's.
      features: additional features such as "+avx2,-fma"; requires `cpu`.
      triple: the LLVM target triple; empty for this machine's. Code for other triples calls no C
        math functions.
      clocks: record the start time of each loop nest for `NativeProgram.times`; only for programs
        of one thread.
    """

    contract: bool = True
    bounds_checks: bool = False
    threads: bool = True
    cpu: str = ""
    features: str = ""
    triple: str = ""
    clocks: bool = False


def options_of_regions() -> Options:
    """Return the options for parts of graphs, from environment variables.

    Raises: InvalidArgumentError: a variable has an unknown value.
    """
    bounds = os.environ.get(BOUNDS, "off")
    if bounds not in ("on", "off"):
        raise errors.InvalidArgumentError(
            f"the environment variable {BOUNDS} must be on or off, got {bounds!r}"
        )
    cpu = os.environ.get(CPU, "")
    return Options(bounds_checks=bounds == "on", cpu=cpu)
