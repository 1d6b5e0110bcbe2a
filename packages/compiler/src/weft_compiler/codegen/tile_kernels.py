"""What kernels of tiles share: their names and tables, masks of columns, and how results are kept.

There is a kernel for each number of rows, of one register of columns or several, with and without
a mask of the last.  `chosen` finds the one for a tile at run time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple, Protocol

from weft_compiler.codegen.writer import Loops

FEW: Final = 3
"""Rows up to which, if there are no others, there are kernels of their own.

Those may add up in another order. All others add up in one, so that results do not depend on how
rows are cut into tiles, or among threads.
"""


class Tile(Protocol):
    """The sizes of tiles."""

    @property
    def lanes(self) -> int:
        """Elements of a register."""
        ...

    @property
    def rows(self) -> tuple[int, ...]:
        """The numbers of rows that there are kernels for, the largest first."""
        ...

    @property
    def vectors(self) -> int:
        """Registers of a row."""
        ...

    @property
    def width(self) -> int:
        """Columns."""
        ...


class Element(NamedTuple):
    """An element of a result.

    Attributes:
      kind: its type in LLVM.
      size: in bytes.
      add: the instruction that adds two.
    """

    kind: str
    size: int
    add: str


class TileKernel:
    """Writes a kernel: a tile of sums of products, which is stored or added to what is there.

    Attributes:
      parameters: of the function: among them `%c`, `%c_row`, `%columns` and `%add`.
      kind: the type of a register.
      alone: whether it is for all rows that there are, and not for the last of many.
    """

    parameters: str

    def __init__(
        self, s: Tile, element: Element, rows: int, vectors: int, masked: bool, alone: bool = False
    ) -> None:
        self.lanes, self.element, self.alone = s.lanes, element, alone
        self.rows, self.vectors, self.masked = rows, vectors, masked
        self.kind = f"<{s.lanes} x {element.kind}>"
        letter = "i" if element.kind.startswith("i") else "f"
        self.suffix = f"v{s.lanes}{letter}{8 * element.size}"
        self.w = Loops()
        self.mask = ""

    @property
    def name(self) -> str:
        """What it is called."""
        return _name(self.rows, self.vectors, self.masked, self.alone)

    def totals(self) -> list[list[str]]:
        """Write the sums of products: the registers of each row."""
        raise NotImplementedError

    def corrections(self) -> list[str]:
        """What is added to the registers of each row that is stored; empty for nothing."""
        return []

    def text(self) -> str:
        """The function."""
        w = self.w
        if self.masked:
            self.mask = self._mask()
        totals = self.totals()
        adding, storing, done = w.label(), w.label(), w.label()
        w.branch("%add", adding, storing)
        w.begin(adding)
        self._store(totals, self.load)
        w.go(done)
        w.begin(storing)
        corrections = self.corrections()
        self._store(totals, (lambda place, v: corrections[v]) if corrections else None)
        w.go(done)
        w.begin(done)
        w.do("ret void")
        lines = "\n".join(w.lines)
        head = f"define internal void @{self.name}({self.parameters}) noinline #0"
        return f"{head} {{\nentry:\n{lines}\n}}\n"

    def load(self, pointer: str, v: int) -> str:
        """A register from memory: the one with number `v` of a row."""
        if not self._partly(v):
            return self.w.put(f"load {self.kind}, ptr {pointer}, align {self.element.size}")
        return self.w.put(
            f"call {self.kind} @llvm.masked.load.{self.suffix}.p0(ptr align {self.element.size} "
            f"{pointer}, <{self.lanes} x i1> {self.mask}, {self.kind} zeroinitializer)"
        )

    def _partly(self, v: int) -> bool:
        """Whether some lanes of a register are left out."""
        return self.masked and v == self.vectors - 1

    def _mask(self) -> str:
        """Which lanes of the last register there are."""
        w = self.w
        index = f"<{self.lanes} x i32>"
        left = w.put(f"sub i64 %columns, {self.lanes * (self.vectors - 1)}")
        every = w.every(index, w.put(f"trunc i64 {left} to i32"))
        lanes = ", ".join(f"i32 {lane}" for lane in range(self.lanes))
        return w.put(f"icmp slt {index} <{lanes}>, {every}")

    def _store(self, totals: list[list[str]], more: Callable[[str, int], str] | None) -> None:
        """Keep the result, with `more(place, v)` added to each register."""
        w, size = self.w, self.element.size
        for i, row in enumerate(totals):
            start = w.at("%c", self.element.kind, w.put(f"mul nsw i64 %c_row, {i}"))
            for v, total in enumerate(row):
                place = w.at(start, self.element.kind, str(v * self.lanes))
                if more is not None:
                    total = w.put(f"{self.element.add} {self.kind} {more(place, v)}, {total}")
                if self._partly(v):
                    w.do(
                        f"call void @llvm.masked.store.{self.suffix}.p0({self.kind} {total}, "
                        f"ptr align {size} {place}, <{self.lanes} x i1> {self.mask})"
                    )
                else:
                    w.do(f"store {self.kind} {total}, ptr {place}, align {size}")


def kernels(s: Tile, kernel: Callable[[int, int, bool, bool], TileKernel]) -> list[str]:
    """The kernels of all sizes, and the tables that `chosen` finds them in.

    Args:
      kernel: of a number of rows, of registers in each, whether the last is masked, and whether
        there are no other rows.
    """
    sizes = [(s.vectors, False), *[(vectors, True) for vectors in range(1, s.vectors + 1)]]
    texts = [_table(s, *size) for size in sizes]
    for size in sizes:
        texts += [kernel(rows, *size, False).text() for rows in s.rows]
        texts += [kernel(rows, *size, True).text() for rows in range(1, FEW + 1)]
    return texts


def chosen(w: Loops, s: Tile, wanted: str, columns: str) -> str:
    """The kernel for so many rows, as `number_of` numbers them, and columns."""
    table = f"@weft.table.{s.vectors}m"
    for vectors in reversed(range(1, s.vectors)):
        narrow = w.put(f"icmp sle i64 {columns}, {vectors * s.lanes}")
        table = w.select(narrow, "ptr", f"@weft.table.{vectors}m", table)
    full = w.put(f"icmp sge i64 {columns}, {s.width}")
    table = w.select(full, "ptr", f"@weft.table.{s.vectors}", table)
    return w.put(f"load ptr, ptr {w.at(table, 'ptr', wanted)}")


def number_of(w: Loops, s: Tile, rows: str, all_rows: str) -> str:
    """The number of the kernels for a tile: those for few rows that are alone come last."""
    few = w.put(f"icmp sle i64 {all_rows}, {FEW}")
    return w.put(f"add i64 {rows}, {w.select(few, 'i64', str(s.rows[0]), '0')}")


def _name(rows: int, vectors: int, masked: bool, alone: bool) -> str:
    return f"weft.{'alone' if alone else 'kernel'}.{rows}.{vectors}{'m' if masked else ''}"


def _table(s: Tile, vectors: int, masked: bool) -> str:
    """Kernels by how many rows are left: those of the most rows that are not more."""
    found = ["ptr null"]
    for left in range(1, s.rows[0] + 1):
        rows = next(rows for rows in s.rows if rows <= left)
        found.append(f"ptr @{_name(rows, vectors, masked, False)}")
    found += [f"ptr @{_name(rows, vectors, masked, True)}" for rows in range(1, FEW + 1)]
    name = f"@weft.table.{vectors}{'m' if masked else ''}"
    return f"{name} = internal constant [{len(found)} x ptr] [{', '.join(found)}]"
