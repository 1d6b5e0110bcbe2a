"""Kernels over panels that store groups of adjacent elements of each column.

Each step multiplies the groups of all columns of a tile with one group of each row of a.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Final

from weft_compiler.codegen.tile_kernels import Element, Tile, TileKernel
from weft_compiler.layouts import PANEL_BYTES

PAD: Final = 64
"""Padding between copied rows of a, in bytes."""
PARAMETERS: Final = (
    "ptr noalias %a, ptr noalias %b, i64 %groups, ptr noalias %c, i64 %c_row, i64 %columns, i1 %add"
)


class GroupKernel(TileKernel):
    """Kernel of a tile of c: `kernel(a, b, groups, c, c_row, columns, add)`.

    Args:
      parts: the number of registers of sums for each register of the result.
      group: elements per group.
      copied: the LLVM type of copied elements of a.
      row: the stride of copied rows of a, in elements.
    """

    parameters = PARAMETERS

    def __init__(
        self,
        s: Tile,
        element: Element,
        sizes: tuple[int, int, bool, bool],
        parts: int,
        group: int,
        copied: tuple[str, int],
    ) -> None:
        super().__init__(s, element, *sizes)
        self.sums = self.vectors * parts
        self.group, (self.copied, self.row_stride) = group, copied

    @abstractmethod
    def columns_of(self, start: str, v: int) -> list[str]:
        """Load the groups of b for one register of sums, in the format that `row_of` expects."""

    @abstractmethod
    def row_of(self, address: str, b: list[list[str]], totals: list[str]) -> list[str]:
        """Accumulate the products of one group of a row with all columns."""

    def totals(self) -> list[list[str]]:
        """Return the sums of products, from a loop over groups."""
        w, tile = self.w, range(self.rows)
        head, body, end = w.label(), w.label(), w.label()
        preheader = w.block
        w.go(head)
        w.begin(head)
        p, totals = w.name(), [[w.name() for _ in range(self.sums)] for _ in tile]
        line_index = len(w.lines)
        for _ in range(1 + self.rows * self.sums):
            w.do("")
        w.branch(w.put(f"icmp slt i64 {p}, %groups"), body, end)
        w.begin(body)
        start = w.offset_address("%b", "i8", w.put(f"mul nsw i64 {p}, {PANEL_BYTES}"))
        b = [self.columns_of(start, v) for v in range(self.sums)]
        address = w.offset_address("%a", self.copied, w.put(f"mul nsw i64 {p}, {self.group}"))
        new = [
            self.row_of(
                w.offset_address(address, self.copied, str(i * self.row_stride)), b, totals[i]
            )
            for i in tile
        ]
        following = w.put(f"add nsw i64 {p}, 1")
        w.go(head, ", !llvm.loop !0")
        lines = [f"  {p} = phi i64 [ 0, %{preheader} ], [ {following}, %{body} ]"]
        for i in tile:
            for old, total in zip(totals[i], new[i], strict=True):
                zero = f"[ zeroinitializer, %{preheader} ]"
                lines.append(f"  {old} = phi {self.kind} {zero}, [ {total}, %{body} ]")
        w.lines[line_index : line_index + len(lines)] = lines
        w.begin(end)
        return totals
