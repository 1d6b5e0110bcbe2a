"""Products by AMX, whose tile registers hold 16 rows of 64 bytes.

A tile of a holds 64 bytes of each of 16 rows; one of b holds 16 rows of a panel, with 4 bytes of
each of 16 columns; a sum is 16×16 32-bit numbers.  A kernel keeps two by two tiles of sums: 32 rows
of a times a complete panel. Smaller results are computed as full tiles in the workspace, and the
valid part is copied.

A routine configures the tile registers at its start and releases them at its end.
"""

from __future__ import annotations

from typing import Final

from weft_compiler.codegen.writer import Loops
from weft_compiler.layouts import LINE, PANEL, PANEL_BYTES

ROWS: Final = 32
"""Rows of a that a kernel processes."""
BLOCK: Final = 256
"""Rows of a result in a block. A block is completed over the whole reduction before the next one
begins, so that it stays in a cache.
"""
STEP: Final = 64
"""Bytes per row of a tile; copied rows are padded with zeros to a multiple of it."""
_TILE: Final = 16
_OWN: Final = ROWS * PANEL_BYTES
_LAST: Final = _TILE * PANEL_BYTES
OWN_BYTES: Final = _OWN + _LAST
"""Size of the kernels' workspace in bytes: a result, and the last rows of a panel padded with
zeros.
"""

_SIZES: Final = "@weft.sizes.of.tiles"
_PARAMETERS: Final = "ptr noalias %a, ptr noalias %b, i64 %groups, ptr noalias %c"


def begin(w: Loops) -> None:
    """Configure the tile registers, all with full tiles."""
    w.do(f"call void @llvm.x86.ldtilecfg(ptr {_SIZES})")


def end(w: Loops) -> None:
    """Release the tile registers."""
    w.do("call void @llvm.x86.tilerelease()")


def texts(multiply: str, row: int) -> list[str]:
    """Return the LLVM text of the kernels and of `@weft.tiles`, which selects one of them.

    Args:
      multiply: the instruction, such as "tdpbf16ps".
      row: the stride of copied rows of a, in bytes.
    """
    numbers = [1, *[0] * 15, *[STEP, 0] * 8, *[0] * 16, *[_TILE] * 8, *[0] * 8]
    sizes = ", ".join(f"i8 {number}" for number in numbers[:LINE])
    tiles = [_Kernel(multiply, row, *number).text() for number in ((1, 1), (1, 2), (2, 1), (2, 2))]
    return [
        f"{_SIZES} = internal constant [{LINE} x i8] [{sizes}], align {LINE}",
        *tiles,
        _Chooser().text(),
    ]


def call(w: Loops, panel: str, groups: str, c: tuple[str, str], size: tuple[str, str, str]) -> None:
    """Emit the call of a kernel, which stores a tile of c or accumulates into it.

    Args:
      panel: the address of a panel of b.
      groups: its number of rows.
      c: the address of the tile, and its row stride in elements.
      size: the rows and columns left, and the condition to accumulate.
    """
    (address, stride), (rows, columns, add) = c, size
    w.do(
        f"call void @weft.tiles(ptr %workspace, ptr {panel}, i64 {groups}, ptr {address}, "
        f"i64 {stride}, i64 {rows}, i64 {columns}, i1 {add}, ptr %own)"
    )


class _Kernel:
    """Writer of `tiles(a, b, groups, c, c_row, add, last)`, where `c_row` is in bytes."""

    def __init__(self, multiply: str, row: int, rows: int, columns: int) -> None:
        self.multiply, self.row = multiply, row
        self.rows, self.columns = rows, columns
        self.w = Loops()

    def text(self) -> str:
        w = self.w
        adding, zeros, start_label = w.label(), w.label(), w.label()
        w.branch("%add", adding, zeros)
        w.begin(adding)
        self._sums("tileloadd64")
        w.go(start_label)
        w.begin(zeros)
        for index in range(self.rows * self.columns):
            w.do(f"call void @llvm.x86.tilezero(i8 {index})")
        w.go(start_label)
        w.begin(start_label)
        steps = w.put(f"lshr i64 %groups, {_TILE.bit_length() - 1}")
        with w.iterate(steps, note=", !llvm.loop !0") as p:
            self._step(p, w.offset_address("%b", "i8", w.put(f"mul nsw i64 {p}, {_LAST}")))
        remainder = w.put(f"and i64 %groups, {_TILE - 1}")
        with w.emit_if(w.put(f"icmp ne i64 {remainder}, 0")):
            self._copy_last(steps, remainder)
            self._step(steps, "%last")
        self._sums("tilestored64")
        w.do("ret void")
        lines = "\n".join(w.lines)
        name = f"@weft.tiles.{self.rows}.{self.columns}"
        head = f"define internal void {name}({_PARAMETERS}, i64 %c_row, i1 %add"
        return f"{head}, ptr noalias %last) noinline #0 {{\nentry:\n{lines}\n}}\n"

    def _sums(self, move: str) -> None:
        """Emit instructions that load all sums from memory, or store them."""
        w = self.w
        for i in range(self.rows):
            row = w.put(f"mul nsw i64 %c_row, {i * _TILE}")
            for j in range(self.columns):
                address = w.offset_address("%c", "i8", row, str(j * STEP))
                register = i * self.columns + j
                w.do(f"call void @llvm.x86.{move}(i8 {register}, ptr {address}, i64 %c_row)")

    def _step(self, p: str, b: str) -> None:
        """Multiply the next tiles of a with those of b."""
        w = self.w
        a = w.offset_address("%a", "i8", w.put(f"mul nsw i64 {p}, {STEP}"))
        first = self.rows * self.columns
        second = first + self.rows
        for j in range(self.columns):
            address = w.offset_address(b, "i8", str(j * STEP))
            w.do(
                f"call void @llvm.x86.tileloadd64(i8 {second + j}, ptr {address}, i64 "
                f"{PANEL_BYTES})"
            )
        for i in range(self.rows):
            address = w.offset_address(a, "i8", str(i * _TILE * self.row))
            w.do(f"call void @llvm.x86.tileloadd64(i8 {first + i}, ptr {address}, i64 {self.row})")
            for j in range(self.columns):
                registers = f"i8 {i * self.columns + j}, i8 {first + i}, i8 {second + j}"
                w.do(f"call void @llvm.x86.{self.multiply}({registers})")

    def _copy_last(self, steps: str, remainder: str) -> None:
        """Copy the last rows of a panel, padded with zeros; memory after them may be unmapped."""
        w = self.w
        size = w.put(f"mul nsw i64 {remainder}, {PANEL_BYTES}")
        source = w.offset_address("%b", "i8", w.put(f"mul nsw i64 {steps}, {_LAST}"))
        _move(w, source, "%last", size)
        with w.iterate(str(_LAST), STEP, low=size, note=", !llvm.loop !0") as position:
            address = w.offset_address("%last", "i8", position)
            w.do(f"store <{STEP} x i8> zeroinitializer, ptr {address}, align 1")


