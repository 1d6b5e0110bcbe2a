"""Register-blocked product kernels, which keep a tile of the result in registers, and their sizes.

In each step a kernel loads a row of a panel and multiplies it with one element of each row of a,
which is broadcast. Columns that do not fill a tile are masked. Fewer rows have kernels of their
own.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from weft_compiler.codegen.targets import Target
from weft_compiler.codegen.tile_kernels import (
    FEW,
    Element,
    Tile,
    TileKernel,
    kernel_index,
    kernels,
)
from weft_compiler.codegen.writer import Loops
from weft_compiler.layouts import LINE
from weft_tensor import dtypes
from weft_tensor.dtypes import DType

ROWS: Final = {64: (14, 12, 10, 8, 6, 4, 3, 2, 1), 32: (6, 4, 3, 2, 1), 16: (4, 3, 2, 1)}
"""Rows of tiles by register width in bytes: sums use 28 of 32 registers, 12 of 16, or 8 if products
need registers too."""
_TOTALS: Final = 8
"""Minimum number of independent sums in a kernel of few rows, to hide the add latency."""
_BLOCK_BYTES: Final = 1 << 19
_PAD: Final = 64


@dataclass(frozen=True, slots=True)
class Shape:
    """Sizes of tiles and blocks, in elements.

    Attributes:
      lanes: elements of a register.
      rows: the row counts of tiles that have kernels, the largest first.
      depth: elements of a row of a in a block (KC).
      columns: columns of b in a block (NC).
    """

    dtype: DType
    lanes: int
    rows: tuple[int, ...]
    depth: int
    columns: int

    @property
    def scalar(self) -> str:
        """The LLVM type of an element."""
        return "double" if self.dtype is dtypes.float64 else "float"

    @property
    def vectors(self) -> int:
        """Registers per row of a result tile."""
        return 2

    @property
    def width(self) -> int:
        """Columns of a tile."""
        return self.vectors * self.lanes

    @property
    def row(self) -> int:
        """The row stride of copied rows of a."""
        return self.depth + _PAD // self.dtype.size

    @property
    def panel_bytes(self) -> int:
        """The size of the copied rows of a, in bytes."""
        return -(-self.rows[0] * self.row * self.dtype.size // 64) * 64


def shape_of(dtype: DType, target: Target) -> Shape:
    """Return the tile and block sizes for a processor."""
    lanes = target.vector_bytes // dtype.size
    depth = 1024 // dtype.size
    return Shape(
        dtype,
        lanes,
        ROWS[target.vector_bytes],
        depth,
        _BLOCK_BYTES // (depth * dtype.size),
    )


class _Kernel(TileKernel):
    """Kernel of a tile of c: `kernel(a, b, b_row, k, c, c_row, columns, add, next, next_row)`.

    With each row of its panel it prefetches a row of the panel `next`.
    """

    parameters = (
        "ptr noalias %a, ptr noalias %b, i64 %b_row, i64 %k, ptr noalias %c, i64 %c_row, "
        "i64 %columns, i1 %add, ptr %next, i64 %next_row"
    )

    def __init__(
        self, s: Shape, rows: int, vectors: int, masked: bool, has_all_rows: bool = False
    ) -> None:
        super().__init__(
            s, Element(s.scalar, s.dtype.size, "fadd"), rows, vectors, masked, has_all_rows
        )
        self.s = s

    def totals(self) -> list[list[str]]:
        """Return the sums of products, from a loop over k.

        The special kernels of few rows have several sums per element, for adjacent k.
        """
        w = self.w
        unrolled = max(1, _TOTALS // (self.rows * self.vectors)) if self.has_all_rows else 1
        zeros = [["zeroinitializer"] * self.vectors for _ in range(self.rows * unrolled)]
        if unrolled == 1:
            return self._steps("0", "%k", 1, zeros)
        full_count = w.put(f"and i64 %k, {-unrolled}")
        result = self._steps("0", full_count, unrolled, zeros)
        while len(result) > self.rows:
            half = len(result) // 2
            result = [
                [w.put(f"fadd {self.kind} {x}, {y}") for x, y in zip(a, b, strict=True)]
                for a, b in zip(result[:half], result[half:], strict=True)
            ]
        return self._steps(full_count, "%k", 1, result)

    def _steps(self, low: str, high: str, step: int, first: list[list[str]]) -> list[list[str]]:
        """Add products of columns of a with rows of b to sums, unrolled by `step`.

        Args:
          first: the initial sums: those of a tile's rows for the first of `step` columns, then for
            the next one.
        """
        w = self.w
        head, body, end = w.label(), w.label(), w.label()
        preheader = w.block
        w.go(head)
        w.begin(head)
        p, totals = w.name(), [[w.name() for _ in row] for row in first]
        line_index = len(w.lines)
        w.lines += [""] * (1 + len(first) * self.vectors)
        w.branch(w.put(f"icmp slt i64 {p}, {high}"), body, end)
        w.begin(body)
        new = []
        for k in range(step):
            element = w.put(f"add nsw i64 {p}, {k}")
            row = w.offset_address("%b", self.s.scalar, w.put(f"mul nsw i64 {element}, %b_row"))
            b = [
                self.load(w.offset_address(row, self.s.scalar, str(v * self.s.lanes)), v)
                for v in range(self.vectors)
            ]
            new += [self._row(i, element, b, totals[k * self.rows + i]) for i in range(self.rows)]
            if not self.has_all_rows:
                self._ask(element)
        following = w.put(f"add nsw i64 {p}, {step}")
        w.go(head, ", !llvm.loop !0")
        lines = [f"  {p} = phi i64 [ {low}, %{preheader} ], [ {following}, %{body} ]"]
        for olds, totals_of, begin in zip(totals, new, first, strict=True):
            for old, total, zero in zip(olds, totals_of, begin, strict=True):
                lines.append(
                    f"  {old} = phi {self.kind} [ {zero}, %{preheader} ], [ {total}, %{body} ]"
                )
        w.lines[line_index : line_index + len(lines)] = lines
        w.begin(end)
        return totals

    def _ask(self, p: str) -> None:
        """Prefetch a row of the next panel to the L2 cache."""
        w, size = self.w, self.s.dtype.size
        row = w.offset_address("%next", self.s.scalar, w.put(f"mul nsw i64 {p}, %next_row"))
        for index in range(0, self.s.width * size, LINE):
            line = w.offset_address(row, "i8", str(index))
            w.do(f"call void @llvm.prefetch.p0(ptr {line}, i32 0, i32 2, i32 1)")

    def _row(self, i: int, p: str, b: list[str], totals: list[str]) -> list[str]:
        """Multiply an element of a with a row of b, and add the products to the sums."""
        w = self.w
        x = w.put(f"load {self.s.scalar}, ptr {self.place(i, p)}, align {self.s.dtype.size}")
        broadcast_value = w.broadcast(self.kind, x)
        return [
            w.call(f"llvm.fmuladd.{self.suffix}", self.kind, broadcast_value, y, total)
            for y, total in zip(b, totals, strict=True)
        ]

    def place(self, i: int, p: str) -> str:
        """Return the address of an element of a."""
        return self.w.offset_address(
            self.w.offset_address("%a", self.s.scalar, p), self.s.scalar, str(i * self.s.row)
        )


class TransposedKernel(_Kernel):
    """Kernel for a transposed a whose rows are cache lines."""

    def __init__(self, s: Shape) -> None:
        super().__init__(s, 8 if s.rows[0] > 8 else 4, s.vectors, False)

    @property
    def name(self) -> str:
        """The symbol of the kernel."""
        return "weft.across"

    def place(self, i: int, p: str) -> str:
        """Return the address of an element of a."""
        row = self.w.put(f"mul nsw i64 {p}, {LINE // self.s.dtype.size}")
        return self.w.offset_address(
            self.w.offset_address("%a", self.s.scalar, row), self.s.scalar, str(i)
        )

    def _ask(self, p: str) -> None:
        """Emit nothing: panels need no prefetch, because they were just written."""


def symbol(routine: str, dtype: DType) -> str:
    """Return the symbol of a routine in machine code."""
    return f"weft.{routine}.{dtype.name}"


def texts(s: Shape) -> list[str]:
    """Return the kernels for all tile sizes, and the lookup tables of `chosen`."""
    return kernels(s, lambda *sizes: _Kernel(s, *sizes))


def module(target: Target, *functions: str) -> str:
    """Join texts to a module of routines, with the common declarations."""
    width = 8 * target.vector_bytes
    attributes = f'attributes #0 = {{ nounwind "prefer-vector-width"="{width}" }}'
    notes = '!0 = !{!0, !1}\n!1 = !{!"llvm.loop.unroll.disable"}'
    return "\n".join([f'target triple = "{target.triple}"', *functions, attributes, notes])


def emit_next_rows(w: Loops, s: Tile, remaining_rows: str) -> tuple[str, str]:
    """Emit the number of rows of the next tile, and the number of rows that its kernel has."""
    maximum = s.rows[0]
    tiles = w.put(f"udiv i64 {w.put(f'add i64 {remaining_rows}, {maximum - 1}')}, {maximum}")
    rounded = w.put(f"sub i64 {w.put(f'add i64 {remaining_rows}, {tiles}')}, 1")
    kernel_rows = w.put(f"udiv i64 {rounded}, {tiles}")
    # An odd last tile is split so that FEW rows remain: a single row would wait for its sums.
    odd = w.put(f"trunc i64 {remaining_rows} to i1")
    odd = w.put(f"and i1 {odd}, {w.put(f'icmp eq i64 {tiles}, 1')}")
    odd = w.put(f"and i1 {odd}, {w.put(f'icmp ugt i64 {remaining_rows}, {FEW}')}")
    kernel_rows = w.select(odd, "i64", w.put(f"sub i64 {remaining_rows}, {FEW}"), kernel_rows)
    result = "1"
    for rows in sorted(s.rows)[1:]:
        suffices = w.put(f"icmp uge i64 {kernel_rows}, {rows}")
        result = w.select(suffices, "i64", str(rows), result)
    return kernel_rows, result


@contextmanager
def iterate_tiles(
    w: Loops, s: Tile, high: str, all_rows: str = ""
) -> Iterator[tuple[str, str, str]]:
    """Loop over the rows of a matrix, a tile at a time.

    Args:
      all_rows: the number of rows of the complete product, if `high` is for some of them.
    Yields: the first row, the number of rows, and the row count to pass to `chosen`.
    """
    head, body, end = w.label(), w.label(), w.label()
    preheader = w.block
    w.go(head)
    w.begin(head)
    first = w.name()
    line_index = len(w.lines)
    w.do("")
    remaining_rows = w.put(f"sub i64 {high}, {first}")
    w.branch(w.put(f"icmp sgt i64 {remaining_rows}, 0"), body, end)
    w.begin(body)
    kernel_rows, rows = emit_next_rows(w, s, remaining_rows)
    yield first, rows, kernel_index(w, s, kernel_rows, all_rows or high)
    following = w.put(f"add nsw i64 {first}, {rows}")
    w.lines[line_index] = f"  {first} = phi i64 [ 0, %{preheader} ], [ {following}, %{w.block} ]"
    w.go(head)
    w.begin(end)
