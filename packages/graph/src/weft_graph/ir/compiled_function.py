"""Report of a code generator about a function that it compiled."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from weft_graph.ir.node import Node
from weft_tensor.dtypes import DType


@dataclass(frozen=True, slots=True)
class Roofline:
    """The peak performance of one thread of a machine, or of a device.

    Attributes:
      bandwidth: bytes in a second, of arrays much larger than the caches, measured.
      float32, float64: multiplications and additions in a second.
      said: of what, and how that was found.
    """

    bandwidth: float
    float32: float
    float64: float
    said: str = "measured with one thread"


@dataclass(frozen=True, slots=True)
class FusedKernel:
    """A loop nest or library call of a compiled function.

    Attributes:
      name: name of the first buffer that it fills, or of what it computes.
      nodes: those that are computed in it, some of them in other kernels too.
      text: its loops, in the compiler's language.
      dtype: what it fills has elements of.
      flops: floating-point operations; None where its loops have no known length.
      bytes: what it reads and writes of memory, each element counted once a way.
      seconds: of its fastest run; None where the machine cannot tell.
    """

    name: str
    nodes: Sequence[Node]
    text: str
    dtype: DType
    flops: int | None
    bytes: int
    seconds: float | None

    def least_seconds(self, limits: Roofline) -> float:
        """Return the time at the machine's limits: of its memory or of its arithmetic."""
        peak = limits.float64 if self.dtype.size == 8 else limits.float32
        return max(self.bytes / limits.bandwidth, (self.flops or 0) / peak)


@dataclass(frozen=True, slots=True)
class CompiledFunction:
    """Nodes that became one function.

    Attributes:
      name: name of its last node.
      members: its nodes, sources before users.
      shapes: shapes of its inputs, in their order.
      kernels: what it runs, in turn.
      arena_bytes: memory that it works in besides inputs and results.
      lowering_seconds: from nodes to loops.
      compile_seconds: from loops to machine code, or to find that on the disk.
      from_disk: whether machine code was on the disk.
      seconds: of its fastest run, as a whole.
      program: its loops, in the compiler's language.
      assembly: makes the text of its machine code.
      remarks: notes of the compiler's passes on what they did, and on what they did not and why.
      calls: how often the step called it.
      limits: what its device can do; None for the processor.
    """

    name: str
    members: Sequence[Node]
    shapes: Sequence[tuple[int, ...]]
    kernels: Sequence[FusedKernel]
    arena_bytes: int
    lowering_seconds: float
    compile_seconds: float
    from_disk: bool
    seconds: float
    program: str
    assembly: Callable[[], str]
    remarks: Sequence[str] = ()
    calls: int = 1
    limits: Roofline | None = None