def _move(w: Loops, source: str, address: str, size: str) -> None:
    """Copy bytes; the number is a multiple of the register size."""
    kind = f"<{STEP} x i8>"
    with w.iterate(size, STEP, note=", !llvm.loop !0") as position:
        x = w.put(f"load {kind}, ptr {w.offset_address(source, 'i8', position)}, align 1")
        w.do(f"store {kind} {x}, ptr {w.offset_address(address, 'i8', position)}, align 1")


class _Chooser:
    """Writer of `tiles(a, b, groups, c, c_row, rows, columns, add, own)`."""

    def __init__(self) -> None:
        self.w = Loops()

    def text(self) -> str:
        w = self.w
        wide = w.put(f"icmp sge i64 %columns, {PANEL}")
        is_full = w.put(f"and i1 {wide}, {w.put(f'icmp sge i64 %rows, {ROWS}')}")
        row = w.put("mul nsw i64 %c_row, 4")
        last = w.put(f"getelementptr i8, ptr %own, i64 {_OWN}")
        arguments = "ptr %a, ptr %b, i64 %groups"
        direct, indirect = w.label(), w.label()
        w.branch(is_full, direct, indirect)
        w.begin(direct)
        remainder = f"ptr %c, i64 {row}, i1 %add, ptr {last}"
        w.do(f"call void @weft.tiles.2.2({arguments}, {remainder})")
        w.do("ret void")
        w.begin(indirect)
        with w.emit_if("%add"):
            self._copy("%c", row, "%own", str(PANEL_BYTES))
        names = ["@weft.tiles.1.1", "@weft.tiles.1.2", "@weft.tiles.2.1", "@weft.tiles.2.2"]
        has_two_columns = w.put(f"icmp sgt i64 %columns, {_TILE}")
        has_two_rows = w.put(f"icmp sgt i64 %rows, {_TILE}")
        one_row, two_rows = (
            w.select(has_two_columns, "ptr", *names[1::-1]),
            w.select(has_two_columns, "ptr", *names[3:1:-1]),
        )
        kernel = w.select(has_two_rows, "ptr", two_rows, one_row)
        remainder = f"ptr %own, i64 {PANEL_BYTES}, i1 %add, ptr {last}"
        w.do(f"call void {kernel}({arguments}, {remainder})")
        self._copy("%own", str(PANEL_BYTES), "%c", row)
        w.do("ret void")
        lines = "\n".join(w.lines)
        head = (
            f"define internal void @weft.tiles({_PARAMETERS}, i64 %c_row, i64 %rows, i64 %columns"
        )
        return f"{head}, i1 %add, ptr noalias %own) noinline #0 {{\nentry:\n{lines}\n}}\n"

    def _copy(self, source: str, stride: str, address: str, apart_there: str) -> None:
        """Copy the valid rows and columns of a tile."""
        w = self.w
        kind, index = f"<{_TILE} x i32>", ", ".join(f"i32 {lane}" for lane in range(_TILE))
        rows = w.emit_min("%rows", str(ROWS))
        masks = []
        for first in (0, _TILE):
            remaining = w.put(f"trunc i64 {w.put(f'sub i64 %columns, {first}')} to i32")
            masks.append(w.put(f"icmp slt {kind} <{index}>, {w.broadcast(kind, remaining)}"))
        with w.iterate(rows, note=", !llvm.loop !0") as i:
            x = w.offset_address(source, "i8", w.put(f"mul nsw i64 {i}, {stride}"))
            y = w.offset_address(address, "i8", w.put(f"mul nsw i64 {i}, {apart_there}"))
            for step_index, mask in enumerate(masks):
                x_lanes, y_lanes = (
                    w.offset_address(x, "i8", str(step_index * STEP)),
                    w.offset_address(y, "i8", str(step_index * STEP)),
                )
                result = w.put(
                    f"call {kind} @llvm.masked.load.v16i32.p0(ptr align 4 {x_lanes}, "
                    f"<{_TILE} x i1> {mask}, {kind} zeroinitializer)"
                )
                w.do(
                    f"call void @llvm.masked.store.v16i32.p0({kind} {result}, "
                    f"ptr align 4 {y_lanes}, <{_TILE} x i1> {mask})"
                )
