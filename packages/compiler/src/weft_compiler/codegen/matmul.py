"""The routines `matmul` and `matmul_packed`, for the kernels of `weft_compiler.codegen.tiles`.

    for columns in blocks of NC:              # a block of b, packed, stays in the L2 cache
      for k in blocks of KC:
        pack the block of b as panels of the width of a tile
        for rows in tiles:                    # the rows of a, copied, stay in the L1 cache
          for columns in tiles:
            kernel: c tile = or += rows of a times panel of b

If packing does not pay off, b is read in place.  The loops for few rows are in `panels_first`.

    matmul_packed: b is packed already

    for k in blocks of KC:
      for rows in tiles:                      # copied, except a single row
        for columns in tiles:
          kernel: c tile = or += rows of a times panel of b
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Final

from weft_compiler.codegen import transpose
from weft_compiler.codegen.skinny_gemm import (
    MANY,
    Panel,
    emit_large_test,
    emit_panel_address,
    emit_panel_tiles,
    memory,
)
from weft_compiler.codegen.targets import Target
from weft_compiler.codegen.tile_kernels import select_kernel
from weft_compiler.codegen.tiles import (
    Shape,
    iterate_tiles,
    module,
    shape_of,
    symbol,
    texts,
)
from weft_compiler.codegen.writer import Loops
from weft_compiler.layouts import LINE, PANEL_BYTES
from weft_tensor.dtypes import DType

_FEW: Final = 4
_LARGE: Final = 1 << 20
"""Packing a b with contiguous rows pays off if more than `_FEW` tiles of rows use it. With the
widest registers, whose tiles read whole cache lines, it also pays off if b has more than `_LARGE`
bytes.
"""

_AT_ONCE: Final = 4
"""Rows of b that are added to a single row of c together."""

_VIEWS: Final = "ptr %a, ptr %b, ptr %c"
_NUMBERS: Final = {
    "matmul": ("m", "n", "k", "ar", "ac", "br", "bc", "cr", "accumulate"),
    "matmul_packed": ("m", "n", "k", "ar", "cr", "accumulate"),
}


def workspace(dtype: DType, target: Target, m: int, n: int, k: int) -> int:
    """Return the workspace of `matmul`, in bytes."""
    s = shape_of(dtype, target)
    columns = min(s.columns, -(-n // s.width) * s.width)
    packed = s.panel_bytes + min(s.depth, k) * columns * dtype.size
    return max(packed, memory(s, min(m, MANY * s.rows[0]), k))


def packed_workspace(dtype: DType, target: Target) -> int:
    """Return the workspace of `matmul_packed`, in bytes."""
    return shape_of(dtype, target).panel_bytes


def module_text(dtype: DType, target: Target) -> str:
    """Return the LLVM module that defines the routines."""
    s = shape_of(dtype, target)
    transpose_text = transpose.text(dtype, s.lanes)
    return module(target, *texts(s), transpose_text, _Driver(s).text(), _Packed(s).text())


class _Routine(ABC):
    """Base of both routines."""

    name = ""

    def __init__(self, s: Shape) -> None:
        self.s = s
        self.scalar = s.scalar
        self.w = Loops()

    def text(self) -> str:
        """Return the LLVM function of the routine."""
        self.write()
        self.w.do("ret void")
        numbers = ", ".join(f"i64 %{name}" for name in _NUMBERS[self.name])
        views = _VIEWS.replace("ptr", "ptr noalias")
        head = f"define void @{symbol(self.name, self.s.dtype)}({views}, {numbers}"
        lines = "\n".join(self.w.lines)
        return f"{head}, ptr noalias %workspace) #0 {{\nentry:\n{lines}\n}}\n"

    @abstractmethod
    def write(self) -> None:
        """Emit the body."""

    def move(self, source: str, address: str, kind: str = "") -> None:
        """Copy one element, or one register of elements."""
        kind, size = kind or self.scalar, self.s.dtype.size
        x = self.w.put(f"load {kind}, ptr {source}, align {size}")
        self.w.do(f"store {kind} {x}, ptr {address}, align {size}")

    def copy(self, a: str, rows: str, depth: str, target: str = "%workspace") -> None:
        """Copy rows of a that are contiguous."""
        w, s = self.w, self.s
        kind = f"<{s.lanes} x {s.scalar}>"
        full_count = w.put(f"and i64 {depth}, {-s.lanes}")
        with w.iterate(rows) as i:
            source = w.offset_address(a, self.scalar, w.put(f"mul nsw i64 {i}, %ar"))
            address = w.offset_address(target, self.scalar, w.put(f"mul nsw i64 {i}, {s.row}"))
            with w.iterate(full_count, s.lanes) as p:
                self.move(
                    w.offset_address(source, self.scalar, p),
                    w.offset_address(address, self.scalar, p),
                    kind,
                )
            with w.iterate(depth, low=full_count) as p:
                self.move(
                    w.offset_address(source, self.scalar, p),
                    w.offset_address(address, self.scalar, p),
                )


class _Packed(_Routine):
    name = "matmul_packed"

    def write(self) -> None:
        w, s = self.w, self.s
        panel = PANEL_BYTES // s.dtype.size
        is_single = w.put("icmp eq i64 %m, 1")
        blocks = w.put("call i64 @llvm.smax.i64(i64 %k, i64 1)")  # a block of depth 0 stores zeros
        # A single row is read in place, so its blocks need not be small.
        stride = w.select(is_single, "i64", blocks, str(s.depth))
        with w.iterate(blocks, stride) as pc:
            depth = w.emit_min(w.put(f"sub i64 %k, {pc}"), stride)
            accumulates = w.put("icmp ne i64 %accumulate, 0")
            add = w.put(f"or i1 {w.put(f'icmp sgt i64 {pc}, 0')}, {accumulates}")
            with iterate_tiles(w, s, "%m") as (i, rows, kernel_rows):
                a = w.offset_address("%a", self.scalar, w.put(f"mul nsw i64 {i}, %ar"), pc)
                with w.emit_if(w.put(f"xor i1 {is_single}, true")):
                    self.copy(a, rows, depth)
                a_rows = w.select(is_single, "ptr", a, "%workspace")
                row = w.put(f"mul nsw i64 {i}, %cr")
                with w.iterate("%n", s.width) as j:
                    # Panels are one or two tiles wide: as wide as the widest registers.
                    offset = w.put(f"and i64 {j}, {-panel}")
                    start = w.put(f"mul nsw i64 {offset}, %k")
                    remainder = w.put(f"mul nsw i64 {pc}, {panel}")
                    b = w.offset_address(
                        "%b", self.scalar, start, remainder, w.put(f"sub i64 {j}, {offset}")
                    )
                    num_columns = w.put(f"sub i64 %n, {j}")
                    kernel = select_kernel(w, s, kernel_rows, num_columns)
                    address = w.offset_address("%c", self.scalar, row, j)
                    upcoming = w.offset_address(b, self.scalar, w.put(f"mul nsw i64 %k, {panel}"))
                    w.do(
                        f"call void {kernel}(ptr {a_rows}, ptr {b}, i64 {panel}, i64 {depth}, "
                        f"ptr {address}, i64 %cr, i64 {num_columns}, i1 {add}, ptr {upcoming}, i64 "
                        f"{panel})"
                    )


class _Driver(_Routine):
    name = "matmul"

    def write(self) -> None:
        w, s = self.w, self.s
        w.do("%packed.b = getelementptr i8, ptr %workspace, i64 " + str(s.panel_bytes))
        has_many_rows = w.put(f"icmp sgt i64 %m, {_FEW * s.rows[0]}")
        if s.lanes * s.dtype.size == LINE:
            size = w.put("mul nsw i64 %n, %k")
            large = w.put(f"icmp sgt i64 {size}, {_LARGE // s.dtype.size}")
            has_many_rows = w.put(f"and i1 {has_many_rows}, {large}")
        stride = w.put("icmp ne i64 %bc, 1")
        is_single = w.put("icmp eq i64 %m, 1")
        with w.emit_if(w.put(f"and i1 {is_single}, {w.put('icmp eq i64 %bc, 1')}")):
            self._emit_row()
            w.go("done")
            w.begin(w.label())  # unreachable
        has_few_rows = w.put(f"icmp sle i64 %m, {MANY * s.rows[0]}")
        has_few_rows = w.put(f"and i1 {has_few_rows}, {emit_large_test(w, s, '%k', '%n')}")
        with w.emit_if(w.put(f"and i1 {has_few_rows}, {w.put(f'xor i1 {stride}, true')}")):
            self._emit_panels_first()
            w.go("done")
            w.begin(w.label())  # unreachable
        packs = w.put(f"or i1 {has_many_rows}, {stride}")
        blocks = w.put("call i64 @llvm.smax.i64(i64 %k, i64 1)")  # a block of depth 0 stores zeros
        with w.iterate("%n", s.columns) as jc:
            columns = w.emit_min(w.put(f"sub i64 %n, {jc}"), str(s.columns))
            with w.iterate(blocks, s.depth) as pc:
                depth = w.emit_min(w.put(f"sub i64 %k, {pc}"), str(s.depth))
                rows = w.put(f"mul nsw i64 {pc}, %br")
                b = w.offset_address("%b", self.scalar, rows, w.put(f"mul nsw i64 {jc}, %bc"))
                with w.emit_if(packs):
                    self._pack(b, depth, columns)
                later = w.put(f"icmp sgt i64 {pc}, 0")
                accumulates = w.put("icmp ne i64 %accumulate, 0")
                add = w.put(f"or i1 {later}, {accumulates}")
                self._emit_tiles(jc, pc, depth, columns, b, packs, add)
        w.go("done")
        w.begin("done")

    def _emit_panels_first(self) -> None:
        """Emit the loops for few rows and a large b with contiguous rows, which is read once."""
        w, s = self.w, self.s
        panel_copy, copies = emit_panel_address(w, s, "%m")
        with w.iterate("%k", s.depth) as pc:
            depth = w.emit_min(w.put(f"sub i64 %k, {pc}"), str(s.depth))
            with w.iterate("%m", s.rows[0]) as i:
                rows = w.emit_min(w.put(f"sub i64 %m, {i}"), str(s.rows[0]))
                row = w.put(f"mul nsw i64 {i}, %ar")
                a = w.offset_address("%a", self.scalar, row, w.put(f"mul nsw i64 {pc}, %ac"))
                target = w.offset_address(
                    "%workspace", self.scalar, w.put(f"mul nsw i64 {i}, {s.row}")
                )
                self._copy(a, rows, depth, target)
            accumulates = w.put("icmp ne i64 %accumulate, 0")
            add = w.put(f"or i1 {w.put(f'icmp sgt i64 {pc}, 0')}, {accumulates}")
            with w.iterate("%n", s.width) as j:
                num_columns = w.put(f"sub i64 %n, {j}")
                b = w.offset_address("%b", self.scalar, w.put(f"mul nsw i64 {pc}, %br"), j)
                column = w.put(f"add nsw i64 {j}, {s.width}")
                last = w.put(f"icmp sge i64 {column}, %n")
                line = w.select(last, "i64", w.put(f"add nsw i64 {pc}, {depth}"), pc)
                column = w.select(last, "i64", "0", column)
                upcoming = w.offset_address(
                    "%b", self.scalar, w.put(f"mul nsw i64 {line}, %br"), column
                )
                panel = Panel(b, "%br", depth, num_columns, upcoming, "%br")
                c = w.offset_address("%c", self.scalar, j)
                emit_panel_tiles(w, s, panel, panel_copy, copies, "%m", "%m", (c, "%cr", add))

    def _emit_row(self) -> None:
        """Emit the loops for a single row.

        B is read once from start to end, several rows at a time.
        """
        w, s = self.w, self.s
        zero = "0x0000000000000000"
        with w.emit_if(w.put("icmp eq i64 %accumulate, 0")), w.iterate("%n") as j:
            address = w.offset_address("%c", self.scalar, j)
            w.do(f"store {self.scalar} {zero}, ptr {address}, align {s.dtype.size}")
        # Each load and store of c then serves several rows of b.
        full_count = w.put(f"and i64 %k, {-_AT_ONCE}")
        with w.iterate(full_count, _AT_ONCE) as p:
            self._add_rows(p, _AT_ONCE)
        with w.iterate("%k", low=full_count) as p:
            self._add_rows(p, 1)

    def _add_rows(self, p: str, count: int) -> None:
        """Multiply some rows of b with their elements of a, and add them to the row of c."""
        w, size = self.w, self.s.dtype.size
        suffix = "f64" if self.scalar == "double" else "f32"
        factors, rows = [], []
        for index in range(count):
            element = w.put(f"add nsw i64 {p}, {index}")
            address = w.offset_address("%a", self.scalar, w.put(f"mul nsw i64 {element}, %ac"))
            factors.append(w.put(f"load {self.scalar}, ptr {address}, align {size}"))
            rows.append(w.offset_address("%b", self.scalar, w.put(f"mul nsw i64 {element}, %br")))
        with w.iterate("%n") as j:
            place = w.offset_address("%c", self.scalar, j)
            total = w.put(f"load {self.scalar}, ptr {place}, align {size}")
            for factor, row in zip(factors, rows, strict=True):
                x = w.put(
                    f"load {self.scalar}, ptr {w.offset_address(row, self.scalar, j)}, align {size}"
                )
                total = w.call(f"llvm.fmuladd.{suffix}", self.scalar, factor, x, total)
            w.do(f"store {self.scalar} {total}, ptr {place}, align {size}")

    def _emit_tiles(
        self, jc: str, pc: str, depth: str, columns: str, b: str, packs: str, add: str
    ) -> None:
        """Emit all tiles of a block.

        The loop over rows is the outer one, so that a is copied once.
        """
        w, s = self.w, self.s
        with iterate_tiles(w, s, "%m") as (i, rows, kernel_rows):
            row = w.put(f"mul nsw i64 {i}, %ar")
            a = w.offset_address("%a", self.scalar, row, w.put(f"mul nsw i64 {pc}, %ac"))
            self._copy(a, rows, depth)
            should_prefetch = w.put(f"icmp eq i64 {i}, 0")
            should_prefetch = w.put(f"and i1 {should_prefetch}, {w.put(f'xor i1 {packs}, true')}")
            upcoming_stride = w.select(should_prefetch, "i64", "%br", "0")
            c = w.offset_address("%c", self.scalar, w.put(f"mul nsw i64 {i}, %cr"), jc)
            stride = w.select(packs, "i64", str(s.width), "%br")
            with w.iterate(columns, s.width) as j:
                panel = w.offset_address(
                    "%packed.b", self.scalar, w.put(f"mul nsw i64 {j}, {depth}")
                )
                y = w.select(packs, "ptr", panel, w.offset_address(b, self.scalar, j))
                num_columns = w.put(f"sub i64 {columns}, {j}")
                kernel = select_kernel(w, s, kernel_rows, num_columns)
                address = w.offset_address(c, self.scalar, j)
                upcoming = w.offset_address(
                    y, self.scalar, w.select(should_prefetch, "i64", str(s.width), "0")
                )
                w.do(
                    f"call void {kernel}(ptr %workspace, ptr {y}, i64 {stride}, i64 {depth}, "
                    f"ptr {address}, i64 %cr, i64 {num_columns}, i1 {add}, ptr {upcoming}, i64 "
                    f"{upcoming_stride})"
                )

    def _copy(self, a: str, rows: str, depth: str, target: str = "%workspace") -> None:
        """Copy rows of a, which may be strided, to contiguous ones."""
        w, s = self.w, self.s
        dense, transposed, strided, end = w.label(), w.label(), w.label(), w.label()
        not_dense = w.label()
        w.branch(w.put("icmp eq i64 %ac, 1"), dense, not_dense)
        w.begin(dense)
        self.copy(a, rows, depth, target)
        w.go(end)
        w.begin(not_dense)
        w.branch(w.put("icmp eq i64 %ar, 1"), transposed, strided)
        w.begin(transposed)
        transpose.call(w, a, target, depth, rows, "%ac", str(s.row))
        w.go(end)
        w.begin(strided)
        with w.iterate(rows) as i:
            source = w.offset_address(a, self.scalar, w.put(f"mul nsw i64 {i}, %ar"))
            address = w.offset_address(target, self.scalar, w.put(f"mul nsw i64 {i}, {s.row}"))
            with w.iterate(depth) as p:
                far = w.offset_address(source, self.scalar, w.put(f"mul nsw i64 {p}, %ac"))
                self.move(far, w.offset_address(address, self.scalar, p))
        w.go(end)
        w.begin(end)

    def _pack(self, b: str, depth: str, columns: str) -> None:
        """Pack a block of b; elements beyond the last column are never read."""
        w, s = self.w, self.s
        with w.iterate(columns, s.width) as j:
            num_columns = w.emit_min(w.put(f"sub i64 {columns}, {j}"), str(s.width))
            panel = w.offset_address("%packed.b", self.scalar, w.put(f"mul nsw i64 {j}, {depth}"))
            source = w.offset_address(b, self.scalar, w.put(f"mul nsw i64 {j}, %bc"))
            dense, strided, end = w.label(), w.label(), w.label()
            w.branch(w.put("icmp eq i64 %bc, 1"), dense, strided)
            w.begin(dense)
            self._pack_rows(source, panel, depth, num_columns)
            w.go(end)
            w.begin(strided)
            self._pack_columns(source, panel, depth, num_columns)
            w.go(end)
            w.begin(end)

    def _pack_rows(self, source: str, panel: str, depth: str, num_columns: str) -> None:
        w, s, size = self.w, self.s, self.s.dtype.size
        kind = f"<{s.width} x {self.scalar}>"
        full_panel, partial_panel, end = w.label(), w.label(), w.label()
        w.branch(w.put(f"icmp eq i64 {num_columns}, {s.width}"), full_panel, partial_panel)
        w.begin(full_panel)
        with w.iterate(depth) as p:
            row = w.offset_address(source, self.scalar, w.put(f"mul nsw i64 {p}, %br"))
            address = w.offset_address(panel, self.scalar, w.put(f"mul nsw i64 {p}, {s.width}"))
            x = w.put(f"load {kind}, ptr {row}, align {size}")
            w.do(f"store {kind} {x}, ptr {address}, align 64")
        w.go(end)
        w.begin(partial_panel)
        with w.iterate(depth) as p:
            row = w.offset_address(source, self.scalar, w.put(f"mul nsw i64 {p}, %br"))
            address = w.offset_address(panel, self.scalar, w.put(f"mul nsw i64 {p}, {s.width}"))
            with w.iterate(num_columns) as j:
                self.move(
                    w.offset_address(row, self.scalar, j), w.offset_address(address, self.scalar, j)
                )
        w.go(end)
        w.begin(end)

    def _pack_columns(self, source: str, panel: str, depth: str, num_columns: str) -> None:
        w, s = self.w, self.s
        transposed, strided, end = w.label(), w.label(), w.label()
        w.branch(w.put("icmp eq i64 %br, 1"), transposed, strided)
        w.begin(transposed)
        transpose.call(w, source, panel, num_columns, depth, "%bc", str(s.width))
        w.go(end)
        w.begin(strided)
        with w.iterate(depth) as p:
            row = w.offset_address(source, self.scalar, w.put(f"mul nsw i64 {p}, %br"))
            address = w.offset_address(panel, self.scalar, w.put(f"mul nsw i64 {p}, {s.width}"))
            with w.iterate(num_columns) as j:
                far = w.offset_address(row, self.scalar, w.put(f"mul nsw i64 {j}, %bc"))
                self.move(far, w.offset_address(address, self.scalar, j))
        w.go(end)
        w.begin(end)
