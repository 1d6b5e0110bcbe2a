"""Tiles of products: kernels that keep a tile of the result in registers, and their sizes.

A step of a kernel loads a row of a panel, and multiplies it with the element of each row of a,
which is broadcast as it is read.  Columns that do not fill a tile are masked; there are kernels for
fewer rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, Protocol

from weft_compiler.codegen.targets import Target
from weft_compiler.codegen.writer import Writer
from weft_tensor import dtypes
from weft_tensor.dtypes import DType

ROWS: Final = {64: (14, 12, 10, 8, 6, 4, 3, 2, 1), 32: (6, 4, 3, 2, 1), 16: (4, 3, 2, 1)}
"""Rows of tiles by the width of registers, which then hold 28 of 32, 12 of 16, or 8 where products
need some of their own."""
_TOTALS: Final = 8
"""Sums that a kernel of few registers has at least, so that none waits for the one before."""
_BLOCK_BYTES: Final = 1 << 19
_PAD: Final = 64


@dataclass(frozen=True, slots=True)
class Shape:
    """The sizes of tiles and blocks, in elements.

    Attributes:
      lanes: of a register.
      rows: of the tiles there are kernels for, the largest first.
      depth: KC.
      columns: NC.
    """

    dtype: DType
    lanes: int
    rows: tuple[int, ...]
    depth: int
    columns: int

    @property
    def scalar(self) -> str:
        """The type of an element in LLVM."""
        return "double" if self.dtype is dtypes.float64 else "float"

    @property
    def width(self) -> int:
        """Columns of a tile."""
        return 2 * self.lanes

    @property
    def row(self) -> int:
        """How far apart copied rows of a are."""
        return self.depth + _PAD // self.dtype.size

    @property
    def panel_bytes(self) -> int:
        """Bytes of the copied rows of a."""
        return -(-self.rows[0] * self.row * self.dtype.size // 64) * 64


def shape_of(dtype: DType, target: Target) -> Shape:
    """The sizes for a processor."""
    lanes = target.vector_bytes // dtype.size
    depth = 1024 // dtype.size
    return Shape(
        dtype,
        lanes,
        ROWS[target.vector_bytes],
        depth,
        _BLOCK_BYTES // (depth * dtype.size),
    )


class Rows(Protocol):
    """Sizes of tiles, of which there are kernels for some numbers of rows, the largest first."""

    @property
    def rows(self) -> tuple[int, ...]:
        """The numbers of rows."""
        ...


class Loops(Writer):
    """A writer of loops over integers."""

    @contextmanager
    def each(self, high: str, step: int | str = 1, low: str = "0", note: str = "") -> Iterator[str]:
        """Turns from `low` to before `high`."""
        head, body, done = self.label(), self.label(), self.label()
        before = self.block
        self.go(head)
        self.begin(head)
        turn = self.name()
        at = len(self.lines)
        self.do("")
        self.branch(self.put(f"icmp slt i64 {turn}, {high}"), body, done)
        self.begin(body)
        yield turn
        following = self.put(f"add nsw i64 {turn}, {step}")
        self.lines[at] = f"  {turn} = phi i64 [ {low}, %{before} ], [ {following}, %{self.block} ]"
        self.go(head, note)
        self.begin(done)

    @contextmanager
    def when(self, condition: str) -> Iterator[None]:
        """What is done if a condition holds."""
        then, done = self.label(), self.label()
        self.branch(condition, then, done)
        self.begin(then)
        yield
        self.go(done)
        self.begin(done)

    def at(self, pointer: str, kind: str, *terms: str) -> str:
        """An address: some elements after another."""
        total = terms[0]
        for term in terms[1:]:
            total = self.put(f"add nsw i64 {total}, {term}")
        return self.put(f"getelementptr {kind}, ptr {pointer}, i64 {total}")

    def least(self, x: str, y: str) -> str:
        """The smaller of two integers."""
        return self.put(f"call i64 @llvm.smin.i64(i64 {x}, i64 {y})")


_VARIANTS: Final = ((2, False), (2, True), (1, True))
"""Registers of a tile's row, and whether some lanes of the last are left out."""


def _kernel_name(rows: int, vectors: int, masked: bool) -> str:
    return f"weft.kernel.{rows}.{vectors}{'m' if masked else ''}"


def _table(s: Shape, vectors: int, masked: bool) -> str:
    """Kernels by how many rows are left: those of the most rows that are not more."""
    kernels = ["ptr null"]
    for left in range(1, s.rows[0] + 1):
        rows = next(rows for rows in s.rows if rows <= left)
        kernels.append(f"ptr @{_kernel_name(rows, vectors, masked)}")
    name = f"@weft.table.{vectors}{'m' if masked else ''}"
    return f"{name} = internal constant [{len(kernels)} x ptr] [{', '.join(kernels)}]"


