"""Register-blocked bfloat16 products with float32 sums.

A panel of b stores two elements of each column side by side: a pair.  The instruction depends on
the processor:

    tdpbf16ps         AMX tiles of 16 rows and 16 columns
    vdpbf16ps, bfdot  sum of two products per lane
    widened           b is widened to two float32 registers, a as it is copied

The first two flush operands and sums below 2^-126 to zero.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Any, Final

from weft_compiler.codegen import amx
from weft_compiler.codegen.targets import Target
from weft_compiler.codegen.tile_kernels import Element, kernels
from weft_compiler.codegen.tiles import ROWS
from weft_compiler.codegen.vnni_kernels import PAD, GroupKernel
from weft_compiler.codegen.writer import Loops
from weft_compiler.layouts import PAIR, PANEL
from weft_tensor import dtypes
from weft_tensor.dtypes import DType

_COLUMNS: Final = 1024
_DEPTH: Final = 1024
_TILES_DEPTH: Final = 512
"""Bytes of a row of a that are copied at a time; with a panel, they stay in the L1 cache."""


class PairMethod(enum.Enum):
    """Methods of multiplying pairs of bfloat16 numbers."""

    TILES = "tdpbf16ps"
    DOT = "vdpbf16ps"
    WIDE = "widened"


def pairs_of(target: Target) -> PairMethod:
    """Return the fastest method that a processor supports."""
    if target.has_tiles("bf16"):
        return PairMethod.TILES
    # Processors that also have float16 instructions are Intel's: their bfloat16 dot takes three
    # times as long as two float32 products. On AMD it is as fast as one.
    wide = target.x86 and target.has("avx512bf16") and target.vector_bytes == 64
    wide = wide and not target.has("avx512fp16")
    narrow = target.family == "aarch64" and target.has("bf16")
    return PairMethod.DOT if wide or narrow else PairMethod.WIDE


@dataclass(frozen=True, slots=True)
class PairShape:
    """Sizes of tiles and blocks.

    Attributes:
      lanes: the number of sums in a register.
      rows: the row counts of tiles that have kernels, the largest first.
    """

    target: Target
    way: PairMethod
    lanes: int
    rows: tuple[int, ...]

    @property
    def dtype(self) -> DType:
        """The type of a and b."""
        return dtypes.bfloat16

    @property
    def vectors(self) -> int:
        """Registers per row of a result tile."""
        return 2

    @property
    def width(self) -> int:
        """Columns of a tile."""
        return PANEL if self.in_tiles else self.vectors * self.lanes

    @property
    def columns(self) -> int:
        """The number of columns of a block (NC)."""
        return _COLUMNS

    @property
    def copied(self) -> str:
        """The LLVM type of copied elements of a."""
        return "float" if self.way is PairMethod.WIDE else "i16"

    @property
    def size(self) -> int:
        """The size of a copied element of a, in bytes."""
        return 4 if self.way is PairMethod.WIDE else 2

    @property
    def depth(self) -> int:
        """The number of elements of a row of a in a block (KC)."""
        return (_TILES_DEPTH if self.in_tiles else _DEPTH) // self.size

    @property
    def row(self) -> int:
        """The row stride of copied rows of a, in elements."""
        return self.depth + PAD // self.size

    @property
    def panel_bytes(self) -> int:
        """The size of the copied rows of a, in bytes."""
        return self.most_rows * self.row * self.size

    @property
    def most_rows(self) -> int:
        """The maximal number of rows of a that are copied together."""
        return amx.ROWS if self.in_tiles else self.rows[0]

    @property
    def group(self) -> int:
        """Elements of a column that are adjacent in a panel."""
        return PAIR

    @property
    def result(self) -> str:
        """The LLVM type of an element of the result."""
        return "float"

    @property
    def in_tiles(self) -> bool:
        """True if the kernels use AMX tiles."""
        return self.way is PairMethod.TILES

    def as_copied(self, w: Loops, x: str, lanes: int = 0) -> str:
        """Convert elements of a, a vector or a scalar, to the format of the kernels."""
        if self.copied == "i16":
            return x
        kind, wide = (f"<{lanes} x {element}>" if lanes else element for element in ("i16", "i32"))
        shift = f"<{', '.join(['i32 16'] * lanes)}>" if lanes else "16"
        bits = w.put(f"shl {wide} {w.put(f'zext {kind} {x} to {wide}')}, {shift}")
        return w.put(f"bitcast {wide} {bits} to {wide.replace('i32', 'float')}")


def pair_shape(target: Target) -> PairShape:
    """Return the tile and block sizes for a processor."""
    width = target.vector_bytes
    return PairShape(target, pairs_of(target), width // 4, ROWS[width])


def texts(s: PairShape) -> list[str]:
    """Return the kernels for all tile sizes, and the lookup tables of `chosen`."""
    if s.in_tiles:
        return amx.texts("tdpbf16ps", s.row * s.size)
    return kernels(
        s, lambda *sizes: (_Float32Kernel if s.way is PairMethod.WIDE else _DotKernel)(s, *sizes)
    )


class _Kernel(GroupKernel):
    def __init__(self, s: PairShape, *sizes: Any) -> None:
        super().__init__(s, Element("float", 4, "fadd"), sizes, 1, PAIR, (s.copied, s.row))
        self.s = s

    def words(self, start: str, v: int) -> str:
        """Load pairs of adjacent columns, each pair as one integer."""
        address = self.w.offset_address(start, "i32", str(v * self.s.lanes))
        return self.w.put(f"load <{self.s.lanes} x i32>, ptr {address}, align 4")


class _Float32Kernel(_Kernel):
    """Kernel that computes two float32 products, one after the other."""

    def columns_of(self, start: str, v: int) -> list[str]:
        w, lanes, words = self.w, self.s.lanes, self.words(start, v)
        kind = f"<{lanes} x i32>"
        first = w.put(f"shl {kind} {words}, <{', '.join(['i32 16'] * lanes)}>")
        second = w.put(f"and {kind} {words}, <{', '.join(['i32 -65536'] * lanes)}>")
        return [w.put(f"bitcast {kind} {half} to {self.kind}") for half in (first, second)]

    def row_of(self, address: str, b: list[list[str]], totals: list[str]) -> list[str]:
        w = self.w
        for index in range(PAIR):
            x = w.put(f"load float, ptr {w.offset_address(address, 'float', str(index))}, align 4")
            broadcast_value = w.broadcast(self.kind, x)
            totals = [
                w.call(f"llvm.fmuladd.{self.suffix}", self.kind, broadcast_value, y[index], total)
                for y, total in zip(b, totals, strict=True)
            ]
        return totals


class _DotKernel(_Kernel):
    """Kernel with an instruction that adds both products of a pair."""

    def columns_of(self, start: str, v: int) -> list[str]:
        kind = f"<{self.s.lanes} x i32>"
        return [self.w.put(f"bitcast {kind} {self.words(start, v)} to {self._pairs}")]

    @property
    def _pairs(self) -> str:
        return f"<{PAIR * self.s.lanes} x bfloat>"

    def row_of(self, address: str, b: list[list[str]], totals: list[str]) -> list[str]:
        w, vector_type = self.w, f"<{self.s.lanes} x i32>"
        x = w.put(f"load i32, ptr {address}, align 2")
        broadcast_value = w.put(
            f"bitcast {vector_type} {w.broadcast(vector_type, x)} to {self._pairs}"
        )
        function = "llvm.x86.avx512bf16.dpbf16ps.512"
        if not self.s.target.x86:
            function = "llvm.aarch64.neon.bfdot.v4f32.v8bf16"
        return [
            w.put(
                f"call {self.kind} @{function}({self.kind} {total}, {self._pairs} "
                f"{broadcast_value}, "
                f"{self._pairs} {y})"
            )
            for (y,), total in zip(b, totals, strict=True)
        ]
