"""Transposes: of squares in registers, and of matrices that consist of such squares.

The rows of a square are in registers. For each bit, the row and column numbers exchange that bit;
each result of such a step is a shuffle of two registers.
"""

from __future__ import annotations

from collections.abc import Sequence

from weft_compiler.codegen.writer import Loops
from weft_tensor import dtypes
from weft_tensor.dtypes import DType

TURN = "weft.turned"
"""The name of the function `turned(x, y, rows, columns, x_row, y_row)` that `text` defines."""
_NUMBERS = ("rows", "columns", "x_row", "y_row")


def transpose_in_registers(w: Loops, kind: str, rows: Sequence[str]) -> list[str]:
    """Transpose a square in registers; return its columns.

    Args:
      kind: the type of a row, with a power of two of elements.
      rows: one register per element of a row.
    """
    size, bit = len(rows), 1
    while bit < size:
        new = list(rows)
        for index in range(size):
            if not index & bit:
                pair = f"{kind} {rows[index]}, {kind} {rows[index + bit]}"
                for half in (0, bit):
                    lanes = [
                        lane - bit + size if lane & bit and not half
                        else lane + size if lane & bit
                        else lane + half
                        for lane in range(size)
                    ]  # fmt: skip
                    mask = ", ".join(f"i32 {lane}" for lane in lanes)
                    new[index + half] = w.put(f"shufflevector {pair}, <{size} x i32> <{mask}>")
        rows, bit = new, 2 * bit
    return list(rows)


def text(dtype: DType, lanes: int) -> str:
    """Return the function `turned`: y, columns × rows, is the transpose of x with contiguous rows.

    Args:
      lanes: elements of a register.
    """
    return _TransposeWriter(dtype, lanes).text()


def call(w: Loops, x: str, y: str, *numbers: str) -> None:
    """Emit a call; `numbers` are the rows, the columns, and the row strides of x and of y."""
    arguments = ", ".join(f"i64 {number}" for number in numbers)
    w.do(f"call void @{TURN}(ptr {x}, ptr {y}, {arguments})")


class _TransposeWriter:
    def __init__(self, dtype: DType, lanes: int) -> None:
        self.lanes, self.size = lanes, dtype.size
        self.scalar = "double" if dtype is dtypes.float64 else "float"
        self.kind = f"<{lanes} x {self.scalar}>"
        self.suffix = f"v{lanes}f{8 * dtype.size}.p0"
        self.w = Loops()

    def text(self) -> str:
        """Return the LLVM function.

        Whole squares are visited in column order, to use whole cache lines.
        """
        w, lanes = self.w, self.lanes
        own_base = w.put(f"alloca [{lanes} x {self.kind}], align 64")
        with w.iterate("%columns", lanes, note=", !llvm.loop !0") as j:
            columns = w.emit_min(w.put(f"sub i64 %columns, {j}"), str(lanes))
            wide = w.put(f"icmp eq i64 {columns}, {lanes}")
            full_count = w.select(wide, "i64", w.put(f"and i64 %rows, {-lanes}"), "0")
            with w.iterate(full_count, lanes, note=", !llvm.loop !0") as i:
                result = [self._load(i, j, str(index)) for index in range(lanes)]
                for index, row in enumerate(transpose_in_registers(w, self.kind, result)):
                    address = self._place(w.put(f"add nsw i64 {j}, {index}"), i)
                    w.do(f"store {self.kind} {row}, ptr {address}, align {self.size}")
            with w.iterate("%rows", lanes, low=full_count, note=", !llvm.loop !0") as i:
                self._transpose_partial(i, j, columns, own_base)
        w.do("ret void")
        numbers = ", ".join(f"i64 %{name}" for name in _NUMBERS)
        head = f"define internal void @{TURN}(ptr noalias %x, ptr noalias %y, {numbers})"
        lines = "\n".join(w.lines)
        return f"{head} noinline #0 {{\nentry:\n{lines}\n}}\n"

    def _transpose_partial(self, i: str, j: str, columns: str, scratch: str) -> None:
        """Transpose a square that extends beyond the end of the rows or columns."""
        w, lanes = self.w, self.lanes
        rows = w.emit_min(w.put(f"sub i64 %rows, {i}"), str(lanes))
        last, mask = w.put(f"sub i64 {rows}, 1"), self._lane_mask(columns)
        result = [self._load(i, j, w.emit_min(last, str(index)), mask) for index in range(lanes)]
        for index, row in enumerate(transpose_in_registers(w, self.kind, result)):
            w.do(
                f"store {self.kind} {row}, ptr {w.offset_address(scratch, self.kind, str(index))}, "
                "align 64"
            )
        mask = self._lane_mask(rows)
        with w.iterate(columns, note=", !llvm.loop !0") as k:
            row = w.put(
                f"load {self.kind}, ptr {w.offset_address(scratch, self.kind, k)}, align 64"
            )
            address = self._place(w.put(f"add nsw i64 {j}, {k}"), i)
            w.do(
                f"call void @llvm.masked.store.{self.suffix}({self.kind} {row}, ptr align "
                f"{self.size} {address}, <{lanes} x i1> {mask})"
            )

    def _load(self, i: str, j: str, offset: str, mask: str = "") -> str:
        w = self.w
        row = w.put(f"mul nsw i64 {w.put(f'add nsw i64 {i}, {offset}')}, %x_row")
        address = w.offset_address("%x", self.scalar, row, j)
        if not mask:
            return w.put(f"load {self.kind}, ptr {address}, align {self.size}")
        return w.put(
            f"call {self.kind} @llvm.masked.load.{self.suffix}(ptr align {self.size} {address}, "
            f"<{self.lanes} x i1> {mask}, {self.kind} zeroinitializer)"
        )

    def _place(self, row: str, i: str) -> str:
        w = self.w
        return w.offset_address("%y", self.scalar, w.put(f"mul nsw i64 {row}, %y_row"), i)

    def _lane_mask(self, count: str) -> str:
        """Return the mask of the first lanes of a register."""
        w = self.w
        index = f"<{self.lanes} x i32>"
        lanes = ", ".join(f"i32 {lane}" for lane in range(self.lanes))
        broadcast_value = w.broadcast(index, w.put(f"trunc i64 {count} to i32"))
        return w.put(f"icmp slt {index} <{lanes}>, {broadcast_value}")
