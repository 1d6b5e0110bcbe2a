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
      bandwidth: measured bytes per second for arrays much larger than the caches.
      float32, float64: floating-point operations per second.
      said: description of the device and the method.
    """

    bandwidth: float
    float32: float
    float64: float
    said: str = "measured with one thread"


@dataclass(frozen=True, slots=True)
class FusedKernel:
    """A loop nest or library call of a compiled function.

    Attributes:
      name: name of its first output buffer, or of its computation.
      nodes: the nodes that it computes; a node may be in several kernels.
      text: its loops, in the compiler's language.
      dtype: element type of its output buffer.
      flops: floating-point operations; None if a trip count is unknown.
      bytes: bytes read and written; each element counts once per direction.
      seconds: time of its fastest run; None if it cannot be measured.
    """

    name: str
    nodes: Sequence[Node]
    text: str
    dtype: DType
    flops: int | None
    bytes: int
    seconds: float | None

    def least_seconds(self, limits: Roofline) -> float:
        """Return the least time by the roofline: the larger of memory and arithmetic time."""
        peak = limits.float64 if self.dtype.size == 8 else limits.float32
        return max(self.bytes / limits.bandwidth, (self.flops or 0) / peak)


@dataclass(frozen=True, slots=True)
class CompiledFunction:
    """Report of nodes that were compiled to one function.

    Attributes:
      name: name of its last node.
      members: its nodes, sources before users.
      shapes: shapes of its inputs, in their order.
      kernels: its kernels, in order.
      arena_bytes: size of its temporaries.
      lowering_seconds: time from nodes to loops.
      compile_seconds: time from loops to machine code, or to load that from disk.
      from_disk: True if machine code was loaded from disk.
      seconds: time of its fastest run.
      program: its loops, in the compiler's language.
      assembly: function that returns its machine code as text.
      remarks: the passes' remarks: rewrites, and reasons for missed ones.
      calls: number of calls in the step.
      limits: roofline of its device; None for the CPU.
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
