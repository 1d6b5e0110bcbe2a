"""The routine `small_matmul`: products of small matrices, with a function for each size.

    for columns in tiles:
      for rows in tiles:
        sums in registers
        for k: a row of b, times the element of each row of a, is added to the sums
        c tile = sums

All strides are constants in the code. Nothing is copied except a b without contiguous rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from weft_compiler.codegen.targets import Target
from weft_compiler.codegen.transpose import transpose_in_registers
from weft_compiler.codegen.writer import Loops
from weft_tensor import dtypes
from weft_tensor.dtypes import DType

_SUMS: Final = {64: 28, 32: 12, 16: 8}
"""Number of registers for sums, by register width in bytes."""
_AT_ONCE: Final = 4
"""Unroll factor of the loop over k, if that takes at most `_LONG` register products."""
_LONG: Final = 64

Sizes = Mapping[str, int]


def symbol(dtype: DType, sizes: Sizes) -> str:
    """Return the symbol of the function for a size."""
    names = ("m", "n", "k", "a_row", "a_column", "b_row", "b_column", "c_row")
    return ".".join(["weft.small", dtype.name, *[str(sizes[name]) for name in names]])


def text(dtype: DType, sizes: Sizes, target: Target) -> str:
    """Return the LLVM function for a size; each module that calls it defines it."""
    return _Product(dtype, sizes, target).text()


class _Product:
    def __init__(self, dtype: DType, sizes: Sizes, target: Target) -> None:
        self.dtype, self.params, self.w = dtype, sizes, Loops()
        self.scalar = "double" if dtype is dtypes.float64 else "float"
        self.lanes = target.vector_bytes // dtype.size
        self.sums = _SUMS[target.vector_bytes]
        self.b, self.b_row = "%b", sizes["b_row"]
        products = sizes["m"] * -(-sizes["n"] // self.lanes)
        self.steps = _AT_ONCE if _AT_ONCE * products <= _LONG else 1

    def text(self) -> str:
        """Return the LLVM function."""
        if self.params["b_column"] != 1 and self.params["n"] > 1:
            self._transpose_operand()
        first = 0
        for chunks in _tiles_of(self.params["n"], self.lanes):
            self._emit_columns(first, chunks)
            first += sum(chunks)
        self.w.do("ret void")
        lines = "\n".join(self.w.lines)
        head = f"define internal void @{symbol(self.dtype, self.params)}"
        views = "ptr noalias %a, ptr noalias %b, ptr noalias %c"
        return f"{head}({views}) #0 {{\nentry:\n{lines}\n}}\n"

    def _address(self, pointer: str, offset: int, *terms: str) -> str:
        return self.w.offset_address(pointer, self.scalar, str(offset), *terms)

    def _load(self, kind: str, address: str) -> str:
        return self.w.put(f"load {kind}, ptr {address}, align {self.dtype.size}")

    def _transpose_operand(self) -> None:
        """Copy b to the stack with contiguous rows: squares are transposed in registers."""
        w, n, k = self.w, self.params["n"], self.params["k"]
        own_base = w.put(f"alloca [{n * k} x {self.scalar}], align 64")
        size = self.lanes
        while size > min(n, k):
            size //= 2
        dense = self.params["b_row"] == 1 and size > 1
        columns, rows = (n - n % size, k - k % size) if dense else (0, 0)
        if dense:
            with w.iterate(str(rows), size) as p:
                for j in range(0, columns, size):
                    self._transpose_square(own_base, p, j, size)
        for low, high, first in ((0, rows, columns), (rows, k, 0)):
            if low < high and first < n:
                with w.iterate(str(high), low=str(low)) as p:
                    for j in range(first, n):
                        source = w.put(f"mul nsw i64 {p}, {self.params['b_row']}")
                        x = self._load(
                            self.scalar, self._address("%b", j * self.params["b_column"], source)
                        )
                        address = self._address(own_base, j, w.put(f"mul nsw i64 {p}, {n}"))
                        w.do(f"store {self.scalar} {x}, ptr {address}, align {self.dtype.size}")
        self.b, self.b_row = own_base, n

    def _transpose_square(self, scratch: str, p: str, j: int, size: int) -> None:
        """Transpose a square block of b."""
        w, kind = self.w, self._kind(size)
        rows = [
            self._load(kind, self._address("%b", (j + index) * self.params["b_column"], p))
            for index in range(size)
        ]
        for index, row in enumerate(transpose_in_registers(w, kind, rows)):
            offset = w.put(f"mul nsw i64 {w.put(f'add nsw i64 {p}, {index}')}, {self.params['n']}")
            address = self._address(scratch, j, offset)
            w.do(f"store {kind} {row}, ptr {address}, align {self.dtype.size}")

    def _emit_columns(self, first: int, chunks: Sequence[int]) -> None:
        """Emit all rows of some columns, which are split into chunks of at most a register."""
        m = self.params["m"]
        maximum = max(1, self.sums // len(chunks))
        count = -(-m // maximum)
        position = 0
        for tile in range(count):
            rows = (m - position + count - tile - 1) // (count - tile)
            self._tile(position, rows, first, chunks)
            position += rows

    def _tile(self, i: int, rows: int, j: int, chunks: Sequence[int]) -> None:
        k = self.params["k"]
        sums = ["zeroinitializer" if size > 1 else "0.0" for _ in range(rows) for size in chunks]
        is_full = k - k % self.steps if k > _AT_ONCE else 0
        if is_full:
            sums = self._emit_loop(is_full, i, rows, j, chunks, sums)
        for p in range(is_full, k):
            sums = self._step(str(p), i, rows, j, chunks, sums)
        w, place = self.w, iter(sums)
        for row in range(rows):
            for start, size in _starts(j, chunks):
                address = self._address("%c", (i + row) * self.params["c_row"] + start)
                value = next(place)
                w.do(f"store {self._kind(size)} {value}, ptr {address}, align {self.dtype.size}")

    def _emit_loop(
        self, high: int, i: int, rows: int, j: int, chunks: Sequence[int], first: list[str]
    ) -> list[str]:
        """Emit the loop over k."""
        w = self.w
        body, end = w.label(), w.label()
        preheader = w.block
        w.go(body)
        w.begin(body)
        p, olds = w.name(), [w.name() for _ in first]
        line_index = len(w.lines)
        w.lines += [""] * (1 + len(first))
        sums = olds
        for step in range(self.steps):
            element = w.put(f"add nsw i64 {p}, {step}") if step else p
            sums = self._step(element, i, rows, j, chunks, sums)
        following = w.put(f"add nsw i64 {p}, {self.steps}")
        lines = [f"  {p} = phi i64 [ 0, %{preheader} ], [ {following}, %{body} ]"]
        kinds = [self._kind(size) for _ in range(rows) for size in chunks]
        for old, new, zero, kind in zip(olds, sums, first, kinds, strict=True):
            lines.append(f"  {old} = phi {kind} [ {zero}, %{preheader} ], [ {new}, %{body} ]")
        w.lines[line_index : line_index + len(lines)] = lines
        w.branch(w.put(f"icmp slt i64 {following}, {high}"), body, end)
        w.begin(end)
        return sums

    def _step(
        self, p: str, i: int, rows: int, j: int, chunks: Sequence[int], sums: Sequence[str]
    ) -> list[str]:
        """Add a row of b, multiplied by an element of each row of a, to the sums."""
        w, params = self.w, self.params
        row_offset = w.put(f"mul nsw i64 {p}, {self.b_row}")
        b = [
            self._load(self._kind(size), self._address(self.b, start, row_offset))
            for start, size in _starts(j, chunks)
        ]
        column = w.put(f"mul nsw i64 {p}, {params['a_column']}")
        results, olds = [], iter(sums)
        for row in range(rows):
            x = self._load(self.scalar, self._address("%a", (i + row) * params["a_row"], column))
            for y, size in zip(b, chunks, strict=True):
                results.append(self._multiply_add(x, y, next(olds), size))
        return results

    def _multiply_add(self, x: str, y: str, total: str, size: int) -> str:
        """Emit x * y + total for registers of a size."""
        w, kind, letter = self.w, self._kind(size), "f64" if self.scalar == "double" else "f32"
        if size == 1:
            return w.call(f"llvm.fmuladd.{letter}", kind, x, y, total)
        return w.call(f"llvm.fmuladd.v{size}{letter}", kind, w.broadcast(kind, x), y, total)

    def _kind(self, size: int) -> str:
        return self.scalar if size == 1 else f"<{size} x {self.scalar}>"


def _starts(first: int, chunks: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Yield the first column and the size of each chunk."""
    for size in chunks:
        yield first, size
        first += size


def _tiles_of(columns: int, lanes: int) -> Iterator[list[int]]:
    """Split columns into tiles of at most two registers.

    Tiles of the remainder are powers of two.
    """
    chunks = [lanes] * (columns // lanes)
    remainder = columns % lanes
    while remainder:
        chunks.append(1 << (remainder.bit_length() - 1))
        remainder -= chunks[-1]
    while chunks:
        yield chunks[:2]
        chunks = chunks[2:]
