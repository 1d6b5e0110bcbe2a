"""Shared parts of tile kernels: names, dispatch tables, column masks and stores.

There is a kernel for each number of rows and of registers per row, with and without a mask for the
last register. `select_kernel` emits the selection of a kernel at run time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple, Protocol

from weft_compiler.codegen.writer import Loops

FEW: Final = 3
"""Maximum number of rows of a product that uses special kernels.

The special kernels may sum in another order. All other kernels sum in the same order, so that
results do not depend on how rows are split into tiles or among threads.
"""


class Tile(Protocol):
    """Sizes of tiles."""

    @property
    def lanes(self) -> int:
        """Elements per register."""
        ...

    @property
    def rows(self) -> tuple[int, ...]:
        """The row counts that have kernels, the largest first."""
        ...

    @property
    def vectors(self) -> int:
        """Registers per row of a tile."""
        ...

    @property
    def width(self) -> int:
        """Columns of a tile."""
        ...


class Element(NamedTuple):
    """The element type of a result.

    Attributes:
      kind: its LLVM type.
      size: in bytes.
      add: the instruction that adds two elements.
    """

    kind: str
    size: int
    add: str


class TileKernel:
    """Writer of a kernel: a tile of sums of products that is stored, or added to the result.

    Attributes:
      parameters: parameters of the function, including `%c`, `%c_row`, `%columns` and `%add`.
      kind: the type of a register.
      has_all_rows: True if its rows are all rows of the product, not the last of many.
    """

    parameters: str

    def __init__(
        self,
        s: Tile,
        element: Element,
        rows: int,
        vectors: int,
        masked: bool,
        has_all_rows: bool = False,
    ) -> None:
        self.lanes, self.element, self.has_all_rows = s.lanes, element, has_all_rows
        self.rows, self.vectors, self.masked = rows, vectors, masked
        self.kind = f"<{s.lanes} x {element.kind}>"
        letter = "i" if element.kind.startswith("i") else "f"
        self.suffix = f"v{s.lanes}{letter}{8 * element.size}"
        self.w = Loops()
        self.mask = ""

    @property
    def name(self) -> str:
        """The symbol of the kernel in the module."""
        return _name(self.rows, self.vectors, self.masked, self.has_all_rows)

    def totals(self) -> list[list[str]]:
        """Emit the sums of products; return the registers of each row."""
        raise NotImplementedError

    def corrections(self) -> list[str]:
        """Emit terms that are added to the registers of each row; the default is none."""
        return []

    def text(self) -> str:
        """Return the LLVM function."""
        w = self.w
        if self.masked:
            self.mask = self._mask()
        totals = self.totals()
        adding, storing, end = w.label(), w.label(), w.label()
        w.branch("%add", adding, storing)
        w.begin(adding)
        self._store(totals, self.load)
        w.go(end)
        w.begin(storing)
        corrections = self.corrections()
        self._store(totals, (lambda place, v: corrections[v]) if corrections else None)
        w.go(end)
        w.begin(end)
        w.do("ret void")
        lines = "\n".join(w.lines)
        head = f"define internal void @{self.name}({self.parameters}) noinline #0"
        return f"{head} {{\nentry:\n{lines}\n}}\n"

    def load(self, pointer: str, v: int) -> str:
        """Load register `v` of a row."""
        if not self._is_partial(v):
            return self.w.put(f"load {self.kind}, ptr {pointer}, align {self.element.size}")
        return self.w.put(
            f"call {self.kind} @llvm.masked.load.{self.suffix}.p0(ptr align {self.element.size} "
            f"{pointer}, <{self.lanes} x i1> {self.mask}, {self.kind} zeroinitializer)"
        )

    def _is_partial(self, v: int) -> bool:
        """Return True if a register is only partly inside the tile."""
        return self.masked and v == self.vectors - 1

    def _mask(self) -> str:
        """Emit the lane mask of the last register."""
        w = self.w
        index = f"<{self.lanes} x i32>"
        remaining = w.put(f"sub i64 %columns, {self.lanes * (self.vectors - 1)}")
        broadcast_value = w.broadcast(index, w.put(f"trunc i64 {remaining} to i32"))
        lanes = ", ".join(f"i32 {lane}" for lane in range(self.lanes))
        return w.put(f"icmp slt {index} <{lanes}>, {broadcast_value}")

    def _store(self, totals: list[list[str]], addend: Callable[[str, int], str] | None) -> None:
        """Store the result, after adding `more(address, v)` to each register."""
        w, size = self.w, self.element.size
        for i, row in enumerate(totals):
            start = w.offset_address("%c", self.element.kind, w.put(f"mul nsw i64 %c_row, {i}"))
            for v, total in enumerate(row):
                address = w.offset_address(start, self.element.kind, str(v * self.lanes))
                if addend is not None:
                    total = w.put(f"{self.element.add} {self.kind} {addend(address, v)}, {total}")
                if self._is_partial(v):
                    w.do(
                        f"call void @llvm.masked.store.{self.suffix}.p0({self.kind} {total}, "
                        f"ptr align {size} {address}, <{self.lanes} x i1> {self.mask})"
                    )
                else:
                    w.do(f"store {self.kind} {total}, ptr {address}, align {size}")


def kernels(s: Tile, kernel: Callable[[int, int, bool, bool], TileKernel]) -> list[str]:
    """Return the kernels for all tile sizes, and the lookup tables of `select_kernel`.

    Args:
      kernel: function of the number of rows, the registers per row, True if the last register is
        masked, and True if there are no other rows; returns a kernel.
    """
    sizes = [(s.vectors, False), *[(vectors, True) for vectors in range(1, s.vectors + 1)]]
    texts = [_table(s, *size) for size in sizes]
    for size in sizes:
        texts += [kernel(rows, *size, False).text() for rows in s.rows]
        texts += [kernel(rows, *size, True).text() for rows in range(1, FEW + 1)]
    return texts


def select_kernel(w: Loops, s: Tile, kernel_rows: str, columns: str) -> str:
    """Emit the lookup of the kernel for a `kernel_index` and a number of columns."""
    table = f"@weft.table.{s.vectors}m"
    for vectors in reversed(range(1, s.vectors)):
        narrow = w.put(f"icmp sle i64 {columns}, {vectors * s.lanes}")
        table = w.select(narrow, "ptr", f"@weft.table.{vectors}m", table)
    full = w.put(f"icmp sge i64 {columns}, {s.width}")
    table = w.select(full, "ptr", f"@weft.table.{s.vectors}", table)
    return w.put(f"load ptr, ptr {w.offset_address(table, 'ptr', kernel_rows)}")


def kernel_index(w: Loops, s: Tile, rows: str, all_rows: str) -> str:
    """Emit the table index of the kernel for a tile; special kernels for few rows come last."""
    has_few_rows = w.put(f"icmp sle i64 {all_rows}, {FEW}")
    return w.put(f"add i64 {rows}, {w.select(has_few_rows, 'i64', str(s.rows[0]), '0')}")


def _name(rows: int, vectors: int, masked: bool, has_all_rows: bool) -> str:
    return f"weft.{'alone' if has_all_rows else 'kernel'}.{rows}.{vectors}{'m' if masked else ''}"


def _table(s: Tile, vectors: int, masked: bool) -> str:
    """Return the table of kernels by the number of rows left; each has the most rows that fit."""
    result = ["ptr null"]
    for rows_left in range(1, s.rows[0] + 1):
        rows = next(rows for rows in s.rows if rows <= rows_left)
        result.append(f"ptr @{_name(rows, vectors, masked, False)}")
    result += [f"ptr @{_name(rows, vectors, masked, True)}" for rows in range(1, FEW + 1)]
    name = f"@weft.table.{vectors}{'m' if masked else ''}"
    return f"{name} = internal constant [{len(result)} x ptr] [{', '.join(result)}]"
