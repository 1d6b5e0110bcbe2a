"""Kernels over panels that have some elements of each column side by side: a group.

A step multiplies the groups of all columns of a tile with one of each row of a.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Final

from weft_compiler.codegen.tile_kernels import Element, Tile, TileKernel
from weft_compiler.windows import PANEL_BYTES

PAD: Final = 64
"""Bytes between copied rows of a."""
PARAMETERS: Final = (
    "ptr noalias %a, ptr noalias %b, i64 %groups, ptr noalias %c, i64 %c_row, i64 %columns, i1 %add"
)


class GroupKernel(TileKernel):
    """A tile of c: `kernel(a, b, groups, c, c_row, columns, add)`.

    Args:
      parts: registers of sums for each of the result.
      group: elements of a group.
      copied: the type of copied elements of a in LLVM.
      row: how many of these copied rows of a are apart.
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
        self.group, (self.copied, self.apart) = group, copied

    @abstractmethod
    def columns_of(self, start: str, v: int) -> list[str]:
        """The groups of b that go with one register of sums, as `row` takes them."""

    @abstractmethod
    def row_of(self, place: str, b: list[list[str]], totals: list[str]) -> list[str]:
        """The sums of a row, with those of its group times all columns."""

    def totals(self) -> list[list[str]]:
        """The sums of products, in a loop over groups."""
        w, tile = self.w, range(self.rows)
        head, body, done = w.label(), w.label(), w.label()
        before = w.block
        w.go(head)
        w.begin(head)
        p, totals = w.name(), [[w.name() for _ in range(self.sums)] for _ in tile]
        at = len(w.lines)
        for _ in range(1 + self.rows * self.sums):
            w.do("")
        w.branch(w.put(f"icmp slt i64 {p}, %groups"), body, done)
        w.begin(body)
        start = w.at("%b", "i8", w.put(f"mul nsw i64 {p}, {PANEL_BYTES}"))
        b = [self.columns_of(start, v) for v in range(self.sums)]
        here = w.at("%a", self.copied, w.put(f"mul nsw i64 {p}, {self.group}"))
        new = [
            self.row_of(w.at(here, self.copied, str(i * self.apart)), b, totals[i]) for i in tile
        ]
        following = w.put(f"add nsw i64 {p}, 1")
        w.go(head, ", !llvm.loop !0")
        lines = [f"  {p} = phi i64 [ 0, %{before} ], [ {following}, %{body} ]"]
        for i in tile:
            for old, total in zip(totals[i], new[i], strict=True):
                zero = f"[ zeroinitializer, %{before} ]"
                lines.append(f"  {old} = phi {self.kind} {zero}, [ {total}, %{body} ]")
        w.lines[at : at + len(lines)] = lines
        w.begin(done)
        return totals
