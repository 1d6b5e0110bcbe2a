"""How a program becomes machine code."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Final

from weft_tensor import errors

BOUNDS: Final = "WEFT_JIT_BOUNDS"
CPU: Final = "WEFT_JIT_CPU"


@dataclass(frozen=True, slots=True)
class Options:
    """What may differ between two compilations of one program.

    Attributes:
      contract: whether a product and a sum may be one operation with one rounding (FMA), and
        whether loops that combine floating-point numbers may do so in lanes.
      bounds_checks: whether indices are checked before each access: for finding faults.
      threads: whether several threads may run parallel loops; how many do is said in a call.
      cpu: a processor that LLVM knows, such as "x86-64-v3"; empty for this machine's.
      features: what it has or lacks besides, such as "+avx2,-fma"; used where `cpu` is given.
      triple: the family and system that code is for, as LLVM writes them; empty for this machine's.
        Code for another than this machine's calls nothing of the C library's mathematics.
      clocks: whether the times are noted at which each loop nest begins, for
        `NativeProgram.times`; for programs of one thread.
    """

    contract: bool = True
    bounds_checks: bool = False
    threads: bool = True
    cpu: str = ""
    features: str = ""
    triple: str = ""
    clocks: bool = False


def options_of_regions() -> Options:
    """How parts of graphs are compiled: as the environment says.

    Raises: InvalidArgumentError: it says something else than is known.
    """
    bounds = os.environ.get(BOUNDS, "off")
    if bounds not in ("on", "off"):
        raise errors.InvalidArgumentError(
            f"the environment variable {BOUNDS} must be on or off, got {bounds!r}"
        )
    cpu = os.environ.get(CPU, "")
    return Options(bounds_checks=bounds == "on", cpu=cpu)