class _Kernel:
    """A tile of c: `kernel(a, b, b_row, k, c, c_row, columns, add)`."""

    def __init__(self, s: Shape, rows: int, vectors: int, masked: bool) -> None:
        self.s, self.rows, self.vectors, self.masked = s, rows, vectors, masked
        self.scalar = s.scalar
        self.lanes = s.lanes
        self.kind = f"<{s.lanes} x {self.scalar}>"
        self.suffix = f"v{s.lanes}{'f64' if s.dtype is dtypes.float64 else 'f32'}"
        self.w = Loops()
        self.mask = ""

    def text(self) -> str:
        w = self.w
        if self.masked:
            self.mask = self._mask()
        totals = self._product()
        adding, storing, done = w.label(), w.label(), w.label()
        w.branch("%add", adding, storing)
        w.begin(adding)
        self._store(totals, True)
        w.go(done)
        w.begin(storing)
        self._store(totals, False)
        w.go(done)
        w.begin(done)
        w.do("ret void")
        name = _kernel_name(self.rows, self.vectors, self.masked)
        parameters = (
            "ptr noalias %a, ptr noalias %b, i64 %b_row, i64 %k, ptr noalias %c, i64 %c_row, "
            "i64 %columns, i1 %add"
        )
        lines = "\n".join(w.lines)
        return f"define internal void @{name}({parameters}) noinline #0 {{\nentry:\n{lines}\n}}\n"

    def _mask(self) -> str:
        """Which lanes of the last register there are."""
        w = self.w
        index = f"<{self.lanes} x i32>"
        left = w.put(f"sub i64 %columns, {self.lanes * (self.vectors - 1)}")
        one = w.put(f"insertelement {index} poison, i32 {w.put(f'trunc i64 {left} to i32')}, i64 0")
        all_of = w.put(f"shufflevector {index} {one}, {index} poison, {index} zeroinitializer")
        lanes = ", ".join(f"i32 {lane}" for lane in range(self.lanes))
        return w.put(f"icmp slt {index} <{lanes}>, {all_of}")

    def _load(self, pointer: str, last: bool) -> str:
        size = self.s.dtype.size
        if not (self.masked and last):
            return self.w.put(f"load {self.kind}, ptr {pointer}, align {size}")
        bits = f"<{self.lanes} x i1>"
        return self.w.put(
            f"call {self.kind} @llvm.masked.load.{self.suffix}.p0(ptr align {size} {pointer}, "
            f"{bits} {self.mask}, {self.kind} zeroinitializer)"
        )

    def _product(self) -> list[list[str]]:
        """The sums of products, in a loop over k.

        A tile of few registers has several sums of each element, for neighbours in k.
        """
        w = self.w
        several = max(1, _TOTALS // (self.rows * self.vectors))
        zeros = [["zeroinitializer"] * self.vectors for _ in range(self.rows * several)]
        if several == 1:
            return self._steps("0", "%k", 1, zeros)
        whole = w.put(f"and i64 %k, {-several}")
        found = self._steps("0", whole, several, zeros)
        while len(found) > self.rows:
            half = len(found) // 2
            found = [
                [w.put(f"fadd {self.kind} {x}, {y}") for x, y in zip(a, b, strict=True)]
                for a, b in zip(found[:half], found[half:], strict=True)
            ]
        return self._steps(whole, "%k", 1, found)

    def _steps(self, low: str, high: str, step: int, first: list[list[str]]) -> list[list[str]]:
        """Products of some columns of a with rows of b are added to sums, `step` to each turn.

        Args:
          first: the sums before: of a tile's rows for the first of `step` columns, then the next.
        """
        w = self.w
        head, body, done = w.label(), w.label(), w.label()
        before = w.block
        w.go(head)
        w.begin(head)
        p, totals = w.name(), [[w.name() for _ in row] for row in first]
        at = len(w.lines)
        w.lines += [""] * (1 + len(first) * self.vectors)
        w.branch(w.put(f"icmp slt i64 {p}, {high}"), body, done)
        w.begin(body)
        new = []
        for k in range(step):
            here = w.put(f"add nsw i64 {p}, {k}")
            row = w.at("%b", self.scalar, w.put(f"mul nsw i64 {here}, %b_row"))
            b = [
                self._load(w.at(row, self.scalar, str(v * self.lanes)), v == self.vectors - 1)
                for v in range(self.vectors)
            ]
            new += [self._row(i, here, b, totals[k * self.rows + i]) for i in range(self.rows)]
        following = w.put(f"add nsw i64 {p}, {step}")
        w.go(head, ", !llvm.loop !0")
        lines = [f"  {p} = phi i64 [ {low}, %{before} ], [ {following}, %{body} ]"]
        for olds, totals_of, begin in zip(totals, new, first, strict=True):
            for old, total, zero in zip(olds, totals_of, begin, strict=True):
                lines.append(
                    f"  {old} = phi {self.kind} [ {zero}, %{before} ], [ {total}, %{body} ]"
                )
        w.lines[at : at + len(lines)] = lines
        w.begin(done)
        return totals

    def _row(self, i: int, p: str, b: list[str], totals: list[str]) -> list[str]:
        """An element of a times a row of b."""
        w = self.w
        address = w.at(w.at("%a", self.scalar, p), self.scalar, str(i * self.s.row))
        x = w.put(f"load {self.scalar}, ptr {address}, align {self.s.dtype.size}")
        one = w.put(f"insertelement {self.kind} poison, {self.scalar} {x}, i64 0")
        lanes = f"<{self.lanes} x i32>"
        every = w.put(
            f"shufflevector {self.kind} {one}, {self.kind} poison, {lanes} zeroinitializer"
        )
        return [
            w.call(f"llvm.fmuladd.{self.suffix}", self.kind, every, y, total)
            for y, total in zip(b, totals, strict=True)
        ]

    def _store(self, totals: list[list[str]], add: bool) -> None:
        w, size = self.w, self.s.dtype.size
        bits = f"<{self.lanes} x i1>"
        for i, row in enumerate(totals):
            start = w.at("%c", self.scalar, w.put(f"mul nsw i64 %c_row, {i}"))
            for v, total in enumerate(row):
                place = w.at(start, self.scalar, str(v * self.lanes))
                last = v == self.vectors - 1
                if add:
                    old = self._load(place, last)
                    total = w.put(f"fadd {self.kind} {old}, {total}")
                if self.masked and last:
                    w.do(
                        f"call void @llvm.masked.store.{self.suffix}.p0({self.kind} {total}, "
                        f"ptr align {size} {place}, {bits} {self.mask})"
                    )
                else:
                    w.do(f"store {self.kind} {total}, ptr {place}, align {size}")


def symbol(routine: str, dtype: DType) -> str:
    """What a routine is called in machine code."""
    return f"weft.{routine}.{dtype.name}"


def texts(s: Shape) -> list[str]:
    """The kernels of all sizes, and the tables that `choose` finds them in."""
    tables = [_table(s, vectors, masked) for vectors, masked in _VARIANTS]
    kernels = [
        _Kernel(s, rows, vectors, masked).text() for rows in s.rows for vectors, masked in _VARIANTS
    ]
    return [*tables, *kernels]


def module(target: Target, *functions: str) -> str:
    """The text of a module of routines."""
    width = 8 * target.vector_bytes
    attributes = f'attributes #0 = {{ nounwind "prefer-vector-width"="{width}" }}'
    notes = '!0 = !{!0, !1}\n!1 = !{!"llvm.loop.unroll.disable"}'
    return "\n".join([f'target triple = "{target.triple}"', *functions, attributes, notes])


def next_rows(w: Loops, s: Rows, left: str) -> tuple[str, str]:
    """How many rows the next tile should have, so that all have about as many, and has."""
    most = s.rows[0]
    tiles = w.put(f"udiv i64 {w.put(f'add i64 {left}, {most - 1}')}, {most}")
    rounded = w.put(f"sub i64 {w.put(f'add i64 {left}, {tiles}')}, 1")
    wanted = w.put(f"udiv i64 {rounded}, {tiles}")
    found = "1"
    for rows in sorted(s.rows)[1:]:
        enough = w.put(f"icmp uge i64 {wanted}, {rows}")
        found = w.select(enough, "i64", str(rows), found)
    return wanted, found


def chosen(w: Loops, s: Shape, wanted: str, columns: str) -> str:
    """The kernel for so many rows and columns."""
    full = w.put(f"icmp sge i64 {columns}, {s.width}")
    narrow = w.put(f"icmp sle i64 {columns}, {s.lanes}")
    table = w.select(narrow, "ptr", "@weft.table.1m", "@weft.table.2m")
    table = w.select(full, "ptr", "@weft.table.2", table)
    return w.put(f"load ptr, ptr {w.at(table, 'ptr', wanted)}")


@contextmanager
def tiles(w: Loops, s: Rows, high: str) -> Iterator[tuple[str, str, str]]:
    """Turns over the rows of a matrix, a tile at a time.

    Yields: the first row, how many there are, and how many `chosen` is to be asked for.
    """
    head, body, done = w.label(), w.label(), w.label()
    before = w.block
    w.go(head)
    w.begin(head)
    first = w.name()
    at = len(w.lines)
    w.do("")
    left = w.put(f"sub i64 {high}, {first}")
    w.branch(w.put(f"icmp sgt i64 {left}, 0"), body, done)
    w.begin(body)
    wanted, rows = next_rows(w, s, left)
    yield first, rows, wanted
    following = w.put(f"add nsw i64 {first}, {rows}")
    w.lines[at] = f"  {first} = phi i64 [ 0, %{before} ], [ {following}, %{w.block} ]"
    w.go(head)
    w.begin(done)
