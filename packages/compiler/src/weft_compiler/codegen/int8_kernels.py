"""Register-blocked int8 products with exact int32 sums.

A panel of b stores four bytes of each column side by side.  A step of a kernel multiplies them with
four bytes of each row of a.  The instruction depends on the processor:

    tdpbssd, tdpbusd  AMX tiles of 16 rows and 16 columns
    vpdpbusd          sum of four unsigned-by-signed products per lane
    sdot              sum of four signed products per lane
    pmaddwd           two 16-bit products: each column has two lanes, which are added at the end
    smull, sadalp     two 8-bit products, in the same lanes
    plain             two 32-bit products, if none of these exists

If the instruction needs the other signedness than a has, 128 is added to a or subtracted from it as
it is copied. The result is corrected by 128 times the column sums of b.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from weft_compiler.codegen import amx
from weft_compiler.codegen.targets import Target
from weft_compiler.codegen.tile_kernels import Element, kernels
from weft_compiler.codegen.tiles import ROWS
from weft_compiler.codegen.vnni_kernels import PAD, PARAMETERS, GroupKernel
from weft_compiler.codegen.writer import Loops
from weft_compiler.layouts import FOUR
from weft_tensor import dtypes
from weft_tensor.dtypes import DType

_BLOCK_BYTES: Final = 1 << 19
_DEPTH: Final = 1024
"""Bytes of a row of a that are copied together."""


class DotMethod(enum.Enum):
    """Methods of multiplying groups of four bytes."""

    TILES = "tdpbssd"
    UNSIGNED = "vpdpbusd"
    SIGNED = "sdot"
    PAIRS = "pmaddwd"
    LONG = "smull"
    PLAIN = "plain"


def dot_of(target: Target) -> DotMethod:
    """Return the fastest method that a processor supports and whose sums are exact."""
    return DotMethod.TILES if target.has_tiles("int8") else dot_of_rows(target)


def dot_of_rows(target: Target) -> DotMethod:
    """Return the fastest method without AMX tiles."""
    if target.x86:
        wide = target.has("avx512vnni") and target.vector_bytes == 64
        narrow = target.has("avxvnni") and target.vector_bytes == 32
        return DotMethod.UNSIGNED if wide or narrow else DotMethod.PAIRS
    if target.family == "wasm32":
        return DotMethod.PAIRS if target.has("simd128") else DotMethod.PLAIN
    if target.family not in ("aarch64", "arm") or not target.has("neon"):
        return DotMethod.PLAIN
    return (
        DotMethod.SIGNED if target.family == "aarch64" and target.has("dotprod") else DotMethod.LONG
    )


@dataclass(frozen=True, slots=True)
class ByteShape:
    """Sizes of tiles and blocks.

    Attributes:
      dtype: element type of `a`: int8 or uint8.
      lanes: the number of 32-bit sums in a register.
      rows: the row counts of tiles that have kernels, the largest first.
      columns: the number of columns of b in a block (NC).
    """

    dtype: DType
    target: Target
    dot: DotMethod
    lanes: int
    rows: tuple[int, ...]
    columns: int = _BLOCK_BYTES // _DEPTH

    @property
    def parts(self) -> int:
        """The number of lanes that hold the sum of one column."""
        return 1 if self.dot in (DotMethod.TILES, DotMethod.UNSIGNED, DotMethod.SIGNED) else 2

    @property
    def group(self) -> int:
        """Elements of a column that are adjacent in a panel."""
        return FOUR

    @property
    def result(self) -> str:
        """The LLVM type of an element of the result."""
        return "i32"

    @property
    def in_tiles(self) -> bool:
        """True if the kernels use AMX tiles."""
        return self.dot is DotMethod.TILES

    @property
    def vectors(self) -> int:
        """Registers per row of a result tile."""
        return 2 // self.parts

    @property
    def width(self) -> int:
        """Columns of a tile."""
        return self.vectors * self.lanes

    @property
    def copied(self) -> str:
        """The LLVM type of copied elements of a."""
        return "i16" if self.dot in (DotMethod.PAIRS, DotMethod.PLAIN) else "i8"

    @property
    def size(self) -> int:
        """The size of a copied element of a, in bytes."""
        return 2 if self.copied == "i16" else 1

    @property
    def depth(self) -> int:
        """The number of elements of a row of a in a block (KC)."""
        return _DEPTH // self.size

    @property
    def row(self) -> int:
        """The row stride of copied rows of a, in elements."""
        return self.depth + PAD // self.size

    @property
    def panel_bytes(self) -> int:
        """The size of the copied rows of a, in bytes."""
        rows = amx.ROWS if self.in_tiles else self.rows[0]
        return rows * self.row * self.size

    @property
    def added(self) -> int:
        """The offset added to the bytes of a as they are copied."""
        if self.dot is DotMethod.UNSIGNED and self.dtype is dtypes.int8:
            return 128
        return (
            -128
            if self.dot in (DotMethod.SIGNED, DotMethod.LONG) and self.dtype is dtypes.uint8
            else 0
        )

    def as_copied(self, w: Loops, x: str, lanes: int = 0) -> str:
        """Convert bytes of a, a vector or a scalar, to the format of the kernels."""
        kind = f"<{lanes} x i8>" if lanes else "i8"
        if self.added:
            flip = f"<{', '.join(['i8 -128'] * lanes)}>" if lanes else "-128"
            x = w.put(f"xor {kind} {x}, {flip}")
        if self.copied == "i8":
            return x
        extend = "sext" if self.dtype is dtypes.int8 else "zext"
        return w.put(f"{extend} {kind} {x} to {kind.replace('i8', 'i16')}")


def byte_shape(dtype: DType, target: Target) -> ByteShape:
    """Return the tile and block sizes for a processor."""
    width = target.vector_bytes
    if width == 64 and not target.has("avx512bw"):
        width = 32
    return ByteShape(dtype, target, dot_of(target), width // 4, ROWS[width])


def texts(s: ByteShape) -> list[str]:
    """Return the kernels for all tile sizes, and the lookup tables of `chosen`."""
    if s.in_tiles:
        multiply = "tdpbssd" if s.dtype is dtypes.int8 else "tdpbusd"
        return amx.texts(multiply, s.row * s.size)
    return kernels(s, lambda *sizes: _Kernel(s, *sizes))


class _Kernel(GroupKernel):
    """Kernel of a tile of c: `kernel(a, b, groups, c, c_row, columns, add, sums)`."""

    parameters = f"{PARAMETERS}, ptr noalias %sums"

    def __init__(self, s: ByteShape, *sizes: Any) -> None:
        super().__init__(s, Element("i32", 4, "add"), sizes, s.parts, FOUR, (s.copied, s.row))
        self.s = s

    def totals(self) -> list[list[str]]:
        """Emit the sums of products; return their registers."""
        return [self._combine_lanes(row) for row in super().totals()]

    def corrections(self) -> list[str]:
        """Emit the terms that cancel the offset added to a."""
        w, lanes = self.w, self.s.lanes
        if not self.s.added:
            return []
        factor = f"<{', '.join([f'i32 {-self.s.added}'] * lanes)}>"
        starts = [w.offset_address("%sums", "i32", str(v * lanes)) for v in range(self.vectors)]
        return [
            w.put(f"mul {self.kind} {self.load(start, v)}, {factor}")
            for v, start in enumerate(starts)
        ]

    @property
    def _bytes(self) -> int:
        """The number of bytes of b for a register of sums."""
        return self.s.lanes * FOUR // self.s.parts

    def columns_of(self, start: str, v: int) -> list[str]:
        """Load four bytes of each of several adjacent columns."""
        w, count = self.w, self._bytes
        address = w.offset_address(start, "i8", str(v * count))
        result = w.put(f"load <{count} x i8>, ptr {address}, align 1")
        if self.s.copied == "i8":
            return [result]
        return [w.put(f"sext <{count} x i8> {result} to <{count} x i16>")]

    def row_of(self, address: str, b: list[list[str]], totals: list[str]) -> list[str]:
        """Accumulate the products of four elements of a row of a with all columns."""
        w, s = self.w, self.s
        word, count = f"i{32 * s.size}", self._bytes
        x = w.put(f"load {word}, ptr {address}, align {s.size}")
        vector_type = f"<{count // FOUR} x {word}>"
        broadcast_value = w.put(
            f"bitcast {vector_type} {w.broadcast(vector_type, x)} to <{count} x {s.copied}>"
        )
        step = _STEPS[s.dot]
        return [
            step(w, s, total, broadcast_value, y) for (y,), total in zip(b, totals, strict=True)
        ]

    def _combine_lanes(self, sums: list[str]) -> list[str]:
        """Add up the lanes that belong to one column, for a row."""
        if self.s.parts == 1:
            return sums
        pairs = zip(sums[::2], sums[1::2], strict=True)
        return [_add_pairs(self.w, self.kind, self.s.lanes, *pair) for pair in pairs]


# ---------------------------------------------------------------------------- steps


def _add_pairs(w: Loops, kind: str, lanes: int, x: str, y: str) -> str:
    """Return the pairwise sums of two registers, one after the other."""
    sums = [
        w.put(
            f"shufflevector {kind} {x}, {kind} {y}, <{lanes} x i32> "
            f"<{', '.join(f'i32 {2 * lane + odd}' for lane in range(lanes))}>"
        )
        for odd in (0, 1)
    ]
    return w.put(f"add {kind} {sums[0]}, {sums[1]}")


def _unsigned(w: Loops, s: ByteShape, total: str, a: str, b: str) -> str:
    kind, byte_type = f"<{s.lanes} x i32>", f"<{4 * s.lanes} x i8>"
    function = f"llvm.x86.avx512.vpdpbusd.{32 * s.lanes}"
    return w.put(f"call {kind} @{function}({kind} {total}, {byte_type} {a}, {byte_type} {b})")


def _signed(w: Loops, s: ByteShape, total: str, a: str, b: str) -> str:
    function = "llvm.aarch64.neon.sdot.v4i32.v16i8"
    return w.put(f"call <4 x i32> @{function}(<4 x i32> {total}, <16 x i8> {a}, <16 x i8> {b})")


_PAIRS: Final = {
    4: "llvm.x86.sse2.pmadd.wd",
    8: "llvm.x86.avx2.pmadd.wd",
    16: "llvm.x86.avx512.pmaddw.d.512",
}


def _pairs(w: Loops, s: ByteShape, total: str, a: str, b: str) -> str:
    kind, pair_type = f"<{s.lanes} x i32>", f"<{2 * s.lanes} x i16>"
    function = _PAIRS[s.lanes] if s.target.x86 else "llvm.wasm.dot"
    result = w.put(f"call {kind} @{function}({pair_type} {a}, {pair_type} {b})")
    return w.put(f"add {kind} {total}, {result}")


def _long(w: Loops, s: ByteShape, total: str, a: str, b: str) -> str:
    wide = [w.put(f"sext <8 x i8> {x} to <8 x i16>") for x in (a, b)]
    result = w.put(f"mul <8 x i16> {wide[0]}, {wide[1]}")
    if s.target.family == "aarch64":
        call = f"call <4 x i32> @llvm.aarch64.neon.saddlp.v4i32.v8i16(<8 x i16> {result})"
        return w.put(f"add <4 x i32> {total}, {w.put(call)}")
    function = "llvm.arm.neon.vpadals.v4i32.v8i16"
    return w.put(f"call <4 x i32> @{function}(<4 x i32> {total}, <8 x i16> {result})")


def _plain(w: Loops, s: ByteShape, total: str, a: str, b: str) -> str:
    count, kind = 2 * s.lanes, f"<{s.lanes} x i32>"
    wide = [w.put(f"sext <{count} x i16> {x} to <{count} x i32>") for x in (a, b)]
    result = w.put(f"mul <{count} x i32> {wide[0]}, {wide[1]}")
    for odd in (0, 1):
        lanes = ", ".join(f"i32 {2 * lane + odd}" for lane in range(s.lanes))
        half = w.put(
            f"shufflevector <{count} x i32> {result}, <{count} x i32> poison, "
            f"<{s.lanes} x i32> <{lanes}>"
        )
        total = w.put(f"add {kind} {total}, {half}")
    return total


_STEPS: Final[dict[DotMethod, Callable[[Loops, ByteShape, str, str, str], str]]] = {
    DotMethod.UNSIGNED: _unsigned,
    DotMethod.SIGNED: _signed,
    DotMethod.PAIRS: _pairs,
    DotMethod.LONG: _long,
    DotMethod.PLAIN: _plain,
}
"""Writers of the instructions that accumulate products of a and b, by method."""
